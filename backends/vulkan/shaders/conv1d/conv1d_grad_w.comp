// SPDX-License-Identifier: Apache-2.0
// conv1d_grad_w.comp -- grad_w as a product: a row for each output channel, a column for each (channel, tap), a depth of (n, t),
// which is cut into slices by shape alone. Elements are aligned.
#version 460
#define ALIGNED
#include "common.glsl"
#include "gemm/gemm_elements.glsl"
#include "conv1d_sum.glsl"
#include "conv1d_divide.glsl"

const bool kLeftAlongDepth = true, kRightAlongDepth = true;
uint64_t grad_y, x;  // of the group
ACC4 left(int row, int k);
ACC4 right(int column, int k);
#include "gemm/gemm.glsl"

ACC4 left(int row, int k) {
  Shape s = p.shape;
  int n = divide(k, p.outputs_multiplier, p.outputs_shift), t = k - n * int(s.outputs);
  ACC4 values = ACC4(0);
  [[unroll]] for (int i = 0; i < 4; ++i) {
    if (row < s.outs && k + i < p.depth) values[i] = load(grad_y + bytes(row * s.y.channel + n * s.y.outer + t * s.y.position));
    if (++t == s.outputs) t = 0, ++n;
  }
  return values;
}

ACC4 right(int column, int k) {
  Shape s = p.shape;
  int n = divide(k, p.outputs_multiplier, p.outputs_shift), t = k - n * int(s.outputs);
  const int channel = divide(column, p.taps_multiplier, p.taps_shift), tap = column - channel * int(s.taps);
  const uint64_t row = x + bytes(channel * s.x.channel);
  const int64_t reach = tap * s.dilation - s.pad_left;
  ACC4 values = ACC4(0);
  [[unroll]] for (int i = 0; i < 4; ++i) {
    const int64_t position = t * s.stride + reach;
    if (column < p.columns && k + i < p.depth && is_inside(position))
      values[i] = load(row + bytes(n * s.x.outer + position * s.x.position));
    if (++t == s.outputs) t = 0, ++n;
  }
  return values;
}

void main() {
  Shape s = p.shape;
  const uint block = flat_group();
  if (block >= p.blocks) return;
  const uint rest = block / p.row_tiles, slice = rest / p.column_tiles % p.slices;
  const int row0 = int(block % p.row_tiles) * kTileRows, column0 = int(rest % p.column_tiles) * kTileColumns;
  const int64_t group = rest / p.column_tiles / p.slices;
  grad_y = p.grad_y + bytes(group * s.outs * s.y.channel);
  x = p.x + bytes(group * s.ins * s.x.channel);
  const int begin = slice_begin(p.stages, int(p.slices), int(slice)), end = slice_begin(p.stages, int(p.slices), int(slice) + 1);
  multiply(row0, column0, begin * kDepth, end * kDepth);
  [[unroll]] for (int g = 0; g < kColumnGroups; ++g)
    [[unroll]] for (int j = 0; j < 4; ++j) {
      const int column = column0 + column_of(g) + j;
      const int channel = divide(column, p.taps_multiplier, p.taps_shift), tap = column - channel * int(s.taps);
      [[unroll]] for (int i = 0; i < 4 * kRowGroups; ++i) {
        const int m = row0 + row_of(i);
        if (m < s.outs && column < p.columns) write_sum(slice, group * s.outs + m, channel, tap, sums[i * kColumnGroups + g][j]);
      }
    }
}
