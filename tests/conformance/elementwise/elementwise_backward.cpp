// SPDX-License-Identifier: Apache-2.0
// elementwise_backward.cpp -- gradients of every differentiable function: against the derivatives of the reference, against
// finite differences of the forward op itself, summed over broadcast axes, absent gradients, and at kinks and poles as torch
// has them.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "conformance/threads.h"
#include "elementwise_cases.h"

using namespace narrows::test;
using narrows::reference::broadcast_shape;
using narrows::reference::broadcast_to;
using narrows::reference::function;
using narrows::reference::Partials;
using narrows::reference::sum_to;

namespace {

struct Range {
  double low, high;
};

// Where the derivative is smooth and no term of it cancels by more than a few bits.
Range smooth_domain(const Function& f, int operand) {
  switch (f.number) {
    case NW_EW_SQRT:
    case NW_EW_RSQRT:
    case NW_EW_LOG:
    case NW_EW_LOG2:
    case NW_EW_LOG10: return {0.2, 9};
    case NW_EW_LOG1P: return {-0.8, 9};
    case NW_EW_ACOSH: return {1.2, 9};
    case NW_EW_ASIN:
    case NW_EW_ACOS:
    case NW_EW_ATANH: return {-0.9, 0.9};
    case NW_EW_TAN: return {-1.2, 1.2};
    case NW_EW_POW: return operand == 0 ? Range{0.3, 3} : Range{-3, 3};
    case NW_EW_CBRT:
    case NW_EW_RECIPROCAL: return {0.3, 9};
    case NW_EW_DIV:
    case NW_EW_FMOD:
    case NW_EW_REMAINDER:
    case NW_EW_ATAN2:
    case NW_EW_HYPOT: return operand == 0 ? Range{-4, 4} : Range{0.7, 3};
    default: return {-3, 3};
  }
}

bool has_gradient(const Function& f, int operand) { return !(f.number == NW_EW_WHERE && operand == 0); }

Exact norm(const std::vector<Exact>& values) {
  Exact sum = 0;
  for (const Exact v : values) sum += v * v;
  return std::sqrt(sum);
}

void for_each_differentiable(const std::function<void(const Function&)>& body) {
  for (const Function& f : functions())
    if (f.gradient != nullptr && f.number != NW_EW_CAST) body(f);
}

// A backward call: the forward's operands, the gradient that comes in, those that go out.
struct Backward {
  const Function& f;
  DType dtype;
  std::vector<std::unique_ptr<Tensor>> operands, gradients;
  std::unique_ptr<Tensor> grad_out;
  Shape out;

  Backward(const Function& function, DType type, const std::vector<Shape>& shapes, const std::vector<Layout>& layouts,
           const Layout& grad_layout)
      : f(function), dtype(type), out(shapes[0]) {
    Rng rng("backward", static_cast<uint64_t>(f.number));
    for (int i = 0; i < f.operands; ++i) {
      out = broadcast_shape(out, shapes[i]);
      operands.push_back(std::make_unique<Tensor>(operand_dtype(f, i, dtype), shapes[i], layouts[i]));
      const Range range = smooth_domain(f, i);
      operands[i]->fill_uniform(rng, range.low, range.high);
      gradients.push_back(has_gradient(f, i) ? std::make_unique<Tensor>(dtype, shapes[i], grad_layout) : nullptr);
    }
    grad_out = std::make_unique<Tensor>(dtype, out, grad_layout);
    grad_out->fill_uniform(rng, -2, 2);
  }

  Result run(const char* kernel, const Tensor* saved_out = nullptr, uint32_t flags = 0) {
    std::vector<const Tensor*> inputs{grad_out.get(), nullptr, nullptr, nullptr, saved_out};
    std::vector<Tensor*> outputs(3, nullptr);
    for (int i = 0; i < f.operands; ++i) {
      inputs[i + 1] = operands[i].get();
      outputs[i] = gradients[i].get();
    }
    return narrows::test::run("elementwise_backward", inputs, outputs, params_for(f), kernel, flags, f.name);
  }

  // grad_out * d out / d operand for every element of the output, or its magnitude.
  std::vector<Exact> terms(int operand, bool magnitude) const {
    std::vector<Exact> values[3];
    for (int i = 0; i < f.operands; ++i) values[i] = broadcast_to(operands[i]->exact(), operands[i]->shape(), out);
    std::vector<Exact> result = grad_out->exact();
    for (size_t i = 0; i < result.size(); ++i) {
      const Partials p = f.gradient({values[0][i], f.operands > 1 ? values[1][i] : 0, f.operands > 2 ? values[2][i] : 0, kAlpha});
      result[i] *= operand == 0 ? p.a : operand == 1 ? p.b : p.c;
      if (magnitude) result[i] = std::fabs(result[i]);
    }
    return result;
  }

