// SPDX-License-Identifier: Apache-2.0
// elementwise_gradient_special.cpp -- gradients at kinks, ties, poles, infinities and NaN: as torch 2.13 gives them, written out.
// Where torch gives NaN for a limit that exists (gelu at infinity and the like), and for logaddexp at equal infinities, as
// docs/ops.md says.
#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "elementwise_cases.h"

using namespace narrows::test;
using narrows::reference::function;

namespace {

constexpr Exact NaN = kNaN, inf = kInf;
constexpr int64_t kLanes = 19;
const Tolerance kNear{.ulps = 2};

// rows: operands, then the gradient of each, for this grad_out. Every row in every lane of a vector once.
void check_rows(int32_t number, const std::vector<std::vector<Exact>>& rows, double g = 1) {
  const Function& f = function(number);
  const auto n = kLanes * static_cast<int64_t>(rows.size());
  for (const DType dtype : kFloatDTypes) {
    const auto column = [&](int k) {
      std::vector<Exact> values;
      for (int64_t i = 0; i < n; ++i) values.push_back(rows[i % rows.size()].at(k));
      return values;
    };
    Tensor grad_out(dtype, {n});
    grad_out.set(std::vector<double>(n, g));
    std::vector<std::unique_ptr<Tensor>> operands, gradients;
    std::vector<const Tensor*> inputs{&grad_out};
    std::vector<Tensor*> outputs(3, nullptr);
    for (int i = 0; i < f.operands; ++i) {
      operands.push_back(std::make_unique<Tensor>(dtype, Shape{n}));
      operands[i]->set(column(i));
      inputs.push_back(operands[i].get());
      gradients.push_back(std::make_unique<Tensor>(dtype, Shape{n}));
      outputs[i] = gradients[i].get();
    }
    for (const char* kernel : kernels("elementwise_backward")) {
      const Result result = run("elementwise_backward", inputs, outputs, params_for(f), kernel, 0, f.name);
      if (result.was_declined()) continue;
      for (int i = 0; i < f.operands; ++i) expect_close(result, *gradients[i], column(f.operands + i), kNear);
    }
  }
}

}  // namespace

TEST_CASE("special gradients: kinks", "[elementwise][backward][special]") {
  check_rows(NW_EW_ABS, {{0, 0}, {-0.0L, 0}, {1, 1}, {-1, -1}, {inf, 1}, {-inf, -1}, {NaN, NaN}});
  check_rows(NW_EW_RELU, {{0, 0}, {-0.0L, 0}, {1, 1}, {-1, 0}, {inf, 1}, {-inf, 0}, {NaN, 1}});
  check_rows(NW_EW_ELU, {{0, kAlpha}, {-0.0L, kAlpha}, {1, 1}, {inf, 1}, {-inf, 0}, {-1000, 0}, {1000, 1}, {NaN, 1}});
  for (const int32_t number : {NW_EW_SIGN, NW_EW_FLOOR, NW_EW_CEIL, NW_EW_ROUND, NW_EW_TRUNC})
    check_rows(number, {{0, 0}, {1, 0}, {-1.5L, 0}, {inf, 0}, {-inf, 0}, {NaN, 0}});
}

TEST_CASE("special gradients: poles and ends of the domain", "[elementwise][backward][special]") {
  check_rows(NW_EW_SQRT, {{0, inf}, {1, 0.5L}, {-1, NaN}, {inf, 0}, {NaN, NaN}});
  check_rows(NW_EW_RSQRT, {{1, -0.5L}, {-1, NaN}, {inf, 0}, {NaN, NaN}});
  check_rows(NW_EW_LOG, {{0, inf}, {-0.0L, -inf}, {1, 1}, {inf, 0}, {NaN, NaN}});
  check_rows(NW_EW_LOG1P, {{0, 1}, {-1, inf}, {1, 0.5L}, {inf, 0}, {NaN, NaN}});
  check_rows(NW_EW_ASIN, {{0, 1}, {1, inf}, {-1, inf}, {2, NaN}, {NaN, NaN}});
  check_rows(NW_EW_ACOS, {{0, -1}, {1, -inf}, {-1, -inf}, {2, NaN}, {NaN, NaN}});
  check_rows(NW_EW_ACOSH, {{1, inf}, {inf, 0}, {0, NaN}, {NaN, NaN}});
  check_rows(NW_EW_ATANH, {{0, 1}, {1, inf}, {-1, inf}, {NaN, NaN}});
  check_rows(NW_EW_RECIPROCAL, {{0, -inf}, {1, -1}, {-1, -1}, {inf, 0}, {NaN, NaN}});
}

