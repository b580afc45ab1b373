// elementwise_math-inl.h -- vectors of f32 or f64: SLEEF's functions for each instruction set, mended where they leave their
// domain, and what is built from them. A few ULP over the whole range. Step 5 of a tensor's path.
#if defined(NARROWS_ELEMENTWISE_MATH_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef NARROWS_ELEMENTWISE_MATH_INL_H
#undef NARROWS_ELEMENTWISE_MATH_INL_H
#else
#define NARROWS_ELEMENTWISE_MATH_INL_H
#endif

#include <hwy/highway.h>

#include <cmath>
#include <cstring>
#include <limits>

// SLEEF's names: function, vector, bound of the error, instruction set. Declared here because sleef.h shows those of the
// compiler's own instruction set only.
#undef NARROWS_SLEEF_F32
#undef NARROWS_SLEEF_F64
#if HWY_TARGET == HWY_AVX3
#define NARROWS_SLEEF_F32(name, bound) Sleef_##name##f16_##bound##avx512f
#define NARROWS_SLEEF_F64(name, bound) Sleef_##name##d8_##bound##avx512f
#elif HWY_TARGET == HWY_AVX2
#define NARROWS_SLEEF_F32(name, bound) Sleef_##name##f8_##bound##avx2
#define NARROWS_SLEEF_F64(name, bound) Sleef_##name##d4_##bound##avx2
#elif HWY_TARGET == HWY_SSE4
#define NARROWS_SLEEF_F32(name, bound) Sleef_##name##f4_##bound##sse4
#define NARROWS_SLEEF_F64(name, bound) Sleef_##name##d2_##bound##sse4
#elif HWY_TARGET == HWY_SCALAR
#define NARROWS_SLEEF_F32(name, bound) Sleef_##name##f1_##bound##purec
#define NARROWS_SLEEF_F64(name, bound) Sleef_##name##d1_##bound##purec
#elif HWY_ARCH_ARM_A64
#define NARROWS_SLEEF_F32(name, bound) Sleef_##name##f4_##bound##advsimd
#define NARROWS_SLEEF_F64(name, bound) Sleef_##name##d2_##bound##advsimd
#elif HWY_ARCH_X86  // the baseline, which Highway may emulate: SSE2
#define NARROWS_SLEEF_F32(name, bound) Sleef_##name##f4_##bound##sse2
#define NARROWS_SLEEF_F64(name, bound) Sleef_##name##d2_##bound##sse2
#else
#error "SLEEF's names for this instruction set are not known here"
#endif

HWY_BEFORE_NAMESPACE();
namespace narrows::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class T>
using Tag = hn::ScalableTag<T>;
template <class T>
using Vector = hn::Vec<Tag<T>>;
template <class V>
using Lane = hn::TFromV<V>;
template <class V>
using TagOf = Tag<Lane<V>>;
template <class V>
HWY_INLINE V set(double x) {
  return hn::Set(TagOf<V>(), static_cast<Lane<V>>(x));
}

namespace sleef {
using F = Vector<float>;
using D = Vector<double>;
// What SLEEF takes: registers, also where Highway's emulated vectors are arrays of as many bytes.
#if HWY_TARGET == HWY_EMU128
using RawF = float __attribute__((vector_size(16)));
using RawD = double __attribute__((vector_size(16)));
#else
using RawF = decltype(F::raw);
using RawD = decltype(D::raw);
#endif
template <class To, class From>
HWY_INLINE To same_bits(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(static_cast<void*>(&to), &from, sizeof(to));  // a NEON vector is a class
  return to;
}
#define NARROWS_SLEEF1(ours, name, bound)                                                             \
  extern "C" RawF NARROWS_SLEEF_F32(name, bound)(RawF) __attribute__((const));                        \
  extern "C" RawD NARROWS_SLEEF_F64(name, bound)(RawD) __attribute__((const));                        \
  HWY_INLINE F ours(F a) { return same_bits<F>(NARROWS_SLEEF_F32(name, bound)(same_bits<RawF>(a))); } \
  HWY_INLINE D ours(D a) { return same_bits<D>(NARROWS_SLEEF_F64(name, bound)(same_bits<RawD>(a))); }
#define NARROWS_SLEEF2(ours, name, bound)                                                                                      \
  extern "C" RawF NARROWS_SLEEF_F32(name, bound)(RawF, RawF) __attribute__((const));                                           \
  extern "C" RawD NARROWS_SLEEF_F64(name, bound)(RawD, RawD) __attribute__((const));                                           \
  HWY_INLINE F ours(F a, F b) { return same_bits<F>(NARROWS_SLEEF_F32(name, bound)(same_bits<RawF>(a), same_bits<RawF>(b))); } \
  HWY_INLINE D ours(D a, D b) { return same_bits<D>(NARROWS_SLEEF_F64(name, bound)(same_bits<RawD>(a), same_bits<RawD>(b))); }
NARROWS_SLEEF1(cbrt_, cbrt, u10)
NARROWS_SLEEF1(exp_, exp, u10)
NARROWS_SLEEF1(exp2_, exp2, u10)
NARROWS_SLEEF1(expm1_, expm1, u10)
NARROWS_SLEEF1(log_, log, u10)
NARROWS_SLEEF1(log2_, log2, u10)
NARROWS_SLEEF1(log10_, log10, u10)
NARROWS_SLEEF1(log1p_, log1p, u10)
NARROWS_SLEEF1(sin_, sin, u10)
NARROWS_SLEEF1(cos_, cos, u10)
NARROWS_SLEEF1(tan_, tan, u10)
NARROWS_SLEEF1(asin_, asin, u10)
NARROWS_SLEEF1(acos_, acos, u10)
NARROWS_SLEEF1(atan_, atan, u10)
NARROWS_SLEEF1(sinh_, sinh, u10)
NARROWS_SLEEF1(cosh_, cosh, u10)
NARROWS_SLEEF1(tanh_, tanh, u10)
NARROWS_SLEEF1(asinh_, asinh, u10)
NARROWS_SLEEF1(acosh_, acosh, u10)
NARROWS_SLEEF1(atanh_, atanh, u10)
NARROWS_SLEEF1(erf_, erf, u10)
NARROWS_SLEEF1(erfc_, erfc, u15)
NARROWS_SLEEF2(pow_, pow, u10)
NARROWS_SLEEF2(atan2_, atan2, u10)
NARROWS_SLEEF2(hypot_, hypot, u05)
#undef NARROWS_SLEEF1
#undef NARROWS_SLEEF2
}  // namespace sleef

