// SPDX-License-Identifier: Apache-2.0
// split_test.cpp -- backends/cuda/ops/lltm/lltm_split.h on the CPU, against exact numbers in double.
#include "ops/lltm/lltm_split.h"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>

using namespace narrows::gpu;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity(), kNaN = std::numeric_limits<float>::quiet_NaN();

template <class T>
double together(Halves<T> h) {
  return static_cast<double>(widen(h.first)) + static_cast<double>(widen(h.second));
}

float float_of(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, 4);
  return x;
}

// Calls check(x) for numbers of every exponent and of many significands, both signs.
template <class Check>
void for_many(Check&& check) {
  for (uint32_t exponent = 0; exponent < 255; ++exponent)
    for (uint32_t i = 0; i < 400; ++i) {
      const uint32_t significand = i < 8 ? i : i < 16 ? 0x7fffff - (i - 8) : i * 2654435761u >> 9;
      check(float_of(exponent << 23 | significand)), check(float_of(0x80000000u | exponent << 23 | significand));
    }
}

}  // namespace

TEST_CASE("split: two bf16 are within 2^-17 of any f32", "[split]") {
  for_many([](float x) {
    if (std::fabs(x) > 3.38e38f) return;  // bf16 ends sooner than f32
    REQUIRE(std::fabs(together(split<bf16>(x)) - static_cast<double>(x)) <=
            std::ldexp(std::fabs(static_cast<double>(x)), -17) + std::ldexp(1, -134));
  });
}

TEST_CASE("split: two f16 are within 2^-23 of any f32 that is scaled", "[split]") {
  for_many([](float x) {
    if (std::fabs(x) > 32768) return;
    REQUIRE(std::fabs(together(split<f16>(x)) - static_cast<double>(x)) <=
            std::fmax(std::ldexp(std::fabs(static_cast<double>(x)), -23), std::ldexp(1, -25)));
  });
}

TEST_CASE("split: a scale is a power of 2 that brings the largest to 2^14 and more, and its inverse undoes it", "[split]") {
  for_many([](float x) {
    if (x < 0) return;
    const Scale scale = scale_for(x);
    int exponent = 0;
    REQUIRE(std::frexp(scale.up, &exponent) == 0.5f);
    REQUIRE(std::isnormal(scale.up));
    REQUIRE(std::isnormal(scale.down));
    REQUIRE(scale.up * scale.down == 1);
    REQUIRE(x * scale.up < 32768);
    if (x >= 0x1p-112f) REQUIRE(x * scale.up >= 16384);
    REQUIRE((static_cast<double>(x) < 0x1p-126 || x * scale.up * scale.down == x));
  });
}

TEST_CASE("split: infinities and NaN are first parts alone", "[split]") {
  const auto check = []<class T>(T) {
    for (const float x : {kInf, -kInf}) {
      CHECK(widen(split<T>(x).first) == x);
      CHECK(widen(split<T>(x).second) == 0);
    }
    CHECK(std::isnan(widen(split<T>(kNaN).first)));
    CHECK(widen(split<T>(kNaN).second) == 0);
  };
  check(f16{});
  check(bf16{});
}

TEST_CASE("split: the second sum does not take an infinity away", "[split]") {
  CHECK(add_second(1, 0.25f) == 1.25f);
  for (const float second : {1.0f, kInf, -kInf, kNaN}) {
    CHECK(add_second(kInf, second) == kInf);
    CHECK(add_second(-kInf, second) == -kInf);
    CHECK(std::isnan(add_second(kNaN, second)));
  }
  CHECK(std::isnan(add_second(1, kNaN)));
}
