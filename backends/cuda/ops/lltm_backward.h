// lltm_backward.h -- what the kernels of lltm_backward work on. Step 5 of a tensor's path. First the gradient of the gates, into
// the workspace; then the products that spread it over inputs, weights and bias, all in one launch; then, where a long reduction
// was cut into slices, their sums.
#pragma once

#include "lltm.h"

namespace narrows::gpu {

// What the gradient of the gates is made of.
struct LltmGateGrads {
  int64_t batch, state;
  Matrix grad_h, grad_cell, new_cell, gates, d_old_cell;  // both gradients and d_old_cell may be absent
  Matrix gate_grads;                                      // (batch, 3 * state) of the accumulator's dtype
};

// out[i, j] = sum over k of gate_grads * operand: toward the inputs gate_grads[i, k] * operand[k, j], toward the weights
// gate_grads[k, i] * operand[k, j]; an absent operand is all ones, which makes the sums that d_bias is.
struct LltmProduct {
  Matrix operand, out;
  int64_t rows, columns, depth;
  bool to_weights;
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
};

// The kernels of one request, by signature alone. blocks[i] and threads belong to kernel i.
using LltmProductsKernel = void (*)(LltmProducts);
struct LltmProductsChoice {
  LltmProductsKernel products = nullptr, sums = nullptr;  // sums nullptr: no reduction is cut
  int64_t blocks = 0, sum_blocks = 0;
  int threads = 0;
  uint64_t partials_size = 0;  // bytes
};
constexpr int kLltmSumThreads = 256;

// Chooses, and lays out products (blocks, slices, partial sums). `together`: operands and outputs can be read 16 bytes at once.
LltmProductsChoice lltm_tiled_products(const Device& device, Dtype dtype, bool together, LltmProducts* products);

}  // namespace narrows::gpu
