// SPDX-License-Identifier: Apache-2.0
// lltm_halves_sm80.cu -- the split of the gates' gradients into two parts of 16 bits (lltm_halves_sm80.h), and the products of
// lltm_backward in f16 and bf16 by mma.sync: both parts times one tile of the other operand.
//
// Operands lie in shared memory as they do outside, since copies run 16 bytes at a time: weights and [old_h, input] with columns
// together, the gradients along the reduction on the way to the inputs and across it on the way to the weights.
#include "lltm_halves_sm80.h"

#include "lltm_cell.h"
#include "lltm_native.h"
#include "lltm_tile.h"
#include "ops/fast_divide.h"
#include "ops/gemm/mma_sm80.h"

namespace narrows::gpu {
namespace {

// ---- the split ----

constexpr int kSplitThreads = 256;
constexpr int64_t kMostSplitBlocks = 2048;

// 16 threads have a chunk, which they read before they write it. Every block finds the scale again, block 0 keeps what undoes it.
template <class T>
__global__ void __launch_bounds__(kSplitThreads)
    lltm_split_kernel(float* grads, FastDivide row_chunks, int64_t chunks, int64_t gates, const float* largest, int64_t num_largest,
                      float* unscale) {
  Scale scale = {1, 1};
  if constexpr (std::is_same_v<T, f16>) {
    __shared__ float found[kSplitThreads];
    float most = 0;
    for (int64_t i = threadIdx.x; i < num_largest; i += kSplitThreads) most = fmaxf(most, largest[i]);
    scale = scale_for(largest_of_block<kSplitThreads>(most, found));
  }
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * kSplitThreads + threadIdx.x;
  if (thread == 0) *unscale = scale.down;
  const int64_t of_chunk = thread % 16, step = static_cast<int64_t>(gridDim.x) * kSplitThreads / 16;
  for (int64_t pair = thread / 32 * 2; pair < chunks; pair += step) {  // a warp's two chunks
    const int64_t chunk = pair + thread / 16 % 2;
    uint32_t row, in_row;
    row_chunks.divide(static_cast<uint32_t>(chunk), &row, &in_row);
    float* const from = grads + chunk * kLltmChunk + of_chunk * 4;
    const bool there = chunk < chunks && in_row * kLltmChunk + of_chunk * 4 < gates;
    const float4 x = there ? *reinterpret_cast<const float4*>(from) : float4{};
    const Halves<T> h[4] = {split<T>(x.x * scale.up), split<T>(x.y * scale.up), split<T>(x.z * scale.up), split<T>(x.w * scale.up)};
    __syncwarp();
    if (chunk >= chunks) continue;
    T* const to = reinterpret_cast<T*>(grads + chunk * kLltmChunk) + of_chunk * 4;
    const T first[4] = {h[0].first, h[1].first, h[2].first, h[3].first},
            second[4] = {h[0].second, h[1].second, h[2].second, h[3].second};
    uint2 bits[2];
    memcpy(bits, first, 8), memcpy(bits + 1, second, 8);
    *reinterpret_cast<uint2*>(to) = bits[0], *reinterpret_cast<uint2*>(to + kLltmChunk) = bits[1];
  }
}

// ---- the products ----

// 2 x 4 warps of 64 x 32 sums, those of first parts beside those of second ones.
constexpr int kRows = 128, kColumns = 128, kDepth = 32, kThreads = 256, kStages = 4;
constexpr int kTileBytes = 128 * kDepth * 2;  // of any operand
constexpr int kStageBytes = 3 * kTileBytes;   // first parts, second parts, the other operand
constexpr int kShared = kStages * kStageBytes;

struct HalvesSums {
  float first[4][4][4] = {}, second[4][4][4] = {};  // [16 rows][8 columns][what mma.sync gives a lane]
};

// Issues the copies of kDepth rows of 128 results, or, along the depth, of 128 rows of kDepth; `from` says where 8 elements of
// (result, k) lie. Zeros outside the operand.
template <bool AlongDepth, class From>
__device__ __forceinline__ void fetch(const From& from, int64_t result0, int64_t results, int64_t k0, int64_t depth, uint32_t to) {
  constexpr int kGroups = (AlongDepth ? kDepth : 128) / 8;  // of 8 elements in a row
#pragma unroll
  for (int i = 0; i < kTileBytes / 16 / kThreads; ++i) {
    const int unit = i * kThreads + static_cast<int>(threadIdx.x), row = unit / kGroups, group = unit % kGroups;
    const int64_t result = result0 + (AlongDepth ? row : group * 8), k = k0 + (AlongDepth ? group * 8 : row);
    copy_16_bytes(to + (AlongDepth ? by_depth(row, group) : by_column(row, group)), from(result, k), result < results && k < depth);
  }
}

template <class T, bool ToWeights>
__device__ __forceinline__ void multiply_stage(uint32_t stage, HalvesSums& sums) {
  const int lane = static_cast<int>(threadIdx.x) % 32, row0 = static_cast<int>(threadIdx.x) / 128 * 64;
  const int column0 = static_cast<int>(threadIdx.x) / 32 % 4 * 32;
  const uint32_t operand = stage + 2 * kTileBytes;
#pragma unroll
  for (int k = 0; k < kDepth / 16; ++k) {
    uint32_t b[2][4];
#pragma unroll
    for (int j = 0; j < 2; ++j)  // matrices: first and second half of k of 8 columns, then of the next 8
      load_matrices<true>(operand + by_column(k * 16 + lane % 16, column0 / 8 + j * 2 + lane / 16), b[j]);
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      const uint32_t grads = stage + static_cast<uint32_t>(part * kTileBytes);
      uint32_t a[4][4];
#pragma unroll
      for (int i = 0; i < 4; ++i)  // matrices: first and second 8 rows of half of k, then of the other half
        if constexpr (ToWeights)
          load_matrices<true>(grads + by_column(k * 16 + lane / 16 * 8 + lane % 8, row0 / 8 + i * 2 + lane / 8 % 2), a[i]);
        else
          load_matrices<false>(grads + by_depth(row0 + i * 16 + lane % 16, k * 2 + lane / 16), a[i]);
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j)
          mma<T>(part == 0 ? sums.first[i][j] : sums.second[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
    }
  }
}

// Stages [begin, end) of the reduction.
template <class T, bool ToWeights>
__device__ __forceinline__ void multiply(const LltmProducts& p, const LltmProduct& product, int64_t row0, int64_t column0,
                                         int64_t begin, int64_t end, uint32_t shared, HalvesSums& sums) {
  const T* const halves = at<const T>(p.gate_grads, 0, 0);
  const auto start = [&](int64_t stage, int slot) {
    const uint32_t to = shared + static_cast<uint32_t>(slot * kStageBytes);
    const int64_t k0 = stage * kDepth;
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      const auto grads = [&](int64_t result, int64_t k) {
        return halves + half_at(p.gate_grads.row, ToWeights ? k : result, ToWeights ? result : k, part);
      };
      fetch<!ToWeights>(grads, row0, product.rows, k0, product.depth, to + static_cast<uint32_t>(part * kTileBytes));
    }
    const auto operand = [&](int64_t result, int64_t k) { return at<const T>(product.operand, k, result); };
    fetch<false>(operand, column0, product.columns, k0, product.depth, to + 2 * kTileBytes);
  };
#pragma unroll
  for (int i = 0; i < kStages - 1; ++i) {
    if (begin + i < end) start(begin + i, i);
    end_stage();
  }
  int slot = 0, next = kStages - 1;
#pragma unroll 1
  for (int64_t stage = begin; stage < end; ++stage) {
    wait_for_stage<kStages - 2>();
    __syncthreads();  // the stage is there for all, and all are done with the one that the next copies overwrite
    if (stage + kStages - 1 < end) start(stage + kStages - 1, next);
    end_stage();
    multiply_stage<T, ToWeights>(shared + static_cast<uint32_t>(slot * kStageBytes), sums);
    slot = slot + 1 == kStages ? 0 : slot + 1;
    next = next + 1 == kStages ? 0 : next + 1;
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads, 1) lltm_halves_sm80_kernel(LltmProducts p) {
  extern __shared__ __align__(128) char shared[];
  const LltmProduct product = product_of(p, blockIdx.x);
  const LltmTile tile = tile_of(product, blockIdx.x, kRows, kColumns, kDepth);
  HalvesSums sums;
  if (product.to_weights)
    multiply<T, true>(p, product, tile.row0, tile.column0, tile.begin, tile.end, shared_address(shared), sums);
  else
    multiply<T, false>(p, product, tile.row0, tile.column0, tile.begin, tile.end, shared_address(shared), sums);
  const LltmHalvesStore<T> store(p, product, tile.slice);
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t row = tile.row0 + warp / 4 * 64 + lane / 4, column = tile.column0 + warp % 4 * 32 + lane % 4 * 2;
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        store(row + i * 16 + half * 8, column + j * 8, sums.first[i][j] + half * 2, sums.second[i][j] + half * 2);
}

template <class T>
void launch(const LltmProductsChoice& choice, const LltmProducts& p, gpuStream_t stream) {
  launch_lltm_split(kDtype<T>, p, batch_of(p.list[0]), gates_of(p.list[0]), stream);
  launch_kernel(lltm_halves_sm80_kernel<T>, choice.blocks, choice.threads, choice.shared, stream, p);
}

}  // namespace

void load_lltm_split(Dtype dtype) {
  if (dtype == Dtype::f16)
    load_kernel(lltm_split_kernel<f16>);
  else
    load_kernel(lltm_split_kernel<bf16>);
}

void launch_lltm_split(Dtype dtype, const LltmProducts& p, int64_t batch, int64_t gates, gpuStream_t stream) {
  const int64_t row_chunks = p.gate_grads.row / kLltmChunk, chunks = batch * row_chunks;
  const int64_t blocks = std::min(ceil_div(chunks * 16, kSplitThreads), kMostSplitBlocks);
  launch_kernel(dtype == Dtype::f16 ? lltm_split_kernel<f16> : lltm_split_kernel<bf16>, blocks, kSplitThreads, 0, stream,
                reinterpret_cast<float*>(p.gate_grads.base), FastDivide(row_chunks), chunks, gates, p.largest, p.num_largest,
                p.unscale);
}

LltmProductsChoice lltm_halves_sm80(const Device& device, Dtype dtype, LltmProducts* products) {
  if (device.generation < 80 || device.shared_memory < kShared) return {};
  LltmProductsChoice choice = lay_out(device, dtype, {kRows, kColumns, kDepth}, products);
  choice.kernel = kernel_address(dtype == Dtype::f16 ? lltm_halves_sm80_kernel<f16> : lltm_halves_sm80_kernel<bf16>);
  choice.threads = kThreads;
  choice.shared = kShared;
  choice.launch = dtype == Dtype::f16 ? launch<f16> : launch<bf16>;
  load_lltm_split(dtype);
  return choice;
}

}  // namespace narrows::gpu
