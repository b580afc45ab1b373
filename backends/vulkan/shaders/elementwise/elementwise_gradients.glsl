// SPDX-License-Identifier: Apache-2.0
// elementwise_gradients.glsl -- grad_out times the derivative of a function by one operand. Subgradients and special values are
// those of docs/ops.md, which are torch's. The includer defines the specialization constants `const int FUNCTION` (NW_EW_*) and
// `const int OPERAND` (0, 1 or 2: of a, b or c) and includes math_f32.glsl or math_f64.glsl before.
//   gradient(g, a, b, c)  g is grad_out; of elu, b is alpha. What it looks at: fill_operands() of elementwise_backward.cpp
// where chooses between g and 0 by a bool: gradient_of_where(g, a). Functions that are constant almost everywhere give 0.
#include "elementwise_numbers.glsl"
// elu's alpha is any number of f32.
#define IS_NARROW (IS_HALF && FUNCTION != NW_EW_ELU)
#include "scaled.glsl"

// ---- derivatives that take more than a line. As Scaled ones those of which a number may lie beyond REAL's range where the
// gradient does not, with quotients and products in an order that no part of them does ----

precise Scaled rsqrt_slope(REAL a) {
  const Scaled s = scaled(a);
  const int odd = s.exponent & 1;
  REAL even = odd != 0 ? s.mantissa + s.mantissa : s.mantissa;
  return Scaled(quotient(REAL(-0.5), even * sqrt_real(even)), -3 * ((s.exponent - odd) >> 1));
}
precise REAL cbrt_slope(REAL a) {
  const REAL root = cbrt_real(a);
  return quotient(REAL(1), REAL(3) * (root * root));
}
precise Scaled over_square(REAL numerator, REAL a) {
  const Scaled s = scaled(a);
  return Scaled(quotient(numerator, s.mantissa * s.mantissa), -2 * s.exponent);
}
Scaled over(REAL numerator, REAL a) {
  const Scaled s = scaled(a);
  return Scaled(quotient(numerator, s.mantissa), -s.exponent);
}
precise Scaled atan_slope(REAL a) {
  return size(a) > kHuge ? over_square(REAL(1), a) : Scaled(quotient(REAL(1), REAL(1) + a * a), 0);
}
precise Scaled atanh_slope(REAL a) {
  return size(a) > kHuge ? over_square(REAL(-1), a) : Scaled(quotient(REAL(1), (REAL(1) - a) * (REAL(1) + a)), 0);
}
precise Scaled asinh_slope(REAL a) {
  return size(a) > kHuge ? over(REAL(1), size(a)) : Scaled(quotient(REAL(1), sqrt_real(a * a + REAL(1))), 0);
}
precise Scaled acosh_slope(REAL a) {
  if (less(a, REAL(1))) return Scaled(not_a_number(), 0);
  return a > kHuge ? over(REAL(1), a) : Scaled(quotient(REAL(1), sqrt_real((a - REAL(1)) * (a + REAL(1)))), 0);
}
precise REAL asin_divisor(REAL a) { return sqrt_real((REAL(1) - a) * (REAL(1) + a)); }
precise REAL tan_slope(REAL a) {
  const REAL t = tan_real(a);
  return REAL(1) + t * t;
}
precise Scaled exp2_slope(REAL a) {
  PAIR x = long_product(a, kLn2.x);
  x.y += a * kLn2.y;
  const Scaled power = exp_scaled(x);
  return Scaled(power.mantissa * kLn2.x, power.exponent);
}
precise Scaled cosh_scaled(REAL a) {
  const Scaled e = exp_scaled(size(a));
  REAL sum = e.mantissa;
  if (e.exponent <= kDigits) sum += ratio(REAL(1), e.mantissa) * power_of_two(-2 * e.exponent);
  return Scaled(sum, e.exponent - 1);
}
precise Scaled sinh_scaled(REAL a) {
  if (size(a) < REAL(1)) return scaled(sinh_near(a));
  const Scaled e = exp_scaled(size(a));
  REAL sum = e.mantissa;
  if (e.exponent <= kDigits) sum -= ratio(REAL(1), e.mantissa) * power_of_two(-2 * e.exponent);
  return Scaled(with_sign(sum, a), e.exponent - 1);
}
precise Scaled sigmoid_slope(REAL a) {
  const Scaled z = exp_scaled(-size(a));
  REAL sum = REAL(1) + plain(z);
  return Scaled(ratio(z.mantissa, sum * sum), z.exponent);
}
precise Scaled tanh_slope(REAL a) {
  const Scaled s = sigmoid_slope(a + a);
  return Scaled(REAL(4) * s.mantissa, s.exponent);
}
// Of a * sigmoid(t): sigmoid(t) + a*sigmoid(t)*sigmoid(-t)*t', by |a*t'| in two parts, since below 0 the terms nearly cancel.
precise Scaled gated_slope(PAIR t, PAIR rise) {
  const bool is_below = is_negative(t.x);
  const Scaled z = exp_scaled(is_below ? t : -t);
  PAIR sum = ordered_sum(REAL(1), plain(z));
  REAL square = sum.x * sum.x;
  if (is_below) return Scaled(z.mantissa * ratio((sum.x - rise.x) + (sum.y - rise.y), square), z.exponent);
  return Scaled(ratio(sum.x + rise.x * plain(z), square), 0);
}
Scaled silu_slope(REAL a) { return gated_slope(PAIR(a, REAL(0)), PAIR(at_most(size(a), kExpFar), REAL(0))); }
precise Scaled gelu_tanh_slope(REAL a) {
  const REAL x = at_most(size(a), kGeluTanhFar), square = x * x;
  PAIR steep = sum_of(kGeluLinear.x, REAL(3) * kGeluCubic.x * square), rise = long_product(x, steep.x);
  rise.y += x * (steep.y + kGeluLinear.y);
  return gated_slope(gelu_tanh_argument(with_sign(x, a)), rise);
}
precise Scaled gelu_slope(REAL a) {
  const REAL x = at_most(size(a), kGeluFar);
  const Scaled density = exp_scaled(long_product(x, REAL(-0.5) * x));  // over kNormalDensity
  PAIR rise = long_product(x, kNormalDensity.x);
  REAL tail = (normal_ratio(x, plain(density)) - rise.x) - (rise.y + x * kNormalDensity.y);  // nearly cancels at 3/4
  if (is_negative(a)) return Scaled(density.mantissa * tail, density.exponent);
  return Scaled(REAL(1) - plain(density) * tail, 0);
}
precise Scaled erf_slope(REAL a) {
  const REAL x = at_most(size(a), kErfFar);
  const Scaled e = exp_scaled(-long_product(x, x));
  return Scaled(kTwoOverSqrtPi * e.mantissa, e.exponent);
}
// (cos(pi a) - sinc(a))/a: near 0 a polynomial times a; else by the distances f from a whole number and 1/2 - |f| from half of an odd
// one, each exact where it is small.
precise Scaled sinc_slope(REAL a) {
  bool is_odd;
  const REAL x = size(a), f = alternating_rest(x, is_odd), rest = REAL(0.5) - size(f);
  const Scaled s = scaled(a);
  if (is_zero(a) || x <= REAL(0.5)) return Scaled(s.mantissa * sinc_slope_near(f * f), s.exponent);
  const REAL cosine = kHalfPi.x * (rest * sinc_near(rest));
  REAL change = REAL(2) * (is_odd ? -cosine : cosine);
  if (!is_zero(f)) change -= ratio(f * sinc_near(f), x);
  return over(change, a);
}
precise Scaled logaddexp_slope(REAL own, REAL other) {
  if (equal(own, other)) return Scaled(REAL(0.5), 0);
  return sigmoid_scaled(IS_SHORT ? PAIR(own - other, REAL(0)) : sum_of(own, -other));
}

