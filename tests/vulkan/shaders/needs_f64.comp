// SPDX-License-Identifier: Apache-2.0
// needs_f64.comp -- a module that asks for a feature that a device may lack.
#version 460
#include "common.glsl"

layout(local_size_x = 1) in;
layout(buffer_reference, std430, buffer_reference_align = 8) buffer Doubles { double v[]; };
layout(push_constant) uniform Push { Doubles doubles; };

void main() { doubles.v[0] *= 2; }
