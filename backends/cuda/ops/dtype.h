// SPDX-License-Identifier: Apache-2.0
// dtype.h -- the four floating-point dtypes of conv1d and lltm in kernels, and how the host picks one.
#pragma once

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
