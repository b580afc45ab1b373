// SPDX-License-Identifier: Apache-2.0
// lltm_product_tiled.comp -- a product of lltm's gradients in tiles, its depth in slices. Elements are aligned.
#version 460
#define ALIGNED
#include "common.glsl"
#include "gemm/gemm_elements.glsl"
#include "gemm/gemm_matrix.glsl"
#include "lltm_product.glsl"

layout(constant_id = 7) const bool kToWeights = false;
layout(constant_id = 8) const bool kTogether = false;  // the operand is read four elements at a time

const bool kLeftAlongDepth = !kToWeights, kRightAlongDepth = false;
ACC4 left(int row, int k);
ACC4 right(int column, int k);
#include "gemm/gemm.glsl"

// The workspace's rows have room for whole fours; what lies past the gates there is not read.
ACC4 left(int row, int k) {
  const int along = kToWeights ? int(p.rows) - row : int(p.depth) - k;
  if (row >= p.rows || k >= p.depth) return ACC4(0);
  const uint64_t at = p.gate_grads + uint64_t((kToWeights ? k * p.pitch + row : row * p.pitch + k) * kAccSize);
  if (along >= 4) return load_acc4(at);
  ACC4 values = ACC4(0);
  [[unroll]] for (int i = 0; i < 3; ++i)
    if (i < along) values[i] = load_sum(at + uint64_t(i * kAccSize));
  return values;
}

ACC4 right(int column, int k) {
  if (p.operand == 0) return k < p.depth ? ACC4(1) : ACC4(0);
  const Matrix operand = Matrix(p.operand, p.operand_column, p.operand_row, int(p.columns), int(p.depth));
  return load_group(operand, column, k, false, kTogether);
}

void main() {
  const uint block = flat_group();
  if (block >= p.blocks) return;
  const int slice = int(block % p.slices), tile = int(block / p.slices);
  const int row0 = tile / int(p.column_tiles) * kTileRows, column0 = tile % int(p.column_tiles) * kTileColumns;
  const int slices = int(p.slices);
  multiply(row0, column0, slice_begin(p.stages, slices, slice) * kDepth, slice_begin(p.stages, slices, slice + 1) * kDepth);
  [[unroll]] for (int i = 0; i < 4 * kRowGroups; ++i)
    [[unroll]] for (int g = 0; g < kColumnGroups; ++g)
      [[unroll]] for (int j = 0; j < 4; ++j) {
        const int64_t row = row0 + row_of(i), column = column0 + column_of(g) + j;
        if (row >= p.rows || column >= p.columns) continue;
        const ACC sum = sums[i * kColumnGroups + g][j];
        if (p.slices > 1)
          store_sum(p.partial + uint64_t(((slice * p.rows + row) * p.columns + column) * kAccSize), sum);
        else
          store(p.to + uint64_t((row * p.to_row + column * p.to_column) * kSize), sum);
      }
}
