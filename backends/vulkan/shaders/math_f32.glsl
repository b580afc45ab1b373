// SPDX-License-Identifier: Apache-2.0
// math_f32.glsl -- what functions_f32.glsl needs to know of f32: its layout in bits, constants, polynomials, and the
// reduction of an angle. Polynomials are minimax fits of the functions that their comments name: of the relative error of what is
// made of them, by least squares with weights that follow the error (Lawson's method), coefficients rounded one after the other.
#ifndef NARROWS_MATH_F32
#define NARROWS_MATH_F32

// What is rounded to 16 bits does not show an error of 2^-14: where the includer defines IS_SHORT, a constant of the pipeline,
// functions are looser. IS_HALF: operands and results are f16, far from where f32 ends.
#ifndef IS_SHORT
#define IS_SHORT false
#define IS_HALF false
#endif

layout(constant_id = 30) const bool kFuses = false;  // PhysicalDevice::fma_rounds_once

#define REAL float
#define PAIR vec2
#define BITS uint
#define SBITS int
#define to_bits(x) floatBitsToUint(x)
#define from_bits(x) uintBitsToFloat(x)
#define msb_of(x) findMSB(x)

// ---- layout ----

const int kDigits = 23, kBias = 127, kExpMax = 255;
const uint kSignBit = 0x80000000u, kMagnitude = 0x7fffffffu, kInfBits = 0x7f800000u, kNanBits = 0x7fc00000u;
const uint kFraction = 0x007fffffu, kImplicit = 0x00800000u;
const uint kHighHalf = 0xfffff000u;  // 12 digits: products of such halves are exact

// ---- constants: a pair is the nearest number and what it lacks; kLn2High has so few digits that a multiple is exact ----

const float kLog2E = 1.44269502, kLn2High = 0.69317627, kLn2Low = -2.90889711e-05;
const vec2 kLn2 = vec2(0.693147182, -1.90465421e-09);
const float kLog10Of2High = 0.301025391, kLog10Of2Low = 4.60503907e-06, kLog10E = 0.434294492;
const float kTwoThirds = 0.666666687;
const vec2 kPi = vec2(3.14159274, -8.74227766e-08), kHalfPi = vec2(1.57079637, -4.37113883e-08);
const float kHalfPiRest = -1.7151245e-15;                    // what kHalfPi lacks
const vec2 kHalfPiBelow = vec2(1.57079625, 7.54978942e-08);  // pi/2 from below
const vec2 kSqrtHalf = vec2(0.707106769, 1.21016175e-08);
const vec2 kNormalDensity = vec2(0.398942292, -1.13351701e-08);
const float kTwoOverSqrtPi = 1.12837923;
const vec2 kGeluLinear = vec2(1.59576917, -4.53406805e-08), kGeluCubic = vec2(0.0713548139, 2.39883247e-09);

// ---- where functions end: beyond, the result is 0, 1 or infinite to every digit ----

const float kExpOver = 89, kExpUnder = -104.5, kExp2Under = -151, kExpm1Under = -18;
// Further away, what e^x is a factor of is 0 or infinite to every digit whatever the others are.
const float kExpFar = 300, kErfFar = 14.5, kGeluFar = 20, kGeluTanhFar = 13.9;
const float kErfEnd = 4, kErfcEnd = 10.5, kGeluEnd = 15, kTanhEnd = 10;
const float kErfShortEnd = 3, kTanhShortEnd = 5.6;
const float kHuge = 1073741824;  // log(1 + x) is log(x)

// ---- polynomials ----

// By Horner's method; of two the first one is for short results.
#define HORNER1(x, a, b) fma(b, x, a)
#define HORNER2(x, a, b, c) fma(HORNER1(x, b, c), x, a)
#define HORNER3(x, a, b, c, d) fma(HORNER2(x, b, c, d), x, a)
#define HORNER4(x, a, b, c, d, e) fma(HORNER3(x, b, c, d, e), x, a)
#define HORNER5(x, a, b, c, d, e, f) fma(HORNER4(x, b, c, d, e, f), x, a)
#define HORNER6(x, a, b, c, d, e, f, g) fma(HORNER5(x, b, c, d, e, f, g), x, a)
#define HORNER7(x, a, b, c, d, e, f, g, h) fma(HORNER6(x, b, c, d, e, f, g, h), x, a)
#define HORNER8(x, a, b, c, d, e, f, g, h, i) fma(fma(HORNER6(x, c, d, e, f, g, h, i), x, b), x, a)

