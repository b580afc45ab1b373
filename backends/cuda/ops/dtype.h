// dtype.h -- the four floating-point dtypes of conv1d and lltm in kernels, and how the host picks one. Step 5 of a tensor's path.
#pragma once

#include <cstring>
#include <type_traits>

#include "backend.h"
#include "common/float_dtype.h"

namespace narrows::gpu {

// The type that sums are kept in: f64 for f64, else f32.
template <class T>
using Accumulate = std::conditional_t<std::is_same_v<T, double>, double, float>;

__device__ __forceinline__ float widen(float x) { return x; }
__device__ __forceinline__ double widen(double x) { return x; }
__device__ __forceinline__ void narrow(float x, float& out) { out = x; }
__device__ __forceinline__ void narrow(double x, double& out) { out = x; }

template <class T>
__device__ __forceinline__ T narrowed(Accumulate<T> x) {
  T out;
  narrow(x, out);
  return out;
}

// ---- elements at addresses that are no multiple of their size ----

template <class T>
__device__ __forceinline__ T load_bytes(const void* from) {
  T element;
  memcpy(&element, from, sizeof(T));
  return element;
}

// By permutes: ptxas 13.0 takes the stored low byte of a 16-bit float for a conversion of its value to an integer.
template <class T>
__device__ __forceinline__ void store_bytes(void* to, T element) {
  constexpr int kWords = (sizeof(T) + 3) / 4;
  unsigned words[kWords] = {};
  memcpy(words, &element, sizeof(T));
  for (unsigned i = 0; i < sizeof(T); ++i)
    static_cast<unsigned char*>(to)[i] = static_cast<unsigned char>(__byte_perm(words[i / 4], 0, 0x4440 + i % 4));
}

// visit(T{}) with the element type that `t` names.
template <class Visit>
decltype(auto) with_dtype(Dtype t, Visit&& visit) {
  switch (t) {
    case Dtype::f64: return visit(double{});
    case Dtype::f16: return visit(f16{});
    case Dtype::bf16: return visit(bf16{});
    default: return visit(float{});
  }
}

}  // namespace narrows::gpu
