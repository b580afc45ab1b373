// SPDX-License-Identifier: Apache-2.0
// conv1d_scalar.comp -- a correlation as plain loops, one thread for each output: any strides, any alignment, any size.
#version 460
#include "common.glsl"
#include "gemm/gemm_elements.glsl"
#include "conv1d_correlation.glsl"

layout(local_size_x = 64) in;

void main() {
  Shape s = p.shape;
  const int64_t i = int64_t(flat_group()) * 64 + gl_LocalInvocationID.x, row = i / p.outputs, q = i % p.outputs;
  if (row >= s.batch * s.groups * s.outs) return;
  const int64_t m = row % s.outs, group = row / s.outs % s.groups, n = row / s.outs / s.groups;
  const uint64_t x = p.x + bytes(n * s.in_batch + group * s.in_group), w = p.w + bytes(group * s.w_group + m * s.w_out);
  // Read once: in the loops each would be read again, since nothing says that no store changes them.
  const int64_t ins = s.ins, first = q * s.step + p.origin, tap_step = s.tap_step;
  const uint64_t extent = uint64_t(s.extent), x_channel = bytes(s.in_channel), x_tap = bytes(s.tap_step * s.in_position),
                 w_channel = bytes(s.w_in), w_tap = bytes(s.w_tap);
  uint64_t x_row = x + bytes(first * s.in_position), w_row = w;
  ACC sum = ACC(0);
  for (int64_t channel = 0; channel < ins; ++channel) {
    uint64_t x_at = x_row, w_at = w_row;
    int64_t position = first;
    for (int64_t j = 0; j < p.taps; ++j) {
      if (uint64_t(position) < extent) sum += load(x_at) * load(w_at);
      position += tap_step, x_at += x_tap, w_at += w_tap;
    }
    x_row += x_channel, w_row += w_channel;
  }
  store(p.y + bytes(n * s.out_batch + group * s.out_group + m * s.out_channel + q * s.out_position), sum + bias_of(group, m));
}