// (e^r - 1 - r - r^2/2)/r^3 for |r| <= 0.353
precise float exp_tail(float r) { return HORNER3(r, 0.16666536, 0.0416663848, 0.00836764462, 0.00139425113); }
// (log(1 + f) - f)/f^2 for f from -1/4 to 1/2
precise float log1p_long_tail(float f) {
  return HORNER8(f, -0.5, 0.333334506, -0.250001103, 0.19990848, -0.166468784, 0.1447763, -0.131639361, 0.104725502, -0.0451522544);
}
precise float log1p_tail(float f) {
  if (IS_SHORT) return HORNER4(f, -0.499889523, 0.333499938, -0.255880982, 0.204928637, -0.106547102);
  return log1p_long_tail(f);
}
// log(1 + z)/z for z from 0 to 1
precise float log1p_unit_ratio(float z) {
  const float p = HORNER6(z, -0.249580204, 0.196921214, -0.153449774, 0.106613711, -0.0574604869, 0.0200884696, -0.00329107977);
  return HORNER3(z, 1.0, -0.499999315, 0.333304644, p);
}
// (2*atanh(s)/s - 2 - 2/3*z)/z^2 for z = s^2 <= 0.0401
precise float log_tail(float z) { return HORNER2(z, 0.400002331, 0.28536582, 0.236938164); }
// (sin(r)/r - 1)/z for z = r^2 <= (pi/2)^2
precise float sin_tail(float z) {
  if (IS_SHORT) return HORNER2(z, -0.166658536, 0.00831427798, -0.00018542305);
  return HORNER3(z, -0.166666597, 0.00833306927, -0.000198097739, 2.60608181e-06);
}
// (sin(pi f)/(pi f) - 1)/z for z = f^2 <= 1/4
precise float sinc_tail(float z) { return HORNER4(z, -1.64493406, 0.811742209, -0.190747963, 0.0261175477, -0.00223715173); }
// (cos(pi f) - sin(pi f)/(pi f))/z for z = f^2 <= 1/4
precise float sinc_slope_near(float z) { return HORNER4(z, -3.28986813, 3.24696899, -1.14448887, 0.2089398, -0.0223591103); }
// (tan(r)/r - 1)/z for z = r^2 <= (pi/4)^2
precise float tan_tail(float z) {
  if (IS_SHORT) return HORNER3(z, 0.333153486, 0.136075199, 0.0413651392, 0.0431212708);
  return HORNER6(z, 0.333333492, 0.133326739, 0.0540591702, 0.0212846044, 0.0108320843, 9.19137965e-05, 0.00437599374);
}
// (atan(t)/t - 1)/z for z = t^2 <= 1
precise float atan_tail(float z) {
  if (IS_SHORT) return HORNER4(z, -0.333088994, 0.196183026, -0.122514799, 0.0587699972, -0.0139549952);
  return HORNER8(z, -0.333332986, 0.199985296, -0.142640159, 0.109508805, -0.0839930624, 0.0578813776, -0.031096939, 0.0108686239,
                 -0.0017827946);
}
// (asin(t)/t - 1)/z for z = t^2 <= 1/4
precise float asin_tail(float z) { return HORNER4(z, 0.166667521, 0.0749525204, 0.0454787537, 0.0241283383, 0.042266544); }
// (sinh(t)/t - 1)/z for z = t^2 <= 1
precise float sinh_tail(float z) { return HORNER2(z, 0.166667163, 0.00833027251, 0.000203730364); }
// (tanh(t)/t - 1)/z for z = t^2 <= 0.36
precise float tanh_tail(float z) { return HORNER4(z, -0.333332986, 0.133319363, -0.0537847169, 0.0207986254, -0.00589796668); }
// tanh(t)/t for z = t^2 <= kTanhShortEnd^2 as a quotient, for short results
precise float tanh_numerator(float z) { return HORNER2(z, 0.99999541, 0.115569465, 0.00156370969); }
precise float tanh_denominator(float z) { return HORNER3(z, 1.0, 0.448869616, 0.0178943183, 5.94682242e-05); }
// erf(x)/x for z = x^2 <= kErfShortEnd^2, for short results
precise float erf_short(float z) {
  const float p = HORNER4(z, -0.000688023574, 7.16046416e-05, -5.07443383e-06, 2.15955595e-07, -4.12716972e-09);
  return HORNER5(z, 1.12837434, -0.376028001, 0.112491526, -0.0263739526, 0.00485460926, p);
}
// Near: erf(x)/x - 1 for t = x^2 <= 1. Else -log2(erfc(t))/t for t from 1 to 4.
precise float erf_polynomial(float t, bool is_near) {
  return HORNER6(t, is_near ? 0.128379166 : 1.62836576, is_near ? -0.37612626 : 0.916051328, is_near ? 0.112835787 : 0.153717652,
                 is_near ? -0.0268533472 : -0.0346613191, is_near ? 0.0051871622 : 0.00543118687,
                 is_near ? -0.00079978531 : -0.000508292229, is_near ? 7.80690316e-05 : 2.0389376e-05);
}
// -log2 of the normal distribution function of -x for x from 0 to 6; beyond it grows, past what f16 holds.
precise float normal_log2(float x) {
  return HORNER7(x, 0.999995232, 1.15125108, 0.458464384, 0.0539600737, -0.00850789249, 0.000930525246, -6.15983517e-05,
                 1.83481461e-06);
}
// (x + 1.5) * e^(x^2/2) * (the normal distribution function of -x) for t = (x - 1.5)/(x + 1.5), x from 0 to 15.2: smooth, and nearly
// as large at both ends, after Shepherd and Laframboise, "Chebyshev approximation of (1 + 2x)exp(x^2)erfc x", Math. Comp. 36 (1981).
precise float normal_polynomial(float t) {
  if (IS_SHORT)
    return HORNER6(t, 0.617338896, -0.195214674, -0.0573759228, 0.0190649778, 0.0171907619, 0.000844040769, -0.00247779512);
  const float p =
      HORNER6(t, 0.00398782315, -0.00243779388, -0.00271204486, -0.00103453232, 0.000255167048, 0.0004608905, 0.000147861152);
  return HORNER5(t, 0.617341995, -0.195099503, -0.0574954525, 0.0178967547, 0.0176409595, p);
}

