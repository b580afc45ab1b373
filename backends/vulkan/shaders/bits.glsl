// SPDX-License-Identifier: Apache-2.0
// bits.glsl -- f16 and bf16 to f32 and back by integers alone: no capability is asked for, subnormal numbers and NaN come through
// on every device, and the rounding is to nearest even. packHalf2x16 leaves the rounding and subnormals to the device: it is used
// where the device is known to do the same.
#ifndef NARROWS_BITS
#define NARROWS_BITS

layout(constant_id = 31) const bool kConvertsHalves = false;  // PhysicalDevice::converts_halves

float f32_from_bf16(uint bits) { return uintBitsToFloat(bits << 16); }

uint bf16_from_f32(float x) {
  const uint bits = floatBitsToUint(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return (bits >> 16) | 0x40u;  // a NaN whose high bits are 0 would become infinity
  return (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
}

float f32_from_f16_by_integers(uint bits) {
  const uint sign = (bits & 0x8000u) << 16;
  uint exponent = (bits >> 10) & 0x1fu, fraction = bits & 0x3ffu;
  if (exponent == 0u) {
    if (fraction == 0u) return uintBitsToFloat(sign);
    const int places = 10 - findMSB(fraction);
    fraction = (fraction << places) & 0x3ffu;
    return uintBitsToFloat(sign | (uint(113 - places) << 23) | (fraction << 13));
  }
  exponent = exponent == 31u ? 255u : exponent + 112u;
  return uintBitsToFloat(sign | (exponent << 23) | (fraction << 13));
}
float f32_from_f16(uint bits) {
  if (kConvertsHalves) return unpackHalf2x16(bits).x;
  return f32_from_f16_by_integers(bits);
}

uint f16_from_f32(float x) {
  if (kConvertsHalves) return packHalf2x16(vec2(x, 0));
  const uint bits = floatBitsToUint(x), size = bits & 0x7fffffffu, sign = (bits >> 16) & 0x8000u;
  if (size > 0x7f800000u) return sign | 0x7e00u;
  if (size >= 0x47800000u) return sign | 0x7c00u;  // 2^16 and more
  if (size >= 0x38800000u) return sign | ((size - 0x38000000u + 0xfffu + ((size >> 13) & 1u)) >> 13);  // rounds up to infinity too
  if (size < 0x33000000u) return sign;  // below half of the smallest subnormal, 2^-25
  const uint places = 126u - (size >> 23);  // 14 .. 24
  const uint digits = (size & 0x7fffffu) | 0x800000u;
  return sign | ((digits + (1u << (places - 1u)) - 1u + ((digits >> places) & 1u)) >> places);
}

#endif
