// lltm_math.h -- the activations of lltm and their derivatives. Step 5 of a tensor's path. All come from exp and expm1 of numbers
// that are not positive, so nothing overflows and nothing cancels; NaN goes through.
#pragma once

#include "dtype.h"

namespace narrows::gpu {

__device__ __forceinline__ float exponential(float x) { return expf(x); }
__device__ __forceinline__ double exponential(double x) { return exp(x); }
__device__ __forceinline__ float exponential_minus_1(float x) { return expm1f(x); }
__device__ __forceinline__ double exponential_minus_1(double x) { return expm1(x); }
__device__ __forceinline__ float hyperbolic_tangent(float x) { return tanhf(x); }
__device__ __forceinline__ double hyperbolic_tangent(double x) { return tanh(x); }
__device__ __forceinline__ float magnitude(float x) { return fabsf(x); }
__device__ __forceinline__ double magnitude(double x) { return fabs(x); }

template <class A>
__device__ __forceinline__ A sigmoid(A z) {
  const A e = exponential(-magnitude(z));
  return (z < 0 ? e : A{1}) / (1 + e);
}
template <class A>
__device__ __forceinline__ A sigmoid_slope(A z) {
  const A e = exponential(-magnitude(z));
  return e / ((1 + e) * (1 + e));
}
template <class A>
__device__ __forceinline__ A elu(A z) {
  return z > 0 ? z : exponential_minus_1(z);  // a NaN is not above 0, and goes through expm1
}
template <class A>
__device__ __forceinline__ A elu_slope(A z) {
  return z > 0 ? A{1} : exponential(z);
}
// 1 - tanh^2, without the cancellation.
template <class A>
__device__ __forceinline__ A tanh_slope(A x) {
  const A e = exponential(-2 * magnitude(x));
  return 4 * e / ((1 + e) * (1 + e));
}

}  // namespace narrows::gpu
