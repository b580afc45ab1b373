// SPDX-License-Identifier: Apache-2.0
// elementwise_special.cpp -- special values by the array API standard's tables, and by ops.md where the standard has no such
// function: NaN, infinities, signed zeros, subnormals, huge arguments. Expectations are written out, not computed.
#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "elementwise_cases.h"

using namespace narrows::test;
using narrows::reference::function;

namespace {

constexpr Exact NaN = kNaN, inf = kInf, zero = 0, minus_zero = Exact(-0.0);
const Exact pi = std::acos(Exact(-1));

struct Unary {
  Exact a, result;
};
struct Binary {
  Exact a, b, result;
};
struct Ternary {
  Exact a, b, c, result;
};

// Every special value stands among ordinary ones, and in every lane of a vector once: a fast path must not swallow it.
constexpr int64_t kLanes = 37;

void check_rows(int32_t number, const std::vector<std::vector<Exact>>& rows, const Tolerance& tolerance = kExact,
                const std::vector<DType>& dtypes = {std::begin(kFloatDTypes), std::end(kFloatDTypes)}) {
  const Function& f = function(number);
  for (const DType dtype : dtypes) {
    std::vector<std::unique_ptr<Tensor>> tensors;
    std::vector<const Tensor*> operands;
    for (int i = 0; i < f.operands; ++i) {
      std::vector<Exact> values;
      for (int64_t lane = 0; lane < kLanes; ++lane)
        for (const auto& row : rows) values.push_back(rounded(dtype, row[i]));
      tensors.push_back(std::make_unique<Tensor>(dtype, Shape{static_cast<int64_t>(values.size())}));
      tensors.back()->set(values);
      operands.push_back(tensors.back().get());
    }
    std::vector<Exact> results;
    for (int64_t lane = 0; lane < kLanes; ++lane)
      for (const auto& row : rows) results.push_back(row[f.operands]);
    Tensor out(narrows::reference::out_dtype(f, dtype), tensors[0]->shape());
    for (const char* kernel : kernels("elementwise")) {
      const Result result = run_function(f, operands, out, kernel);
      if (!result.was_declined()) expect_close(result, out, results, tolerance);
    }
  }
}

void unary(int32_t number, const std::vector<Unary>& rows, const Tolerance& tolerance = kExact) {
  std::vector<std::vector<Exact>> all;
  for (const Unary& r : rows) all.push_back({r.a, r.result});
  check_rows(number, all, tolerance);
}
void binary(int32_t number, const std::vector<Binary>& rows, const Tolerance& tolerance = kExact) {
  std::vector<std::vector<Exact>> all;
  for (const Binary& r : rows) all.push_back({r.a, r.b, r.result});
  check_rows(number, all, tolerance);
}
void ternary(int32_t number, const std::vector<Ternary>& rows) {
  std::vector<std::vector<Exact>> all;
  for (const Ternary& r : rows) all.push_back({r.a, r.b, r.c, r.result});
  check_rows(number, all);
}

// Results that no standard demands exactly, such as pi/2 or log10(1000): within two units, the sign included.
constexpr Tolerance kNear{.ulps = 2, .zero_sign = true};

}  // namespace

// clang-format off: tables, as many rows in a line as fit
TEST_CASE("special values: neg abs sign square", "[elementwise][special]") {
  unary(NW_EW_NEG, {{zero, minus_zero}, {minus_zero, zero}, {inf, -inf}, {-inf, inf}, {NaN, NaN}, {1, -1}});
  unary(NW_EW_ABS, {{minus_zero, zero}, {zero, zero}, {-inf, inf}, {NaN, NaN}, {-3, 3}});
  unary(NW_EW_SIGN, {{minus_zero, zero}, {zero, zero}, {-inf, -1}, {inf, 1}, {NaN, NaN}, {-0x1p-14, -1}, {0x1p-14, 1}});
  unary(NW_EW_SQUARE, {{minus_zero, zero}, {-inf, inf}, {NaN, NaN}, {-3, 9}});
}

