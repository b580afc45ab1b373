// SPDX-License-Identifier: Apache-2.0
// lltm_case.h -- one cell update as the tests see it: sizes, dtype, forms of bias and layouts, run through every kernel variant
// and compared with the float64 reference. It governs lltm*.cpp.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "conformance/bound.h"
#include "reference/lltm.h"
#include "support/harness.h"

namespace narrows::test {

// Of the operands and results of both ops, by the name of the tensor that a gradient belongs to.
struct LltmLayouts {
  Layout input = {}, weights = {}, bias = {}, old_h = {}, old_cell = {}, new_h = {}, new_cell = {}, gates = {};
};

struct LltmCase {
  reference::Lltm shape = {};
  DType dtype = DType::f32;
  bool bias_row = false;   // bias (1,3S) instead of (3S)
  bool with_gates = true;  // false: not training, gates NULL
  LltmLayouts layouts = {};

  DType gates_dtype() const { return accumulator(dtype); }
  Terms terms() const;
  int64_t depth() const { return shape.states + shape.features; }
  std::vector<int64_t> input_dims() const { return {shape.batch, shape.features}; }
  std::vector<int64_t> weights_dims() const { return {3 * shape.states, depth()}; }
  std::vector<int64_t> bias_dims() const;
  std::vector<int64_t> state_dims() const { return {shape.batch, shape.states}; }
  std::vector<int64_t> gates_dims() const { return {shape.batch, 3 * shape.states}; }
};

// Inputs and outputs of a case. The inputs are filled: weights such that the gates are of size 1, so that every branch is taken.
struct LltmTensors {
  LltmTensors(const LltmCase& c, Rng& rng);
  reference::LltmInputs inputs() const;
  std::vector<const Tensor*> forward_inputs() const { return {&input, &weights, &bias, &old_h, &old_cell}; }
  Tensor input, weights, bias, old_h, old_cell, new_h, new_cell, gates;
};

// Gradients of the outputs, and tensors for the gradients of the inputs.
struct LltmGradTensors {
  LltmGradTensors(const LltmCase& c, Rng& rng);
  std::vector<Tensor*> all() { return {&input, &weights, &bias, &old_h, &old_cell}; }
  Tensor grad_h, grad_cell, input, weights, bias, old_h, old_cell;
};

// What rounding may do to each output before it is rounded to its own dtype.
struct LltmForwardBounds {
  std::vector<double> gates, new_cell, new_h;
};
LltmForwardBounds lltm_forward_bounds(const LltmCase& c, const reference::LltmInputs& in, const reference::LltmOutputs& out);

// Every variant that takes the case, the backend's own choice (which must) first.
void check_lltm(const LltmCase& c, Rng& rng);

// A bit for each tensor that is not NULL.
struct LltmWanted {
  unsigned outputs = 31;  // d_input, d_weights, d_bias, d_old_h, d_old_cell
  bool grad_h = true, grad_cell = true;
  bool unread = true;  // bias, old_cell and new_h are given, which backward does not read
};
// Backward from the outputs of the reference's forward, rounded to their dtypes.
void check_lltm_backward(const LltmCase& c, Rng& rng, const LltmWanted& wanted = {});

// A size of any kind, seeded; layouts of any kind.
LltmCase random_lltm(Rng& rng, DType dtype);
// The given layout for every tensor of two axes that may have it.
LltmLayouts everywhere(const Layout& layout);

}  // namespace narrows::test
