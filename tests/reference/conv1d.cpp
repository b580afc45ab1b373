// SPDX-License-Identifier: Apache-2.0
// conv1d.cpp -- see conv1d.h.
#include "conv1d.h"

#include <cstddef>

namespace narrows::reference {
namespace {

// The number of positions at which the dilated filter fits, found by trying them one after the other: no formula that a
// kernel or core could share a mistake with.
int64_t count_positions(const Conv1d& s) {
  const int64_t padded = s.pad_left + s.length + s.pad_right;
  int64_t count = 0;
  for (int64_t first = 0; first + (s.taps - 1) * s.dilation < padded; first += s.stride) ++count;
  return count;
}

// Calls visit(y_index, x_index, w_index) for every product of the sum; taps that fall into the padding have none.
template <class Visit>
void for_each_product(const Conv1d& s, Visit visit) {
  const int64_t outputs = s.outputs();
  for (int64_t n = 0; n < s.batch; ++n)
    for (int64_t o = 0; o < s.filters; ++o)
      for (int64_t t = 0; t < outputs; ++t)
        for (int64_t c = 0; c < s.group_channels(); ++c)
          for (int64_t j = 0; j < s.taps; ++j) {
            const int64_t channel = o / s.group_filters() * s.group_channels() + c;
            const int64_t time = t * s.stride + j * s.dilation - s.pad_left;
            if (time < 0 || time >= s.length) continue;
            visit(static_cast<std::size_t>((n * s.filters + o) * outputs + t),
                  static_cast<std::size_t>((n * s.channels + channel) * s.length + time),
                  static_cast<std::size_t>((o * s.group_channels() + c) * s.taps + j));
          }
}

}  // namespace

int64_t Conv1d::outputs() const { return count_positions(*this); }

std::vector<double> conv1d(const Conv1d& s, const std::vector<double>& x, const std::vector<double>& w,
                           const std::vector<double>& bias) {
  std::vector<double> y(static_cast<std::size_t>(s.batch * s.filters * s.outputs()), 0.0);
  for_each_product(s, [&](std::size_t yi, std::size_t xi, std::size_t wi) { y[yi] += x[xi] * w[wi]; });
  if (bias.empty()) return y;
  const auto outputs = static_cast<std::size_t>(s.outputs());
  for (std::size_t i = 0; i < y.size(); ++i) y[i] += bias[i / outputs % static_cast<std::size_t>(s.filters)];
  return y;
}

Conv1dGradients conv1d_backward(const Conv1d& s, const std::vector<double>& grad_y, const std::vector<double>& x,
                                const std::vector<double>& w) {
  Conv1dGradients grad{std::vector<double>(x.size(), 0.0), std::vector<double>(w.size(), 0.0),
                       std::vector<double>(static_cast<std::size_t>(s.filters), 0.0)};
  for_each_product(s, [&](std::size_t yi, std::size_t xi, std::size_t wi) {
    grad.x[xi] += grad_y[yi] * w[wi];
    grad.w[wi] += grad_y[yi] * x[xi];
  });
  const auto outputs = static_cast<std::size_t>(s.outputs());
  for (std::size_t i = 0; i < grad_y.size(); ++i) grad.bias[i / outputs % static_cast<std::size_t>(s.filters)] += grad_y[i];
  return grad;
}

}  // namespace narrows::reference