TEST_CASE("special values: roots", "[elementwise][special]") {
  unary(NW_EW_SQRT, {{NaN, NaN}, {-1, NaN}, {-inf, NaN}, {zero, zero}, {minus_zero, minus_zero}, {inf, inf}, {9, 3}});
  unary(NW_EW_RSQRT, {{NaN, NaN}, {-1, NaN}, {-inf, NaN}, {zero, inf}, {minus_zero, -inf}, {inf, zero}});
  unary(NW_EW_RSQRT, {{16, 0.25}}, kNear);
  unary(NW_EW_CBRT, {{NaN, NaN}, {zero, zero}, {minus_zero, minus_zero}, {inf, inf}, {-inf, -inf}});
  unary(NW_EW_CBRT, {{-8, -2}, {27, 3}}, kNear);
}

TEST_CASE("special values: exponentials and logarithms", "[elementwise][special]") {
  unary(NW_EW_EXP, {{NaN, NaN}, {zero, 1}, {minus_zero, 1}, {inf, inf}, {-inf, zero}, {60000, inf}, {-60000, zero}});
  unary(NW_EW_EXP2, {{NaN, NaN}, {zero, 1}, {minus_zero, 1}, {inf, inf}, {-inf, zero}, {60000, inf}, {-60000, zero}});
  unary(NW_EW_EXPM1, {{NaN, NaN}, {zero, zero}, {minus_zero, minus_zero}, {inf, inf}, {-inf, -1}, {60000, inf}, {-60000, -1}});
  unary(NW_EW_LOG, {{NaN, NaN}, {-1, NaN}, {-inf, NaN}, {zero, -inf}, {minus_zero, -inf}, {1, zero}, {inf, inf}});
  unary(NW_EW_LOG2, {{NaN, NaN}, {-1, NaN}, {-inf, NaN}, {zero, -inf}, {minus_zero, -inf}, {1, zero}, {inf, inf}});
  unary(NW_EW_LOG10, {{NaN, NaN}, {-1, NaN}, {-inf, NaN}, {zero, -inf}, {minus_zero, -inf}, {1, zero}, {inf, inf}});
  unary(NW_EW_EXP2, {{3, 8}, {-2, 0.25}}, kNear);
  unary(NW_EW_LOG2, {{8, 3}}, kNear);
  unary(NW_EW_LOG10, {{1000, 3}}, kNear);
  unary(NW_EW_LOG1P, {{NaN, NaN}, {-2, NaN}, {-inf, NaN}, {-1, -inf}, {minus_zero, minus_zero}, {zero, zero}, {inf, inf}});
}

TEST_CASE("special values: trigonometric functions", "[elementwise][special]") {
  unary(NW_EW_SIN, {{NaN, NaN}, {zero, zero}, {minus_zero, minus_zero}, {inf, NaN}, {-inf, NaN}});
  unary(NW_EW_COS, {{NaN, NaN}, {zero, 1}, {minus_zero, 1}, {inf, NaN}, {-inf, NaN}});
  unary(NW_EW_TAN, {{NaN, NaN}, {zero, zero}, {minus_zero, minus_zero}, {inf, NaN}, {-inf, NaN}});
  unary(NW_EW_ASIN, {{NaN, NaN}, {1.5, NaN}, {-1.5, NaN}, {zero, zero}, {minus_zero, minus_zero}, {inf, NaN}, {1, pi / 2}, {-1, -pi / 2}}, kNear);
  unary(NW_EW_ACOS, {{NaN, NaN}, {1.5, NaN}, {-1.5, NaN}, {1, zero}, {-inf, NaN}, {-1, pi}, {zero, pi / 2}}, kNear);
  unary(NW_EW_ATAN, {{NaN, NaN}, {zero, zero}, {minus_zero, minus_zero}, {inf, pi / 2}, {-inf, -pi / 2}}, kNear);
}

