// expected.cpp -- what a legal call's outputs must hold, by tests/reference, and how far off they may be: wide enough that no
// correct kernel is ever blamed, narrow enough that a wrong element, index or sum is. The conformance tests have the close bounds.
// See call.h.
#include <algorithm>
#include <cmath>

#include "call.h"
#include "reference/conv1d.h"
#include "reference/elementwise.h"
#include "reference/lltm.h"

namespace narrows::fuzz {
namespace {

using Doubles = std::vector<double>;
using Reals = std::vector<Exact>;
using Values = std::vector<Reals>;
using reference::Shape;

DType sum_dtype(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

Doubles doubles(const Reals& v) { return {v.begin(), v.end()}; }
Doubles absolute(Doubles v) {
  for (double& x : v) x = std::fabs(x);
  return v;
}

// Sums of up to `terms` products, each rounding by half a unit of what is summed.
Expected summed(const Doubles& values, const Doubles& magnitude, int64_t terms, DType dtype) {
  const Exact factor = test::epsilon(sum_dtype(dtype)) * (4 + static_cast<Exact>(terms));
  Expected out{{values.begin(), values.end()}, {}};
  for (const double m : magnitude) out.bounds.push_back(factor * m);
  return out;
}

Expected zeros(const TensorSpec& t) {
  const auto count = static_cast<size_t>(reach(t)->elements);
  return {Reals(count), Reals(count)};
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

// ---- elementwise ----

// What follows from IEEE 754 without rounding but that of the result.
bool is_exact(const reference::Function& f) {
  switch (f.number) {
    case NW_EW_NEG:
    case NW_EW_ABS:
    case NW_EW_SIGN:
    case NW_EW_RELU:
    case NW_EW_FLOOR:
    case NW_EW_CEIL:
    case NW_EW_ROUND:
    case NW_EW_TRUNC:
    case NW_EW_CAST:
    case NW_EW_MAXIMUM:
    case NW_EW_MINIMUM:
    case NW_EW_FMOD:
    case NW_EW_COPYSIGN:
    case NW_EW_WHERE:
    case NW_EW_CLAMP: return true;
    default: return f.gives_bool;
  }
}

// The operands as full arrays: tensors broadcast, absent ones the number of the params, in the operands' dtype.
struct Operands {
  Shape out;
  Reals values[3];
  bool tame = true;  // the numbers are as small as those in the tensors
};
Operands operands(const Case& c, const reference::Function& f, DType dtype, size_t first, const Values& v) {
  const nw_elementwise_params p = c.elementwise();
  Operands o;
  for (size_t i = 0; i < 3; ++i)
    if (c.input(first + i) != nullptr) o.out = reference::broadcast_shape(o.out, c.input(first + i)->shape);
  const auto count = static_cast<size_t>(reference::count(o.out));
  for (int i = 0; i < f.operands; ++i) {
    const TensorSpec* t = c.input(first + static_cast<size_t>(i));
    if (t != nullptr) {
      o.values[i] = reference::broadcast_to(v[first + static_cast<size_t>(i)], t->shape, o.out);
    } else {
      const Exact number =
          test::is_float(dtype) ? test::rounded(dtype, i == 1 ? p.b_real : p.c_real) : Exact(i == 1 ? p.b_int : p.c_int);
      o.values[i].assign(count, number);
      o.tame = o.tame && std::fabs(number) <= 8 && std::rint(number * 4) == number * 4;
    }
  }
  if (f.number == NW_EW_ELU) o.tame = o.tame && std::fabs(p.alpha) <= 1e6;
  return o;
}

DType shared_dtype(const Case& c, size_t first) {
  if (c.elementwise().function != NW_EW_WHERE) return *c.input(first)->known_dtype();
  return *(c.input(first + 1) != nullptr ? c.input(first + 1) : c.input(first + 2))->known_dtype();
}

Expected expected_elementwise(const Case& c, const Values& v) {
  const nw_elementwise_params p = c.elementwise();
  const reference::Function& f = reference::function(p.function);
  const DType dtype = shared_dtype(c, 0), computed = sum_dtype(dtype);
  const Operands o = operands(c, f, dtype, 0, v);
  Expected e;
  if (f.number == NW_EW_CAST) {
    for (const Exact a : o.values[0]) e.values.push_back(reference::cast(dtype, static_cast<DType>(p.out_dtype), a));
    e.bounds.assign(e.values.size(), 0);
    return e;
  }
  e.values = reference::elementwise(f, dtype, o.values[0], o.values[1], o.values[2], p.alpha);
  e.bounds.assign(e.values.size(), 0);
  if (is_exact(f) || !test::is_float(dtype)) return e;
  for (size_t i = 0; i < e.values.size(); ++i) {
    // What cancels: of fma and remainder the terms, of logaddexp max and log1p.
    Exact& bound = e.bounds[i] = 8 * test::ulp(computed, e.values[i]) + 40 * test::smallest_subnormal(computed);
    if (f.operands > 1) bound += 4 * test::epsilon(computed) * (std::fabs(o.values[1][i]) + 1);
    if (f.operands == 3) bound += 4 * test::epsilon(computed) * std::fabs(o.values[0][i] * o.values[1][i]);
    // Beyond the ranges that the conformance tests have bounds for, nothing is compared.
    if (!o.tame || std::fabs(o.values[0][i]) > 100) bound = std::numeric_limits<Exact>::quiet_NaN();
  }
  return e;
}

Expected expected_gradient(const Case& c, const reference::Function& f, const Operands& o, const Reals& grad_out, int operand) {
  const TensorSpec& t = *c.input(static_cast<size_t>(operand) + 1);
  Reals terms(o.values[0].size()), magnitude(terms.size());
  for (size_t i = 0; i < terms.size(); ++i) {
    const auto at = [&](int k) { return o.values[k].empty() ? Exact(0) : o.values[k][i]; };
    const reference::Partials d = f.gradient({at(0), at(1), at(2), c.elementwise().alpha});
    terms[i] = grad_out[i] * (operand == 0 ? d.a : operand == 1 ? d.b : d.c);
    magnitude[i] = std::fabs(terms[i]) + std::fabs(grad_out[i]);
  }
  Expected e{reference::sum_to(terms, o.out, t.shape), reference::sum_to(magnitude, o.out, t.shape)};
  const Exact epsilon = test::epsilon(sum_dtype(*t.known_dtype()));
  const auto repeats = static_cast<Exact>(e.values.empty() ? 0 : terms.size() / e.values.size());
  for (Exact& bound : e.bounds) bound = o.tame ? (64 + repeats) * epsilon * (bound + 1) : std::numeric_limits<Exact>::quiet_NaN();
  return e;
}

std::vector<Expected> expected_gradients(const Case& c, const Values& v) {
  const reference::Function& f = reference::function(c.elementwise().function);
  const Operands o = operands(c, f, shared_dtype(c, 1), 1, v);
  std::vector<Expected> out(3);
  for (int i = 0; i < f.operands; ++i) {
    const TensorSpec* t = c.output(static_cast<size_t>(i));
    if (t == nullptr) continue;
    out[static_cast<size_t>(i)] = c.input(0) == nullptr ? zeros(*t) : expected_gradient(c, f, o, v[0], i);
  }
  return out;
}

// ---- lltm ----

// Far wider than needed, and still 1e-4 of the numbers: what it is for is a wrong index, not a rounding.
std::vector<Expected> within(const std::vector<std::pair<Doubles, Doubles>>& values, DType dtype, int64_t terms) {
  std::vector<Expected> out;
  for (const auto& [value, magnitude] : values) {
    out.push_back(summed(value, magnitude, 64 * (terms + 4), dtype));
    for (Exact& bound : out.back().bounds) bound += 64 * test::epsilon(sum_dtype(dtype)) * static_cast<Exact>(terms + 4);
  }
  return out;
}

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

}  // namespace

std::vector<Expected> expected(const Case& c, const Values& values) {
  // Sums of what is not small (memory that two dtypes share) overflow in one order and not in another.
  for (const Reals& tensor : values)
    for (const Exact value : tensor)
      if (c.op != Op::elementwise && !(std::fabs(value) <= 16)) return {};
  switch (c.op) {
    case Op::conv1d:
    case Op::conv1d_backward: return expected_conv1d(c, values);
    case Op::elementwise: return {expected_elementwise(c, values)};
    case Op::elementwise_backward: return expected_gradients(c, values);
    case Op::lltm:
    case Op::lltm_backward: return expected_lltm(c, values);
  }
  return {};
}

Wide work(const Case& c) {
  Wide product = 1;
  const auto times = [&product](Wide n) { product = std::min(product * std::max<Wide>(n, 1), Wide{1} << 100); };
  if (c.op == Op::conv1d || c.op == Op::conv1d_backward) {
    const size_t first = c.op == Op::conv1d ? 0 : 1;
    const nw_conv1d_params p = c.conv1d();
    times(Wide{c.input(first)->shape.back()} + p.pad_left + p.pad_right);
    times(reach(*c.input(first + 1))->elements);
    if (c.input(first)->ndim == 3) times(c.input(first)->shape[0]);
  } else if (c.op == Op::lltm || c.op == Op::lltm_backward) {
    times(reach(*c.input(c.op == Op::lltm ? 1 : 3))->elements);
    times(c.input(c.op == Op::lltm ? 0 : 2)->shape[0]);
  } else {
    Shape out;
    for (const TensorSpec& t : c.inputs)
      if (t.present) out = reference::broadcast_shape(out, t.shape);
    for (const int64_t extent : out) times(extent);
  }
  return product;
}

}  // namespace narrows::fuzz
