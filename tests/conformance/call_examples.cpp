// SPDX-License-Identifier: Apache-2.0
// call_examples.cpp -- see call_examples.h.
#include <cmath>

#include "call_examples.h"

namespace narrows::test {
namespace {

using Dims = std::vector<int64_t>;

class Maker {
 public:
  Maker(const char* op, std::string note) : rng_(op) {
    example_.op = op;
    example_.what = op + (" " + std::move(note));
  }
  Maker& input(DType dtype, const Dims& dims, double scale = 1) {
    example_.inputs.push_back(std::make_unique<Tensor>(dtype, dims));
    example_.inputs.back()->fill_uniform(rng_, is_float(dtype) || is_signed_int(dtype) ? -scale : 0, scale);
    return *this;
  }
  Maker& absent() {
    example_.inputs.push_back(nullptr);
    return *this;
  }
  Maker& output(DType dtype, const Dims& dims) {
    example_.outputs.push_back(std::make_unique<Tensor>(dtype, dims));
    return *this;
  }
  Maker& unwanted() {
    example_.outputs.push_back(nullptr);
    return *this;
  }
  template <class Params>
  Maker& params(const Params& params) {
    example_.params = Blob(params);
    return *this;
  }
  Example take() { return std::move(example_); }

 private:
  Rng rng_;
  Example example_;
};

std::string sizes(DType dtype, const Dims& numbers) {
  std::string text = name(dtype);
  for (const int64_t n : numbers) text += " " + std::to_string(n);
  return text;
}

nw_elementwise_params ew(int32_t function) {
  nw_elementwise_params params{};
  params.function = function;
  return params;
}

}  // namespace

std::vector<const Tensor*> Example::input_pointers() const {
  std::vector<const Tensor*> out;
  for (const auto& t : inputs) out.push_back(t.get());
  return out;
}
std::vector<Tensor*> Example::output_pointers() const {
  std::vector<Tensor*> out;
  for (const auto& t : outputs) out.push_back(t.get());
  return out;
}
Result Example::run(const char* kernel) const {
  return test::run(op, input_pointers(), output_pointers(), params, kernel, 0, what);
}
std::vector<unsigned char> Example::bytes() const {
  std::vector<unsigned char> out;
  for (const auto& t : outputs) {
    if (t == nullptr) continue;
    const auto more = t->element_bytes();
    out.insert(out.end(), more.begin(), more.end());
  }
  return out;
}

Example with_layouts(const Example& e, const std::vector<Layout>& inputs, const std::vector<Layout>& outputs) {
  Example out{e.what, e.op, {}, {}, e.params};
  const auto copy = [](const auto& from, const std::vector<Layout>& layouts, bool values, auto* to) {
    for (size_t i = 0; i < from.size(); ++i) {
      to->push_back(nullptr);
      if (from[i] == nullptr) continue;
      to->back() = std::make_unique<Tensor>(from[i]->dtype(), from[i]->shape(), i < layouts.size() ? layouts[i] : Layout{});
      if (values) to->back()->set(from[i]->exact());
    }
  };
  copy(e.inputs, inputs, true, &out.inputs);
  copy(e.outputs, outputs, false, &out.outputs);
  return out;
}

std::vector<std::vector<Exact>> output_values(const Example& e) {
  std::vector<std::vector<Exact>> all;
  for (const auto& t : e.outputs) all.push_back(t == nullptr ? std::vector<Exact>{} : t->exact());
  return all;
}

Tolerance other_order(DType dtype) {
  if (!is_float(dtype)) return {};
  const double eps = static_cast<double>(epsilon(dtype == DType::f64 ? DType::f64 : DType::f32));
  return {.rtol = 8 * eps, .atol = 256 * eps, .ulps = 1, .l2 = 1e-2};
}

void expect_like(const Result& result, const Example& got, const std::vector<std::vector<Exact>>& outputs) {
  for (size_t i = 0; i < outputs.size(); ++i)
    if (got.outputs[i] != nullptr) expect_close(result, *got.outputs[i], outputs[i], other_order(got.outputs[i]->dtype()));
}

namespace {

std::vector<Example> convolutions(DType dtype, const nw_conv1d_params& params, const Dims& x, const Dims& w, const Dims& y,
                                  const std::string& note) {
  const int64_t filters = w[0];
  std::vector<Example> out;
  out.push_back(
      Maker("conv1d", note).input(dtype, x).input(dtype, w).input(dtype, {filters}).output(dtype, y).params(params).take());
  out.push_back(Maker("conv1d_backward", note)
                    .input(dtype, y)
                    .input(dtype, x)
                    .input(dtype, w)
                    .output(dtype, x)
                    .output(dtype, w)
                    .output(dtype, {filters})
                    .params(params)
                    .take());
  return out;
}

}  // namespace

std::vector<Example> conv1d_examples(DType dtype, int64_t batch, int64_t channels, int64_t filters, int64_t length, int64_t taps,
                                     int64_t groups) {
  return convolutions(dtype, {1, 1, groups, taps - 1, 0, NW_PADDING_ZEROS}, {batch, channels, length},
                      {filters, channels / groups, taps}, {batch, filters, length},
                      sizes(dtype, {batch, channels, filters, length, taps, groups}));
}

std::vector<Example> strided_conv1d_examples(DType dtype, int64_t batch, int64_t channels, int64_t filters, int64_t length,
                                             int64_t taps, int64_t groups, int64_t stride) {
  return convolutions(dtype, {stride, 1, groups, 0, 0, NW_PADDING_ZEROS}, {batch, channels, length},
                      {filters, channels / groups, taps}, {batch, filters, (length - taps) / stride + 1},
                      sizes(dtype, {batch, channels, filters, length, taps, groups}) + " stride " + std::to_string(stride));
}

std::vector<Example> elementwise_examples(DType dtype, int64_t rows, int64_t columns) {
  const Dims a{rows, columns}, b{columns};
  const std::string note = sizes(dtype, {rows, columns});
  std::vector<Example> out;
  const bool real = is_float(dtype);
  const double scale = real ? 2 : 100;
  out.push_back(Maker("elementwise", "add " + note)
                    .input(dtype, a, scale)
                    .input(dtype, b, scale)
                    .output(dtype, a)
                    .params(ew(NW_EW_ADD))
                    .take());
  out.push_back(Maker("elementwise", "lt " + note)
                    .input(dtype, a, scale)
                    .input(dtype, b, scale)
                    .output(DType::boolean, a)
                    .params(ew(NW_EW_LT))
                    .take());
  nw_elementwise_params cast = ew(NW_EW_CAST);
  for (const DType to : {DType::f16, DType::i8, DType::f64}) {
    cast.out_dtype = static_cast<int32_t>(to);
    out.push_back(Maker("elementwise", std::string("cast to ") + name(to) + " " + note)
                      .input(dtype, a, scale)
                      .output(to, a)
                      .params(cast)
                      .take());
  }
  if (!real) return out;
  for (const int32_t function : {NW_EW_EXP, NW_EW_TANH, NW_EW_GELU})
    out.push_back(Maker("elementwise", std::to_string(function) + " " + note)
                      .input(dtype, a, scale)
                      .output(dtype, a)
                      .params(ew(function))
                      .take());
  out.push_back(Maker("elementwise_backward", "mul " + note)
                    .input(dtype, a)
                    .input(dtype, a)
                    .input(dtype, b)
                    .output(dtype, a)
                    .output(dtype, b)
                    .unwanted()
                    .params(ew(NW_EW_MUL))
                    .take());
  return out;
}

std::vector<Example> matrix_examples(DType dtype, int64_t rows, int64_t columns) {
  const Dims shape{rows, columns};
  const std::string note = sizes(dtype, shape);
  std::vector<Example> out;
  const auto add = [&](int32_t function, int operands) {
    const bool real = is_float(dtype);
    const double scale = real ? 2 : 100;
    const std::string what = std::to_string(function) + " " + note;
    Maker forward("elementwise", what), backward("elementwise_backward", what);
    backward.input(dtype, shape, scale);
    for (int i = 0; i < operands; ++i) {
      const DType own = function == NW_EW_WHERE && i == 0 ? DType::boolean : dtype;
      forward.input(own, shape, scale);
      backward.input(own, shape, scale);
    }
    for (int i = 0; i < 3; ++i)
      i < operands && !(function == NW_EW_WHERE && i == 0) ? backward.output(dtype, shape) : backward.unwanted();
    out.push_back(forward.output(dtype, shape).params(ew(function)).take());
    if (real) out.push_back(backward.params(ew(function)).take());
  };
  add(NW_EW_SQUARE, 1);
  add(NW_EW_MUL, 2);
  add(NW_EW_WHERE, 3);
  if (!is_float(dtype)) return out;
  add(NW_EW_TANH, 1);
  add(NW_EW_FMA, 3);
  return out;
}

std::vector<Example> lltm_examples(DType dtype, int64_t batch, int64_t features, int64_t states) {
  const DType gates = dtype == DType::f64 ? DType::f64 : DType::f32;
  const Dims input{batch, features}, weights{3 * states, states + features}, state{batch, states}, all{batch, 3 * states};
  const double scale = 4 / std::sqrt(static_cast<double>(states + features) + 1);
  const std::string note = sizes(dtype, {batch, features, states});
  std::vector<Example> out;
  out.push_back(Maker("lltm", note)
                    .input(dtype, input)
                    .input(dtype, weights, scale)
                    .input(dtype, {3 * states})
                    .input(dtype, state)
                    .input(dtype, state)
                    .output(dtype, state)
                    .output(dtype, state)
                    .output(gates, all)
                    .take());
  out.push_back(Maker("lltm_backward", note)
                    .input(dtype, state)
                    .input(dtype, state)
                    .input(dtype, input)
                    .input(dtype, weights, scale)
                    .absent()
                    .input(dtype, state)
                    .absent()
                    .absent()
                    .input(dtype, state)
                    .input(gates, all)
                    .output(dtype, input)
                    .output(dtype, weights)
                    .output(dtype, {3 * states})
                    .output(dtype, state)
                    .output(dtype, state)
                    .take());
  return out;
}

std::vector<Example> lltm_sequence_examples(DType dtype, int64_t steps, int64_t batch, int64_t features, int64_t states) {
  const DType gates = dtype == DType::f64 ? DType::f64 : DType::f32;
  const Dims input{steps, batch, features}, weights{3 * states, states + features}, state{batch, states};
  const Dims h{steps, batch, states}, all{steps, batch, 3 * states};
  const double scale = 2 / std::sqrt(static_cast<double>(states + features) + 1);
  const std::string note = sizes(dtype, {steps, batch, features, states});
  std::vector<Example> out;
  out.push_back(Maker("lltm_sequence", note)
                    .input(dtype, input)
                    .input(dtype, weights, scale)
                    .input(dtype, {3 * states})
                    .input(dtype, state)
                    .input(dtype, state)
                    .input(DType::i32, {batch}, static_cast<double>(steps))
                    .output(dtype, h)
                    .output(dtype, state)
                    .output(dtype, state)
                    .output(dtype, h)
                    .output(gates, all)
                    .take());
  out.push_back(Maker("lltm_sequence_backward", note)
                    .input(dtype, h)
                    .input(dtype, state)
                    .input(dtype, state)
                    .input(dtype, input)
                    .input(dtype, weights, scale)
                    .absent()
                    .input(dtype, state)
                    .absent()
                    .absent()
                    .input(dtype, h)
                    .absent()
                    .absent()
                    .input(dtype, h)
                    .input(gates, all)
                    .output(dtype, input)
                    .output(dtype, weights)
                    .output(dtype, {3 * states})
                    .output(dtype, state)
                    .output(dtype, state)
                    .unwanted()
                    .take());
  return out;
}

namespace {

std::vector<LaterOp::Make>& later_ops() {
  static std::vector<LaterOp::Make> all;
  return all;
}

}  // namespace

LaterOp::LaterOp(Make make) { later_ops().push_back(make); }

std::vector<Example> later_examples(DType dtype, int64_t rows, int64_t columns) {
  std::vector<Example> all;
  for (const LaterOp::Make make : later_ops()) all.push_back(make(dtype, rows, columns));
  return all;
}

std::vector<Example> large_examples(DType dtype) {
  std::vector<Example> all;
  const auto add = [&](std::vector<Example> more) {
    for (Example& e : more) all.push_back(std::move(e));
  };
  if (!is_float(dtype)) return elementwise_examples(dtype, 301, 167);
  add(conv1d_examples(dtype, 1, 1, 1, 20011, 9, 1));
  add(conv1d_examples(dtype, 2, 16, 16, 1501, 4, 16));
  add(conv1d_examples(dtype, 3, 33, 34, 151, 3, 1));
  add(elementwise_examples(dtype, 301, 167));
  add(lltm_examples(dtype, 65, 40, 33));
  add(lltm_sequence_examples(dtype, 3, 65, 40, 33));
  add(later_examples(dtype, 301, 167));
  return all;
}

}  // namespace narrows::test
