// SPDX-License-Identifier: Apache-2.0
// math.glsl -- the transcendental functions over REAL, within 2.5 units in the last place over the whole range, with the
// special values of C's Annex F and the array API. Made of sums, products, bits and polynomials: GLSL's own functions are of f32.
// Included by math_f64.glsl, which holds the polynomials and constants; functions_f32.glsl has the same functions over f32.

REAL quotient(REAL a, REAL b) { return quotient_by_digits(a, b); }
REAL sqrt_real(REAL x) { return sqrt_by_digits(x); }
REAL rsqrt_real(REAL x) { return quotient(REAL(1), sqrt_real(x)); }
precise REAL fmod_real(REAL a, REAL b) { return fmod_by_digits(a, b); }
REAL fma_stored(REAL a, REAL b, REAL c) { return fma_real(a, b, c); }

// ---- exponentials: e^x = 2^n * (1 + p) ----

// p of e^r = 1 + p for |r| <= 0.353, r and p in two parts
precise PAIR expm1_reduced(PAIR r) {
  REAL rest = r.y + (r.x * r.y + r.x * r.x * (REAL(0.5) + r.x * exp_tail(r.x)));
  return ordered_sum(r.x, rest);
}
// x.x between -kExpFar and kExpFar
precise PAIR exp_parts(PAIR x, out int n) {
  REAL whole = floor(x.x * kLog2E + REAL(0.5));
  n = int(whole);
  PAIR r = sum_of(x.x - whole * kLn2High, -(whole * kLn2Low));
  return expm1_reduced(sum_of(r.x, r.y + x.y));  // x.y may be large beside r.x
}
precise REAL exp_joined(PAIR p, int n) {
  PAIR s = ordered_sum(REAL(1), p.x);
  return scale(s.x + (s.y + p.y), n);
}

// e^x = 2^n times what is returned, x.x between -kExpFar and kExpFar
precise REAL exp_mantissa(PAIR x, out int n) {
  PAIR p = exp_parts(x, n), s = ordered_sum(REAL(1), p.x);
  return s.x + (s.y + p.y);
}

precise REAL exp_real(REAL x) {
  if (is_nan(x)) return x;
  if (x > kExpOver) return infinity(REAL(0));
  if (x < kExpUnder) return REAL(0);
  int n;
  PAIR p = exp_parts(PAIR(x, REAL(0)), n);
  return exp_joined(p, n);
}
precise REAL exp2_real(REAL x) {
  if (is_nan(x)) return x;
  if (x >= REAL(kBias + 1)) return infinity(REAL(0));
  if (x < kExp2Under) return REAL(0);
  REAL whole = floor(x + REAL(0.5)), f = x - whole;
  PAIR r = product(f, kLn2.x);
  r.y += f * kLn2.y;
  PAIR p = expm1_reduced(r);
  return exp_joined(p, int(whole));
}
precise REAL expm1_real(REAL x) {
  if (is_nan(x) || size(x) < power_of_two(-kDigits - 2)) return x;
  if (x > kExpOver) return infinity(REAL(0));
  if (x < kExpm1Under) return REAL(-1);
  int n;
  PAIR p = exp_parts(PAIR(x, REAL(0)), n);
  if (n == 0) return p.x + p.y;
  if (n > kDigits + 3) return exp_joined(p, n);
  PAIR s = ordered_sum(REAL(1), p.x);
  const REAL power = power_of_two(n);
  PAIR d = sum_of(power * s.x, REAL(-1));
  return d.x + (d.y + power * (s.y + p.y));
}

// ---- logarithms: log(x) = k*log(2) + log(1 + f) ----

