// elementwise_math-inl.h -- vectors of f32 or f64: SLEEF's functions for each instruction set, mended where they leave their
// domain; exp, erf and what is built on them inline, which is faster. A few ULP over the whole range. Step 5 of a tensor's path.
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
#include <utility>

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
NARROWS_SLEEF1(erfc_, erfc, u15)
NARROWS_SLEEF2(pow_, pow, u10)
NARROWS_SLEEF2(atan2_, atan2, u10)
NARROWS_SLEEF2(hypot_, hypot, u05)
#undef NARROWS_SLEEF1
#undef NARROWS_SLEEF2

// For f16 and bf16, which keep so much less than f32 that 3.5 units of it do not show.
#define NARROWS_SLEEF_HALF(name)                                             \
  extern "C" RawF NARROWS_SLEEF_F32(name, u35)(RawF) __attribute__((const)); \
  HWY_INLINE F name##_half(F a) { return same_bits<F>(NARROWS_SLEEF_F32(name, u35)(same_bits<RawF>(a))); }
NARROWS_SLEEF_HALF(log)
NARROWS_SLEEF_HALF(sin)
NARROWS_SLEEF_HALF(cos)
NARROWS_SLEEF_HALF(tan)
NARROWS_SLEEF_HALF(asin)
NARROWS_SLEEF_HALF(acos)
NARROWS_SLEEF_HALF(atan)
NARROWS_SLEEF_HALF(tanh)
#undef NARROWS_SLEEF_HALF
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

// Highway without vectors forgets the sign of a zero that it rounds to.
template <class V>
HWY_INLINE V rounded(V a, V whole) {
  return HWY_TARGET == HWY_SCALAR ? hn::CopySign(whole, a) : whole;
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

// ---- exp and erf ----

// The polynomials interpolate at Chebyshev's nodes, fitted with 60 digits; from the constant term on.
template <class T>
struct Fit;
template <>
struct Fit<float> {
  static constexpr int kBits = 23;
  static constexpr double kExpNear = 86;  // |x| at which exp(x) is normal by far
  static constexpr double kLn2High = 0.693359375, kLn2Low = -2.12194440054690583e-4;
  // (exp(x) - 1 - x)/x^2 on +-ln(2)/2; of exp(x) it is within 1e-8.
  static constexpr double kExp[] = {0.5, 0.16666576989698775683, 0.041666554617204574203, 0.0083631790527225773704,
                                    0.0013926183587713494542};
  // (y + kShift) erfc(y) exp(y^2) on 0..9.4, in (y - kShift)/(y + kShift), within 5.1e-8.
  static constexpr double kShift = 2;
  static constexpr double kTail[] = {1.0215827527678612792,    -0.68716093058388715098,    0.27946927526140724938,
                                     -0.036435891865681237525, -0.021481830991706122265,   0.0064404491541952232810,
                                     0.0029775059905789182455, -0.00075875056120095187347, -0.00046290516760754898978};
  static constexpr double kErfcNear = 9.25, kErfOne = 4;  // erf is 1 from here on
  // erf(y)/y on +-1, in y^2, within 1.3e-9.
  static constexpr double kErf[] = {1.1283791658483509460,     -0.37612626666720331023,  0.11283594715160217732,
                                    -0.026854212010626412443,  0.0051890874234339739861, -0.00080168642871658695293,
                                    0.000078758750626854883411};
};
template <>
struct Fit<double> {
  static constexpr int kBits = 52;
  static constexpr double kExpNear = 707;
  static constexpr double kLn2High = 6.93147180369123816490e-01, kLn2Low = 1.90821492927058770002e-10;
  // Within 1.7e-17.
  static constexpr double kExp[] = {0.5,
                                    0.16666666666666667453,
                                    0.041666666666624127873,
                                    0.0083333333333300618325,
                                    0.0013888888917213716901,
                                    0.00019841269863053616878,
                                    0.000024801521295954375131,
                                    2.7557268459997064772e-6,
                                    2.7620088445409748161e-7,
                                    2.5100385495510319078e-8};
  // On 0..26.7, within 4.6e-17.
  static constexpr double kShift = 3.75;
  static constexpr double kTail[] = {
      1.0919229095627890783,      -0.95874157665290954515,   0.73631892522174033243,     -0.49047029120768154550,
      0.27906204903438334195,     -0.13195540117833510051,   0.049118778602909242896,    -0.012535880046534033320,
      0.00098633820997180531504,  0.00079482317347338218704, -0.00034864764952752326069, 0.000010593438928041029217,
      0.000037474689107166638519, -8.9015126179951736742e-6, -3.2963769712462554079e-6,  1.6495245463749851491e-6,
      2.8954430924441952371e-7,   -2.5314966090746730432e-7, -3.4193006399120216345e-8,  3.0584644531456013014e-8,
      5.1959874167461485550e-9,   -1.1321607759997182775e-9};
  static constexpr double kErfcNear = 26.5, kErfOne = 6;
  // Within 8.1e-18.
  static constexpr double kErf[] = {1.1283791670955125665,     -0.37612638903183540438,     0.11283791670945006266,
                                    -0.026866170643237770360,  0.0052239776071164227321,    -0.00085483259753896920806,
                                    0.00012055294904839707917, -0.000014924736907419660338, 1.6447424703317362410e-6,
                                    -1.6208483801871705902e-7, 1.3720064546777685604e-8,    -7.7958988270021422416e-10};
};
template <class V>
using FitOf = Fit<Lane<V>>;

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
  V power[4] = {x};
  for (size_t i = 1; i < 4; ++i) power[i] = hn::Mul(power[i - 1], power[i - 1]);
  return polynomial_part<0, 1>(c, power);
}

