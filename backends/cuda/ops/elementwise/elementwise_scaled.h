// SPDX-License-Identifier: Apache-2.0
// elementwise_scaled.h -- numbers with an exponent of their own, in which nothing overflows or underflows, and the products and
// quotients that gradients make of them, rounded to the dtype once. Slower than the plain expressions, hence out of line and only
// for operands whose factors leave the range of normal numbers.
#pragma once

#include "elementwise_math.h"

namespace narrows::gpu {

template <class C>
struct Scaled {  // mantissa * 2^exponent
  C mantissa;
  int exponent;
};
template <class C>
__device__ __forceinline__ Scaled<C> scaled(C x) {  // 0, infinities and NaN are their own mantissas
  Scaled<C> s{x, 0};
  if (std::fabs(x) <= std::numeric_limits<C>::max()) s.mantissa = std::frexp(x, &s.exponent);
  return s;
}
template <class C>
__device__ __forceinline__ Scaled<C> operator*(Scaled<C> a, Scaled<C> b) {
  return {a.mantissa * b.mantissa, a.exponent + b.exponent};
}
template <class C>
__device__ __forceinline__ Scaled<C> operator/(Scaled<C> a, Scaled<C> b) {
  return {a.mantissa / b.mantissa, a.exponent - b.exponent};
}
template <class C>
__device__ __forceinline__ C value(Scaled<C> s) {
  return std::ldexp(s.mantissa, s.exponent);
}

// ---- what leaves the range ----

// 0, subnormal or infinite; not NaN.
template <class C>
__device__ __forceinline__ bool leaves_range(C x) {
  const C size = std::fabs(x);
  return size < std::numeric_limits<C>::min() || size > std::numeric_limits<C>::max();
}
template <class C>
constexpr C kFar = sizeof(C) == 4 ? C(300) : C(2200);  // exp(-kFar) times any three numbers is 0
// exp(-|a|) is no normal number, but its product with others may be one.
template <class C>
__device__ __forceinline__ bool exp_leaves_range(C a) {
  const C size = std::fabs(a);
  return size > kExpLimit<C> && size < kFar<C>;
}

// ---- exp and pow ----

// e^(high + low).
template <class C>
__device__ __forceinline__ Scaled<C> scaled_exp(C high, C low) {
  constexpr C kLimit = 4 * kFar<C>;  // as good as any number beyond
  constexpr C kLog2OfE = static_cast<C>(1.44269504088896340735992468100);
  const Pair<C> ln2 = constant<C>(0.6931471805599453, 2.3190468138462996e-17);
  const bool is_near = std::fabs(high) < kLimit;
  const C near = is_near ? high : high > 0 ? kLimit : -kLimit, n = std::rint(near * kLog2OfE);
  const C rest = std::fma(n, -ln2.low, std::fma(n, -ln2.high, near)) + (is_near ? low : C(0));
  const bool is_infinite = high > std::numeric_limits<C>::max();
  return {is_infinite ? high : std::exp(rest), static_cast<int>(n)};
}

// a^b of finite numbers, a not 0. In f64 for f32, too: two parts of a logarithm for both.
template <class C>
__device__ __forceinline__ Scaled<C> scaled_power(C a, C b) {
  constexpr double kLimit = 18000;  // 2^19838: as in scaled_exp
  const double x = std::fabs(static_cast<double>(a));
  const bool is_subnormal = x < std::numeric_limits<double>::min();
  Pair<double> log = log_pair(is_subnormal ? x * 0x1p64 : x);
  if (is_subnormal) {
    const double sum = log.high - 64 * kLogOf2;
    log = {sum, log.low + ((log.high - sum) - 64 * kLogOf2)};
  }
  const Pair<double> t = times(static_cast<double>(b), log);
  const bool is_near = std::fabs(t.high) < kLimit;
  const double sum = is_near ? t.high + t.low : std::copysign(kLimit, t.high);
  const double rounded = std::fma(sum, kInverseLogOf2, kToWhole);
  const double e = is_near ? power_of_base(std::fma(rounded - kToWhole, -kLogOf2, t.high) + t.low) : 1.0;
  return {signed_power(a, b, static_cast<C>(e)), __double2loint(rounded)};
}

// ---- gradients: g and factors ----

// g * factor * e^(high + low)
template <class C>
__device__ __noinline__ C scaled_exp_gradient(C g, C factor, C high, C low) {
  return value(scaled(g) * scaled(factor) * scaled_exp(high, low));
}
// g * a / (b * c)
template <class C>
__device__ __noinline__ C scaled_quotient_gradient(C g, C a, C b, C c) {
  return value(scaled(g) * scaled(a) / (scaled(b) * scaled(c)));
}
// g * n / r, where r^2 = a^2 + b^2, or with kSquared g * n / r^2. n is a or b.
template <bool kSquared, class C>
__device__ __noinline__ C scaled_distance_gradient(C g, C n, C a, C b) {
  const C size = std::fabs(a) > std::fabs(b) ? std::fabs(a) : std::fabs(b);
  if (kSquared && (size == 0 || size > std::numeric_limits<C>::max())) return g * C(0);
  if (!kSquared && size > std::numeric_limits<C>::max()) {
    const bool both = std::fabs(a) == std::fabs(b);
    return both ? std::numeric_limits<C>::quiet_NaN() : std::fabs(n) == size ? g * std::copysign(C(1), n) : g * C(0);
  }
  int exponent;
  std::frexp(size, &exponent);
  const C x = std::ldexp(a, -exponent), y = std::ldexp(b, -exponent), square = std::fma(x, x, y * y);
  const Scaled<C> divisor = kSquared ? Scaled<C>{square, 2 * exponent} : Scaled<C>{square_root(square), exponent};
  return value(scaled(g) * scaled(n) / divisor);
}
template <class C>
__device__ __forceinline__ bool is_plain(C a, C b) {  // finite, and a is not 0
  constexpr C kMost = std::numeric_limits<C>::max();
  return a != 0 && std::fabs(a) <= kMost && std::fabs(b) <= kMost;
}
template <class C>
__device__ __noinline__ C scaled_pow_gradient_a(C g, C a, C b) {
  if (is_plain(a, b)) return value(scaled(g) * scaled(b) * scaled_power(a, b) / scaled(a));
  const C lower = power(a, b - C(1));
  return g * (lower == 0 ? C(0) : b * lower);
}
template <class C>
__device__ __noinline__ C scaled_pow_gradient_b(C g, C a, C b) {
  if (is_plain(a, b)) return value(scaled(g) * scaled_power(a, b) * scaled(std::log(a)));
  const C y = power(a, b);
  return g * (y == 0 && a > 0 ? C(0) : y * std::log(a));
}

}  // namespace narrows::gpu
