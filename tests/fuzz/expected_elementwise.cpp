// SPDX-License-Identifier: Apache-2.0
// expected_elementwise.cpp -- what legal calls of elementwise and elementwise_backward must give. See expected.cpp.
#include "reference/elementwise.h"

#include <cmath>
#include <limits>

#include "expected_parts.h"

namespace narrows::fuzz {
namespace {

using reference::Shape;

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

}  // namespace

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

namespace {

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

}  // namespace

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

}  // namespace narrows::fuzz
