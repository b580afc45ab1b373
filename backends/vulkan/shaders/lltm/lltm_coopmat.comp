// SPDX-License-Identifier: Apache-2.0
// lltm_coopmat.comp -- lltm of f16 or bf16 by the matrix unit: a subgroup's columns are the three gates of the same states, a matrix each, so that
// the subgroup that has summed a cell's gates also updates the cell. Stages are the states', rounded up to whole ones, and then the
// features'.
#version 460
#define ALIGNED
#include "common.glsl"
#include "gemm/gemm_elements.glsl"
#include "lltm_forward.glsl"

layout(constant_id = 12) const bool kTogether = false;  // both operands are read eight elements at a time
layout(constant_id = 13) const bool kWhole = false;     // kTogether, states and features are whole stages, and 32 bits count bytes

const bool kRightAlongDepth = true;
const int kSlots = 3, kBlock = 1, kAtLeast = 0;
int row0, state0, turn;  // of the tile; the features' first stage
uvec4 left(int i, int row, int stage, int k);
void right(int i, int column, int stage, int k);
uvec4 right_eight(int i, int b);
#include "gemm/gemm_coopmat.glsl"

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

// Where a thread's cells are at: one column of a tensor, from a row on.
struct Column {
  uint64_t at, step;  // bytes; step: to its next cell's
};
// A subgroup is whole rows of a matrix, so that a thread's cells are of one state, kRowsAtOnce batches apart.
const int kRowsAtOnce = kSubgroupThreads / kN, kCells = kM / kRowsAtOnce;
Column column_of(uint64_t base, Strides strides, int row, int column, int size) {
  return Column(at(base, strides, row, column, size), uint64_t(kRowsAtOnce * size * strides.row));
}

void update_cells() {
  Shape shape = p.shape;
  const int batch = int(shape.batch), thread = int(gl_SubgroupInvocationID), row = thread / kN, column = thread % kN;
  const int first_batch = row0 + subgroup_row() + row, state = state0 + subgroup_column() / 3 + column;
  const bool is_there = state < states;
  Column old_cell = column_of(p.old_cell, shape.old_cell, first_batch, state, kSize);
  Column new_cell = column_of(p.new_cell, shape.new_cell, first_batch, state, kSize);
  Column new_h = column_of(p.new_h, shape.new_h, first_batch, state, kSize), gates[3];
  ACC bias[3];
  [[unroll]] for (int gate = 0; gate < 3; ++gate) {
    gates[gate] = column_of(p.gates, shape.gates, first_batch, gate * states + state, kAccSize);
    bias[gate] = is_there ? load(at(p.bias, shape.bias, 0, gate * states + state, kSize)) : ACC(0);
  }
  // Of a row of matrices first all that is read, so that it is waited for once. NVIDIA's compiler does not unroll a loop of so much, and
  // would put sums into memory that such a loop's counter indexes.
  [[dont_unroll]] for (int i = 0; i < kRowMatrices; ++i) {
    ACC old[kCells];
    [[unroll]] for (int c = 0; c < kCells; ++c) {
      const int b = first_batch + i * kM + c * kRowsAtOnce;
      old[c] = is_there && b < batch ? load(old_cell.at + uint64_t(i * kCells + c) * old_cell.step) : ACC(0);
    }
    [[unroll]] for (int r = 0; r < kRowMatrices; ++r)
      if (r == i)
        [[unroll]] for (int gate = 0; gate < 3; ++gate) lay_out(gate, r, gate);
    subgroupBarrier();
    [[unroll]] for (int c = 0; c < kCells; ++c) {
      const int b = first_batch + i * kM + c * kRowsAtOnce;
      const uint64_t steps = uint64_t(i * kCells + c);
      if (!is_there || b >= batch) continue;
      ACC z[3];
      [[unroll]] for (int gate = 0; gate < 3; ++gate) {
        z[gate] = laid_out(row + c * kRowsAtOnce, gate * kN + column) + bias[gate];
        if (p.gates != 0) store_acc(gates[gate].at + steps * gates[gate].step, z[gate]);
      }
      const Cell now = updated(z, old[c]);
      store(new_cell.at + steps * new_cell.step, now.cell);
      store(new_h.at + steps * new_h.step, now.h);
    }
    subgroupBarrier();
  }
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
  multiply(turn + (features + kDepth - 1) / kDepth);
  update_cells();
}