// 1 + f in [sqrt(1/2), sqrt(2)); x is positive and finite.
precise REAL log_fraction(REAL x, out int k) {
  BITS digits;
  split(x, k, digits);
  k -= kBias;
  digits &= kFraction;
  const bool upper = digits > kSqrt2Fraction;
  if (upper) ++k;
  return from_bits((BITS(upper ? kBias - 1 : kBias) << kDigits) | digits) - REAL(1);
}
// log(1 + f) + c = f - what is returned, with s = f/(2 + f): log(1 + f) = 2*atanh(s), and f = 2s + s*f.
precise REAL log_lack(REAL f, REAL c) {
  REAL s = ratio(f, REAL(2) + f), z = s * s;
  REAL half_square = REAL(0.5) * f * f;
  return half_square - (s * (half_square + z * (kTwoThirds.x + z * log_tail(z))) + c);
}
precise REAL log_joined(REAL f, REAL c, int k) {
  return REAL(k) * kLn2High - (log_lack(f, REAL(k) * kLn2Low + c) - f);
}
// What a logarithm is where there is nothing to compute: x is NaN, not positive, or infinite.
bool is_log_special(REAL x) { return is_negative(x) || is_zero(x) || !is_finite(x); }
REAL log_special(REAL x) {
  return is_nan(x) ? x : is_zero(x) ? infinity(REAL(-1)) : is_negative(x) ? not_a_number() : x;
}

precise REAL log_real(REAL x) {
  if (is_log_special(x)) return log_special(x);
  int k;
  const REAL f = log_fraction(x, k);
  return log_joined(f, REAL(0), k);
}
precise REAL log2_real(REAL x) {
  if (is_log_special(x)) return log_special(x);
  int k;
  const REAL f = log_fraction(x, k);
  REAL l = f - log_lack(f, REAL(0));
  return REAL(k) + l * kLog2E;
}
precise REAL log10_real(REAL x) {
  if (is_log_special(x)) return log_special(x);
  int k;
  const REAL f = log_fraction(x, k);
  REAL l = f - log_lack(f, REAL(0));
  return REAL(k) * kLog10Of2High + (REAL(k) * kLog10Of2Low + l * kLog10E);
}
precise REAL log1p_real(REAL x) {
  if (is_nan(x) || size(x) < power_of_two(-kDigits - 2)) return x;
  if (x <= REAL(-1) || is_inf(x)) return x == REAL(-1) ? infinity(REAL(-1)) : is_negative(x) ? not_a_number() : x;
  if (x > REAL(-0.25) && x < REAL(0.375)) return log_joined(x, REAL(0), 0);
  PAIR u = sum_of(REAL(1), x);
  int k;
  const REAL f = log_fraction(u.x, k);
  return log_joined(f, ratio(u.y, u.x), k);
}
// log(x) in two parts, with 10 digits more than REAL has.
precise PAIR log_pair(REAL x) {
  int k;
  const REAL f = log_fraction(x, k);
  PAIR d = sum_of(REAL(2), f), s;
  s.x = ratio(f, d.x);
  PAIR back = product(s.x, d.x);
  s.y = (((f - back.x) - back.y) - s.x * d.y) / d.x;
  PAIR z = product(s, s);
  PAIR g = ordered_sum(kTwoThirds.x, z.x * log_tail(z.x));
  g.y += kTwoThirds.y;
  PAIR cubic = product(product(s, z), g);
  PAIR a = sum_of(REAL(k) * kLn2High, REAL(2) * s.x), b = sum_of(a.x, cubic.x);
  REAL low = (b.y + a.y) + ((REAL(2) * s.y + cubic.y) + REAL(k) * kLn2Low);
  return ordered_sum(b.x, low);
}

// ---- powers ----

