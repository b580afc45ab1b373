// SPDX-License-Identifier: Apache-2.0
// reference.cpp -- the float64 loops. See reference.h.
#include "reference.h"

#include <algorithm>
#include <cmath>

namespace narrows::tools {
namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double elu(double x) { return x > 0 ? x : std::expm1(x); }
double elu_slope(double x) { return x > 0 ? 1 : std::exp(x); }

// Column k of row b of X = [old_h, input].
double joined(const LltmStep& s, int64_t b, int64_t k) {
  return k < s.state ? s.old_h[b * s.state + k] : s.input[b * s.features + k - s.state];
}

}  // namespace

std::vector<double> reference_conv1d(std::span<const float> x, std::span<const float> w, int64_t pad_left, int64_t pad_right) {
  const auto length = static_cast<int64_t>(x.size()), taps = static_cast<int64_t>(w.size());
  std::vector<double> y(static_cast<size_t>(std::max<int64_t>(length + pad_left + pad_right - taps + 1, 0)));
  for (int64_t t = 0; t < static_cast<int64_t>(y.size()); ++t) {
    const int64_t first = std::max<int64_t>(pad_left - t, 0), last = std::min(taps, length + pad_left - t);
    double sum = 0;
    for (int64_t j = first; j < last; ++j) sum += double{x[t + j - pad_left]} * w[j];
    y[t] = sum;
  }
  return y;
}

std::vector<double> reference_soft_clip(std::span<const float> x, double gain) {
  std::vector<double> y(x.size());
  std::transform(x.begin(), x.end(), y.begin(), [gain](double value) { return std::tanh(gain * value); });
  return y;
}

LltmResult reference_lltm(const LltmStep& s) {
  const int64_t states = s.state, columns = states + s.features;
  LltmResult r{std::vector<double>(s.batch * states), std::vector<double>(s.batch * states),
               std::vector<double>(s.batch * 3 * states)};
  for (int64_t b = 0; b < s.batch; ++b) {
    double* gate = &r.gates[b * 3 * states];
    for (int64_t row = 0; row < 3 * states; ++row) {
      gate[row] = s.bias[row];
      for (int64_t k = 0; k < columns; ++k) gate[row] += joined(s, b, k) * s.weights[row * columns + k];
    }
    for (int64_t j = 0; j < states; ++j) {
      const double cell = s.old_cell[b * states + j] + elu(gate[2 * states + j]) * sigmoid(gate[j]);
      r.new_cell[b * states + j] = cell;
      r.new_h[b * states + j] = std::tanh(cell) * sigmoid(gate[states + j]);
    }
  }
  return r;
}

LltmGradients reference_lltm_backward(const LltmStep& s, std::span<const float> grad_h, std::span<const float> grad_cell) {
  const int64_t batch = s.batch, states = s.state, features = s.features, columns = states + features;
  const LltmResult forward = reference_lltm(s);
  LltmGradients g{std::vector<double>(batch * features), std::vector<double>(3 * states * columns), std::vector<double>(3 * states),
                  std::vector<double>(batch * states), std::vector<double>(batch * states)};
  std::vector<double> d_gates(3 * states);
  for (int64_t b = 0; b < batch; ++b) {
    const double* gate = &forward.gates[b * 3 * states];
    for (int64_t j = 0; j < states; ++j) {
      const double i = sigmoid(gate[j]), o = sigmoid(gate[states + j]), c = elu(gate[2 * states + j]);
      const double t = std::tanh(forward.new_cell[b * states + j]);
      const double d_cell = (1 - t * t) * o * grad_h[b * states + j] + grad_cell[b * states + j];
      d_gates[j] = c * d_cell * i * (1 - i);
      d_gates[states + j] = t * grad_h[b * states + j] * o * (1 - o);
      d_gates[2 * states + j] = i * d_cell * elu_slope(gate[2 * states + j]);
      g.old_cell[b * states + j] = d_cell;
    }
    for (int64_t row = 0; row < 3 * states; ++row) {
      g.bias[row] += d_gates[row];
      for (int64_t k = 0; k < columns; ++k) {
        g.weights[row * columns + k] += d_gates[row] * joined(s, b, k);
        const double d_joined = d_gates[row] * s.weights[row * columns + k];
        (k < states ? g.old_h[b * states + k] : g.input[b * features + k - states]) += d_joined;
      }
    }
  }
  return g;
}

LinearGradients reference_linear_backward(std::span<const float> grad_y, std::span<const float> x, std::span<const float> w,
                                          int64_t rows) {
  const auto inputs = static_cast<int64_t>(x.size()) / rows, outputs = static_cast<int64_t>(grad_y.size()) / rows;
  LinearGradients g{std::vector<double>(x.size()), std::vector<double>(w.size()), std::vector<double>(outputs)};
  for (int64_t n = 0; n < rows; ++n) {
    for (int64_t o = 0; o < outputs; ++o) {
      const double d = grad_y[n * outputs + o];
      g.bias[o] += d;
      for (int64_t k = 0; k < inputs; ++k) {
        g.x[n * inputs + k] += d * w[o * inputs + k];
        g.w[o * inputs + k] += d * x[n * inputs + k];
      }
    }
  }
  return g;
}

Agreement compare(std::string what, std::span<const float> got, std::span<const double> want, double atol, double rtol) {
  Agreement a{
      std::move(what), static_cast<int64_t>(want.size()), 0, 0, atol, rtol, rtol, got.size() == want.size() && !want.empty()};
  double difference = 0, norm = 0;
  for (size_t i = 0; i < std::min(got.size(), want.size()); ++i) {
    const double error = std::abs(got[i] - want[i]);
    if (!std::isnan(a.largest_error) && !(error <= a.largest_error)) a.largest_error = error;  // a NaN gets in, and stays
    if (!(error <= atol + rtol * std::abs(want[i]))) a.ok = false;
    difference += error * error;
    norm += want[i] * want[i];
  }
  a.relative_error = std::sqrt(difference / norm);
  if (norm == 0 && difference == 0) a.relative_error = 0;
  if (!(a.relative_error <= a.relative_limit)) a.ok = false;
  return a;
}

}  // namespace narrows::tools
