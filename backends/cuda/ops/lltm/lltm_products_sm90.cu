// SPDX-License-Identifier: Apache-2.0
// lltm_products_sm90.cu -- the products of lltm_backward in f32 and f64 on the f64 matrix units of sm_90 (see tile_mma_sm80.h).
//
// Operands lie in shared memory as they do outside, since copies run 16 bytes at a time: along k (the gradient of the gates on the
// way to the inputs) or along the results. A thread reads single elements, and widens those of f32.
#include "lltm_backward.h"
#include "lltm_cell.h"
#include "lltm_native.h"
#include "lltm_tile.h"
#include "ops/gemm/tile_mma_sm80.h"

namespace narrows::gpu {
namespace {

constexpr int kRows = 128, kColumns = 128, kThreads = 256, kStages = 4;
constexpr int kRowTiles = 4, kColumnTiles = 4, kColumnWarps = 4;  // of 16 rows, of 8 columns; 2 x 4 warps
constexpr int kSteps = 2;                                         // of 16 k in a stage; of 8 k in f64

// One operand's part of a stage, of elements of E: kWidth results by kDepth of k.
template <class E, int Width, int Depth>
struct OperandTile {
  static constexpr int kUnit = 16 / static_cast<int>(sizeof(E));
  // Along the results: rows of one k each. The padding puts the rows that a warp reads together into different banks.
  static constexpr int kPitch = Width + 32 / static_cast<int>(sizeof(E));
  static constexpr int kBytes = std::max(kPitch * Depth, Width* Depth) * static_cast<int>(sizeof(E));
  static constexpr int kUnitsAlongDepth = Depth / kUnit;

  template <bool AlongDepth>
  static __device__ __forceinline__ int place(int result, int k) {
    if (!AlongDepth) return k * kPitch + result;
    return result * Depth + ((k / kUnit) ^ (result % 8 % kUnitsAlongDepth)) * kUnit + k % kUnit;
  }

  // Issues the copies of results [result0, result0 + Width) and k [k0, k0 + Depth), 0 past the edges.
  template <bool AlongDepth>
  static __device__ __forceinline__ void fetch(const E* base, int64_t pitch, int64_t result0, int64_t results, int64_t k0,
                                               int64_t depth, E* to) {
    constexpr int kInner = (AlongDepth ? Depth : Width) / kUnit, kOuter = AlongDepth ? Width : Depth;
#pragma unroll
    for (int i = 0; i < (kInner * kOuter + kThreads - 1) / kThreads; ++i) {
      const int unit = i * kThreads + static_cast<int>(threadIdx.x), outer = unit / kInner, inner = unit % kInner * kUnit;
      if (kInner * kOuter % kThreads != 0 && outer >= kOuter) continue;
      const int result = AlongDepth ? outer : inner, k = AlongDepth ? inner : outer;
      const bool inside = result0 + result < results && k0 + k < depth;
      const int64_t at = AlongDepth ? (result0 + result) * pitch + (k0 + k) : (k0 + k) * pitch + (result0 + result);
      copy_16_bytes(shared_address(to + place<AlongDepth>(result, k)), base + at, inside);
    }
  }
};

template <class T>
struct Product90 {
  static constexpr int kSlots = sizeof(T) == 8 ? 2 : 4;  // of k that a thread holds of a row in one instruction
  static constexpr int kStepDepth = 4 * kSlots, kDepth = kSteps * kStepDepth;
  using TileA = OperandTile<T, kRows, kDepth>;
  using TileB = OperandTile<T, kColumns, kDepth>;
  static constexpr int kStageBytes = TileA::kBytes + TileB::kBytes, kShared = kStages * kStageBytes;
  struct Sums {
    double at[kRowTiles][kColumnTiles][4] = {};
  };
  static __device__ int first_row() { return static_cast<int>(threadIdx.x) / 32 / kColumnWarps * kRowTiles * 16; }
  static __device__ int first_column() { return static_cast<int>(threadIdx.x) / 32 % kColumnWarps * kColumnTiles * 8; }
};

template <class T, bool ToWeights>
__device__ __forceinline__ void accumulate(const char* stage, typename Product90<T>::Sums& sums) {
  using P = Product90<T>;
  const auto* a = reinterpret_cast<const T*>(stage);
  const auto* b = reinterpret_cast<const T*>(stage + P::TileA::kBytes);
  const int lane = static_cast<int>(threadIdx.x) % 32, group = lane / 4, slot0 = lane % 4;
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    double columns[kColumnTiles][P::kSlots];
#pragma unroll
    for (int column = 0; column < kColumnTiles; ++column)
#pragma unroll
      for (int i = 0; i < P::kSlots; ++i)
        columns[column][i] =
            b[P::TileB::template place<false>(P::first_column() + column * 8 + group, step * P::kStepDepth + slot0 + 4 * i)];
#pragma unroll
    for (int row = 0; row < kRowTiles; ++row) {
      double rows[2][P::kSlots];
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int i = 0; i < P::kSlots; ++i)
          rows[half][i] = a[P::TileA::template place<!ToWeights>(P::first_row() + row * 16 + half * 8 + group,
                                                                 step * P::kStepDepth + slot0 + 4 * i)];
#pragma unroll
      for (int column = 0; column < kColumnTiles; ++column) multiply_units(sums.at[row][column], rows, columns[column]);
    }
  }
}