  // 16 units: a derivative is up to a dozen rounded steps on one or two library calls. Beyond that, as the magnitude of the
  // terms demands: what cancels inside a derivative (1 - tanh^2) or in a sum, in the precision that sums are made in.
  void check(const Result& result) const {
    const Exact step = epsilon(dtype == DType::f64 ? DType::f64 : DType::f32);
    const bool half = dtype == DType::f16 || dtype == DType::bf16;
    for (int i = 0; i < f.operands; ++i) {
      if (gradients[i] == nullptr) continue;
      const Shape& shape = operands[i]->shape();
      const auto magnitudes = sum_to(terms(i, true), out, shape), reference = sum_to(terms(i, false), out, shape);
      const Exact largest_sum = magnitudes.empty() ? 0 : *std::max_element(magnitudes.begin(), magnitudes.end());
      const Exact cancelled = norm(reference) == 0 ? 0 : norm(magnitudes) / norm(reference);
      const Tolerance t{.atol = static_cast<double>(16 * step * std::fmax(largest_sum, 2)),
                        .ulps = half ? 0.75 : 16.0,
                        .l2 = static_cast<double>(epsilon(dtype) + 8 * step * std::fmax(cancelled, 1))};
      expect_close(result, *gradients[i], reference, t);
    }
  }
};

Backward same_shape(const Function& f, DType dtype, const Shape& shape, const Layout& layout = {}, const Layout& grad_layout = {}) {
  return Backward(f, dtype, std::vector<Shape>(f.operands, shape), std::vector<Layout>(f.operands, layout), grad_layout);
}

void check_on_all_kernels(Backward& call) {
  for (const char* kernel : kernels("elementwise_backward")) {
    const Result result = call.run(kernel);
    if (!result.was_declined()) call.check(result);
  }
}

}  // namespace

TEST_CASE("elementwise_backward: the reference's derivatives are those of its functions", "[elementwise][backward]") {
  for_each_differentiable([](const Function& f) {
    Rng rng("derivatives", static_cast<uint64_t>(f.number));
    for (int trial = 0; trial < 200; ++trial) {
      Exact x[3];
      for (int i = 0; i < 3; ++i) x[i] = rng.uniform(smooth_domain(f, i).low, smooth_domain(f, i).high);
      if (f.number == NW_EW_WHERE) x[0] = static_cast<Exact>(rng.bits() & 1);
      const Partials p = f.gradient({x[0], x[1], x[2], kAlpha});
      for (int i = 0; i < f.operands; ++i) {
        if (!has_gradient(f, i)) continue;
        const Exact h = 0x1p-20L;
        const auto at = [&](Exact shift) {
          Exact y[3] = {x[0], x[1], x[2]};
          y[i] += shift;
          return f.real({y[0], y[1], y[2], kAlpha});
        };
        const Exact left = (at(0) - at(-h)) / h, right = (at(h) - at(0)) / h;
        if (std::fabs(left - right) > 1e-3L * (1 + std::fabs(left))) continue;  // a kink or a jump lies between
        const Exact wanted = i == 0 ? p.a : i == 1 ? p.b : p.c, slope = (left + right) / 2;
        if (!(std::fabs(slope - wanted) <= 1e-8L * (1 + std::fabs(wanted))))
          FAIL_CHECK(f.name << " operand " << i << ": " << wanted << " against " << slope);
      }
    }
    SUCCEED();
  });
}

TEST_CASE("elementwise_backward: every function on every floating dtype", "[elementwise][backward]") {
  for_each_differentiable([](const Function& f) {
    for (const DType dtype : kFloatDTypes) {
      Backward call = same_shape(f, dtype, {1031});
      check_on_all_kernels(call);
    }
  });
}

