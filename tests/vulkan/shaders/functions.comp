// SPDX-License-Identifier: Apache-2.0
// functions.comp -- v[i] = FUNCTION(v[i], v[count + i], v[2 * count + i]), as a device computes it whose fma() rounds once and
// takes subnormal numbers for 0, as NVIDIA's does: by f64, which has room for the product. The sum is rounded twice, which shows once
// in 2^29.
#version 460
#include "float_controls.glsl"
#extension GL_EXT_control_flow_attributes : require
#include "common.glsl"
#include "elementwise/elementwise_words.glsl"

layout(local_size_x = 64) in;
layout(constant_id = 0) const int FUNCTION = 0;
layout(constant_id = 1) const uint T = F32;
layout(buffer_reference, std430, buffer_reference_align = 4) buffer Words { uint v[]; };
layout(push_constant) uniform Push {
  Words words;
  uint count;
  uint padding;
};

float flushed(float x) {
  const uint bits = floatBitsToUint(x), size = bits & 0x7fffffffu;
  return size < 0x00800000u ? uintBitsToFloat(bits - size) : x;
}
precise float fused(float a, float b, float c) {
  return flushed(float(double(flushed(a)) * double(flushed(b)) + double(flushed(c))));
}
#define fma(a, b, c) fused(a, b, c)
#include "elementwise/elementwise_reals.glsl"
#include "elementwise/elementwise_functions.glsl"

void main() {
  const uint i = flat_group() * 64 + gl_LocalInvocationID.x;
  if (i >= count) return;
  const REAL a = opened(uint64_t(words.v[i]), T), b = opened(uint64_t(words.v[count + i]), T),
             c = opened(uint64_t(words.v[2 * count + i]), T);
  words.v[i] = uint(closed(apply(a, b, c), T));
}