// ---- what a device's own division and square root are a start for; a and b in [1, 4) ----

// 2^25 * a/b and how many times b goes into what is left; within a few units.
uint quotient_estimate(uint a, uint b) { return uint(float(a) / float(b) * 33554432.0); }
int quotient_rest(int rest, uint b) { return int(float(rest) / float(b)); }
// sqrt(m * 2^25), m in [2^23, 2^25): within a few units.
uint sqrt_estimate(uint m) { return uint(sqrt(float(m)) * 5792.6187514801984); }
int sqrt_rest(int rest, uint root) { return int(float(rest) / (2.0 * float(root))); }

// ---- reciprocals ----

// One of Newton's iterations from y towards 1/x.
precise float nearer_reciprocal(float x, float y) { return fma(fma(-x, y, 1.0), y, y); }
// 1/x for 2^-125 <= |x| <= 2^125, to some 2^-24 of it, or to 2^-17 for short results: from 2^-4.3, which a difference of integers
// gives, squared twice, or cubed and squared. A device's own division looks at more: NVIDIA's takes some 25 instructions in these
// modules.
precise float reciprocal_estimate(float x) {
  const float start = intBitsToFloat(0x7ef311c7 - floatBitsToInt(x));
  if (IS_SHORT) return nearer_reciprocal(x, nearer_reciprocal(x, start));
  const float rest = fma(-x, start, 1.0);
  return nearer_reciprocal(x, fma(start, fma(rest, rest, rest), start));
}
const float kMostDivisor = 4.2535296e37;  // 2^125

uint product_of(uint a, uint b, out uint high) {
  uint low;
  umulExtended(a, b, high, low);
  return low;
}

// ---- angles ----

// The bits of 2/pi behind 32 zeros.
const uint kTwoOverPi[8] = uint[8](0u, 0xa2f9836eu, 0x4e441529u, 0xfc2757d1u, 0xf534ddc0u, 0xdb629599u, 0x3c439041u, 0xfe5163abu);
uint two_over_pi(int word, int shift) {
  return shift == 0 ? kTwoOverPi[word] : (kTwoOverPi[word] << shift) | (kTwoOverPi[word + 1] >> (32 - shift));
}

// x - quadrant*pi/2 in [-pi/4, pi/4] for a finite x >= pi/4, by Payne and Hanek's method ("Radian reduction for trigonometric
// functions", SIGNUM Newsletter 18, 1983): of x*2/pi only the bits from 2^1 down to 2^-62 are formed; higher
// ones are whole turns.
precise float reduce_angle(float x, out int quadrant) {
  const uint bits = floatBitsToUint(x), digits = (bits & kFraction) | kImplicit;
  const int offset = int(bits >> kDigits) - kBias - kDigits + 30, word = offset >> 5, shift = offset & 31;
  uint high1, high2;
  const uint low1 = product_of(digits, two_over_pi(word + 1, shift), high1);
  product_of(digits, two_over_pi(word + 2, shift), high2);
  uint low = low1 + high2;
  uint high = digits * two_over_pi(word, shift) + high1 + (low < low1 ? 1u : 0u);
  quadrant = int(high >> 30);
  high = (high << 2) | (low >> 30);
  low <<= 2;
  const bool down = (high & kSignBit) != 0u;  // nearer to the next quadrant
  if (down) {
    quadrant += 1;
    high = ~high + (low == 0u ? 1u : 0u);
    low = ~low + 1u;
  }
  int places = high == 0u ? 32 : 0;
  if (high == 0u) high = low, low = 0u;
  const int zeros = 31 - findMSB(high | 1u);
  if (zeros != 0) {
    high = (high << zeros) | (low >> (32 - zeros));
    low <<= zeros;
  }
  places += zeros;
  const float unit = uintBitsToFloat(uint(kBias - 24 - places) << kDigits);
  const float a = float(high >> 8) * unit, b = float(((high & 0xffu) << 16) | (low >> 16)) * (unit * 5.9604644775390625e-08);
  const float r = fma(a, kHalfPi.x, fma(a, kHalfPi.y, b * kHalfPi.x));
  return down ? -r : r;
}

#include "real.glsl"
#include "functions_f32.glsl"

#endif
