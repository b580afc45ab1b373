// SPDX-License-Identifier: Apache-2.0
// steps.comp -- v[i] = v[i] * factor + step for i < count: what a chain of them gives depends on their order.
#version 460
#include "common.glsl"

layout(local_size_x = 64) in;
layout(constant_id = 0) const uint factor = 1;
layout(buffer_reference, std430, buffer_reference_align = 4) buffer Words { uint v[]; };
layout(push_constant) uniform Push {
  Words words;
  Words step;
  uint count;
};

void main() {
  const uint i = flat_group() * 64 + gl_LocalInvocationID.x;
  if (i < count) words.v[i] = words.v[i] * factor + step.v[0];
}
