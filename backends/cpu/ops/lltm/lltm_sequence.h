// SPDX-License-Identifier: Apache-2.0
// lltm_sequence.h -- the tensors of lltm_sequence and its gradients, and how their work is cut. Rows of the batch do not depend on
// each other. So a task takes some of them through all steps, and no task waits for another one.
#pragma once

#include "common/lltm_sequence.h"
#include "lltm.h"

namespace narrows::cpu {

// A (steps, batch, columns) tensor of a call; base NULL: absent.
struct Sequence {
  void* base = nullptr;
  SequenceStrides strides;
  template <class T>
  T* at(int64_t time, int64_t row, int64_t column) const {
    return static_cast<T*>(base) + time * strides.step + row * strides.row + column * strides.column;
  }
};

// base NULL: absent, and every row has all steps.
struct Lengths {
  const int32_t* base = nullptr;
  int64_t stride = 0;
  int64_t of(int64_t row, int64_t steps) const {
    return base == nullptr ? steps : common::steps_of(read(base + row * stride), steps);
  }
};

// How the rows of the batch are cut into tasks. Its sizes are those of a task's scratch, in elements of the accumulator's dtype.
struct RowBlocks {
  int64_t lanes, tile_rows;  // of the micro-kernel
  int64_t rows, blocks;      // rows of a task, whole tiles; tasks
  int64_t slots;             // tasks that run at once
  double task_cost;
};
// A tile of 8 rows reads every weight once: fewer rows at once would read them more often. With more than 128 the operands of a
// step leave the second-level cache.
inline constexpr int64_t kMostSequenceRows = 128;
RowBlocks row_blocks(const Instance& instance, GemmTile tile, const LltmSequenceSizes& sizes, double cost_of_row);

// ---- forward ----

struct LltmSequenceForward {
  LltmSequenceSizes sizes;
  Sequence input;
  Matrix weights, bias, old_h, old_cell;
  Lengths lengths;
  Sequence h;
  Matrix new_h, new_cell;
  Sequence cells, gates;  // gates are of the accumulator's dtype
};

// Forward as backward needs it too, to compute again what was not saved: there `h`, `new_h` and `new_cell` are absent.
class LltmSequenceSteps {
 public:
  LltmSequenceSteps() = default;
  LltmSequenceSteps(const Instance& instance, const LltmSequenceSizes& sizes);
  void run(const Instance& instance, const LltmSequenceForward& tensors, void* workspace) const;
  uint64_t workspace_size = 0;

  // Of a task's scratch, in elements.
  RowBlocks blocks{};
  int64_t panels = 0, chunk = 1;  // panels of 3 vectors; steps whose products of `input` are made at once
  int64_t panel_size = 0;         // of the packed weights
  uint64_t weights_bytes = 0, slot_bytes = 0;
};

// ---- backward ----

// The tensors of a backward call, and the parts of its workspace that tasks share.
struct LltmSequenceBackward {
  LltmSequenceSizes sizes;
  RowBlocks blocks;
  Sequence grad_h;
  Matrix grad_new_h, grad_new_cell;
  Sequence input;
  Matrix weights, old_h;
  Lengths lengths;
  Sequence h, cells, gates;
  Sequence d_input;
  Matrix d_weights, d_bias, d_old_h, d_old_cell;
  Sequence gate_grads;          // (steps, batch, 3 * state) of the accumulator's dtype
  void* weights_of_state;       // packed
  Sequence kept_h, kept_input;  // where rows have lengths: the operands of d_weights, 0 at steps that a row has not
};

// Bytes, or a refusal where there are too many to count.
uint64_t sequence_bytes(int64_t a, int64_t b, int64_t c, Dtype dtype);

}  // namespace narrows::cpu
