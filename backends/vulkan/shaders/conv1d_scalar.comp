// conv1d_scalar.comp -- a correlation as plain loops, one thread for each output: any strides, any alignment, any size.
#version 460
#include "common.glsl"
#include "gemm_elements.glsl"
#include "conv1d_correlation.glsl"

layout(local_size_x = 64) in;

void main() {
  Shape s = p.shape;
  const int64_t i = int64_t(flat_group()) * 64 + gl_LocalInvocationID.x, row = i / p.outputs, q = i % p.outputs;
  if (row >= s.batch * s.groups * s.outs) return;
  const int64_t m = row % s.outs, group = row / s.outs % s.groups, n = row / s.outs / s.groups;
  const uint64_t x = p.x + bytes(n * s.in_batch + group * s.in_group), w = p.w + bytes(group * s.w_group + m * s.w_out);
  ACC sum = ACC(0);
  for (int64_t channel = 0; channel < s.ins; ++channel)
    for (int64_t j = 0; j < p.taps; ++j) {
      const int64_t position = q * s.step + j * s.tap_step + p.origin;
      if (is_inside(position))
        sum += load(x + bytes(channel * s.in_channel + position * s.in_position)) * load(w + bytes(channel * s.w_in + j * s.w_tap));
    }
  store(p.y + bytes(n * s.out_batch + group * s.out_group + m * s.out_channel + q * s.out_position), sum + bias_of(group, m));
}
