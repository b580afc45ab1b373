// SPDX-License-Identifier: Apache-2.0
// functions_f32.glsl -- the functions of math.glsl over f32, in as few instructions as a GPU's memory leaves time for, nearly
// without branches: within 4 units in the last place, gelu within 6. Sums of products are fma()'s, which may round once or twice;
// what has to be exact is product()'s. Results that are rounded to 16 bits (IS_SHORT, see math_f32.glsl) are within 2^-15, by the
// device's own exp2, log2 and roots, its division where fma() rounds twice, and shorter polynomials.
//
// fma() may take subnormal numbers for 0, and so may the device's functions: what can be one is a plain product or sum, or is
// chosen by its size. Comparisons are false of NaN, and written so that it comes through.

const float kToInteger = 12582912;  // 1.5 * 2^23: a sum with it is rounded to an integer, which its bits end with

// As it is written: a driver that makes fma() of a product and a sum may rearrange them, `precise` or not.
precise float mad(float a, float b, float c) { return kFuses ? fma(a, b, c) : a * b + c; }
// y is x to every digit where x is tiny, and may have lost a subnormal one. No f16 is subnormal in f32.
float unless_tiny(float x, float y) { return !IS_HALF && size(x) < 2.98023224e-08 ? x : y; }

// ---- division and square root, correctly rounded: an estimate, mended by what is left of it (Markstein, "Computation of
// elementary functions on the IBM RISC System/6000 processor", IBM J. Res. Dev. 34, 1990) ----

// 2^-63 <= |x| < 2^63: nothing of a quotient or a root comes near overflow and underflow.
bool is_moderate(float x) { return size_of(x) - 0x20000000u < 0x3f000000u; }

precise float quotient(float a, float b) {
  if ((kFuses || IS_SHORT) && is_moderate(a) && is_moderate(b)) {
    if (!kFuses) return a / b;
    const float y = IS_SHORT ? reciprocal_estimate(b) : nearer_reciprocal(b, 1.0 / b);
    float q = a * y;
    q = fma(fma(-b, q, a), y, q);
    return IS_SHORT ? q : fma(fma(-b, q, a), y, q);
  }
  return quotient_by_digits(a, b);
}
precise float sqrt_real(float x) {
  if ((kFuses || IS_SHORT) && is_moderate(x) && !is_negative(x)) {
    if (IS_SHORT) return sqrt(x);
    const float y = inversesqrt(x), s = x * y;
    return fma(fma(-s, s, x), 0.5 * y, s);
  }
  return sqrt_by_digits(x);
}
precise float rsqrt_real(float x) {
  if ((kFuses || IS_SHORT) && is_moderate(x) && !is_negative(x)) {
    const float y = inversesqrt(x);
    return IS_SHORT ? y : fma(fma(-(x * y), y, 1.0), 0.5 * y, y);
  }
  return quotient_by_digits(1.0, sqrt_by_digits(x));
}

// A root that is no result, of what is normal.
precise float root_near(float x) {
  const float y = inversesqrt(x), s = x * y;
  if (IS_SHORT) return s;
  if (kFuses) return fma(fma(-s, s, x), 0.5 * y, s);
  const PAIR square = product(s, s);
  return fma((x - square.x) - square.y, 0.5 * y, s);
}
// Of 0, too.
float sqrt_near(float x) { return is_zero(x) ? x : root_near(x); }

// The quotient of integers that it is near to, and what that leaves, which is exact.
precise float fmod_real(float a, float b) {
  const float x = size(a), y = size(b), most = IS_SHORT ? 4096.0 : kFuses ? 4194304.0 : 0.0;
  // An f16 is moderate or 0, of which the quotient is 0, or not finite.
  if ((IS_HALF ? y <= 65504.0 : is_moderate(a) && is_moderate(b)) && x < y * most) {
    float q = floor(x * reciprocal_estimate(y));
    const float rest = fma(-q, y, x);
    q += rest < 0.0 ? -1.0 : rest >= y ? 1.0 : 0.0;
    return with_sign(fma(-q, y, x), a);
  }
  return fmod_by_digits(a, b);
}