TEST_CASE("elementwise_backward: agrees with finite differences of the forward op in f64", "[elementwise][backward]") {
  for_each_differentiable([](const Function& f) {
    const int64_t n = 97;
    const double h = 0x1p-17;  // error h^2 of the formula, 2^-52/h of rounding: about 1e-10
    Backward call = same_shape(f, DType::f64, {n});
    expect_ok(call.run(nullptr));
    std::vector<const Tensor*> operands;
    for (const auto& t : call.operands) operands.push_back(t.get());
    Tensor y(DType::f64, {n});
    const auto forward_at = [&](int operand, double shift) {
      const std::vector<double> kept = call.operands[operand]->values();
      std::vector<double> moved = kept;
      for (double& v : moved) v += shift;
      call.operands[operand]->set(moved);
      expect_ok(run_function(f, operands, y));
      call.operands[operand]->set(kept);
      return y.values();
    };
    const std::vector<double> g = call.grad_out->values();
    for (int i = 0; i < f.operands; ++i) {
      if (!has_gradient(f, i)) continue;
      const auto low = forward_at(i, -h), middle = forward_at(i, 0), high = forward_at(i, h),
                 gradient = call.gradients[i]->values();
      int64_t compared = 0;
      for (int64_t k = 0; k < n; ++k) {
        const double left = (middle[k] - low[k]) / h, right = (high[k] - middle[k]) / h;
        if (std::fabs(left - right) > 1e-2 * (1 + std::fabs(left))) continue;  // a kink or a jump lies between
        ++compared;
        const double slope = (high[k] - low[k]) / (2 * h) * g[k];
        if (!(std::fabs(slope - gradient[k]) <= 1e-7 * (1 + std::fabs(slope))))
          FAIL_CHECK(f.name << " operand " << i << " element " << k << ": gradient " << gradient[k] << ", finite difference "
                            << slope);
      }
      CHECK(compared > n / 2);
    }
  });
}

TEST_CASE("elementwise_backward: sizes and layouts", "[elementwise][backward]") {
  for (const int32_t number : {NW_EW_TANH, NW_EW_ABS, NW_EW_MUL, NW_EW_DIV, NW_EW_WHERE, NW_EW_FMA}) {
    for (const DType dtype : kFloatDTypes) {
      for (const int64_t n : {0, 1, 3, 7, 8, 15, 17, 33, 65, 127, 1026}) {
        Backward call = same_shape(function(number), dtype, {n});
        check_on_all_kernels(call);
      }
      for (const Layout& layout : all_layouts(2, dtype)) {
        Backward strided_inputs = same_shape(function(number), dtype, {5, 23}, layout);
        check_on_all_kernels(strided_inputs);
        Backward strided_gradients = same_shape(function(number), dtype, {5, 23}, {}, layout);
        check_on_all_kernels(strided_gradients);
      }
      Backward scalar = same_shape(function(number), dtype, {});
      check_on_all_kernels(scalar);
    }
  }
}

TEST_CASE("elementwise_backward: stride 0 in grad_out, as the gradient of a sum has, and in the operands",
          "[elementwise][backward]") {
  for (const int32_t number : {NW_EW_TANH, NW_EW_MUL, NW_EW_DIV, NW_EW_WHERE, NW_EW_FMA}) {
    for (const DType dtype : kFloatDTypes) {
      for (const auto& axes : {std::vector<bool>{true, false}, {false, true}, {true, true}}) {
        Rng rng("stride 0");
        Backward call = same_shape(function(number), dtype, {6, 35});
        call.grad_out = std::make_unique<Tensor>(dtype, Shape{6, 35}, Layout::broadcast(axes));
        call.grad_out->fill_uniform(rng, -2, 2);
        check_on_all_kernels(call);
        Backward operands = same_shape(function(number), dtype, {6, 35}, Layout::broadcast(axes));
        check_on_all_kernels(operands);
      }
    }
  }
}

TEST_CASE("elementwise_backward: transposed matrices with rows and columns left over from blocks", "[elementwise][backward]") {
  const Layout transposed = Layout::transposed();
  for (const DType dtype : kFloatDTypes) {
    for (const int32_t number : {NW_EW_MUL, NW_EW_WHERE, NW_EW_CLAMP, NW_EW_POW}) {
      for (const Shape& shape : {Shape{45, 150}, Shape{2, 33, 70}}) {
        const auto shapes = std::vector<Shape>(function(number).operands, shape);
        Backward operand(function(number), dtype, shapes, {Layout{}, transposed, transposed}, {});
        check_on_all_kernels(operand);
        Backward gradients = same_shape(function(number), dtype, shape, {}, transposed);
        check_on_all_kernels(gradients);
        Backward incoming = same_shape(function(number), dtype, shape);
        Rng rng("incoming");
        incoming.grad_out = std::make_unique<Tensor>(dtype, shape, transposed);
        incoming.grad_out->fill_uniform(rng, -2, 2);
        check_on_all_kernels(incoming);
      }
    }
  }
}

