// SPDX-License-Identifier: Apache-2.0
// elementwise_erf.h -- erf and its slope at multiples of 1/128, which erf of f64 begins with (elementwise_math-inl.h). The compiler
// computes them.
#pragma once

#include <array>
#include <cstddef>

namespace narrows::cpu {

struct alignas(16) ErfPoint {
  double value, slope;
};
inline constexpr size_t kErfPoints = 1024;  // a power of two, by which any index can be masked
inline constexpr size_t kErfLast = 760;     // from here on, 5.9375, erf is 1

// By series without cancellation: erf(r) = slope(r) (r + 2 r^3/(1*3) + 4 r^5/(1*3*5) + ...), slope(r) = 2/sqrt(pi) exp(-r^2)
// (NIST's Digital Library of Mathematical Functions, 7.6.2), exp(-r^2) as one over the series of exp(r^2).
constexpr ErfPoint erf_point(long double r) {
  constexpr long double kSlopeAt0 = 1.128379167095512573896158903121545172L;
  const long double square = r * r;
  long double sum = r, term = r, exp = 1, exp_term = 1;
  for (int n = 1; exp_term > 0x1p-70L * exp; ++n) {  // the other sum's terms fall faster
    term *= 2 * square / (2 * n + 1), sum += term;
    exp_term *= square / n, exp += exp_term;
  }
  const long double slope = kSlopeAt0 / exp;
  return {static_cast<double>(slope * sum), static_cast<double>(slope)};
}
inline constexpr auto kErfTable = [] {
  std::array<ErfPoint, kErfPoints> table{};
  for (size_t i = 0; i < kErfPoints; ++i) table[i] = i <= kErfLast ? erf_point(static_cast<long double>(i) / 128) : ErfPoint{1, 0};
  return table;
}();

}  // namespace narrows::cpu
