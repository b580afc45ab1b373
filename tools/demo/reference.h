// SPDX-License-Identifier: Apache-2.0
// reference.h -- what the demo's results are compared with: plain float64 loops on the host that share nothing with any backend.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace narrows::tools {

// y[t] = sum over j of x[t + j - pad_left] * w[j], zero outside x; stride, dilation and groups 1.
std::vector<double> reference_conv1d(std::span<const float> x, std::span<const float> w, int64_t pad_left, int64_t pad_right);

// tanh(gain * x)
std::vector<double> reference_soft_clip(std::span<const float> x, double gain);

// One step of the LLTM for B rows, F inputs, S states: as docs/ops.md writes it.
struct LltmStep {
  int64_t batch, features, state;
  std::vector<float> input, weights, bias, old_h, old_cell;
};
struct LltmResult {
  std::vector<double> new_h, new_cell, gates;
};
LltmResult reference_lltm(const LltmStep& step);

// The gradients of sum(grad_h * new_h + grad_cell * new_cell).
struct LltmGradients {
  std::vector<double> input, weights, bias, old_h, old_cell;
};
LltmGradients reference_lltm_backward(const LltmStep& step, std::span<const float> grad_h, std::span<const float> grad_cell);

// The gradients of a linear layer y = x * w^T + b: N rows, K inputs, O outputs.
struct LinearGradients {
  std::vector<double> x, w, bias;
};
LinearGradients reference_linear_backward(std::span<const float> grad_y, std::span<const float> x, std::span<const float> w,
                                          int64_t rows);

// How well a float32 result agrees: per element |got - want| <= atol + rtol*|want|, and over all in the relative L2 norm.
// A NaN never agrees.
struct Agreement {
  std::string what;
  int64_t elements = 0;
  double largest_error = 0;   // of one element
  double relative_error = 0;  // L2 norm of the difference over L2 norm of the reference
  double atol = 0, rtol = 0, relative_limit = 0;
  bool ok = false;
};
Agreement compare(std::string what, std::span<const float> got, std::span<const double> want, double atol, double rtol);

}  // namespace narrows::tools
