// SPDX-License-Identifier: Apache-2.0
// conv1d_mma_sm80.h -- products of f16 and bf16 with sums in f32 on NVIDIA's matrix units (mma.sync), for the kernels of conv1d.
#pragma once

#include "conv1d_product.h"
#include "ops/gemm/mma_sm80.h"

namespace narrows::gpu {

// A block has kRows x kColumns sums in 8 warps of 64 x 32 each; kDepth of the reduction lie in shared memory, twice.
inline constexpr int kMmaThreads = 256, kMmaRows = 128, kMmaColumns = 128, kMmaDepth = 32;

struct MmaSums {
  float at[4][4][4] = {};  // [16 rows][8 columns][what mma.sync gives a lane]

  // Of a lane's sum e in block (i, j): its row and column in the tile.
  static __device__ int row(int i, int e) { return threadIdx.x / 128 * 64 + i * 16 + threadIdx.x % 32 / 4 + e / 2 * 8; }
  static __device__ int column(int j, int e) { return threadIdx.x / 32 % 4 * 32 + j * 8 + threadIdx.x % 4 * 2 + e % 2; }
};

// One stage: a lies by depth, b by depth or by column.
template <class T, bool kByColumn>
__device__ __forceinline__ void multiply_stage(uint32_t a, uint32_t b, MmaSums& sums) {
  const int lane = static_cast<int>(threadIdx.x) % 32, row0 = static_cast<int>(threadIdx.x) / 128 * 64;
  const int column0 = static_cast<int>(threadIdx.x) / 32 % 4 * 32;
#pragma unroll
  for (int k = 0; k < kMmaDepth / 16; ++k) {
    uint32_t fa[4][4], fb[2][4];
#pragma unroll
    for (int i = 0; i < 4; ++i) load_matrices<false>(a + by_depth(row0 + i * 16 + lane % 16, k * 2 + lane / 16), fa[i]);
#pragma unroll
    for (int j = 0; j < 2; ++j)  // matrices: first and second half of k of 8 columns, then of the next 8
      if constexpr (kByColumn)
        load_matrices<true>(b + by_column(k * 16 + lane % 16, column0 / 8 + j * 2 + lane / 16), fb[j]);
      else
        load_matrices<false>(b + by_depth(column0 + j * 16 + lane / 16 * 8 + lane % 8, k * 2 + lane / 8 % 2), fb[j]);
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) mma<T>(sums.at[i][j], fa[i], fb[j / 2][j % 2 * 2], fb[j / 2][j % 2 * 2 + 1]);
  }
}

__device__ __forceinline__ void store_shared(uint32_t to, const uint4& v) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}

// 8 elements as bits, of which the first is `from` and each next one `stride` further; zeros from `count` on.
template <class T>
__device__ __forceinline__ uint4 gather(const T* from, int64_t stride, int64_t count) {
  const auto* bits = reinterpret_cast<const uint16_t*>(from);
  uint32_t e[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) e[i] = i < count ? bits[i * stride] : 0;
  return {e[0] | e[1] << 16, e[2] | e[3] << 16, e[4] | e[5] << 16, e[6] | e[7] << 16};
}

}  // namespace narrows::gpu