TEST_CASE("elementwise_backward: eight to sixteen dimensions, also where they do not collapse", "[elementwise][backward]") {
  for (const DType dtype : {DType::f32, DType::f16}) {
    Backward eight(function(NW_EW_MUL), dtype, {{2, 3, 2, 3, 2, 1, 2, 3}, {3, 1, 3, 2, 3, 2, 1}},
                   {Layout::with_steps({2, 3, 2, -2, 2, 3, -2, 2}), Layout::transposed()}, Layout::strided(2));
    check_on_all_kernels(eight);
    Backward sixteen = same_shape(function(NW_EW_MUL), dtype, Shape(16, 2));
    check_on_all_kernels(sixteen);
    for (const size_t rank : {size_t{9}, size_t{16}}) {
      Backward scattered(function(NW_EW_MUL), dtype, {Shape(rank, 2), Shape(rank, 2)}, {Layout::transposed(), Layout{}}, {});
      check_on_all_kernels(scattered);
    }
  }
}

TEST_CASE("elementwise_backward: sums over the axes that an operand was broadcast along", "[elementwise][backward]") {
  const std::vector<std::vector<Shape>> cases = {
      {{16, 128}, {128}, {1}},   {{5, 1}, {1, 37}, {5, 37}}, {{}, {33}, {1, 1}},
      {{3, 1, 5}, {4, 1}, {5}},  {{1}, {4099}, {4099}},      {{4099}, {1}, {}},
      {{300, 7}, {7}, {300, 1}}, {{7, 300}, {7, 1}, {300}},  {{2, 1, 3, 1}, {5, 1, 19}, {2, 1, 1, 1}},
      {{0, 3}, {1, 3}, {3}},     {{1, 3}, {0, 3}, {}}};
  for (const auto& shapes : cases) {
    for (const int32_t number : {NW_EW_ADD, NW_EW_MUL, NW_EW_DIV, NW_EW_FMA, NW_EW_WHERE}) {
      for (const DType dtype : kFloatDTypes) {
        Backward plain(function(number), dtype, shapes, std::vector<Layout>(3), {});
        check_on_all_kernels(plain);
        Backward strided(function(number), dtype, shapes, {Layout::transposed(), Layout::strided(2), Layout::reversed()},
                         Layout::strided(2));
        check_on_all_kernels(strided);
      }
    }
  }
}

TEST_CASE("elementwise_backward: a long sum keeps the accuracy of f32", "[elementwise][backward]") {
  // 0.13 summed in f16 stops growing at 256, in bf16 at 32; one term after the other f32 drifts by 7e-4 of the sum and f64 by
  // 2e-12. Sums of parts, and those that keep what rounding took, are a few units off, the products' own rounding included.
  const int64_t n = 100003;
  for (const DType dtype : kFloatDTypes) {
    Tensor g(dtype, {n}), a(dtype, {1}), b(dtype, {n}), grad_a(dtype, {1});
    g.set(std::vector<double>(n, 0.1));
    a.set(std::vector<double>{1});
    b.set(std::vector<double>(n, 1.3));
    const Exact sum = n * g.exact()[0] * b.exact()[0];
    const Tolerance tolerance{.rtol = dtype == DType::f64 ? 0x1p-48 : 1e-6, .ulps = 0.75};
    for (const char* kernel : kernels("elementwise_backward")) {
      const Result result =
          run("elementwise_backward", {&g, &a, &b}, {&grad_a, nullptr, nullptr}, params_for(function(NW_EW_MUL)), kernel, 0, "mul");
      if (!result.was_declined()) expect_close(result, grad_a, std::vector<Exact>{sum}, tolerance);
    }
  }
}

TEST_CASE("elementwise_backward: gradients that are not wanted, a scalar operand, out given", "[elementwise][backward]") {
  const Function& f = function(NW_EW_DIV);
  for (const DType dtype : kFloatDTypes) {
    for (int wanted = 0; wanted < 4; ++wanted) {
      Backward call = same_shape(f, dtype, {67});
      if ((wanted & 1) == 0) call.gradients[0].reset();
      if ((wanted & 2) == 0) call.gradients[1].reset();
      check_on_all_kernels(call);
    }
    Backward call = same_shape(f, dtype, {67});
    Tensor y(dtype, {67});
    expect_ok(run_function(f, {call.operands[0].get(), call.operands[1].get()}, y));
    call.check(call.run(nullptr, &y));
    nw_elementwise_params p = params_for(f);
    p.b_real = 2.5;
    Tensor grad_a(dtype, {67});
    const Result result = run("elementwise_backward", {call.grad_out.get(), call.operands[0].get()}, {&grad_a, nullptr, nullptr}, p,
                              nullptr, 0, "div by 2.5");
    std::vector<Exact> reference = call.grad_out->exact();
    for (Exact& v : reference) v /= 2.5L;
    expect_close(result, grad_a, reference, {.ulps = 1.5});
  }
}

