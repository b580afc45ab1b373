// naive_gradients.cpp -- the gradient columns of docs/ops.md, in forms that do not cancel where another has the same value.
// See naive.h.
#include <cmath>
#include <limits>

#include "naive.h"

namespace naive {
namespace {

const Real kPi = std::acos(Real(-1));
constexpr Real kNaN = std::numeric_limits<Real>::quiet_NaN();

Real logistic(Real a) { return 1 / (1 + std::exp(-a)); }
Real square(Real a) { return a * a; }

Real gelu(Real a) { return std::erfc(-a / std::sqrt(Real(2))) / 2 + a * std::exp(-a * a / 2) / std::sqrt(2 * kPi); }

Real gelu_tanh(Real a) {
  const Real u = std::sqrt(2 / kPi) * (a + 0.044715L * a * a * a), slope = std::sqrt(2 / kPi) * (1 + 0.134145L * a * a);
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

Real unary(const nw_elementwise_params& p, Real a) {
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
    case NW_EW_GELU: return gelu(a);
    case NW_EW_GELU_TANH: return gelu_tanh(a);
    case NW_EW_SILU: return logistic(a) * (1 + a * logistic(-a));
    case NW_EW_SOFTPLUS: return logistic(a);
    case NW_EW_ERF: return 2 / std::sqrt(kPi) * std::exp(-a * a);
    case NW_EW_ERFC: return -2 / std::sqrt(kPi) * std::exp(-a * a);
    case NW_EW_RECIPROCAL: return -1 / (a * a);
    case NW_EW_CAST: return 1;
    default: return 0;  // sign, floor, ceil, round, trunc
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

Real by_a(int32_t function, Real a, Real b) {
  switch (function) {
    case NW_EW_MUL: return b;
    case NW_EW_DIV: return 1 / b;
    case NW_EW_POW: return b == 0 && !fault(Fault::pow_derivative) ? 0 : b * std::pow(a, b - 1);
    case NW_EW_ATAN2: return b / (a * a + b * b);
    case NW_EW_HYPOT: return a / std::hypot(a, b);
    case NW_EW_MAXIMUM: return half_at_a_tie(a, b);
    case NW_EW_MINIMUM: return half_at_a_tie(b, a);
    case NW_EW_COPYSIGN: return sign(a) * std::copysign(Real(1), b);
    case NW_EW_LOGADDEXP: return logistic(a - b);
    default: return 1;  // add, sub, fmod, remainder
  }
}

Real by_b(int32_t function, Real a, Real b) {
  switch (function) {
    case NW_EW_ADD: return 1;
    case NW_EW_SUB: return fault(Fault::sub_derivative) ? 1 : -1;
    case NW_EW_MUL: return a;
    case NW_EW_DIV: return -a / b / b;
    case NW_EW_POW: return a == 0 && b >= 0 && !fault(Fault::pow_derivative) ? 0 : std::pow(a, b) * std::log(a);
    case NW_EW_ATAN2: return -a / (a * a + b * b);
    case NW_EW_HYPOT: return b / std::hypot(a, b);
    case NW_EW_MAXIMUM: return half_at_a_tie(b, a);
    case NW_EW_MINIMUM: return half_at_a_tie(a, b);
    case NW_EW_FMOD: return -trunc_quotient(a, b);
    case NW_EW_REMAINDER: return -floor_quotient(a, b);
    case NW_EW_LOGADDEXP: return logistic(b - a);
    default: return 0;  // copysign
  }
}

Real clamp(int operand, const Operands& x) {
  const bool is_nan = std::isnan(x.a) || std::isnan(x.b) || std::isnan(x.c);
  if (is_nan && !fault(Fault::clamp_derivative_nan)) return operand == 2 && (x.a > x.c || x.b > x.c);
  const int decides = x.a >= x.b && x.a <= x.c ? 0 : x.a < x.b && x.b < x.c ? 1 : 2;
  return operand == decides;
}

}  // namespace

Real real_gradient(const nw_elementwise_params& p, int operand, const Operands& x) {
  switch (p.function) {
    case NW_EW_FMA: return operand == 0 ? x.b : operand == 1 ? x.a : 1;
    case NW_EW_WHERE: return operand == 1 ? x.a != 0 : x.a == 0;
    case NW_EW_CLAMP: return clamp(operand, x);
    default: return p.function < NW_EW_ADD ? unary(p, x.a) : operand == 0 ? by_a(p.function, x.a, x.b) : by_b(p.function, x.a, x.b);
  }
}

}  // namespace naive
