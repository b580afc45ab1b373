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
  const int64_t S = s.state, K = S + s.features;
  LltmResult r{std::vector<double>(s.batch * S), std::vector<double>(s.batch * S), std::vector<double>(s.batch * 3 * S)};
  for (int64_t b = 0; b < s.batch; ++b) {
    double* gate = &r.gates[b * 3 * S];
    for (int64_t row = 0; row < 3 * S; ++row) {
      gate[row] = s.bias[row];
      for (int64_t k = 0; k < K; ++k) gate[row] += joined(s, b, k) * s.weights[row * K + k];
    }
    for (int64_t j = 0; j < S; ++j) {
      const double cell = s.old_cell[b * S + j] + elu(gate[2 * S + j]) * sigmoid(gate[j]);
      r.new_cell[b * S + j] = cell;
      r.new_h[b * S + j] = std::tanh(cell) * sigmoid(gate[S + j]);
    }
  }
  return r;
}

LltmGradients reference_lltm_backward(const LltmStep& s, std::span<const float> grad_h, std::span<const float> grad_cell) {
  const int64_t B = s.batch, S = s.state, F = s.features, K = S + F;
  const LltmResult forward = reference_lltm(s);
  LltmGradients g{std::vector<double>(B * F), std::vector<double>(3 * S * K), std::vector<double>(3 * S),
                  std::vector<double>(B * S), std::vector<double>(B * S)};
  std::vector<double> d_gates(3 * S);
  for (int64_t b = 0; b < B; ++b) {
    const double* gate = &forward.gates[b * 3 * S];
    for (int64_t j = 0; j < S; ++j) {
      const double i = sigmoid(gate[j]), o = sigmoid(gate[S + j]), c = elu(gate[2 * S + j]);
      const double t = std::tanh(forward.new_cell[b * S + j]);
      const double d_cell = (1 - t * t) * o * grad_h[b * S + j] + grad_cell[b * S + j];
      d_gates[j] = c * d_cell * i * (1 - i);
      d_gates[S + j] = t * grad_h[b * S + j] * o * (1 - o);
      d_gates[2 * S + j] = i * d_cell * elu_slope(gate[2 * S + j]);
      g.old_cell[b * S + j] = d_cell;
    }
    for (int64_t row = 0; row < 3 * S; ++row) {
      g.bias[row] += d_gates[row];
      for (int64_t k = 0; k < K; ++k) {
        g.weights[row * K + k] += d_gates[row] * joined(s, b, k);
        const double d_joined = d_gates[row] * s.weights[row * K + k];
        (k < S ? g.old_h[b * S + k] : g.input[b * F + k - S]) += d_joined;
      }
    }
  }
  return g;
}

LinearGradients reference_linear_backward(std::span<const float> grad_y, std::span<const float> x, std::span<const float> w,
                                          int64_t rows) {
  const auto K = static_cast<int64_t>(x.size()) / rows, O = static_cast<int64_t>(grad_y.size()) / rows;
  LinearGradients g{std::vector<double>(x.size()), std::vector<double>(w.size()), std::vector<double>(O)};
  for (int64_t n = 0; n < rows; ++n) {
    for (int64_t o = 0; o < O; ++o) {
      const double d = grad_y[n * O + o];
      g.bias[o] += d;
      for (int64_t k = 0; k < K; ++k) {
        g.x[n * K + k] += d * w[o * K + k];
        g.w[o * K + k] += d * x[n * K + k];
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