// It is an input for plugins' own ops to read: what this op makes of the operands is right whatever `out` holds.
TEST_CASE("elementwise_backward: nothing depends on out", "[elementwise][backward]") {
  for (const int32_t number : {NW_EW_EXP, NW_EW_SQRT, NW_EW_TANH, NW_EW_SIGMOID, NW_EW_RECIPROCAL, NW_EW_DIV, NW_EW_HYPOT}) {
    for (const DType dtype : kFloatDTypes) {
      Rng rng("garbage for out");
      Backward call = same_shape(function(number), dtype, {67});
      Tensor out(dtype, {67});
      out.fill_bits(rng);
      for (const char* kernel : kernels("elementwise_backward")) {
        const Result result = call.run(kernel, &out);
        if (!result.was_declined()) call.check(result);
      }
    }
  }
}

TEST_CASE("elementwise_backward: an absent grad_out is a zero gradient", "[elementwise][backward]") {
  for_each_differentiable([](const Function& f) {
    for (const DType dtype : {DType::f32, DType::f16}) {
      Backward call = same_shape(f, dtype, {5, 13});
      call.grad_out.reset();
      for (const char* kernel : kernels("elementwise_backward")) {
        const Result result = call.run(kernel);
        if (result.was_declined()) continue;
        for (const auto& gradient : call.gradients)
          if (gradient != nullptr) expect_close(result, *gradient, std::vector<double>(65, 0), {});
      }
    }
  });
}

TEST_CASE("elementwise_backward: cast gives the gradient back in the operand's dtype", "[elementwise][backward]") {
  for (const DType from : kFloatDTypes) {
    for (const DType to : kFloatDTypes) {
      Rng rng("cast gradient");
      nw_elementwise_params p{};
      p.function = NW_EW_CAST;
      p.out_dtype = static_cast<int32_t>(to);
      Tensor g(to, {131}), a(from, {131}), grad_a(from, {131});
      g.fill_uniform(rng, -100, 100);
      a.fill_uniform(rng, -1, 1);
      for (const char* kernel : kernels("elementwise_backward")) {
        const Result result = run("elementwise_backward", {&g, &a}, {&grad_a, nullptr, nullptr}, p, kernel, 0, "cast");
        if (!result.was_declined()) expect_close(result, grad_a, g.exact(), {.ulps = 0.5});
      }
    }
  }
}

TEST_CASE("elementwise_backward: the same bits twice with NW_DETERMINISTIC", "[elementwise][backward]") {
  for (const DType dtype : kFloatDTypes) {
    Backward call(function(NW_EW_MUL), dtype, {{301, 67}, {67}}, {Layout{}, Layout{}}, {});
    for (const char* kernel : kernels("elementwise_backward"))
      for (const uint32_t flags : {uint32_t{0}, uint32_t{NW_DETERMINISTIC}}) {
        const Result first = call.run(kernel, nullptr, flags);
        if (first.was_declined()) continue;
        expect_ok(first);
        if (!first.promises_same_bits()) continue;
        const auto a = call.gradients[0]->element_bytes(), b = call.gradients[1]->element_bytes();
        expect_ok(call.run(kernel, nullptr, flags));
        CHECK(call.gradients[0]->element_bytes() == a);
        CHECK(call.gradients[1]->element_bytes() == b);
      }
  }
}

// Sums by rows, of everything, and of few columns, which are many pieces for any number of threads; and products that are not
// summed.
TEST_CASE("elementwise_backward: the same bits again, and on any number of threads", "[elementwise][backward][determinism]") {
  const std::vector<std::vector<Shape>> cases = {{{301, 167}, {167}}, {{1}, {100003}}, {{70001, 3}, {3}}};
  for (const DType dtype : kFloatDTypes)
    for (const auto& shapes : cases) {
      Backward call(function(NW_EW_MUL), dtype, shapes, std::vector<Layout>(2), {});
      expect_same_bits("elementwise_backward", {call.grad_out.get(), call.operands[0].get(), call.operands[1].get()},
                       {call.gradients[0].get(), call.gradients[1].get(), nullptr}, params_for(call.f));
    }
}