precise REAL pow_positive(REAL a, REAL b, REAL sign) {
  PAIR l = log_pair(a);
  const REAL about = l.x * b;
  if (about > kExpOver) return infinity(sign);
  if (about < kExpUnder) return zero(sign);
  PAIR x = product(l.x, b);
  x.y += l.y * b;
  int n;
  PAIR p = exp_parts(x, n);
  return with_sign(exp_joined(p, n), sign);
}
// Halley's iteration from a polynomial, then one of Newton's with the rest in two parts.
precise REAL cbrt_real(REAL x) {
  if (is_nan(x) || is_inf(x) || is_zero(x)) return x;
  int exponent;
  BITS digits;
  split(x, exponent, digits);
  exponent -= kBias;
  const int third = (exponent + 3000) / 3 - 1000, more = exponent - 3 * third;
  const REAL m = from_bits((digits & kFraction) | (BITS(kBias + more) << kDigits));
  const float f = float(m);
  REAL t = REAL(0.627286494 + f * (0.449202418 + f * (-0.0837768838 + f * (0.00958384108 + f * -0.000432089844))));
  for (int i = kDigits == 23 ? 1 : 0; i < 2; ++i) {
    REAL cube = t * t * t;
    t = t + t * ratio(m - cube, cube + cube + m);
  }
  PAIR square = product(t, t), cube = product(square.x, t);
  REAL rest = ((m - cube.x) - cube.y) - square.y * t;
  REAL root = t + rest / (REAL(3) * square.x);
  return with_sign(scale(root, third), x);
}
precise REAL hypot_real(REAL a, REAL b) {
  if (is_inf(a) || is_inf(b)) return infinity(REAL(0));
  if (is_nan(a) || is_nan(b)) return not_a_number();
  const REAL big = larger(size(a), size(b)), small = smaller(size(a), size(b));
  if (is_zero(small)) return big;
  int exponent;
  BITS digits;
  split(big, exponent, digits);
  exponent -= kBias;
  const REAL x = scale(big, -exponent), y = scale(small, -exponent);
  REAL square = x * x + y * y;
  return scale(sqrt_real(square), exponent);
}

// ---- trigonometric functions ----

PAIR reduce(REAL x, out int quadrant) {
  quadrant = 0;
  if (x < REAL(0.785)) return PAIR(x, REAL(0));
  const PAIR r = reduce_angle(x, quadrant);
  return ordered_sum(r.x, r.y);
}
precise REAL sin_reduced(PAIR r) {
  REAL z = r.x * r.x;
  return r.x + (r.x * z * (z * sin_tail(z) - kTwoThirds.x * REAL(0.25)) + r.y * (REAL(1) - REAL(0.5) * z));
}
precise REAL cos_reduced(PAIR r) {
  REAL z = r.x * r.x, half_square = REAL(0.5) * z, near = REAL(1) - half_square;
  return near + (((REAL(1) - near) - half_square) + (z * z * cos_tail(z) - r.x * r.y));
}
REAL sin_real(REAL x) {
  if (!is_finite(x)) return not_a_number();
  if (size(x) < kTiny) return x;
  int quadrant;
  const PAIR r = reduce(size(x), quadrant);
  const REAL y = (quadrant & 1) == 0 ? sin_reduced(r) : cos_reduced(r);
  return ((quadrant & 2) != 0) != is_negative(x) ? negated(y) : y;
}
REAL cos_real(REAL x) {
  if (!is_finite(x)) return not_a_number();
  int quadrant;
  const PAIR r = reduce(size(x), quadrant);
  const REAL y = (quadrant & 1) == 0 ? cos_reduced(r) : sin_reduced(r);
  return ((quadrant + 1) & 2) != 0 ? negated(y) : y;
}
REAL tan_real(REAL x) {
  if (!is_finite(x)) return not_a_number();
  if (size(x) < kTiny) return x;
  int quadrant;
  const PAIR r = reduce(size(x), quadrant);
  const REAL s = sin_reduced(r), c = cos_reduced(r);
  const REAL y = (quadrant & 1) == 0 ? ratio(s, c) : negated(ratio(c, s));
  return is_negative(x) ? negated(y) : y;
}

