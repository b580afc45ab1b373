// SPDX-License-Identifier: Apache-2.0
// gemm_slices.comp -- the sum of a reduction's slices, in their order: partial[slice][i][j][k] into out[i, j, k].
#version 460
#include "common.glsl"
#include "gemm_elements.glsl"

layout(local_size_x = 64) in;
layout(push_constant) uniform Push {
  uint64_t partial, to;
  int64_t slices, extents[3], strides[3];
} p;

void main() {
  const int64_t i = int64_t(flat_group()) * 64 + gl_LocalInvocationID.x, row = i / p.extents[2];
  const int64_t total = p.extents[0] * p.extents[1] * p.extents[2];
  if (i >= total) return;
  ACC sum = ACC(0);
  for (int64_t slice = 0; slice < p.slices; ++slice) sum += load_sum(p.partial + uint64_t((slice * total + i) * kAccSize));
  const int64_t at =
      row / p.extents[1] * p.strides[0] + row % p.extents[1] * p.strides[1] + i % p.extents[2] * p.strides[2];
  store(p.to + uint64_t(at * kSize), sum);
}
