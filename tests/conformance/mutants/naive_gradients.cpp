// SPDX-License-Identifier: Apache-2.0
// naive_gradients.cpp -- the gradient columns of docs/ops.md, in forms that do not cancel where another has the same value.
// A function that has no form here has the reference's. See naive.h.
#include <algorithm>
#include <cmath>
#include <limits>

#include "core/ops/elementwise_table.h"
#include "naive.h"
#include "reference/elementwise.h"

namespace naive {
namespace {

const Real kPi = std::acos(Real(-1));
constexpr Real kNaN = std::numeric_limits<Real>::quiet_NaN();

Real logistic(Real a) { return 1 / (1 + std::exp(-a)); }
Real square(Real a) { return a * a; }

// An intermediate result that a mutant rounds to the dtype.
Real kept(DType dtype, Real value, Fault where) {
  return fault(where) ? round_to(dtype == DType::f64 ? dtype : DType::f32, value) : value;
}

// exp(-a^2 / divisor), of the square with its rounding error.
Real exp_of_square(DType dtype, Real a, Real divisor) {
  const Real s = kept(dtype, a * a, Fault::square_rounded);
  const Real error = std::isfinite(s) && !fault(Fault::square_rounded) ? std::fma(a, a, -s) : 0;
  return std::exp(-s / divisor) * (1 - error / divisor);
}

Real gelu(DType dtype, Real a) {
  return std::erfc(-a / std::sqrt(Real(2))) / 2 + a * exp_of_square(dtype, a, 2) / std::sqrt(2 * kPi);
}

Real gelu_tanh(DType dtype, Real a) {
  const Real u = kept(dtype, std::sqrt(2 / kPi) * (a + 0.044715L * a * a * a), Fault::tail_rounded),
             slope = std::sqrt(2 / kPi) * (1 + 0.134145L * a * a);
  return logistic(2 * u) + 2 * a * logistic(2 * u) * logistic(-2 * u) * slope;  // (1 - tanh^2 u)/4 = s(2u) s(-2u)
}

Real tanh(Real a) { return fault(Fault::tanh_derivative) ? 1 - a * a : 1 / square(std::cosh(a)); }
Real sign(Real a) { return std::isnan(a) ? a : static_cast<Real>((a > 0) - (a < 0)); }
// 1 at NaN, where it is not <= 0.
Real relu(Real a) {
  if (fault(Fault::relu_derivative) && a == 0) return 1;
  return fault(Fault::relu_derivative_nan) ? a > 0 : !(a <= 0);
}
Real elu(Real a, Real alpha) {
  if (!(a <= 0) || (fault(Fault::elu_derivative) && a == 0)) return 1;
  return (fault(Fault::alpha_of_derivative) ? 1 : alpha) * std::exp(a);
}

// pi times the derivative of sin(t)/t: minus the spherical Bessel function of order 1, t = pi a. By its series up to 1/2.
Real sinc(Real a) {
  if (std::isinf(a)) return 0;
  if (std::fabs(a) < 0.5L) {
    Real sum = 0, power = -kPi * kPi * a / 3;
    for (int k = 1; k < 20; ++k, power *= -square(kPi * a) / (2 * (k - 1) * (2 * k + 1))) sum += power;
    return sum;
  }
  const Real whole = std::nearbyint(a), f = a - whole, sine = std::sin(kPi * f) / (kPi * a);
  const Real cosine = std::sin(kPi * (0.5L - std::fabs(f)));
  return (std::fmod(whole, Real(2)) == 0 ? cosine - sine : sine - cosine) / a;
}

// At an infinity the limit: 0 below, 1 above.
bool is_a_step(int32_t function, Real a) {
  const bool has_limits = function == NW_EW_GELU || function == NW_EW_GELU_TANH || function == NW_EW_SILU;
  return has_limits && std::isinf(a) && !fault(Fault::limit_derivative);
}

Real by_reference(int32_t function, int operand, const Operands& x) {
  const narrows::reference::Partials partials = narrows::reference::function(function).gradient({x.a, x.b, x.c, 1});
  return operand == 0 ? partials.a : operand == 1 ? partials.b : partials.c;
}

Real unary(const nw_elementwise_params& p, DType dtype, Real a) {
  if (is_a_step(p.function, a)) return a > 0;
  switch (p.function) {
    case NW_EW_NEG: return -1;
    case NW_EW_ABS: return sign(a);
    case NW_EW_SQUARE: return 2 * a;
    case NW_EW_SQRT: return 1 / (2 * std::sqrt(a));
    case NW_EW_RSQRT: return -1 / (2 * a * std::sqrt(a));
    case NW_EW_CBRT: return 1 / (3 * square(std::cbrt(a)));
    case NW_EW_EXP: return std::exp(a);
    case NW_EW_EXP2: return std::exp2(a) * std::log(Real(2));
    case NW_EW_EXPM1: return std::exp(a);
    case NW_EW_LOG: return 1 / a;
    case NW_EW_LOG2: return 1 / (a * std::log(Real(2)));
    case NW_EW_LOG10: return 1 / (a * std::log(Real(10)));
    case NW_EW_LOG1P: return 1 / (1 + a);
    case NW_EW_SIN: return std::cos(a);
    case NW_EW_COS: return -std::sin(a);
    case NW_EW_TAN: return 1 + square(std::tan(a));
    case NW_EW_ASIN: return 1 / std::sqrt((1 - a) * (1 + a));
    case NW_EW_ACOS: return -1 / std::sqrt((1 - a) * (1 + a));
    case NW_EW_ATAN: return 1 / (1 + a * a);
    case NW_EW_SINH: return std::cosh(a);
    case NW_EW_COSH: return std::sinh(a);
    case NW_EW_TANH: return tanh(a);
    case NW_EW_ASINH: return 1 / std::sqrt(a * a + 1);
    case NW_EW_ACOSH: return 1 / std::sqrt((a - 1) * (a + 1));
    case NW_EW_ATANH: return 1 / ((1 - a) * (1 + a));
    case NW_EW_SIGMOID: return logistic(a) * logistic(-a);
    case NW_EW_RELU: return relu(a);
    case NW_EW_ELU: return elu(a, p.alpha);
    case NW_EW_GELU: return gelu(dtype, a);
    case NW_EW_GELU_TANH: return gelu_tanh(dtype, a);
    case NW_EW_SILU: return logistic(a) * (1 + a * logistic(-a));
    case NW_EW_SOFTPLUS: return logistic(a);
    case NW_EW_ERF: return 2 / std::sqrt(kPi) * exp_of_square(dtype, a, 1);
    case NW_EW_ERFC: return -2 / std::sqrt(kPi) * exp_of_square(dtype, a, 1);
    case NW_EW_SINC: return sinc(a);
    case NW_EW_RECIPROCAL: return -1 / (a * a);
    case NW_EW_CAST: return 1;
    default: return by_reference(p.function, 0, {a, 0, 0});
  }
}

Real trunc_quotient(Real a, Real b) { return b == 0 || std::isinf(a) ? kNaN : std::trunc(a / b); }
// By an infinity from the signs: a/b is 0.
Real floor_quotient(Real a, Real b) {
  if (b == 0 || std::isinf(a)) return kNaN;
  if (std::isinf(b) && !std::isnan(a) && !fault(Fault::remainder_derivative)) return a != 0 && (a < 0) != (b < 0) ? -1 : 0;
  return std::floor(a / b);
}

Real half_at_a_tie(Real mine, Real other) {
  if (fault(Fault::tie_derivative)) return mine >= other;
  if (std::isnan(mine) || std::isnan(other)) return fault(Fault::tie_derivative_nan) ? 0.5L : 1;
  return mine > other ? 1 : mine < other ? 0 : 0.5L;
}

// Equal infinities count as equal, too.
Real weight(DType dtype, Real mine, Real other) {
  if (mine == other && !fault(Fault::logaddexp_derivative)) return 0.5L;
  return logistic(kept(dtype, mine - other, Fault::difference_rounded));
}

Real pow_by_a(Real a, Real b) {
  const Real power = std::pow(a, b - 1);
  return (b == 0 || power == 0) && !fault(Fault::pow_derivative) ? 0 : b * power;
}
Real pow_by_b(Real a, Real b) {
  const Real power = std::pow(a, b);
  return ((a == 0 && b >= 0) || (a > 0 && power == 0)) && !fault(Fault::pow_derivative) ? 0 : power * std::log(a);
}

// This over the square of hypot; 0 at the origin and where either is infinite.
Real atan2(Real mine, Real other) {
  const Real s = mine * mine + other * other;
  const bool at_origin = s == 0 && !fault(Fault::atan2_derivative);
  return at_origin || (std::isinf(s) && !fault(Fault::limit_derivative)) ? 0 : mine / s;
}
Real hypot(Real mine, Real other) {
  if (std::isinf(mine) && std::isfinite(other) && !fault(Fault::limit_derivative)) return sign(mine);
  return mine / std::hypot(mine, other);
}

Real by_a(int32_t function, DType dtype, Real a, Real b) {
  switch (function) {
    case NW_EW_ADD:
    case NW_EW_SUB:
    case NW_EW_FMOD:
    case NW_EW_REMAINDER: return 1;
    case NW_EW_MUL: return b;
    case NW_EW_DIV: return 1 / b;
    case NW_EW_POW: return pow_by_a(a, b);
    case NW_EW_ATAN2: return atan2(b, a);
    case NW_EW_HYPOT: return hypot(a, b);
    case NW_EW_MAXIMUM: return half_at_a_tie(a, b);
    case NW_EW_MINIMUM: return half_at_a_tie(b, a);
    case NW_EW_COPYSIGN: return sign(a) * std::copysign(Real(1), b);
    case NW_EW_LOGADDEXP: return weight(dtype, a, b);
    default: return by_reference(function, 0, {a, b, 0});
  }
}

Real by_b(int32_t function, DType dtype, Real a, Real b) {
  switch (function) {
    case NW_EW_ADD: return 1;
    case NW_EW_SUB: return fault(Fault::sub_derivative) ? 1 : -1;
    case NW_EW_MUL: return a;
    case NW_EW_DIV: return -a / b / b;
    case NW_EW_POW: return pow_by_b(a, b);
    case NW_EW_ATAN2: return -atan2(a, b);
    case NW_EW_HYPOT: return hypot(b, a);
    case NW_EW_MAXIMUM: return half_at_a_tie(b, a);
    case NW_EW_MINIMUM: return half_at_a_tie(a, b);
    case NW_EW_FMOD: return -trunc_quotient(a, b);
    case NW_EW_REMAINDER: return -floor_quotient(a, b);
    case NW_EW_LOGADDEXP: return weight(dtype, b, a);
    case NW_EW_COPYSIGN: return 0;
    default: return by_reference(function, 1, {a, b, 0});
  }
}

Real clamp(int operand, const Operands& x) {
  const bool is_nan = std::isnan(x.a) || std::isnan(x.b) || std::isnan(x.c);
  if (is_nan && !fault(Fault::clamp_derivative_nan)) return operand == 2 && (x.a > x.c || x.b > x.c);
  const int decides = x.a >= x.b && x.a <= x.c ? 0 : x.a < x.b && x.b < x.c ? 1 : 2;
  return operand == decides;
}

Real formula(const nw_elementwise_params& p, DType dtype, int operand, const Operands& x) {
  switch (p.function) {
    case NW_EW_FMA: return operand == 0 ? x.b : operand == 1 ? x.a : 1;
    case NW_EW_WHERE: return operand == 1 ? x.a != 0 : x.a == 0;
    case NW_EW_CLAMP: return clamp(operand, x);
    default: break;
  }
  if (narrows::operands_of(p.function) == 1) return unary(p, dtype, x.a);
  return operand == 0 ? by_a(p.function, dtype, x.a, x.b) : by_b(p.function, dtype, x.a, x.b);
}

// Whether the formula may give an infinity where the derivative has none.
bool may_overflow(int32_t function, const Operands& x) {
  switch (function) {
    case NW_EW_EXP:
    case NW_EW_EXP2:
    case NW_EW_EXPM1:
    case NW_EW_SINH:
    case NW_EW_COSH: return std::isfinite(x.a);
    case NW_EW_POW: return std::isfinite(x.a) && x.a != 0 && std::isfinite(x.b);
    default: return false;
  }
}

}  // namespace

Real real_gradient(const nw_elementwise_params& p, DType dtype, int operand, const Operands& x) {
  constexpr Real kMost = std::numeric_limits<Real>::max();
  Real factor = formula(p, dtype, operand, x);
  if (may_overflow(p.function, x) && !fault(Fault::factor_unbounded)) factor = std::clamp(factor, -kMost, kMost);
  const DType computed = dtype == DType::f64 ? dtype : DType::f32;
  if (fault(Fault::factor_overflows) && std::isinf(round_to(computed, factor))) return round_to(computed, factor);
  if (fault(Fault::factor_underflows) && std::fabs(factor) < (computed == DType::f64 ? 0x1p-1022L : 0x1p-126L)) return 0;
  return factor;
}

}  // namespace naive
