// SPDX-License-Identifier: Apache-2.0
// copy.comp -- copies 16 bytes a thread.
#version 460
#include "common.glsl"

layout(local_size_x = 256) in;
layout(buffer_reference, std430, buffer_reference_align = 16) buffer FourWords { uvec4 v; };
layout(push_constant) uniform Push {
  uint64_t to, from, count;  // count: of 16 bytes
};

void main() {
  const uint64_t i = uint64_t(flat_group()) * 256 + gl_LocalInvocationID.x;
  if (i < count) FourWords(to + i * 16).v = FourWords(from + i * 16).v;
}
