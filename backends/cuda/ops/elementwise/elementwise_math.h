// SPDX-License-Identifier: Apache-2.0
// elementwise_math.h -- f32 and f64 functions that the vendor's library lacks, a few units in the last place over the whole range.
#pragma once

#include <cmath>
#include <limits>
#include <type_traits>

#include "elementwise_half.h"
#include "fast_math.h"

namespace narrows::gpu {

constexpr double kLn2 = 0.693147180559945309417232121458;

// ---- numbers in two parts, |low| at most half a unit of high ----

template <class C>
struct Pair {
  C high, low;
};
// A product that no addition is merged with.
__device__ __forceinline__ float rounded_product(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ double rounded_product(double a, double b) { return __dmul_rn(a, b); }
template <class C>
__device__ __forceinline__ Pair<C> product(C a, C b) {
  const C p = rounded_product(a, b);
  return {p, std::fma(a, b, -p)};
}
// The constant high + low, as near as a pair of the type comes.
template <class C>
__device__ __forceinline__ Pair<C> constant(double high, double low) {
  const C rounded = static_cast<C>(high);
  return {rounded, static_cast<C>(high - static_cast<double>(rounded) + low)};
}
template <class C>
__device__ __forceinline__ Pair<C> times(C a, Pair<C> k) {
  const Pair<C> p = product(a, k.high);
  return {p.high, std::fma(a, k.low, p.low)};
}

// ---- sigmoids ----

template <class C>
constexpr C kExpLimit = sizeof(C) == 4 ? C(87) : C(708);  // exp neither overflows nor underflows within +- this

// A sum with kShift is rounded to a whole number, which its bits end with as an exponent is stored.
constexpr float kShift = 12582912 + 127;  // 1.5 * 2^23
__device__ __forceinline__ float two_to(float shifted) { return __uint_as_float(__float_as_uint(shifted) << 23); }
constexpr float kLog2ELow = 1.92596301e-8f;  // of log2(e), what kLog2E lacks
// s/(s + e) for s = 2^n, e = 2^n * exp(-a) and the whole number n from -126 to 64 that is nearest to log2(exp(a)): a subnormal
// result is rounded once, and an infinite e gives 0.
__device__ __forceinline__ float sigmoid(float a) {
  const float shifted = fminf(fmaxf(fmaf(a, kLog2E, kShift), kShift - 126), kShift + 64);
  const float e = fast_exp2(fmaf(a, -kLog2ELow, fmaf(a, -kLog2E, shifted - kShift))), s = two_to(shifted);
  return s * fast_reciprocal(s + e);
}
// From exp(-|a|), so that neither side overflows nor cancels.
__device__ __forceinline__ double sigmoid(double a) {
  const double z = std::exp(-std::fabs(a));
  return (a < 0 ? z : 1.0) / (1.0 + z);
}
template <class C>
__device__ __forceinline__ C sigmoid_slope(C a) {
  const C z = std::exp(-std::fabs(a)), sum = C(1) + z;
  return z / (sum * sum);
}
// Below -1000 an activation's factor of a is 0 to every digit, and its limit is 0: of -infinity the product would be NaN.
template <class C>
__device__ __forceinline__ C at_least_far(C a) {
  return a < C(-1000) ? C(-1000) : a;
}
// a * sigmoid(t) for a t in two parts; sigmoid(t) alone may be subnormal.
template <class C>
__device__ __forceinline__ C times_sigmoid(C a, Pair<C> t) {
  const C size = std::fabs(t.high);
  const C low = size < C(1000) ? (t.high < 0 ? t.low : -t.low) : C(0);  // beyond, it is noise, and may be NaN
  const bool far = t.high < C(8) - kExpLimit<C>;
  const C root = std::exp(far ? C(-0.5) * size : -size), z = root * (C(1) + low);
  if (far) return at_least_far(a) * root * z;
  return a * (t.high < 0 ? z : C(1)) / (C(1) + z);
}
// e * scale = 2^((x + x_low)*(high + low)), x*high <= 0.5: apart, since the product may be subnormal, and is best rounded last.
struct Power {
  float e, scale;
};
__device__ __forceinline__ Power power_of_two(float x, float x_low, float high, float low) {
  const float shifted = fmaxf(fmaf(x, high, kShift), kShift - 126);
  const float fraction = fmaf(x_low, high, fmaf(x, low, fmaf(x, high, -(shifted - kShift))));
  return {fast_exp2(fraction), two_to(shifted)};
}
// times_sigmoid(a, {a, 0}) in fewer steps.
__device__ __forceinline__ float silu(float any) {
  const float a = at_least_far(any);
  const Power z = power_of_two(-fabsf(a), 0.f, kLog2E, kLog2ELow);
  const float upper = a * fast_reciprocal(1.f + z.e * z.scale);
  return a < 0 ? upper * z.e * z.scale : upper;
}
__device__ __forceinline__ double silu(double a) { return times_sigmoid(a, Pair<double>{a, 0}); }

// 2*sqrt(2/pi)*(a + 0.044715*a^3), whose error exp() would multiply by its size: hence in two parts.
template <class C>
__device__ __forceinline__ Pair<C> gelu_tanh_argument(C a) {
  const Pair<C> linear = constant<C>(1.5957691216057308, -9.96930880911092e-17),
                curved = constant<C>(0.07135481627260025, -6.175149918155315e-19);
  const Pair<C> square = product(a, a);
  const Pair<C> cubic = times(square.high, curved);
  const C sum = linear.high + cubic.high, back = sum - linear.high;
  const C error = (linear.high - (sum - back)) + (cubic.high - back);
  const C low = (error + linear.low) + std::fma(square.low, curved.high, cubic.low);
  const Pair<C> t = product(a, sum);
  return {t.high, std::fma(a, low, t.low)};
}
// The normal distribution function times two: erfc(-a/sqrt(2)), mended for the rounding of its argument.
__device__ __forceinline__ double twice_normal_cdf(double a) {
  const Pair<double> x = times(-a, constant<double>(0.7071067811865476, -4.833646656726457e-17));
  const double usual = std::erfc(x.high);
  const bool tail = x.high > 1 && x.high < 30;
  return tail ? usual - usual * ((x.high + x.high) * x.low) : usual;
}
// Of f32 the function itself at -x, for x from 0 to 20, over exp(-x^2/2), which leaves what is smooth: that times (x + 2.55) is a
// polynomial in (x - 2.55)/(x + 2.55), by weighted least squares: 2^-26 relative.
__device__ __forceinline__ float normal_tail_ratio(float x) {
  const float inverse = fast_reciprocal(x + 2.55f), t = (x - 2.55f) * inverse;
  float p = -0.00014457992801908404f;
  p = fmaf(p, t, -0.00035612963256426156f);
  p = fmaf(p, t, 0.0005029924213886261f);
  p = fmaf(p, t, 0.002648303285241127f);
  p = fmaf(p, t, -0.0006414673407562077f);
  p = fmaf(p, t, -0.016879457980394363f);
  p = fmaf(p, t, 0.004574031103402376f);
  p = fmaf(p, t, 0.14222411811351776f);
  p = fmaf(p, t, -0.44232428073883057f);
  p = fmaf(p, t, 0.7093298435211182f);
  return p * inverse;
}
__device__ __forceinline__ Power half_gaussian(Pair<float> square) {  // exp(-square/2)
  return power_of_two(square.high, square.low, -0.5f * kLog2E, -0.5f * kLog2ELow);
}
// a times the distribution function is max(a, 0) less |a| times its tail.
__device__ __forceinline__ float gelu(float a) {
  const float x = fminf(fabsf(a), 20);
  const Power z = half_gaussian(product(x, x));
  return fmaf(-(x * z.scale), normal_tail_ratio(x) * z.e, a < 0 ? -0.f : a);
}
__device__ __forceinline__ double gelu(double a) { return at_least_far(a) * (0.5 * twice_normal_cdf(a)); }

// ---- what is rounded to 16 bits afterwards, see elementwise_half.h ----

// As normal_tail_ratio, with fewer terms: 2^-18 relative up to a = 14.
__device__ __forceinline__ float gelu_half(float a) {
  const float x = fminf(fabsf(a), 20), t = (x - 3.2f) * fast_reciprocal(x + 3.2f);
  float p = 0.008562899194657803f;
  p = fmaf(p, t, 0.01083078607916832f);
  p = fmaf(p, t, -0.08510958403348923f);
  p = fmaf(p, t, 0.1653599590063095f);
  p = fmaf(p, t, -0.1289333552122116f);
  p = fmaf(p, t, -0.1110057532787323f);
  p = fmaf(p, t, 1.2706642150878906f);
  const float tail = __expf(-0.5f * x * x) * p * fast_reciprocal(fmaf(1.41421356f, x, 1.f));
  return 0.5f * at_least_far(a) * (a < 0 ? tail : 2.f - tail);
}
__device__ __forceinline__ float gelu_tanh_half(float a) {
  return at_least_far(a) * sigmoid_half(a * fmaf(0.0713548162726f, a * a, 1.595769121605731f));
}
__device__ __forceinline__ float silu_half(float a) { return at_least_far(a) * sigmoid_half(a); }

// Below 1 a polynomial times a, 2^-19 relative; from there on 1 - 2^-(another one times a), 2^-23 of 1.
__device__ __forceinline__ float erf_half(float a) {
  const float x = fminf(fabsf(a), 4.f);
  const bool far = fabsf(a) >= 1.f;
  const float t = far ? x : a * a;
  float p = far ? 0.0021955473348498344f : 0.0034940673504024744f;
  p = fmaf(p, t, far ? -0.025485092774033546f : -0.025447804480791092f);
  p = fmaf(p, t, far ? 0.14050807058811188f : 0.1123417392373085f);
  p = fmaf(p, t, far ? 0.9255011081695557f : -0.37606415152549744f);
  p = fmaf(p, t, far ? 1.6256965398788452f : 1.128377914428711f) * x;
  return copysignf(far ? 1.f - fast_exp2(-p) : p, a);
}

// ---- a*b + c in f32, which rounds a second time when it is stored: wrong only where the first rounding has made a tie ----

// A tie between two numbers of S, or perhaps, of what is too small for a normal f16.
template <class S>
__device__ __forceinline__ bool may_be_tie(float sum) {
  const uint32_t bits = __float_as_uint(sum);
  return std::is_same_v<S, f16> ? (bits & 0x1fff) == 0x1000 || fabsf(sum) < 0x1p-14f : (bits & 0xffff) == 0x8000;
}
// There it is moved by a bit towards what was lost, unless it ends with a 1. The product is exact in f64.
template <class S>
__device__ __forceinline__ float fma_half(float a, float b, float c) {
  const float sum = fmaf(a, b, c);
  if (!may_be_tie<S>(sum)) return sum;
  const double product = static_cast<double>(a) * static_cast<double>(b), addend = static_cast<double>(c);
  const double near = product + addend, back = near - product, low = (product - (near - back)) + (addend - back);
  const double lost = (near - static_cast<double>(sum)) + low;
  const uint32_t bits = __float_as_uint(sum);
  if (!(lost < 0 || lost > 0) || (bits & 1) != 0) return sum;
  return __uint_as_float((lost < 0) == (sum < 0) ? bits + 1 : bits - 1);
}

// ---- f16 alone, whose numbers end at 65504: multiples of pi are taken off in two steps, the first of which is exact.
// -0 stays -0: every product with it and every sum is -0 too. ----

constexpr float kToInteger = 12582912;  // 1.5 * 2^23: a sum with it is rounded to a whole number, which its bits end with

// y, negated for an odd number.
__device__ __forceinline__ float with_sign_of(float rounded, float y) {
  return __uint_as_float(__float_as_uint(y) ^ __float_as_uint(rounded) << 31);
}
// sin up to pi/2: 2^-19 relative.
__device__ __forceinline__ float short_sine(float a, float halves) {
  const float r = fmaf(halves, -1.509957990e-07f, fmaf(halves, -3.1415925025939941f, a)), square = r * r;
  const float p = fmaf(square, fmaf(square, -0.00018541055033f, 0.0083142397925f), -0.1666585057974f);
  return r * fmaf(square, p, 1.f);
}
__device__ __forceinline__ float sin_f16(float a) {
  const float rounded = fmaf(a, 0.3183098861837907f, kToInteger);
  return with_sign_of(rounded, short_sine(a, rounded - kToInteger));
}
__device__ __forceinline__ float cos_f16(float a) {
  const float rounded = fmaf(a, 0.3183098861837907f, 0.5f) + kToInteger;
  return with_sign_of(rounded, short_sine(a, rounded - kToInteger - 0.5f));
}
// tan up to pi/4: 2^-18 relative; from an odd multiple of pi/2 it is -1/tan.
__device__ __forceinline__ float tan_f16(float a) {
  const float rounded = fmaf(a, 0.6366197723675814f, kToInteger), quarters = rounded - kToInteger;
  const float r = fmaf(quarters, -7.54978995e-08f, fmaf(quarters, -1.5707962512969971f, a)), square = r * r;
  float p = fmaf(square, 0.04316396266222f, 0.04132109507918358f);
  p = fmaf(square, p, 0.13608860969543457f);
  p = fmaf(square, p, 0.3331523537635803f);
  const float y = r * fmaf(square, p, 1.f);
  return (__float_as_uint(rounded) & 1) != 0 ? -fast_reciprocal(y) : y;
}

// ---- pow ----

// a^b from |a|^b, where a may be 0 or negative and neither is NaN or infinite.
template <class C>
__device__ __forceinline__ C signed_power(C a, C b, C y) {
  if (a == 0) y = b == 0 ? C(1) : b > 0 ? C(0) : std::numeric_limits<C>::infinity();
  if (!std::signbit(a)) return y;
  const bool is_whole = std::rint(b) == b, is_odd = is_whole && std::rint(C(0.5) * b) != C(0.5) * b;
  if (!is_whole && a != 0) return std::numeric_limits<C>::quiet_NaN();
  return is_odd ? -y : y;
}

// log2 of a positive normal number in two parts, 2^-30 of it: 2/ln(2) atanh(z) for the mantissa m in [0.7, 1.42), z = (m - 1)/(m +
// 1).
__device__ __forceinline__ Pair<float> log2_pair(uint32_t bits) {
  const int exponent = static_cast<int>(bits - 0x3f3504f3u) >> 23;  // less sqrt(1/2)
  const float m = __uint_as_float(bits - (static_cast<uint32_t>(exponent) << 23)), whole = static_cast<float>(exponent);
  const float above = m - 1.f, sum = m + 1.f, inverse = fast_reciprocal(sum);
  const float z = rounded_product(above, inverse);
  const float z_low = fmaf(-z, above - (sum - 2.f), fmaf(-z, sum, above)) * inverse;  // of what is left; sum is rounded, too
  const float square = rounded_product(z, z), square_low = fmaf(z + z, z_low, fmaf(z, z, -square));
  float p = fmaf(square, 0.11665291339159012f, 0.14275407791137695f);  // atanh(z)/z - 1, by interpolation at Chebyshev nodes
  p = square * fmaf(square, p, 0.2000006139278412f);
  p = fmaf(square, 0.3333333432674408f, fmaf(square, p, square_low * 0.3333333432674408f));
  const Pair<float> line = product(z, 2.885390043258667f);  // 2/ln(2), and what that lacks
  const float line_low = fmaf(z_low, 2.885390043258667f, fmaf(z, 3.851925982253235e-08f, line.low));
  const float rest = fmaf(line.high, p, fmaf(line_low, p, line_low));
  const float rough = whole + line.high, rough_low = (line.high - (rough - whole)) + rest;
  const float high = rough + rough_low;
  return {high, rough_low - (high - rough)};
}
// 2^f for |f| up to 0.5, likewise.
__device__ __forceinline__ float short_exp2(float f) {
  float p = fmaf(f, 0.00015453562082257122f, 0.001339132315479219f);
  p = fmaf(f, p, 0.009618082083761692f);
  p = fmaf(f, p, 0.05550356209278107f);
  p = fmaf(f, p, 0.24022650718688965f);
  return fmaf(f, fmaf(f, p, 0.6931471824645996f), 1.f);
}
// |a|^b = 2^t where that or |a| is no normal number, or a is negative.
__device__ __forceinline__ float unusual_power(float a, float b, float t, float t_low) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const bool is_normal = (__float_as_uint(a) & 0x7fffffffu) - 0x00800000u < 0x7f000000u;
  if (!((is_normal || a == 0) && fabsf(b) < kInfinity)) return std::pow(a, b);
  const float near = fminf(fmaxf(t, -200.f), 200.f), rounded = near + kToInteger;  // beyond, it is 0 or infinity
  const float e = short_exp2((near - (rounded - kToInteger)) + (near == t ? t_low : 0.f));
  const int n = static_cast<int>(__float_as_uint(rounded) - __float_as_uint(kToInteger)), half = n >> 1;
  float y =
      e * __uint_as_float(static_cast<uint32_t>(half + 127) << 23) * __uint_as_float(static_cast<uint32_t>(n - half + 127) << 23);
  return signed_power(a, b, y);
}
// 2^(b log2|a|), in two parts, since their error counts up to 150 times: at most 2 units in the last place, by 3e8 samples over the
// whole range. std::pow has nearly twice the instructions.
__device__ __forceinline__ float power(float a, float b) {
  const Pair<float> log = log2_pair(__float_as_uint(a) & 0x7fffffffu), t = product(log.high, b);
  const float t_low = fmaf(log.low, b, t.low);
  const bool is_usual = __float_as_uint(a) - 0x00800000u < 0x7f000000u && fabsf(t.high) < 125.f;
  if (!is_usual) return unusual_power(a, b, t.high, t_low);
  const float rounded = t.high + kToInteger;
  return __uint_as_float(__float_as_uint(short_exp2((t.high - (rounded - kToInteger)) + t_low)) + (__float_as_uint(rounded) << 23));
}

// f64 has logarithms to a base of its own: log(2) has 20 bits, so that multiples of it are exact, and log(e) is kLogOfE to 2^-69.
constexpr double kToWhole = 6755399441055744;  // 1.5 * 2^52: as kToInteger
constexpr double kLogOf2 = 944940 / 1048576.0, kLogOfE = 1.3001062888504191;
constexpr double kInverseLogOf2 = 1163578 / 1048576.0;  // 2^-22 off

// The mantissas m from 0x3fe69600 on in 64 parts, 1 well inside of one. inverse: the upper half of a c near 1/m, of so few bits
// that z = m*c - 1, at most 2^-6.2, is exact; and |log(m)| >= |log(m*c)|. log: -log2(c) in units of 2^-20. log_low: what -log(c) is
// more than that times log(2).
struct alignas(16) LogEntry {
  uint32_t inverse;
  int32_t log;
  double log_low;
};
__device__ __forceinline__ uint4 log_entry(uint32_t part) {
  // In here, so that what has no pow of f64 is without it.
  static const LogEntry kEntries[64] = {
      {0x3ff68000u, -515745, -3.0280472000959446e-07}, {0x3ff64000u, -498843, 2.938272348101756e-07},
      {0x3ff60000u, -481749, 2.668989171894679e-08},   {0x3ff5e000u, -473129, -1.2272547763584375e-07},
      {0x3ff5a000u, -455741, 2.333986517579943e-07},   {0x3ff56000u, -438150, -1.0196907310598353e-07},
      {0x3ff52000u, -420353, 3.8177146558077923e-07},  {0x3ff4e000u, -402343, -9.641403332427864e-08},
      {0x3ff4c000u, -393257, -2.9801522516010056e-07}, {0x3ff48000u, -374920, -3.8742079724850204e-07},
      {0x3ff44000u, -356359, 3.81044638181726e-07},    {0x3ff42000u, -346991, -4.266029502701795e-07},
      {0x3ff3e000u, -328082, 3.8010314588930253e-07},  {0x3ff3c000u, -318537, -1.7343101297198434e-07},
      {0x3ff38000u, -299266, 7.12924114624934e-08},    {0x3ff36000u, -289537, -3.6472393702686687e-07},
      {0x3ff32000u, -269891, 2.4533005060684607e-07},  {0x3ff30000u, -259971, 1.3721756954980885e-07},
      {0x3ff2e000u, -249985, -4.193465593023556e-07},  {0x3ff2a000u, -229815, 1.2847255350611138e-07},
      {0x3ff28000u, -219628, 1.9567421369046572e-07},  {0x3ff24000u, -199045, -4.096434207025321e-07},
      {0x3ff22000u, -188648, -3.0420945144164517e-07}, {0x3ff20000u, -178179, -2.391866426557924e-07},
      {0x3ff1e000u, -167637, -2.12133337237319e-07},   {0x3ff1a000u, -146330, -1.7093213802584958e-07},
      {0x3ff18000u, -135563, -5.910740028204171e-08},  {0x3ff16000u, -124719, 2.1118294048260564e-07},
      {0x3ff14000u, -113796, -1.209979869231806e-07},  {0x3ff12000u, -102794, -7.685122815666693e-08},
      {0x3ff10000u, -91711, -3.7490123023067234e-07},  {0x3ff0c000u, -69300, 3.962144809753087e-07},
      {0x3ff0a000u, -57968, 1.417282466215692e-07},    {0x3ff08000u, -46551, 3.36805532137706e-07},
      {0x3ff06000u, -35047, 3.8049857674627136e-07},   {0x3ff04000u, -23454, -3.024413063100678e-07},
      {0x3ff02000u, -11773, 3.174838539283393e-07},    {0x3ff00000u, 0, 0.0},
      {0x3fefc000u, 11865, -2.932059850639847e-08},    {0x3fef0000u, 48029, -3.0110585967306486e-07},
      {0x3feec000u, 60278, -7.730515682974281e-08},    {0x3fee4000u, 85078, 5.337978343789358e-08},
      {0x3fedc000u, 110292, -3.7039055315891203e-07},  {0x3fed4000u, 135932, 3.814080518812526e-07},
      {0x3fed0000u, 148918, -2.405913740878431e-07},   {0x3fec8000u, 175228, -4.1208471352474275e-07},
      {0x3fec2000u, 195265, -3.6642279736339646e-07},  {0x3febc000u, 215571, -3.536280693840859e-07},
      {0x3feb6000u, 236153, -9.952778028377292e-08},   {0x3feb0000u, 257019, 7.092899776296681e-08},
      {0x3feaa000u, 278177, 1.0765246932827905e-07},   {0x3fea4000u, 299635, 2.510082401367175e-07},
      {0x3fea0000u, 314112, -2.388232289562658e-07},   {0x3fe9a000u, 336089, 4.0837904889100676e-07},
      {0x3fe94000u, 358391, 2.0304784391913784e-07},   {0x3fe90000u, 373444, -1.272361547076041e-07},
      {0x3fe8c000u, 388648, -2.1249675093684562e-07},  {0x3fe88000u, 404006, 9.021354143520661e-09},
      {0x3fe82000u, 427340, -1.979328983552881e-07},   {0x3fe7e000u, 443098, -9.270036849400462e-09},
      {0x3fe7a000u, 459022, 7.543967483472715e-08},    {0x3fe74000u, 483227, 9.00978074569437e-09},
      {0x3fe70000u, 499581, 4.28304296151371e-07},     {0x3fe6c000u, 516115, -2.3431255188450547e-07}};
  return load_16_bytes(&kEntries[part]);
}

// The logarithm of |a|, a normal number, to 2^-66 of it, in two parts, the second up to 2^-13 of the first: -log(c) and
// z*(log(e) - log(e)/2*z + ...), of which what is written here is in two parts. By least squares, the largest errors weighted;
// as in power_of_base, the highest coefficients have 21 bits, which an instruction has room for.
__device__ __forceinline__ Pair<double> log_pair(double a) {
  const uint32_t bits = static_cast<uint32_t>(__double2hiint(a)) & 0x7fffffffu, above = bits - 0x3fe69600u;
  const uint32_t exponent = above & 0xfff00000u;
  const uint4 entry = log_entry(above >> 14 & 63);
  const double m = __hiloint2double(static_cast<int>(bits - exponent), __double2loint(a));
  const double z = std::fma(m, __hiloint2double(static_cast<int>(entry.x), 0), -1.0);
  const double whole = static_cast<double>(static_cast<int>(exponent + entry.y)) * (0x1p-20 * kLogOf2);  // exact
  const double slope = std::fma(-0.5 * kLogOfE, z, kLogOfE), slope_low = std::fma(-0.5 * kLogOfE, z, kLogOfE - slope);
  const double high = std::fma(z, slope, whole), low = std::fma(z, slope, whole - high);  // exact, as |high| >= |z*slope|
  const double square = z * z;
  double p = std::fma(z, 0.14336717128753662, -0.16254568099975586);
  p = std::fma(z, p, 0.1857297077535148);
  p = std::fma(z, p, -0.21668437902754095);
  p = std::fma(z, p, 0.2600212577557559);
  p = std::fma(z, p, -0.32502657221265585);
  p = std::fma(z, p, 0.4333687629501399);
  p = std::fma(square, p, slope_low);
  return {high, std::fma(z, p, low) + __hiloint2double(static_cast<int>(entry.w), static_cast<int>(entry.z))};
}
// The base to the power of f, |f| up to half of log(2): 2^-57 but for rounding.
__device__ __forceinline__ double power_of_base(double f) {
  double p = std::fma(f, 1.3935093079453509e-09, 2.0026959646202158e-08);
  p = std::fma(f, p, 2.596759713924257e-07);
  p = std::fma(f, p, 3.0384136036647344e-06);
  p = std::fma(f, p, 3.160220907473257e-05);
  p = std::fma(f, p, 0.00028760362195493503);
  p = std::fma(f, p, 0.0022434916561972383);
  p = std::fma(f, p, 0.014583888055635026);
  p = std::fma(f, p, 0.07584241830836261);
  p = std::fma(f, p, 0.29580961501298614);
  p = std::fma(f, p, 0.7691678815616073);
  return std::fma(f, p, 1.0);
}
// As of f32.
__device__ __forceinline__ double unusual_power(double a, double b, Pair<double> t) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const bool is_normal = (static_cast<uint32_t>(__double2hiint(a)) & 0x7fffffffu) - 0x00100000u < 0x7fe00000u;
  if (!((is_normal || a == 0) && std::fabs(b) < kInfinity)) return std::pow(a, b);
  const bool is_near = std::fabs(t.high) < 1200;  // beyond, it is 0 or infinity
  const double sum = is_near ? t.high + t.low : std::copysign(1200.0, t.high);
  const double rounded = std::fma(sum, kInverseLogOf2, kToWhole);
  const double e = is_near ? power_of_base(std::fma(rounded - kToWhole, -kLogOf2, t.high) + t.low) : 1.0;
  const int n = __double2loint(rounded), half = n >> 1;
  return signed_power(a, b, e * __hiloint2double((half + 1023) << 20, 0) * __hiloint2double((n - half + 1023) << 20, 0));
}
// As of f32: at most 0.95 units in the last place, by 2e8 samples over the whole range, so that what is a double comes out exactly.
// std::pow has twice the instructions, 87 of them in f64, not 37.
__device__ __forceinline__ double power(double a, double b) {
  const Pair<double> t = times(b, log_pair(a));
  const double sum = t.high + t.low;
  const bool is_usual = static_cast<uint32_t>(__double2hiint(a)) - 0x00100000u < 0x7fe00000u &&
                        (static_cast<uint32_t>(__double2hiint(sum)) & 0x7fffffffu) < 0x408c8000u;  // 912
  if (!is_usual) return unusual_power(a, b, t);
  const double rounded = std::fma(sum, kInverseLogOf2, kToWhole);
  const double e = power_of_base(std::fma(rounded - kToWhole, -kLogOf2, t.high) + t.low);
  return __hiloint2double(__double2hiint(e) + (__double2loint(rounded) << 20), __double2loint(e));
}

