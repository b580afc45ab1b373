// lltm_coopmat.comp -- lltm of f16 by the matrix unit: a subgroup's columns are the three gates of the same states, a matrix each, so that
// the subgroup that has summed a cell's gates also updates the cell. Stages are the states', rounded up to whole ones, and then the
// features'.
#version 460
#define ALIGNED
#include "common.glsl"
#include "gemm_elements.glsl"
#include "gemm_matrix.glsl"
#include "lltm_forward.glsl"

layout(constant_id = 11) const bool kTogether = false;  // both operands are read eight elements at a time

const bool kRightAlongDepth = true;
const int kSlots = 3;
int row0, state0, turn;  // of the tile; the features' first stage
uvec4 left(int row, int stage, int k);
uvec4 right(int column, int stage, int k);
bool is_new(int stage) { return true; }
int shift(int stage) { return 0; }
#include "gemm_coopmat.glsl"

// Eight elements of a row from k on, whose last ones may be missing.
uvec4 load_eight(Matrix m, int row, int k) {
  const int left = row < m.rows ? m.depth_extent - k : 0;
  const uint64_t at = m.base + uint64_t((row * m.row + k * m.depth) * kSize), step = uint64_t(m.depth * kSize);
  if (kTogether && left >= 8) return FourWords(at).v;
  uvec4 values = uvec4(0);
  [[unroll]] for (int j = 0; j < 8; ++j)
    if (j < left) values[j / 2] |= bits_16(at + j * step) << (j % 2 * 16);
  return values;
}

uvec4 left(int row, int stage, int k) {
  Shape shape = p.shape;
  Matrix m = Matrix(p.old_h, shape.old_h.row, shape.old_h.column, int(shape.batch), int(shape.state));
  if (stage >= turn) m = Matrix(p.inputs, shape.inputs.row, shape.inputs.column, m.rows, int(shape.features));
  return load_eight(m, row0 + row, (stage < turn ? stage : stage - turn) * kDepth + k);
}

// Column: of a subgroup, then the gate, then the state.
uvec4 right(int column, int stage, int k) {
  Shape shape = p.shape;
  const int s = state0 + column / (3 * kN) * kN + column % kN, row = column / kN % 3 * int(shape.state) + s;
  Matrix m = Matrix(p.weights, shape.weights.row, shape.weights.column, s < shape.state ? row + 1 : 0, int(shape.state));
  if (stage >= turn) {
    m.base += uint64_t(shape.state * m.depth * kSize);
    m.depth_extent = int(shape.features);
  }
  return load_eight(m, row, (stage < turn ? stage : stage - turn) * kDepth + k);
}

void main() {
  Shape shape = p.shape;
  const int group = int(flat_group());
  row0 = group / p.state_tiles * kTileRows;
  state0 = group % p.state_tiles * (kTileColumns / 3);
  if (row0 >= shape.batch) return;
  turn = (int(shape.state) + kDepth - 1) / kDepth;
  multiply(turn + (int(shape.features) + kDepth - 1) / kDepth);
  [[unroll]] for (int i = 0; i < kRowMatrices; ++i) {
    [[unroll]] for (int gate = 0; gate < 3; ++gate) lay_out(gate, i, gate);
    subgroupBarrier();
    const int first_row = row0 + subgroup_row() + i * kM, first_state = state0 + subgroup_column() / 3;
    [[dont_unroll]] for (int e = int(gl_SubgroupInvocationID); e < kM * kN; e += kSubgroupThreads) {
      const int b = first_row + e / kN, s = first_state + e % kN;
      if (b < shape.batch && s < shape.state) update_cell(b, s, ACC[3](laid_out(0, e), laid_out(1, e), laid_out(2, e)));
    }
    subgroupBarrier();
  }
}
