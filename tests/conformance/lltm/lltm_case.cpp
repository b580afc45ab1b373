// SPDX-License-Identifier: Apache-2.0
// lltm_case.cpp -- see lltm_case.h.
#include "lltm_case.h"

#include <cmath>

namespace narrows::test {
namespace {

using Values = std::vector<double>;

size_t index(int64_t row, int64_t column, int64_t columns) { return static_cast<size_t>(row * columns + column); }

reference::LltmInputs absolute(const reference::LltmInputs& in) {
  return {test::absolute(in.input), test::absolute(in.weights), test::absolute(in.bias), test::absolute(in.old_h),
          test::absolute(in.old_cell)};
}

struct Saved {
  Values grad_h, grad_cell, new_cell, gates;  // what backward reads besides the inputs, as rounded
};

// Of the gradient of `gates` and of old_cell. 1 - tanh^2, sigma' = s(1 - s) and elu' are good to a few epsilon of 1, not of
// themselves: they are differences of numbers near 1 where they are small. All else is products of these.
void grad_gates_bounds(const LltmCase& c, const Saved& saved, Values* gates, Values* old_cell) {
  const double f = 32 * static_cast<double>(epsilon(c.gates_dtype()));
  gates->resize(saved.gates.size());
  const int64_t s = c.shape.states;
  for (int64_t b = 0; b < c.shape.batch; ++b)
    for (int64_t j = 0; j < s; ++j) {
      const size_t cell = index(b, j, s), g2 = index(b, 2 * s + j, 3 * s);
      const double upstream = (saved.grad_h.empty() ? 0 : std::fabs(saved.grad_h[cell])) +
                              (saved.grad_cell.empty() ? 0 : std::fabs(saved.grad_cell[cell]));
      (*gates)[index(b, j, 3 * s)] = f * upstream * std::fabs(reference::elu(saved.gates[g2]));
      (*gates)[index(b, s + j, 3 * s)] = (*gates)[g2] = f * upstream;
      old_cell->push_back(f * upstream);
    }
}

// The bound of each gradient: the error of the gates' gradient carried through the sums, and the rounding of the sums.
reference::LltmGradients backward_bounds(const LltmCase& c, const reference::LltmInputs& in, const Saved& saved) {
  const DType acc = c.gates_dtype();
  const Values dg = reference::lltm_grad_gates(c.shape, saved.grad_h, saved.grad_cell, saved.new_cell, saved.gates);
  Values dg_bound, old_cell_bound;
  grad_gates_bounds(c, saved, &dg_bound, &old_cell_bound);
  const auto carried = reference::lltm_sum_gradients(c.shape, dg_bound, absolute(in));
  const auto magnitude = reference::lltm_sum_gradients(c.shape, test::absolute(dg), absolute(in));
  const auto sum = [&](Values a, const Values& m, int64_t terms) {
    const Values rounding = sum_bound(acc, m, terms, c.terms());
    for (size_t i = 0; i < a.size(); ++i) a[i] += rounding[i];
    return a;
  };
  return {sum(carried.input, magnitude.input, 3 * c.shape.states), sum(carried.weights, magnitude.weights, c.shape.batch),
          sum(carried.bias, magnitude.bias, c.shape.batch), sum(carried.old_h, magnitude.old_h, 3 * c.shape.states),
          old_cell_bound};
}

}  // namespace

// The gates are sums of S + F products and the bias. From there on errors go through activations whose slope is at most 1/4
// (sigmoid) or 1 (elu, tanh), each of them good to `f`: 8 epsilon, which two operations around a function of 4 ulp stay below.
LltmForwardBounds lltm_forward_bounds(const LltmCase& c, const reference::LltmInputs& in, const reference::LltmOutputs& out) {
  const DType acc = c.gates_dtype();
  const double f = 8 * static_cast<double>(epsilon(acc));
  LltmForwardBounds bounds;
  bounds.gates = sum_bound(acc, reference::lltm(c.shape, absolute(in)).gates, c.depth() + 1, c.terms());
  for (int64_t b = 0; b < c.shape.batch; ++b)
    for (int64_t j = 0; j < c.shape.states; ++j) {
      const int64_t s = c.shape.states;
      const size_t cell = index(b, j, s), g0 = index(b, j, 3 * s), g1 = index(b, s + j, 3 * s), g2 = index(b, 2 * s + j, 3 * s);
      const double i = reference::sigmoid(out.gates[g0]), o = reference::sigmoid(out.gates[g1]),
                   candidate = reference::elu(out.gates[g2]);
      const double i_bound = bounds.gates[g0] / 4 + f * i, o_bound = bounds.gates[g1] / 4 + f * o;
      const double candidate_bound = bounds.gates[g2] + f * std::fabs(candidate);
      const double cell_bound =
          std::fabs(candidate) * i_bound + i * candidate_bound + f * (std::fabs(in.old_cell[cell]) + std::fabs(candidate * i));
      const double t = std::fabs(std::tanh(out.new_cell[cell]));
      bounds.new_cell.push_back(cell_bound);
      bounds.new_h.push_back(o * (cell_bound + f * t) + t * o_bound);
    }
  return bounds;
}

std::vector<int64_t> LltmCase::bias_dims() const {
  if (bias_row) return {1, 3 * shape.states};
  return {3 * shape.states};
}

Terms LltmCase::terms() const {
  for (const Layout* layout :
       {&layouts.input, &layouts.weights, &layouts.old_h, &layouts.old_cell, &layouts.new_h, &layouts.new_cell})
    if (has_stride_0(*layout)) return Terms::equal;
  return Terms::independent;
}

LltmTensors::LltmTensors(const LltmCase& c, Rng& rng)
    : input(c.dtype, c.input_dims(), c.layouts.input), weights(c.dtype, c.weights_dims(), c.layouts.weights),
      bias(c.dtype, c.bias_dims(), c.layouts.bias), old_h(c.dtype, c.state_dims(), c.layouts.old_h),
      old_cell(c.dtype, c.state_dims(), c.layouts.old_cell), new_h(c.dtype, c.state_dims(), without_broadcast(c.layouts.new_h)),
      new_cell(c.dtype, c.state_dims(), without_broadcast(c.layouts.new_cell)),
      gates(c.gates_dtype(), c.gates_dims(), without_broadcast(c.layouts.gates)) {
  const double scale = 4 / std::sqrt(static_cast<double>(c.depth()) + 1);
  for (Tensor* t : {&input, &bias, &old_h, &old_cell}) t->fill_uniform(rng, -1, 1);
  weights.fill_uniform(rng, -scale, scale);
}

reference::LltmInputs LltmTensors::inputs() const {
  return {input.values(), weights.values(), bias.values(), old_h.values(), old_cell.values()};
}

LltmGradTensors::LltmGradTensors(const LltmCase& c, Rng& rng)
    : grad_h(c.dtype, c.state_dims(), c.layouts.new_h), grad_cell(c.dtype, c.state_dims(), c.layouts.new_cell),
      input(c.dtype, c.input_dims(), without_broadcast(c.layouts.input)),
      weights(c.dtype, c.weights_dims(), without_broadcast(c.layouts.weights)),
      bias(c.dtype, c.bias_dims(), without_broadcast(c.layouts.bias)),
      old_h(c.dtype, c.state_dims(), without_broadcast(c.layouts.old_h)),
      old_cell(c.dtype, c.state_dims(), without_broadcast(c.layouts.old_cell)) {
  grad_h.fill_uniform(rng, -1, 1);
  grad_cell.fill_uniform(rng, -1, 1);
}

void check_lltm(const LltmCase& c, Rng& rng) {
  expect_offered("lltm");
  LltmTensors t(c, rng);
  const reference::LltmInputs in = t.inputs();
  const reference::LltmOutputs expected = reference::lltm(c.shape, in);
  const LltmForwardBounds bounds = lltm_forward_bounds(c, in, expected);
  for (const char* kernel : kernels("lltm")) {
    const Result result = run("lltm", t.forward_inputs(), {&t.new_h, &t.new_cell, c.with_gates ? &t.gates : nullptr}, {}, kernel);
    if (result.was_declined()) continue;
    expect_within(result, t.new_h, expected.new_h, bounds.new_h);
    expect_within(result, t.new_cell, expected.new_cell, bounds.new_cell);
    if (c.with_gates) expect_within(result, t.gates, expected.gates, bounds.gates);
  }
}

void check_lltm_backward(const LltmCase& c, Rng& rng, const LltmWanted& wanted) {
  expect_offered("lltm_backward");
  LltmTensors t(c, rng);
  LltmGradTensors g(c, rng);
  const reference::LltmInputs in = t.inputs();
  const reference::LltmOutputs forward = reference::lltm(c.shape, in);
  t.new_cell.set(forward.new_cell);
  t.gates.set(forward.gates);
  t.new_h.fill_bits(rng);  // not read
  const Saved saved{wanted.grad_h ? g.grad_h.values() : Values{}, wanted.grad_cell ? g.grad_cell.values() : Values{},
                    t.new_cell.values(), t.gates.values()};
  const auto expected = reference::lltm_backward(c.shape, saved.grad_h, saved.grad_cell, in, saved.new_cell, saved.gates);
  const auto bounds = backward_bounds(c, in, saved);
  const bool bias = wanted.unread || c.bias_row;  // d_bias is (1,3S) only if bias is there and is so
  const std::vector<const Tensor*> inputs{wanted.grad_h ? &g.grad_h : nullptr,
                                          wanted.grad_cell ? &g.grad_cell : nullptr,
                                          &t.input,
                                          &t.weights,
                                          bias ? &t.bias : nullptr,
                                          &t.old_h,
                                          wanted.unread ? &t.old_cell : nullptr,
                                          wanted.unread ? &t.new_h : nullptr,
                                          &t.new_cell,
                                          &t.gates};
  std::vector<Tensor*> outputs = g.all();
  for (size_t i = 0; i < outputs.size(); ++i)
    if ((wanted.outputs >> i & 1) == 0) outputs[i] = nullptr;
  const Values* const references[] = {&expected.input, &expected.weights, &expected.bias, &expected.old_h, &expected.old_cell};
  const Values* const limits[] = {&bounds.input, &bounds.weights, &bounds.bias, &bounds.old_h, &bounds.old_cell};
  for (const char* kernel : kernels("lltm_backward")) {
    const Result result = run("lltm_backward", inputs, outputs, {}, kernel);
    if (result.was_declined()) continue;
    for (size_t i = 0; i < outputs.size(); ++i)
      if (outputs[i] != nullptr) expect_within(result, *outputs[i], *references[i], *limits[i]);
  }
}

LltmCase random_lltm(Rng& rng, DType dtype) {
  LltmCase c{.shape = {rng.integer(0, rng.integer(1, 40)), rng.integer(1, rng.integer(1, 50)), rng.integer(1, rng.integer(1, 50))},
             .dtype = dtype};
  c.bias_row = rng.integer(0, 1) == 1;
  c.with_gates = rng.integer(0, 2) != 0;
  const auto pick = [&](DType of, int ndim, bool may_broadcast) {
    std::vector<Layout> choices = all_layouts(ndim, of);
    if (may_broadcast) choices.push_back(Layout::broadcast({rng.integer(0, 1) == 1, rng.integer(0, 1) == 1}));
    return choices[static_cast<size_t>(rng.integer(0, static_cast<int64_t>(choices.size()) - 1))];
  };
  LltmLayouts& l = c.layouts;
  for (Layout* layout : {&l.input, &l.weights, &l.old_h, &l.old_cell}) *layout = pick(dtype, 2, true);
  l.bias = pick(dtype, c.bias_row ? 2 : 1, true);
  for (Layout* layout : {&l.new_h, &l.new_cell}) *layout = pick(dtype, 2, false);
  l.gates = pick(c.gates_dtype(), 2, false);
  return c;
}

LltmLayouts everywhere(const Layout& layout) { return {layout, layout, {}, layout, layout, layout, layout, layout}; }

}  // namespace narrows::test