TEST_CASE("special gradients: saturation", "[elementwise][backward][special]") {
  check_rows(NW_EW_EXP, {{inf, inf}, {-inf, 0}, {0, 1}, {NaN, NaN}, {1000, inf}, {-1000, 0}});
  check_rows(NW_EW_EXPM1, {{inf, inf}, {-inf, 0}, {0, 1}, {NaN, NaN}});
  check_rows(NW_EW_TANH, {{inf, 0}, {-inf, 0}, {0, 1}, {NaN, NaN}, {1000, 0}, {-1000, 0}});
  check_rows(NW_EW_SIGMOID, {{inf, 0}, {-inf, 0}, {0, 0.25L}, {NaN, NaN}, {1000, 0}, {-1000, 0}});
  check_rows(NW_EW_SOFTPLUS, {{inf, 1}, {-inf, 0}, {0, 0.5L}, {NaN, NaN}, {1000, 1}, {-1000, 0}});
  for (const int32_t number : {NW_EW_GELU, NW_EW_GELU_TANH, NW_EW_SILU})
    check_rows(number, {{0, 0.5L}, {NaN, NaN}, {1000, 1}, {-1000, 0}, {inf, 1}, {-inf, 0}});
  for (const int32_t number : {NW_EW_ERF, NW_EW_ERFC}) check_rows(number, {{inf, 0}, {-inf, 0}, {NaN, NaN}, {1000, 0}});
  check_rows(NW_EW_SINC, {{0, 0}, {-0.0L, 0}, {inf, 0}, {-inf, 0}, {NaN, NaN}, {1, -1}, {-1, 1}, {2, 0.5L}, {60000, 1 / 60000.0L}});
  check_rows(NW_EW_ATAN, {{inf, 0}, {-inf, 0}, {0, 1}, {NaN, NaN}});
  check_rows(NW_EW_ASINH, {{inf, 0}, {-inf, 0}, {0, 1}, {NaN, NaN}});
  check_rows(NW_EW_COSH, {{inf, inf}, {-inf, -inf}, {0, 0}, {NaN, NaN}});
  check_rows(NW_EW_SINH, {{inf, inf}, {-inf, inf}, {0, 1}, {NaN, NaN}});
  check_rows(NW_EW_SIN, {{inf, NaN}, {0, 1}, {NaN, NaN}});
  check_rows(NW_EW_TAN, {{inf, NaN}, {0, 1}, {NaN, NaN}});
}

TEST_CASE("special gradients: ties of maximum, minimum and clamp", "[elementwise][backward][special]") {
  check_rows(NW_EW_MAXIMUM, {{1, 1, 0.5L, 0.5L},
                             {0, -0.0L, 0.5L, 0.5L},
                             {inf, inf, 0.5L, 0.5L},
                             {2, 1, 1, 0},
                             {1, 2, 0, 1},
                             {-inf, 1, 0, 1},
                             {NaN, 1, 1, 1},
                             {1, NaN, 1, 1},
                             {NaN, NaN, 1, 1}});
  check_rows(NW_EW_MINIMUM, {{1, 1, 0.5L, 0.5L},
                             {0, -0.0L, 0.5L, 0.5L},
                             {-inf, -inf, 0.5L, 0.5L},
                             {2, 1, 0, 1},
                             {1, 2, 1, 0},
                             {-inf, 1, 1, 0},
                             {NaN, 1, 1, 1},
                             {1, NaN, 1, 1},
                             {NaN, NaN, 1, 1}});
  check_rows(NW_EW_CLAMP, {{0, 0, 1, 1, 0, 0},
                           {1, 0, 1, 1, 0, 0},
                           {0.5L, 0, 1, 1, 0, 0},
                           {-1, 0, 1, 0, 1, 0},
                           {2, 0, 1, 0, 0, 1},
                           {5, 3, 2, 0, 0, 1},
                           {1, 3, 2, 0, 0, 1},
                           {1, 1, 1, 1, 0, 0},
                           {0, 1, 1, 0, 0, 1},
                           {2, 1, 1, 0, 0, 1},
                           {NaN, 0, 1, 0, 0, 0},
                           {NaN, 3, 2, 0, 0, 1},
                           {0.5L, NaN, 1, 0, 0, 0},
                           {2, NaN, 1, 0, 0, 1},
                           {0.5L, 0, NaN, 0, 0, 0},
                           {-1, 0, NaN, 0, 0, 0},
                           {NaN, NaN, NaN, 0, 0, 0}});
}

