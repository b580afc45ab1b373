// elementwise_gradients.glsl -- grad_out times the derivative of a function by one operand. Subgradients and special values are
// those of docs/ops.md, which are torch's. The includer defines the specialization constants `const int FUNCTION` (NW_EW_*) and
// `const int OPERAND` (0, 1 or 2: of a, b or c) and includes math_f32.glsl or math_f64.glsl before.
//   gradient(g, a, b, c)  g is grad_out; of elu, b is alpha. What it looks at: fill_operands() of ops/elementwise_backward.cpp
// where chooses between g and 0 by a bool: gradient_of_where(g, a). Functions that are constant almost everywhere give 0.
#include "elementwise_numbers.glsl"

// ---- derivatives that take more than a line ----

precise REAL sqrt_of_product(REAL a, REAL b) { return sqrt_real(a) * sqrt_real(b); }  // the product itself may overflow
precise REAL sigmoid_slope(REAL a) {
  if (is_nan(a)) return a;
  const REAL z = exp_real(-size(a));
  if (z < power_of_two(-kDigits - 3)) return z;
  REAL sum = REAL(1) + z;
  return ratio(z, sum * sum);
}
precise REAL gelu_slope(REAL a) {
  if (is_nan(a)) return a;
  if (size(a) > kGeluEnd) return is_negative(a) ? REAL(0) : REAL(1);
  REAL cdf = REAL(0.5) * erfc_real(-a * kSqrtHalf.x);
  return cdf + a * (kNormalDensity * exp_real(REAL(-0.5) * (a * a)));
}
precise REAL gelu_tanh_slope(REAL a) {
  if (is_nan(a)) return a;
  if (size(a) > REAL(30)) return is_negative(a) ? REAL(0) : REAL(1);
  const REAL t = gelu_tanh_argument(a).x;
  return sigmoid_real(t) + a * sigmoid_slope(t) * (kGeluLinear.x + REAL(3) * kGeluCubic.x * (a * a));
}
precise REAL silu_slope(REAL a) {
  if (is_inf(a)) return is_negative(a) ? REAL(0) : REAL(1);
  return sigmoid_real(a) + a * sigmoid_slope(a);
}
precise REAL acosh_slope(REAL a) {
  if (less(a, REAL(1))) return not_a_number();
  return quotient(REAL(1), sqrt_of_product(a - REAL(1), a + REAL(1)));
}
precise REAL cbrt_slope(REAL a) {
  const REAL root = cbrt_real(a);
  return quotient(REAL(1), REAL(3) * (root * root));
}
precise REAL tan_slope(REAL a) {
  const REAL t = tan_real(a);
  return REAL(1) + t * t;
}
precise REAL erf_slope(REAL a) { return kTwoOverSqrtPi * exp_real(-(a * a)); }
precise REAL pow_slope_a(REAL a, REAL b) { return is_zero(b) ? REAL(0) : b * pow_real(a, b - REAL(1)); }
precise REAL pow_slope_b(REAL a, REAL b) {
  if (is_zero(a) && less_equal(REAL(0), b)) return REAL(0);
  return pow_real(a, b) * log_real(a);
}
// a/b rounded towards 0: the whole number of times that fmod takes b from a.
precise REAL whole_quotient(REAL a, REAL b, REAL rest) { return round_real(quotient(a - rest, b)); }
// a/b rounded down: remainder takes b once more where the signs differ. Counted so for an infinite b, too.
precise REAL floor_quotient(REAL a, REAL b) {
  const REAL rest = fmod_real(a, b), n = whole_quotient(a, b, rest);
  return !is_zero(rest) && is_negative(rest) != is_negative(b) ? n - REAL(1) : n;
}
// What maximum or minimum passes on: all to the winner, half to each at a tie, all past a NaN.
precise REAL won(REAL g, bool tie, bool lost) { return tie ? REAL(0.5) * g : lost ? REAL(0) : g; }

REAL gradient_of_clamp(REAL g, REAL a, REAL b, REAL c) {
  const bool passes = OPERAND == 0   ? less_equal(b, a) && less_equal(a, c)
                      : OPERAND == 1 ? less(a, b) && less(b, c)
                                     : less(c, a) || less(c, b) || (less(a, b) && equal(b, c));
  return passes ? g : REAL(0);
}
REAL gradient_of_where(REAL g, bool a) { return a == (OPERAND == 1) ? g : REAL(0); }

// ---- by function ----

