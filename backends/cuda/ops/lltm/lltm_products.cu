// SPDX-License-Identifier: Apache-2.0
// lltm_products.cu -- the products of lltm_backward as tiles of one grid, for any device, dtype and strides.
#include "lltm_backward.h"
#include "lltm_cell.h"
#include "lltm_tile.h"

namespace narrows::gpu {
namespace {

// operand[k, row], or all ones where it is absent.
template <class T, bool Together>
struct OperandLoader {
  static constexpr bool kAlongDepth = false;
  MatrixLoader<T, false, Together> matrix;
  __device__ __forceinline__ void load(int64_t row, int64_t k, Accumulate<T> (&out)[kGroup<Accumulate<T>>]) const {
    if (matrix.base != nullptr) return matrix.load(row, k, out);
#pragma unroll
    for (int i = 0; i < kGroup<Accumulate<T>>; ++i) out[i] = row + i < matrix.rows && k < matrix.depth ? 1 : 0;
  }
};

template <class T, class Tile, bool Together>
__global__ void __launch_bounds__(Tile::kThreads) lltm_products_kernel(LltmProducts p) {
  using A = Accumulate<T>;
  __shared__ typename Tile::Shared shared;
  typename Tile::Sums sums;
  const LltmProduct product = product_of(p, blockIdx.x);
  const LltmTile tile = tile_of(product, blockIdx.x, Tile::kRows, Tile::kColumns, Tile::kDepth);
  const int64_t begin = tile.begin * Tile::kDepth, end = tile.end * Tile::kDepth;
  const OperandLoader<T, Together> operand = {
      {at<const T>(product.operand, 0, 0), product.operand.column, product.operand.row, product.columns, product.depth}};
  const A* grads = at<const A>(p.gate_grads, 0, 0);
  const int64_t pitch = p.gate_grads.row;
  if (product.to_weights)
    multiply<Tile>(MatrixLoader<A, false, true>{grads, 1, pitch, product.rows, product.depth}, operand, tile.row0, tile.column0,
                   begin, end, shared, sums);
  else
    multiply<Tile>(MatrixLoader<A, true, true>{grads, pitch, 1, product.rows, product.depth}, operand, tile.row0, tile.column0,
                   begin, end, shared, sums);
  A* partial = reinterpret_cast<A*>(p.partials) + product.partial + tile.slice * product.rows * product.columns;
  for_each_sum<Tile>(sums, tile.row0, tile.column0, [&](int64_t row, int64_t column, A sum) {
    if (row >= product.rows || column >= product.columns) return;
    if (product.slices > 1)
      partial[row * product.columns + column] = sum;
    else
      write<T, true>(product.out, row, column, sum);
  });
}

template <class T>
__global__ void __launch_bounds__(kLltmSumThreads) lltm_sums_kernel(LltmProducts p) {
  using A = Accumulate<T>;
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * kLltmSumThreads + threadIdx.x;
#pragma unroll 1
  for (int i = 0; i < p.count; ++i) {
    const LltmProduct& product = p.list[i];
    const int64_t size = product.rows * product.columns, result = thread - product.first_result;
    if (product.slices == 1 || result < 0 || result >= size) continue;
    const A* partial = reinterpret_cast<const A*>(p.partials) + product.partial + result;
    write<T, true>(product.out, result / product.columns, result % product.columns, sum_slices(partial, size, product.slices));
  }
}

template <class Acc>
using LargeTile = GemmTile<Acc, 16, 16, 2, 2, 16>;  // f32: 128 x 128
template <class Acc>
using SmallTile = GemmTile<Acc, 8, 8, 1, 1, 32>;  // f32: 32 x 32

template <class Tile>
constexpr LltmTileSize kSize = {Tile::kRows, Tile::kColumns, Tile::kDepth};

template <class T, class Tile>
LltmProductsChoice choice(const Device& device, Dtype dtype, bool together, LltmProducts* products) {
  LltmProductsChoice out = lay_out(device, dtype, kSize<Tile>, products);
  out.kernel = kernel_address(together ? lltm_products_kernel<T, Tile, true> : lltm_products_kernel<T, Tile, false>);
  out.threads = Tile::kThreads;
  return out;
}

}  // namespace

int64_t num_stages(const LltmProducts& products, LltmTileSize tile) {
  double stages = 0;
  for (int i = 0; i < products.count; ++i)
    stages +=
        static_cast<double>(num_tiles(products.list[i], tile)) * static_cast<double>(ceil_div(products.list[i].depth, tile.depth));
  return static_cast<int64_t>(std::min(stages, 0x1p62));  // which no memory has room for
}

LltmProductsChoice lay_out(int64_t shares, Dtype dtype, LltmTileSize tile, LltmProducts* products, bool at_most) {
  constexpr int64_t kLeastStages = 4;
  const int64_t fair = std::max(kLeastStages, ceil_div(num_stages(*products, tile), shares));
  LltmProductsChoice choice;
  int64_t partials = 0, results = 0;
  for (int i = 0; i < products->count; ++i) {
    LltmProduct& product = products->list[i];
    const int64_t depth = ceil_div(product.depth, tile.depth);
    product.slices = at_most ? ceil_div(depth, fair) : std::max<int64_t>(depth / fair, 1);
    product.first_block = choice.blocks;
    product.partial = partials;
    product.first_result = results;
    choice.blocks += num_tiles(product, tile) * product.slices;
    if (product.slices == 1) continue;
    partials += product.slices * product.rows * product.columns;
    results += product.rows * product.columns;
  }
  choice.sum_blocks = ceil_div(results, kLltmSumThreads);
  choice.partials_size = static_cast<uint64_t>(partials * size_of(accumulate_dtype(dtype)));
  if (results != 0) choice.sums = with_dtype(dtype, []<class T>(T) { return lltm_sums_kernel<T>; });
  return choice;
}

LltmProductsChoice lltm_tiled_products(const Device& device, Dtype dtype, bool together, LltmProducts* products) {
  return with_dtype(dtype, [&]<class T>(T) {
    using Large = LargeTile<Accumulate<T>>;
    // Too few stages of large tiles to fill the device: small ones.
    if (num_stages(*products, kSize<Large>) >= 8 * device.multiprocessors)
      return choice<T, Large>(device, dtype, together, products);
    return choice<T, SmallTile<Accumulate<T>>>(device, dtype, together, products);
  });
}

}  // namespace narrows::gpu
