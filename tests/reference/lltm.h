// SPDX-License-Identifier: Apache-2.0
// lltm.h -- float64 reference of lltm and lltm_backward: the formulas of docs/ops.md on dense row-major arrays.
// It shares no code with core or a backend, and no rearrangement with any kernel.
#pragma once

#include <cstdint>
#include <vector>

namespace narrows::reference {

struct Lltm {
  int64_t batch = 1, features = 1, states = 1;
};

struct LltmInputs {
  std::vector<double> input;     // (batch, features)
  std::vector<double> weights;   // (3 states, states + features)
  std::vector<double> bias;      // (3 states); empty: none
  std::vector<double> old_h;     // (batch, states)
  std::vector<double> old_cell;  // (batch, states)
};

struct LltmOutputs {
  std::vector<double> new_h, new_cell;  // (batch, states)
  std::vector<double> gates;            // (batch, 3 states), before the activations
};
LltmOutputs lltm(const Lltm& shape, const LltmInputs& in);

struct LltmGradients {
  std::vector<double> input, weights, bias, old_h, old_cell;
};
// An empty gradient is zero. Of `in`, bias and old_cell are not read. new_cell and gates are the forward's saved outputs: given
// here rather than computed, as a kernel gets them rounded.
LltmGradients lltm_backward(const Lltm& shape, const std::vector<double>& grad_h, const std::vector<double>& grad_cell,
                            const LltmInputs& in, const std::vector<double>& new_cell, const std::vector<double>& gates);

// The gradient of `gates`, (batch, 3 states), from which all others but old_cell's are sums.
std::vector<double> lltm_grad_gates(const Lltm& shape, const std::vector<double>& grad_h, const std::vector<double>& grad_cell,
                                    const std::vector<double>& new_cell, const std::vector<double>& gates);

// What follows from that gradient by sums: all but old_cell's.
LltmGradients lltm_sum_gradients(const Lltm& shape, const std::vector<double>& grad_gates, const LltmInputs& in);

double sigmoid(double z);
double sigmoid_derivative(double z);
double elu(double z);
double elu_derivative(double z);

}  // namespace narrows::reference