TEST_CASE("special values: huge arguments of sin, cos and tan are reduced exactly", "[elementwise][special]") {
  for (const DType dtype : kFloatDTypes) {
    Tensor a(dtype, {24}), out(dtype, {24});
    std::vector<Exact> values;
    for (const Exact v : {1e3L, 39001.0L, 65504.0L, 1e7L, 0x1p24L, 1e15L, 1e22L, 0x1.fffffep127L, 1e100L, 1e300L, 0x1.fffffffffffffp1023L, 12345678.5L})
      for (const Exact sign : {1.0L, -1.0L}) values.push_back(sign * std::fmin(v, largest(dtype)));
    a.set(values);
    for (const int32_t number : {NW_EW_SIN, NW_EW_COS, NW_EW_TAN}) {
      for (const char* kernel : kernels("elementwise")) {
        const Result result = run_function(function(number), {&a}, out, kernel);
        if (!result.was_declined()) expect_close(result, out, expected(function(number), {&a}, {24}), tolerance(function(number), dtype));
      }
    }
  }
}

TEST_CASE("special values: hyperbolic functions", "[elementwise][special]") {
  unary(NW_EW_SINH, {{NaN, NaN}, {zero, zero}, {minus_zero, minus_zero}, {inf, inf}, {-inf, -inf}, {60000, inf}, {-60000, -inf}});
  unary(NW_EW_COSH, {{NaN, NaN}, {zero, 1}, {minus_zero, 1}, {inf, inf}, {-inf, inf}, {-60000, inf}});
  unary(NW_EW_TANH, {{NaN, NaN}, {zero, zero}, {minus_zero, minus_zero}, {inf, 1}, {-inf, -1}, {60000, 1}, {-60000, -1}});
  unary(NW_EW_ASINH, {{NaN, NaN}, {zero, zero}, {minus_zero, minus_zero}, {inf, inf}, {-inf, -inf}});
  unary(NW_EW_ACOSH, {{NaN, NaN}, {0.5, NaN}, {-2, NaN}, {-inf, NaN}, {1, zero}, {inf, inf}});
  unary(NW_EW_ATANH, {{NaN, NaN}, {1.5, NaN}, {-1.5, NaN}, {-1, -inf}, {1, inf}, {zero, zero}, {minus_zero, minus_zero}, {inf, NaN}});
}

TEST_CASE("special values: activations pass NaN on and saturate", "[elementwise][special]") {
  unary(NW_EW_SIGMOID, {{NaN, NaN}, {zero, 0.5}, {minus_zero, 0.5}, {inf, 1}, {-inf, zero}, {60000, 1}, {-60000, zero}});
  unary(NW_EW_RELU, {{NaN, NaN}, {zero, zero}, {minus_zero, zero}, {inf, inf}, {-inf, zero}, {-1, zero}, {2, 2}});
  unary(NW_EW_ELU, {{NaN, NaN}, {inf, inf}, {3, 3}});
  unary(NW_EW_ELU, {{-inf, -kAlpha}, {-60000, -kAlpha}}, {.ulps = 0.5 + 0x1p-8});  // alpha in f32, then in 16 bits
  unary(NW_EW_GELU, {{NaN, NaN}, {inf, inf}, {zero, zero}, {1000, 1000}});
  unary(NW_EW_GELU_TANH, {{NaN, NaN}, {inf, inf}, {zero, zero}, {1000, 1000}});
  unary(NW_EW_SILU, {{NaN, NaN}, {inf, inf}, {zero, zero}, {1000, 1000}});
  // Far below 0 each of them is 0 to every digit, and so is its limit, of either sign.
  for (const int32_t number : {NW_EW_GELU, NW_EW_GELU_TANH, NW_EW_SILU}) unary(number, {{-60000, zero}, {-inf, zero}, {NaN, NaN}}, {.ulps = 0});
  unary(NW_EW_SOFTPLUS, {{NaN, NaN}, {inf, inf}, {-inf, zero}, {60000, rounded(DType::bf16, 60000)}, {-60000, zero}}, {.rtol = 0x1p-7, .zero_sign = true});
}

