// SPDX-License-Identifier: Apache-2.0
// elementwise_range.cpp -- every function of floating point over the whole range of exponents, signs of zeros and subnormal numbers
// included; and the same bits whatever stands beside an element, wherever the output begins, and by every kernel variant.
#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "elementwise_cases.h"

using namespace narrows::test;

namespace {

// Two numbers of each exponent, by turns, and where functions change how they are computed.
std::vector<Exact> whole_range(DType dtype, int step) {
  std::vector<Exact> values = special_values(dtype);
  const FloatFormat format = float_format(dtype);
  for (int e = format.min_exponent - format.precision + 1; e <= format.max_exponent; e += step)
    for (const Exact digits : {1.0L, 1.37L, 1.93L})
      for (const int sign : {1, -1}) values.push_back(rounded(dtype, std::ldexp(sign * digits, e)));
  for (const Exact v :
       {0x1.44f93e5d8cbf5p+46L, 14.9L, 15.1L, 76.4L, 130.0L, 39001.0L, 1e14L, 1.1e14L, 1e22L, 1e300L, 88.0L, 104.0L, 709.0L})
    for (const int sign : {1, -1}) values.push_back(rounded(dtype, sign * std::fmin(v, largest(dtype))));
  return values;
}

// Near 0 these are their operand to every digit.
bool is_itself_near_0(const Function& f) {
  for (const char* name : {"sin", "tan", "asin", "atan", "sinh", "tanh", "asinh", "atanh", "expm1", "log1p"})
    if (std::string(name) == f.name) return true;
  return false;
}
bool has_free_zero(const Function& f) { return std::string(f.name).find("lu") != std::string::npos; }  // elu, gelu, ...

void check_range(const Function& f, DType dtype) {
  const std::vector<Exact> values = whole_range(dtype, 1);
  Tensor a(dtype, {static_cast<int64_t>(values.size())}), out(dtype, a.shape());
  a.set(values);
  const auto reference = expected(f, {&a}, a.shape());
  const Result result = run_function(f, {&a}, out);
  if (result.was_declined()) return;
  expect_close(result, out, reference, tolerance(f, dtype));
  const std::vector<Exact> got = out.exact();
  int64_t wrong = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(got[i]) || std::isnan(reference[i])) continue;
    const bool is_sign = std::signbit(got[i]) == std::signbit(reference[i]) || (got[i] == 0 && has_free_zero(f));
    const bool is_tiny = std::fabs(values[i]) < std::ldexp(Exact(1), float_format(dtype).min_exponent);
    if ((is_sign && !(is_tiny && is_itself_near_0(f) && got[i] != values[i])) || wrong++ > 0) continue;
    FAIL_CHECK(result.what << "\n  of " << values[i] << " it is " << got[i] << ", exactly " << reference[i]);
  }
}

// ---- next to the largest number ----

// Operands whose result is the largest number less a part of 2^-k, for every k: {a} or {a, b}, of which b is the same for all.
struct Near {
  int32_t function;  // NW_EW_*
  Exact (*a)(Exact log_of_result);
  Exact b;
};
const Near kNear[] = {
    {NW_EW_EXP, [](Exact log) { return log; }, 0},
    {NW_EW_EXPM1, [](Exact log) { return log; }, 0},
    {NW_EW_EXP2, [](Exact log) { return log / std::log(2.0L); }, 0},
    {NW_EW_SINH, [](Exact log) { return log + std::log(2.0L); }, 0},
    {NW_EW_COSH, [](Exact log) { return -log - std::log(2.0L); }, 0},
    {NW_EW_POW, [](Exact log) { return std::exp(log / 3); }, 3},
    {NW_EW_POW, [](Exact log) { return std::exp(log / -0.75L); }, -0.75L},
    {NW_EW_POW, [](Exact log) { return -std::exp(log / 5); }, 5},
};

