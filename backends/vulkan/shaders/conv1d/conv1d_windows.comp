// SPDX-License-Identifier: Apache-2.0
// conv1d_windows.comp -- a correlation with few channels to a group: each thread makes some positions of some output channels, so
// that an element of x is read once for all of these. Any strides; elements are aligned.
#version 460
#define ALIGNED
#include "common.glsl"
#include "gemm/gemm_elements.glsl"
#include "conv1d_correlation.glsl"

layout(constant_id = 1) const int kOuts = 1;
const int kThreads = 64, kPositions = 4;  // positions of a thread, a work group apart

layout(local_size_x = 64) in;

void main() {
  Shape s = p.shape;
  const uint block = flat_group();
  if (block >= p.blocks) return;
  const int64_t out_blocks = (s.outs + kOuts - 1) / kOuts, row = block / p.tiles;
  const int64_t q0 = int64_t(block % p.tiles) * (kThreads * kPositions) + gl_LocalInvocationID.x;
  const int64_t m0 = row % out_blocks * kOuts, group = row / out_blocks % s.groups, n = row / out_blocks / s.groups;
  const uint64_t x = p.x + bytes(n * s.in_batch + group * s.in_group), w = p.w + bytes(group * s.w_group + m0 * s.w_out);
  const int outs = int(min(s.outs - m0, kOuts));
  int64_t start[kPositions];  // what tap 0 reads; past the last position outside
  uint64_t from[kPositions];
  ACC sums[kOuts * kPositions];
  [[unroll]] for (int i = 0; i < kPositions; ++i) {
    const int64_t q = q0 + i * kThreads;
    start[i] = q < p.outputs ? q * s.step + p.origin : s.extent;
    from[i] = x + bytes(start[i] * s.in_position);
    [[unroll]] for (int m = 0; m < kOuts; ++m) sums[m * kPositions + i] = ACC(0);
  }
  // Read once: in the loops each would be read again, since nothing says that no store changes them.
  const int64_t ins = s.ins, tap_step = s.tap_step;
  const uint64_t extent = uint64_t(s.extent), w_out = bytes(s.w_out), w_tap = bytes(s.w_tap), w_channel = bytes(s.w_in),
                 x_tap = bytes(s.tap_step * s.in_position), x_channel = bytes(s.in_channel);
  uint64_t w_row = w, x_row = 0;
  for (int64_t channel = 0; channel < ins; ++channel) {
    uint64_t tap = w_row, shift = x_row;
    int64_t reach = 0;
    for (int64_t j = 0; j < p.taps; ++j) {
      ACC factor[kOuts];
      [[unroll]] for (int m = 0; m < kOuts; ++m) factor[m] = m < outs ? load(tap + m * w_out) : ACC(0);
      [[unroll]] for (int i = 0; i < kPositions; ++i) {
        if (uint64_t(start[i] + reach) >= extent) continue;
        const ACC value = load(from[i] + shift);
        [[unroll]] for (int m = 0; m < kOuts; ++m) sums[m * kPositions + i] += value * factor[m];
      }
      tap += w_tap, shift += x_tap, reach += tap_step;
    }
    w_row += w_channel, x_row += x_channel;
  }
  const uint64_t y = p.y + bytes(n * s.out_batch + group * s.out_group + m0 * s.out_channel);
  [[unroll]] for (int m = 0; m < kOuts; ++m) {
    if (m >= outs) continue;
    const ACC bias = bias_of(group, m0 + m);
    [[unroll]] for (int i = 0; i < kPositions; ++i) {
      const int64_t q = q0 + i * kThreads;
      if (q < p.outputs) store(y + bytes(m * s.out_channel + q * s.out_position), sums[m * kPositions + i] + bias);
    }
  }
}
