// SPDX-License-Identifier: Apache-2.0
// controls.comp -- a module with float controls, which a device may lack: it runs without them then.
#version 460
#extension GL_EXT_spirv_intrinsics : require
#include "common.glsl"

spirv_execution_mode(extensions = ["SPV_KHR_float_controls"], capabilities = [4466], 4461, 32);  // SignedZeroInfNanPreserve
spirv_execution_mode(extensions = ["SPV_KHR_float_controls"], capabilities = [4464], 4459, 32);  // DenormPreserve
layout(local_size_x = 1) in;
layout(buffer_reference, std430, buffer_reference_align = 4) buffer Floats { float v[]; };
layout(push_constant) uniform Push { Floats floats; };

void main() { floats.v[0] = floats.v[0] + 1; }
