// lltm_products.cu -- the products of lltm_backward as tiles of one grid, for any device, dtype and strides. Step 5 of a tensor's
// path.
#include "lltm_backward.h"
#include "lltm_cell.h"
#include "tile_gemm.h"

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

// The product that a block works on. A run-time index into a kernel's parameters would copy them all to local memory.
__device__ __forceinline__ LltmProduct product_of(const LltmProducts& p, int64_t block) {
  LltmProduct product = p.list[0];
#pragma unroll
  for (int i = 1; i < kMaxLltmProducts; ++i)
    if (i < p.count && block >= p.list[i].first_block) product = p.list[i];
  return product;
}

template <class T, class Tile, bool Together>
__global__ void __launch_bounds__(Tile::kThreads) lltm_products_kernel(LltmProducts p) {
  using A = Accumulate<T>;
  __shared__ typename Tile::Shared shared;
  typename Tile::Sums sums;
  const LltmProduct product = product_of(p, blockIdx.x);
  const int64_t column_tiles = (product.columns + Tile::kColumns - 1) / Tile::kColumns;
  const int64_t block = blockIdx.x - product.first_block, slice = block % product.slices, tile = block / product.slices;
  const int64_t row0 = tile / column_tiles * Tile::kRows, column0 = tile % column_tiles * Tile::kColumns;
  const int64_t stages = (product.depth + Tile::kDepth - 1) / Tile::kDepth;
  const int64_t begin = slice_begin(stages, product.slices, slice) * Tile::kDepth;
  const int64_t end = slice_begin(stages, product.slices, slice + 1) * Tile::kDepth;
  const OperandLoader<T, Together> operand = {
      {at<const T>(product.operand, 0, 0), product.operand.column, product.operand.row, product.columns, product.depth}};
  const A* grads = at<const A>(p.gate_grads, 0, 0);
  const int64_t pitch = p.gate_grads.row;
  if (product.to_weights)
    multiply<Tile>(MatrixLoader<A, false, true>{grads, 1, pitch, product.rows, product.depth}, operand, row0, column0, begin, end,
                   shared, sums);
  else
    multiply<Tile>(MatrixLoader<A, true, true>{grads, pitch, 1, product.rows, product.depth}, operand, row0, column0, begin, end,
                   shared, sums);
  A* partial = reinterpret_cast<A*>(p.partials) + product.partial + slice * product.rows * product.columns;
  for_each_sum<Tile>(sums, row0, column0, [&](int64_t row, int64_t column, A sum) {
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
int64_t num_tiles(const LltmProduct& product) {
  return ceil_div(product.rows, Tile::kRows) * ceil_div(product.columns, Tile::kColumns);
}
template <class Tile>
int64_t num_stages(const LltmProduct& product) {
  return ceil_div(product.depth, Tile::kDepth);
}

// Cuts what would keep one block busy for longer than the device needs for everything.
template <class Tile, class Acc>
LltmProductsChoice lay_out(const Device& device, LltmProducts* products) {
  constexpr int64_t kLeastStages = 4;
  int64_t all_stages = 0;
  for (int i = 0; i < products->count; ++i) all_stages += num_tiles<Tile>(products->list[i]) * num_stages<Tile>(products->list[i]);
  const int64_t fair = std::max(kLeastStages, ceil_div(all_stages, 2 * device.multiprocessors));
  LltmProductsChoice choice;
  int64_t partials = 0, results = 0;
  for (int i = 0; i < products->count; ++i) {
    LltmProduct& product = products->list[i];
    product.slices = std::max<int64_t>(num_stages<Tile>(product) / fair, 1);
    product.first_block = choice.blocks;
    product.partial = partials;
    product.first_result = results;
    choice.blocks += num_tiles<Tile>(product) * product.slices;
    if (product.slices == 1) continue;
    partials += product.slices * product.rows * product.columns;
    results += product.rows * product.columns;
  }
  choice.threads = Tile::kThreads;
  choice.sum_blocks = ceil_div(results, kLltmSumThreads);
  choice.partials_size = static_cast<uint64_t>(partials) * sizeof(Acc);
  return choice;
}

template <class T, class Tile>
LltmProductsChoice choice(const Device& device, bool together, LltmProducts* products) {
  LltmProductsChoice out = lay_out<Tile, Accumulate<T>>(device, products);
  out.products = together ? lltm_products_kernel<T, Tile, true> : lltm_products_kernel<T, Tile, false>;
  if (out.sum_blocks != 0) out.sums = lltm_sums_kernel<T>;
  return out;
}

}  // namespace

LltmProductsChoice lltm_tiled_products(const Device& device, Dtype dtype, bool together, LltmProducts* products) {
  return with_dtype(dtype, [&]<class T>(T) {
    using Large = LargeTile<Accumulate<T>>;
    int64_t stages = 0;  // of large tiles; too few to fill the device: small ones
    for (int i = 0; i < products->count; ++i) stages += num_tiles<Large>(products->list[i]) * num_stages<Large>(products->list[i]);
    if (stages >= 8 * device.multiprocessors) return choice<T, Large>(device, together, products);
    return choice<T, SmallTile<Accumulate<T>>>(device, together, products);
  });
}

}  // namespace narrows::gpu