TEST_CASE("special values: sinc is 1 at 0, and 0 at other whole numbers and infinity", "[elementwise][special]") {
  unary(NW_EW_SINC, {{zero, 1}, {minus_zero, 1}, {1, zero}, {-1, zero}, {2, zero}, {-3, zero}, {60000, zero}, {inf, zero}, {-inf, zero}, {NaN, NaN}});
}

TEST_CASE("special values: erf and erfc", "[elementwise][special]") {
  unary(NW_EW_ERF, {{NaN, NaN}, {zero, zero}, {minus_zero, minus_zero}, {inf, 1}, {-inf, -1}, {100, 1}, {-100, -1}});
  unary(NW_EW_ERFC, {{NaN, NaN}, {zero, 1}, {minus_zero, 1}, {inf, zero}, {-inf, 2}, {100, zero}, {-100, 2}});
}

TEST_CASE("special values: rounding", "[elementwise][special]") {
  for (const int32_t number : {NW_EW_FLOOR, NW_EW_CEIL, NW_EW_ROUND, NW_EW_TRUNC})
    unary(number, {{NaN, NaN}, {zero, zero}, {minus_zero, minus_zero}, {inf, inf}, {-inf, -inf}, {3, 3}, {-0x1p15, -0x1p15}, {0x1.8p15, 0x1.8p15}});
  unary(NW_EW_FLOOR, {{1.5, 1}, {-1.5, -2}, {0.5, zero}, {-0.5, -1}});
  unary(NW_EW_CEIL, {{1.5, 2}, {-1.5, -1}, {0.5, 1}, {-0.5, minus_zero}});
  unary(NW_EW_TRUNC, {{1.5, 1}, {-1.5, -1}, {0.5, zero}, {-0.5, minus_zero}});
  unary(NW_EW_ROUND, {{0.5, zero}, {1.5, 2}, {2.5, 2}, {-0.5, minus_zero}, {-1.5, -2}, {-2.5, -2}, {0.25, zero}, {-0.25, minus_zero}});
  for (const DType dtype : {DType::f32, DType::f64}) {  // around 2^23 and 2^52, where adding a half goes wrong
    const Exact edge = std::ldexp(Exact(1), float_format(dtype).precision - 1), below_half = 0.5L - epsilon(dtype) / 4;
    const std::vector<Exact> values{edge - 0.5L, edge, edge + 1, -edge - 1, edge - 1.5L, below_half, -below_half, edge * 2 - 1, edge * 1024, -largest(dtype)};
    Tensor a(dtype, {static_cast<int64_t>(values.size())}), out(dtype, a.shape());
    a.set(values);
    for (const int32_t number : {NW_EW_FLOOR, NW_EW_CEIL, NW_EW_ROUND, NW_EW_TRUNC})
      for (const char* kernel : kernels("elementwise")) {
        const Result result = run_function(function(number), {&a}, out, kernel);
        if (!result.was_declined()) expect_close(result, out, expected(function(number), {&a}, a.shape()), kExact);
      }
  }
}

TEST_CASE("special values: reciprocal and predicates", "[elementwise][special]") {
  unary(NW_EW_RECIPROCAL, {{NaN, NaN}, {zero, inf}, {minus_zero, -inf}, {inf, zero}, {-inf, minus_zero}, {-4, -0.25}});
  unary(NW_EW_ISNAN, {{NaN, 1}, {inf, 0}, {zero, 0}, {-1, 0}});
  unary(NW_EW_ISINF, {{NaN, 0}, {inf, 1}, {-inf, 1}, {zero, 0}, {1, 0}});
  unary(NW_EW_ISFINITE, {{NaN, 0}, {inf, 0}, {-inf, 0}, {zero, 1}, {-1, 1}});
  unary(NW_EW_LOGICAL_NOT, {{NaN, 0}, {inf, 0}, {zero, 1}, {minus_zero, 1}, {0x1p-14, 0}});
}

