// SPDX-License-Identifier: Apache-2.0
// hopper_sm90a.h -- Hopper's own instructions and tensor maps; for the kernels of conv1d also the transposition of a tile of x.
#pragma once

#include <cuda.h>

#include "barrier_sm90.h"
#include "dtype.h"
#include "overlap.h"

namespace narrows::gpu {

// ---- instructions ----

__device__ __forceinline__ void copy_in(uint32_t to, const CUtensorMap* map, uint32_t barrier, int x, int y, int z, int u, int v) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(
          to),
      "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(u), "r"(v)
      : "memory");
}
// To the same place in the shared memory of every block of a cluster of `Cluster`, each of whose barriers is told.
template <int Cluster>
__device__ __forceinline__ void copy_in_to_all(uint32_t to, const CUtensorMap* map, uint32_t barrier, int x, int y, int z, int u,
                                               int v) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%3, %4, %5, %6, "
      "%7}], [%2], %8;" ::"r"(to),
      "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(u), "r"(v), "h"(static_cast<uint16_t>((1 << Cluster) - 1))
      : "memory");
}
__device__ __forceinline__ void copy_out(const CUtensorMap* map, uint32_t from, int x, int y, int z, int u, int v) {
  asm volatile("cp.async.bulk.tensor.5d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5, %6}], [%1];" ::"l"(map), "r"(from),
               "r"(x), "r"(y), "r"(z), "r"(u), "r"(v)
               : "memory");
}
// Ordinary stores before it are seen by the copy engine and the matrix units after it.
__device__ __forceinline__ void fence_proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
__device__ __forceinline__ void sync_warpgroup(int id) { asm volatile("bar.sync %0, 128;" ::"r"(id) : "memory"); }

// Eight of a thread's `sums` from i on, as operands of wgmma.
#define NARROWS_SUMS8(i)                                                                                                           \
  "+f"(sums[i]), "+f"(sums[i + 1]), "+f"(sums[i + 2]), "+f"(sums[i + 3]), "+f"(sums[i + 4]), "+f"(sums[i + 5]), "+f"(sums[i + 6]), \
      "+f"(sums[i + 7])

__device__ __forceinline__ uint64_t descriptor(uint32_t address, int leading, int stride, int swizzle) {
  return static_cast<uint64_t>((address & 0x3ffff) >> 4) | static_cast<uint64_t>(leading >> 4) << 16 |
         static_cast<uint64_t>(stride >> 4) << 32 | static_cast<uint64_t>(swizzle) << 62;
}

// ---- one kernel begins before the one ahead of it in the stream has ended ----

// In the kernel ahead: the next one may begin now.
__device__ __forceinline__ void allow_next_kernel() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
// In the next one, before it reads what the kernel ahead writes: waits for its end.
__device__ __forceinline__ void wait_for_kernel_ahead() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// ---- rings of slots in shared memory ----

// A ring of slots; `phase` is the parity that its next wait asks for.
template <int N>
struct Ring {
  int slot = 0;
  uint32_t phase;
  __device__ explicit Ring(uint32_t first_phase) : phase(first_phase) {}
  __device__ void advance() {
    if (++slot == N) slot = 0, phase ^= 1;
  }
  __device__ int before() const { return slot == 0 ? N - 1 : slot - 1; }
};
inline constexpr uint32_t kFill = 1, kDrain = 0;  // first phase of who fills a ring, of who empties it

// ---- a tile of x ----

// 64 channels of kColumns positions and a halo. Raw: [box of 64 positions][channel][64 positions] with a 128-byte swizzle, then the
// halo, [channel][16 positions]. Transposed: [8 channels][position][8 channels], kChunk bytes from 8 channels to the next 8.
inline constexpr int kHalo = 16, kSlice = 64;
template <int kColumns>
inline constexpr int kTileOf = (kColumns + kHalo) * kSlice * 2;  // bytes