// exp(x + low) for |x| up to kExpNear and a tiny low; what is more, and NaN, gives anything. x = n ln(2) + r, where adding and
// taking away 1.5 * 2^kBits rounds to n and leaves it in the low bits.
template <class V>
HWY_INLINE V exp_near(V x, V low) {
  using K = FitOf<V>;
  const hn::RebindToSigned<TagOf<V>> di;
  const V magic = set<V>(K::kBits == 23 ? 0x1.8p23 : 0x1.8p52);
  const V shifted = hn::MulAdd(x, set<V>(1.44269504088896340735992468100), magic), n = hn::Sub(shifted, magic);
  const V r = hn::NegMulAdd(n, set<V>(K::kLn2Low), hn::NegMulAdd(n, set<V>(K::kLn2High), x));
  const V s = hn::Add(r, low);
  const V p = hn::Add(hn::MulAdd(hn::Mul(s, s), polynomial(K::kExp, s), s), set<V>(1));
  return hn::BitCast(TagOf<V>(), hn::Add(hn::BitCast(di, p), hn::ShiftLeft<K::kBits>(hn::BitCast(di, shifted))));
}
template <class V>
HWY_INLINE V exp_(V a) {
  const auto near = hn::Le(hn::Abs(a), set<V>(FitOf<V>::kExpNear));
  const V usual = exp_near(a, set<V>(0));
  return hn::AllTrue(TagOf<V>(), near) ? usual : pick(near, usual, sleef::exp_(a));
}

// A square with its rounding error.
template <class V>
HWY_INLINE Pair<V> square(V a) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_ARCH_ARM_A64
  const V s = hn::Mul(a, a);
  return {s, hn::MulSub(a, a, s)};
#else
  return product(a, a);
#endif
}
// erfc(y) from e = exp(-y^2) and v = 1/(y + kShift): for y from 0 on, and up to where e is normal.
template <class V>
HWY_INLINE V erfc_tail(V e, V v) {
  using K = FitOf<V>;
  return hn::Mul(hn::Mul(e, v), polynomial(K::kTail, hn::NegMulAdd(set<V>(2 * K::kShift), v, set<V>(1))));
}
template <class V>
HWY_INLINE V erf_(V a) {
  using K = FitOf<V>;
  const V size = hn::Abs(a), one = set<V>(1), limit = set<V>(K::kErfOne);
  const V small = hn::Mul(a, polynomial(K::kErf, hn::Mul(a, a)));
  const V y = pick(hn::Gt(size, limit), limit, size);
  const V e = exp_near(hn::Neg(hn::Mul(y, y)), set<V>(0));
  const V large = hn::CopySign(hn::Sub(one, erfc_tail(e, hn::Div(one, hn::Add(y, set<V>(K::kShift))))), a);
  return pick(hn::Gt(size, one), large, small);
}

// ---- functions made of them ----