TEST_CASE("special values: predicates of the largest and smallest numbers", "[elementwise][special]") {
  for (const int32_t number : {NW_EW_ISNAN, NW_EW_ISINF, NW_EW_ISFINITE, NW_EW_SIGN, NW_EW_LOGICAL_NOT, NW_EW_ABS, NW_EW_NEG}) {
    for (const DType dtype : kFloatDTypes) {
      const Function& f = function(number);
      Tensor a(dtype, {static_cast<int64_t>(special_values(dtype).size())}), out(narrows::reference::out_dtype(f, dtype), a.shape());
      a.set(special_values(dtype));
      for (const char* kernel : kernels("elementwise")) {
        const Result result = run_function(f, {&a}, out, kernel);
        if (!result.was_declined()) expect_close(result, out, expected(f, {&a}, a.shape()), kExact);
      }
    }
  }
}

TEST_CASE("special values: add sub mul div", "[elementwise][special]") {
  binary(NW_EW_ADD, {{NaN, 1, NaN}, {1, NaN, NaN}, {inf, -inf, NaN}, {-inf, inf, NaN}, {inf, inf, inf}, {inf, 1, inf}, {1, -inf, -inf},
                     {minus_zero, minus_zero, minus_zero}, {minus_zero, zero, zero}, {2, -2, zero}, {zero, 3, 3}});
  binary(NW_EW_SUB, {{NaN, 1, NaN}, {inf, inf, NaN}, {inf, -inf, inf}, {minus_zero, zero, minus_zero}, {zero, minus_zero, zero}, {2, 2, zero}});
  binary(NW_EW_MUL, {{NaN, 0, NaN}, {inf, zero, NaN}, {zero, -inf, NaN}, {inf, -2, -inf}, {-inf, -inf, inf}, {minus_zero, 2, minus_zero}, {minus_zero, -2, zero}});
  binary(NW_EW_DIV, {{NaN, 1, NaN}, {1, NaN, NaN}, {inf, inf, NaN}, {-inf, inf, NaN}, {zero, zero, NaN}, {zero, minus_zero, NaN}, {1, zero, inf}, {1, minus_zero, -inf},
                     {-1, zero, -inf}, {inf, zero, inf}, {inf, minus_zero, -inf}, {2, inf, zero}, {2, -inf, minus_zero}, {minus_zero, 3, minus_zero}, {inf, -3, -inf}});
}

TEST_CASE("special values: pow", "[elementwise][special]") {
  binary(NW_EW_POW, {{2, NaN, NaN}, {1, NaN, 1}, {NaN, zero, 1}, {NaN, minus_zero, 1}, {NaN, 2, NaN}, {5, zero, 1}, {inf, minus_zero, 1}, {1, inf, 1}, {-1, inf, 1}, {-1, -inf, 1},
                     {2, inf, inf}, {2, -inf, zero}, {-2, inf, inf}, {0.5, inf, zero}, {0.5, -inf, inf}, {-0.5, -inf, inf}, {inf, 2, inf}, {inf, 0.5, inf}, {inf, -1, zero},
                     {-inf, 3, -inf}, {-inf, 2, inf}, {-inf, 2.5, inf}, {-inf, -3, minus_zero}, {-inf, -2, zero}, {-inf, -2.5, zero}, {zero, 3, zero}, {zero, 2, zero},
                     {zero, -1, inf}, {zero, -2, inf}, {zero, -2.5, inf}, {zero, inf, zero}, {zero, -inf, inf}, {minus_zero, 3, minus_zero}, {minus_zero, 2, zero}, {minus_zero, 2.5, zero},
                     {minus_zero, -3, -inf}, {minus_zero, -2, inf}, {minus_zero, inf, zero}, {-8, 1.5, NaN}, {-1, 101, -1}, {-1, 100, 1},
                     {2, 60000, inf}, {-2, 60000, inf}, {0.5, 60000, zero}, {2, 1e300, inf}, {0.5, 1e300, zero}, {-2, -1e300, zero}, {-0.5, -1e300, inf}});
  binary(NW_EW_POW, {{-2, 3, -8}, {-2, 2, 4}, {-2, -1, -0.5}, {3, 1, 3}}, kNear);
}

