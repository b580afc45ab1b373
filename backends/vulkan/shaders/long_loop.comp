// SPDX-License-Identifier: Apache-2.0
// long_loop.comp -- a loop of `count` steps and where it leads, which shows whether the driver ends it before.
#version 460
#include "common.glsl"

layout(local_size_x = 1) in;
layout(buffer_reference, std430, buffer_reference_align = 4) buffer Word { uint v; };
layout(push_constant) uniform Push {
  uint64_t to;
  uint count, padding;
};

void main() {
  uint x = 1;
  for (uint i = 0; i < count; ++i) x = x * 1664525 + 1013904223;  // no closed form that a compiler knows
  Word(to).v = x;
}