// Lane i of ldmatrix.x4 addresses channel i: row i % 8 of matrix i / 8. ".trans" gives each lane what it then stores as rows of 8
// channels. Four loads are on their way before the first store.
// Of the groups of 8 positions at least the first `wanted`.
template <int kColumns, int kChunk = (kColumns + kHalo) * 16>
__device__ __forceinline__ void transpose_32_channels(uint32_t raw, uint32_t x, int half, int worker,
                                                      int wanted = (kColumns + kHalo) / 8) {
  constexpr int kGroups = (kColumns + kHalo) / 8, kAtOnce = 4, kWorkers = 3, kBox = kSlice * 128;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const uint32_t from = raw + half * 4096 + lane * 128, halo = raw + kColumns / 64 * kBox + half * 1024 + lane * 32;
  const uint32_t to = x + half * 4 * kChunk + (lane >> 3) * kChunk + (lane & 7) * 16;
#pragma unroll
  for (int first = 0; first < kGroups; first += kAtOnce * kWorkers) {
    if (first >= wanted) break;
    uint32_t r[kAtOnce][4];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int g = first + i * kWorkers + worker;
      const uint32_t address = g < kColumns / 8 ? from + (g >> 3) * kBox + (((g ^ lane) & 7) << 4) : halo + (g & 1) * 16;
      if (g < kGroups)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[i][0]), "=r"(r[i][1]), "=r"(r[i][2]), "=r"(r[i][3])
                     : "r"(address)
                     : "memory");
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int g = first + i * kWorkers + worker;
      if (g < kGroups)
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to + g * 128), "r"(r[i][0]),
                     "r"(r[i][1]), "r"(r[i][2]), "r"(r[i][3])
                     : "memory");
    }
  }
}

// ---- tensor maps ----

using Encode = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*, const cuuint64_t*,
                            const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
                            CUtensorMapFloatOOBfill);
// nullptr: a driver without it.
inline Encode find_encode() {
  static const Encode encode = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    const cudaError_t error =
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found);
    return error == cudaSuccess && found == cudaDriverEntryPointSuccess ? reinterpret_cast<Encode>(function) : nullptr;
  }();
  return encode;
}

// The driver's numbers of errors are the runtime's.
inline void check_encoded(CUresult result, const char* op) {
  if (status_of(static_cast<cudaError_t>(result)) == NW_DEVICE_LOST)
    check(static_cast<cudaError_t>(result), "encoding a tensor map");
  if (result == CUDA_SUCCESS) return;
  throw Refusal{NW_FAILED, -1,
                std::string(op) + ": a tensor map could not be encoded (driver error " + std::to_string(result) + ")", result};
}

// Dimension 0 is contiguous; strides of the others in elements, unless their extent is 1.
struct MapShape {
  Dtype dtype;
  int64_t extents[5], strides[4];
  int columns, rows;  // of a box
  int swizzle;        // bytes: 0, 64 or 128
};
inline CUtensorMap encode_map(const MapShape& m, const void* base, const char* op) {
  const cuuint64_t size = static_cast<cuuint64_t>(size_of(m.dtype));
  cuuint64_t extents[5], strides[4];
  for (int i = 0; i < 5; ++i) extents[i] = static_cast<cuuint64_t>(m.extents[i]);
  for (int i = 0; i < 4; ++i) {
    const cuuint64_t dense =
        i == 0 ? (extents[0] * size + 15) / 16 * 16 : std::min(strides[i - 1] * extents[i], cuuint64_t{1} << 39);
    strides[i] = m.extents[i + 1] > 1 ? static_cast<cuuint64_t>(m.strides[i]) * size : dense;
  }
  const cuuint32_t box[5] = {static_cast<cuuint32_t>(m.columns), static_cast<cuuint32_t>(m.rows), 1, 1, 1},
                   steps[5] = {1, 1, 1, 1, 1};
  const CUtensorMapDataType type = m.dtype == Dtype::f32   ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32
                                   : m.dtype == Dtype::f16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                                           : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  const CUtensorMapSwizzle swizzle = m.swizzle == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
                                     : m.swizzle == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
                                                       : CU_TENSOR_MAP_SWIZZLE_NONE;
  CUtensorMap map;
  const CUresult result =
      find_encode()(&map, type, 5, const_cast<void*>(base), extents, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
                    CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  check_encoded(result, op);
  return map;
}

// Whether the copy engine can walk a dimension; `unit`: elements of 16 bytes.
inline bool steps_well(int64_t extent, int64_t stride, int64_t unit = 8) {
  return extent <= 1 || (stride > 0 && stride % unit == 0 && stride < (int64_t{1} << 38));
}

}  // namespace narrows::gpu
