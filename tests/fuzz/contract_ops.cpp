// SPDX-License-Identifier: Apache-2.0
// contract_ops.cpp -- conv1d, elementwise and lltm by docs/ops.md: which inputs and params are legal, and which outputs they give.
// See contract_ops.h.
#include "contract_ops.h"

#include <algorithm>
#include <cmath>

#include "oracle.h"
#include "reference/elementwise.h"

namespace narrows::fuzz {
namespace {

using Shape = std::vector<int64_t>;

bool fits(int64_t value, DType dtype) {
  if (dtype == DType::u64) return value >= 0;
  return Exact(value) >= test::lowest(dtype) && Exact(value) <= test::largest(dtype);
}

// ---- conv1d ----

// T of docs/ops.md; 0 where there is no element.
Wide conv1d_outputs(const nw_conv1d_params& p, int64_t length, int64_t taps) {
  const Wide dilation = std::max<int64_t>(p.dilation, 1), stride = std::max<int64_t>(p.stride, 1);
  const Wide sum = Wide{length} + p.pad_left + p.pad_right - dilation * (taps - 1) - 1;
  return sum < 0 ? 0 : sum / stride + 1;
}

std::string refuse_conv1d_params(const nw_conv1d_params& p) {
  for (const int64_t field : {p.stride, p.dilation, p.groups, p.pad_left, p.pad_right})
    if (field < 0) return "a negative field";
  return p.padding_mode != NW_PADDING_ZEROS ? "an unknown padding_mode" : "";
}

std::string refuse_conv1d_shapes(const Case& c, const TensorSpec& x, const TensorSpec& w, const TensorSpec* bias) {
  const int64_t groups = std::max<int64_t>(c.conv1d().groups, 1);
  if (x.ndim < 1 || x.ndim > 3 || w.ndim != (x.ndim == 1 ? 1 : 3)) return "ranks that do not go together";
  if (bias != nullptr && bias->shape != Shape{x.ndim == 1 ? 1 : w.shape[0]}) return "a bias of another shape";
  if (x.ndim == 1) return groups > 1 ? "groups of a signal" : "";
  const int64_t channels = x.shape[x.ndim - 2];
  if (channels % groups != 0 || w.shape[0] % groups != 0) return "groups that do not divide the channels";
  return w.shape[1] != channels / groups ? "w with other channels than x" : "";
}

// ---- elementwise ----

struct Elementwise {
  const Case& c;
  nw_elementwise_params p;
  size_t first;  // index of operand a
  const reference::Function* f = nullptr;
  const TensorSpec* operand(int i) const { return c.input(first + i); }
  bool is_where() const { return f->number == NW_EW_WHERE; }
  DType dtype() const { return *(is_where() ? operand(1) != nullptr ? operand(1) : operand(2) : operand(0))->known_dtype(); }
  DType result() const { return f->number == NW_EW_CAST ? static_cast<DType>(p.out_dtype) : reference::out_dtype(*f, dtype()); }
};

std::string refuse_operands(const Elementwise& e) {
  for (int i = 0; i < 3; ++i)
    if (i >= e.f->operands && e.operand(i) != nullptr) return "an operand that the function does not have";
  if (e.is_where() && e.operand(1) == nullptr && e.operand(2) == nullptr) return "where without a tensor to choose";
  for (int i = 0; i < e.f->operands; ++i) {
    if (e.operand(i) == nullptr) continue;
    const DType own = *e.operand(i)->known_dtype(), expected = e.is_where() && i == 0 ? DType::boolean : e.dtype();
    if (own != expected) return "operands of several dtypes";
  }
  return reference::allows(e.f->domain, e.dtype()) ? "" : "a dtype that the function does not take";
}

// The numbers for operand i: read, in the operands' dtype, or 0.
std::string refuse_scalars(const Elementwise& e, int i, double real, int64_t integer, std::string* unsettled) {
  if (real == 0 && std::signbit(real)) *unsettled = "-0 where 0 is expected";  // harmless where it is read
  const bool read = i < e.f->operands && e.operand(i) == nullptr;
  if (!read) return real != 0 || integer != 0 ? "a number that is not read" : "";
  if (test::is_float(e.dtype())) return integer != 0 ? "an integer beside floating point" : "";
  if (real != 0) return "a real number beside integers";
  return fits(integer, e.dtype()) ? "" : "an integer that does not fit the dtype";
}

std::string refuse_function(Elementwise* e, std::string* unsettled) {
  const auto count = static_cast<int32_t>(reference::functions().size());
  if (e->p.function < 1 || e->p.function > count) return "a function that does not exist";
  e->f = &reference::function(e->p.function);
  if (std::string why = refuse_operands(*e); !why.empty()) return why;
  const bool cast = e->f->number == NW_EW_CAST;
  if (cast ? e->p.out_dtype < 1 || e->p.out_dtype > NW_DTYPE_BOOL : e->p.out_dtype != 0) return "out_dtype";
  std::string why = refuse_scalars(*e, 1, e->p.b_real, e->p.b_int, unsettled);
  return why.empty() ? refuse_scalars(*e, 2, e->p.c_real, e->p.c_int, unsettled) : why;
}

// NumPy's rule over the operands; nothing where they do not go together.
std::optional<Shape> broadcast(const Elementwise& e) {
  Shape out;
  for (int i = 0; i < 3; ++i) {
    if (e.operand(i) == nullptr) continue;
    const Shape& own = e.operand(i)->shape;
    if (out.size() < own.size()) out.insert(out.begin(), own.size() - out.size(), 1);
    for (size_t d = 0; d < own.size(); ++d) {
      int64_t& extent = out[out.size() - 1 - d];
      const int64_t mine = own[own.size() - 1 - d];
      if (extent != mine && extent != 1 && mine != 1) return std::nullopt;
      if (extent == 1) extent = mine;
    }
  }
  return out;
}

std::string refuse_gradient(const Elementwise& e, const Shape& out) {
  if (e.f->gradient == nullptr) return "a function without a gradient";
  if (!test::is_float(e.dtype()) || !test::is_float(e.result())) return "a gradient of what is not floating point";
  if (e.is_where() && e.c.output(0) != nullptr) return "the gradient of where's a";
  for (const size_t i : {size_t{0}, size_t{4}}) {
    const TensorSpec* t = e.c.input(i);
    if (t != nullptr && (t->known_dtype() != e.result() || t->shape != out)) return "grad_out or out unlike the result";
  }
  return "";
}

}  // namespace

std::string one_float_dtype(const Case& c, uint32_t except) {
  std::optional<DType> shared;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    if (c.input(i) == nullptr || (except >> i & 1) != 0) continue;
    const DType dtype = *c.inputs[i].known_dtype();
    if (!test::is_float(dtype)) return "an input that is not floating point";
    if (shared && *shared != dtype) return "inputs of several dtypes";
    shared = dtype;
  }
  return "";
}

