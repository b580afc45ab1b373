// SPDX-License-Identifier: Apache-2.0
// hip_fp16.h -- HIP's half, by the compiler's own. See hip_runtime.h.
#pragma once

struct __half {
  _Float16 value;
};
inline float __half2float(__half x) { return static_cast<float>(x.value); }
inline __half __float2half_rn(float x) { return {static_cast<_Float16>(x)}; }
