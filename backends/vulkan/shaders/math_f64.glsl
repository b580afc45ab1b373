// SPDX-License-Identifier: Apache-2.0
// math_f64.glsl -- what the functions of math.glsl need to know of f64, as math_f32.glsl has it for f32.
#ifndef NARROWS_MATH_F64
#define NARROWS_MATH_F64

#define REAL double
#define PAIR dvec2
#define BITS uint64_t
#define SBITS int64_t
#define to_bits(x) doubleBitsToUint64(x)
#define from_bits(x) uint64BitsToDouble(x)
#define IS_SHORT false
#define IS_HALF false
const bool kFuses = false;

int msb_of(uint64_t x) {
  const uint high = uint(x >> 32);
  return high != 0u ? 32 + findMSB(high) : findMSB(uint(x));
}

// ---- layout ----

const int kDigits = 52, kBias = 1023, kExpMax = 2047;
const uint64_t kSignBit = 0x8000000000000000ul, kMagnitude = 0x7ffffffffffffffful, kInfBits = 0x7ff0000000000000ul;
const uint64_t kNanBits = 0x7ff8000000000000ul, kFraction = 0x000ffffffffffffful, kImplicit = 0x0010000000000000ul;
const uint64_t kSqrt2Fraction = 0x6a09e667f3bcdul;  // of sqrt(2) = 1.fraction
const uint64_t kHighHalf = 0xfffffffff8000000ul;    // 26 digits: products of such halves are exact

// ---- constants: a pair is the nearest number and what it lacks; kLn2High has so few digits that a multiple is exact ----

const double kLog2E = 1.4426950408889634lf, kLn2High = 0.6931471805601177lf, kLn2Low = -1.7239444525614835e-13lf;
const dvec2 kLn2 = dvec2(0.6931471805599453lf, 2.3190468138462996e-17lf);
const double kLog10Of2High = 0.3010299956640665lf, kLog10Of2Low = -8.532344317057107e-14lf, kLog10E = 0.4342944819032518lf;
const dvec2 kTwoThirds = dvec2(0.6666666666666666lf, 3.700743415417188e-17lf);
const dvec2 kPi = dvec2(3.141592653589793lf, 1.2246467991473532e-16lf);
const dvec2 kHalfPi = dvec2(1.5707963267948966lf, 6.123233995736766e-17lf);
const dvec2 kQuarterPi = dvec2(0.7853981633974483lf, 3.061616997868383e-17lf);
const dvec2 kSqrtHalf = dvec2(0.7071067811865476lf, -4.833646656726457e-17lf);
const dvec2 kNormalDensity = dvec2(0.3989422804014327lf, -2.49232720227773e-17lf);
const double kTwoOverSqrtPi = 1.1283791670955126lf;
const dvec2 kGeluLinear = dvec2(1.5957691216057308lf, -9.96930880911092e-17lf);
const dvec2 kGeluCubic = dvec2(0.07135481627260025lf, -6.175149918155315e-19lf);

// ---- where functions end: beyond, the result is 0, 1 or infinite to every digit ----

const double kExpOver = 710.0lf, kExpUnder = -746.0lf, kExp2Under = -1076.0lf, kExpm1Under = -38.0lf, kTanhEnd = 20.0lf;
const double kExpFar = 2200.0lf, kErfFar = 38.9lf, kGeluFar = 55.0lf, kGeluTanhFar = 27.4lf;  // of products, as in math_f32.glsl
const double kSinhSum = 19.0lf, kErfEnd = 6.0lf, kErfcEnd = 27.5lf, kGeluEnd = 39.0lf;
const double kTiny = 7.450580596923828125e-9lf, kHuge = 268435456.0lf;

// ---- polynomials, of what math_f32.glsl says; erfc_tail up to x = 27.8 ----