void judge_conv1d(const Case& c, Verdict* v) {
  const size_t x_index = c.op == Op::conv1d ? 0 : 1;
  const TensorSpec &x = *c.input(x_index), &w = *c.input(x_index + 1);
  const TensorSpec* bias = c.input(x_index + 2);
  const nw_conv1d_params p = c.conv1d();
  v->illegal = refuse_conv1d_params(p);
  if (v->illegal.empty()) v->illegal = one_float_dtype(c);
  if (v->illegal.empty()) v->illegal = refuse_conv1d_shapes(c, x, w, bias);
  if (!v->illegal.empty()) return;
  const int64_t length = x.shape.back(), taps = w.shape.back();
  const Wide outputs = conv1d_outputs(p, length, taps);
  if (taps == 0) v->unsettled = "a filter without taps";
  if (Wide{length} + p.pad_left + p.pad_right > INT64_MAX || Wide{std::max<int64_t>(p.dilation, 1)} * (taps - 1) > INT64_MAX)
    v->unsettled = "sums beyond 63 bits";
  if (outputs < 1)
    v->illegal = "no output";
  else if (outputs > INT64_MAX)
    v->illegal = "an extent beyond 63 bits";
  if (!v->illegal.empty()) return;
  Shape y = x.shape;
  y.back() = static_cast<int64_t>(outputs);
  if (x.ndim > 1) y[y.size() - 2] = w.shape[0];
  const DType dtype = *x.known_dtype();
  if (c.op == Op::conv1d) {
    v->outputs = {{true, dtype, y}};
    return;
  }
  if (c.input(0) != nullptr && c.input(0)->shape != y) v->illegal = "grad_y of another shape";
  if (c.input(4) != nullptr && c.input(4)->shape != y) v->unsettled = "y, which is not read, of another shape";
  v->outputs = {{true, dtype, x.shape}, {true, dtype, w.shape}, {true, dtype, {x.ndim == 1 ? 1 : w.shape[0]}}};
}

