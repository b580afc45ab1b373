// SPDX-License-Identifier: Apache-2.0
// wild.comp -- writes one word at `index`, wherever that is.
#version 460
#include "common.glsl"

layout(local_size_x = 1) in;
layout(buffer_reference, std430, buffer_reference_align = 4) buffer Words { uint v[]; };
layout(push_constant) uniform Push {
  Words words;
  uint index;
};

void main() { words.v[index] = 1; }
