// SPDX-License-Identifier: Apache-2.0
// elementwise_gradient_range.cpp -- gradients over the whole range of exponents: grad_out times a factor that may itself be far
// beyond the dtype's range, as docs/ops.md says ("Accuracy"). The reference has 15 bits of exponent.
#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "elementwise_cases.h"

using namespace narrows::test;
using narrows::reference::function;
using narrows::reference::Partials;
using narrows::reference::Reals;

namespace {

// grad_out, a, b, c.
using Values = std::array<Exact, 4>;

// Units in the last place: a library's function, of 4 at most, and a few steps; twice as many where it is squared.
double units(const Function& f) { return f.number == NW_EW_TAN || f.number == NW_EW_CBRT ? 12 : 8; }
Tolerance gradient_tolerance(const Function& f, DType dtype) {
  const bool half = dtype == DType::f16 || dtype == DType::bf16;
  return {.ulps = half ? 0.75 : units(f)};
}

bool has_gradient(const Function& f, int operand) { return operand < f.operands && !(f.number == NW_EW_WHERE && operand == 0); }
Exact factor(const Function& f, int operand, const Values& v) {
  const Partials p = f.gradient({v[1], v[2], v[3], kAlpha});
  return operand == 0 ? p.a : operand == 1 ? p.b : p.c;
}

// Runs the rows on every kernel and compares. Operand `repeated`, of rows that are all alike, is one element: its gradient is
// summed.
void check_rows(const Function& f, DType dtype, const std::vector<Values>& rows, const std::vector<Exact> (&expected)[3],
                int repeated = -1) {
  const auto column = [&](int k) {
    std::vector<Exact> values;
    for (const Values& row : rows) values.push_back(row[static_cast<size_t>(k)]);
    values.resize(k == repeated + 1 && k != 0 ? 1 : rows.size());
    return values;
  };
  Tensor grad_out(dtype, {static_cast<int64_t>(rows.size())});
  grad_out.set(column(0));
  std::vector<std::unique_ptr<Tensor>> operands, gradients;
  std::vector<const Tensor*> inputs{&grad_out};
  std::vector<Tensor*> outputs(3, nullptr);
  for (int i = 0; i < f.operands; ++i) {
    const std::vector<Exact> values = column(i + 1);
    const Shape shape{static_cast<int64_t>(values.size())};
    operands.push_back(std::make_unique<Tensor>(operand_dtype(f, i, dtype), shape));
    operands.back()->set(values);
    inputs.push_back(operands.back().get());
    gradients.push_back(has_gradient(f, i) ? std::make_unique<Tensor>(dtype, shape) : nullptr);
    outputs[static_cast<size_t>(i)] = gradients.back().get();
  }
  for (const char* kernel : kernels("elementwise_backward")) {
    const Result result = run("elementwise_backward", inputs, outputs, params_for(f), kernel, 0, f.name);
    if (result.was_declined()) continue;
    for (size_t i = 0; i < gradients.size(); ++i)
      if (gradients[i] != nullptr) expect_close(result, *gradients[i], expected[i], gradient_tolerance(f, dtype));
  }
}

// ---- random operands ----

class Draw {
 public:
  Draw(const Function& function, DType type)
      : f(function), dtype(type), rng("gradient range", static_cast<uint64_t>(f.number) * 16 + static_cast<uint64_t>(type)) {}

  // Operands at which the function and its gradients have values, which do not cancel, and a grad_out for them.
  Values row() {
    Values v{};
    for (int trial = 0; trial == 0 || !is_tame(v); ++trial) {
      REQUIRE(trial < 10000);
      v = {0, operand(), operand(), operand()};
      if (rng.bits() % 2 == 0) v[2] = related(v[1]);
      if (rng.bits() % 16 == 0) v[1] = subnormal(), v[2] = subnormal();
      if (f.number == NW_EW_WHERE) v[1] = static_cast<Exact>(rng.bits() & 1);
      for (Exact& x : v) x = rounded(dtype, x);
    }
    v[0] = rounded(dtype, grad_out(v));
    return v;
  }

 private:
  FloatFormat format() const { return float_format(dtype); }
  Exact sign() { return rng.bits() % 2 == 0 ? 1 : -1; }
  // Any exponent of the dtype's, subnormal numbers included.
  Exact any() {
    const double least = format().min_exponent - format().precision;
    return sign() * std::exp2(Exact(rng.uniform(least, format().max_exponent + 1)));
  }
  Exact subnormal() {
    const auto parts =
        static_cast<Exact>(rng.bits() % (uint64_t{1} << (1 + rng.bits() % static_cast<uint64_t>(format().precision - 1))));
    return sign() * parts * smallest_subnormal(dtype);
  }
  // Beyond +-span() exp(a) times any number is 0 or infinite.
  double span() const { return 1.45 * format().max_exponent + 20; }