// Of what may be infinite: 0 to every digit that shows.
float reciprocal_of_any(float x) { return reciprocal_estimate(at_most(x, kMostDivisor)); }

// a*b + c, rounded once to how it is stored. What is stored as 16 bits rounds a second time then, which goes wrong only where the
// first rounding has made a tie, or perhaps where the result is too small for a normal f16. A zero leaves nothing to add.
precise float fma_stored(float a, float b, float c) {
  const float sum = fma_real(a, b, c);
  const uint below = to_bits(sum) & (IS_HALF ? 0x1fffu : 0xffffu);
  const bool may_be_tie = IS_HALF ? below == 0x1000u || size_of(sum) < 0x38800000u : below == 0x8000u;
  if (!IS_SHORT || !may_be_tie || !is_finite(sum) || is_zero(a) || is_zero(b) || is_zero(c)) return sum;
  return fma_by_digits(a, b, c, true);
}

// ---- exponentials: e^x = 2^n * (1 + p) ----

// p of e^r for |r| <= 0.353
precise float expm1_near(float r) { return r * fma(r, fma(r, exp_tail(r), 0.5), 1.0); }
// p of e^x, x.x between -kExpFar and kExpFar
precise float exp_part(PAIR x, out int n) {
  const float rounded = fma(x.x, kLog2E, kToInteger), whole = rounded - kToInteger;
  n = floatBitsToInt(rounded) - floatBitsToInt(kToInteger);
  return expm1_near(mad(whole, -kLn2Low, mad(whole, -kLn2High, x.x)) + x.y);
}
// The same where 2^(n + offset) is a normal number, which `unit` is: its exponent's bits are those that an integer ends with.
precise float exp_part(PAIR x, int offset, out float unit) {
  const float integer = kToInteger + float(kBias + offset), rounded = fma(x.x, kLog2E, integer), whole = rounded - integer;
  unit = from_bits(to_bits(rounded) << kDigits);
  return expm1_near(mad(whole, -kLn2Low, mad(whole, -kLn2High, x.x)) + x.y);
}
// y * 2^n, rounded once: y is near 1, n from -252 to 254.
precise float scaled(float y, int n) {
  const int half_ = n >> 1;
  return (y * power_of_two(half_)) * power_of_two(n - half_);
}
const float kDown = 5.42101086e-20;  // 2^-64
// The same for n from -190 to 0, by 2^(n + 64): exp_part()'s unit, or made of n, since with that unit softplus and times_sigmoid() took
// twice as long on NVIDIA's driver.
precise float scaled_down(float y, float unit) { return (y * unit) * kDown; }
precise float scaled_down(float y, int n) { return (y * power_of_two(n + 64)) * kDown; }
// 2^t for a short result. A device's exp2 may give 0 for a subnormal number.
precise float exp2_short(float t) {
  if (IS_HALF) return exp2(t);
  const float root = exp2(0.5 * t);
  return root * root;
}