precise double exp_tail(double r) {
  return 0.16666666666666666lf +
         r * (0.04166666666666668lf +
              r * (0.008333333333333338lf +
                   r * (0.001388888888887531lf +
                        r * (0.0001984126984124722lf +
                             r * (2.4801587345841317e-05lf +
                                  r * (2.7557319276423153e-06lf +
                                       r * (2.755725403554518e-07lf +
                                            r * (2.505204761542073e-08lf +
                                                 r * (2.0921286940328046e-09lf + r * 1.609354561170579e-10lf)))))))));
}
precise double log_tail(double z) {
  return 0.4lf +
         z * (0.2857142857142843lf +
              z * (0.22222222222277896lf +
                   z * (0.1818181817084367lf +
                        z * (0.15384616636582793lf +
                             z * (0.133332456009171lf +
                                  z * (0.11768538009894176lf + z * (0.1042484985002837lf + z * 0.11001648809257138lf)))))));
}
precise double sin_tail(double z) {
  return 0.008333333333333333lf +
         z * (-0.00019841269841269836lf +
              z * (2.755731922397901e-06lf +
                   z * (-2.5052108381419035e-08lf +
                        z * (1.6059042552643324e-10lf + z * (-7.646934804244897e-13lf + z * 2.7900323820115824e-15lf)))));
}
precise double sinc_tail(double z) {
  double p = -0.0023460810348048213727lf +
             z * (0.00014842878710886517455lf +
                  z * (-6.9758403886621299219e-6lf + z * (2.530088079571986308e-7lf + z * -7.092119890826358515e-9lf)));
  p = -0.19075182412208257566lf + z * (0.026147847817611457447lf + z * p);
  return -1.6449340668482264363lf + z * (0.81174242528335361316lf + z * p);
}
precise double sinc_slope_near(double z) {
  double p = -0.0058652025871472361468lf +
             z * (0.00044528636204078460559lf +
                  z * (-0.000024415443104054369476lf + z * (1.0120361768401985708e-6lf + z * -3.1912578740775304851e-8lf)));
  p = -0.2861277361831244996lf + z * (0.052295695635236058941lf + z * p);
  return 4.0lf * (-0.82246703342411321821lf + z * (0.81174242528335362621lf + z * p));
}
precise double cos_tail(double z) {
  return 0.041666666666666664lf +
         z * (-0.0013888888888888879lf +
              z * (2.480158730157424e-05lf +
                   z * (-2.755731921634768e-07lf +
                        z * (2.0876754549381166e-09lf + z * (-1.1470310864010789e-11lf + z * 4.738786038575408e-14lf)))));
}
precise double atan_tail(double z) {
  double p = 0.05881624413327630lf +
             z * (-0.05255519871409663lf +
                  z * (0.04705219870875522lf +
                       z * (-0.040533024404710315lf + z * (0.029566056779045325lf + z * -0.012931793525029645lf))));
  p = 0.11111111109650997lf + z * (-0.09090909018387708lf + z * (0.07692305393868612lf + z * (-0.06666617591809622lf + z * p)));
  return -0.3333333333333333lf + z * (0.199999999999999lf + z * (-0.1428571428569719lf + z * p));
}
precise double asin_tail(double z) {
  double p = 0.011398380651218327lf +
             z * (0.010786121942968747lf +
                  z * (0.0036747409545419517lf +
                       z * (0.021804924326349326lf + z * (-0.02116289619478175lf + z * 0.032745743474751045lf))));
  p = 0.0303819427646774lf + z * (0.022372214031235738lf + z * (0.017351620115674787lf + z * (0.013980811750431206lf + z * p)));
  return 0.16666666666666743lf + z * (0.0749999999997371lf + z * (0.04464285717278064lf + z * p));
}
precise double erf_tail(double z) {
  double p = -0.0008548326395922964lf +
             z * (0.00012055278060738665lf +
                  z * (-1.4922668124735333e-05lf + z * (1.6363814315718686e-06lf + z * -1.4552681105174586e-07lf)));
  p = 0.1128379167095477lf + z * (-0.026866170644956056lf + z * (0.005223977621069994lf + z * p));
  return 0.1283791670955126lf + z * (-0.3761263890318375lf + z * p);
}
const dvec2 kErfcMiddle = dvec2(1.2530080582697296lf, 4.4106922177065733e-17lf);
const double kErfcTail[22] =
    double[22](-0.1356211061245812lf, -0.04756229435345065lf, 0.12964515870276377lf, -0.11927366341531499lf, 0.06830802734387464lf,
               -0.02377051491843984lf, 0.002529391817605289lf, 0.0018886903548926911lf, -0.000779832284216486lf,
               -0.00010515974625044156lf, 0.0001250994042279027lf, 4.949091979153357e-06lf, -2.0100665540277207e-05lf,
               -7.297618884512706e-07lf, 3.4723070868385286e-06lf, 3.5199934258421066e-07lf, -6.156447802218397e-07lf,
               -1.33306023298144e-07lf, 9.960185241237974e-08lf, 3.339330213682764e-08lf, -1.0950214437273765e-08lf,
               -4.027122163944683e-09lf);
precise double erfc_tail(double t) {
  double p = kErfcTail[21];
  for (int i = 20; i >= 0; --i) p = kErfcTail[i] + t * p;
  return p;
}

// ---- what a device's own division is a start for, which need not be better than f32's; a and b in [1, 4) ----

