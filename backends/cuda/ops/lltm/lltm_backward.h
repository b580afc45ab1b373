// SPDX-License-Identifier: Apache-2.0
// lltm_backward.h -- what the kernels of lltm_backward work on. First the gradient of the gates, into the workspace; then the
// products that spread it over inputs, weights and bias, all in one launch; then, where a long reduction was cut into slices, their
// sums. Matrix units of 16 bits take the gradient of the gates in two parts, into which it is split first, and leave d_bias to sums
// of its own (lltm_bias.h).
#pragma once

#include "lltm.h"

namespace narrows::gpu {

// What the gradient of the gates is made of.
struct LltmGateGrads {
  int64_t batch, state;
  Matrix grad_h, grad_cell, new_cell, gates, d_old_cell;  // both gradients and d_old_cell may be absent
  Matrix gate_grads;                                      // (batch, 3 * state) of the accumulator's dtype
  char* largest;                                          // each block's largest finite magnitude among them; nullptr: unwanted
};

// out[i, j] = sum over k of gate_grads * operand: toward the inputs gate_grads[i, k] * operand[k, j], toward the weights
// gate_grads[k, i] * operand[k, j]; an absent operand is all ones, which makes the sums that d_bias is.
struct LltmProduct {
  Matrix operand, out;
  int64_t rows, columns, depth;
  bool to_weights, has_operand;
  int64_t first_block;   // its blocks: row tile, then column tile, then slice
  int64_t slices;        // of the reduction
  int64_t partial;       // where its slices' sums begin among all, in elements; only if there are several
  int64_t first_result;  // its first result among those of all products in slices
};

constexpr int kMaxLltmProducts = 5;
struct LltmProducts {
  int count = 0;
  LltmProduct list[kMaxLltmProducts];
  Matrix gate_grads;
  char* partials = nullptr;  // of the accumulator's dtype
  // For kernels that split the gate gradients (lltm_halves_sm80.h): the largest finite magnitude of each of num_largest parts of
  // them, and a place for what undoes the scale.
  const float* largest = nullptr;
  int64_t num_largest = 0;
  float* unscale = nullptr;
};

// What one launch of products needs, by signature alone; kernel nullptr: this way isn't made for the request.
using LltmProductsKernel = void (*)(LltmProducts);
struct LltmProductsChoice {
  const void* kernel = nullptr;
  LltmProductsKernel sums = nullptr;  // nullptr: no reduction is cut
  int64_t blocks = 0, sum_blocks = 0;
  int threads = 0;
  size_t shared = 0;           // dynamic, of the products
  uint64_t partials_size = 0;  // bytes
  // What puts the products on a stream; nullptr: the kernel takes them as they are.
  void (*launch)(const LltmProductsChoice& choice, const LltmProducts& products, gpuStream_t stream) = nullptr;
};
constexpr int kLltmSumThreads = 256;
constexpr int64_t kLltmChunk = 64;  // of gates, which a split keeps together: lltm_halves_sm80.h

struct LltmTileSize {
  int64_t rows, columns, depth;  // depth: k of a stage
};
inline int64_t num_tiles(const LltmProduct& product, LltmTileSize tile) {
  return ceil_div(product.rows, tile.rows) * ceil_div(product.columns, tile.columns);
}
// Of all tiles of all products.
int64_t num_stages(const LltmProducts& products, LltmTileSize tile);
// Cuts reductions that take longer than a share, were all stages shared out to `shares`: into slices of no less, or, at_most, of no
// more than that. Fills in all but `kernel`, `threads`, `shared`.
LltmProductsChoice lay_out(int64_t shares, Dtype dtype, LltmTileSize tile, LltmProducts* products, bool at_most = false);
// Of plain tiles, two for each multiprocessor.
inline LltmProductsChoice lay_out(const Device& device, Dtype dtype, LltmTileSize tile, LltmProducts* products) {
  return lay_out(int64_t{2} * device.multiprocessors, dtype, tile, products);
}

// Chooses a tile. `together`: operands can be read 16 bytes at once.
LltmProductsChoice lltm_tiled_products(const Device& device, Dtype dtype, bool together, LltmProducts* products);

}  // namespace narrows::gpu