precise float exp_real(float x) {
  if (IS_SHORT) return exp2_short(x * kLog2E);
  int n;
  const float p = exp_part(PAIR(x < kExpUnder ? kExpUnder : at_most(x, kExpOver), 0.0), n);
  return scaled(1.0 + p, n);
}
precise float exp_below(float x) {  // e^x for x <= 0
  if (IS_SHORT) return exp2_short(x * kLog2E);
  int n;
  const float p = exp_part(PAIR(x < kExpUnder ? kExpUnder : x, 0.0), n);
  return scaled_down(1.0 + p, n);
}
precise float exp2_real(float x) {
  if (IS_SHORT) return exp2_short(x);
  const float near = x < kExp2Under ? kExp2Under : at_most(x, 129.0), rounded = near + kToInteger;
  const float p = expm1_near((near - (rounded - kToInteger)) * kLn2.x);
  return scaled(1.0 + p, floatBitsToInt(rounded) - floatBitsToInt(kToInteger));
}
precise float expm1_real(float x) {
  if (IS_SHORT) return size(x) < 0.35 ? expm1_near(x) : exp2_short(x * kLog2E) - 1.0;
  int n;
  const float p = exp_part(PAIR(x < kExpm1Under ? kExpm1Under : at_most(x, kExpOver), 0.0), n);
  const float half_ = power_of_two(n - 1);  // 2^128 would be infinite
  return unless_tiny(x, 2.0 * fma(half_, p, half_ - 0.5));
}
// e^x = 2^n times what is returned, x.x between -kExpFar and kExpFar
precise float exp_mantissa(PAIR x, out int n) {
  if (!IS_SHORT) return 1.0 + exp_part(x, n);
  const float t = x.x * kLog2E, rounded = t + kToInteger;
  n = floatBitsToInt(rounded) - floatBitsToInt(kToInteger);
  return exp2(t - (rounded - kToInteger));
}

// ---- logarithms: log(x) = k*log(2) + log(1 + f), f from -1/4 to 1/2 ----

// 2^k times 3/4 is the largest that is not more than x; x is normal and positive. As that many times the lowest bit of an exponent.
int log_exponent(float x) { return (floatBitsToInt(x) - 0x3f400000) & int(0xff800000u); }
float log_whole(int exponent) { return float(exponent >> kDigits); }
precise float log1p_near(float f) { return fma(f * f, log1p_tail(f), f); }
// x is positive and finite.
precise float log_fraction(float x, out float k) {
  const bool is_small = !IS_HALF && floatBitsToUint(x) < kImplicit;
  const float normal = is_small ? x * 8388608.0 : x;
  const int exponent = log_exponent(normal);
  k = log_whole(exponent) - (is_small ? 23.0 : 0.0);
  return intBitsToFloat(floatBitsToInt(normal) - exponent) - 1.0;
}
// What a logarithm is where there is nothing to compute: x is NaN, not positive, or infinite.
bool is_log_special(float x) { return floatBitsToUint(x) - 1u >= kInfBits - 1u; }
float log_special(float x) { return is_nan(x) ? x : is_zero(x) ? infinity(-1.0) : is_negative(x) ? not_a_number() : x; }

precise float log_real(float x) {
  float k;
  const float l = log1p_near(log_fraction(x, k));
  return is_log_special(x) ? log_special(x) : fma(k, kLn2.x, l);
}
precise float log2_real(float x) {
  float k;
  const float l = log1p_near(log_fraction(x, k));
  return is_log_special(x) ? log_special(x) : fma(l, kLog2E, k);
}
precise float log10_real(float x) {
  float k;
  const float l = log1p_near(log_fraction(x, k));
  return is_log_special(x) ? log_special(x) : fma(k, kLog10Of2High, fma(k, kLog10Of2Low, l * kLog10E));
}
precise float log1p_finite(float x) {
  if (IS_SHORT) return x > -0.25 && x < 0.5 ? log1p_near(x) : log2(1.0 + x) * kLn2.x;
  const int exponent = log_exponent(1.0 + x);
  const float quarter = intBitsToFloat(0x40800000 - exponent);  // 2^(2 - k), as 2^-128 would be subnormal
  const float f = intBitsToFloat(floatBitsToInt(x) - exponent) + fma(0.25, quarter, -1.0);
  return fma(log_whole(exponent), kLn2.x, log1p_near(f));
}
precise float log1p_real(float x) {
  const float y = unless_tiny(x, log1p_finite(x));
  if (x > -1.0 && x <= 3.40282347e+38) return y;
  return x == -1.0 ? infinity(-1.0) : is_negative(x) ? not_a_number() : x;
}
// log(x) in two parts, to 2^-29 of it: of log(1 + f) = 2s + 2/3*s^3 + ... for s = f/(2 + f) the first term has two.
precise PAIR log_pair(float x) {
  float k;
  const float f = log_fraction(x, k);
  if (IS_SHORT) return PAIR(fma(k, kLn2.x, fma(f * f, log1p_long_tail(f), f)), 0.0);
  const PAIR below = ordered_sum(2.0, f);
  const float inverse = reciprocal_estimate(below.x), s = f * inverse;
  const PAIR back = product(s, below.x);
  const float lack = (((f - back.x) - back.y) - s * below.y) * inverse, near = s + lack, z = near * near;
  const float cubic = near * (z * fma(z, log_tail(z), kTwoThirds));
  const PAIR sum = ordered_sum(k * kLn2High, s + s);
  return ordered_sum(sum.x, sum.y + (cubic + fma(k, kLn2Low, lack + lack)));
}