precise REAL gradient_unary(REAL g, REAL a) {
  switch (FUNCTION) {
    case NW_EW_NEG: return negated(g);
    case NW_EW_ABS: return g * sign_of(a);
    case NW_EW_SQUARE: return g * (a + a);
    case NW_EW_RELU: return less_equal(a, REAL(0)) ? REAL(0) : g;
    case NW_EW_CAST: return g;
    case NW_EW_SQRT: return quotient(g, REAL(2) * sqrt_real(a));
    case NW_EW_RSQRT: return quotient(quotient(REAL(-0.5) * g, sqrt_real(a)), a);
    case NW_EW_CBRT: return g * cbrt_slope(a);
    case NW_EW_RECIPROCAL: return negated(quotient(quotient(g, a), a));
    case NW_EW_EXP:
    case NW_EW_EXPM1: return g * exp_real(a);
    case NW_EW_EXP2: return g * (exp2_real(a) * kLn2.x);
    case NW_EW_SINH: return g * cosh_real(a);
    case NW_EW_COSH: return g * sinh_real(a);
    case NW_EW_TANH: return g * (REAL(4) * sigmoid_slope(a + a));
    case NW_EW_SIGMOID: return g * sigmoid_slope(a);
    case NW_EW_GELU_TANH: return g * gelu_tanh_slope(a);
    case NW_EW_SILU: return g * silu_slope(a);
    case NW_EW_SOFTPLUS: return g * sigmoid_real(a);
    case NW_EW_LOG: return quotient(g, a);
    case NW_EW_LOG2: return quotient(g, a * kLn2.x);
    case NW_EW_LOG10: return quotient(g, a * kLn10);
    case NW_EW_LOG1P: return quotient(g, REAL(1) + a);
    case NW_EW_ASINH: return quotient(g, hypot_real(a, REAL(1)));
    case NW_EW_ACOSH: return g * acosh_slope(a);
    case NW_EW_ATANH: return quotient(g, (REAL(1) - a) * (REAL(1) + a));
    case NW_EW_SIN: return g * cos_real(a);
    case NW_EW_COS: return negated(g * sin_real(a));
    case NW_EW_TAN: return g * tan_slope(a);
    case NW_EW_ASIN: return quotient(g, sqrt_of_product(REAL(1) - a, REAL(1) + a));
    case NW_EW_ACOS: return negated(quotient(g, sqrt_of_product(REAL(1) - a, REAL(1) + a)));
    case NW_EW_ATAN: return quotient(g, REAL(1) + a * a);
    case NW_EW_GELU: return g * gelu_slope(a);
    case NW_EW_ERF: return g * erf_slope(a);
    case NW_EW_ERFC: return negated(g * erf_slope(a));
    default: return REAL(0);  // sign, floor, ceil, round, trunc
  }
}

precise REAL gradient(REAL g, REAL a, REAL b, REAL c) {
  const bool first = OPERAND == 0;
  const REAL own = first ? a : b, other = first ? b : a;
  switch (FUNCTION) {
    case NW_EW_ADD: return g;
    case NW_EW_SUB: return first ? g : negated(g);
    case NW_EW_MUL: return g * other;
    case NW_EW_MAXIMUM: return won(g, equal(a, b), less(own, other));
    case NW_EW_MINIMUM: return won(g, equal(a, b), less(other, own));
    case NW_EW_COPYSIGN: return first ? g * (sign_of(a) * with_sign(REAL(1), b)) : REAL(0);
    case NW_EW_CLAMP: return gradient_of_clamp(g, a, b, c);
    case NW_EW_FMA: return OPERAND == 2 ? g : g * other;
    case NW_EW_DIV: return first ? quotient(g, b) : negated(g * quotient(quotient(a, b), b));
    case NW_EW_HYPOT: return g * quotient(own, hypot_real(a, b));
    case NW_EW_FMOD: return first ? g : negated(g * whole_quotient(a, b, fmod_real(a, b)));
    case NW_EW_REMAINDER: return first ? g : negated(g * floor_quotient(a, b));
    case NW_EW_ELU: return less_equal(a, REAL(0)) ? g * b * exp_real(a) : g;
    case NW_EW_LOGADDEXP: return g * (equal(a, b) ? REAL(0.5) : sigmoid_real(own - other));
    case NW_EW_POW: return g * (first ? pow_slope_a(a, b) : pow_slope_b(a, b));
    case NW_EW_ATAN2: {
      const REAL r = hypot_real(a, b);
      return (first ? g : negated(g)) * quotient(quotient(other, r), r);
    }
    default: return gradient_unary(g, a);
  }
}
