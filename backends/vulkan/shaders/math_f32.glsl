// math_f32.glsl -- what the functions of math.glsl need to know of f32: its layout in bits, constants, polynomials, and the
// reduction of an angle. Polynomials are minimax fits (Remez exchange in 60 digits) of the functions that their comments name.
#ifndef NARROWS_MATH_F32
#define NARROWS_MATH_F32

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
const uint kSqrt2Fraction = 0x3504f3u;  // of sqrt(2) = 1.fraction
const uint kHighHalf = 0xfffff000u;     // 12 digits: products of such halves are exact

// ---- constants: a pair is the nearest number and what it lacks; kLn2High has so few digits that a multiple is exact ----

const float kLog2E = 1.44269502, kLn2High = 0.69317627, kLn2Low = -2.90889711e-05;
const vec2 kLn2 = vec2(0.693147182, -1.90465421e-09);
const float kLog10Of2High = 0.301025391, kLog10Of2Low = 4.60503907e-06, kLog10E = 0.434294492;
const vec2 kTwoThirds = vec2(0.666666687, -1.98682155e-08);
const vec2 kPi = vec2(3.14159274, -8.74227766e-08), kHalfPi = vec2(1.57079637, -4.37113883e-08);
const vec2 kQuarterPi = vec2(0.785398185, -2.18556941e-08);
const vec2 kSqrtHalf = vec2(0.707106769, 1.21016175e-08);
const float kNormalDensity = 0.398942292, kTwoOverSqrtPi = 1.12837923, kLn10 = 2.30258512;
const vec2 kGeluLinear = vec2(1.59576917, -4.53406805e-08), kGeluCubic = vec2(0.0713548139, 2.39883247e-09);

// ---- where functions end: beyond, the result is 0, 1 or infinite to every digit ----

const float kExpOver = 89, kExpUnder = -104.5, kExp2Under = -151, kExpm1Under = -18, kTanhEnd = 10, kSinhSum = 9;
const float kErfEnd = 4, kErfcEnd = 10.5, kGeluEnd = 15, kTiny = 1.220703125e-4, kHuge = 8192;

// ---- polynomials ----

// (e^r - 1 - r - r^2/2)/r^3 for |r| <= 0.353
precise float exp_tail(float r) {
  return 0.16666536 + r * (0.0416663848 + r * (0.00836764462 + r * 0.00139425113));
}
// (2*atanh(s)/s - 2 - 2/3*z)/z^2 for z = s^2 <= 0.0297
precise float log_tail(float z) { return 0.400001556 + z * (0.285467148 + z * 0.23429361); }
// (sin(r)/r - 1 + z/6)/z^2 and (cos(r) - 1 + z/2)/z^2 for z = r^2 <= (pi/4)^2
precise float sin_tail(float z) { return 0.00833333191 + z * (-0.000198398673 + z * 2.72244711e-06); }
precise float cos_tail(float z) { return 0.0416666456 + z * (-0.00138873479 + z * 2.44358562e-05); }
// (atan(t)/t - 1)/z for z = t^2 <= tan(pi/8)^2
precise float atan_tail(float z) {
  return -0.333333164 + z * (0.199984819 + z * (-0.142434701 + z * (0.105919883 + z * -0.0607084818)));
}
// (asin(t)/t - 1)/z for z = t^2 <= 1/4
precise float asin_tail(float z) {
  return 0.166667521 + z * (0.0749525204 + z * (0.0454787537 + z * (0.0241283383 + z * 0.042266544)));
}
// erf(t)/t - 1 for z = t^2 <= 1/4
precise float erf_tail(float z) {
  return 0.128379166 + z * (-0.376126021 + z * (0.112827048 + z * (-0.02674862 + z * 0.00469888328)));
}
// ((1 + 2x)*e^(x^2)*erfc(x) - kErfcMiddle)/t in t = (x - 3)/(x + 3) for x in [1/2, 10.8]: a smooth function without
// a pole, after Shepherd and Laframboise, "Chebyshev approximation of (1 + 2x)exp(x^2)erfc x", Math. Comp. 36 (1981).
const vec2 kErfcMiddle = vec2(1.25300801, 4.98532858e-08);  // at t = 0
precise float erfc_tail(float t) {
  float p = 0.0683393255 + t * (-0.0237556212 + t * (0.00239170715 + t * (0.00182094704 + t * -0.000538502762)));
  return -0.135621041 + t * (-0.0475622453 + t * (0.129642382 + t * (-0.119275004 + t * p)));
}

// ---- what a device's own division and square root are a start for; a and b in [1, 4) ----

// 2^25 * a/b and how many times b goes into what is left; within a few units.
uint quotient_estimate(uint a, uint b) { return uint(float(a) / float(b) * 33554432.0); }
int quotient_rest(int rest, uint b) { return int(float(rest) / float(b)); }
// sqrt(m * 2^25), m in [2^23, 2^25): within a few units.
uint sqrt_estimate(uint m) { return uint(sqrt(float(m)) * 5792.6187514801984); }
int sqrt_rest(int rest, uint root) { return int(float(rest) / (2.0 * float(root))); }

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
precise vec2 reduce_angle(float x, out int quadrant) {
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
  const float ah = uintBitsToFloat(floatBitsToUint(a) & kHighHalf), al = a - ah;
  const float ph = uintBitsToFloat(floatBitsToUint(kHalfPi.x) & kHighHalf), pl = kHalfPi.x - ph;
  float r = a * kHalfPi.x;
  float rest = ((((ah * ph - r) + ah * pl) + al * ph) + al * pl) + (a * kHalfPi.y + b * kHalfPi.x);
  return down ? vec2(-r, -rest) : vec2(r, rest);
}

#include "real.glsl"
#include "math.glsl"

#endif
