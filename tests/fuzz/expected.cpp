// SPDX-License-Identifier: Apache-2.0
// expected.cpp -- what a legal call's outputs must hold, by tests/reference, and how far off they may be: wide enough that no
// correct kernel is ever blamed, narrow enough that a wrong element, index or sum is. The conformance tests have the close bounds.
// See call.h.
#include <algorithm>
#include <cmath>

#include "oracle.h"
#include "reference/conv1d.h"
#include "reference/lltm.h"
#include "reference/reference.h"

namespace narrows::fuzz {
namespace {

using Doubles = std::vector<double>;

Doubles doubles(const Reals& v) { return {v.begin(), v.end()}; }
Doubles absolute(Doubles v) {
  for (double& x : v) x = std::fabs(x);
  return v;
}

// Sums of up to `terms` products, each rounding by half a unit of what is summed, which is never below the smallest subnormal
// (memory that two dtypes share holds such numbers).
Expected summed(const Doubles& values, const Doubles& magnitude, int64_t terms, DType dtype) {
  const Exact roundings = 4 + static_cast<Exact>(terms), factor = test::epsilon(sum_dtype(dtype)) * roundings;
  const Exact least = test::smallest_subnormal(sum_dtype(dtype)) * roundings;
  Expected out{{values.begin(), values.end()}, {}};
  for (const double m : magnitude) out.bounds.push_back(factor * m + least);
  return out;
}

// ---- conv1d ----

reference::Conv1d conv1d_shape(const Case& c, const TensorSpec& x, const TensorSpec& w) {
  const nw_conv1d_params p = c.conv1d();
  reference::Conv1d s;
  const size_t rank = x.shape.size();
  if (rank == 3) s.batch = x.shape[0];
  if (rank > 1) s.channels = x.shape[rank - 2], s.filters = w.shape[0];
  s.length = x.shape.back();
  s.taps = w.shape.back();
  s.stride = std::clamp<int64_t>(p.stride, 1, int64_t{1} << 40);  // from some stride on there is one output
  s.dilation = std::max<int64_t>(p.dilation, 1);
  s.groups = std::max<int64_t>(p.groups, 1);
  s.pad_left = p.pad_left;
  s.pad_right = p.pad_right;
  return s;
}

}  // namespace

std::vector<Expected> expected_conv1d(const Case& c, const Values& v) {
  const bool backward = c.op == Op::conv1d_backward;
  const size_t first = backward ? 1 : 0;
  const TensorSpec &x = *c.input(first), &w = *c.input(first + 1);
  const reference::Conv1d s = conv1d_shape(c, x, w);
  const DType dtype = *x.known_dtype();
  const Doubles xs = doubles(v[first]), ws = doubles(v[first + 1]);
  if (!backward) {
    const Doubles bias = c.input(2) != nullptr ? doubles(v[2]) : Doubles{};
    if (reach(*c.output(0))->empty()) return {Expected{}};
    return {summed(reference::conv1d(s, xs, ws, bias), reference::conv1d(s, absolute(xs), absolute(ws), absolute(bias)),
                   s.group_channels() * s.taps, dtype)};
  }
  std::vector<Expected> out(3);
  const bool nothing = c.input(0) == nullptr || v[0].empty();  // no grad_y
  for (size_t i = 0; i < 3; ++i)
    if (nothing && c.output(i) != nullptr) out[i] = zeros(*c.output(i));
  if (nothing) return out;
  const Doubles g = doubles(v[0]);
  const reference::Conv1dGradients r = reference::conv1d_backward(s, g, xs, ws);
  const reference::Conv1dGradients m = reference::conv1d_backward(s, absolute(g), absolute(xs), absolute(ws));
  const auto positions = static_cast<int64_t>(g.size());
  return {summed(r.x, m.x, s.group_filters() * s.taps, dtype), summed(r.w, m.w, positions, dtype),
          summed(r.bias, m.bias, positions, dtype)};
}

// ---- lltm ----

namespace {

// Far wider than needed, and still 1e-4 of the numbers: what it is for is a wrong index, not a rounding.
std::vector<Expected> within(const std::vector<std::pair<Doubles, Doubles>>& values, DType dtype, int64_t terms) {
  std::vector<Expected> out;
  for (const auto& [value, magnitude] : values) {
    out.push_back(summed(value, magnitude, 64 * (terms + 4), dtype));
    for (Exact& bound : out.back().bounds) bound += 64 * test::epsilon(sum_dtype(dtype)) * static_cast<Exact>(terms + 4);
  }
  return out;
}

}  // namespace

std::vector<Expected> expected_lltm(const Case& c, const Values& v) {
  const bool backward = c.op == Op::lltm_backward;
  const size_t first = backward ? 2 : 0;
  const TensorSpec &input = *c.input(first), &old_h = *c.input(first + 3);
  const reference::Lltm s{input.shape[0], input.shape[1], old_h.shape[1]};
  const DType dtype = *input.known_dtype();
  reference::LltmInputs in{doubles(v[first]), doubles(v[first + 1]), doubles(v[first + 2]), doubles(v[first + 3]),
                           doubles(v[first + 4])};
  const int64_t terms = s.states + s.features;
  reference::LltmInputs wide{absolute(in.input), absolute(in.weights), absolute(in.bias), absolute(in.old_h),
                             absolute(in.old_cell)};
  if (!backward) {
    const auto r = reference::lltm(s, in), m = reference::lltm(s, wide);
    // A cell or an h is off by what the gates are: their magnitude is added to it.
    Doubles cell = m.new_cell;
    for (size_t i = 0; i < cell.size(); ++i) {
      const size_t row = i / static_cast<size_t>(s.states) * 3 * static_cast<size_t>(s.states),
                   column = i % static_cast<size_t>(s.states);
      for (size_t gate = 0; gate < 3; ++gate)
        cell[i] += m.gates[row + gate * static_cast<size_t>(s.states) + column] * (1 + std::fabs(cell[i]));
    }
    return within({{r.new_h, cell}, {r.new_cell, cell}, {r.gates, m.gates}}, dtype, terms);
  }
  const Doubles gh = doubles(v[0]), gc = doubles(v[1]), cell = doubles(v[8]), gates = doubles(v[9]);
  const auto r = reference::lltm_backward(s, gh, gc, in, cell, gates);
  Doubles dg = absolute(reference::lltm_grad_gates(s, gh, gc, cell, gates));
  for (double& g : dg) g += 32;  // what cancels inside: 1 - tanh^2 and the like, times gradients of 3 at most
  auto m = reference::lltm_sum_gradients(s, dg, wide);
  m.old_cell = absolute(r.old_cell);
  return within({{r.input, m.input}, {r.weights, m.weights}, {r.bias, m.bias}, {r.old_h, m.old_h}, {r.old_cell, m.old_cell}}, dtype,
                terms + s.batch);
}

DType sum_dtype(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

Expected zeros(const TensorSpec& t) {
  const auto count = static_cast<size_t>(reach(t)->elements);
  return {Reals(count), Reals(count)};
}

std::vector<Expected> expected(const Case& c, const Values& values) {
  // Sums of what is not small (memory that two dtypes share) overflow in one order and not in another.
  for (const Reals& tensor : values)
    for (const Exact value : tensor)
      if (c.op != Op::elementwise && !(std::fabs(value) <= 16)) return {};
  return oracle(c.op).expected(c, values);
}

Wide work(const Case& c) { return oracle(c.op).work(c); }

}  // namespace narrows::fuzz
