// SPDX-License-Identifier: Apache-2.0
// conv1d_gemm.comp -- a correlation as a product: a row for each output channel, a column for each (n, q), a depth of
// (channel, tap). The matrix of the input's windows is never made. Elements are aligned.
#version 460
#define ALIGNED
#include "common.glsl"
#include "gemm/gemm_elements.glsl"
#include "conv1d_correlation.glsl"
#include "conv1d_divide.glsl"

layout(constant_id = 7) const bool kFilterRows = false;  // a filter's elements lie side by side, and where load4() may read

const bool kLeftAlongDepth = true, kRightAlongDepth = false;
uint64_t x, w;  // of the group
ACC4 left(int row, int k);
ACC4 right(int column, int k);
#include "gemm/gemm.glsl"

ACC4 left(int row, int k) {
  Shape s = p.shape;
  const int left = row < s.outs ? p.depth - k : 0;
  const uint64_t weights = w + bytes(row * s.w_out);
  if (kFilterRows && left >= 4) return load4(weights + bytes(k));
  int channel = divide(k, p.taps_multiplier, p.taps_shift), tap = k - channel * int(p.taps);
  ACC4 values = ACC4(0);
  [[unroll]] for (int i = 0; i < 4; ++i) {
    if (i < left) values[i] = load(weights + bytes(channel * s.w_in + tap * s.w_tap));
    if (++tap == p.taps) tap = 0, ++channel;
  }
  return values;
}

ACC4 right(int column, int k) {
  Shape s = p.shape;
  const int n = divide(column, p.outputs_multiplier, p.outputs_shift);
  const int channel = divide(k, p.taps_multiplier, p.taps_shift), tap = k - channel * int(p.taps);
  int q = column - n * int(p.outputs);
  uint64_t row = x + bytes(n * s.in_batch + channel * s.in_channel);
  const int64_t reach = tap * s.tap_step + p.origin;
  const int left = k < p.depth ? p.columns - column : 0;
  ACC4 values = ACC4(0);
  [[unroll]] for (int i = 0; i < 4; ++i) {
    const int64_t position = q * s.step + reach;
    if (i < left && is_inside(position)) values[i] = load(row + bytes(position * s.in_position));
    if (++q == p.outputs) q = 0, row += bytes(s.in_batch);
  }
  return values;
}

void main() {
  Shape s = p.shape;
  const uint block = flat_group();
  if (block >= p.blocks) return;
  const uint row_tiles = uint(s.outs + kTileRows - 1) / kTileRows;
  const int row0 = int(block % row_tiles) * kTileRows, column0 = int(block / row_tiles % p.tiles) * kTileColumns;
  const int64_t group = block / row_tiles / p.tiles;
  x = p.x + bytes(group * s.in_group);
  w = p.w + bytes(group * s.w_group);
  multiply(row0, column0, 0, p.depth);
  const uint64_t y = p.y + bytes(group * s.out_group);
  [[unroll]] for (int i = 0; i < 4 * kRowGroups; ++i) {
    const int m = row0 + row_of(i);
    const ACC bias = m < s.outs ? bias_of(group, m) : ACC(0);
    [[unroll]] for (int g = 0; g < kColumnGroups; ++g) {
      const int column = column0 + column_of(g);
      int n = divide(column, p.outputs_multiplier, p.outputs_shift), q = column - n * int(p.outputs);
      [[unroll]] for (int j = 0; j < 4; ++j) {
        if (m < s.outs && column + j < p.columns)
          store(y + bytes(n * s.out_batch + m * s.out_channel + q * s.out_position), sums[i * kColumnGroups + g][j] + bias);
        if (++q == p.outputs) q = 0, ++n;
      }
    }
  }
}
