// SPDX-License-Identifier: Apache-2.0
// bound_test.cpp -- the measure of conv1d and lltm is measured: what bound.h must not let pass.
#include <catch2/catch_test_macros.hpp>
#include <limits>

#include "bound.h"

using namespace narrows::test;

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();
using Values = std::vector<double>;

bool passes(DType dtype, const Values& got, const Values& reference, const Values& bound) {
  Tensor t(dtype, {static_cast<int64_t>(got.size())});
  t.set(got);
  return outside(t, reference, bound).empty();
}

}  // namespace

TEST_CASE("bound: NaN passes only where the reference is NaN, and a bound that is NaN lets nothing pass", "[harness]") {
  for (const DType dtype : kFloatDTypes) {
    CHECK(passes(dtype, {1, kNaN}, {1, kNaN}, {0, 0}));
    CHECK_FALSE(passes(dtype, {1, kNaN}, {1, 2}, {100, 100}));
    CHECK_FALSE(passes(dtype, {1, 2}, {1, kNaN}, {100, 100}));
    CHECK_FALSE(passes(dtype, {1, 2}, {1, 2}, {0, kNaN}));
    CHECK_FALSE(passes(dtype, {1, 3}, {1, 2}, {0, kNaN}));
  }
}

TEST_CASE("bound: an infinity passes only for the same one, or where the result overflows the dtype", "[harness]") {
  for (const DType dtype : kFloatDTypes) {
    CHECK(passes(dtype, {kInf, -kInf}, {kInf, -kInf}, {0, 0}));
    CHECK_FALSE(passes(dtype, {kInf}, {-kInf}, {100}));
    CHECK_FALSE(passes(dtype, {kInf}, {1}, {100}));
    CHECK_FALSE(passes(dtype, {1}, {kInf}, {100}));
  }
  CHECK(passes(DType::f16, {kInf}, {65520}, {0}));
  CHECK_FALSE(passes(DType::f16, {kInf}, {65519}, {0}));
  CHECK_FALSE(passes(DType::f16, {65504}, {70000}, {0}));
}

TEST_CASE("bound: a result is as far off as its bound and one rounding, and no further", "[harness]") {
  const double up = 1 + 0x1p-10;  // the f16 after 1
  CHECK(passes(DType::f16, {1}, {1 + 0x1p-12}, {0}));
  CHECK_FALSE(passes(DType::f16, {up}, {1 + 0x1p-12}, {0}));
  CHECK(passes(DType::f16, {up}, {1 + 0x1p-12}, {0x1p-11}));
  CHECK_FALSE(passes(DType::f32, {1 + 0x1p-20}, {1}, {0x1p-21}));
  CHECK(passes(DType::f32, {1 + 0x1p-22}, {1}, {0x1p-20}));
}

TEST_CASE("bound: one wrong element among many fails, and so do many that are off to the edge of their bounds", "[harness]") {
  Values got(10000, 1e6), reference(10000, 1e6), bound(10000, 1);
  CHECK(passes(DType::f32, got, reference, bound));
  got[1234] = 1e6 + 2;
  CHECK_FALSE(passes(DType::f32, got, reference, bound));
  for (double& v : got) v = 1e6 + 1;  // each within its bound
  CHECK_FALSE(passes(DType::f32, got, reference, bound));
}

TEST_CASE("bound: another number of elements fails, none pass", "[harness]") {
  CHECK_FALSE(passes(DType::f32, {1, 2}, {1}, {1}));
  CHECK_FALSE(passes(DType::f32, {1, 2}, {1, 2}, {1}));
  CHECK(passes(DType::f32, {}, {}, {}));
}

TEST_CASE("bound: an output that was never written is noticed", "[harness]") {
  for (const DType dtype : kFloatDTypes) {
    Tensor t(dtype, {7});
    t.poison();
    CHECK(outside(t, Values(7, 0), Values(7, 1e-3)).find("never written") != std::string::npos);
  }
}

TEST_CASE("bound: sums of many equal terms have the wider bound, and a bound of no terms is not 0 for a bias", "[harness]") {
  const Values magnitude{1, 0};
  const Values independent = sum_bound(DType::f32, magnitude, 10000), equal = sum_bound(DType::f32, magnitude, 10000, Terms::equal);
  CHECK(independent[0] < 1.3e-5);
  CHECK(equal[0] > 50 * independent[0]);
  CHECK(independent[1] == 0);
  CHECK(sum_bound(DType::f64, magnitude, 10000)[0] < 1e-13);
}