// ---- lanes ----

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

// ---- sums and products with their rounding errors ----

template <class V>
struct Pair {
  V high, low;  // |low| is at most half a unit of high
};
template <class V>
HWY_INLINE V upper_half(V a) {  // the leading half of the significand
  const hn::RebindToUnsigned<TagOf<V>> du;
  constexpr auto kMask = sizeof(Lane<V>) == 4 ? 0xFFFFF000u : 0xFFFFFFFFF8000000u;
  return hn::BitCast(TagOf<V>(), hn::And(hn::BitCast(du, a), hn::Set(du, static_cast<hn::TFromD<decltype(du)>>(kMask))));
}
template <class V>
HWY_INLINE Pair<V> product(V a, V b) {
  const V p = hn::Mul(a, b);
  const V a1 = upper_half(a), b1 = upper_half(b), a0 = hn::Sub(a, a1), b0 = hn::Sub(b, b1);
  const V cross = hn::Add(hn::Add(hn::Sub(hn::Mul(a1, b1), p), hn::Mul(a1, b0)), hn::Mul(a0, b1));
  return {p, hn::Add(cross, hn::Mul(a0, b0))};
}
// A constant in two parts: long double has more bits than either.
template <class V>
HWY_INLINE Pair<V> constant(long double x) {
  const auto high = static_cast<Lane<V>>(x);
  return {set<V>(high), set<V>(static_cast<double>(x - high))};
}
template <class V>
HWY_INLINE Pair<V> product(V a, long double b) {
  const Pair<V> k = constant<V>(b), p = product(a, k.high);
  return {p.high, hn::Add(p.low, hn::Mul(a, k.low))};
}

// ---- functions that SLEEF has, whole ----

template <class V>
constexpr double kExpLimit = sizeof(Lane<V>) == 4 ? 87.0 : 708.0;  // exp neither overflows nor underflows within +- this
template <class V>
constexpr double kLarge = sizeof(Lane<V>) == 4 ? 0x1p40 : 0x1p60;  // here 1 + a == a by far, and a*a does not overflow
constexpr double kLn2 = 0.693147180559945309417232121458;

// exp(a)/2 where exp(a) alone may overflow.
template <class V>
HWY_INLINE V half_exp(V a) {
  const V root = sleef::exp_(hn::Mul(a, set<V>(0.5)));
  return hn::Mul(hn::Mul(root, set<V>(0.5)), root);
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
  const V usual = sleef::log1p_(a);
  const auto far = hn::Gt(a, set<V>(kLarge<V>));
  return any<V>(far) ? pick(far, sleef::log_(a), usual) : usual;
}
template <class V>
HWY_INLINE V asinh_(V a) {
  const V size = hn::Abs(a), usual = sleef::asinh_(a);
  const auto far = hn::Gt(size, set<V>(kLarge<V> * 0x1p-20));
  return any<V>(far) ? pick(far, hn::CopySign(hn::Add(sleef::log_(size), set<V>(kLn2)), a), usual) : usual;
}
template <class V>
HWY_INLINE V acosh_(V a) {
  const V usual = sleef::acosh_(a);
  const auto far = hn::Gt(a, set<V>(kLarge<V> * 0x1p-20));
  return any<V>(far) ? pick(far, hn::Add(sleef::log_(a), set<V>(kLn2)), usual) : usual;
}
template <class V>
HWY_INLINE V pow_(V a, V b) {  // SLEEF's overflows for the largest a to the power of 1
  return pick(hn::Eq(b, set<V>(1)), a, sleef::pow_(a, b));
}

// ---- functions made of them ----

