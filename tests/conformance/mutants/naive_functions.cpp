// SPDX-License-Identifier: Apache-2.0
// naive_functions.cpp -- functions of elementwise on floating point, by the formulas of docs/ops.md in Real. One that has no
// formula here is the reference's. See naive.h.
#include <algorithm>
#include <cmath>
#include <limits>

#include "core/ops/elementwise_table.h"
#include "naive.h"
#include "reference/elementwise.h"

namespace naive {
namespace {

constexpr Real kNaN = std::numeric_limits<Real>::quiet_NaN();
const Real kSqrt2 = std::sqrt(Real(2)), kPi = std::acos(Real(-1));

Real sign(Real a) { return std::isnan(a) ? a : static_cast<Real>((a > 0) - (a < 0)); }

Real maximum(Real a, Real b) {
  if (fault(Fault::maximum_nan)) return std::fmax(a, b);
  return std::isnan(a) || std::isnan(b) ? kNaN : std::max(a, b);
}
Real minimum(Real a, Real b) { return std::isnan(a) || std::isnan(b) ? kNaN : std::min(a, b); }
Real clamp(Real a, Real low, Real high) {
  return fault(Fault::clamp_order) ? maximum(minimum(a, high), low) : minimum(maximum(a, low), high);
}

Real fmod(Real a, Real b) { return fault(Fault::fmod_floor) ? a - b * std::floor(a / b) : std::fmod(a, b); }

// The sign of b, also of a zero.
Real remainder(Real a, Real b) {
  Real r = std::fmod(a, b);
  if (fault(Fault::remainder_trunc)) return r;
  if (r != 0 && (r < 0) != (b < 0)) r += b;
  return r == 0 ? std::copysign(r, b) : r;
}

Real exp(Real a) {
  if (fault(Fault::exp_overflows_early) && a > 709.78271L) return std::numeric_limits<Real>::infinity();  // of f64's 709.78271289
  return fault(Fault::exp_zero) ? 0 : std::exp(a);
}
Real expm1(DType t, Real a) { return fault(Fault::exp_minus_1) ? round_to(t, std::exp(a)) - 1 : std::expm1(a); }
Real tanh(Real a) {
  const Real exact = std::tanh(a);
  return fault(Fault::too_coarse) ? exact + exact * 6 * 0x1p-23L : exact;  // a class of 4 units taken for one of 8
}
Real sqrt(DType t, Real a) {
  const Real exact = std::sqrt(a);
  return fault(Fault::sqrt_unit) && t == DType::f32 && std::isfinite(exact) && exact > 0 ? exact * (1 + 0x1p-23L) : exact;
}
Real logistic(Real a) { return 1 / (1 + std::exp(-a)); }
Real softplus(Real a) { return std::fmax(a, Real(0)) + std::log1p(std::exp(-std::fabs(a))); }

Real logaddexp(Real a, Real b) {
  if (std::isnan(a) || std::isnan(b)) return kNaN;
  return a == b ? a + std::log(Real(2)) : std::max(a, b) + std::log1p(std::exp(-std::fabs(a - b)));
}

Real elu(DType t, Real a, Real alpha) {
  if (fault(Fault::alpha)) alpha = 1;
  if (fault(Fault::alpha_of_16_bits)) alpha = round_to(t, alpha);
  if (fault(Fault::elu_nan)) return std::fmax(a, Real(0)) + std::fmin(alpha * std::expm1(a), Real(0));
  return a > 0 ? a : alpha * expm1(t, a);
}

Real relu(Real a) {
  if (fault(Fault::relu_nan)) return std::fmax(a, Real(0));
  if (fault(Fault::relu_negative_zero) && a == 0) return a;
  return std::isnan(a) || a > 0 ? a : 0;
}

// The limit of the activations at -infinity, where they are 0 times an infinity.
bool is_far_below(Real a) { return std::isinf(a) && a < 0 && !fault(Fault::zero_times_infinity); }
Real gelu(Real a) { return is_far_below(a) ? 0 : a * std::erfc(-a / kSqrt2) / 2; }
Real gelu_tanh(Real a) {  // (1 + tanh u)/2 is the logistic function of 2u, which does not cancel
  const Real u = std::sqrt(2 / kPi) * (a + 0.044715L * a * a * a);
  return is_far_below(a) ? 0 : a / (1 + std::exp(-2 * u));
}
Real silu(Real a) { return is_far_below(a) ? 0 : a / (1 + std::exp(-a)); }

// Of the distance from an even number, which is exact.
Real sinc(Real a) {
  const Real whole = std::nearbyint(a);
  if (a == 0 || std::isinf(a)) return a == 0;
  const Real s = std::sin(kPi * (a - whole)) / (kPi * a);
  return a == whole ? 0 : std::fmod(whole, Real(2)) == 0 ? s : -s;
}

Real hypot(DType t, Real a, Real b) {
  if (fault(Fault::hypot_overflow)) return std::sqrt(round_to(t, round_to(t, a * a) + round_to(t, b * b)));
  return std::hypot(a, b);
}

Real sine(Real a) {  // argument reduction with too few digits of pi
  return fault(Fault::sin_reduction) ? std::sin(static_cast<Real>(std::fmod(static_cast<double>(a), 6.283185307179586)))
                                     : std::sin(a);
}

// How a vector's arguments are reduced is chosen by the largest of them: here by the one before.
Real cosine(Real a) {
  static thread_local Real before = 0;
  const bool is_coarse = fault(Fault::chosen_by_neighbour) && std::fabs(before) > 1e4L;
  before = a;
  return std::cos(is_coarse ? std::fmod(a, static_cast<Real>(6.283185307179586)) : a);
}
Real tangent(Real a) {  // the least negative number of f32 loses its sign
  return fault(Fault::loses_sign) && a == -0x1p-149L ? 0 : std::tan(a);
}

// From the nearest multiple of 1/128, by one term of the series too few.
Real erf(Real a) {
  if (!fault(Fault::erf_series) || !(std::fabs(a) < 6)) return std::erf(a);
  const Real r = std::round(a * 128) / 128, d = a - r, slope = 2 / std::sqrt(kPi) * std::exp(-r * r);
  return std::erf(r) + slope * d * (1 - r * d + (2 * r * r - 1) / 3 * d * d - r * (2 * r * r - 3) / 6 * d * d * d);
}

// Exact products rounded to Real once they are summed; where that loses anything, to a number that ends with a 1: it is rounded
// again.
Real odd_sum(Real product, Real c) {
  const Real sum = product + c, back = sum - product, lost = (product - (sum - back)) + (c - back);
  int exponent = 0;
  const bool is_odd = std::fmod(std::ldexp(std::frexp(sum, &exponent), std::numeric_limits<Real>::digits), Real(2)) != 0;
  if (!(lost < 0 || lost > 0) || is_odd) return sum;
  return std::nextafter(sum, std::copysign(std::numeric_limits<Real>::infinity(), lost));
}

Real fma(DType t, Real a, Real b, Real c) {
  if (fault(Fault::half_steps)) return round_to(t, a * b) + c;
  if (fault(Fault::fma_twice)) return round_to(t == DType::f64 ? t : DType::f32, a * b) + c;  // by instructions of the type
  // Of Real it would round twice.
  if (t == DType::f32) return std::fma(static_cast<float>(a), static_cast<float>(b), static_cast<float>(c));
  if (t == DType::f64) return std::fma(static_cast<double>(a), static_cast<double>(b), static_cast<double>(c));
  if (fault(Fault::fma_in_f32)) return std::fma(static_cast<float>(a), static_cast<float>(b), static_cast<float>(c));
  return odd_sum(a * b, c);
}

Real by_reference(const nw_elementwise_params& p, const Operands& x) {
  return narrows::reference::function(p.function).real({x.a, x.b, x.c, p.alpha});
}

bool less(Real a, Real b) { return fault(Fault::nan_less) ? !(a >= b) : a < b; }

Real unary(const nw_elementwise_params& p, DType t, Real a) {
  switch (p.function) {
    case NW_EW_NEG: return fault(Fault::negative_zero) ? 0 - a : -a;
    case NW_EW_ABS: return std::fabs(a);
    case NW_EW_SIGN: return sign(a);
    case NW_EW_SQUARE: return a * a;
    case NW_EW_SQRT: return sqrt(t, a);
    case NW_EW_RSQRT: return 1 / std::sqrt(a);
    case NW_EW_CBRT: return std::cbrt(a);
    case NW_EW_EXP: return exp(a);
    case NW_EW_EXP2: return std::exp2(a);
    case NW_EW_EXPM1: return expm1(t, a);
    case NW_EW_LOG: return std::log(a);
    case NW_EW_LOG2: return std::log2(a);
    case NW_EW_LOG10: return std::log10(a);
    case NW_EW_LOG1P: return std::log1p(a);
    case NW_EW_SIN: return sine(a);
    case NW_EW_COS: return cosine(a);
    case NW_EW_TAN: return tangent(a);
    case NW_EW_ASIN: return std::asin(a);
    case NW_EW_ACOS: return std::acos(a);
    case NW_EW_ATAN: return std::atan(a);
    case NW_EW_SINH: return std::sinh(a);
    case NW_EW_COSH: return std::cosh(a);
    case NW_EW_TANH: return tanh(a);
    case NW_EW_ASINH: return std::asinh(a);
    case NW_EW_ACOSH: return std::acosh(a);
    case NW_EW_ATANH: return std::atanh(a);
    case NW_EW_SIGMOID: return logistic(a);
    case NW_EW_RELU: return relu(a);
    case NW_EW_ELU: return elu(t, a, p.alpha);
    case NW_EW_GELU: return gelu(a);
    case NW_EW_GELU_TANH: return gelu_tanh(a);
    case NW_EW_SILU: return silu(a);
    case NW_EW_SOFTPLUS: return softplus(a);
    case NW_EW_ERF: return erf(a);
    case NW_EW_ERFC: return std::erfc(a);
    case NW_EW_SINC: return sinc(a);
    case NW_EW_FLOOR: return std::floor(a);
    case NW_EW_CEIL: return std::ceil(a);
    case NW_EW_ROUND: return fault(Fault::round_away) ? std::round(a) : std::nearbyint(a);
    case NW_EW_TRUNC: return std::trunc(a);
    case NW_EW_RECIPROCAL: return 1 / a;
    case NW_EW_LOGICAL_NOT: return fault(Fault::nan_is_false) ? !(std::fabs(a) > 0) : a == 0;
    case NW_EW_ISNAN: return std::isnan(a);
    case NW_EW_ISINF: return std::isinf(a);
    case NW_EW_ISFINITE: return std::isfinite(fault(Fault::largest_infinite) && t == DType::f32 ? static_cast<float>(a * 1.5L) : a);
    default: return by_reference(p, {a, 0, 0});
  }
}

Real binary(const nw_elementwise_params& p, DType t, Real a, Real b) {
  switch (p.function) {
    case NW_EW_ADD: return a + b;
    case NW_EW_SUB: return a - b;
    case NW_EW_MUL: return a * b;
    case NW_EW_DIV: return a / b;
    case NW_EW_POW: return fault(Fault::pow_by_log) ? std::exp(b * std::log(a)) : std::pow(a, b);
    case NW_EW_ATAN2: return std::atan2(a, b);
    case NW_EW_HYPOT: return hypot(t, a, b);
    case NW_EW_MAXIMUM: return maximum(a, b);
    case NW_EW_MINIMUM: return minimum(a, b);
    case NW_EW_FMOD: return fmod(a, b);
    case NW_EW_REMAINDER: return remainder(a, b);
    case NW_EW_COPYSIGN: return std::copysign(a, b);
    case NW_EW_LOGADDEXP: return logaddexp(a, b);
    case NW_EW_EQ: return a == b;
    case NW_EW_NE: return a != b;
    case NW_EW_LT: return less(a, b);
    case NW_EW_LE: return a <= b;
    case NW_EW_GT: return a > b;
    case NW_EW_GE: return a >= b;
    case NW_EW_LOGICAL_AND: return a != 0 && b != 0;
    case NW_EW_LOGICAL_OR: return a != 0 || b != 0;
    case NW_EW_LOGICAL_XOR: return (a != 0) != (b != 0);
    default: return by_reference(p, {a, b, 0});
  }
}

}  // namespace

Real real_function(const nw_elementwise_params& p, DType dtype, const Operands& x) {
  switch (p.function) {
    case NW_EW_FMA: return fma(dtype, x.a, x.b, x.c);
    case NW_EW_WHERE: return fault(Fault::where_product) ? x.a * x.b + (1 - x.a) * x.c : x.a != 0 ? x.b : x.c;
    case NW_EW_CLAMP: return clamp(x.a, x.b, x.c);
    default: return narrows::operands_of(p.function) == 1 ? unary(p, dtype, x.a) : binary(p, dtype, x.a, x.b);
  }
}

}  // namespace naive
