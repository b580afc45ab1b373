// lltm_coopmat.comp -- lltm of f16 by the matrix unit: a subgroup's columns are the three gates of the same states, a matrix each, so that
// the subgroup that has summed a cell's gates also updates the cell. Stages are the states', rounded up to whole ones, and then the
// features'.
#version 460
#define ALIGNED
#include "common.glsl"
#include "gemm_elements.glsl"
#include "lltm_forward.glsl"

layout(constant_id = 12) const bool kTogether = false;  // both operands are read eight elements at a time
layout(constant_id = 13) const bool kWhole = false;     // kTogether, states and features are whole stages, and 32 bits count bytes

const bool kRightAlongDepth = true;
const int kSlots = 3, kBlock = 1;
int row0, state0, turn;  // of the tile; the features' first stage
uvec4 left(int i, int row, int stage, int k);
void right(int i, int column, int stage, int k);
bool is_new(int stage) { return true; }
int shift(int stage) { return 0; }
uvec4 right_eight(int i, int b);
#include "gemm_coopmat.glsl"

uvec4 right_eight(int i, int b) { return right_held[i]; }

// Where the thread's loads are at. What lies past the last batch or state is not used: there the last one is read again.
uint64_t left_at[kLeftLoads], right_at[kRightLoads];
int states, features;
int64_t left_step, right_step;  // bytes from one element along k to the next
uint left_of_h[kLeftLoads], left_of_inputs[kLeftLoads], right_of[kRightLoads];  // kWhole: the loads of stage 0, in bytes

int batch_of(int row) { return min(row0 + row, int(p.shape.batch) - 1); }
int weights_of(int column) { return column / kN % 3 * states + min(state0 + column / (3 * kN) * kN + column % kN, states - 1); }

void locate_whole() {
  Shape shape = p.shape;
  [[unroll]] for (int i = 0; i < kLeftLoads; ++i) {
    const ivec2 at = place(i, kTileRows, true);
    left_of_h[i] = uint(batch_of(at.x)) * uint(shape.old_h.row * kSize) + uint(at.y * 16);
    left_of_inputs[i] = uint(batch_of(at.x)) * uint(shape.inputs.row * kSize) + uint(at.y * 16);
  }
  [[unroll]] for (int i = 0; i < kRightLoads; ++i) {
    const ivec2 at = place(i, kRightBlocks, true);
    right_of[i] = uint(weights_of(at.x)) * uint(shape.weights.row * kSize) + uint(at.y * 16);
  }
}

// Eight elements, of which `left` are there.
uvec4 load_eight(uint64_t at, int64_t step, int left) {
  if (kTogether && left >= 8) return FourWords(at).v;
  uvec4 values = uvec4(0);
  [[unroll]] for (int j = 0; j < 8; ++j)
    if (j < left) values[j / 2] |= bits_16(at + uint64_t(j * step)) << (j % 2 * 16);
  return values;
}
int left_of(int stage, int k) { return stage < turn ? states - stage * kDepth - k : features - (stage - turn) * kDepth - k; }

uvec4 left(int i, int row, int stage, int k) {
  if (kWhole) {
    const bool old = stage < turn;
    const uint64_t from = (old ? p.old_h : p.inputs) + uint64_t(uint(old ? stage : stage - turn) * (kDepth * kSize));
    return FourWords(from + (old ? left_of_h[i] : left_of_inputs[i])).v;
  }
  if (stage == 0 || stage == turn) {
    Shape shape = p.shape;
    const int64_t b = batch_of(row);
    left_step = (stage < turn ? shape.old_h.column : shape.inputs.column) * kSize;
    left_at[i] = stage < turn ? at(p.old_h, shape.old_h, b, k, kSize) : at(p.inputs, shape.inputs, b, k, kSize);
  }
  const uint64_t from = left_at[i];
  left_at[i] += uint64_t(left_step * kDepth);
  return load_eight(from, left_step, left_of(stage, k));
}

// Column: of a subgroup, then the gate, then the state.
void right(int i, int column, int stage, int k) {
  if (kWhole) {
    right_held[i] = FourWords(p.weights + uint64_t(uint(stage) * (kDepth * kSize)) + right_of[i]).v;
    return;
  }
  if (stage == 0 || stage == turn) {
    Shape shape = p.shape;
    right_step = shape.weights.column * kSize;
    right_at[i] = at(p.weights, shape.weights, weights_of(column), k + (stage < turn ? 0 : states), kSize);
  }
  right_held[i] = load_eight(right_at[i], right_step, left_of(stage, k));
  right_at[i] += uint64_t(right_step * kDepth);
}

void main() {
  Shape shape = p.shape;
  const int group = int(flat_group());
  row0 = group / p.state_tiles * kTileRows;
  state0 = group % p.state_tiles * (kTileColumns / 3);
  if (row0 >= shape.batch) return;
  states = int(shape.state);
  features = int(shape.features);
  turn = (states + kDepth - 1) / kDepth;
  if (kWhole) locate_whole();
  multiply(turn + (int(shape.features) + kDepth - 1) / kDepth);
  [[unroll]] for (int i = 0; i < kRowMatrices; ++i) {
    [[unroll]] for (int gate = 0; gate < 3; ++gate) lay_out(gate, i, gate);
    subgroupBarrier();
    const int first_row = row0 + subgroup_row() + i * kM, first_state = state0 + subgroup_column() / 3;
    [[dont_unroll]] for (int e = int(gl_SubgroupInvocationID); e < kM * kN; e += kSubgroupThreads) {
      const int b = first_row + e / kN, s = first_state + e % kN;
      if (b < shape.batch && s < shape.state) update_cell(b, s, ACC[3](laid_out(e / kN, e % kN), laid_out(e / kN, kN + e % kN), laid_out(e / kN, 2 * kN + e % kN)));
    }
    subgroupBarrier();
  }
}