template <class V>
HWY_INLINE V sigmoid(V a) {  // from exp(-|a|), so that neither side overflows nor cancels
  const V one = set<V>(1), z = sleef::exp_(hn::Neg(hn::Abs(a)));
  return hn::Div(pick(hn::Lt(a, set<V>(0)), z, one), hn::Add(one, z));
}
// a*sigmoid(t) for a t in two parts; sigmoid(t) alone may be subnormal.
template <class V>
HWY_INLINE V times_sigmoid(V a, Pair<V> t) {
  const V one = set<V>(1), size = hn::Abs(t.high), below = hn::Neg(size);
  const auto negative = hn::Lt(t.high, set<V>(0));
  const V signed_low = pick(negative, t.low, hn::Neg(t.low));
  const V low = pick(hn::Lt(size, set<V>(1000)), signed_low, set<V>(0));  // beyond, it is noise, and may be NaN
  const V exp_low = hn::Add(one, low), z = hn::Mul(sleef::exp_(below), exp_low);
  const V usual = hn::Div(hn::Mul(a, pick(negative, z, one)), hn::Add(one, z));
  const auto far = hn::And(negative, hn::Gt(size, set<V>(kExpLimit<V> - 8)));
  if (!any<V>(far)) return usual;
  const V root = sleef::exp_(hn::Mul(below, set<V>(0.5)));
  return pick(far, hn::Mul(hn::Mul(hn::Mul(a, root), root), exp_low), usual);
}
template <class V>
HWY_INLINE V silu(V a) {
  return times_sigmoid(a, Pair<V>{a, set<V>(0)});
}
// 2*sqrt(2/pi)*(a + 0.044715*a^3), whose error exp() would multiply by its size: hence in two parts.
template <class V>
HWY_INLINE Pair<V> gelu_tanh_argument(V a) {
  constexpr long double kLinear = 1.595769121605730711759784239737527L, kCubic = kLinear * 0.044715L;
  const Pair<V> k = constant<V>(kLinear);
  const Pair<V> square = product(a, a);
  const Pair<V> cubic = product(square.high, kCubic);
  const V sum = hn::Add(k.high, cubic.high), back = hn::Sub(sum, k.high);
  const V error = hn::Add(hn::Sub(k.high, hn::Sub(sum, back)), hn::Sub(cubic.high, back));
  const V low = hn::Add(hn::Add(error, k.low), hn::Add(cubic.low, hn::Mul(square.low, set<V>(static_cast<double>(kCubic)))));
  const Pair<V> t = product(a, sum);
  return {t.high, hn::Add(t.low, hn::Mul(a, low))};
}
template <class V>
HWY_INLINE V gelu_tanh(V a) {  // (1 + tanh(u))/2 == sigmoid(2u)
  return times_sigmoid(a, gelu_tanh_argument(a));
}
// The normal distribution function times two: erfc(-a/sqrt(2)), mended for the rounding of its argument.
template <class V>
HWY_INLINE V twice_normal_cdf(V a) {
  const Pair<V> x = product(hn::Neg(a), 0.707106781186547524400844362105L);
  const V usual = sleef::erfc_(x.high);
  const auto tail = hn::And(hn::Gt(x.high, set<V>(1)), hn::Lt(x.high, set<V>(30)));
  if (!any<V>(tail)) return usual;
  return pick(tail, hn::Sub(usual, hn::Mul(usual, hn::Mul(hn::Add(x.high, x.high), x.low))), usual);
}
template <class V>
HWY_INLINE V gelu(V a) {
  return hn::Mul(hn::Mul(a, set<V>(0.5)), twice_normal_cdf(a));
}
template <class V>
HWY_INLINE V softplus(V a) {
  const V zero = set<V>(0);
  return hn::Add(pick(hn::Gt(a, zero), a, zero), log1p_(sleef::exp_(hn::Neg(hn::Abs(a)))));
}
template <class V>
HWY_INLINE V logaddexp(V a, V b) {
  const V larger = pick(hn::Gt(a, b), a, b);  // of two equal infinities the difference is NaN
  const V rest = log1p_(sleef::exp_(hn::Neg(hn::Abs(hn::Sub(a, b)))));
  return pick(hn::Eq(a, b), hn::Add(a, set<V>(kLn2)), hn::Add(larger, rest));
}
template <class V>
HWY_INLINE V elu(V a, V alpha) {
  return pick(hn::Gt(a, set<V>(0)), a, hn::Mul(alpha, sleef::expm1_(a)));
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
  const Pair<V> p = product(hn::Trunc(hn::Div(x, y)), y);
  const V r = hn::Sub(hn::Sub(x, p.high), p.low);
  return hn::CopySign(pick(hn::Lt(r, set<V>(0)), hn::Add(r, y), r), a);
}
// Python's: the sign of b.
template <class V>
HWY_INLINE V remainder_(V a, V b) {
  const V zero = set<V>(0), r = fmod_(a, b);
  const auto opposite = hn::Lt(hn::CopySign(set<V>(1), hn::Xor(r, b)), zero);
  return pick(hn::Eq(r, zero), hn::CopySign(zero, b), pick(opposite, hn::Add(r, b), r));
}

}  // namespace narrows::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