// ---- powers ----

precise float pow_positive(float a, float b, float sign) {
  const PAIR l = log_pair(a);
  const float about = l.x * b;
  if (about > kExpOver) return infinity(sign);
  if (about < kExpUnder) return zero(sign);
  if (IS_SHORT) return with_sign(exp2_short(about * kLog2E), sign);
  PAIR x = product(l.x, b);
  x.y += l.y * b;
  int n;
  const float p = exp_part(x, n);
  return with_sign(scaled(1.0 + p, n), sign);
}
// By the device's logarithm, then one of Newton's iterations.
precise float cbrt_real(float x) {
  const bool is_small = !IS_HALF && size_of(x) < kImplicit;
  const float a = is_small ? size(x) * 16777216.0 : size(x);
  float t = exp2(log2(a) * 0.333333343);
  if (!IS_SHORT) t = fma(a / (t * t) - t, 0.333333343, t);
  const bool is_special = size_of(x) - 1u >= kInfBits - 1u;  // 0, infinite or NaN
  // Not x: llvmpipe with LLVM 19 returned a part of x's bits for other numbers (lltm_cell.glsl).
  return is_special ? x + x : with_sign(is_small ? t * 0.00390625 : t, x);
}
precise float hypot_real(float a, float b) {
  const float big = max(size(a), size(b));
  const float up = big >= 9.22337204e+18 ? 1.3552527e-20 : big < 9.09494702e-13 ? 1.2379400392853803e+27 : 1.0;  // 2^-66, 2^90
  const float down = big >= 9.22337204e+18 ? 7.378697629483821e+19 : big < 9.09494702e-13 ? 8.077935669463161e-28 : 1.0;
  const float x = a * up, y = b * up;
  return is_inf(a) || is_inf(b) ? infinity(0.0) : sqrt_near(fma(x, x, y * y)) * down;
}

// ---- trigonometric functions ----

// x - quadrant*pi/2 in [-pi/4, pi/4], by Cody and Waite's method (Software Manual for the Elementary Functions, 1980) where fma()
// takes the digits that it takes.
precise float reduced(float x, out int quadrant) {
  if ((kFuses && IS_HALF) || size(x) <= (kFuses ? 100000.0 : 0.785)) {  // infinity gives NaN
    const float rounded = fma(x, 0.636619747, kToInteger), quarters = rounded - kToInteger;
    quadrant = floatBitsToInt(rounded);
    if (IS_HALF) return fma(quarters, -kHalfPiBelow.y, fma(quarters, -kHalfPiBelow.x, x));  // of -0 it is -0
    return fma(quarters, -kHalfPiRest, fma(quarters, -kHalfPi.y, fma(quarters, -kHalfPi.x, x)));
  }
  const float r = reduce_angle(size(x), quadrant);
  if (is_negative(x)) quadrant = -quadrant;
  return is_finite(x) ? with_sign(r, from_bits(to_bits(r) ^ to_bits(x))) : not_a_number();
}
// sin(quadrant*pi/2 + r): cos(r) is sin(pi/2 - |r|), too.
precise float sine_of(float r, int quadrant) {
  const float t = (quadrant & 1) == 0 ? r : kHalfPi.x - size(r), z = t * t;
  const float y = IS_HALF ? t * fma(z, sin_tail(z), 1.0) : fma(t * z, sin_tail(z), t);  // of -0, too
  return from_bits(to_bits(y) ^ (uint(quadrant & 2) << 30));
}
precise float sin_real(float x) {
  int quadrant;
  const float r = reduced(x, quadrant);
  return unless_tiny(x, sine_of(r, quadrant));
}
precise float cos_real(float x) {
  int quadrant;
  const float r = reduced(x, quadrant);
  return sine_of(r, quadrant + 1);
}
precise float tan_real(float x) {
  int quadrant;
  const float r = reduced(x, quadrant), z = r * r, y = fma(r * z, tan_tail(z), r);
  return unless_tiny(x, (quadrant & 1) == 0 ? y : ratio(-1.0, y));
}

