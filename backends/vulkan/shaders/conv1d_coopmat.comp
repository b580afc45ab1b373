// conv1d_coopmat.comp -- a correlation of f16 by the matrix unit: a row for each output channel, a column for each output position of one
// batch, a stage for 32 channels of a tap. The input's columns lie along the channels in shared memory, so that the next tap is the same
// columns shifted by whole ones: where kMostShift has room for all taps, the input is read once. Elements are aligned.
#version 460
#define ALIGNED
#include "common.glsl"
#include "gemm_elements.glsl"
#include "conv1d_correlation.glsl"
#include "conv1d_divide.glsl"

layout(constant_id = 11) const bool kSlides = false;  // all taps of a channel are shifts of one right operand
layout(constant_id = 12) const bool kBackwards = false;  // the taps' step is negative

const bool kRightAlongDepth = false;
const int kSlots = 1;
uint64_t x, w;  // of the group and batch; of the tile of rows, packed
int q0;
uvec4 left(int row, int stage, int k);
uvec4 right(int column, int stage, int k);
bool is_new(int stage);
int shift(int stage);
#include "gemm_coopmat.glsl"

int channels_of(int stage) { return divide(stage, p.taps_multiplier, p.taps_shift); }  // in stages' depths
int tap_of(int stage) { return stage - channels_of(stage) * int(p.taps); }

bool is_new(int stage) { return !kSlides || tap_of(stage) == 0; }
int shift(int stage) { return kSlides ? tap_of(stage) * int(p.shape.tap_step) + (kBackwards ? kMostShift : 0) : 0; }

uvec4 left(int row, int stage, int k) {
  return FourWords(w + uint64_t(stage) * (kTileRows * kDepth * 2) + uint64_t((row * kDepth + k) * 2)).v;
}

uvec4 right(int column, int stage, int k) {
  Shape s = p.shape;
  const int channel = channels_of(stage) * kDepth + k;
  const int64_t reach = kSlides ? (kBackwards ? -kMostShift : 0) : tap_of(stage) * s.tap_step;
  const int64_t position = (q0 + column) * s.step + reach + p.origin;
  const int left = is_inside(position) ? int(s.ins) - channel : 0;
  const uint64_t at = x + bytes(channel * s.in_channel + position * s.in_position), step = bytes(s.in_channel);
  uvec4 values = uvec4(0);
  [[unroll]] for (int j = 0; j < 8; ++j)
    if (j < left) values[j / 2] |= bits_16(at + j * step) << (j % 2 * 16);
  return values;
}

void main() {
  Shape s = p.shape;
  const uint block = flat_group();
  if (block >= p.blocks) return;
  const uint row_tiles = uint(s.outs + kTileRows - 1) / kTileRows, row_tile = block % row_tiles;
  uint rest = block / row_tiles;
  q0 = int(rest % p.tiles) * kTileColumns;
  rest /= p.tiles;
  const int64_t n = rest % uint(s.batch), group = rest / uint(s.batch);
  x = p.x + bytes(n * s.in_batch + group * s.in_group);
  w = p.w + uint64_t(group * row_tiles + row_tile) * uint64_t(p.depth) * (kTileRows * kDepth * 2);
  multiply(p.depth);

  const uint64_t y = p.y + bytes(n * s.out_batch + group * s.out_group);
  [[unroll]] for (int i = 0; i < kRowMatrices; ++i)
    [[unroll]] for (int j = 0; j < kColumnMatrices; ++j) {
      lay_out(0, i, j);
      subgroupBarrier();
      const int row0 = int(row_tile) * kTileRows + subgroup_row() + i * kM, column0 = q0 + subgroup_column() + j * kN;
      [[dont_unroll]] for (int e = int(gl_SubgroupInvocationID); e < kM * kN; e += kSubgroupThreads) {
        const int m = row0 + e / kN, q = column0 + e % kN;
        if (m < s.outs && q < p.outputs) store(y + bytes(m * s.out_channel + q * s.out_position), laid_out(0, e) + bias_of(group, m));
      }
      subgroupBarrier();
    }
}
