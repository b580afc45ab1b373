// SPDX-License-Identifier: Apache-2.0
// conv1d_coopmat.comp -- a correlation of f16 or bf16 by the matrix unit: a row for each output channel, a column for each output position of one
// batch, a stage for some channels of a tap. The input's columns lie along the channels in shared memory, so that the next tap is the same
// columns shifted by whole ones: where kMostShift has room for all taps, the input is read once. Elements are aligned.
#version 460
#define ALIGNED
#include "common.glsl"
#include "gemm/gemm_elements.glsl"
#include "conv1d_correlation.glsl"
#include "conv1d_divide.glsl"

layout(constant_id = 13) const bool kSlides = false;  // all taps of a channel are shifts of one right operand
layout(constant_id = 14) const bool kBackwards = false;  // the taps' step is negative
layout(constant_id = 15) const int kBlock = 1;  // 4: rows of x are contiguous and start where load4() may read, and the step is 1
layout(constant_id = 16) const int kReach = 0;  // kSlides: of all taps, in positions
layout(constant_id = 17) const bool kOutTogether = false;  // rows of y start at 16 bytes and are whole eights, and all sums fit into shared memory
layout(constant_id = 18) const bool kWhole = false;  // kBlock 4, rows of x are whole fours, and channels whole eights

const bool kRightAlongDepth = kBlock == 4;
uint64_t x, w, y;  // of the group and batch; of the tile of rows, packed
int q0;
int ins, tap_step;
int64_t extent, step, in_channel, in_position;  // the last two in bytes
uvec4 left(int i, int row, int stage, int k);
void right(int i, int column, int block, int k);
uvec4 right_eight(int i, int b);
int shift(int block, int turn);
void start();
#define kSlotsApart (kColumnMatrices % 2 == 0 ? 2 : 1)  // matrices whose sums are written at once
#ifdef DTYPE_BF16
// kOutTogether: whole rows of a subgroup's sums. They are rounded on their way out: there need be no matrices of bf16 that they can become.
#define kSlots (kOutTogether ? kColumnMatrices : kSlotsApart)
#define kAtLeast 0
#else
#define kSlots kSlotsApart
// kOutTogether: all of a subgroup's sums as f16, row by row in eights, with one more than is used, as for stages.
#define kOutEights (kColumnMatrices * kN / 8)
#define kOutPitch (kOutEights + 1)
#define kOutPatch (kRowMatrices * kM * kOutPitch)
#define kAtLeast (kOutTogether ? kSubgroups * kOutPatch : 0)
#endif
#define TURNS
#define WRITES_EIGHTS
#include "gemm/gemm_coopmat.glsl"

// A block is all taps of kDepth channels, else (not kSlides) one.
int channels_of(int block) { return kSlides ? block : divide(block, p.taps_multiplier, p.taps_shift); }  // in stages' depths
int tap_of(int block) { return kSlides ? 0 : block - channels_of(block) * int(p.taps); }

// The position of the first column that the block needs; what is loaded begins lead_of() before, at a multiple of 4.
int64_t first_of(int block) {
  return q0 * step + p.origin + (kSlides ? (kBackwards ? -kReach : 0) : tap_of(block) * p.shape.tap_step);
}
int lead_of(int64_t first) { return kBlock == 4 ? int(first & 3) : 0; }

int shift(int block, int turn) { return lead_of(first_of(block)) + (kSlides ? turn * tap_step + (kBackwards ? kReach : 0) : 0); }

uvec4 left(int i, int row, int stage, int k) {
  return FourWords(w + uint64_t(stage) * (kTileRows * kDepth * 2) + uint64_t((row * kDepth + k) * 2)).v;
}

// kWhole: four positions of eight channels, which are all there or none. What is not is read elsewhere, and put as zeros.
bool is_there[kRightLoads];
void load_whole(int i, int channel, int position) {
  is_there[i] = channel < ins && position >= 0 && position < int(extent);
  const uint64_t at = x + uint64_t(min(channel, ins - 8) * in_channel) + uint64_t(clamp(position, 0, int(extent) - 4) * 2);
  [[unroll]] for (int j = 0; j < 4; ++j)
    right_held[kBlock == 4 ? i * 4 + j : i] =
        uvec4(TwoWords(at + uint64_t(2 * j * in_channel)).v, TwoWords(at + uint64_t((2 * j + 1) * in_channel)).v);
}

// Four positions of eight channels, of which `left` are there, two channels to a uvec4.
void load_block(int i, uint64_t at, int64_t position, int left) {
  uvec2 rows[8];
  if (position >= 0 && position + 4 <= extent) {
    if (left >= 8) {
      [[unroll]] for (int j = 0; j < 8; ++j) rows[j] = TwoWords(at + uint64_t(j * in_channel)).v;
    } else {
      [[unroll]] for (int j = 0; j < 8; ++j) rows[j] = j < left ? TwoWords(at + uint64_t(j * in_channel)).v : uvec2(0);
    }
  } else {
    [[unroll]] for (int j = 0; j < 8; ++j) {
      rows[j] = uvec2(0);
      [[unroll]] for (int b = 0; b < 4; ++b)
        if (j < left && is_inside(position + b)) rows[j][b / 2] |= bits_16(at + uint64_t(j * in_channel + b * 2)) << (b % 2 * 16);
    }
  }
  [[unroll]] for (int j = 0; j < 4; ++j) right_held[kBlock == 4 ? i * 4 + j : i] = uvec4(rows[2 * j], rows[2 * j + 1]);
}
uvec4 right_eight(int i, int b) {
  if (kBlock == 1) return right_held[i];
  uvec4 eight;
  [[unroll]] for (int j = 0; j < 4; ++j) {
    const uvec4 pair = right_held[kBlock == 4 ? i * 4 + j : i];
    const uint low = pair[b / 2], high = pair[2 + b / 2];
    eight[j] = b % 2 == 0 ? (low & 0xffffu) | (high << 16) : (low >> 16) | (high & 0xffff0000u);
    if (kWhole && !is_there[i]) eight[j] = 0;
  }
  return eight;
}

