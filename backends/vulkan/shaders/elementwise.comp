// elementwise.comp -- c = a + b over contiguous f32 tensors.
#version 460
#include "common.glsl"

layout(local_size_x = 256) in;
layout(buffer_reference, std430, buffer_reference_align = 4) readonly buffer In { float v[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) writeonly buffer Out { float v[]; };
layout(push_constant) uniform Push {
  In a, b;
  Out c;
  uint count;
};

void main() {
  const uint i = flat_group() * 256 + gl_LocalInvocationID.x;
  if (i < count) c.v[i] = a.v[i] + b.v[i];
}
