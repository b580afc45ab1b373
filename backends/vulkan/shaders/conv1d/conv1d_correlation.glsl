// SPDX-License-Identifier: Apache-2.0
// conv1d_correlation.glsl -- what the modules of a correlation (the forward pass, or one residue of grad_x) are given:
// out[n, g, m, q] = bias[g, m] + sum over c and j of in[n, g, c, q * step + j * tap_step + origin] * w[g, m, c, j], where `in` is 0
// outside [0, extent). Strides count elements. As CorrelationShape of ops/conv1d/conv1d.h
// and Push of ops/conv1d/conv1d_correlations.cpp.

layout(buffer_reference, std430, buffer_reference_align = 8) readonly buffer Shape {
  int64_t batch, groups, outs, ins;
  int64_t step, tap_step, extent;
  int64_t in_batch, in_group, in_channel, in_position;
  int64_t w_group, w_out, w_in, w_tap;
  int64_t out_batch, out_group, out_channel, out_position;
  int64_t bias_stride;
};
layout(push_constant) uniform Push {
  uint64_t x, w, bias, y;  // bias: 0 if there is none
  Shape shape;
  int64_t taps, outputs, origin;  // outputs: q of a row
  uint tiles, blocks;                     // of a row of outputs; of all rows, which are (n, group, some outputs)
  int columns, depth;                     // of a product: (n, q) and (channel, tap)
  uint taps_multiplier, taps_shift;       // divide by taps
  uint outputs_multiplier, outputs_shift;   // divide by outputs
} p;

uint64_t bytes(int64_t elements) { return uint64_t(elements * kSize); }
bool is_inside(int64_t position) { return uint64_t(position) < uint64_t(p.shape.extent); }
ACC bias_of(int64_t group, int64_t m) {
  return p.bias == 0 ? ACC(0) : load(p.bias + bytes((group * p.shape.outs + m) * p.shape.bias_stride));
}
