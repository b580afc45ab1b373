// SPDX-License-Identifier: Apache-2.0
// conv1d_sum.glsl -- what the modules of the gradients that are sums over batch and positions are given: grad_w[g, m, c, j] = sum
// over n and t of grad_y[n, g, m, t] * x[n, g, c, t * stride + j * dilation - pad_left], and grad_bias, which reads no x. Strides
// count elements. As SumShape of ops/conv1d/conv1d.h and Push of ops/conv1d/conv1d_sums.cpp.

struct Strides {
  int64_t outer, channel, position;
};
layout(buffer_reference, std430, buffer_reference_align = 8) readonly buffer Shape {
  int64_t batch, groups, outs, ins, taps, outputs;
  int64_t stride, dilation, pad_left, extent;
  Strides x, y, to;
};
layout(push_constant) uniform Push {
  uint64_t grad_y, x, to, partial;  // partial[slice][out][channel][tap]: where the sum is cut into slices
  Shape shape;
  int64_t slice_length;  // positions of a slice, counted through the batch
  uint slices, tap_blocks, blocks;
  int columns, depth, stages;              // of a product: (channel, tap) and (n, t); depth in stages
  uint row_tiles, column_tiles;
  uint taps_multiplier, taps_shift;        // divide by taps
  uint outputs_multiplier, outputs_shift;  // divide by outputs
} p;

uint64_t bytes(int64_t elements) { return uint64_t(elements * kSize); }
bool is_inside(int64_t position) { return uint64_t(position) < uint64_t(p.shape.extent); }

// `out` counts through the groups.
void write_sum(int64_t slice, int64_t out_channel, int64_t channel, int64_t tap, ACC sum) {
  Shape s = p.shape;
  if (p.slices > 1)
    store_sum(p.partial + uint64_t((((slice * s.groups * s.outs + out_channel) * s.ins + channel) * s.taps + tap) * kAccSize), sum);
  else
    store(p.to + bytes(out_channel * s.to.outer + channel * s.to.channel + tap * s.to.position), sum);
}