// base + atan(t) for t >= 0, t as a fraction: past tan(pi/8) by atan(t) = pi/4 + atan((t - 1)/(t + 1)), past 1 by the reciprocal.
precise REAL atan_fraction(REAL numerator, REAL denominator) {
  const bool turned = less(denominator, numerator);
  REAL t = turned ? quotient(denominator, numerator) : quotient(numerator, denominator);
  PAIR base = PAIR(REAL(0));
  if (t > REAL(0.41421356)) {
    t = ratio(t - REAL(1), t + REAL(1));
    base = kQuarterPi;
  }
  REAL z = t * t, rest = t * z * atan_tail(z);
  if (!turned) return base.x + (t + (rest + base.y));
  base = kHalfPi - base;
  return base.x - (t + (rest - base.y));
}
REAL atan_real(REAL x) {
  if (is_nan(x) || size(x) < kTiny) return x;
  if (is_inf(x)) return with_sign(kHalfPi.x, x);
  return with_sign(atan_fraction(size(x), REAL(1)), x);
}
precise REAL atan2_real(REAL y, REAL x) {
  if (is_nan(x) || is_nan(y)) return not_a_number();
  REAL angle;
  if (is_zero(y) || (is_inf(x) && !is_inf(y)))
    angle = REAL(0);
  else if (is_inf(y))
    angle = is_inf(x) ? kQuarterPi.x : kHalfPi.x;
  else if (is_zero(x))
    angle = kHalfPi.x;
  else
    angle = atan_fraction(size(y), size(x));
  if (is_negative(x)) angle = kPi.x - (angle - kPi.y);
  return with_sign(angle, y);
}

// sqrt((1 - |x|)/2) in two parts, for asin(x) = pi/2 - 2*asin(that), |x| in [1/2, 1]
precise PAIR half_chord(REAL x, out REAL z) {
  z = (REAL(1) - size(x)) * REAL(0.5);
  const REAL s = sqrt_real(z);
  if (is_zero(s)) return PAIR(REAL(0));
  PAIR square = product(s, s);
  return PAIR(s, ((z - square.x) - square.y) / (s + s));
}
precise REAL asin_real(REAL x) {
  if (is_nan(x) || size(x) < kTiny) return x;
  if (size(x) > REAL(1)) return not_a_number();
  if (size(x) < REAL(0.5)) {
    REAL z = x * x;
    return x + x * (z * asin_tail(z));
  }
  REAL z;
  PAIR s = half_chord(x, z);
  REAL rest = s.y + s.x * z * asin_tail(z);
  return with_sign(kHalfPi.x - (REAL(2) * s.x + (REAL(2) * rest - kHalfPi.y)), x);
}
precise REAL acos_real(REAL x) {
  if (is_nan(x)) return x;
  if (size(x) > REAL(1)) return not_a_number();
  if (size(x) < REAL(0.5)) {
    REAL z = x * x;
    return kHalfPi.x - (x + (x * (z * asin_tail(z)) - kHalfPi.y));
  }
  REAL z;
  PAIR s = half_chord(x, z);
  REAL rest = s.y + s.x * z * asin_tail(z);
  if (!is_negative(x)) return REAL(2) * (s.x + rest);
  return kPi.x - (REAL(2) * s.x + (REAL(2) * rest - kPi.y));
}

// ---- hyperbolic functions ----

