// SPDX-License-Identifier: Apache-2.0
// OPNAME.comp -- OPNAME by one thread for each element, at any strides and any alignment.
#version 460
#include "common.glsl"
#include "gemm/gemm_elements.glsl"

layout(local_size_x = 64) in;

// As in ops/OPNAME/OPNAME.cpp. Offsets and strides are in bytes; dimension 0 is the innermost.
layout(buffer_reference, std430, buffer_reference_align = 8) readonly buffer Elements {
  int64_t count, dimensions, y_offset, x_offset;
  int64_t extent[16], y_stride[16], x_stride[16];
};
layout(push_constant) uniform Push {
  uint64_t y, x;
  Elements elements;
} p;

ACC compute(ACC x) { return x; }

void main() {
  Elements elements = p.elements;
  int64_t i = int64_t(flat_group()) * 64 + gl_LocalInvocationID.x;
  if (i >= elements.count) return;
  int64_t y = elements.y_offset, x = elements.x_offset;
  for (int d = 0; d < int(elements.dimensions); ++d) {
    const int64_t at = i % elements.extent[d];
    y += at * elements.y_stride[d];
    x += at * elements.x_stride[d];
    i /= elements.extent[d];
  }
  store(p.y + uint64_t(y), compute(load(p.x + uint64_t(x))));
}
