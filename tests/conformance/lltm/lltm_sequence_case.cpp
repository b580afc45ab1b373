// SPDX-License-Identifier: Apache-2.0
// lltm_sequence_case.cpp -- see lltm_sequence_case.h.
#include "lltm_sequence_case.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>

namespace narrows::test {
namespace {

using Values = std::vector<double>;

std::vector<int64_t> bias_dims(const SequenceCase& c) {
  if (c.bias == Bias::row) return {1, 3 * c.shape.states};
  return {3 * c.shape.states};
}

int64_t length_of(const SequenceCase& c, int64_t b) {
  return c.lengths.empty() ? c.shape.steps : std::clamp<int64_t>(c.lengths[static_cast<size_t>(b)], 0, c.shape.steps);
}

// Step `time` of a sequence (steps, batch, columns).
Values step_of(const Values& sequence, int64_t time, int64_t size) {
  return {sequence.begin() + time * size, sequence.begin() + (time + 1) * size};
}

// What each step has to give from the state before it, and what rounding may do to that.
struct Expected {
  Values h, cells, gates, h_bound, cells_bound, gates_bound, new_h, new_cell;
};

Expected expected_steps(const SequenceCase& c, const reference::LltmSequenceInputs& in, const Values& h, const Values& cells) {
  const auto& z = c.shape;
  const LltmCase one{.shape = {z.batch, z.features, z.states},
                     .dtype = c.dtype,
                     .layouts = {.input = c.layouts.input, .weights = c.layouts.weights}};
  const auto size = static_cast<size_t>(z.steps * z.batch * z.states);
  Expected e{Values(size), Values(size), Values(3 * size), Values(size), Values(size), Values(3 * size), in.old_h, in.old_cell};
  for (int64_t k = 0; k < z.steps; ++k) {
    const int64_t time = z.reverse ? z.steps - 1 - k : k;
    const reference::LltmInputs inputs{step_of(in.input, time, z.batch * z.features), in.weights, in.bias, e.new_h, e.new_cell};
    const reference::LltmOutputs out = reference::lltm(one.shape, inputs);
    const LltmForwardBounds bounds = lltm_forward_bounds(one, inputs, out);
    for (int64_t i = 0; i < z.batch * 3 * z.states; ++i) {
      const int64_t b = i / (3 * z.states), j = i % (3 * z.states);
      if (time >= length_of(c, b)) continue;  // zeros, and the state stays
      const auto at = static_cast<size_t>(time * z.batch * 3 * z.states + i), from = static_cast<size_t>(i);
      e.gates[at] = out.gates[from], e.gates_bound[at] = bounds.gates[from];
      if (j >= z.states) continue;
      const auto state = static_cast<size_t>(b * z.states + j), to = static_cast<size_t>(time * z.batch * z.states) + state;
      e.h[to] = out.new_h[state], e.h_bound[to] = bounds.new_h[state];
      e.cells[to] = out.new_cell[state], e.cells_bound[to] = bounds.new_cell[state];
      e.new_h[state] = h[to], e.new_cell[state] = cells[to];
    }
  }
  return e;
}

// Without the saved outputs there is no state to go on from: all is as with them.
void check_without_saved(SequenceTensors& t, const char* kernel) {
  const double eps = static_cast<double>(epsilon(t.c.dtype));
  const Values h = t.h.values(), new_h = t.new_h.values(), new_cell = t.new_cell.values();
  const Result result =
      run("lltm_sequence", t.forward_inputs(), {&t.h, &t.new_h, &t.new_cell, nullptr, nullptr}, t.c.params(), kernel);
  if (result.was_declined()) return;
  const Tolerance tolerance{.rtol = 16 * eps, .atol = 16 * eps};
  expect_close(result, t.h, h, tolerance);
  expect_close(result, t.new_h, new_h, tolerance);
  expect_close(result, t.new_cell, new_cell, tolerance);
}

// Rows in the order (inner, outer) of those in the order (outer, inner).
Values swap_order(const Values& rows, int64_t outer, int64_t inner, int64_t columns) {
  Values out;
  for (int64_t i = 0; i < inner; ++i)
    for (int64_t o = 0; o < outer; ++o)
      for (int64_t j = 0; j < columns; ++j) out.push_back(rows[static_cast<size_t>((o * inner + i) * columns + j)]);
  return out;
}

}  // namespace

Blob SequenceCase::params() const {
  nw_lltm_sequence_params p{};
  p.batch_first = batch_first ? 1 : 0, p.reverse = shape.reverse ? 1 : 0, p.recompute = recompute ? 1 : 0;
  return Blob(p);
}

std::vector<int64_t> SequenceCase::dims(int64_t columns, bool saved) const {
  std::vector<int64_t> d{shape.steps, shape.batch, columns};
  if (batch_first) std::swap(d[0], d[1]);
  if (saved && recompute) d[0] = 0;
  return d;
}

Values by_step(const SequenceCase& c, const Values& values, int64_t columns) {
  return c.batch_first ? swap_order(values, c.shape.batch, c.shape.steps, columns) : values;
}
Values by_dims(const SequenceCase& c, const Values& values, int64_t columns) {
  return c.batch_first ? swap_order(values, c.shape.steps, c.shape.batch, columns) : values;
}

SequenceTensors::SequenceTensors(const SequenceCase& given, Rng& rng)
    : c(given), input(c.dtype, c.dims(c.shape.features), c.layouts.input),
      weights(c.dtype, {3 * c.shape.states, c.shape.states + c.shape.features}, c.layouts.weights), bias(c.dtype, bias_dims(c)),
      old_h(c.dtype, c.state_dims(), c.layouts.state), old_cell(c.dtype, c.state_dims(), c.layouts.state),
      lengths(DType::i32, {c.shape.batch}, c.layouts.lengths),
      h(c.dtype, c.dims(c.shape.states), without_broadcast(c.layouts.sequence)),
      new_h(c.dtype, c.state_dims(), without_broadcast(c.layouts.state)),
      new_cell(c.dtype, c.state_dims(), without_broadcast(c.layouts.state)),
      cells(c.dtype, c.dims(c.shape.states, true), without_broadcast(c.layouts.sequence)),
      gates(accumulator(c.dtype), c.dims(3 * c.shape.states, true), without_broadcast(c.layouts.gates)) {
  const double scale = 2 / std::sqrt(static_cast<double>(c.shape.states + c.shape.features) + 1);
  for (Tensor* t : {&input, &bias, &old_h, &old_cell}) t->fill_uniform(rng, -1, 1);
  weights.fill_uniform(rng, -scale, scale);
  if (!c.lengths.empty()) lengths.set(Values(c.lengths.begin(), c.lengths.end()));
}

reference::LltmSequenceInputs SequenceTensors::inputs() const {
  return {by_step(c, input.values(), c.shape.features),
          weights.values(),
          c.bias == Bias::none ? Values{} : bias.values(),
          old_h.values(),
          old_cell.values(),
          c.lengths};
}
std::vector<const Tensor*> SequenceTensors::forward_inputs() const {
  return {&input, &weights, c.bias == Bias::none ? nullptr : &bias, &old_h, &old_cell, c.lengths.empty() ? nullptr : &lengths};
}
std::vector<Tensor*> SequenceTensors::outputs() { return {&h, &new_h, &new_cell, &cells, &gates}; }

void check_sequence(const SequenceCase& c, Rng& rng) {
  expect_offered("lltm_sequence");
  SequenceTensors t(c, rng);
  const int64_t s = c.shape.states;
  for (const char* kernel : kernels("lltm_sequence")) {
    const Result result = run("lltm_sequence", t.forward_inputs(), t.outputs(), c.params(), kernel);
    if (result.was_declined()) continue;
    expect_ok(result);
    if (!result.ok()) continue;
    if (!c.recompute) {
      const Expected e = expected_steps(c, t.inputs(), by_step(c, t.h.values(), s), by_step(c, t.cells.values(), s));
      expect_within(result, t.h, by_dims(c, e.h, s), by_dims(c, e.h_bound, s));
      expect_within(result, t.cells, by_dims(c, e.cells, s), by_dims(c, e.cells_bound, s));
      expect_within(result, t.gates, by_dims(c, e.gates, 3 * s), by_dims(c, e.gates_bound, 3 * s));
      expect_close(result, t.new_h, e.new_h, {});
      expect_close(result, t.new_cell, e.new_cell, {});
    }
    if (!c.with_saved) check_without_saved(t, kernel);
  }
}

namespace {

struct SequenceGrads {
  SequenceGrads(const SequenceCase& c, Rng& rng)
      : h(c.dtype, c.dims(c.shape.states), c.layouts.sequence), new_h(c.dtype, c.state_dims(), c.layouts.state),
        new_cell(c.dtype, c.state_dims(), c.layouts.state),
        input(c.dtype, c.dims(c.shape.features), without_broadcast(c.layouts.input)),
        weights(c.dtype, {3 * c.shape.states, c.shape.states + c.shape.features}, without_broadcast(c.layouts.weights)),
        bias(c.dtype, bias_dims(c)), old_h(c.dtype, c.state_dims(), without_broadcast(c.layouts.state)),
        old_cell(c.dtype, c.state_dims(), without_broadcast(c.layouts.state)) {
    for (Tensor* t : {&h, &new_h, &new_cell}) t->fill_uniform(rng, -1, 1);
  }
  Tensor h, new_h, new_cell, input, weights, bias, old_h, old_cell;
};

double largest(const Values& values) {
  double most = 0;
  for (const double v : values) most = std::fmax(most, std::fabs(v));
  return most;
}

// Gradients go through as many products as there are steps. Their errors are held against the largest one of a tensor, and all of
// them together against its norm.
void expect_gradient(const Result& result, const Tensor& got, const Values& reference, DType dtype, int64_t steps) {
  const double eps = static_cast<double>(epsilon(dtype)), factor = (item_size(dtype) == 2 ? 4 : 64) + static_cast<double>(steps);
  expect_close(result, got, reference, {.atol = factor * eps * largest(reference), .l2 = factor * eps});
}

}  // namespace

void check_sequence_backward(const SequenceCase& c, Rng& rng, const SequenceWanted& wanted) {
  expect_offered("lltm_sequence_backward");
  SequenceTensors t(c, rng);
  SequenceGrads g(c, rng);
  const int64_t s = c.shape.states;
  const reference::LltmSequenceInputs in = t.inputs();
  const reference::LltmSequenceOutputs forward = reference::lltm_sequence(c.shape, in);
  t.h.set(by_dims(c, forward.h, s));
  reference::LltmSequenceSaved saved{{}, {}, {}, by_step(c, t.h.values(), s), forward.cells, forward.gates};
  if (!c.recompute) {
    t.cells.set(by_dims(c, forward.cells, s));
    t.gates.set(by_dims(c, forward.gates, 3 * s));
    saved.cells = by_step(c, t.cells.values(), s), saved.gates = by_step(c, t.gates.values(), 3 * s);
  }
  if (wanted.grads & 1) saved.grad_h = by_step(c, g.h.values(), s);
  if (wanted.grads & 2) saved.grad_new_h = g.new_h.values();
  if (wanted.grads & 4) saved.grad_new_cell = g.new_cell.values();
  const auto expected = reference::lltm_sequence_backward(c.shape, in, saved);
  std::vector<const Tensor*> inputs = t.forward_inputs();
  inputs.insert(inputs.begin(), {(wanted.grads & 1) != 0 ? &g.h : nullptr, (wanted.grads & 2) != 0 ? &g.new_h : nullptr,
                                 (wanted.grads & 4) != 0 ? &g.new_cell : nullptr});
  inputs.insert(inputs.end(), {&t.h, nullptr, nullptr, &t.cells, &t.gates});
  std::vector<Tensor*> outputs{&g.input, &g.weights, &g.bias, &g.old_h, &g.old_cell, nullptr};
  for (size_t i = 0; i < 5; ++i)
    if ((wanted.outputs >> i & 1) == 0) outputs[i] = nullptr;
  const Values d_input = by_dims(c, expected.input, c.shape.features);
  const Values* const references[] = {&d_input, &expected.weights, &expected.bias, &expected.old_h, &expected.old_cell};
  for (const char* kernel : kernels("lltm_sequence_backward")) {
    const Result result = run("lltm_sequence_backward", inputs, outputs, c.params(), kernel);
    if (result.was_declined()) continue;
    for (size_t i = 0; i < 5; ++i)
      if (outputs[i] != nullptr) expect_gradient(result, *outputs[i], *references[i], c.dtype, c.shape.steps);
  }
}

SequenceCase random_sequence(Rng& rng, DType dtype) {
  SequenceCase c{.shape = {.steps = rng.integer(0, 6),
                           .batch = rng.integer(0, rng.integer(1, 20)),
                           .features = rng.integer(0, rng.integer(1, 30)),
                           .states = rng.integer(1, rng.integer(1, 40)),
                           .reverse = rng.integer(0, 1) == 1},
                 .dtype = dtype};
  c.batch_first = rng.integer(0, 1) == 1, c.with_saved = rng.integer(0, 3) != 0;
  c.bias = static_cast<Bias>(rng.integer(0, 2));
  if (rng.integer(0, 1) == 1)
    for (int64_t b = 0; b < c.shape.batch; ++b) c.lengths.push_back(rng.integer(0, c.shape.steps));
  const auto pick = [&](int ndim, bool may_broadcast) {
    std::vector<Layout> choices = all_layouts(ndim, dtype);
    if (may_broadcast) choices.push_back(Layout::broadcast({true, false, false}));
    return choices[static_cast<size_t>(rng.integer(0, static_cast<int64_t>(choices.size()) - 1))];
  };
  c.layouts = {.input = pick(3, true),
               .weights = pick(2, false),
               .state = pick(2, false),
               .sequence = pick(3, false),
               .gates = pick(3, false),
               .lengths = {}};
  return c;
}

}  // namespace narrows::test