void right(int i, int column, int block, int k) {
  const int channel = channels_of(block) * kDepth + k;
  const int64_t first = first_of(block), position = first - lead_of(first) + column * step;
  const uint64_t at = x + uint64_t(channel * in_channel + position * in_position);
  if (kWhole) {
    load_whole(i, channel, int(position));
    return;
  }
  if (kBlock == 4) {
    load_block(i, at, position, ins - channel);
    return;
  }
  const int left = is_inside(position) ? ins - channel : 0;
  uvec4 values = uvec4(0);
  [[unroll]] for (int j = 0; j < 8; ++j)
    if (j < left) values[j / 2] |= bits_16(at + uint64_t(j * in_channel)) << (j % 2 * 16);
  right_held[i * kBlock] = values;
}

// Where the tile's rows are.
int64_t group;
int row0;

// The biases of each row, through shared memory, where a step of no bytes from a matrix's column to the next repeats them.
void start() {
  clear();
  if (p.bias == 0) return;
  for (int i = int(gl_LocalInvocationID.x); i < kTileRows / 4; i += kThreads) {
    vec4 biases = vec4(0);
    [[unroll]] for (int j = 0; j < 4; ++j)
      if (row0 + i * 4 + j < p.shape.outs) biases[j] = bias_of(group, row0 + i * 4 + j);
    stage_memory[i] = floatBitsToUint(biases);
  }
  barrier();
  [[unroll]] for (int i = 0; i < kRowMatrices; ++i)
    [[unroll]] for (int j = 0; j < kColumnMatrices; ++j)
      coopMatLoad(sums[i * kColumnMatrices + j], stage_memory, (subgroup_row() + i * kM) / 4, 0, gl_CooperativeMatrixLayoutColumnMajor);
  barrier();
}

#ifdef DTYPE_F16
// kOutTogether: neighbouring threads write neighbouring eights.
void write_together(int first_row, int first) {
  const int own = int(gl_SubgroupID) * kOutPatch, kWrites = (kRowMatrices * kM * kOutEights + kSubgroupThreads - 1) / kSubgroupThreads;
  [[unroll]] for (int i = 0; i < kRowMatrices; ++i)
    [[unroll]] for (int j = 0; j < kColumnMatrices; ++j) {
      const coopmat<float16_t, gl_ScopeSubgroup, kM, kN, gl_MatrixUseAccumulator> rounded =
          coopmat<float16_t, gl_ScopeSubgroup, kM, kN, gl_MatrixUseAccumulator>(sums[i * kColumnMatrices + j]);
      coopMatStore(rounded, stage_memory, own + i * kM * kOutPitch + j * (kN / 8), kOutPitch, gl_CooperativeMatrixLayoutRowMajor);
    }
  subgroupBarrier();
  [[unroll]] for (int t = 0; t < kWrites; ++t) {
    const int e = t * kSubgroupThreads + int(gl_SubgroupInvocationID), row = e / kOutEights, q = first + e % kOutEights * 8;
    if (row < kRowMatrices * kM && first_row + row < p.shape.outs && q < p.outputs)
      FourWords(y + bytes((first_row + row) * p.shape.out_channel + q)).v = stage_memory[own + row * kOutPitch + e % kOutEights];
  }
}
#endif

void write_eight(int row, int column, vec4 four, vec4 next) {
  const int q = q0 + column;
  if (row0 + row >= p.shape.outs) return;
  if (kOutTogether) {
    if (q < p.outputs) store8(y + bytes((row0 + row) * p.shape.out_channel + q), four, next);
    return;
  }
  [[unroll]] for (int k = 0; k < 8; ++k)
    if (q + k < p.outputs)
      store(y + bytes((row0 + row) * p.shape.out_channel + (q + k) * p.shape.out_position), k < 4 ? four[k % 4] : next[k % 4]);
}

void main() {
  Shape s = p.shape;
  const uint block = flat_group();
  if (block >= p.blocks) return;
  const uint row_tiles = uint(s.outs + kTileRows - 1) / kTileRows, row_tile = block % row_tiles;
  uint rest = block / row_tiles;
  q0 = int(rest % p.tiles) * kTileColumns;
  rest /= p.tiles;
  const int64_t n = rest % uint(s.batch);
  group = rest / uint(s.batch), row0 = int(row_tile) * kTileRows;
  ins = int(s.ins), tap_step = int(s.tap_step), extent = s.extent, step = s.step;
  in_channel = s.in_channel * kSize, in_position = s.in_position * kSize;
  x = p.x + bytes(n * s.in_batch + group * s.in_group);
  w = p.w + uint64_t(group * row_tiles + row_tile) * uint64_t(p.depth) * (kTileRows * kDepth * 2);
  multiply(kSlides ? divide(p.depth, p.taps_multiplier, p.taps_shift) : p.depth, kSlides ? int(p.taps) : 1);

  y = p.y + bytes(n * s.out_batch + group * s.out_group);
#ifdef DTYPE_F16
  if (kOutTogether) {
    write_together(row0 + subgroup_row(), q0 + subgroup_column());
    return;
  }
#endif
  write_sums(kRowMatrices);
}
