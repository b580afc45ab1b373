// SPDX-License-Identifier: Apache-2.0
// amd.h -- the part of gpu.h that differs between HIP's platforms, for AMD's GPUs.
#pragma once

namespace narrows::gpu {

inline constexpr int kDeviceType = 10, kPinnedType = 11, kManagedType = 0;  // kDLROCM, kDLROCMHost; managed memory is kDLROCM

// ---- elements ----

// HIP's own bfloat16 changed its name, its header and its members from version to version.
using f16 = __half;
struct bf16 {
  uint16_t bits;
};
__device__ __forceinline__ float widen(f16 x) { return __half2float(x); }
__device__ __forceinline__ float widen(bf16 x) { return __uint_as_float(static_cast<uint32_t>(x.bits) << 16); }
__device__ __forceinline__ void narrow(float x, f16& out) { out = __float2half_rn(x); }  // to nearest even
__device__ __forceinline__ void narrow(float x, bf16& out) {
  const uint32_t bits = __float_as_uint(x);
  out.bits = x == x ? static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16) : uint16_t{0x7fff};
}
// Rounded correctly, which is what clang makes of sqrt for AMD's GPUs unless it is told otherwise.
__device__ __forceinline__ float square_root(float x) { return sqrtf(x); }
__device__ __forceinline__ double square_root(double x) { return sqrt(x); }
// from[index()] where there is such an element, else 0: of global memory that does not change while the kernel runs.
template <class T, class Index>
__device__ __forceinline__ T load_where(bool there, const T* from, Index index) {
  return there ? from[index()] : T{};
}
// What the lane of a warp of 32, or of half a wave of 64, has whose number differs in the bits of `lanes`; all of the block's
// threads ask at once.
template <class T>
__device__ __forceinline__ T shuffle_xor(T x, int lanes) {
  return __shfl_xor(x, lanes, 32);
}
// 16 bytes as one load and one store, at a multiple of 16.
using Words4 = uint32_t __attribute__((vector_size(16)));
__device__ __forceinline__ uint4 load_16_bytes(const void* from) {
  const Words4 v = *static_cast<const Words4*>(from);
  return {v[0], v[1], v[2], v[3]};
}
__device__ __forceinline__ void store_16_bytes(void* to, uint4 v) { *static_cast<Words4*>(to) = Words4{v.x, v.y, v.z, v.w}; }

// Two at once, the first in the lower bits.
template <class T>
__device__ __forceinline__ uint32_t narrow_pair(float x, float y, T) {
  T pair[2];
  narrow(x, pair[0]);
  narrow(y, pair[1]);
  uint32_t bits;
  __builtin_memcpy(&bits, pair, 4);
  return bits;
}

// ---- memory that is touched once, and so better not kept in a cache: integers and vectors of them ----

// The compiler's own type of a size: it streams no vector of HIP's.
using Words2 = uint32_t __attribute__((vector_size(8)));
template <size_t kBytes>
using StreamedBits = std::conditional_t<
    kBytes == 1, uint8_t,
    std::conditional_t<kBytes == 2, uint16_t,
                       std::conditional_t<kBytes == 4, uint32_t, std::conditional_t<kBytes == 8, Words2, Words4>>>>;

template <class T>
__device__ __forceinline__ void store_streamed(T* p, T x) {
  StreamedBits<sizeof(T)> bits;
  __builtin_memcpy(&bits, static_cast<const void*>(&x), sizeof(T));
  __builtin_nontemporal_store(bits, reinterpret_cast<StreamedBits<sizeof(T)>*>(p));
}

}  // namespace narrows::gpu