precise Scaled pow_slope_a(REAL a, REAL b) {
  if (is_zero(b)) return Scaled(REAL(0), 0);
  const bool is_plain = is_finite(a) && !is_zero(a);
  REAL y;
  if (is_pow_special(a, is_plain ? b : b - REAL(1), y)) return Scaled(is_zero(y) ? y : b * y, 0);
  const Scaled power = exp_of_product(log_pair(size(a)), sum_of(b, REAL(-1)));
  const Scaled slope = times(scaled(b), power);
  return Scaled(is_negative(y) != is_negative(a) ? negated(slope.mantissa) : slope.mantissa, slope.exponent);
}
precise Scaled pow_slope_b(REAL a, REAL b) {
  if (is_zero(a) && less_equal(REAL(0), b)) return Scaled(REAL(0), 0);
  REAL y;
  if (is_pow_special(a, b, y)) return Scaled(is_zero(y) && !is_negative(a) ? REAL(0) : y * log_special(a), 0);
  if (is_negative(a)) return Scaled(not_a_number(), 0);
  const PAIR l = log_pair(a);
  const Scaled power = exp_of_product(l, PAIR(b, REAL(0)));
  return Scaled(power.mantissa * l.x, power.exponent);
}

precise Scaled div_slope_b(REAL a, REAL b) {
  const Scaled x = scaled(a), s = over_square(x.mantissa, b);
  return Scaled(negated(s.mantissa), s.exponent + x.exponent);
}
precise Scaled hypot_slope(REAL own, REAL other) {
  if (is_inf(own) && is_finite(other)) return Scaled(with_sign(REAL(1), own), 0);
  const Scaled x = scaled(own), square = sum_of_squares(x, scaled(other));
  return Scaled(quotient(x.mantissa, sqrt_real(square.mantissa)), x.exponent - (square.exponent >> 1));
}
// other/(own^2 + other^2)
precise Scaled atan2_slope(REAL own, REAL other) {
  const bool has_nan = is_nan(own) || is_nan(other);
  if (!has_nan && (is_inf(own) || is_inf(other) || (is_zero(own) && is_zero(other)))) return Scaled(REAL(0), 0);
  const Scaled x = scaled(other), square = sum_of_squares(x, scaled(own));
  return Scaled(quotient(x.mantissa, square.mantissa), x.exponent - square.exponent);
}
// a/b rounded towards 0: the whole number of times that fmod takes b from a.
precise Scaled whole_quotient(REAL a, REAL b, REAL rest) {
  const Scaled x = scaled(a - rest), y = scaled(b);
  const REAL q = quotient(x.mantissa, y.mantissa);
  const int e = is_zero(q) ? 0 : x.exponent - y.exponent;
  return e > kDigits + 1 ? Scaled(q, e) : Scaled(round_real(q * power_of_two(e)), 0);
}
// a/b rounded down: remainder takes b once more where the signs differ. Counted so for an infinite b, too.
precise Scaled floor_quotient(REAL a, REAL b) {
  const REAL rest = fmod_real(a, b);
  Scaled n = whole_quotient(a, b, rest);
  if (n.exponent == 0 && !is_zero(rest) && is_negative(rest) != is_negative(b)) n.mantissa -= REAL(1);
  return n;
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

// ---- by function: g is negated, not the product, since NVIDIA's driver may negate a subnormal number to 0 ----

precise REAL gradient_unary(REAL g, REAL a) {
  switch (FUNCTION) {
    case NW_EW_NEG: return negated(g);
    case NW_EW_ABS: return g * sign_of(a);
    case NW_EW_SQUARE: {
      const REAL y = g * a;  // a + a may overflow
      return y + y;
    }
    case NW_EW_RELU: return less_equal(a, REAL(0)) ? REAL(0) : g;
    case NW_EW_CAST: return g;
    case NW_EW_SQRT: return quotient(g, REAL(2) * sqrt_real(a));
    case NW_EW_RSQRT: return times(g, rsqrt_slope(a));
    case NW_EW_CBRT: return g * cbrt_slope(a);
    case NW_EW_RECIPROCAL: return times(g, over_square(REAL(-1), a));
    case NW_EW_EXP:
    case NW_EW_EXPM1: return times(g, exp_scaled(a));
    case NW_EW_EXP2: return times(g, exp2_slope(a));
    case NW_EW_SINH: return times(g, cosh_scaled(a));
    case NW_EW_COSH: return times(g, sinh_scaled(a));
    case NW_EW_TANH: return times(g, tanh_slope(a));
    case NW_EW_SIGMOID: return times(g, sigmoid_slope(a));
    case NW_EW_GELU_TANH: return times(g, gelu_tanh_slope(a));
    case NW_EW_SILU: return times(g, silu_slope(a));
    case NW_EW_SOFTPLUS: return times(g, sigmoid_scaled(PAIR(a, REAL(0))));
    case NW_EW_LOG: return quotient(g, a);
    case NW_EW_LOG2: return times(g, over(kLog2E, a));
    case NW_EW_LOG10: return times(g, over(kLog10E, a));
    case NW_EW_LOG1P: return quotient(g, REAL(1) + a);
    case NW_EW_ASINH: return times(g, asinh_slope(a));
    case NW_EW_ACOSH: return times(g, acosh_slope(a));
    case NW_EW_ATANH: return times(g, atanh_slope(a));
    case NW_EW_SIN: return g * cos_real(a);
    case NW_EW_COS: return negated(g) * sin_real(a);
    case NW_EW_TAN: return g * tan_slope(a);
    case NW_EW_ASIN: return quotient(g, asin_divisor(a));
    case NW_EW_ACOS: return quotient(negated(g), asin_divisor(a));
    case NW_EW_ATAN: return times(g, atan_slope(a));
    case NW_EW_GELU: return times(g, gelu_slope(a));
    case NW_EW_ERF: return times(g, erf_slope(a));
    case NW_EW_ERFC: return times(negated(g), erf_slope(a));
    case NW_EW_SINC: return times(g, sinc_slope(a));
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
    case NW_EW_DIV: return first ? quotient(g, b) : times(g, div_slope_b(a, b));
    case NW_EW_HYPOT: return times(g, hypot_slope(own, other));
    case NW_EW_FMOD: return first ? g : times(negated(g), whole_quotient(a, b, fmod_real(a, b)));
    case NW_EW_REMAINDER: return first ? g : times(negated(g), floor_quotient(a, b));
    case NW_EW_ELU: return less_equal(a, REAL(0)) ? times(g, times(scaled(b), exp_scaled(a))) : g;
    case NW_EW_LOGADDEXP: return times(g, logaddexp_slope(own, other));
    case NW_EW_POW: return first ? times(g, pow_slope_a(a, b)) : times(g, pow_slope_b(a, b));
    case NW_EW_ATAN2: return times(first ? g : negated(g), atan2_slope(own, other));
    default: return gradient_unary(g, a);
  }
}
