// SPDX-License-Identifier: Apache-2.0
// conv1d_grad_w_coopmat.comp -- grad_w of f16 or bf16 by the matrix unit: a row for each output channel, a column for each (channel, tap), a
// depth of (n, t), which is cut into slices by shape and unit alone. Elements are aligned.
#version 460
#define ALIGNED
#include "common.glsl"
#include "gemm/gemm_elements.glsl"
#include "conv1d_sum.glsl"
#include "conv1d_divide.glsl"

// The stride is 1; rows of x and grad_y are contiguous and start where fours and eights of them may be read, of which they are whole ones.
layout(constant_id = 12) const bool kWhole = false;

const bool kRightAlongDepth = true;
const int kBlock = 1, kAtLeast = 0;
#define kSlots (kColumnMatrices % 2 == 0 ? 2 : 1)
int first_stage, row0, column0;  // of the slice; of the tile
int64_t group;
uint slice;
uvec4 left(int i, int row, int stage, int k);
uvec4 left_eight(int i);
void right(int i, int column, int stage, int k);
uvec4 right_eight(int i, int b);
#define LEFT_ARRIVES
#define WRITES_EIGHTS
#include "gemm/gemm_coopmat.glsl"

uint64_t grad_y, x;  // of the group
uint64_t left_at[kLeftLoads], right_at[kRightLoads];  // a load's row of grad_y, its channel of x
int64_t reach[kRightLoads];                           // of its tap: the position of t = 0

// kWhole: what is not there is read elsewhere, and put as zeros. Eight positions lie in three fours of a row.
bool is_left_there[kLeftLoads], is_right_there[3 * kRightLoads];
uvec2 third[kRightLoads];

void locate() {
  Shape s = p.shape;
  [[unroll]] for (int i = 0; i < kLeftLoads; ++i)
    left_at[i] = grad_y + bytes(min(row0 + place(i, kTileRows, true).x, int(s.outs) - 1) * s.y.channel);
  [[unroll]] for (int i = 0; i < kRightLoads; ++i) {
    const int column = min(column0 + place(i, kRightBlocks, true).x, p.columns - 1);
    const int channel = divide(column, p.taps_multiplier, p.taps_shift), tap = column - channel * int(s.taps);
    right_at[i] = x + bytes(channel * s.x.channel);
    reach[i] = tap * s.dilation - s.pad_left;
  }
}

// From k of a stage on: the batch, and the output position there.
ivec2 batch_and_output(int k) {
  const int n = divide(k, p.outputs_multiplier, p.outputs_shift);
  return ivec2(n, k - n * int(p.shape.outputs));
}

uvec4 left(int i, int row, int stage, int k) {
  Shape s = p.shape;
  const int at = (first_stage + stage) * kDepth + k;
  if (kWhole) {
    is_left_there[i] = at < p.depth;
    const ivec2 nt = batch_and_output(min(at, p.depth - 8));
    return FourWords(left_at[i] + bytes(nt.x * s.y.outer + nt.y)).v;
  }
  ivec2 nt = batch_and_output(at);
  uvec4 values = uvec4(0);
  [[unroll]] for (int j = 0; j < 8; ++j) {
    if (at + j < p.depth)
      values[j / 2] |= bits_16(left_at[i] + bytes(nt.x * s.y.outer + nt.y * s.y.position)) << (j % 2 * 16);
    if (++nt.y == s.outputs) nt = ivec2(nt.x + 1, 0);
  }
  return values;
}
uvec4 left_eight(int i) { return kWhole && !is_left_there[i] ? uvec4(0) : left_held[i]; }

void right(int i, int column, int stage, int k) {
  Shape s = p.shape;
  const int at = (first_stage + stage) * kDepth + k;
  if (kWhole) {
    const ivec2 nt = batch_and_output(min(at, p.depth - 8));
    const int position = (nt.y + int(reach[i])) & ~3, last = int(s.extent) - 4;
    const uint64_t row = right_at[i] + bytes(nt.x * s.x.outer);
    [[unroll]] for (int four = 0; four < 3; ++four)
      is_right_there[3 * i + four] = at < p.depth && position + 4 * four >= 0 && position + 4 * four <= last;
    right_held[i] = uvec4(TwoWords(row + bytes(clamp(position, 0, last))).v, TwoWords(row + bytes(clamp(position + 4, 0, last))).v);
    third[i] = TwoWords(row + bytes(clamp(position + 8, 0, last))).v;
    return;
  }
  ivec2 nt = batch_and_output(at);
  uvec4 values = uvec4(0);
  [[unroll]] for (int j = 0; j < 8; ++j) {
    const int64_t position = nt.y * s.stride + reach[i];
    if (at + j < p.depth && is_inside(position))
      values[j / 2] |= bits_16(right_at[i] + bytes(nt.x * s.x.outer + position * s.x.position)) << (j % 2 * 16);
    if (++nt.y == s.outputs) nt = ivec2(nt.x + 1, 0);
  }
  right_held[i] = values;
}

uvec4 right_eight(int i, int b) {
  if (!kWhole) return right_held[i];
  uint words[6];
  [[unroll]] for (int j = 0; j < 6; ++j) {
    const uint word = j < 4 ? right_held[i][j % 4] : third[i][j % 2];
    words[j] = is_right_there[3 * i + j / 2] ? word : 0u;
  }
  // t is a multiple of 8 there.
  const bool by_two = (reach[i] & 2) != 0, by_one = (reach[i] & 1) != 0;
  [[unroll]] for (int j = 0; j < 5; ++j) words[j] = by_two ? words[j + 1] : words[j];
  uvec4 eight;
  [[unroll]] for (int j = 0; j < 4; ++j) eight[j] = by_one ? words[j] >> 16 | words[j + 1] << 16 : words[j];
  return eight;
}

void write_eight(int row, int column, vec4 four, vec4 next) {
  const int64_t outs = p.shape.outs;
  if (row0 + row >= outs) return;
  [[unroll]] for (int k = 0; k < 8; ++k) {
    const int at = column0 + column + k, channel = divide(at, p.taps_multiplier, p.taps_shift);
    if (at < p.columns)
      write_sum(slice, group * outs + row0 + row, channel, at - channel * int(p.shape.taps), k < 4 ? four[k % 4] : next[k % 4]);
  }
}

void main() {
  Shape s = p.shape;
  const uint block = flat_group();
  if (block >= p.blocks) return;
  const uint rest = block / p.row_tiles;
  slice = rest / p.column_tiles % p.slices;
  row0 = int(block % p.row_tiles) * kTileRows, column0 = int(rest % p.column_tiles) * kTileColumns;
  group = rest / p.column_tiles / p.slices;
  grad_y = p.grad_y + bytes(group * s.outs * s.y.channel);
  x = p.x + bytes(group * s.ins * s.x.channel);
  locate();
  first_stage = slice_begin(p.stages, int(p.slices), int(slice));
  multiply(slice_begin(p.stages, int(p.slices), int(slice) + 1) - first_stage);
  write_sums(kRowMatrices);
}