TEST_CASE("special gradients: pow", "[elementwise][backward][special]") {
  check_rows(NW_EW_POW, {{0, 0, 0, 0},
                         {1, 1, 1, 0},
                         {0, 2, 0, 0},
                         {0, -1, -inf, -inf},
                         {2, 0, 0, std::log(2.0L)},
                         {-2, 0, 0, NaN},
                         {-2, 3, 12, NaN},
                         {-2, 1.5L, NaN, NaN},
                         {0, 0.5L, inf, 0},
                         {0, 1, 1, 0},
                         {0.5L, inf, 0, 0},
                         {2, -inf, 0, 0},
                         {0, inf, 0, 0},
                         {inf, -1, 0, 0},
                         {inf, -inf, 0, 0},
                         {inf, 0, 0, inf}});
}

TEST_CASE("special gradients: quotients", "[elementwise][backward][special]") {
  check_rows(NW_EW_DIV,
             {{1, 0, inf, -inf}, {-2, 0, inf, inf}, {0, 0, inf, NaN}, {0, 2, 0.5L, 0}, {1, inf, 0, 0}, {inf, 1, 1, -inf}});
  // By 0, and of an infinite a, both are NaN themselves, and so is this gradient (by 0 torch gives the infinity of its formula).
  check_rows(NW_EW_FMOD, {{2, 0, 1, NaN}, {5, 2, 1, -2}, {-2, 1.5L, 1, 1}, {1, inf, 1, 0}, {-3, inf, 1, 0}, {inf, 2, 1, NaN}});
  check_rows(NW_EW_REMAINDER, {{2, 0, 1, NaN},
                               {5, 2, 1, -2},
                               {-2, 1.5L, 1, 2},
                               {-6, 2, 1, 3},
                               {1, inf, 1, 0},
                               {-1, -inf, 1, 0},
                               {-3, inf, 1, 1},
                               {3, -inf, 1, 1},
                               {0, -inf, 1, 0},
                               {inf, 2, 1, NaN},
                               {NaN, 2, 1, NaN},
                               {2, NaN, 1, NaN}});
  check_rows(NW_EW_COPYSIGN,
             {{0, 1, 0, 0}, {0, -1, 0, 0}, {2, -1, -1, 0}, {-2, -1, 1, 0}, {-2, 0, -1, 0}, {NaN, 1, NaN, 0}, {NaN, -1, NaN, 0}});
  check_rows(NW_EW_HYPOT, {{0, 2, 0, 1}, {-2, 0, -1, 0}, {-3, 4, -0.6L, 0.8L}, {NaN, 1, NaN, NaN}, {0, 0, NaN, NaN}});
  check_rows(NW_EW_ATAN2, {{1, 1, 0.5L, -0.5L}, {0, 2, 0.5L, 0}, {2, 0, 0, -0.5L}, {0, -1, -1, 0}, {NaN, 1, NaN, NaN}});
}

TEST_CASE("special gradients: atan2 at the origin", "[elementwise][backward][special]") {
  check_rows(NW_EW_ATAN2, {{0, 0, 0, 0}, {-0.0L, 0, 0, 0}, {0, -0.0L, 0, 0}, {-0.0L, -0.0L, 0, 0}});
}