TEST_CASE("special values: atan2", "[elementwise][special]") {
  binary(NW_EW_ATAN2, {{NaN, 1, NaN}, {1, NaN, NaN}, {zero, zero, zero}, {zero, minus_zero, pi}, {minus_zero, zero, minus_zero}, {minus_zero, minus_zero, -pi}, {zero, 2, zero}, {zero, -2, pi},
                       {minus_zero, 2, minus_zero}, {minus_zero, -2, -pi}, {1, zero, pi / 2}, {1, minus_zero, pi / 2}, {-1, zero, -pi / 2}, {-1, minus_zero, -pi / 2}, {2, inf, zero}, {2, -inf, pi},
                       {-2, inf, minus_zero}, {-2, -inf, -pi}, {inf, 1, pi / 2}, {-inf, 1, -pi / 2}, {inf, inf, pi / 4}, {inf, -inf, 3 * pi / 4}, {-inf, inf, -pi / 4}, {-inf, -inf, -3 * pi / 4}}, kNear);
}

TEST_CASE("special values: hypot copysign logaddexp", "[elementwise][special]") {
  binary(NW_EW_HYPOT, {{NaN, 1, NaN}, {1, NaN, NaN}, {inf, NaN, inf}, {NaN, -inf, inf}, {-inf, 2, inf}, {zero, minus_zero, zero}, {zero, -2, 2}});
  binary(NW_EW_HYPOT, {{-3, 4, 5}}, kNear);
  binary(NW_EW_COPYSIGN, {{1, minus_zero, -1}, {-1, zero, 1}, {NaN, -1, NaN}, {inf, -2, -inf}, {zero, -1, minus_zero}, {minus_zero, inf, zero}, {2, -inf, -2}});
  binary(NW_EW_LOGADDEXP, {{NaN, 1, NaN}, {1, NaN, NaN}, {inf, NaN, NaN}, {inf, 1, inf}, {1, inf, inf}, {inf, inf, inf}, {-inf, -inf, -inf}, {-inf, 3, 3}, {3, -inf, 3}, {inf, -inf, inf}});
}

TEST_CASE("special values: copysign reads and writes the sign of a NaN", "[elementwise][special]") {
  const Exact minus_NaN = std::copysign(NaN, Exact(-1));
  binary(NW_EW_COPYSIGN, {{NaN, -1, minus_NaN}, {minus_NaN, 2, NaN}, {NaN, minus_zero, minus_NaN}, {minus_NaN, zero, NaN}, {NaN, minus_NaN, minus_NaN}, {minus_NaN, NaN, NaN},
                                     {3, minus_NaN, -3}, {-3, NaN, 3}, {-inf, NaN, inf}, {inf, minus_NaN, -inf}, {zero, minus_NaN, minus_zero}}, {.zero_sign = true, .nan_sign = true});
}

TEST_CASE("special values: maximum and minimum pass NaN on", "[elementwise][special]") {
  binary(NW_EW_MAXIMUM, {{NaN, 1, NaN}, {1, NaN, NaN}, {NaN, NaN, NaN}, {NaN, inf, NaN}, {inf, 1, inf}, {-inf, 1, 1}, {2, -3, 2}});
  binary(NW_EW_MINIMUM, {{NaN, 1, NaN}, {1, NaN, NaN}, {NaN, NaN, NaN}, {-inf, NaN, NaN}, {inf, 1, 1}, {-inf, 1, -inf}, {2, -3, -3}});
  ternary(NW_EW_CLAMP, {{NaN, 0, 1, NaN}, {0.5, NaN, 1, NaN}, {0.5, 0, NaN, NaN}, {5, NaN, 1, NaN}, {inf, 0, 1, 1}, {-inf, 0, 1, 0}, {0.5, 0, 1, 0.5}, {5, 3, 2, 2}, {1, 3, 2, 2}, {-5, -inf, inf, -5}});
}