precise double reciprocal_estimate(double b) {
  double y = 1.0lf / b;
  y = y * (2.0lf - b * y);
  return y * (2.0lf - b * y);
}
// 2^54 * a/b and how many times b goes into what is left; within a few units.
uint64_t quotient_estimate(uint64_t a, uint64_t b) {
  return uint64_t(double(a) * reciprocal_estimate(double(b)) * 18014398509481984.0lf);
}
int64_t quotient_rest(int64_t rest, uint64_t b) { return int64_t(double(rest) * reciprocal_estimate(double(b))); }
// sqrt(m * 2^54), m in [2^52, 2^54): within a few units.
precise uint64_t sqrt_estimate(uint64_t m) {
  const double x = double(m) * 2.220446049250313080847263e-16lf;
  double y = double(inversesqrt(float(x)));
  y = y * (1.5lf - 0.5lf * x * y * y);
  y = y * (1.5lf - 0.5lf * x * y * y);
  return uint64_t(x * y * 9007199254740992.0lf);
}
int64_t sqrt_rest(int64_t rest, uint64_t root) { return int64_t(double(rest) / (2.0lf * double(root))); }

uint64_t product_of(uint64_t a, uint64_t b, out uint64_t high) {
  const uint64_t al = a & 0xfffffffful, ah = a >> 32, bl = b & 0xfffffffful, bh = b >> 32;
  const uint64_t low = al * bl, cross = ah * bl + (low >> 32), other = al * bh + (cross & 0xfffffffful);
  high = ah * bh + (cross >> 32) + (other >> 32);
  return (other << 32) | (low & 0xfffffffful);
}

// ---- angles ----

// The bits of 2/pi behind 64 zeros.
const uint kTwoOverPi[40] =
    uint[40](0u, 0u, 0xa2f9836eu, 0x4e441529u, 0xfc2757d1u, 0xf534ddc0u, 0xdb629599u, 0x3c439041u,
             0xfe5163abu, 0xdebbc561u, 0xb7246e3au, 0x424dd2e0u, 0x06492eeau, 0x09d1921cu, 0xfe1deb1cu, 0xb129a73eu,
             0xe88235f5u, 0x2ebb4484u, 0xe99c7026u, 0xb45f7e41u, 0x3991d639u, 0x835339f4u, 0x9c845f8bu, 0xbdf9283bu,
             0x1ff897ffu, 0xde05980fu, 0xef2f118bu, 0x5a0a6d1fu, 0x6d367ecfu, 0x27cb09b7u, 0x4f463f66u, 0x9e5fea2du,
             0x7527bac7u, 0xebe5f17bu, 0x3d0739f7u, 0x8a5292eau, 0x6bfb5fb1u, 0x1f8d5d08u, 0x56033046u, 0xfc7b6babu);
uint64_t two_over_pi(int word, int shift) {
  const uint64_t whole = (uint64_t(kTwoOverPi[word]) << 32) | kTwoOverPi[word + 1];
  return shift == 0 ? whole : (whole << shift) | (kTwoOverPi[word + 2] >> (32 - shift));
}

// As in math_f32.glsl; here of the bits from 2^1 down to 2^-126.
precise dvec2 reduce_angle(double x, out int quadrant) {
  const uint64_t bits = doubleBitsToUint64(x), digits = (bits & kFraction) | kImplicit;
  const int offset = int(bits >> kDigits) - kBias - kDigits + 62, word = offset >> 5, shift = offset & 31;
  uint64_t high1, high2;
  const uint64_t low1 = product_of(digits, two_over_pi(word + 2, shift), high1);
  product_of(digits, two_over_pi(word + 4, shift), high2);
  uint64_t low = low1 + high2;
  uint64_t high = digits * two_over_pi(word, shift) + high1 + (low < low1 ? 1ul : 0ul);
  quadrant = int(high >> 62);
  high = (high << 2) | (low >> 62);
  low <<= 2;
  const bool down = (high & kSignBit) != 0ul;  // nearer to the next quadrant
  if (down) {
    quadrant += 1;
    high = ~high + (low == 0ul ? 1ul : 0ul);
    low = ~low + 1ul;
  }
  int places = high == 0ul ? 64 : 0;
  if (high == 0ul) high = low, low = 0ul;
  const int zeros = 63 - msb_of(high | 1ul);
  if (zeros != 0) {
    high = (high << zeros) | (low >> (64 - zeros));
    low <<= zeros;
  }
  places += zeros;
  const double unit = uint64BitsToDouble(uint64_t(kBias - 53 - places) << kDigits);
  const double a = double(high >> 11) * unit;
  const double b = double(((high & 0x7fful) << 42) | (low >> 22)) * (unit * 1.1102230246251565404236316680908203125e-16lf);
  const double ah = uint64BitsToDouble(doubleBitsToUint64(a) & kHighHalf), al = a - ah;
  const double ph = uint64BitsToDouble(doubleBitsToUint64(kHalfPi.x) & kHighHalf), pl = kHalfPi.x - ph;
  double r = a * kHalfPi.x;
  double rest = ((((ah * ph - r) + ah * pl) + al * ph) + al * pl) + (a * kHalfPi.y + b * kHalfPi.x);
  return down ? dvec2(-r, -rest) : dvec2(r, rest);
}

#include "real.glsl"
#include "math.glsl"

#endif
