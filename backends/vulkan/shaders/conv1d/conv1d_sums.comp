// SPDX-License-Identifier: Apache-2.0
// conv1d_sums.comp -- grad_w for few channels, and grad_bias. A row (an output and an input channel) is cut into slices by shape
// alone; a work group sums one slice for some taps at once. Any strides and alignment.
#version 460
#include "common.glsl"
#include "gemm/gemm_elements.glsl"
#include "conv1d_sum.glsl"

layout(constant_id = 1) const int kTaps = 1;  // of a work group
layout(constant_id = 2) const bool kBias = false;
const int kThreads = 64;

layout(local_size_x = 64) in;
shared ACC values[kTaps * kThreads];
ACC sums[kTaps];

// Adds to sums[i] for taps from `tap` on what the positions [begin, end) give.
void add_slice(uint64_t grad_y, uint64_t x, int64_t tap, int64_t begin, int64_t end) {
  Shape s = p.shape;
  // Read once: in the loop each would be read again, since nothing says that no store changes them.
  const int64_t outputs = s.outputs, taps = s.taps - tap, stride = s.stride, dilation = s.dilation, x_outer = s.x.outer,
                x_position = s.x.position, y_outer = s.y.outer, y_position = s.y.position, origin = tap * s.dilation - s.pad_left;
  const uint64_t extent = uint64_t(s.extent), tap_bytes = bytes(dilation * x_position);
  int64_t n = begin / outputs, t = begin % outputs + gl_LocalInvocationID.x;
  for (int64_t left = end - begin - gl_LocalInvocationID.x; left > 0; left -= kThreads, t += kThreads) {
    while (t >= outputs) t -= outputs, ++n;
    const ACC factor = load(grad_y + bytes(n * y_outer + t * y_position));
    if (kBias) {
      sums[0] += factor;
      continue;
    }
    int64_t position = t * stride + origin;
    uint64_t at = x + bytes(n * x_outer + position * x_position);
    [[unroll]] for (int i = 0; i < kTaps; ++i) {
      if (i < taps && uint64_t(position) < extent) sums[i] += factor * load(at);
      position += dilation;
      at += tap_bytes;
    }
  }
}

void main() {
  Shape s = p.shape;
  const uint block = flat_group();
  if (block >= p.blocks) return;
  const int64_t tap = int64_t(block % p.tap_blocks) * kTaps, slice = block / p.tap_blocks % p.slices;
  const int64_t row = block / p.tap_blocks / p.slices, out_channel = row / s.ins, channel = row % s.ins;
  const int64_t begin = slice * p.slice_length, end = min(begin + p.slice_length, s.batch * s.outputs);
  [[unroll]] for (int i = 0; i < kTaps; ++i) sums[i] = ACC(0);
  add_slice(p.grad_y + bytes(out_channel * s.y.channel), p.x + bytes((out_channel / s.outs * s.ins + channel) * s.x.channel), tap,
            begin, end);
  const int thread = int(gl_LocalInvocationID.x);
  [[unroll]] for (int i = 0; i < kTaps; ++i) values[i * kThreads + thread] = sums[i];
  barrier();
  if (thread >= kTaps || tap + thread >= s.taps) return;
  ACC sum = ACC(0);
  for (int i = 0; i < kThreads; i += 8) {  // eight at a time: errors grow with the length of a chain
    ACC part = values[thread * kThreads + i];
    [[unroll]] for (int j = 1; j < 8; ++j) part += values[thread * kThreads + i + j];
    sum += part;
  }
  write_sum(slice, out_channel, channel, tap + thread, sum);
}
