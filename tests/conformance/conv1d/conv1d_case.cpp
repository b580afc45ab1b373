// SPDX-License-Identifier: Apache-2.0
// conv1d_case.cpp -- see conv1d_case.h.
#include "conv1d_case.h"

namespace narrows::test {
namespace {

using Values = std::vector<double>;

void check_gradient(const Result& result, const Tensor& got, const Values& reference, const Values& magnitude, int64_t terms,
                    Terms kind) {
  expect_within(result, got, reference, sum_bound(accumulator(got.dtype()), magnitude, terms, kind));
}

// Padding by name: what a "same", a causal and an asymmetric convolution have, and more padding than there is signal.
struct Padding {
  int64_t left, right;
};
std::vector<Padding> paddings(int64_t length, int64_t reach) {
  return {{0, 0}, {reach, 0}, {reach / 2, reach - reach / 2}, {1, 3}, {length + 5, 2}};
}

Layout random_layout(Rng& rng, int ndim, DType dtype, bool input) {
  std::vector<Layout> choices = all_layouts(ndim, dtype);
  if (input) choices.push_back(Layout::broadcast({rng.integer(0, 1) == 1, rng.integer(0, 1) == 1, rng.integer(0, 1) == 1}));
  return choices[static_cast<size_t>(rng.integer(0, static_cast<int64_t>(choices.size()) - 1))];
}

}  // namespace

std::vector<int64_t> Conv1dCase::x_dims() const {
  const std::vector<int64_t> dims{shape.batch, shape.channels, shape.length};
  return {dims.end() - rank, dims.end()};
}
std::vector<int64_t> Conv1dCase::w_dims() const {
  if (rank == 1) return {shape.taps};
  return {shape.filters, shape.group_channels(), shape.taps};
}
std::vector<int64_t> Conv1dCase::bias_dims() const { return {shape.filters}; }
std::vector<int64_t> Conv1dCase::y_dims() const {
  const std::vector<int64_t> dims{shape.batch, shape.filters, shape.outputs()};
  return {dims.end() - rank, dims.end()};
}
nw_conv1d_params Conv1dCase::params() const {
  return {shape.stride, shape.dilation, shape.groups, shape.pad_left, shape.pad_right, NW_PADDING_ZEROS};
}
Terms Conv1dCase::terms() const {
  return has_stride_0(x_layout) || has_stride_0(w_layout) || has_stride_0(y_layout) ? Terms::equal : Terms::independent;
}
std::string Conv1dCase::note() const {
  return "stride=" + std::to_string(shape.stride) + " dilation=" + std::to_string(shape.dilation) +
         " groups=" + std::to_string(shape.groups) + " pad=" + std::to_string(shape.pad_left) + "," +
         std::to_string(shape.pad_right);
}

Conv1dTensors::Conv1dTensors(const Conv1dCase& c, Rng& rng)
    : x(c.dtype, c.x_dims(), c.x_layout), w(c.dtype, c.w_dims(), c.w_layout), bias(c.dtype, c.bias_dims(), c.bias_layout),
      y(c.dtype, c.y_dims(), c.y_layout) {
  x.fill_uniform(rng, -1, 1);
  w.fill_uniform(rng, -1, 1);
  bias.fill_uniform(rng, -1, 1);
}

void check_conv1d(const Conv1dCase& c, Rng& rng) {
  expect_offered("conv1d");
  Conv1dTensors t(c, rng);
  const Values x = t.x.values(), w = t.w.values(), bias = c.bias ? t.bias.values() : Values{};
  const Values reference = reference::conv1d(c.shape, x, w, bias);
  const Values magnitude = reference::conv1d(c.shape, absolute(x), absolute(w), absolute(bias));
  const Values bound = sum_bound(accumulator(c.dtype), magnitude, c.shape.group_channels() * c.shape.taps + 1, c.terms());
  for (const char* kernel : kernels("conv1d")) {
    const Result result = run("conv1d", {&t.x, &t.w, c.bias ? &t.bias : nullptr}, {&t.y}, c.params(), kernel, 0, c.note());
    if (!result.was_declined()) expect_within(result, t.y, reference, bound);
  }
}

void check_conv1d_backward(const Conv1dCase& c, Rng& rng, unsigned wanted) {
  expect_offered("conv1d_backward");
  Conv1dTensors t(c, rng);
  t.y.fill_uniform(rng, -1, 1);  // plays grad_y
  Tensor gx(c.dtype, c.x_dims(), without_broadcast(c.x_layout)), gw(c.dtype, c.w_dims(), without_broadcast(c.w_layout)),
      gbias(c.dtype, c.bias_dims(), without_broadcast(c.bias_layout));
  const Values gy = t.y.values(), x = t.x.values(), w = t.w.values();
  const auto grad = reference::conv1d_backward(c.shape, gy, x, w);
  const auto magnitude = reference::conv1d_backward(c.shape, absolute(gy), absolute(x), absolute(w));
  for (const char* kernel : kernels("conv1d_backward")) {
    const Result result =
        run("conv1d_backward", {&t.y, &t.x, &t.w, c.bias ? &t.bias : nullptr, nullptr},
            {wanted & kGradX ? &gx : nullptr, wanted & kGradW ? &gw : nullptr, wanted & kGradBias ? &gbias : nullptr}, c.params(),
            kernel, 0, c.note());
    if (result.was_declined()) continue;
    const int64_t positions = c.shape.batch * c.shape.outputs();
    if (wanted & kGradX) check_gradient(result, gx, grad.x, magnitude.x, c.shape.group_filters() * c.shape.taps, c.terms());
    if (wanted & kGradW) check_gradient(result, gw, grad.w, magnitude.w, positions, c.terms());
    if (wanted & kGradBias) check_gradient(result, gbias, grad.bias, magnitude.bias, positions, c.terms());
  }
}

std::vector<Conv1dCase> conv1d_features(DType dtype) {
  struct Grouping {
    int64_t channels, filters, groups;
  };
  // Dense, two groups, depthwise, depthwise with two filters for each channel; a signal has one channel.
  const Grouping many[] = {{3, 5, 1}, {6, 4, 2}, {5, 5, 5}, {3, 6, 3}};
  std::vector<Conv1dCase> cases;
  for (int rank = 1; rank <= 3; ++rank)
    for (const Grouping& g : many)
      for (int64_t stride = 1; stride <= 4; ++stride)
        for (int64_t dilation = 1; dilation <= 3; ++dilation) {
          if (rank == 1 && &g != many) continue;
          reference::Conv1d s;
          s.batch = rank == 3 ? 2 : 1;
          if (rank > 1) s.channels = g.channels, s.filters = g.filters, s.groups = g.groups;
          s.length = 29, s.taps = 4, s.stride = stride, s.dilation = dilation;
          for (const Padding p : paddings(s.length, dilation * (s.taps - 1))) {
            s.pad_left = p.left, s.pad_right = p.right;
            Conv1dCase c{.shape = s, .dtype = dtype, .rank = rank};
            c.bias = (cases.size() & 1) != 0;
            cases.push_back(c);
          }
        }
  return cases;
}

Conv1dCase random_conv1d(Rng& rng, DType dtype) {
  reference::Conv1d s;
  const int rank = static_cast<int>(rng.integer(1, 3));
  if (rank == 3) s.batch = rng.integer(0, 3);
  if (rank > 1) {
    s.groups = rng.integer(1, 4);
    s.channels = s.groups * rng.integer(1, rng.integer(1, 12));
    s.filters = s.groups * rng.integer(1, rng.integer(1, 12));
  }
  s.length = rng.integer(1, rng.integer(1, 300));
  s.taps = rng.integer(1, rng.integer(1, 40));
  s.stride = rng.integer(1, 5);
  s.dilation = rng.integer(1, 4);
  s.pad_left = rng.integer(0, rng.integer(0, 40));
  s.pad_right = rng.integer(0, 10);
  const int64_t missing = s.dilation * (s.taps - 1) + 1 - s.length - s.pad_left - s.pad_right;
  if (missing > 0) s.pad_right += missing;
  Conv1dCase c{.shape = s, .dtype = dtype, .rank = rank};
  c.bias = rng.integer(0, 1) == 1;
  c.x_layout = random_layout(rng, rank, dtype, true);
  c.w_layout = random_layout(rng, rank == 1 ? 1 : 3, dtype, true);
  c.bias_layout = random_layout(rng, 1, dtype, true);
  c.y_layout = random_layout(rng, rank, dtype, false);
  return c;
}

}  // namespace narrows::test