// ---- sinc, by sin(pi a) = +-sin(pi f) for the distance f from a whole number ----

// sin(pi f)/(pi f) for |f| up to 1/2.
__device__ __forceinline__ float sinc_near(float f) {
  const float z = f * f;
  float p = fmaf(z, -0.0022371517317977549f, 0.026117547661084623f);
  p = fmaf(z, p, -0.19074796316317101f);
  p = fmaf(z, p, 0.81174220859983995f);
  p = fmaf(z, p, -1.6449340628501441f);
  return fmaf(z, p, 1.f);
}
__device__ __forceinline__ double sinc_near(double f) {
  const double z = f * f;
  double p = std::fma(z, -7.092119890826358515e-9, 2.530088079571986308e-7);
  p = std::fma(z, p, -6.9758403886621299219e-6);
  p = std::fma(z, p, 0.00014842878710886517455);
  p = std::fma(z, p, -0.0023460810348048213727);
  p = std::fma(z, p, 0.026147847817611457447);
  p = std::fma(z, p, -0.19075182412208257566);
  p = std::fma(z, p, 0.81174242528335361316);
  p = std::fma(z, p, -1.6449340668482264363);
  return std::fma(z, p, 1.0);
}
// (cos(pi f) - sin(pi f)/(pi f))/(4f^2), likewise, of z = f^2.
__device__ __forceinline__ float sinc_slope(float z) {
  float p = fmaf(z, -0.0055897775706411671f, 0.052234949874164185f);
  p = fmaf(z, p, -0.28612221811296763f);
  p = fmaf(z, p, 0.81174224810036191f);
  return fmaf(z, p, -0.82246703249946873f);
}
__device__ __forceinline__ double sinc_slope(double z) {
  double p = std::fma(z, -3.1912578740775304851e-8, 1.0120361768401985708e-6);
  p = std::fma(z, p, -0.000024415443104054369476);
  p = std::fma(z, p, 0.00044528636204078460559);
  p = std::fma(z, p, -0.0058652025871472361468);
  p = std::fma(z, p, 0.052295695635236058941);
  p = std::fma(z, p, -0.2861277361831244996);
  p = std::fma(z, p, 0.81174242528335362621);
  return std::fma(z, p, -0.82246703342411321821);
}
template <class C>
__device__ __forceinline__ bool is_odd(C whole) {
  return std::rint(C(0.5) * whole) != C(0.5) * whole;
}
// size - n for the nearest whole number n, negated for an odd one: exact, of whole numbers and infinity +0.
template <class C>
__device__ __forceinline__ C alternating_rest(C size) {
  const C n = std::rint(size);
  return !(size < C(0x1p60f)) ? C(0) : is_odd(n) ? n - size : size - n;
}
template <class C>
__device__ __forceinline__ C sinc(C a) {
  const C size = std::fabs(a), f = alternating_rest(size), near = sinc_near(f);
  return size <= C(0.5) ? near : f * near / size;
}

// ---- the rest ----

template <class C>
__device__ __forceinline__ C softplus(C a) {
  return (a > 0 ? a : C(0)) + std::log1p(std::exp(-std::fabs(a))) + (a != a ? a : C(0));
}
template <class C>
__device__ __forceinline__ C logaddexp(C a, C b) {
  if (a == b) return a + static_cast<C>(kLn2);  // of two equal infinities the difference is NaN
  return (a > b ? a : b) + std::log1p(std::exp(-std::fabs(a - b)));
}
// Python's: the sign of b.
template <class C>
__device__ __forceinline__ C python_remainder(C a, C b) {
  const C r = std::fmod(a, b);
  if (r == 0) return std::copysign(C(0), b);
  return (r < 0) != (b < 0) ? r + b : r;
}
template <class C>
__device__ __forceinline__ C sign_of(C a) {
  return a > 0 ? C(1) : a < 0 ? C(-1) : a == a ? C(0) : a;
}

}  // namespace narrows::gpu
