// SPDX-License-Identifier: Apache-2.0
// elementwise_math-inl.h -- functions of vectors of f32 or f64: SLEEF's (elementwise_sleef-inl.h), mended where they leave their
// domain; exp, log, sin, cos, tanh, erf, pow and what is built on them inline, which is faster, from the tables of
// elementwise_fits-inl.h and elementwise_erf.h. A few ULP over the whole range.
#if defined(NARROWS_ELEMENTWISE_MATH_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef NARROWS_ELEMENTWISE_MATH_INL_H
#undef NARROWS_ELEMENTWISE_MATH_INL_H
#else
#define NARROWS_ELEMENTWISE_MATH_INL_H
#endif

#include <hwy/highway.h>

#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "elementwise_erf.h"
#include "elementwise_fits-inl.h"
#include "elementwise_sleef-inl.h"

HWY_BEFORE_NAMESPACE();
namespace narrows::cpu::HWY_NAMESPACE {

// ---- lanes ----

template <class V>
using Lane = hn::TFromV<V>;
template <class V>
using TagOf = Tag<Lane<V>>;
template <class V>
HWY_INLINE V set(double x) {
  return hn::Set(TagOf<V>(), static_cast<Lane<V>>(x));
}
// a where `mask`, else b.
template <class M, class V>
HWY_INLINE V pick(M mask, V a, V b) {
  return hn::IfThenElse(mask, a, b);
}
template <class V, class M>
HWY_INLINE bool any(M mask) {
  return !hn::AllFalse(TagOf<V>(), mask);
}
// A function of libm, lane by lane, where exactness matters more than speed.
template <class V, class F>
HWY_INLINE V per_lane(V a, V b, F f) {
  constexpr TagOf<V> d;
  HWY_ALIGN Lane<V> x[HWY_LANES(Lane<V>)], y[HWY_LANES(Lane<V>)];
  hn::Store(a, d, x);
  hn::Store(b, d, y);
  for (size_t i = 0; i < hn::Lanes(d); ++i) x[i] = f(x[i], y[i]);
  return hn::Load(d, x);
}

// ---- one instruction or a few ----

template <class V>
HWY_INLINE V sign_(V a) {
  const V zero = set<V>(0);
  const V sign = pick(hn::Gt(a, zero), set<V>(1), pick(hn::Lt(a, zero), set<V>(-1), zero));
  return pick(hn::IsNaN(a), a, sign);
}
// NaN from either side goes through.
template <class V>
HWY_INLINE V maximum_(V a, V b) {
  return pick(hn::Or(hn::Gt(a, b), hn::IsNaN(a)), a, b);
}
template <class V>
HWY_INLINE V minimum_(V a, V b) {
  return pick(hn::Or(hn::Lt(a, b), hn::IsNaN(a)), a, b);
}

// Highway without vectors forgets the sign of a zero that it rounds to.
template <class V>
HWY_INLINE V rounded(V a, V whole) {
  return HWY_TARGET == HWY_SCALAR ? hn::CopySign(whole, a) : whole;
}

// ---- sums and products with their rounding errors ----

template <class V>
struct DoubleWord {  // high + low
  V high, low;       // |low| is at most half a unit of high
};
template <class V>
HWY_INLINE V upper_half(V a) {  // the leading half of the significand
  const hn::RebindToUnsigned<TagOf<V>> du;
  constexpr auto kMask = sizeof(Lane<V>) == 4 ? 0xFFFFF000u : 0xFFFFFFFFF8000000u;
  return hn::BitCast(TagOf<V>(), hn::And(hn::BitCast(du, a), hn::Set(du, static_cast<hn::TFromD<decltype(du)>>(kMask))));
}
template <class V>
HWY_INLINE DoubleWord<V> product(V a, V b) {
  const V p = hn::Mul(a, b);
#if HWY_NATIVE_FMA
  return {p, hn::MulSub(a, b, p)};
#else
  const V a1 = upper_half(a), b1 = upper_half(b), a0 = hn::Sub(a, a1), b0 = hn::Sub(b, b1);
  const V cross = hn::Add(hn::Add(hn::Sub(hn::Mul(a1, b1), p), hn::Mul(a1, b0)), hn::Mul(a0, b1));
  return {p, hn::Add(cross, hn::Mul(a0, b0))};
#endif
}
// A constant in two parts: long double has more bits than either.
template <class V>
HWY_INLINE DoubleWord<V> constant(long double x) {
  const auto high = static_cast<Lane<V>>(x);
  return {set<V>(high), set<V>(static_cast<double>(x - high))};
}
template <class V>
HWY_INLINE DoubleWord<V> product(V a, long double b) {
  const DoubleWord<V> k = constant<V>(b), p = product(a, k.high);
  return {p.high, hn::Add(p.low, hn::Mul(a, k.low))};
}

// ---- functions that SLEEF has, whole ----

template <class V>
constexpr double kExpLimit = sizeof(Lane<V>) == 4 ? 87.0 : 708.0;  // exp neither overflows nor underflows within +- this
template <class V>
constexpr double kLarge = sizeof(Lane<V>) == 4 ? 0x1p40 : 0x1p60;  // here 1 + a == a by far, and a*a does not overflow
template <class V>
constexpr double kItself = sizeof(Lane<V>) == 4 ? 0x1p-30 : 0x1p-60;  // here a*a adds no digit to a
constexpr double kLn2 = 0.693147180559945309417232121458;
// From here on exp(-a) changes no digit of 1 or of a. Functions take it for anything larger, where that gives the same: a power
// that is a subnormal number takes a hundred times as long.
constexpr double kSaturated = 60;

// exp(a)/2 where exp(a) alone may overflow.
template <class V>
HWY_INLINE V half_exp(V a) {
  const V root = sleef::exp_(hn::Mul(a, set<V>(0.5)));
  return hn::Mul(hn::Mul(root, set<V>(0.5)), root);
}
// Near 0 the functions that are a to every digit there: of a subnormal number SLEEF's may lose the sign or the last bit.
template <class V>
HWY_INLINE V or_itself(V a, V size, V usual) {
  return pick(hn::Lt(size, set<V>(kItself<V>)), a, usual);
}
// Past Fit::kSinNear. SLEEF reduces arguments of f64 up to 1e14 by too few digits of pi: near a multiple of pi/2 that is seen.
template <class V>
HWY_INLINE V far_sin(V a) {
  if constexpr (sizeof(Lane<V>) == 4) return sleef::sin_(a);
  return per_lane(a, a, [](Lane<V> x, Lane<V>) { return std::sin(x); });
}
template <class V>
HWY_INLINE V far_cos(V a) {
  if constexpr (sizeof(Lane<V>) == 4) return sleef::cos_(a);
  return per_lane(a, a, [](Lane<V> x, Lane<V>) { return std::cos(x); });
}
template <class S, class V>
HWY_INLINE V tan_(V a) {
  const V size = hn::Abs(a);
  if constexpr (sizeof(S) == 2) return or_itself(a, size, sleef::tan_half(a));
  const V usual = or_itself(a, size, sleef::tan_(a));
  if constexpr (sizeof(S) == 4) return usual;
  const auto near = hn::Le(size, set<V>(Fit<double>::kSinNear));
  if (hn::AllTrue(TagOf<V>(), near)) return usual;
  return pick(near, usual, per_lane(a, a, [](Lane<V> x, Lane<V>) { return std::tan(x); }));
}
template <class V>
HWY_INLINE V sinh_(V a) {
  const V size = hn::Abs(a), usual = sleef::sinh_(a);
  const auto far = hn::Gt(size, set<V>(kExpLimit<V>));
  return any<V>(far) ? pick(far, hn::CopySign(half_exp(size), a), usual) : usual;
}
template <class V>
HWY_INLINE V cosh_(V a) {
  const V size = hn::Abs(a), usual = sleef::cosh_(a);
  const auto far = hn::Gt(size, set<V>(kExpLimit<V>));
  return any<V>(far) ? pick(far, half_exp(size), usual) : usual;
}
template <class V>
HWY_INLINE V log1p_(V a) {
  const auto tiny = hn::Lt(hn::Abs(a), set<V>(kItself<V>));  // whose squares may be subnormal numbers
  const V usual = pick(tiny, a, sleef::log1p_(pick(tiny, set<V>(1), a)));
  const auto far = hn::Gt(a, set<V>(kLarge<V>));
  return any<V>(far) ? pick(far, sleef::log_(a), usual) : usual;
}
template <class V>
HWY_INLINE V asinh_(V a) {
  const V size = hn::Abs(a), usual = or_itself(a, size, sleef::asinh_(a));
  const auto far = hn::Gt(size, set<V>(kLarge<V> * 0x1p-20));
  return any<V>(far) ? pick(far, hn::CopySign(hn::Add(sleef::log_(size), set<V>(kLn2)), a), usual) : usual;
}
template <class V>
HWY_INLINE V acosh_(V a) {
  const V usual = sleef::acosh_(a);
  const auto far = hn::Gt(a, set<V>(kLarge<V> * 0x1p-20));
  return any<V>(far) ? pick(far, hn::Add(sleef::log_(a), set<V>(kLn2)), usual) : usual;
}

// ---- exp, log, sin, cos, tanh, erf and pow ----

// How an element is stored says how exact a function has to be: S, or a lane of V.
template <class S, class V>
using FitOf = Fit<std::conditional_t<std::is_void_v<S>, Lane<V>, S>>;

// The sum of c[First + i*Step] x^i; x squared again and again is in `power`. Halves that do not wait for each other (Estrin): one
// after the other, the steps of a long polynomial leave a core idle.
template <size_t First, size_t Step, size_t N, class V>
HWY_INLINE V polynomial_part(const double (&c)[N], const V* power) {
  constexpr size_t kTerms = (N - First + Step - 1) / Step;
  if constexpr (kTerms == 1) {
    return set<V>(c[First]);
  } else if constexpr (kTerms <= 3) {
    const V last = polynomial_part<First + Step*(kTerms - 1), Step>(c, power);
    const V rest = kTerms == 2 ? last : hn::MulAdd(last, power[0], set<V>(c[First + Step]));
    return hn::MulAdd(rest, power[0], set<V>(c[First]));
  } else {
    const V even = polynomial_part<First, 2 * Step>(c, power + 1), odd = polynomial_part<First + Step, 2 * Step>(c, power + 1);
    return hn::MulAdd(odd, power[0], even);
  }
}
template <size_t N, class V>
HWY_INLINE V polynomial(const double (&c)[N], V x) {
  V power[5] = {x};
  for (size_t i = 1; i < 5; ++i) power[i] = hn::Mul(power[i - 1], power[i - 1]);
  return polynomial_part<0, 1>(c, power);
}

// The terms of c, which begins with x^2, as a polynomial of 2x/Halves.
template <size_t N>
struct Terms {
  double c[N];
};
template <int Halves, size_t N>
constexpr Terms<N> stretched(const double (&c)[N]) {
  Terms<N> terms{};
  double power = Halves * 0.5 * Halves * 0.5;
  for (size_t i = 0; i < N; ++i, power *= Halves * 0.5) terms.c[i] = c[i] * power;
  return terms;
}

// exp(hx) = 2^n (1 + hr + r^2 rest), where hx = n ln(2) + hr, h = Halves/2: adding and taking away 1.5 * 2^kBits rounds to n and
// leaves it in the low bits of `shifted`.
template <class V>
struct Exponential {
  V shifted, r, rest;
};
template <int Halves, class K, class V, class... Low>
HWY_INLINE Exponential<V> reduce_exp(V x, Low... low) {
  constexpr double kFactor = Halves * 0.5, kLn2 = 0.693147180559945309417232121458;
  static constexpr auto kTerms = stretched<Halves>(K::kExp);
  const V magic = set<V>(K::kBits == 23 ? 0x1.8p23 : 0x1.8p52);
  const V shifted = hn::MulAdd(x, set<V>(1.44269504088896340735992468100 * kFactor), magic), n = hn::Sub(shifted, magic);
  V r;
  if constexpr (K::kHalf)
    r = hn::NegMulAdd(n, set<V>(kLn2 / kFactor), x);
  else
    r = hn::NegMulAdd(n, set<V>(K::kLn2Low / kFactor), hn::NegMulAdd(n, set<V>(K::kLn2High / kFactor), x));
  (..., (r = hn::Add(r, low)));
  return {shifted, r, polynomial(kTerms.c, r)};
}
template <class K, class V>
HWY_INLINE V times_power_of_2(V a, V shifted) {
  const hn::RebindToSigned<TagOf<V>> di;
  return hn::BitCast(TagOf<V>(), hn::Add(hn::BitCast(di, a), hn::ShiftLeft<K::kBits>(hn::BitCast(di, shifted))));
}
// exp(h(x + low)), for |hx| up to kExpNear and a tiny low; what is more, and NaN, gives anything.
template <int Halves, class K, class V, class... Low>
HWY_INLINE V exp_near(V x, Low... low) {
  const Exponential<V> e = reduce_exp<Halves, K>(x, low...);
  const V h = set<V>(Halves * 0.5), one = set<V>(1);
  // The second form is for where a product is rounded before it is added: of what is added to 1, less is.
  const V p = HWY_NATIVE_FMA ? hn::MulAdd(e.r, hn::MulAdd(e.r, e.rest, h), one)
                             : hn::Add(hn::MulAdd(hn::Mul(e.r, e.r), e.rest, hn::Mul(e.r, h)), one);
  return times_power_of_2<K>(p, e.shifted);
}
// Past Fit::kExpNear. SLEEF's f64 is infinite from 709.782711 on, where the largest number's logarithm is 709.782712893...
template <class K, class V>
HWY_INLINE V far_exp(V a) {
  const V usual = sleef::exp_(a);
  if constexpr (K::kBits == 23) return usual;
  // By exp(a - ln(2)): a - ln2 is exact there, and ln2 is greater than ln(2) by `rest`.
  const V ln2 = set<V>(0x1.62e42fefa4p-1), rest = set<V>(0x1.8432a1b0e2634p-43), half = exp_near<2, K>(hn::Sub(a, ln2), rest);
  return pick(hn::And(hn::Ge(a, set<V>(709.75)), hn::Lt(a, set<V>(709.8))), hn::Add(half, half), usual);
}
template <class S = void, class V>
HWY_INLINE V exp_(V a) {
  using K = FitOf<S, V>;
  const auto near = hn::Le(hn::Abs(a), set<V>(K::kExpNear));
  const V usual = exp_near<2, K>(a);
  return hn::AllTrue(TagOf<V>(), near) ? usual : pick(near, usual, far_exp<K>(a));
}

// exp(hx) - 1 = 2^n (hr + r^2 rest) + (2^n - 1), in the same range.
template <int Halves, class K, class V>
HWY_INLINE V expm1_near(V x) {
  const V one = set<V>(1);
  const Exponential<V> e = reduce_exp<Halves, K>(x);
  const V power = times_power_of_2<K>(one, e.shifted);
  const V near_0 = hn::MulAdd(hn::Mul(e.r, e.r), e.rest, hn::Mul(e.r, set<V>(Halves * 0.5)));
  return hn::MulAdd(power, near_0, hn::Sub(power, one));
}
// tanh(|a|) = -e/(e + 2), e = exp(-2|a|) - 1.
template <class S = void, class V>
HWY_INLINE V tanh_(V a) {
  using K = FitOf<S, V>;
  const V size = hn::Abs(a), limit = set<V>(K::kTanhOne);
  const V e = expm1_near<-4, K>(pick(hn::Gt(size, limit), limit, size));
  return hn::CopySign(hn::Div(e, hn::Add(e, set<V>(2))), a);
}

// A number = 2^n (1 + f), f from sqrt(1/2) - 1 to sqrt(2) - 1, for one that is `near`: normal and positive.
template <class V>
struct Split {
  V n, f;
  decltype(hn::Lt(V(), V())) near;
};
template <class V>
HWY_INLINE Split<V> split_exponent(V a) {
  using T = Lane<V>;
  using Bits = hwy::SignedFromSize<sizeof(T)>;
  using Limits = std::numeric_limits<T>;
  constexpr TagOf<V> d;
  constexpr hn::RebindToSigned<TagOf<V>> di;
  constexpr int kBits = Fit<T>::kBits;
  constexpr Bits kRoot = std::bit_cast<Bits>(static_cast<T>(0.707106781186547524400844362105L)), kExponent = -(Bits{1} << kBits);
  const auto bits = hn::BitCast(di, a), quotient = hn::Sub(bits, hn::Set(di, kRoot));  // its exponent is n
  const V whole = hn::ConvertTo(d, hn::ShiftRight<kBits>(quotient));
  const V fraction = hn::BitCast(d, hn::Sub(bits, hn::And(quotient, hn::Set(di, kExponent))));
  // In one comparison: sums wrap, and that of the least normal number becomes the least.
  constexpr Bits kNormal = std::bit_cast<Bits>(Limits::min()), kInfinity = std::bit_cast<Bits>(Limits::infinity());
  const auto wrapped = hn::Add(bits, hn::Set(di, std::numeric_limits<Bits>::max() - kNormal + 1));
  const auto near = hn::Lt(wrapped, hn::Set(di, std::numeric_limits<Bits>::min() + (kInfinity - kNormal)));
  return {whole, hn::Sub(fraction, set<V>(1)), hn::RebindMask(d, near)};
}
// log(1 + f) = 2 artanh(s), s = f/(2 + f); as f - s(f - ...), in which the part that is exact is the largest.
template <class S = void, class V>
HWY_INLINE V log_(V a) {
  using K = FitOf<S, V>;
  const Split<V> x = split_exponent(a);
  const V s = hn::Div(x.f, hn::Add(x.f, set<V>(2))), z = hn::Mul(s, s);
  const V part = hn::Mul(s, hn::NegMulAdd(z, polynomial(K::kLog, z), x.f));
  const V usual = hn::MulAdd(x.n, set<V>(K::kLn2High), hn::Sub(x.f, hn::NegMulAdd(x.n, set<V>(K::kLn2Low), part)));
  return hn::AllTrue(TagOf<V>(), x.near) ? usual : pick(x.near, usual, sleef::log_(a));
}

// sin(|a|), or cos(a): |a| = n pi + r, or (n + 1/2) pi + r, by parts of pi (Cody and Waite). The parity of n is a sign.
template <bool Cos, class K, class V>
HWY_INLINE V sin_near(V size) {
  constexpr hn::RebindToUnsigned<TagOf<V>> du;
  const V magic = set<V>(K::kBits == 23 ? 0x1.8p23 : 0x1.8p52), over_pi = set<V>(0.318309886183790671537767526745);
  const V shifted = Cos ? hn::Add(hn::MulAdd(size, over_pi, set<V>(-0.5)), magic) : hn::MulAdd(size, over_pi, magic);
  V n = hn::Sub(shifted, magic);
  if constexpr (Cos) n = hn::Add(n, set<V>(0.5));
  V r = hn::NegMulAdd(n, set<V>(K::kPi[1]), hn::NegMulAdd(n, set<V>(K::kPi[0]), size));
  if constexpr (!K::kHalf) r = hn::NegMulAdd(n, set<V>(K::kPi[2]), r);
  const V z = hn::Mul(r, r), sine = hn::MulAdd(hn::Mul(r, z), polynomial(K::kSin, z), r);
  const V sign = hn::BitCast(TagOf<V>(), hn::ShiftLeft<sizeof(Lane<V>) * 8 - 1>(hn::BitCast(du, shifted)));
  return Cos ? hn::Neg(hn::Xor(sine, sign)) : hn::Xor(sine, sign);
}
template <class S = void, class V>
HWY_INLINE V sin_(V a) {
  using K = FitOf<S, V>;
  const V size = hn::Abs(a), usual = hn::Xor(sin_near<false, K>(size), hn::And(a, hn::SignBit(TagOf<V>())));
  const auto near = hn::Le(size, set<V>(K::kSinNear));
  return hn::AllTrue(TagOf<V>(), near) ? usual : pick(near, usual, far_sin(a));
}
template <class S = void, class V>
HWY_INLINE V cos_(V a) {
  using K = FitOf<S, V>;
  const V size = hn::Abs(a), one = set<V>(1);
  // A sine at pi/2 may be a unit below 1, which near 0 would show.
  const V usual = pick(hn::Lt(size, set<V>(K::kBits == 23 ? 0x1p-12 : 0x1p-27)), one, sin_near<true, K>(size));
  const auto near = hn::Le(size, set<V>(K::kSinNear));
  return hn::AllTrue(TagOf<V>(), near) ? usual : pick(near, usual, far_cos(a));
}

// sin(pi f)/(pi f) for |f| up to 1/2
template <class K, class V>
HWY_INLINE V sinc_near(V f) {
  const V z = hn::Mul(f, f);
  return hn::MulAdd(z, polynomial(K::kSinc, z), set<V>(1));
}
template <class V>
HWY_INLINE auto is_odd(V whole) {
  const V half = hn::Mul(whole, set<V>(0.5));
  return hn::Ne(hn::Round(half), half);
}
// size - n for the nearest whole number n, negated for an odd one: exact, of whole numbers and infinity +0.
template <class V>
HWY_INLINE V alternating_rest(V size) {
  const V n = hn::Round(size), rest = pick(is_odd(n), hn::Sub(n, size), hn::Sub(size, n));
  return hn::IfThenElseZero(hn::Lt(size, set<V>(0x1p60)), rest);
}
// sin(pi a)/(pi a), by sin(pi a) = +-sin(pi f) for the distance f from a whole number.
template <class S = void, class V>
HWY_INLINE V sinc(V a) {
  const V size = hn::Abs(a), f = alternating_rest(size), near = sinc_near<FitOf<S, V>>(f);
  return pick(hn::Le(size, set<V>(0.5)), near, hn::Div(hn::Mul(f, near), size));
}

#if HWY_TARGET != HWY_SCALAR
// The points of kErfTable whose indices are at index[0], index[2], ...: each is one load of two numbers. Gathers took longer.
template <class D>
HWY_INLINE hn::Vec<D> load_points(D d, const int64_t* index) {
  if constexpr (hn::MaxLanes(D()) <= 2) {
    return hn::Load(d, &kErfTable[index[0]].value);
  } else {
    const hn::Half<D> half;
    return hn::Combine(d, load_points(half, index + hn::MaxLanes(half)), load_points(half, index));
  }
}
#endif
// erf(|a|) = erf(r) + slope(r) d (1 + rest), where r is the nearest multiple of 1/128, and d (1 + rest) the integral of
// exp(-2rt) exp(-t^2) for t from 0 to d = |a| - r. With exp(-t^2) = 1 - t^2 + t^4/2 and q = rd, its parts are series in q:
//   d^(2m+1) times the sum over n of (-2q)^n / (n! (n + 2m + 1))
template <class V>
HWY_INLINE V erf_by_table(V a) {
  static constexpr double kFlat[] = {-1, 2.0 / 3, -1.0 / 3, 2.0 / 15, -2.0 / 45},  // of q, q^2, ...
      kSquare[] = {-1.0 / 3, 1.0 / 2, -2.0 / 5, 2.0 / 9}, kFourth[] = {1.0 / 10, -1.0 / 6};
  constexpr TagOf<V> d;
  constexpr hn::RebindToSigned<TagOf<V>> di;
  const V size = hn::Abs(a), limit = set<V>(kErfLast / 128.0), magic = set<V>(0x1.8p45);
  const V y = pick(hn::Gt(size, limit), limit, size);
  const V shifted = hn::Add(y, magic), r = hn::Sub(shifted, magic), x = hn::Sub(y, r);
  HWY_ALIGN int64_t index[HWY_LANES(double)];
  hn::Store(hn::And(hn::BitCast(di, shifted), hn::Set(di, kErfPoints - 1)), di, index);  // of NaN any index, but one of the table's
#if HWY_TARGET == HWY_SCALAR
  const V value = hn::Set(d, kErfTable[index[0]].value), slope = hn::Set(d, kErfTable[index[0]].slope);
#else
  const V even = load_points(d, index), odd = load_points(d, index + 1);
  const V value = hn::InterleaveLower(d, even, odd), slope = hn::InterleaveUpper(d, even, odd);
#endif
  const V q = hn::Mul(r, x), z = hn::Mul(x, x);
  const V of_z = hn::MulAdd(polynomial(kFourth, q), z, polynomial(kSquare, q));
  const V rest = hn::MulAdd(polynomial(kFlat, q), q, hn::Mul(of_z, z)), rise = hn::Mul(slope, x);
  return hn::CopySign(hn::Add(value, hn::MulAdd(rise, rest, rise)), a);
}
// f64 by a table; else erf(|a|) = 1 - exp(w), where w, the logarithm of erfc, is near a polynomial.
template <class S = void, class V>
HWY_INLINE V erf_(V a) {
  using K = FitOf<S, V>;
  if constexpr (K::kBits == 52) {
    return erf_by_table(a);
  } else {
    const V size = hn::Abs(a), limit = set<V>(K::kErfOne), y = pick(hn::Gt(size, limit), limit, size);
    return hn::CopySign(expm1_near<2, K>(hn::NegMulSub(y, polynomial(K::kErf, y), y)), a);
  }
}

// 2^(b log2(a)). The logarithm has to be exact to as many bits more as the power's exponent has: f32 has it in two parts, where
// half precision has bits to spare, and f64 leaves it to SLEEF.
template <class S = void, class V>
HWY_INLINE V pow_(V a, V b) {
  using K = FitOf<S, V>;
  const auto far_ = [](V x, V y) HWY_ATTR {
    const V power = pick(hn::Eq(y, set<V>(1)), x, sleef::pow_(x, y)), inf = set<V>(HUGE_VAL);
    // SLEEF's is infinite a little before the largest number. By the root: its square overflows where it has to.
    const auto over = hn::And(hn::Eq(hn::Abs(power), inf), hn::And(hn::Ne(hn::Abs(x), inf), hn::Ne(x, hn::Zero(TagOf<V>()))));
    if (hn::AllFalse(TagOf<V>(), over)) return power;
    const V root = sleef::pow_(hn::Abs(x), hn::Mul(y, set<V>(0.5)));
    return pick(over, hn::CopySign(hn::Mul(root, root), power), power);
  };
  if constexpr (K::kBits == 52) {
    return far_(a, b);
  } else {
    constexpr double kLog2E = 1.44269504088896340735992468100, kLn2 = 0.693147180559945309417232121458;
    const Split<V> x = split_exponent(a);
    const V two = set<V>(2), magic = set<V>(0x1.8p23), under = hn::Add(x.f, two);
    V log, low = hn::Zero(TagOf<V>());
    if constexpr (K::kHalf) {
      const V s = hn::Div(x.f, under), z = hn::Mul(s, s);
      log = hn::MulAdd(s, hn::MulAdd(z, hn::Mul(set<V>(kLog2E), polynomial(K::kLog, z)), set<V>(2 * kLog2E)), x.n);
    } else {
      const V v = hn::Div(set<V>(1), under), s = hn::Mul(x.f, v), z = hn::Mul(s, s);
      const DoubleWord<V> back = product(s, under);
      const V under_low = hn::Sub(x.f, hn::Sub(under, two));
      const V rest = hn::Sub(hn::Sub(x.f, back.high), hn::MulAdd(s, under_low, back.low));  // f - s(2 + f)
      const DoubleWord<V> c = constant<V>(2.885390081777926814719849362003784L), main = product(s, c.high);
      const V series = hn::Mul(hn::Mul(s, z), hn::Mul(set<V>(kLog2E), polynomial(K::kLog, z)));
      const V main_low = hn::Add(main.low, hn::MulAdd(s, c.low, hn::MulAdd(hn::Mul(rest, v), c.high, series)));
      log = hn::Add(x.n, main.high);
      low = hn::Add(hn::Sub(main.high, hn::Sub(log, x.n)), main_low);
    }
    const DoubleWord<V> p = product(b, log);
    const V whole = K::kHalf ? p.high : hn::MulAdd(b, low, p.high);  // a large b makes much of what is low
    const V shifted = hn::Add(whole, magic);
    V r = hn::Sub(p.high, hn::Sub(shifted, magic));
    if constexpr (!K::kHalf) r = hn::Add(r, hn::MulAdd(b, low, p.low));
    const V t = hn::Mul(r, set<V>(kLn2)), slope = hn::MulAdd(t, polynomial(K::kExp, t), set<V>(1));
    const V usual = times_power_of_2<K>(hn::MulAdd(t, slope, set<V>(1)), shifted);
    const auto near = hn::And(x.near, hn::Le(hn::Abs(whole), set<V>(125)));
    return hn::AllTrue(TagOf<V>(), near) ? usual : pick(near, usual, far_(a, b));
  }
}

// ---- functions made of them ----

template <class S = void, class V>
HWY_INLINE V sigmoid(V a) {  // far from 0 from exp(-|a|), so that neither side overflows nor cancels
  using K = FitOf<S, V>;
  const V one = set<V>(1), size = hn::Abs(a);
  const auto near = hn::Le(size, set<V>(K::kExpNear));
  const V usual = hn::Div(one, hn::Add(one, exp_near<-2, K>(a)));
  if (hn::AllTrue(TagOf<V>(), near)) return usual;
  const V saturated = set<V>(kSaturated), z = exp_(hn::Neg(pick(hn::Gt(a, saturated), saturated, size)));
  return pick(near, usual, hn::Div(pick(hn::Lt(a, set<V>(0)), z, one), hn::Add(one, z)));
}
// Below -1000 an activation's factor of a is 0 to every digit, and its limit is 0: of -infinity the product would be NaN.
template <class V>
HWY_INLINE V at_least_far(V a) {
  const V limit = set<V>(-1000);
  return pick(hn::Lt(a, limit), limit, a);
}
// a*sigmoid(t) for a t in two parts; sigmoid(t) alone may be subnormal.
template <class V>
HWY_INLINE V times_sigmoid(V a, DoubleWord<V> t) {
  const V one = set<V>(1), size = hn::Abs(t.high), saturated = set<V>(kSaturated);
  const V below = hn::Neg(pick(hn::Gt(t.high, saturated), saturated, size));
  const auto negative = hn::Lt(t.high, set<V>(0));
  const V signed_low = pick(negative, t.low, hn::Neg(t.low));
  const V low = pick(hn::Lt(size, set<V>(1000)), signed_low, set<V>(0));  // beyond, it is noise, and may be NaN
  const V exp_low = hn::Add(one, low), z = hn::Mul(exp_(below), exp_low);
  const V usual = hn::Div(hn::Mul(a, pick(negative, z, one)), hn::Add(one, z));
  const auto far = hn::And(negative, hn::Gt(size, set<V>(kExpLimit<V> - 8)));
  if (!any<V>(far)) return usual;
  const V root = exp_(hn::Mul(below, set<V>(0.5)));
  return pick(far, hn::Mul(hn::Mul(hn::Mul(at_least_far(a), root), root), exp_low), usual);
}
template <class V>
HWY_INLINE V silu(V a) {
  const V one = set<V>(1), zero = set<V>(0), size = hn::Abs(a);
  const auto near = hn::Le(size, set<V>(kExpLimit<V> - 8));
  const V z = exp_near<-2, FitOf<void, V>>(size);
  const V usual = hn::Div(hn::Mul(a, pick(hn::Lt(a, zero), z, one)), hn::Add(one, z));
  return hn::AllTrue(TagOf<V>(), near) ? usual : pick(near, usual, times_sigmoid(a, DoubleWord<V>{a, zero}));
}
// 2*sqrt(2/pi)*(a + 0.044715*a^3), whose error exp() would multiply by its size: hence in two parts.
template <class V>
HWY_INLINE DoubleWord<V> gelu_tanh_argument(V a) {
  constexpr long double kLinear = 1.595769121605730711759784239737527L, kCubic = kLinear * 0.044715L;
  const DoubleWord<V> k = constant<V>(kLinear);
  const DoubleWord<V> square = product(a, a);
  const DoubleWord<V> cubic = product(square.high, kCubic);
  const V sum = hn::Add(k.high, cubic.high), back = hn::Sub(sum, k.high);
  const V error = hn::Add(hn::Sub(k.high, hn::Sub(sum, back)), hn::Sub(cubic.high, back));
  const V low = hn::Add(hn::Add(error, k.low), hn::Add(cubic.low, hn::Mul(square.low, set<V>(static_cast<double>(kCubic)))));
  const DoubleWord<V> t = product(a, sum);
  return {t.high, hn::Add(t.low, hn::Mul(a, low))};
}
template <class V>
HWY_INLINE V gelu_tanh(V a) {  // (1 + tanh(u))/2 == sigmoid(2u)
  return times_sigmoid(a, gelu_tanh_argument(a));
}
// The normal distribution function times two: erfc(-a/sqrt(2)), mended for the rounding of its argument.
template <class V>
HWY_INLINE V twice_normal_cdf(V a) {
  const DoubleWord<V> x = product(hn::Neg(a), 0.707106781186547524400844362105L);
  const V usual = sleef::erfc_(x.high);
  const auto tail = hn::And(hn::Gt(x.high, set<V>(1)), hn::Lt(x.high, set<V>(30)));
  if (!any<V>(tail)) return usual;
  return pick(tail, hn::Sub(usual, hn::Mul(usual, hn::Mul(hn::Add(x.high, x.high), x.low))), usual);
}
constexpr double kSqrt2 = 1.41421356237309504880168872421;
template <class K>
constexpr double kNormalNear = K::kErfcNear * kSqrt2;
// The normal distribution's tail beyond |a|, erfc(|a|/sqrt(2))/2, and its density times sqrt(2 pi), exp(-a^2/2), within `near`.
template <class V>
struct Normal {
  V tail, density;
  decltype(hn::Le(V(), V())) near;
};
template <class S = void, class V>
HWY_INLINE Normal<V> normal(V a) {
  using K = FitOf<S, V>;
  const V x = hn::Abs(a);
  const DoubleWord<V> s = product(a, a);
  const V e = K::kHalf ? exp_near<-1, K>(s.high) : exp_near<-1, K>(s.high, s.low);
  const V w = hn::Div(set<V>(0.5), hn::MulAdd(x, set<V>(0.5 * kSqrt2), set<V>(K::kShift)));
  V tail = hn::Mul(hn::Mul(e, w), polynomial(K::kTail, hn::NegMulAdd(set<V>(4 * K::kShift), w, set<V>(1))));
  if constexpr (K::kBits == 52 || !(HWY_NATIVE_FMA || K::kHalf)) {  // near 0 it is some units off, which f32 mostly forgives
    const V slope = hn::Mul(polynomial(K::kErfSmall, hn::Mul(s.high, set<V>(0.5))), set<V>(0.25 * kSqrt2));
    tail = pick(hn::Lt(x, set<V>(0.75)), hn::NegMulAdd(x, slope, set<V>(0.5)), tail);
  }
  return {tail, e, hn::Le(x, set<V>(kNormalNear<K>))};
}
template <class S = void, class V>
HWY_INLINE V gelu(V a) {  // a itself where it is positive, less |a| times the tail
  const V size = hn::Abs(a);
  const auto near = hn::Le(size, set<V>(kNormalNear<FitOf<S, V>>));
  const bool all_near = hn::AllTrue(TagOf<V>(), near);
  const Normal<V> n = normal<S>(all_near ? a : pick(near, a, set<V>(1)));
  const V usual = hn::NegMulAdd(size, n.tail, hn::IfThenZeroElse(hn::Lt(a, set<V>(0)), a));
  if (all_near) return usual;
  // Far off it is a or 0, whose sign is that of a.
  const V limit = set<V>(sizeof(Lane<V>) == 4 ? 15 : 40);
  const auto known = hn::Or(near, hn::Gt(size, limit));
  const V found = pick(near, usual, pick(hn::Gt(a, limit), a, hn::And(a, hn::SignBit(TagOf<V>()))));
  if (hn::AllTrue(TagOf<V>(), known)) return found;
  return pick(known, found, hn::Mul(hn::Mul(at_least_far(a), set<V>(0.5)), twice_normal_cdf(a)));
}
template <class V>
HWY_INLINE V softplus(V a) {
  const V zero = set<V>(0), saturated = set<V>(kSaturated), size = pick(hn::Gt(a, saturated), saturated, hn::Abs(a));
  return hn::Add(pick(hn::Gt(a, zero), a, zero), log1p_(exp_(hn::Neg(size))));
}
template <class V>
HWY_INLINE V logaddexp(V a, V b) {
  const V larger = pick(hn::Gt(a, b), a, b);  // of two equal infinities the difference is NaN
  const V rest = log1p_(exp_(hn::Neg(hn::Abs(hn::Sub(a, b)))));
  return pick(hn::Eq(a, b), hn::Add(a, set<V>(kLn2)), hn::Add(larger, rest));
}
// Far below 0 it is -1.
template <class V>
HWY_INLINE V expm1_(V a) {
  const V saturated = set<V>(-kSaturated);
  return sleef::expm1_(pick(hn::Lt(a, saturated), saturated, a));
}
template <class V>
HWY_INLINE V elu(V a, V alpha) {
  const V zero = set<V>(0);
  const auto positive = hn::Gt(a, zero);
  return pick(positive, a, hn::Mul(alpha, expm1_(pick(positive, zero, a))));
}

// C's fmod, which is exact. Where the quotient has few bits and nothing over- or underflows, by one division and an exact product.
template <class V>
HWY_INLINE V fmod_(V a, V b) {
  constexpr double kFew = 0x1p20, kMost = sizeof(Lane<V>) == 4 ? 0x1p100 : 0x1p900,
                   kLeast = sizeof(Lane<V>) == 4 ? 0x1p-60 : 0x1p-900;
  const V x = hn::Abs(a), y = hn::Abs(b);
  const auto quotient_fits = hn::Lt(x, hn::Mul(y, set<V>(kFew)));
  const auto in_range = hn::And(hn::Lt(y, set<V>(kMost)), hn::Gt(y, set<V>(kLeast)));
  if (!hn::AllTrue(TagOf<V>(), hn::And(quotient_fits, in_range)))
    return per_lane(a, b, [](Lane<V> m, Lane<V> n) { return std::fmod(m, n); });
  const DoubleWord<V> p = product(hn::Trunc(hn::Div(x, y)), y);
  const V r = hn::Sub(hn::Sub(x, p.high), p.low);
  return hn::CopySign(pick(hn::Lt(r, set<V>(0)), hn::Add(r, y), r), a);
}
template <class V>
HWY_INLINE auto signs_differ(V a, V b) {
  return hn::Lt(hn::CopySign(set<V>(1), hn::Xor(a, b)), set<V>(0));
}
// Python's: the sign of b.
template <class V>
HWY_INLINE V remainder_(V a, V b) {
  const V zero = set<V>(0), r = fmod_(a, b);
  return pick(hn::Eq(r, zero), hn::CopySign(zero, b), pick(signs_differ(r, b), hn::Add(r, b), r));
}

}  // namespace narrows::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