template <class T, bool ToWeights>
__device__ __forceinline__ void multiply_slice(const LltmProducts& p, const LltmProduct& product, int64_t row0, int64_t column0,
                                               int64_t begin, int64_t end, char* shared, typename Product90<T>::Sums& sums) {
  using P = Product90<T>;
  const auto fetch = [&](int64_t k0, char* stage) {
    P::TileA::template fetch<!ToWeights>(at<const T>(p.gate_grads, 0, 0), p.gate_grads.row, row0, product.rows, k0, product.depth,
                                         reinterpret_cast<T*>(stage));
    P::TileB::template fetch<false>(at<const T>(product.operand, 0, 0), product.operand.row, column0, product.columns, k0,
                                    product.depth, reinterpret_cast<T*>(stage + P::TileA::kBytes));
  };
#pragma unroll
  for (int i = 0; i < kStages - 1; ++i) {
    if (begin + i < end) fetch((begin + i) * P::kDepth, shared + i * P::kStageBytes);
    end_stage();
  }
  int stage = 0, next = kStages - 1;
#pragma unroll 1
  for (int64_t i = begin; i < end; ++i) {
    wait_for_stage<kStages - 2>();
    __syncthreads();  // the stage is there for all, and all are done with the one that the next fetch overwrites
    if (i + kStages - 1 < end) fetch((i + kStages - 1) * P::kDepth, shared + next * P::kStageBytes);
    end_stage();
    accumulate<T, ToWeights>(shared + stage * P::kStageBytes, sums);
    stage = stage + 1 == kStages ? 0 : stage + 1;
    next = next + 1 == kStages ? 0 : next + 1;
  }
  wait_for_stage<0>();
}

// The sums of the gate gradients' columns, which d_bias is: one thread for each.
template <class T, class Store>
__device__ __forceinline__ void add_columns(const LltmProducts& p, const LltmProduct& product, int64_t row0, int64_t begin,
                                            int64_t end, const Store& store) {
  const int64_t row = row0 + static_cast<int64_t>(threadIdx.x);
  if (threadIdx.x >= kRows || row >= product.rows) return;
  T sum = 0;
#pragma unroll 8
  for (int64_t k = begin; k < std::min(end, product.depth); ++k) sum += *at<const T>(p.gate_grads, k, row);
  store(row, 0, sum);
}

template <class T>
__global__ void __launch_bounds__(kThreads, 1) lltm_products_sm90_kernel(LltmProducts p) {
  using P = Product90<T>;
  extern __shared__ __align__(16) char shared[];
  const LltmProduct product = product_of(p, blockIdx.x);
  const LltmTile tile = tile_of(product, blockIdx.x, kRows, kColumns, P::kDepth);
  T* partial = reinterpret_cast<T*>(p.partials) + product.partial + tile.slice * product.rows * product.columns;
  const auto store = [&](int64_t row, int64_t column, T sum) {
    if (row >= product.rows || column >= product.columns) return;
    if (product.slices > 1)
      partial[row * product.columns + column] = sum;
    else
      write<T, true>(product.out, row, column, sum);
  };
  if (product.operand.base == nullptr)
    return add_columns<T>(p, product, tile.row0, tile.begin * P::kDepth, tile.end * P::kDepth, store);
  typename P::Sums sums;
  if (product.to_weights)
    multiply_slice<T, true>(p, product, tile.row0, tile.column0, tile.begin, tile.end, shared, sums);
  else
    multiply_slice<T, false>(p, product, tile.row0, tile.column0, tile.begin, tile.end, shared, sums);
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int row = 0; row < kRowTiles; ++row)
#pragma unroll
    for (int column = 0; column < kColumnTiles; ++column)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        store(tile.row0 + P::first_row() + row * 16 + lane / 4 + i / 2 * 8,
              tile.column0 + P::first_column() + column * 8 + lane % 4 * 2 + i % 2, static_cast<T>(sums.at[row][column][i]));
}

// Whether every operand can be copied 16 bytes at a time, none of which straddles an edge.
template <class T>
bool has_whole_units(const LltmProducts& products) {
  constexpr int64_t kUnit = 16 / static_cast<int64_t>(sizeof(T));
  for (int i = 0; i < products.count; ++i) {
    const LltmProduct& product = products.list[i];
    if ((product.to_weights ? product.rows : product.depth) % kUnit != 0) return false;
    if (product.has_operand && product.columns % kUnit != 0) return false;
  }
  return true;
}

}  // namespace

LltmProductsChoice lltm_products_sm90(const Device& device, Dtype dtype, bool copyable, LltmProducts* products) {
  if (device.generation != 90 || device.compute_capability != 90 || !copyable) return {};
  const auto choose = [&]<class T>(T) -> LltmProductsChoice {
    using P = Product90<T>;
    constexpr LltmTileSize kTile = {kRows, kColumns, P::kDepth};
    if (!has_whole_units<T>(*products)) return {};
    LltmProductsChoice choice = lay_out(device, dtype, kTile, products);
    choice.kernel = kernel_address(lltm_products_sm90_kernel<T>);
    choice.threads = kThreads;
    choice.shared = P::kShared;
    return choice;
  };
  return dtype == Dtype::f64 ? choose(double{}) : choose(float{});
}

}  // namespace narrows::gpu