  Exact operand() {
    switch (rng.bits() % 8) {
      case 0: return sign() * (1 + sign() * std::exp2(Exact(rng.uniform(-format().precision, 0))));
      case 1: return rng.uniform(-4, 4);
      case 2: return rng.uniform(-std::sqrt(2 * span()), std::sqrt(2 * span()));
      case 3:
      case 4: return rng.uniform(-span(), span());
      default: return any();
    }
  }
  // A b for which a difference, a quotient or a power of the two is not far beyond the range.
  Exact related(Exact a) {
    switch (rng.bits() % 4) {
      case 0: return a + rng.uniform(-span(), span());
      case 1: return rng.uniform(-span(), span()) / std::log2(std::fabs(a));
      default: return sign() * a * std::exp2(Exact(rng.uniform(-span(), span())));
    }
  }
  bool is_tame(const Values& v) const {
    const Reals x{v[1], v[2], v[3], kAlpha};
    if (!(std::isfinite(v[1]) && std::isfinite(v[2]) && std::isfinite(v[3])) || std::isnan(f.real(x))) return false;
    const bool is_periodic = f.number == NW_EW_SIN || f.number == NW_EW_COS || f.number == NW_EW_TAN;
    if (is_periodic && std::fabs(v[1]) > (dtype == DType::f64 ? 1e15L : 1e5L)) return false;  // as the functions are tried
    const bool has_root = f.number == NW_EW_GELU || f.number == NW_EW_GELU_TANH || f.number == NW_EW_SILU;
    if (has_root && std::fabs(v[1]) < 2 && std::fabs(factor(f, 0, v)) < 0.25L) return false;
    const bool is_near_root =
        f.number == NW_EW_SINC && std::fabs(v[1]) > 0.5L && std::fabs(factor(f, 0, v) * v[1]) < std::fabs(f.real(x));
    if (is_near_root) return false;
    for (int i = 0; i < f.operands; ++i)
      if (has_gradient(f, i) && !std::isfinite(factor(f, i, v))) return false;
    return true;
  }
  // Mostly one whose product with a factor is in the range.
  Exact grad_out(const Values& v) {
    if (rng.bits() % 16 == 0) return 0;
    if (rng.bits() % 8 == 0) return subnormal();
    const Exact size = std::fabs(factor(f, static_cast<int>(rng.bits() % static_cast<uint64_t>(f.operands)), v));
    if (rng.bits() % 4 == 0 || size == 0) return any();
    const Exact g = any() / size;
    return std::clamp(g, lowest(dtype), largest(dtype));
  }

