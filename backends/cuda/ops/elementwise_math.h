// elementwise_math.h -- f32 and f64 functions that the vendor's library lacks, a few units in the last place over the whole range.
// Step 5 of a tensor's path.
#pragma once

#include <cmath>
#include <limits>
#include <type_traits>

#include "gpu.h"

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

// From exp(-|a|), so that neither side overflows nor cancels.
template <class C>
__device__ __forceinline__ C sigmoid(C a) {
  const C z = std::exp(-std::fabs(a));
  return (a < 0 ? z : C(1)) / (C(1) + z);
}
template <class C>
__device__ __forceinline__ C sigmoid_slope(C a) {
  const C z = std::exp(-std::fabs(a)), sum = C(1) + z;
  return z / (sum * sum);
}
// a * sigmoid(t) for a t in two parts; sigmoid(t) alone may be subnormal.
template <class C>
__device__ __forceinline__ C times_sigmoid(C a, Pair<C> t) {
  const C size = std::fabs(t.high);
  const C low = size < C(1000) ? (t.high < 0 ? t.low : -t.low) : C(0);  // beyond, it is noise, and may be NaN
  const bool far = t.high < C(8) - kExpLimit<C>;
  const C root = std::exp(far ? C(-0.5) * size : -size), z = root * (C(1) + low);
  if (far) return a * root * z;
  return a * (t.high < 0 ? z : C(1)) / (C(1) + z);
}
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
// The same, a >= 0 and its sign apart: exp(-a^2/2) times what is left, which is smooth; (1 + sqrt(2)*a) times that is a polynomial
// in (a - 3.2)/(a + 3.2), by least squares over Chebyshev nodes up to a = 20: 2^-28 relative.
__device__ __forceinline__ float twice_normal_cdf(float a) {
  const float x = fminf(fabsf(a), 20), t = __fdividef(x - 3.2f, x + 3.2f);
  float p = 0.00017478904919698834f;
  p = fmaf(p, t, 0.00036293311859481037f);
  p = fmaf(p, t, -0.0010817821603268385f);
  p = fmaf(p, t, -0.0027333407197147608f);
  p = fmaf(p, t, 0.007866119965910912f);
  p = fmaf(p, t, 0.012510106898844242f);
  p = fmaf(p, t, -0.08436194807291031f);
  p = fmaf(p, t, 0.16504554450511932f);
  p = fmaf(p, t, -0.12906885147094727f);
  p = fmaf(p, t, -0.11098933964967728f);
  p = fmaf(p, t, 1.270667552947998f);
  p = __fdividef(p, fmaf(1.41421356f, x, 1.f));
  const Pair<float> square = product(x, x);
  const float tail = std::exp(-0.5f * square.high) * p, mended = fmaf(tail, -0.5f * square.low, tail);
  return a != a ? a : a < 0 ? mended : 2.f - mended;
}

// ---- what is rounded to 16 bits afterwards needs fewer digits: an error of 2^-16 does not show ----

__device__ __forceinline__ float sigmoid_half(float a) {
  const float z = __expf(-fabsf(a));
  return __fdividef(a < 0 ? z : 1.f, 1.f + z);
}
// As above, 2^-18 relative up to a = 14.
__device__ __forceinline__ float gelu_half(float a) {
  const float x = fminf(fabsf(a), 20), t = __fdividef(x - 3.2f, x + 3.2f);
  float p = 0.008562899194657803f;
  p = fmaf(p, t, 0.01083078607916832f);
  p = fmaf(p, t, -0.08510958403348923f);
  p = fmaf(p, t, 0.1653599590063095f);
  p = fmaf(p, t, -0.1289333552122116f);
  p = fmaf(p, t, -0.1110057532787323f);
  p = fmaf(p, t, 1.2706642150878906f);
  const float tail = __expf(-0.5f * x * x) * __fdividef(p, fmaf(1.41421356f, x, 1.f));
  return 0.5f * a * (a < 0 ? tail : 2.f - tail);
}
__device__ __forceinline__ float gelu_tanh_half(float a) {
  return a * sigmoid_half(a * fmaf(0.0713548162726f, a * a, 1.595769121605731f));
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
