// SPDX-License-Identifier: Apache-2.0
// mma_sm80.h -- NVIDIA's matrix units by mma.sync, of f16 and bf16 with sums in f32, and where operands lie in shared memory for
// them. The kernels of conv1d and of lltm_backward read operands so that lie along the reduction or across it; those of lltm, which
// all lie along it, have tile_mma_sm80.h.
#pragma once

#include "ops/copy_async_sm80.h"
#include "ops/dtype.h"

namespace narrows::gpu {

// Four matrices of 8 x 8; lane i gives the address of row i % 8 of matrix i / 8. Transposed: of column i % 8.
template <bool kTranspose>
__device__ __forceinline__ void load_matrices(uint32_t address, uint32_t (&out)[4]) {
  if constexpr (kTranspose)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(address));
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(address));
}

template <class T>
__device__ __forceinline__ void mma(float (&sums)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if constexpr (std::is_same_v<T, f16>)
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Bytes of a stage where an operand's 8 elements along the reduction (of one row) lie: rows of 64 bytes, 32 of the reduction, whose
// four groups of 16 are exchanged so that eight rows meet all banks.
__device__ __forceinline__ uint32_t by_depth(int row, int group) {
  return static_cast<uint32_t>(row * 64 + ((group ^ (row >> 1)) & 3) * 16);
}
// Likewise of 8 columns at one place of the reduction: rows of 256 bytes, 128 columns.
__device__ __forceinline__ uint32_t by_column(int k, int group) {
  return static_cast<uint32_t>(k * 256 + ((group & 8) | ((group ^ k) & 7)) * 16);
}

}  // namespace narrows::gpu
