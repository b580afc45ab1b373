// SPDX-License-Identifier: Apache-2.0
// elementwise_exact.cpp -- the gradient of one element where the vectors' expressions leave the range of their type: the formulas
// of docs/ops.md in long double, which on x86-64 has four more bits of exponent and on arm64 as many and twice the digits. Rare
// values alone come here (elementwise_grad-inl.h).
#include "elementwise_exact.h"

#include <narrows/ops.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/ops/elementwise_table.h"

namespace narrows::cpu {
namespace {

using Real = long double;
static_assert(std::numeric_limits<Real>::max_exponent >= 16384 && std::numeric_limits<Real>::digits >= 64);

constexpr Real kLn2 = 0.693147180559945309417232121458176568L, kLn10 = 2.302585092994045684017991454684364208L,
               kTwoOverRootPi = 1.128379167095512573896158903121545172L, kRoot2Pi = 2.506628274631000502415765284811045253L,
               kRoot2 = 1.414213562373095048801688724209698079L, kGeluLinear = 1.595769121605730711759784239737527469L;

// What overflows even here, of finite operands: it is no pole, and 0 times it is 0.
Real bounded(Real factor) {
  constexpr Real kMost = std::numeric_limits<Real>::max();
  return std::clamp(factor, -kMost, kMost);
}
Real unless_at_infinity(Real a, Real factor) { return std::isinf(a) ? factor : bounded(factor); }

// exp(-a^2/divisor). exp would multiply the square's rounding error by the square.
Real exp_of_square(Real a, Real divisor) {
  const Real square = a * a, error = std::isinf(square) ? 0 : std::fma(a, a, -square);
  return std::exp(-square / divisor) * (1 - error / divisor);
}
Real sigmoid(Real a) { return 1 / (1 + std::exp(-a)); }

Real gelu(Real a) {
  if (std::isinf(a)) return a > 0 ? 1 : 0;
  return std::erfc(-a / kRoot2) / 2 + a * exp_of_square(a, 2) / kRoot2Pi;
}
Real gelu_tanh(Real a) {
  if (std::isinf(a)) return a > 0 ? 1 : 0;
  constexpr Real kCubic = 0.044715L;
  const Real t = kGeluLinear * (a + kCubic * a * a * a), slope = kGeluLinear * (1 + 3 * kCubic * a * a);
  return sigmoid(t) * (1 + a * sigmoid(-t) * slope);
}
Real silu(Real a) {
  if (std::isinf(a)) return a > 0 ? 1 : 0;
  return sigmoid(a) * (1 + a * sigmoid(-a));
}

// At a pole, which the operands alone make, the infinity stays.
Real pow_by_a(Real a, Real b) {
  const Real power = std::pow(a, b - 1), factor = b == 0 || power == 0 ? 0 : b * power;
  return a == 0 || std::isinf(a) || std::isinf(b) ? factor : bounded(factor);
}
Real pow_by_b(Real a, Real b) {
  const Real power = std::pow(a, b);
  if ((a == 0 && b >= 0) || (a > 0 && power == 0)) return 0;
  const Real factor = power * std::log(a);
  return a == 0 || std::isinf(a) || std::isinf(b) ? factor : bounded(factor);
}

// `mine` over the square of the distance from the origin, or over the distance.
Real over_square(Real mine, Real other) {
  const Real square = mine * mine + other * other;
  return square == 0 || std::isinf(square) ? 0 : mine / square;
}
Real over_distance(Real mine, Real other) {
  if (std::isinf(mine) && std::isfinite(other)) return mine > 0 ? 1 : -1;
  return mine / std::hypot(mine, other);
}

Real trunc_quotient(Real a, Real b) { return std::nearbyint((a - std::fmod(a, b)) / b); }
Real floor_quotient(Real a, Real b) {
  const Real rest = std::fmod(a, b);
  return trunc_quotient(a, b) - (rest != 0 && (rest < 0) != (b < 0) ? 1 : 0);
}
Real weight(Real mine, Real other) { return mine == other ? 0.5L : sigmoid(mine - other); }

Real by_only_operand(int function, Real a, Real alpha) {
  switch (function) {
    case NW_EW_SQUARE: return 2 * a;
    case NW_EW_EXP:
    case NW_EW_EXPM1: return unless_at_infinity(a, std::exp(a));
    case NW_EW_EXP2: return unless_at_infinity(a, std::exp2(a)) * kLn2;
    case NW_EW_LOG10: return 1 / (a * kLn10);
    case NW_EW_SINH: return unless_at_infinity(a, std::cosh(a));
    case NW_EW_COSH: return unless_at_infinity(a, std::sinh(a));
    case NW_EW_TANH: return 1 / (std::cosh(a) * std::cosh(a));
    case NW_EW_SIGMOID: return sigmoid(a) * sigmoid(-a);
    case NW_EW_ELU: return a <= 0 ? alpha * std::exp(a) : 1;
    case NW_EW_GELU: return gelu(a);
    case NW_EW_GELU_TANH: return gelu_tanh(a);
    case NW_EW_SILU: return silu(a);
    case NW_EW_SOFTPLUS: return sigmoid(a);
    case NW_EW_ERF: return kTwoOverRootPi * exp_of_square(a, 1);
    case NW_EW_ERFC: return -kTwoOverRootPi * exp_of_square(a, 1);
    default: return std::numeric_limits<Real>::quiet_NaN();
  }
}
Real by_operand(int function, int operand, Real a, Real b) {
  switch (function) {
    case NW_EW_DIV: return operand == 0 ? 1 / b : -a / b / b;
    case NW_EW_POW: return operand == 0 ? pow_by_a(a, b) : pow_by_b(a, b);
    case NW_EW_ATAN2: return operand == 0 ? over_square(b, a) : -over_square(a, b);
    case NW_EW_HYPOT: return operand == 0 ? over_distance(a, b) : over_distance(b, a);
    case NW_EW_FMOD: return operand == 0 ? 1 : -trunc_quotient(a, b);
    case NW_EW_REMAINDER: return operand == 0 ? 1 : -floor_quotient(a, b);
    case NW_EW_LOGADDEXP: return operand == 0 ? weight(a, b) : weight(b, a);
    default: return std::numeric_limits<Real>::quiet_NaN();
  }
}

}  // namespace

long double exact_gradient(int function, int operand, long double g, long double a, long double b, double alpha) {
  return g * (operands_of(function) == 1 ? by_only_operand(function, a, static_cast<Real>(alpha))
                                         : by_operand(function, operand, a, b));
}

}  // namespace narrows::cpu