precise REAL sinh_near(REAL x) {  // of x from -1 to kSinhSum
  if (size(x) < kTiny) return x;
  REAL e = expm1_real(x);
  return REAL(0.5) * (e + ratio(e, e + REAL(1)));
}
precise REAL sinh_real(REAL x) {
  const REAL a = size(x);
  if (is_nan(x) || is_inf(x) || a < kTiny) return x;
  REAL y;
  if (a < kSinhSum) {
    y = sinh_near(a);
  } else if (a > kExpOver + REAL(1)) {
    y = infinity(REAL(0));
  } else {
    int n;
    PAIR p = exp_parts(PAIR(a, REAL(0)), n);
    y = exp_joined(p, n - 1);
  }
  return with_sign(y, x);
}
precise REAL cosh_real(REAL x) {
  const REAL a = size(x);
  if (is_nan(x)) return x;
  if (a > kExpOver + REAL(1)) return infinity(REAL(0));
  int n;
  PAIR p = exp_parts(PAIR(a, REAL(0)), n);
  if (a > kSinhSum) return exp_joined(p, n - 1);
  REAL e = exp_joined(p, n);
  return REAL(0.5) * (e + ratio(REAL(1), e));
}
precise REAL tanh_real(REAL x) {
  const REAL a = size(x);
  if (is_nan(x) || a < kTiny) return x;
  if (a > kTanhEnd) return with_sign(REAL(1), x);
  REAL e = expm1_real(REAL(-2) * a);
  return with_sign(ratio(e, e + REAL(2)), x);
}
precise REAL asinh_real(REAL x) {
  const REAL a = size(x);
  if (!is_finite(x) || a < kTiny) return x;
  REAL y;
  if (a > kHuge) {
    y = log_real(a) + kLn2.x;
  } else {
    REAL square = a * a;
    y = log1p_real(a + ratio(square, REAL(1) + sqrt_real(square + REAL(1))));
  }
  return with_sign(y, x);
}
precise REAL acosh_real(REAL x) {
  if (is_nan(x)) return x;
  if (x < REAL(1)) return not_a_number();
  if (is_inf(x)) return x;
  if (x > kHuge) return log_real(x) + kLn2.x;
  REAL t = x - REAL(1);
  return log1p_real(t + sqrt_real(t * (t + REAL(2))));
}
precise REAL atanh_real(REAL x) {
  const REAL a = size(x);
  if (is_nan(x) || a < kTiny) return x;
  if (a >= REAL(1)) return a == REAL(1) ? infinity(x) : not_a_number();
  return with_sign(REAL(0.5) * log1p_real(ratio(a + a, REAL(1) - a)), x);
}

// ---- erf ----

// (1 + p) * e^(x^2) * erfc(x) for x in [1/2, kErfcEnd]
precise REAL erfc_ratio(PAIR x, PAIR p) {
  const REAL t = ratio(x.x - REAL(3), x.x + REAL(3));
  PAIR g = ordered_sum(kErfcMiddle.x, kErfcMiddle.y + t * erfc_tail(t));
  PAIR above = ordered_sum(g.x, g.x * p.x + (g.x * p.y + g.y));
  PAIR below = sum_of(REAL(1), x.x + x.x);
  below.y += x.y + x.y;
  return ratio(above, below);
}
// erfc(x) = 2^n * what is returned, for x in [1/2, kErfcEnd], with x^2 in two parts because exp multiplies its error by its size.
precise REAL erfc_parts(PAIR x, PAIR square, out int n) {
  PAIR p = exp_parts(-square, n);
  return erfc_ratio(x, p);
}
precise REAL erfc_far(REAL x) {
  int n;
  const REAL y = erfc_parts(PAIR(x, REAL(0)), product(x, x), n);
  return scale(y, n);
}
precise REAL erf_near(REAL x) { return x + x * erf_tail(x * x); }
// The normal distribution function of -x over e^(-x^2/2), which is `density`, for x >= 0: to 2^-50 of it up to 38, then to what
// shows beside x, by the first terms of its asymptotic series.
precise REAL normal_ratio(REAL x, REAL density) {
  const REAL root = x * kSqrtHalf.x;
  if (root < REAL(0.5)) return ratio(REAL(0.5) - REAL(0.5) * erf_near(root), density);
  PAIR far = product(x, kSqrtHalf.x);
  far.y += x * kSqrtHalf.y;
  if (x < REAL(38)) return REAL(0.5) * erfc_ratio(far, PAIR(REAL(0)));
  REAL inverse = ratio(REAL(1), x), z = inverse * inverse;
  return kNormalDensity.x * inverse * (REAL(1) - z * (REAL(1) - z * (REAL(3) - z * (REAL(15) - REAL(105) * z))));
}