precise float atan_unit(float t) {  // 0 <= t <= 1
  const float z = t * t;
  return t * fma(z, atan_tail(z), 1.0);
}
precise float atan_real(float x) {
  const float a = size(x);
  const bool turned = a > 1.0;
  const float y = atan_unit(turned ? reciprocal_of_any(a) : a);
  return with_sign(turned ? kHalfPi.x - y : y, x);
}
precise float atan2_real(float y, float x) {
  const bool turned = size_of(y) > size_of(x);
  const float big = size(turned ? y : x), small = size(turned ? x : y);
  const bool is_same = to_bits(big) == to_bits(small);  // zeros and infinities too
  float angle = atan_unit(is_same ? (is_zero(big) ? 0.0 : 1.0) : quotient(small, big));
  angle = turned ? kHalfPi.x - angle : angle;
  if (is_negative(x)) angle = kPi.x - angle;
  return is_nan(x) || is_nan(y) ? not_a_number() : with_sign(angle, y);
}

// asin(t) for |x| up to 1/2; else asin of the half chord t = sqrt((1 - |x|)/2), which is (pi/2 - asin|x|)/2. Past 1 that is NaN.
precise float asin_part(float x, out bool is_near) {
  is_near = size(x) < 0.5;
  const float z = is_near ? x * x : fma(size(x), -0.5, 0.5), t = is_near ? size(x) : sqrt_real(z);
  return t * fma(z, asin_tail(z), 1.0);
}
precise float asin_real(float x) {
  bool is_near;
  const float y = asin_part(x, is_near);
  return with_sign(is_near ? y : fma(y, -2.0, kHalfPi.x), x);
}
precise float acos_real(float x) {
  bool is_near;
  const float y = asin_part(x, is_near);
  if (is_near) return kHalfPi.x - with_sign(y, x);
  return is_negative(x) ? fma(y, -2.0, kPi.x) : y + y;
}

// ---- hyperbolic functions ----

