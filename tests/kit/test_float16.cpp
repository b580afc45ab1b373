// SPDX-License-Identifier: Apache-2.0
// test_float16.cpp -- narrows::f16 and bf16 beside their definitions: every number, and for every pair of neighbours what lies at,
// just below and just above the middle.
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>
#include <narrows/float16.hpp>

using narrows::bf16;
using narrows::f16;

namespace {

// The value of a number by its definition.
double value_of(uint16_t bits, int exponent_bits) {
  const int mantissa_bits = 15 - exponent_bits, bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1), mantissa = bits & ((1 << mantissa_bits) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1)
    return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN() : sign * std::numeric_limits<double>::infinity();
  const double fraction = std::ldexp(mantissa, -mantissa_bits);
  return exponent == 0 ? sign * std::ldexp(fraction, 1 - bias) : sign * std::ldexp(1 + fraction, exponent - bias);
}

template <class Number>
Number of_bits(unsigned bits) {
  Number out;
  out.bits = static_cast<uint16_t>(bits);
  return out;
}

// Without Catch2's bookkeeping for each number.
template <class Number>
void check_all(int exponent_bits) {
  const unsigned infinity = ((1U << exponent_bits) - 1) << (15 - exponent_bits);
  int wrong = 0;
  for (unsigned bits = 0; bits <= 0xFFFF; ++bits) {
    const double value = value_of(static_cast<uint16_t>(bits), exponent_bits);
    const float widened = of_bits<Number>(bits);
    const Number back(widened);
    if (std::isnan(value))
      wrong += !std::isnan(widened) || !std::isnan(static_cast<float>(back));
    else
      wrong += widened != value || std::signbit(widened) != std::signbit(value) || back.bits != bits;
  }
  CHECK(wrong == 0);
  for (unsigned bits = 0; bits < infinity; ++bits) {
    // The number after the largest one counts as 2^(its exponent + 1) here: from the middle on it is infinity.
    const double low = value_of(static_cast<uint16_t>(bits), exponent_bits);
    const double step = bits + 1 < infinity ? value_of(static_cast<uint16_t>(bits + 1), exponent_bits) - low
                                            : low - value_of(static_cast<uint16_t>(bits - 1), exponent_bits);
    const auto middle = static_cast<float>(low + step / 2);
    const unsigned even = bits % 2 == 0 ? bits : bits + 1;
    const auto rounds_to = [&](float value, unsigned want) {
      wrong += Number(value).bits != want || Number(-value).bits != (want | 0x8000U);
    };
    if (static_cast<double>(middle) == low + step / 2) rounds_to(middle, even);
    rounds_to(std::nextafter(middle, 0.0F), bits);
    rounds_to(std::nextafter(middle, std::numeric_limits<float>::infinity()), bits + 1);
  }
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("f16 is IEEE 754 binary16, rounded to the nearest, ties to even") { check_all<f16>(5); }

TEST_CASE("bf16 is the upper half of binary32, rounded to the nearest, ties to even") { check_all<bf16>(8); }

TEST_CASE("numbers of 16 bits compute in float") {
  f16 a(1.5F), b(0.0F);
  b = 2 * a + 0.25;
  CHECK(static_cast<float>(b) == 3.25F);
  b += a;
  CHECK(static_cast<float>(b) == 4.75F);
  b -= 0.75F;
  b *= 2;
  b /= 16;
  CHECK(static_cast<float>(b) == 0.5F);
  CHECK(static_cast<float>(true ? a : b) == 1.5F);
  CHECK((a > b && a == 1.5F));
  CHECK(std::sqrt(f16(4.0F)) == 2.0F);
  CHECK(f16(65519.0F) == 65504.0F);
  CHECK(std::isinf(static_cast<float>(f16(65520.0F))));
  static_assert(std::is_trivially_copyable_v<f16> && sizeof(f16) == 2 && sizeof(bf16) == 2);
}
