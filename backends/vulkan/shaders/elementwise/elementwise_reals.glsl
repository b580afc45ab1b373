// SPDX-License-Identifier: Apache-2.0
// elementwise_reals.glsl -- floating-point elements as NUMBER, the type that they are computed in: -DREALS=32 for f32, f16 and bf16,
// -DREALS=64 for f64. Included after elementwise_words.glsl and, since it asks for execution modes, after float_controls.glsl. The
// includer defines T, the operands' dtype.
#if REALS == 64
#include "math_f64.glsl"
const uint REAL_DTYPE = F64;
double opened(uint64_t bits, uint dtype) { return uint64BitsToDouble(bits); }
uint64_t closed(double x, uint dtype) { return doubleBitsToUint64(x); }
#else
#include "bits.glsl"
#define IS_SHORT (T == F16 || T == BF16)
#define IS_HALF (T == F16)
#include "math_f32.glsl"
const uint REAL_DTYPE = F32;
float opened(uint64_t bits, uint dtype) {
  if (dtype == F16) return f32_from_f16(uint(bits));
  if (dtype == BF16) return f32_from_bf16(uint(bits));
  return uintBitsToFloat(uint(bits));
}
uint64_t closed(float x, uint dtype) {
  return uint64_t(dtype == F16 ? f16_from_f32(x) : dtype == BF16 ? bf16_from_f32(x) : floatBitsToUint(x));
}
#endif
#define NUMBER REAL
