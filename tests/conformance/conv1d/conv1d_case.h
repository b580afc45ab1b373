// SPDX-License-Identifier: Apache-2.0
// conv1d_case.h -- one convolution as the tests see it: sizes, dtype, rank and layouts, run through every kernel variant and
// compared with the float64 reference. It governs conv1d*.cpp.
#pragma once

#include <string>
#include <vector>

#include "conformance/bound.h"
#include "reference/conv1d.h"
#include "support/harness.h"

namespace narrows::test {

// nw_conv1d_params with defaults, so that a test names only the fields that it is about.
struct Conv1dParams {
  int64_t stride = 0, dilation = 0, groups = 0, pad_left = 0, pad_right = 0, padding_mode = 0;
  operator nw_conv1d_params() const { return {stride, dilation, groups, pad_left, pad_right, padding_mode}; }
  Blob blob() const { return Blob(nw_conv1d_params(*this)); }
};

struct Conv1dCase {
  reference::Conv1d shape = {};
  DType dtype = DType::f32;
  int rank = 3;  // of x and y: 3, or without a batch axis 2, or a plain signal 1
  bool bias = true;
  // Of x, w, bias, y. In backward a gradient lies as its tensor does, outputs without the stride 0 that inputs may have.
  Layout x_layout = {}, w_layout = {}, bias_layout = {}, y_layout = {};

  std::vector<int64_t> x_dims() const;
  std::vector<int64_t> w_dims() const;
  std::vector<int64_t> bias_dims() const;
  std::vector<int64_t> y_dims() const;
  nw_conv1d_params params() const;
  Terms terms() const;
  std::string note() const;  // the params, for failure messages
};

// Tensors of a case, filled from [-1, 1].
struct Conv1dTensors {
  Conv1dTensors(const Conv1dCase& c, Rng& rng);
  Tensor x, w, bias, y;
};

// Every variant that takes the case, the backend's own choice (which must) first.
void check_conv1d(const Conv1dCase& c, Rng& rng);

inline constexpr unsigned kGradX = 1, kGradW = 2, kGradBias = 4;
// Likewise; `wanted` has a bit for each output that is not NULL.
void check_conv1d_backward(const Conv1dCase& c, Rng& rng, unsigned wanted = kGradX | kGradW | kGradBias);

// Stride, dilation, groups, padding and rank in all combinations that make sense, at small sizes.
std::vector<Conv1dCase> conv1d_features(DType dtype);
// A shape of any kind, seeded; layouts of any kind.
Conv1dCase random_conv1d(Rng& rng, DType dtype);

}  // namespace narrows::test