TEST_CASE("special values: fmod and remainder", "[elementwise][special]") {
  binary(NW_EW_FMOD, {{NaN, 1, NaN}, {1, NaN, NaN}, {inf, 2, NaN}, {-inf, 2, NaN}, {1, zero, NaN}, {1, minus_zero, NaN}, {zero, 2, zero}, {minus_zero, 2, minus_zero}, {3, inf, 3}, {-3, inf, -3}, {7, 4, 3},
                      {-7, 4, -3}, {7, -4, 3}, {-8, 4, minus_zero}, {8, -4, zero}});
  binary(NW_EW_REMAINDER, {{NaN, 1, NaN}, {1, NaN, NaN}, {inf, 2, NaN}, {inf, inf, NaN}, {1, zero, NaN}, {1, minus_zero, NaN}, {zero, 2, zero}, {minus_zero, 2, zero}, {zero, -2, minus_zero}, {minus_zero, -2, minus_zero},
                           {3, inf, 3}, {-3, inf, inf}, {3, -inf, -inf}, {-3, -inf, -3}, {7, 4, 3}, {-7, 4, 1}, {7, -4, -1}, {-7, -4, -3}, {8, 4, zero}, {-8, 4, zero}, {8, -4, minus_zero}});
}

TEST_CASE("special values: comparisons and logic", "[elementwise][special]") {
  binary(NW_EW_EQ, {{NaN, NaN, 0}, {NaN, 1, 0}, {zero, minus_zero, 1}, {inf, inf, 1}, {inf, -inf, 0}});
  binary(NW_EW_NE, {{NaN, NaN, 1}, {1, NaN, 1}, {zero, minus_zero, 0}, {inf, inf, 0}, {inf, -inf, 1}});
  binary(NW_EW_LT, {{NaN, 1, 0}, {1, NaN, 0}, {minus_zero, zero, 0}, {-inf, inf, 1}, {inf, inf, 0}});
  binary(NW_EW_LE, {{NaN, NaN, 0}, {1, NaN, 0}, {zero, minus_zero, 1}, {inf, inf, 1}, {inf, 1, 0}});
  binary(NW_EW_GT, {{NaN, 1, 0}, {1, NaN, 0}, {zero, minus_zero, 0}, {inf, -inf, 1}, {inf, inf, 0}});
  binary(NW_EW_GE, {{NaN, NaN, 0}, {NaN, 1, 0}, {minus_zero, zero, 1}, {inf, inf, 1}, {-inf, 1, 0}});
  binary(NW_EW_LOGICAL_AND, {{NaN, 1, 1}, {NaN, zero, 0}, {minus_zero, 1, 0}, {inf, -inf, 1}});
  binary(NW_EW_LOGICAL_OR, {{NaN, zero, 1}, {minus_zero, zero, 0}, {zero, inf, 1}});
  binary(NW_EW_LOGICAL_XOR, {{NaN, zero, 1}, {NaN, inf, 0}, {minus_zero, zero, 0}});
}

TEST_CASE("special values: fma", "[elementwise][special]") {
  ternary(NW_EW_FMA, {{NaN, 1, 1, NaN}, {1, NaN, 1, NaN}, {1, 1, NaN, NaN}, {inf, zero, 1, NaN}, {inf, 1, -inf, NaN}, {inf, 2, inf, inf}, {2, 3, -inf, -inf}, {2, 3, -6, zero}, {minus_zero, 1, minus_zero, minus_zero}, {2, 3, 4, 10}});
}
// clang-format on