precise REAL erf_real(REAL x) {
  const REAL a = size(x);
  if (is_nan(x) || is_zero(x)) return x;
  if (a < REAL(0.5)) return erf_near(x);
  return with_sign(a > kErfEnd ? REAL(1) : REAL(1) - erfc_far(a), x);
}
precise REAL erfc_real(REAL x) {
  const REAL a = size(x);
  if (is_nan(x)) return x;
  if (a < REAL(0.5)) return REAL(1) - erf_near(x);
  if (a > kErfcEnd) return is_negative(x) ? REAL(2) : REAL(0);
  const REAL y = erfc_far(a);
  return is_negative(x) ? REAL(2) - y : y;
}

// ---- activations ----

// From e^-|a|, so that neither side overflows nor cancels.
precise REAL sigmoid_real(REAL a) {
  if (is_nan(a)) return a;
  const REAL z = exp_real(-size(a));
  if (is_negative(a) && z < power_of_two(-kDigits - 3)) return z;
  return ratio(is_negative(a) ? z : REAL(1), REAL(1) + z);
}
// a * sigmoid(t) for a t in two parts; sigmoid(t) alone may be subnormal.
precise REAL times_sigmoid(REAL a, PAIR t) {
  if (t.x < REAL(2) * kExpUnder) return zero(a);
  if (t.x > REAL(2) * kExpOver) return a;
  int n;
  PAIR p = exp_parts(t.x < REAL(0) ? t : -t, n);
  REAL z = REAL(1) + (p.x + p.y);
  if (n < -kDigits - 3) return t.x < REAL(0) ? scale(a * z, n) : a;
  z *= power_of_two(n);
  return a * ratio(t.x < REAL(0) ? z : REAL(1), REAL(1) + z);
}
// What a * sigmoid(a) and the like are where the sigmoid is 0 or 1 to every digit.
REAL far_activation(REAL a) { return is_negative(a) ? zero(a) : a; }

REAL silu_real(REAL a) {
  if (is_nan(a)) return a;
  return is_inf(a) ? far_activation(a) : times_sigmoid(a, PAIR(a, REAL(0)));
}

// 2*sqrt(2/pi)*(a + 0.044715*a^3), whose error exp multiplies by its size: hence in two parts. |a| <= 30.
precise PAIR gelu_tanh_argument(REAL a) {
  PAIR cubic = product(product(a, a), kGeluCubic), sum = ordered_sum(kGeluLinear.x, cubic.x);
  if (cubic.x > kGeluLinear.x) sum = ordered_sum(cubic.x, kGeluLinear.x);
  sum.y += kGeluLinear.y + cubic.y;
  return product(PAIR(a, REAL(0)), sum);
}
REAL gelu_tanh_real(REAL a) {
  if (is_nan(a)) return a;
  if (size(a) > REAL(30)) return far_activation(a);
  return times_sigmoid(a, gelu_tanh_argument(a));
}

// a times the normal distribution function, erfc(-a/sqrt(2))/2: below 0 that is all tail.
precise REAL gelu_real(REAL a) {
  if (is_nan(a)) return a;
  if (size(a) > kGeluEnd) return far_activation(a);
  PAIR x = product(size(a), kSqrtHalf.x);
  x.y += size(a) * kSqrtHalf.y;
  const REAL half_a = REAL(0.5) * a;
  if (x.x < REAL(0.5)) return half_a + half_a * erf_near(a * kSqrtHalf.x);
  int n;
  const REAL tail = erfc_parts(x, REAL(0.5) * product(a, a), n);
  return is_negative(a) ? scale(half_a * tail, n) : a - half_a * scale(tail, n);
}
precise REAL softplus_real(REAL a) {
  if (is_nan(a)) return a;
  REAL rest = log1p_real(exp_real(-size(a)));
  return is_negative(a) ? rest : a + rest;
}
precise REAL logaddexp_real(REAL a, REAL b) {
  if (is_nan(a) || is_nan(b)) return not_a_number();
  if (equal(a, b)) return a + kLn2.x;  // of two equal infinities the difference is NaN
  REAL rest = log1p_real(exp_real(-size(a - b)));
  return larger(a, b) + rest;
}
precise REAL elu_real(REAL a, REAL alpha) { return less(REAL(0), a) ? a : alpha * expm1_real(a); }