void judge_elementwise(const Case& c, Verdict* v) {
  const bool backward = c.op == Op::elementwise_backward;
  Elementwise e{c, c.elementwise(), backward ? size_t{1} : size_t{0}};
  v->illegal = refuse_function(&e, &v->unsettled);
  if (!v->illegal.empty()) return;
  const std::optional<Shape> out = broadcast(e);
  if (!out) {
    v->illegal = "shapes that do not broadcast";
    return;
  }
  Wide count = 1;
  for (const int64_t extent : *out) {
    count *= extent;
    if (count > INT64_MAX) v->unsettled = "more than 2^63 - 1 broadcast elements", count = INT64_MAX;
  }
  if (!backward) {
    v->outputs = {{true, e.result(), *out}};
    return;
  }
  v->illegal = refuse_gradient(e, *out);
  for (int i = 0; i < 3; ++i) {
    const TensorSpec* t = e.operand(i);
    v->outputs.push_back(t == nullptr ? OutputSpec{} : OutputSpec{true, *t->known_dtype(), t->shape});
  }
}

void judge_lltm(const Case& c, Verdict* v) {
  const bool backward = c.op == Op::lltm_backward;
  const size_t first = backward ? 2 : 0;
  const TensorSpec &input = *c.input(first), &weights = *c.input(first + 1), &old_h = *c.input(first + 3);
  v->illegal = one_float_dtype(c, backward ? 1u << 9 : 0);
  if (!v->illegal.empty()) return;
  const DType dtype = *input.known_dtype(), gates_dtype = dtype == DType::f64 ? DType::f64 : DType::f32;
  if (input.ndim != 2 || old_h.ndim != 2) {
    v->illegal = "an input or old_h that is no matrix";
    return;
  }
  const int64_t batch = input.shape[0], features = input.shape[1], states = old_h.shape[1];
  if (Wide{states} * 3 > INT64_MAX || Wide{states} + features > INT64_MAX) {
    v->illegal = "weights beyond 63 bits";
    return;
  }
  const Shape state{batch, states}, gates{batch, 3 * states}, row{3 * states};
  const auto is = [&](size_t i, const Shape& shape) { return c.input(i) == nullptr || c.input(i)->shape == shape; };
  bool right = weights.shape == Shape{3 * states, states + features} && is(first + 3, state) && is(first + 4, state);
  right = right && (is(first + 2, row) || is(first + 2, {1, 3 * states}));
  if (backward) right = right && is(0, state) && is(1, state) && is(7, state) && is(8, state) && is(9, gates);
  if (!right) v->illegal = "shapes that do not go together";
  if (backward && *c.input(9)->known_dtype() != gates_dtype) v->illegal = "gates of another dtype";
  const TensorSpec* bias = c.input(first + 2);
  if (!backward)
    v->outputs = {{true, dtype, state}, {true, dtype, state}, {true, gates_dtype, gates}};
  else
    v->outputs = {{true, dtype, input.shape},
                  {true, dtype, weights.shape},
                  {true, dtype, bias != nullptr ? bias->shape : row},
                  {true, dtype, state},
                  {true, dtype, state}};
}

}  // namespace narrows::fuzz