// A product that is rounded by itself, before c is added, makes something else of each.
TEST_CASE("special values: fma rounds once", "[elementwise][special]") {
  for (const DType dtype : kFloatDTypes) {
    const FloatFormat format = float_format(dtype);
    const Exact h = std::ldexp(Exact(1), -((format.precision + 1) / 2)), root = std::ldexp(Exact(1), (format.max_exponent + 1) / 2);
    const Exact most = largest(dtype), tiny = smallest_subnormal(dtype), large = std::ldexp(Exact(1), format.max_exponent);
    check_rows(NW_EW_FMA,
               {{1 + h, 1 + h, -1 - 2 * h, h * h},
                {root, root, -most, ulp(dtype, most)},
                {most, most, -inf, -inf},
                {-most, most, inf, inf},
                {tiny, 0.5L, tiny, 2 * tiny},  // one and a half of them, to even
                {tiny, large, 0, tiny * large},
                {large, tiny, tiny * large, 2 * tiny * large}},
               kExact, {dtype});
    // The product lies between two numbers, and a subnormal c takes it to the lower one. What is computed in f32 and narrowed has
    // room.
    const Exact eps = ulp(dtype, 1);
    if (dtype == DType::f32 || dtype == DType::f64) check_rows(NW_EW_FMA, {{1 + eps, 1.5L, -tiny, 1.5L + eps}}, kExact, {dtype});
  }
}

// A sum that is rounded to f32 first makes a tie of what lies beside one.
TEST_CASE("special values: fma of 16 bits rounds once", "[elementwise][special]") {
  const Function& f = function(NW_EW_FMA);
  for (const DType dtype : {DType::f16, DType::bf16}) {
    const FloatFormat format = float_format(dtype);
    Rng rng("fma of 16 bits", static_cast<uint64_t>(dtype));
    const auto draw = [&](int64_t low, int64_t high, int bits) {  // of so many bits, with an exponent from low to high
      const int64_t digits = rng.integer(int64_t{1} << (bits - 1), (int64_t{1} << bits) - 1) * (rng.bits() & 1 ? 1 : -1);
      return rounded(dtype, std::ldexp(static_cast<Exact>(digits), static_cast<int>(rng.integer(low, high)) + 1 - bits));
    };
    std::vector<std::vector<Exact>> rows{{792, 62, rounded(dtype, 0.00042104721L), 0}};
    const int least = format.min_exponent - format.precision + 1, most = format.max_exponent, p = format.precision;
    while (rows.size() < 3000) {
      const int shift = static_cast<int>(rng.integer(0, most / 2));
      std::vector<Exact> row{draw(0, 3, (p + 3) / 2), draw(shift, shift + 3, (p + 2) / 2), 0};  // p + 2 bits or so: often a tie
      switch (rows.size() % 4) {
        case 0: row[2] = draw(least, -2 * p, p); break;     // beside which c is tiny
        case 1: row[2] = draw(least, least + 3, 2); break;  // or as little as there is
        case 2:
          row[2] = draw(shift + p, std::min(shift + 2 * p, most), p);
          break;  // the product is half a unit of c, or near to it
        default: row = {draw(least / 2, -p, p), draw(least / 2, 0, p), draw(least, format.min_exponent, 2)};  // subnormal results
      }
      row.push_back(0);
      rows.push_back(row);
    }
    for (auto& row : rows) row[3] = rounded(dtype, narrows::reference::apply(f, dtype, {row[0], row[1], row[2]}));
    Tensor a(dtype, {static_cast<int64_t>(rows.size())}), b(dtype, a.shape()), c(dtype, a.shape()), out(dtype, a.shape());
    std::vector<Exact> column[4];
    for (const auto& row : rows)
      for (size_t i = 0; i < 4; ++i) column[i].push_back(row[i]);
    a.set(column[0]), b.set(column[1]), c.set(column[2]);
    for (const char* kernel : kernels("elementwise")) {
      const Result result = run_function(f, {&a, &b, &c}, out, kernel);
      if (!result.was_declined()) expect_close(result, out, column[3], {.l2 = 1});
    }
  }
}
