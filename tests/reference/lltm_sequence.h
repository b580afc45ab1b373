// SPDX-License-Identifier: Apache-2.0
// lltm_sequence.h -- float64 reference of lltm_sequence and lltm_sequence_backward: the formulas of docs/ops.md on dense arrays,
// one row of one step after the other. It shares no code with core or a backend.
#pragma once

#include <cstdint>
#include <vector>

namespace narrows::reference {

struct LltmSequence {
  int64_t steps = 1, batch = 1, features = 1, states = 1;
  bool reverse = false;
};

// Sequences are (steps, batch, ...).
struct LltmSequenceInputs {
  std::vector<double> input, weights, bias;  // bias empty: none
  std::vector<double> old_h, old_cell;
  std::vector<int64_t> lengths;  // empty: every row has all steps
};

struct LltmSequenceOutputs {
  std::vector<double> h, new_h, new_cell, cells, gates;
};
LltmSequenceOutputs lltm_sequence(const LltmSequence& shape, const LltmSequenceInputs& in);

struct LltmSequenceGradients {
  std::vector<double> input, weights, bias, old_h, old_cell;
};
// An empty gradient is zero. h, cells and gates are forward's saved outputs.
struct LltmSequenceSaved {
  std::vector<double> grad_h, grad_new_h, grad_new_cell, h, cells, gates;
};
LltmSequenceGradients lltm_sequence_backward(const LltmSequence& shape, const LltmSequenceInputs& in,
                                             const LltmSequenceSaved& saved);

}  // namespace narrows::reference
