// SPDX-License-Identifier: Apache-2.0
// lltm_split.comp -- the gradients of lltm's gates, f32, each as a sum of two f16 or bf16, which a matrix unit takes: first and second
// part. f16 has few exponents: all are multiplied by one power of 2 before, with which the largest is 2^14 to 2^15 (f16 ends at 65504).
// The parts then keep 2^-23 of a gradient, or 2^-39 of the largest, whichever is more; those of bf16 2^-17 of a gradient. An infinity or
// NaN is the first part alone, so that the second cannot change what it makes of a sum. One thread for each eight of a row.
#version 460
#define ALIGNED
#include "common.glsl"
#include "gemm/gemm_elements.glsl"

layout(local_size_x = 64) in;
layout(push_constant) uniform Push {
  uint64_t gate_grads, largest;  // as lltm_gate_grads.comp leaves them; largest and unscale: of f16 alone
  uint64_t parts;                // a row: `width` first parts, then as many second ones; zeros where there is no gradient
  uint64_t unscale;              // an f32: what undoes the scale
  int64_t pitch;                 // of gate_grads, in elements
  int batch, gates;
  uint eights_of_row, blocks;    // of a row of first parts; eights in all
} p;

#ifdef DTYPE_F16
// By integers, of finite numbers: NVIDIA's compiler takes a conversion to f16 and back by the device's own for none.
float widened_exactly(uint bits) {
  const uint size = bits & 0x7fffu, sign = (bits & 0x8000u) << 16;
  const float subnormal = float(size) * uintBitsToFloat((127 - 24) << 23);
  return uintBitsToFloat(sign | (size < 0x400u ? floatBitsToUint(subnormal) : (size << 13) + (112u << 23)));
}

shared uint largest[64];

// All threads of the work group call it.
float find_scale() {
  const uint thread = gl_LocalInvocationID.x;
  largest[thread] = Word(p.largest + uint64_t(thread) * 4).v;
  barrier();
  uint most = 0;
  for (int i = 0; i < 64; ++i) most = max(most, largest[i]);
  // Exponents are biased by 127. Both powers are normal numbers: what lies below 2^-112 is scaled by less.
  const uint exponent = most >> 23, up = exponent < 15 ? 253 : 127 + 14 + 127 - exponent;
  if (flat_group() == 0 && thread == 0) Word(p.unscale).v = (254 - up) << 23;
  return uintBitsToFloat(up << 23);
}
const uint kInfinity = 0x7c00u;
#else
float widened_exactly(uint bits) { return widened(bits); }
float find_scale() { return 1.0; }
const uint kInfinity = 0x7f80u;
#endif

void main() {
  const float scale = find_scale();
  const uint i = flat_group() * 64 + gl_LocalInvocationID.x;
  if (i >= p.blocks) return;

  const uint row = i / p.eights_of_row;
  const int column = int(i % p.eights_of_row) * 8;
  uvec4 first = uvec4(0), second = uvec4(0);
  [[unroll]] for (int j = 0; j < 8; ++j) {
    if (row >= p.batch || column + j >= p.gates) continue;
    const float x = load_sum(p.gate_grads + uint64_t((row * p.pitch + column + j) * kAccSize)) * scale;
    const uint bits = narrowed(x);
    const bool is_finite = (bits & kInfinity) != kInfinity;
    first[j / 2] |= bits << (j % 2 * 16);
    if (is_finite) second[j / 2] |= narrowed(x - widened_exactly(bits)) << (j % 2 * 16);
  }
  const uint64_t to = p.parts + uint64_t(row) * p.eights_of_row * 32 + uint64_t(column * kSize);
  FourWords(to).v = first;
  FourWords(to + p.eights_of_row * 16).v = second;
}
