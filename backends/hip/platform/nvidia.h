// SPDX-License-Identifier: Apache-2.0
// nvidia.h -- the part of gpu.h that differs between HIP's platforms, for NVIDIA's GPUs.
#pragma once

#include <cuda_bf16.h>

#include <cstring>

namespace narrows::gpu {

inline constexpr int kDeviceType = 2, kPinnedType = 3, kManagedType = 13;  // kDLCUDA, kDLCUDAHost, kDLCUDAManaged

// An error of CUDA's by the name that it has here.
inline gpuError_t from_cuda(cudaError_t error) { return hipCUDAErrorTohipError(error); }

// ---- elements ----

using f16 = __half;
using bf16 = __nv_bfloat16;
__device__ __forceinline__ float widen(f16 x) { return __half2float(x); }
__device__ __forceinline__ float widen(bf16 x) { return __bfloat162float(x); }
__device__ __forceinline__ void narrow(float x, f16& out) { out = __float2half_rn(x); }  // to nearest even
__device__ __forceinline__ void narrow(float x, bf16& out) { out = __float2bfloat16_rn(x); }
// Rounded correctly: of sqrtf clang makes an approximation, since its libdevice is not told otherwise.
__device__ __forceinline__ float square_root(float x) { return __fsqrt_rn(x); }
__device__ __forceinline__ double square_root(double x) { return __dsqrt_rn(x); }
// from[index()] where there is such an element, else 0: of global memory that does not change while the kernel runs. In PTX,
// because clang makes a branch of it, where nvcc has a predicate.
template <class T, class Index>
__device__ __forceinline__ T load_where(bool there, const T* from, Index index) {
  static_assert(sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8);
  const T* const at = from + (there ? index() : 0);
  const uint32_t wanted = there;
  std::conditional_t<sizeof(T) == 2, uint16_t, std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>> bits;
  if constexpr (sizeof(T) == 2)
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %1, 0; mov.b16 %0, 0; @p ld.global.b16 %0, [%2]; }"
                 : "=&h"(bits)
                 : "r"(wanted), "l"(at));
  else if constexpr (sizeof(T) == 4)
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %1, 0; mov.b32 %0, 0; @p ld.global.b32 %0, [%2]; }"
                 : "=&r"(bits)
                 : "r"(wanted), "l"(at));
  else
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %1, 0; mov.b64 %0, 0; @p ld.global.b64 %0, [%2]; }"
                 : "=&l"(bits)
                 : "r"(wanted), "l"(at));
  T value;
  memcpy(&value, &bits, sizeof(T));
  return value;
}
// What the lane of a warp of 32 has whose number differs in the bits of `lanes`; all of the block's threads ask at once.
template <class T>
__device__ __forceinline__ T shuffle_xor(T x, int lanes) {
  return __shfl_xor_sync(0xffffffffu, x, lanes);
}
// 16 bytes as one load, at a multiple of 16; clang cuts that of a uint4 into parts.
__device__ __forceinline__ uint4 load_16_bytes(const void* from) {
  uint4 v;
  asm volatile("ld.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(from) : "memory");
  return v;
}
// 16 bytes as one store; the compiler makes four of a uint4 that it assembled itself.
__device__ __forceinline__ void store_16_bytes(void* to, uint4 v) {
  asm volatile("st.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}

// Two at once, the first in the lower bits.
__device__ __forceinline__ uint32_t narrow_pair(float x, float y, f16) {
  const __half2 pair = __floats2half2_rn(x, y);
  uint32_t bits;
  memcpy(&bits, &pair, 4);
  return bits;
}
__device__ __forceinline__ uint32_t narrow_pair(float x, float y, bf16) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(x, y);
  uint32_t bits;
  memcpy(&bits, &pair, 4);
  return bits;
}

// ---- memory that is touched once, and so better not kept in a cache: integers and vectors of them ----

// In PTX, because clang has neither CUDA's __stcs nor, for these GPUs, a streamed store of its own.
__device__ __forceinline__ void store_streamed(uint4* p, uint4 x) {
  asm volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w) : "memory");
}
__device__ __forceinline__ void store_streamed(uint2* p, uint2 x) {
  asm volatile("st.global.cs.v2.u32 [%0], {%1, %2};" ::"l"(p), "r"(x.x), "r"(x.y) : "memory");
}
__device__ __forceinline__ void store_streamed(uint32_t* p, uint32_t x) {
  asm volatile("st.global.cs.u32 [%0], %1;" ::"l"(p), "r"(x) : "memory");
}
__device__ __forceinline__ void store_streamed(uint16_t* p, uint16_t x) {
  asm volatile("st.global.cs.u16 [%0], %1;" ::"l"(p), "h"(x) : "memory");
}
__device__ __forceinline__ void store_streamed(uint8_t* p, uint8_t x) {
  asm volatile("st.global.cs.u8 [%0], %1;" ::"l"(p), "r"(static_cast<uint32_t>(x)) : "memory");
}

}  // namespace narrows::gpu
