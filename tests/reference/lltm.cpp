// SPDX-License-Identifier: Apache-2.0
// lltm.cpp -- see lltm.h.
#include "lltm.h"

#include <cmath>
#include <cstddef>

namespace narrows::reference {
namespace {

std::size_t at(int64_t row, int64_t column, int64_t columns) { return static_cast<std::size_t>(row * columns + column); }

// X = [old_h, input], (batch, states + features).
std::vector<double> concatenate(const Lltm& s, const LltmInputs& in) {
  std::vector<double> x;
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t j = 0; j < s.states; ++j) x.push_back(in.old_h[at(b, j, s.states)]);
    for (int64_t j = 0; j < s.features; ++j) x.push_back(in.input[at(b, j, s.features)]);
  }
  return x;
}

double value_or_zero(const std::vector<double>& v, std::size_t i) { return v.empty() ? 0.0 : v[i]; }

// The gradient of new_cell as it reaches the sum new_cell = old_cell + c * i.
double grad_of_cell(double grad_h, double grad_cell, double new_cell, double output_gate) {
  const double t = std::tanh(new_cell);
  return (1 - t * t) * sigmoid(output_gate) * grad_h + grad_cell;
}

}  // namespace

// By the sign of z, so that exp never overflows; NaN takes the first branch and stays NaN.
double sigmoid(double z) {
  if (!(z < 0)) return 1 / (1 + std::exp(-z));
  const double e = std::exp(z);
  return e / (1 + e);
}

// e^-|z| / (1 + e^-|z|)^2: symmetric, and without the cancellation of 1 - sigmoid(z).
double sigmoid_derivative(double z) {
  const double e = std::exp(-std::fabs(z));
  return e / ((1 + e) * (1 + e));
}

double elu(double z) { return z > 0 ? z : std::expm1(z); }

// 1 at 0 from both sides, NaN for NaN.
double elu_derivative(double z) { return z > 0 ? 1 : std::exp(z); }

LltmOutputs lltm(const Lltm& s, const LltmInputs& in) {
  const int64_t depth = s.states + s.features;
  const std::vector<double> x = concatenate(s, in);
  LltmOutputs out;
  for (int64_t b = 0; b < s.batch; ++b)
    for (int64_t g = 0; g < 3 * s.states; ++g) {
      double sum = value_or_zero(in.bias, static_cast<std::size_t>(g));
      for (int64_t k = 0; k < depth; ++k) sum += x[at(b, k, depth)] * in.weights[at(g, k, depth)];
      out.gates.push_back(sum);
    }
  for (int64_t b = 0; b < s.batch; ++b)
    for (int64_t j = 0; j < s.states; ++j) {
      const double i = sigmoid(out.gates[at(b, j, 3 * s.states)]);
      const double o = sigmoid(out.gates[at(b, s.states + j, 3 * s.states)]);
      const double c = elu(out.gates[at(b, 2 * s.states + j, 3 * s.states)]);
      out.new_cell.push_back(in.old_cell[at(b, j, s.states)] + c * i);
      out.new_h.push_back(std::tanh(out.new_cell.back()) * o);
    }
  return out;
}

std::vector<double> lltm_grad_gates(const Lltm& s, const std::vector<double>& grad_h, const std::vector<double>& grad_cell,
                                    const std::vector<double>& new_cell, const std::vector<double>& gates) {
  std::vector<double> grad(gates.size());
  for (int64_t b = 0; b < s.batch; ++b)
    for (int64_t j = 0; j < s.states; ++j) {
      const std::size_t cell = at(b, j, s.states);
      const std::size_t g0 = at(b, j, 3 * s.states), g1 = at(b, s.states + j, 3 * s.states),
                        g2 = at(b, 2 * s.states + j, 3 * s.states);
      const double gh = value_or_zero(grad_h, cell);
      const double dcell = grad_of_cell(gh, value_or_zero(grad_cell, cell), new_cell[cell], gates[g1]);
      grad[g0] = elu(gates[g2]) * dcell * sigmoid_derivative(gates[g0]);
      grad[g1] = std::tanh(new_cell[cell]) * gh * sigmoid_derivative(gates[g1]);
      grad[g2] = sigmoid(gates[g0]) * dcell * elu_derivative(gates[g2]);
    }
  return grad;
}

LltmGradients lltm_sum_gradients(const Lltm& s, const std::vector<double>& dg, const LltmInputs& in) {
  const int64_t depth = s.states + s.features;
  const std::vector<double> x = concatenate(s, in);
  LltmGradients grad;
  grad.weights.assign(in.weights.size(), 0.0);
  grad.bias.assign(static_cast<std::size_t>(3 * s.states), 0.0);
  for (int64_t b = 0; b < s.batch; ++b)
    for (int64_t g = 0; g < 3 * s.states; ++g) {
      const double d = dg[at(b, g, 3 * s.states)];
      grad.bias[static_cast<std::size_t>(g)] += d;
      for (int64_t k = 0; k < depth; ++k) grad.weights[at(g, k, depth)] += d * x[at(b, k, depth)];
    }
  for (int64_t b = 0; b < s.batch; ++b)
    for (int64_t k = 0; k < depth; ++k) {
      double dx = 0;
      for (int64_t g = 0; g < 3 * s.states; ++g) dx += dg[at(b, g, 3 * s.states)] * in.weights[at(g, k, depth)];
      (k < s.states ? grad.old_h : grad.input).push_back(dx);
    }
  return grad;
}

LltmGradients lltm_backward(const Lltm& s, const std::vector<double>& grad_h, const std::vector<double>& grad_cell,
                            const LltmInputs& in, const std::vector<double>& new_cell, const std::vector<double>& gates) {
  LltmGradients grad = lltm_sum_gradients(s, lltm_grad_gates(s, grad_h, grad_cell, new_cell, gates), in);
  for (int64_t b = 0; b < s.batch; ++b)
    for (int64_t j = 0; j < s.states; ++j) {
      const std::size_t cell = at(b, j, s.states);
      grad.old_cell.push_back(grad_of_cell(value_or_zero(grad_h, cell), value_or_zero(grad_cell, cell), new_cell[cell],
                                           gates[at(b, s.states + j, 3 * s.states)]));
    }
  return grad;
}

}  // namespace narrows::reference
