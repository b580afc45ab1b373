// SPDX-License-Identifier: Apache-2.0
// lltm_sequence_case.h -- one call of lltm_sequence as the tests see it, through every kernel variant. Forward is held against the
// reference step by step: each step from the state that the backend itself gave before it, so that the bound is that of one step.
// It governs lltm_sequence*.cpp.
#pragma once

#include <narrows/ops.h>

#include <string>
#include <vector>

#include "lltm_case.h"
#include "reference/lltm_sequence.h"

namespace narrows::test {

enum class Bias { none, plain, row };

struct SequenceLayouts {
  Layout input = {}, weights = {}, state = {}, sequence = {}, gates = {}, lengths = {};  // sequence: h and cells
};

struct SequenceCase {
  reference::LltmSequence shape = {};
  DType dtype = DType::f32;
  bool batch_first = false, recompute = false, with_saved = true;
  Bias bias = Bias::plain;
  std::vector<int64_t> lengths = {};  // empty: absent
  SequenceLayouts layouts = {};

  Blob params() const;
  std::vector<int64_t> dims(int64_t columns, bool saved = false) const;  // of a sequence; saved: none with `recompute`
  std::vector<int64_t> state_dims() const { return {shape.batch, shape.states}; }
};

// A sequence's values as (steps, batch, columns), which the reference has, and back.
std::vector<double> by_step(const SequenceCase& c, const std::vector<double>& values, int64_t columns);
std::vector<double> by_dims(const SequenceCase& c, const std::vector<double>& values, int64_t columns);

struct SequenceTensors {
  SequenceTensors(const SequenceCase& c, Rng& rng);
  reference::LltmSequenceInputs inputs() const;
  std::vector<const Tensor*> forward_inputs() const;
  std::vector<Tensor*> outputs();

  SequenceCase c;
  Tensor input, weights, bias, old_h, old_cell, lengths;
  Tensor h, new_h, new_cell, cells, gates;
};

// Every variant that takes the case.
void check_sequence(const SequenceCase& c, Rng& rng);

// A bit for each tensor that is not NULL.
struct SequenceWanted {
  unsigned outputs = 31;  // d_input, d_weights, d_bias, d_old_h, d_old_cell
  unsigned grads = 7;     // grad_h, grad_new_h, grad_new_cell
};
// Backward from the outputs of the reference's forward, rounded to their dtypes.
void check_sequence_backward(const SequenceCase& c, Rng& rng, const SequenceWanted& wanted = {});

SequenceCase random_sequence(Rng& rng, DType dtype);

}  // namespace narrows::test