  const Function& f;
  DType dtype;
  Rng rng;
};

// ---- numbers written out ----

struct Written {
  int32_t function;
  Values in;
  std::array<Exact, 2> gradients;
};

// Powers of two and what is a constant times one, so that the gradients are plain. h: 2^h is about the root of the largest number.
std::vector<Written> written_out(DType dtype) {
  const int h = (float_format(dtype).max_exponent + 1) / 2;
  const Exact ln2 = std::log(2.0L), ln10 = std::log(10.0L), tiny = smallest_subnormal(dtype);
  const auto p = [](int exponent) { return std::ldexp(Exact(1), exponent); };
  const Exact top = p(2 * h - 1);
  return {{NW_EW_DIV, {0, 1, p(-h - 4)}, {0, 0}},
          {NW_EW_DIV, {p(-h), p(h), p(-h / 2)}, {p(-h / 2), -p(h)}},
          {NW_EW_DIV, {p(h), p(-h), p(h - 1)}, {2, -p(-2 * h + 2)}},
          {NW_EW_DIV, {top, tiny, top}, {1, -tiny / top}},
          {NW_EW_POW, {0, p(-h - 4), -1}, {0, 0}},
          {NW_EW_POW, {p(-h), p(-h), -1}, {-p(h), -h * ln2}},
          {NW_EW_POW, {0.5L, 2, 2 * Exact(h)}, {h / 2 * top + h % 2 * top / 2, top * ln2}},
          {NW_EW_ATAN, {p(h), p(h + 1)}, {p(-h - 2)}},
          {NW_EW_ATAN, {top, top}, {1 / top}},
          {NW_EW_EXP2, {0.5L, 2 * Exact(h)}, {top * ln2}},
          {NW_EW_EXP2, {p(h), -2 * Exact(h) - 30}, {p(-h - 30) * ln2}},
          {NW_EW_SQUARE, {p(-h), top}, {p(h)}},
          {NW_EW_LOG2, {tiny, tiny}, {1 / ln2}},
          {NW_EW_LOG2, {top, top * 1.5L}, {1 / (1.5L * ln2)}},
          {NW_EW_LOG10, {tiny, tiny}, {1 / ln10}},
          {NW_EW_LOG10, {top, top * 1.5L}, {1 / (1.5L * ln10)}},
          {NW_EW_RSQRT, {tiny, p(-2)}, {-4 * tiny}},
          {NW_EW_RECIPROCAL, {p(h), top}, {-p(h) / top / top}},
          {NW_EW_ACOSH, {top, top}, {1}},
          {NW_EW_HYPOT, {p(h), 1.5L * p(-h - 20), p(h)}, {1.5L * p(-h - 20), p(h)}},
          {NW_EW_ATAN2, {0, p(-h - 4), p(-h - 4)}, {0, 0}},
          {NW_EW_ATAN2, {top, top, top}, {0.5L, -0.5L}},
          {NW_EW_ATAN2, {tiny, tiny, tiny}, {0.5L, -0.5L}},
          {NW_EW_RSQRT, {5 * tiny, 9 * p(-16)}, {-5 * tiny * p(24) / 54}},
          {NW_EW_RECIPROCAL, {5 * tiny, 3 * p(-10)}, {-5 * tiny * p(20) / 9}},
          {NW_EW_HYPOT, {1, 3 * tiny, 4 * tiny}, {0.6L, 0.8L}},
          {NW_EW_HYPOT, {1, 3 * tiny, 5 * tiny}, {3 / std::sqrt(34.0L), 5 / std::sqrt(34.0L)}},
          {NW_EW_ATAN2, {tiny, 3 * tiny, 5 * tiny}, {5.0L / 34, -3.0L / 34}},
          {NW_EW_ATAN2, {p(h), p(h + 2), 1}, {p(h) / (p(2 * h + 4) + 1), -p(2 * h + 2) / (p(2 * h + 4) + 1)}},
          {NW_EW_FMOD, {p(-h), top, p(-h)}, {p(-h), -top}},
          {NW_EW_FMOD, {0, top, tiny}, {0, 0}},
          {NW_EW_REMAINDER, {p(-h), top, -p(-h)}, {p(-h), top}},
          {NW_EW_LOGADDEXP, {1, top, -top}, {1, 0}}};
}

// In every lane of a vector; or with an operand that is repeated, in a sum of which no digit is lost.
void check_written(const Written& w, DType dtype, int repeated = -1) {
  for (const Exact x : w.in)
    if (rounded(dtype, x) != x) return;  // f16's range is shorter
  const size_t n = repeated < 0 ? 19 : 16;
  std::vector<Exact> expected[3];
  for (size_t i = 0; i < 2; ++i) {
    if (static_cast<int>(i) == repeated)
      expected[i] = {w.gradients[i] * static_cast<Exact>(n)};
    else
      expected[i].assign(n, w.gradients[i]);
  }
  check_rows(function(w.function), dtype, std::vector<Values>(n, w.in), expected, repeated);
}

}  // namespace

TEST_CASE("elementwise_backward: gradients whose factor is beyond the range", "[elementwise][backward][range]") {
  for (const DType dtype : kFloatDTypes)
    for (const Written& w : written_out(dtype)) check_written(w, dtype);
}

TEST_CASE("elementwise_backward: sums of gradients whose factor is beyond the range", "[elementwise][backward][range]") {
  for (const DType dtype : kFloatDTypes)
    for (const Written& w : written_out(dtype))
      for (const int repeated : {0, 1})
        if (function(w.function).operands == 2) check_written(w, dtype, repeated);
}

TEST_CASE("elementwise_backward: every function over the whole range of exponents", "[elementwise][backward][range]") {
  expect_offered("elementwise_backward");
  for (const Function& f : functions()) {
    if (f.gradient == nullptr || f.number == NW_EW_CAST) continue;
    for (const DType dtype : kFloatDTypes) {
      Draw draw(f, dtype);
      std::vector<Values> rows(1031);
      std::generate(rows.begin(), rows.end(), [&] { return draw.row(); });
      std::vector<Exact> expected[3];
      for (int i = 0; i < f.operands; ++i)
        for (const Values& v : rows) expected[i].push_back(v[0] * factor(f, i, v));
      check_rows(f, dtype, rows, expected);
    }
  }
}
