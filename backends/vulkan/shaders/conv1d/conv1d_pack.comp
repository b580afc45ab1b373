// SPDX-License-Identifier: Apache-2.0
// conv1d_pack.comp -- the weights of a correlation as conv1d_coopmat.comp reads them: for each tile of rows and each stage (kEights
// eights of channels of one tap) the rows one after the other, zeros where there is no channel or row. Elements are aligned.
#version 460
#define ALIGNED
#include "common.glsl"
#include "gemm/gemm_elements.glsl"
#include "conv1d_correlation.glsl"

layout(constant_id = 1) const int kTileRows = 128;
layout(constant_id = 2) const int kEights = 4;

layout(local_size_x = 64) in;

// p.y: where it goes; p.blocks: eights in all; p.columns: tiles of rows; p.depth: stages.
void main() {
  Shape s = p.shape;
  const uint i = flat_group() * 64 + gl_LocalInvocationID.x;
  if (i >= p.blocks) return;
  uint rest = i / kEights;
  const int64_t row = rest % kTileRows;
  rest /= kTileRows;
  const int64_t stage = rest % p.depth;
  rest /= p.depth;
  const int64_t m = rest % p.columns * kTileRows + row, group = rest / p.columns;
  const int64_t channel = stage / p.taps * (8 * kEights) + i % kEights * 8, tap = stage % p.taps;
  // What is not there is read elsewhere: where a load is in a branch, it is waited for where that ends.
  const uint64_t at = p.w + bytes(group * s.w_group + min(m, s.outs - 1) * s.w_out + tap * s.w_tap);
  uint element[8];
  [[unroll]] for (int j = 0; j < 8; ++j) element[j] = bits_16(at + bytes(min(channel + j, s.ins - 1) * s.w_in));
  uvec4 values;
  [[unroll]] for (int j = 0; j < 8; ++j)
    if (m >= s.outs || channel + j >= s.ins) element[j] = 0;
  [[unroll]] for (int j = 0; j < 4; ++j) values[j] = element[2 * j] | element[2 * j + 1] << 16;
  FourWords(p.y + uint64_t(i) * 16).v = values;
}
