// SPDX-License-Identifier: Apache-2.0
// gemm_fill.comp -- zeros in all elements of a tensor: all bits of zero are a zero of every dtype.
#version 460
#include "common.glsl"
#extension GL_EXT_shader_explicit_arithmetic_types_int8 : require
#extension GL_EXT_shader_explicit_arithmetic_types_int16 : require

layout(constant_id = 0) const bool kBytewise = false;  // the address may be no multiple of the size
layout(constant_id = 1) const int kSize = 4;           // of an element: 2, 4 or 8 bytes

layout(buffer_reference, std430, buffer_reference_align = 1) writeonly buffer Byte { uint8_t v; };
layout(buffer_reference, std430, buffer_reference_align = 2) writeonly buffer Short { uint16_t v; };
layout(buffer_reference, std430, buffer_reference_align = 4) writeonly buffer Word { uint v; };
layout(buffer_reference, std430, buffer_reference_align = 8) writeonly buffer TwoWords { uvec2 v; };

layout(local_size_x = 64) in;
layout(push_constant) uniform Push {
  uint64_t unused, to;
  int64_t unused_slices, extents[3], strides[3];
} p;

void main() {
  const int64_t i = int64_t(flat_group()) * 64 + gl_LocalInvocationID.x, row = i / p.extents[2];
  if (i >= p.extents[0] * p.extents[1] * p.extents[2]) return;
  const int64_t element =
      row / p.extents[1] * p.strides[0] + row % p.extents[1] * p.strides[1] + i % p.extents[2] * p.strides[2];
  const uint64_t at = p.to + uint64_t(element * kSize);
  if (kBytewise) {
    for (int byte = 0; byte < kSize; ++byte) Byte(at + byte).v = uint8_t(0);
  } else if (kSize == 2) {
    Short(at).v = uint16_t(0);
  } else if (kSize == 4) {
    Word(at).v = 0u;
  } else {
    TwoWords(at).v = uvec2(0);
  }
}