TEST_CASE("special gradients: atan2 and hypot of infinities", "[elementwise][backward][special]") {
  check_rows(NW_EW_ATAN2,
             {{inf, 1, 0, 0}, {-1, inf, 0, 0}, {inf, inf, 0, 0}, {-inf, inf, 0, 0}, {0, -inf, 0, 0}, {inf, NaN, NaN, NaN}});
  check_rows(NW_EW_HYPOT, {{inf, 1, 1, 0}, {-inf, 0, -1, 0}, {1, inf, 0, 1}, {2, -inf, 0, -1}});
}

TEST_CASE("special gradients: logaddexp of infinities", "[elementwise][backward][special]") {
  check_rows(NW_EW_LOGADDEXP, {{0, 0, 0.5L, 0.5L},
                               {inf, 1, 1, 0},
                               {1, inf, 0, 1},
                               {-inf, 1, 0, 1},
                               {1, -inf, 1, 0},
                               {-inf, inf, 0, 1},
                               {inf, inf, 0.5L, 0.5L},
                               {-inf, -inf, 0.5L, 0.5L},
                               {NaN, 1, NaN, NaN},
                               {-inf, NaN, NaN, NaN}});
}

TEST_CASE("special gradients: a grad_out of 0", "[elementwise][backward][special]") {
  for (const int32_t number : {NW_EW_EXP, NW_EW_EXP2, NW_EW_EXPM1, NW_EW_SINH, NW_EW_COSH})
    check_rows(number, {{1000, 0}, {-1000, 0}, {60000, 0}, {inf, NaN}, {NaN, NaN}}, 0);
  for (const int32_t number :
       {NW_EW_GELU, NW_EW_GELU_TANH, NW_EW_SILU, NW_EW_SIGMOID, NW_EW_TANH, NW_EW_SOFTPLUS, NW_EW_ERF, NW_EW_ERFC})
    check_rows(number, {{1000, 0}, {-1000, 0}, {60000, 0}, {-60000, 0}, {inf, 0}, {-inf, 0}, {NaN, NaN}}, 0);
  for (const int32_t number : {NW_EW_LOG, NW_EW_LOG2, NW_EW_LOG10, NW_EW_SQRT, NW_EW_RSQRT, NW_EW_CBRT, NW_EW_RECIPROCAL})
    check_rows(number, {{0, NaN}, {1, 0}, {inf, 0}, {NaN, NaN}}, 0);
  check_rows(NW_EW_MUL, {{inf, 2, 0, NaN}, {3, NaN, NaN, 0}}, 0);
  check_rows(NW_EW_DIV, {{1, 0, NaN, NaN}, {inf, 1, 0, NaN}, {1, inf, 0, 0}}, 0);
  check_rows(NW_EW_POW, {{0.5L, -60000, 0, 0}, {2, 60000, 0, 0}, {0, -1, NaN, NaN}, {inf, -1, 0, 0}}, 0);
  check_rows(NW_EW_LOGADDEXP, {{-inf, -inf, 0, 0}, {inf, inf, 0, 0}, {60000, -60000, 0, 0}}, 0);
}

TEST_CASE("special gradients: where does not let the other branch's NaN through", "[elementwise][backward][special]") {
  Tensor g(DType::f32, {3}), a(DType::boolean, {3}), b(DType::f32, {3}), c(DType::f32, {3}), grad_b(DType::f32, {3}),
      grad_c(DType::f32, {3});
  g.set(std::vector<Exact>{1, NaN, inf});
  a.set(std::vector<double>{1, 0, 1});
  b.set(std::vector<Exact>{1, NaN, inf});
  c.set(std::vector<Exact>{NaN, 1, NaN});
  for (const char* kernel : kernels("elementwise_backward")) {
    const Result result = run("elementwise_backward", {&g, &a, &b, &c}, {nullptr, &grad_b, &grad_c},
                              params_for(function(NW_EW_WHERE)), kernel, 0, "where");
    if (result.was_declined()) continue;
    expect_close(result, grad_b, std::vector<Exact>{1, 0, inf}, kExact);
    expect_close(result, grad_c, std::vector<Exact>{0, NaN, 0}, kExact);
  }
}