precise float half_exp(float a) {  // e^a/2 for a >= 0
  if (IS_SHORT) return exp2_short(fma(a, kLog2E, -1.0));
  float unit;
  const float p = exp_part(PAIR(at_most(a, 91.0), 0.0), -64, unit);
  return ((1.0 + p) * unit) * 9.22337204e+18;  // 2^63: that may overflow
}
precise float sinh_near(float x) {  // |x| <= 1
  const float z = x * x;
  return x * fma(z, sinh_tail(z), 1.0);
}
precise float sinh_real(float x) {
  const float a = size(x), e = half_exp(a);
  return with_sign(a < 1.0 ? sinh_near(a) : fma(-0.25, reciprocal_of_any(e), e), x);
}
precise float cosh_real(float x) {
  const float e = half_exp(size(x));
  return fma(0.25, reciprocal_of_any(e), e);
}
precise float tanh_real(float x) {
  if (IS_SHORT) {
    const float near = size(x) > kTanhShortEnd ? with_sign(kTanhShortEnd, x) : x, z = near * near;
    return near * (tanh_numerator(z) * reciprocal_estimate(tanh_denominator(z)));
  }
  const float a = size(x), z = a * a;
  float unit;
  const float p = exp_part(PAIR(2.0 * at_most(a, kTanhEnd), 0.0), 0, unit);
  const float far = fma(-2.0, reciprocal_estimate(fma(unit, p, unit + 1.0)), 1.0);
  return with_sign(a < 0.6 ? a * fma(z, tanh_tail(z), 1.0) : far, x);
}
precise float asinh_real(float x) {
  const float a = size(x), square = a * a;
  const bool is_huge = a > kHuge;
  const float t = is_huge ? a : a + square * reciprocal_estimate(1.0 + root_near(square + 1.0));
  const float y = unless_tiny(t, log1p_finite(t)) + (is_huge ? kLn2.x : 0.0);
  return with_sign(a <= 3.40282347e+38 ? y : a, x);
}
precise float acosh_real(float x) {
  const float t = x - 1.0;
  const bool is_huge = x > kHuge;
  const float y = log1p_real(is_huge ? x : t + sqrt_near(fma(t, t, t + t)));
  return x < 1.0 ? not_a_number() : is_huge ? y + kLn2.x : y;
}
precise float atanh_real(float x) {
  const float a = size(x);
  const float y = unless_tiny(a, 0.5 * log1p_real(ratio(a + a, 1.0 - a)));
  return with_sign(a < 1.0 ? y : a == 1.0 ? infinity(0.0) : not_a_number(), x);
}

// ---- erf ----

// Below 1 a polynomial times x, from there on 1 - 2^-(another one times |x|); short results have one for both.
precise float erf_real(float x) {
  if (IS_SHORT) {
    const float near = size(x) > kErfShortEnd ? with_sign(kErfShortEnd, x) : x;
    return near * erf_short(near * near);
  }
  const float a = size(x);
  const bool is_near = a < 1.0;
  const float t = is_near ? x * x : at_most(a, kErfEnd), p = erf_polynomial(t, is_near);
  return is_near ? x + x * p : with_sign(1.0 - exp2(-t * p), x);
}
// The normal distribution function of -x*slope is e^(-(x*slope)^2/2) times this, x*slope from 0 to 15.2.
precise float normal_tail(float x, float slope) {
  const float below = fma(slope, x, 1.5), inverse = kFuses || IS_SHORT ? reciprocal_estimate(below) : 1.0 / below;
  const float p = normal_polynomial(fma(slope, x, -1.5) * inverse);
  return kFuses || IS_SHORT ? p * inverse : p / below;
}
// The same of -x for an x >= 0, up to 20; density is not looked at.
float normal_ratio(float x, float density) { return normal_tail(x, 1.0); }
precise float erfc_real(float x) {
  if (IS_HALF) {
    const float tail = exp2(1.0 - normal_log2(size(x) * 1.41421354));
    return is_negative(x) ? 2.0 - tail : tail;
  }
  const float a = at_most(size(x), kErfcEnd), tail = 2.0 * normal_tail(a, 1.41421354);
  float y;
  if (IS_SHORT) {
    y = tail * exp2_short(a * a * -kLog2E);
  } else {
    float unit;
    const float p = exp_part(-product(a, a), 64, unit);
    y = scaled_down(fma(tail, p, tail), unit);
  }
  return is_negative(x) ? 2.0 - y : y;
}

// ---- activations ----

// Where a is tiny the result is a/2, and may be subnormal, as a may: a clamp takes it for 0.
float half_if_tiny(float a, float y) { return size(a) < 2.98023224e-08 ? 0.5 * a : y; }
// For what is a times a number that goes to 0: -infinity as -1, since its product would be NaN, and the limit is 0. By its bits: the
// greater of two floats may be 0 for a subnormal number.
float finite_below(float a) { return to_bits(a) == (kInfBits | kSignBit) ? -1.0 : a; }