template <class V>
HWY_INLINE V sigmoid(V a) {  // from exp(-|a|), so that neither side overflows nor cancels
  const V one = set<V>(1), z = exp_(hn::Neg(hn::Abs(a)));
  return hn::Div(pick(hn::Lt(a, set<V>(0)), z, one), hn::Add(one, z));
}
// a*sigmoid(t) for a t in two parts; sigmoid(t) alone may be subnormal.
template <class V>
HWY_INLINE V times_sigmoid(V a, Pair<V> t) {
  const V one = set<V>(1), size = hn::Abs(t.high), below = hn::Neg(size);
  const auto negative = hn::Lt(t.high, set<V>(0));
  const V signed_low = pick(negative, t.low, hn::Neg(t.low));
  const V low = pick(hn::Lt(size, set<V>(1000)), signed_low, set<V>(0));  // beyond, it is noise, and may be NaN
  const V exp_low = hn::Add(one, low), z = hn::Mul(exp_(below), exp_low);
  const V usual = hn::Div(hn::Mul(a, pick(negative, z, one)), hn::Add(one, z));
  const auto far = hn::And(negative, hn::Gt(size, set<V>(kExpLimit<V> - 8)));
  if (!any<V>(far)) return usual;
  const V root = exp_(hn::Mul(below, set<V>(0.5)));
  return pick(far, hn::Mul(hn::Mul(hn::Mul(a, root), root), exp_low), usual);
}
template <class V>
HWY_INLINE V silu(V a) {
  const V one = set<V>(1), zero = set<V>(0), size = hn::Abs(a);
  const auto near = hn::Le(size, set<V>(kExpLimit<V> - 8));
  const V z = exp_near(hn::Neg(size), zero);
  const V usual = hn::Div(hn::Mul(a, pick(hn::Lt(a, zero), z, one)), hn::Add(one, z));
  return hn::AllTrue(TagOf<V>(), near) ? usual : pick(near, usual, times_sigmoid(a, Pair<V>{a, zero}));
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
// The normal distribution function and its density times sqrt(2 pi), exp(-a^2/2), within `near`.
template <class V>
struct Normal {
  V cdf, density;
  decltype(hn::Le(V(), V())) near;
};
template <class V>
HWY_INLINE Normal<V> normal(V a) {
  constexpr double kSqrt2 = 1.41421356237309504880168872421, kShift = FitOf<V>::kShift;
  const V x = hn::Abs(a), minus_half = set<V>(-0.5), one = set<V>(1);
  const Pair<V> s = square(x);
  const V e = exp_near(hn::Mul(s.high, minus_half), hn::Mul(s.low, minus_half));
  const V v = hn::Div(one, hn::MulAdd(x, set<V>(0.5 * kSqrt2), set<V>(kShift)));
  const V upper = erfc_tail(hn::Mul(e, set<V>(0.5)), v);
  V cdf = pick(hn::Lt(a, set<V>(0)), upper, hn::Sub(one, upper));
  if constexpr (sizeof(Lane<V>) == 8) {  // near 0 the tail is some units off, which f32 forgives
    const V slope = hn::Mul(polynomial(FitOf<V>::kErf, hn::Mul(s.high, set<V>(0.5))), set<V>(0.25 * kSqrt2));
    cdf = pick(hn::Lt(x, set<V>(0.75)), hn::MulAdd(a, slope, set<V>(0.5)), cdf);
  }
  return {cdf, e, hn::Le(x, set<V>(FitOf<V>::kErfcNear * kSqrt2))};
}
template <class V>
HWY_INLINE V gelu(V a) {
  const Normal<V> n = normal(a);
  const V usual = hn::Mul(a, n.cdf);
  if (hn::AllTrue(TagOf<V>(), n.near)) return usual;
  return pick(n.near, usual, hn::Mul(hn::Mul(a, set<V>(0.5)), twice_normal_cdf(a)));
}
template <class V>
HWY_INLINE V softplus(V a) {
  const V zero = set<V>(0);
  return hn::Add(pick(hn::Gt(a, zero), a, zero), log1p_(exp_(hn::Neg(hn::Abs(a)))));
}
template <class V>
HWY_INLINE V logaddexp(V a, V b) {
  const V larger = pick(hn::Gt(a, b), a, b);  // of two equal infinities the difference is NaN
  const V rest = log1p_(exp_(hn::Neg(hn::Abs(hn::Sub(a, b)))));
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
