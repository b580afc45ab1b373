// SPDX-License-Identifier: Apache-2.0
// fast_math.h -- single instructions that approximate functions of f32. backends/hip/platform/fast_math.h is the other one;
// whichever stands on the include path is used.
#pragma once

#include "gpu.h"

namespace narrows::gpu {

// Both to a unit in the last place or two, of what is normal and gives something normal; all else counts as 0.
__device__ __forceinline__ float fast_reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace narrows::gpu