// From e^-|a|, so that neither side overflows nor cancels.
precise float sigmoid_real(float a) {
  if (IS_HALF) {  // 1/(1 + 2^t), which is 0 long before it overflows
    const float t = a * -kLog2E, y = reciprocal_estimate(1.0 + exp2(t));
    return t > 100.0 ? 0.0 : y;
  }
  const float z = exp_below(-size(a));
  return (is_negative(a) ? z : 1.0) * reciprocal_estimate(1.0 + z);
}
// a * sigmoid(t) for a t in two parts, a >= -110; sigmoid(t) alone may be subnormal.
precise float times_sigmoid(float a, PAIR t) {
  int n;
  const bool is_below = is_negative(t.x);
  const float p = exp_part(PAIR(-at_most(size(t.x), 110.0), is_below ? t.y : -t.y), n), e = 1.0 + p;
  const float y = (is_below ? a * e : a) * reciprocal_estimate(1.0 + scaled_down(e, n));
  return is_below ? scaled_down(y, n) : y;
}
precise float silu_real(float a) {
  if (IS_SHORT) return finite_below(a) * sigmoid_real(a);
  return half_if_tiny(a, times_sigmoid(a < -110.0 ? -110.0 : a, PAIR(a, 0.0)));
}

// 2*sqrt(2/pi)*(a + 0.044715*a^3), whose error exp multiplies by its size: hence in two parts. |a| <= 30.
precise PAIR gelu_tanh_argument(float a) {
  if (IS_SHORT) return PAIR(a * fma(a * a, kGeluCubic.x, kGeluLinear.x), 0.0);
  PAIR square = product(a, a), cubic = product(square.x, kGeluCubic.x), sum = sum_of(kGeluLinear.x, cubic.x);
  cubic.y = fma(square.x, kGeluCubic.y, fma(square.y, kGeluCubic.x, cubic.y));
  PAIR t = product(a, sum.x);
  return PAIR(t.x, fma(a, (kGeluLinear.y + cubic.y) + sum.y, t.y));
}
precise float gelu_tanh_real(float a) {
  if (IS_SHORT) return finite_below(a) * sigmoid_real(gelu_tanh_argument(a).x);
  const float near = a < -30.0 ? -30.0 : a;
  return half_if_tiny(a, times_sigmoid(near, gelu_tanh_argument(at_most(near, 30.0))));
}

// a times the normal distribution function: below 0 that is all tail.
precise float gelu_real(float a) {
  const bool is_below = is_negative(a);
  if (IS_HALF) {
    const float tail = exp2(-normal_log2(size(a)));
    return finite_below(a) * (is_below ? tail : 1.0 - tail);
  }
  if (IS_SHORT) {
    const float x = at_most(size(a), kGeluEnd), tail = normal_tail(x, 1.0) * exp2_short(x * x * (-0.5 * kLog2E));
    return finite_below(a) * (is_below ? tail : 1.0 - tail);
  }
  // By integers, since the lesser of two floats may be 0 for a subnormal number.
  const float x = from_bits(min(size_of(a), to_bits(kGeluEnd)));
  float unit;
  const float p = exp_part(product(x, -0.5 * x), 64, unit), tail = normal_tail(x, 1.0);
  const float above = from_bits(min(to_bits(a), kSignBit));  // below 0: -0
  const float y = above - scaled_down(x * fma(tail, p, tail), unit);
  return to_bits(a) > (kInfBits | kSignBit) ? not_a_number() : y;  // of NaN with a sign
}
// log(1 + e^-d), d >= 0
precise float softplus_below(float d) {
  const float z = exp_below(-d);
  return z * log1p_unit_ratio(z);
}
precise float softplus_real(float a) {
  const float rest = softplus_below(size(a));
  return is_negative(a) ? rest : a + rest;
}
precise float logaddexp_real(float a, float b) {
  const float d = a - b, larger = is_negative(d) ? b : a;
  return to_bits(a) == to_bits(b) ? a + kLn2.x : larger + softplus_below(size(d));  // of two infinities d is NaN
}
precise float elu_real(float a, float alpha) { return is_nan(a) || is_negative(a) || is_zero(a) ? alpha * expm1_real(a) : a; }
