// SPDX-License-Identifier: Apache-2.0
// elementwise_half.h -- functions of f32 whose result is rounded to 16 bits afterwards, and so needs fewer digits: an error of
// 2^-16 of it does not show.
#pragma once

#include "fast_math.h"

namespace narrows::gpu {

constexpr float kLog2E = 1.44269502f;

__device__ __forceinline__ float sigmoid_half(float a) {
  const float z = __expf(-fabsf(a));
  return (a < 0 ? z : 1.f) * fast_reciprocal(1.f + z);
}
__device__ __forceinline__ float tanh_half(float a) {
  const float x = fabsf(a), far = fmaf(-2.f, fast_reciprocal(fast_exp2(x * (2 * kLog2E)) + 1.f), 1.f);
  return x < 0.0625f ? a * fmaf(a * a, -1.f / 3, 1.f) : copysignf(far, a);
}

}  // namespace narrows::gpu
