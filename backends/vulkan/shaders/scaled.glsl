// SPDX-License-Identifier: Apache-2.0
// scaled.glsl -- numbers with an exponent of their own, for what may lie far beyond REAL's range while its product with another
// number does not. Included after math_f32.glsl or math_f64.glsl; the includer defines the constant IS_NARROW: operands are
// f16, so that f32 has room for whatever comes of them, and exponents are not taken out.

// mantissa * 2^exponent. The mantissa is 0, not finite, or between 2^-(kDigits + 7) and 2^(kDigits + 7).
struct Scaled {
  REAL mantissa;
  int exponent;
};

Scaled scaled(REAL x) {
  if (IS_NARROW || is_zero(x) || !is_finite(x)) return Scaled(x, 0);
  int exponent;
  BITS digits;
  split(x, exponent, digits);
  return Scaled(from_bits((to_bits(x) & kSignBit) | to_bits(REAL(1)) | (digits & kFraction)), exponent - kBias);
}
// g * f. Only a result that is subnormal is rounded more than twice.
precise REAL times(REAL g, Scaled f) {
  if (IS_NARROW) return (g * f.mantissa) * power_of_two(clamp(f.exponent, -100, 100));
  const int n = exponent_of(g) + f.exponent, most = kBias - kDigits - 8;
  const bool is_normal = size_of(g) - kImplicit < kInfBits - kImplicit;
  if (is_normal && n > -most && n < most)
    return (from_bits((to_bits(g) & ~kInfBits) | to_bits(REAL(1))) * f.mantissa) * power_of_two(n);
  const Scaled s = scaled(g);
  return scale(s.mantissa * f.mantissa, s.exponent + f.exponent);
}
Scaled times(Scaled a, Scaled b) { return Scaled(a.mantissa * b.mantissa, a.exponent + b.exponent); }

// The number itself where it is at most about 1; one that is much smaller is 2^-100 times its mantissa.
precise REAL plain(Scaled x) { return x.mantissa * power_of_two(max(x.exponent, -100)); }

// a*b, which exp multiplies the rounding error of.
precise PAIR long_product(REAL a, REAL b) { return IS_SHORT ? PAIR(a * b, REAL(0)) : product(a, b); }
// e^x. Past kExpFar the product with any other number is 0 or infinite.
precise Scaled exp_scaled(PAIR x) {
  Scaled y;
  PAIR near = x;
  if (x.x > kExpFar) near = PAIR(kExpFar, REAL(0));
  if (x.x < -kExpFar) near = PAIR(-kExpFar, REAL(0));
  y.mantissa = exp_mantissa(near, y.exponent);
  if (is_inf(x.x)) y.mantissa = is_negative(x.x) ? REAL(0) : x.x;
  return y;
}
Scaled exp_scaled(REAL x) { return exp_scaled(PAIR(x, REAL(0))); }
// 1/(1 + e^-t)
precise Scaled sigmoid_scaled(PAIR t) {
  const bool is_below = is_negative(t.x);
  const Scaled z = exp_scaled(is_below ? t : -t);
  return Scaled(ratio(is_below ? z.mantissa : REAL(1), REAL(1) + plain(z)), is_below ? z.exponent : 0);
}
// e^(l*b)
precise Scaled exp_of_product(PAIR l, PAIR b) {
  const REAL about = l.x * b.x;
  if (size(about) > kExpFar) return exp_scaled(with_sign(kExpFar, about));
  PAIR x = long_product(l.x, b.x);
  x.y += l.y * b.x + l.x * b.y;
  return exp_scaled(x);
}
// a^2 + b^2
precise Scaled sum_of_squares(Scaled a, Scaled b) {
  const int top = is_zero(a.mantissa) ? b.exponent : is_zero(b.mantissa) ? a.exponent : max(a.exponent, b.exponent);
  REAL x = a.mantissa * power_of_two(clamp(a.exponent - top, -60, 0));
  REAL y = b.mantissa * power_of_two(clamp(b.exponent - top, -60, 0));
  return Scaled(x * x + y * y, 2 * top);
}
