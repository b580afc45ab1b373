// SPDX-License-Identifier: Apache-2.0
// lltm_fused.comp -- lltm as one tiled product: a tile holds the three gates of the same states side by side, so the thread that
// has summed a cell's gates also updates the cell. k counts the states, rounded up to whole stages, and then the features.
#version 460
#define ALIGNED
#include "common.glsl"
#include "gemm/gemm_elements.glsl"
#include "gemm/gemm_matrix.glsl"
#include "lltm_forward.glsl"

layout(constant_id = 7) const bool kTogether = false;  // both operands are read four elements at a time

const bool kLeftAlongDepth = true, kRightAlongDepth = true;
int turn, state0;  // the first feature's k; the tile's first state
ACC4 left(int row, int k);
ACC4 right(int column, int k);
#include "gemm/gemm.glsl"

ACC4 left(int row, int k) {
  Shape shape = p.shape;
  Matrix m = Matrix(p.old_h, shape.old_h.row, shape.old_h.column, int(shape.batch), int(shape.state));
  if (k >= turn) m = Matrix(p.inputs, shape.inputs.row, shape.inputs.column, m.rows, int(shape.features));
  return load_group(m, row, k < turn ? k : k - turn, true, kTogether);
}

ACC4 right(int column, int k) {
  Shape shape = p.shape;
  const int states = 4 * kThreadColumns, s = state0 + column % states, row = column / states * int(shape.state) + s;
  Matrix m = Matrix(p.weights, shape.weights.row, shape.weights.column, s < shape.state ? row + 1 : 0, int(shape.state));
  if (k >= turn) {
    m.base += uint64_t(shape.state * m.depth * kSize);
    m.depth_extent = int(shape.features);
  }
  return load_group(m, row, k < turn ? k : k - turn, true, kTogether);
}

void main() {
  Shape shape = p.shape;
  const int group = int(flat_group()), row0 = group / p.state_tiles * kTileRows;
  state0 = group % p.state_tiles * (4 * kThreadColumns);
  if (row0 >= shape.batch) return;
  turn = (int(shape.state) + kDepth - 1) / kDepth * kDepth;
  multiply(row0, 0, 0, turn + int(shape.features));
  // One copy of update_cell(): it is long. The inner loop selects a row, so that no register is indexed at run time.
  [[dont_unroll]] for (int i = 0; i < 4 * kRowGroups; ++i) {
    ACC4 z[3];
    [[unroll]] for (int r = 0; r < 4 * kRowGroups; ++r)
      if (r == i)
        [[unroll]] for (int gate = 0; gate < 3; ++gate) z[gate] = sums[r * kColumnGroups + gate];
    const int b = row0 + row_of(i);
    [[dont_unroll]] for (int j = 0; j < 4; ++j) {
      const int s = state0 + column_of(0) + j;
      if (b < shape.batch && s < shape.state) update_cell(b, s, ACC[3](z[0][j], z[1][j], z[2][j]));
    }
  }
}