void check_near_largest(const Near& near, DType dtype) {
  const Function& f = narrows::reference::function(near.function);
  std::vector<Exact> a;
  for (int k = 1; k <= float_format(dtype).precision + 3; ++k) {
    const Exact log = std::log(largest(dtype)) + std::log1p(-std::ldexp(Exact(1), -k));
    a.push_back(rounded(dtype, near.a(log)));
    a.push_back(a.back() - std::copysign(ulp(dtype, a.back()), a.back()));
  }
  const Shape shape{static_cast<int64_t>(a.size())};
  Tensor x(dtype, shape), y(dtype, shape), out(dtype, shape);
  x.set(a);
  y.set(std::vector<Exact>(a.size(), rounded(dtype, near.b)));
  const std::vector<const Tensor*> operands = f.operands == 1 ? std::vector<const Tensor*>{&x} : std::vector<const Tensor*>{&x, &y};
  const auto reference = expected(f, operands, shape);
  const Result result = run_function(f, operands, out);
  if (!result.was_declined()) expect_close(result, out, reference, tolerance(f, dtype));
}

// ---- the same bits ----

// Operands in the order of `index`.
struct Operands {
  std::vector<std::unique_ptr<Tensor>> tensors;
  std::vector<const Tensor*> pointers;
  Operands(const Function& f, DType dtype, const std::vector<Exact>& values, const std::vector<size_t>& index) {
    for (int k = 0; k < f.operands; ++k) {
      std::vector<Exact> column;
      for (const size_t i : index)
        column.push_back(values[(i * (k == 0 ? 1 : k == 1 ? 31 : 17) + static_cast<size_t>(5 * k)) % values.size()]);
      tensors.push_back(std::make_unique<Tensor>(dtype, Shape{static_cast<int64_t>(index.size())}));
      tensors.back()->set(column);
      pointers.push_back(tensors.back().get());
    }
  }
};

bool is_same(Exact a, Exact b) { return (std::isnan(a) && std::isnan(b)) || (a == b && std::signbit(a) == std::signbit(b)); }

void check_places(const Function& f, DType dtype) {
  constexpr size_t kCopies = 64;
  const std::vector<Exact> values = whole_range(dtype, dtype == DType::f64 ? 61 : 11);
  const size_t n = values.size();
  Rng rng("places", static_cast<uint64_t>(f.number));
  std::vector<size_t> like(n * kCopies), mixed(4 * n + 3);
  for (size_t i = 0; i < like.size(); ++i) like[i] = i / kCopies;
  for (size_t& i : mixed) i = static_cast<size_t>(rng.bits() % n);
  const Operands among_like(f, dtype, values, like), among_others(f, dtype, values, mixed);
  Tensor same(dtype, {static_cast<int64_t>(like.size())});
  const Result first = run_function(f, among_like.pointers, same);
  if (first.was_declined()) return;
  expect_ok(first);
  const std::vector<Exact> right = same.exact();
  for (const char* kernel : kernels("elementwise"))
    for (const uint64_t off : {uint64_t{0}, static_cast<uint64_t>(item_size(dtype))}) {
      Tensor out(dtype, {static_cast<int64_t>(mixed.size())}, Layout::contiguous().with_misalignment(off));
      const Result result = run_function(f, among_others.pointers, out, kernel);
      if (result.was_declined()) continue;
      expect_ok(result);
      const std::vector<Exact> got = out.exact();
      for (size_t i = 0; i < got.size(); ++i) {
        if (is_same(got[i], right[mixed[i] * kCopies + 5])) continue;
        FAIL_CHECK(result.what << "\n  element " << i << " is " << got[i] << ", and " << right[mixed[i] * kCopies + 5]
                               << " beside its like");
        break;
      }
    }
}

}  // namespace

TEST_CASE("elementwise: every exponent, and the same bits wherever an element stands", "[elementwise][special][determinism]") {
  expect_offered("elementwise");
  for (const Function& f : functions())
    for (const DType dtype : kFloatDTypes) {
      if (f.number == NW_EW_CAST || f.number == NW_EW_WHERE || f.gives_bool || !narrows::reference::allows(f.domain, dtype))
        continue;
      if (f.operands == 1) check_range(f, dtype);
      check_places(f, dtype);
    }
}

TEST_CASE("elementwise: results next to the largest number", "[elementwise][special]") {
  expect_offered("elementwise");
  for (const Near& near : kNear)
    for (const DType dtype : kFloatDTypes) check_near_largest(near, dtype);
}
