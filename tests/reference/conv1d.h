// SPDX-License-Identifier: Apache-2.0
// conv1d.h -- float64 reference of conv1d and conv1d_backward: the sums of docs/ops.md, term by term, on dense row-major
// arrays. It shares no code with core or a backend, and no rearrangement with any kernel.
#pragma once

#include <cstdint>
#include <vector>

namespace narrows::reference {

// Sizes and params of one convolution. Ranks 2 and 1 are batch = 1 and batch = channels = filters = 1.
struct Conv1d {
  int64_t batch = 1, channels = 1, length = 1;  // x (batch, channels, length)
  int64_t filters = 1, taps = 1;                // w (filters, channels / groups, taps), bias (filters)
  int64_t stride = 1, dilation = 1, groups = 1, pad_left = 0, pad_right = 0;

  int64_t outputs() const;  // elements of y along time; below 1: there is no such convolution
  int64_t group_channels() const { return channels / groups; }
  int64_t group_filters() const { return filters / groups; }
};

// y (batch, filters, outputs). An empty bias: none.
std::vector<double> conv1d(const Conv1d& shape, const std::vector<double>& x, const std::vector<double>& w,
                           const std::vector<double>& bias = {});

struct Conv1dGradients {
  std::vector<double> x, w, bias;
};
Conv1dGradients conv1d_backward(const Conv1d& shape, const std::vector<double>& grad_y, const std::vector<double>& x,
                                const std::vector<double>& w);

}  // namespace narrows::reference
