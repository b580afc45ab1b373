// SPDX-License-Identifier: Apache-2.0
// elementwise_grad-inl.h -- the kernels of elementwise_backward for one floating-point type: grad_out times the derivative by one
// operand, over the whole range of exponents and at special values as docs/ops.md says.
#if defined(NARROWS_ELEMENTWISE_GRAD_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef NARROWS_ELEMENTWISE_GRAD_INL_H
#undef NARROWS_ELEMENTWISE_GRAD_INL_H
#else
#define NARROWS_ELEMENTWISE_GRAD_INL_H
#endif

#include <string_view>

#include "elementwise_exact.h"
#include "elementwise_map-inl.h"
#include "elementwise_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace narrows::cpu::HWY_NAMESPACE {

// ---- factors ----

// The derivative by an operand, and the lanes where it is good: grad_out times it, rounded, is the gradient. Where a derivative has
// left the normal numbers, its product with grad_out may still be one.
template <class V>
using MaskOf = decltype(hn::Lt(V(), V()));
template <class V>
struct Factor {
  V value;
  MaskOf<V> good;
};

template <class V>
HWY_INLINE MaskOf<V> is_normal(V a) {
  using Limits = std::numeric_limits<Lane<V>>;
  const V size = hn::Abs(a);
  return hn::And(hn::Ge(size, set<V>(Limits::min())), hn::Le(size, set<V>(Limits::max())));
}
template <class V>
HWY_INLINE MaskOf<V> is_finite(V a) {
  return hn::Le(hn::Abs(a), set<V>(std::numeric_limits<Lane<V>>::max()));
}
template <class V>
HWY_INLINE MaskOf<V> is_normal(V a, V b) {
  const V x = hn::Abs(a), y = hn::Abs(b);
  using Limits = std::numeric_limits<Lane<V>>;
  return hn::And(hn::Ge(hn::Min(x, y), set<V>(Limits::min())), hn::Le(hn::Max(x, y), set<V>(Limits::max())));
}
template <class V>
HWY_INLINE MaskOf<V> is_within(V a, double limit) {
  return hn::Le(hn::Abs(a), set<V>(limit));
}

// From these sizes on exp(-|a|), the factor of gelu and of gelu_tanh below 0, and exp(-a^2) times any number are 0.
template <class V>
constexpr double kExpEnd = sizeof(Lane<V>) == 4 ? 200.0 : 1500.0;
template <class V>
constexpr double kGeluEnd = sizeof(Lane<V>) == 4 ? 20.0 : 55.0;
template <class V>
constexpr double kErfEnd = sizeof(Lane<V>) == 4 ? 14.5 : 39.0;
template <class V>
HWY_INLINE MaskOf<V> is_saturated(V a) {
  return hn::Ge(hn::Abs(a), set<V>(kExpEnd<V>));
}
template <class V>
HWY_INLINE MaskOf<V> is_either_nan(V a, V b) {
  return hn::Or(hn::IsNaN(a), hn::IsNaN(b));
}
// Not among the negative numbers down to `end`, where a factor like exp(a) has to be computed one by one.
template <class V>
HWY_INLINE MaskOf<V> is_step(V a, double end) {
  return hn::Not(hn::And(hn::Lt(a, set<V>(0)), is_within(a, end)));
}
// What saturates to 0 below and to 1 above: its limit there. NaN stays.
template <class V>
HWY_INLINE V step(V a) {
  return pick(hn::IsNaN(a), a, pick(hn::Gt(a, set<V>(0)), set<V>(1), set<V>(0)));
}

// sigmoid'(a), from exp(-|a|): no cancellation.
template <class V>
HWY_INLINE Factor<V> sigmoid_slope(V a, double scale) {
  using K = FitOf<void, V>;
  const V size = hn::Abs(a), z = exp_near<-2, K>(size), sum = hn::Add(set<V>(1), z);
  return {hn::Div(hn::Mul(set<V>(scale), z), hn::Mul(sum, sum)), hn::Le(size, set<V>(K::kExpNear))};
}
template <class V>
HWY_INLINE Factor<V> exp_slope(V a) {
  using K = FitOf<void, V>;
  return {exp_near<2, K>(a), is_within(a, K::kExpNear)};
}
template <class V>
HWY_INLINE Factor<V> softplus_slope(V a) {
  using K = FitOf<void, V>;
  return {hn::Div(set<V>(1), hn::Add(set<V>(1), exp_near<-2, K>(a))), is_within(a, K::kExpNear)};
}
template <class V>
HWY_INLINE V sqrt_of_product(V a, V b) {  // which itself may overflow
  return hn::Mul(hn::Sqrt(a), hn::Sqrt(b));
}
template <class V>
HWY_INLINE V acosh_divisor(V a) {
  const V one = set<V>(1), size = hn::Abs(a);
  const V root = sqrt_of_product(hn::Abs(hn::Sub(size, one)), hn::Add(size, one));
  const V divisor = pick(hn::Gt(size, set<V>(kLarge<V>)), size, root);  // the root of the largest number squared is beyond it
  return pick(hn::Lt(size, one), set<V>(std::numeric_limits<double>::quiet_NaN()), divisor);
}
template <class V>
HWY_INLINE V atan_gradient(V g, V a) {
  const auto near = is_within(a, kLarge<V> * 0x1p-20);
  const V usual = hn::Div(g, hn::MulAdd(a, a, set<V>(1)));
  return hn::AllTrue(TagOf<V>(), near) ? usual : pick(near, usual, hn::Div(hn::Div(g, a), a));
}
// g/first/second. A first quotient that is subnormal has lost digits, which the second one may bring back: there g is scaled.
template <class V>
HWY_INLINE V over_both(V g, V first, V second) {
  constexpr double kScale = sizeof(Lane<V>) == 4 ? 0x1p64 : 0x1p512;
  const V once = hn::Div(g, first), usual = hn::Div(once, second);
  const auto is_short = hn::And(hn::Lt(hn::Abs(once), set<V>(std::numeric_limits<Lane<V>>::min())), hn::Ne(g, set<V>(0)));
  if (HWY_LIKELY(hn::AllFalse(TagOf<V>(), is_short))) return usual;
  return pick(is_short, hn::Mul(hn::Div(hn::Div(hn::Mul(g, set<V>(kScale)), first), second), set<V>(1 / kScale)), usual);
}
// Over a first: a times the constant is inexact where it is subnormal. The quotient may overflow where the gradient does not.
template <class V>
HWY_INLINE V log10_gradient(V g, V a) {
  constexpr double kOverLn10 = 0.434294481903251827651128918917;
  const V quotient = hn::Div(g, a), usual = hn::Mul(quotient, set<V>(kOverLn10));
  const auto fits = is_finite(quotient);
  if (HWY_LIKELY(hn::AllTrue(TagOf<V>(), fits))) return usual;
  return pick(fits, usual, hn::Mul(hn::Div(hn::Mul(g, set<V>(0.25)), a), set<V>(4 * kOverLn10)));
}
// g (cos(pi a) - sinc(a))/a: near 0 a polynomial times a; else by the distances f from a whole number and 1/2 - |f| from half of an
// odd one, each exact where it is small. The powers of two keep g times what comes first in the range.
template <class V>
HWY_INLINE V sinc_gradient(V g, V a) {
  using K = FitOf<void, V>;
  const V half = set<V>(0.5), size = hn::Abs(a), f = alternating_rest(size), rest = hn::Sub(half, hn::Abs(f));
  const V near = hn::Mul(hn::Mul(g, polynomial(K::kSincSlope, hn::Mul(f, f))), hn::Mul(a, set<V>(4)));
  const V cosine = hn::Mul(hn::Mul(rest, sinc_near<K>(rest)), set<V>(1.57079632679489661923132169164));
  const V sine = hn::Div(hn::Mul(hn::Mul(f, sinc_near<K>(f)), half), size);
  const V change = hn::Sub(pick(is_odd(hn::Round(size)), hn::Neg(cosine), cosine), sine);
  return pick(hn::Le(size, half), near, hn::Div(hn::Mul(g, change), hn::Mul(a, half)));
}
// exp(-a^2), of the square in two parts: exp multiplies its rounding error by the square.
template <class V>
HWY_INLINE Factor<V> erf_slope(V a, double scale) {
  using K = FitOf<void, V>;
  const DoubleWord<V> s = product(a, a);
  return {hn::Mul(set<V>(scale), exp_near<-2, K>(s.high, s.low)), hn::Le(s.high, set<V>(K::kExpNear))};
}
template <class V>
HWY_INLINE Factor<V> gelu_slope(V a) {
  const V weight = hn::Mul(a, set<V>(0.398942280401432677939946059934));  // a/sqrt(2 pi)
  const Normal<V> n = normal(a);
  const V cdf = pick(hn::Lt(a, set<V>(0)), n.tail, hn::Sub(set<V>(1), n.tail));
  return {hn::MulAdd(weight, n.density, cdf), n.near};
}
// The derivative of a*sigmoid(t): with z = exp(-|t|), (s + a z t'/(1 + z))/(1 + z), s = 1 or z.
template <class V>
HWY_INLINE V times_sigmoid_slope(V a, V t, V t_slope, V z) {
  const V one = set<V>(1), sum = hn::Add(one, z), inverse = hn::Div(one, sum);
  const V s = pick(hn::Lt(t, set<V>(0)), z, one);
  return hn::Mul(hn::MulAdd(hn::Mul(a, t_slope), hn::Mul(z, inverse), s), inverse);
}
template <class V>
HWY_INLINE Factor<V> gelu_tanh_slope(V a) {
  using K = FitOf<void, V>;
  constexpr double kLinear = 1.59576912160573071, kCubic = 3 * kLinear * 0.044715;
  const DoubleWord<V> t = gelu_tanh_argument(a);
  const V slope = hn::MulAdd(hn::Mul(a, a), set<V>(kCubic), set<V>(kLinear));
  const V size = hn::Abs(t.high), low = hn::Xor(t.low, hn::And(t.high, hn::SignBit(TagOf<V>())));
  return {times_sigmoid_slope(a, t.high, slope, exp_near<-2, K>(size, low)), hn::Le(size, set<V>(K::kExpNear))};
}
template <class V>
HWY_INLINE Factor<V> silu_slope(V a) {
  using K = FitOf<void, V>;
  const V size = hn::Abs(a);
  return {times_sigmoid_slope(a, a, set<V>(1), exp_near<-2, K>(size)), hn::Le(size, set<V>(K::kExpNear))};
}
template <class V>
HWY_INLINE Factor<V> elu_slope(V a, V alpha) {
  using K = FitOf<void, V>;
  const V value = pick(hn::Le(a, set<V>(0)), hn::Mul(alpha, exp_near<2, K>(a)), set<V>(1));
  return {value, hn::And(hn::Ge(a, set<V>(-K::kExpNear)), is_normal(value))};
}
template <class V>
HWY_INLINE Factor<V> div_slope(V a, V b) {
  const V once = hn::Neg(hn::Div(a, b)), value = hn::Div(once, b);
  return {value, is_normal(once, value)};
}
// b a^(b-1) where b - 1 is exact, else b a^b/a: the power would multiply what rounding took by the logarithm.
template <class V>
HWY_INLINE Factor<V> pow_slope_a(V a, V b) {
  const V one = set<V>(1), less = hn::Sub(b, one);
  const auto exact = hn::And(hn::Eq(hn::Sub(b, less), one), hn::Eq(hn::Add(less, one), b));
  V power = pow_(a, pick(exact, less, b));
  if (!hn::AllTrue(TagOf<V>(), exact)) {
    const auto fits = hn::Or(exact, is_normal(power));
    power = hn::IfThenElseZero(fits, pick(exact, power, hn::Div(power, a)));
  }
  const V value = hn::Mul(b, power);
  return {value, is_normal(power, value)};
}
// Where it is 0 at operands that are common, or one operand is NaN.
template <class V>
HWY_INLINE MaskOf<V> is_power_0(V a, V b) {
  return hn::Or(hn::Eq(b, set<V>(0)), hn::And(hn::Eq(a, set<V>(0)), hn::Gt(b, set<V>(1))));
}
template <class V>
HWY_INLINE Factor<V> pow_slope_b(V a, V b) {
  const V power = pow_(a, b), value = hn::Mul(power, log_(a));
  return {value, is_normal(power, value)};
}
template <class V>
HWY_INLINE Factor<V> over_square(V mine, V other) {
  const V distance = sleef::hypot_(mine, other), once = hn::Div(mine, distance), value = hn::Div(once, distance);
  return {value, hn::And(is_normal(once, value), is_normal(distance))};
}
template <class V>
HWY_INLINE Factor<V> minus(const Factor<V>& f) {
  return {hn::Neg(f.value), f.good};
}
template <class V>
HWY_INLINE Factor<V> over_distance(V mine, V other) {
  const V distance = sleef::hypot_(mine, other), value = hn::Div(mine, distance);
  return {value, is_normal(value, distance)};
}
// sigmoid(mine - other). exp multiplies the difference's rounding error by the difference: where that is large, with the error.
template <class V>
HWY_INLINE Factor<V> logaddexp_slope(V mine, V other) {
  using K = FitOf<void, V>;
  const V t = hn::Sub(other, mine), one = set<V>(1), size = hn::Abs(t);
  const auto is_far = hn::Gt(size, set<V>(8));
  V power = exp_near<2, K>(t);
  if (any<V>(is_far)) {
    const V back = hn::Sub(t, other), low = hn::Sub(hn::Sub(other, hn::Sub(t, back)), hn::Add(mine, back));
    power = pick(is_far, hn::MulAdd(power, low, power), power);
  }
  return {hn::Div(one, hn::Add(one, power)), hn::Le(size, set<V>(K::kExpNear))};
}
// a/b rounded towards 0: the whole number of times that fmod takes b from a.
template <class V>
HWY_INLINE V whole_quotient(V a, V b, V rest) {
  return hn::Round(hn::Div(hn::Sub(a, rest), b));
}
template <class V>
HWY_INLINE Factor<V> fmod_slope(V a, V b) {
  const V n = hn::Neg(whole_quotient(a, b, fmod_(a, b)));
  return {n, is_finite(n)};
}
// a/b rounded down: remainder takes b once more where the signs differ. Counted so for an infinite b, too.
template <class V>
HWY_INLINE Factor<V> remainder_slope(V a, V b) {
  const V rest = fmod_(a, b), n = whole_quotient(a, b, rest);
  const V floor = pick(hn::And(hn::Ne(rest, set<V>(0)), signs_differ(rest, b)), hn::Sub(n, set<V>(1)), n);
  return {hn::Neg(floor), is_finite(n)};
}
// What maximum or minimum passes on: all to the winner, half to each at a tie, all past a NaN.
template <class V, class M>
HWY_INLINE V won(V g, M tie, M lost) {
  return pick(tie, hn::Mul(g, set<V>(0.5)), pick(lost, set<V>(0), g));
}

// The same far from each other, and of two equal infinities.
template <class V>
HWY_INLINE V weight(V mine, V other) {
  return pick(hn::Eq(mine, other), set<V>(0.5), step(hn::Sub(mine, other)));
}

// ---- sums ----

template <class T>
HWY_INLINE Vector<double> load_f64(const T* p) {
  constexpr Tag<double> d;
  if constexpr (std::is_same_v<T, double>)
    return hn::LoadU(d, p);
  else
    return hn::PromoteTo(d, hn::LoadU(hn::Rebind<T, decltype(d)>(), p));
}

// In kParts sums, which are the same ones for every instruction set.
template <class T>
double sum_of_row(const T* x, int64_t n) {
  constexpr Tag<double> d;
  constexpr int64_t kParts = 32, kVectors = kParts / HWY_LANES(double);
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  Vector<double> sum[kVectors];
  for (auto& s : sum) s = hn::Zero(d);
  int64_t i = 0;
  for (; i + kParts <= n; i += kParts)
    for (int64_t k = 0; k < kVectors; ++k) sum[k] = hn::Add(sum[k], load_f64(x + i + k * lanes));
  HWY_ALIGN double part[kParts];
  for (int64_t k = 0; k < kVectors; ++k) hn::Store(sum[k], d, part + k * lanes);
  for (; i < n; ++i) part[i % kParts] += static_cast<double>(x[i]);
  for (int64_t half = kParts / 2; half > 0; half /= 2)
    for (int64_t k = 0; k < half; ++k) part[k] += part[k + half];
  return part[0];
}

// Adds x[0 .. n) to as many sums, in f64 with what rounding takes from them.
template <class T>
void add_to_sums(double* sums, double* lost, const T* x, int64_t n) {
  constexpr Tag<double> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto before = hn::LoadU(d, sums + i), y = load_f64(x + i), after = hn::Add(before, y);
    hn::StoreU(after, d, sums + i);
    if constexpr (sizeof(T) == sizeof(double)) {
      const auto back = hn::Sub(after, before);
      const auto error = hn::Add(hn::Sub(before, hn::Sub(after, back)), hn::Sub(y, back));
      hn::StoreU(hn::Add(hn::LoadU(d, lost + i), error), d, lost + i);
    }
  }
  for (; i < n; ++i) add(sums[i], lost[i], x[i]);
}

template <class T>
void accumulate(Sums& sums, const void* tile, int64_t rows, int64_t columns, bool keep_rows, bool keep_columns) {
  const T* x = static_cast<const T*>(tile);
  for (int64_t i = 0; i < rows; ++i, x += columns) {
    const int64_t first = keep_rows ? (keep_columns ? i * columns : i) : 0;
    if (keep_columns)
      add_to_sums(sums.sum + first, sums.lost + first, x, columns);
    else
      add(sums.sum[first], sums.lost[first], sum_of_row(x, columns));
  }
}

// ---- kernels: in = grad_out, a, b, c, of which those in kReads (bits 0 to 3) are looked at ----

constexpr unsigned kG = 1, kA = 2, kB = 4, kC = 8;
struct GradientEntry {
  int function, operand;
  Gradient gradient;
};

#define NARROWS_GRADIENT(Name, length, reads, expression)                                                 \
  template <class S>                                                                                      \
  struct Name {                                                                                           \
    static constexpr unsigned kReads = reads;                                                             \
    static constexpr bool kIsLong = length, kSame = std::string_view(#expression) == "g";                 \
    static constexpr Kernel kernel = map_kernel<Name, S>;                                                 \
    using V = VectorOf<S>;                                                                                \
    double alpha;                                                                                         \
    HWY_INLINE V operator()(const V* v) const {                                                           \
      [[maybe_unused]] const V g = v[0], a = v[1], b = v[2], c = v[3], zero = set<V>(0), one = set<V>(1); \
      return expression;                                                                                  \
    }                                                                                                     \
  };

// As grad_out times a factor. Of the lanes where that is not good, `sure` says where grad_out times `instead` is, which may be the
// factor all the same (0 for an a of 0): what real data is full of. The rest is computed one by one.
template <class V>
HWY_NOINLINE V mended(int function, int operand, const V* v, double alpha, V value, MaskOf<V> known) {
  using T = Lane<V>;
  constexpr TagOf<V> d;
  HWY_ALIGN T in[3][HWY_LANES(T)], out[HWY_LANES(T)], is_known[HWY_LANES(T)];
  for (int k = 0; k < 3; ++k) hn::Store(v[k], d, in[k]);
  hn::Store(value, d, out);
  hn::Store(hn::IfThenElseZero(known, set<V>(1)), d, is_known);
  for (size_t i = 0; i < hn::Lanes(d); ++i)
    if (is_known[i] == 0)
      out[i] = static_cast<T>(exact_gradient(function, operand, in[0][i], in[1][i], in[2][i], static_cast<T>(alpha)));
  return hn::Load(d, out);
}
#define NARROWS_FACTOR(Name, length, function, operand, reads, factor, sure, instead)                     \
  template <class S>                                                                                      \
  struct Name {                                                                                           \
    static constexpr unsigned kReads = kG | (reads);                                                      \
    static constexpr bool kIsLong = length, kSame = false;                                                \
    static constexpr Kernel kernel = map_kernel<Name, S>;                                                 \
    using V = VectorOf<S>;                                                                                \
    double alpha;                                                                                         \
    HWY_NOINLINE V beyond(V g, V a, [[maybe_unused]] V b, Factor<V> f) const {                            \
      [[maybe_unused]] const V zero = set<V>(0), one = set<V>(1);                                         \
      const V value = hn::Mul(g, pick(f.good, f.value, instead)), in[] = {g, a, b};                       \
      const auto known = hn::Or(f.good, sure);                                                            \
      return hn::AllTrue(TagOf<V>(), known) ? value : mended(function, operand, in, alpha, value, known); \
    }                                                                                                     \
    HWY_INLINE V operator()(const V* v) const {                                                           \
      [[maybe_unused]] const V g = v[0], a = v[1], b = v[2];                                              \
      const Factor<V> f = factor;                                                                         \
      return HWY_LIKELY(hn::AllTrue(TagOf<V>(), f.good)) ? hn::Mul(g, f.value) : beyond(g, a, b, f);      \
    }                                                                                                     \
  };
NARROWS_GRADIENT(GradZero, kShort, 0, zero)
NARROWS_GRADIENT(GradSame, kShort, kG, g)
NARROWS_GRADIENT(GradNeg, kShort, kG, hn::Neg(g))
NARROWS_GRADIENT(GradAbs, kShort, kG | kA, hn::Mul(g, sign_(a)))
NARROWS_FACTOR(GradSquare, kShort, NW_EW_SQUARE, 0, kA,
               (Factor<V>{hn::Add(a, a), is_within(a, std::numeric_limits<Lane<V>>::max() / 2)}), hn::Not(is_finite(a)), f.value)
NARROWS_GRADIENT(GradSqrt, kShort, kG | kA, hn::Div(g, hn::Mul(set<V>(2), hn::Sqrt(a))))
NARROWS_GRADIENT(GradRsqrt, kShort, kG | kA, hn::Neg(over_both(g, hn::Mul(set<V>(2), hn::Sqrt(a)), a)))
NARROWS_GRADIENT(GradCbrt, kLong, kG | kA, hn::Div(g, hn::Mul(set<V>(3), hn::Mul(sleef::cbrt_(a), sleef::cbrt_(a)))))
NARROWS_FACTOR(GradExp, kShort, NW_EW_EXP, 0, kA, exp_slope(a), hn::Or(hn::Le(a, set<V>(-kExpEnd<V>)), hn::IsNaN(a)),
               hn::IfThenElseZero(hn::IsNaN(a), a))
NARROWS_FACTOR(GradExp2, kLong, NW_EW_EXP2, 0, kA,
               (Factor<V>{hn::Mul(sleef::exp2_(a), set<V>(kLn2)), is_within(a, std::numeric_limits<Lane<V>>::max_exponent - 3)}),
               hn::Or(hn::Le(a, set<V>(-2 * kExpEnd<V>)), hn::IsNaN(a)), f.value)
NARROWS_GRADIENT(GradLog, kShort, kG | kA, hn::Div(g, a))
NARROWS_GRADIENT(GradLog2, kShort, kG | kA, hn::Mul(hn::Div(g, a), set<V>(1.44269504088896340735992468100)))
NARROWS_GRADIENT(GradLog10, kShort, kG | kA, log10_gradient(g, a))
NARROWS_GRADIENT(GradLog1p, kShort, kG | kA, hn::Div(g, hn::Add(one, a)))
NARROWS_GRADIENT(GradSin, kShort, kG | kA, hn::Mul(g, cos_(a)))
NARROWS_GRADIENT(GradCos, kShort, kG | kA, hn::Neg(hn::Mul(g, sin_(a))))
NARROWS_GRADIENT(GradTan, kLong, kG | kA, hn::Mul(g, hn::Add(one, hn::Mul(sleef::tan_(a), sleef::tan_(a)))))
NARROWS_GRADIENT(GradAsin, kShort, kG | kA, hn::Div(g, sqrt_of_product(hn::Sub(one, a), hn::Add(one, a))))
NARROWS_GRADIENT(GradAcos, kShort, kG | kA, hn::Neg(hn::Div(g, sqrt_of_product(hn::Sub(one, a), hn::Add(one, a)))))
NARROWS_GRADIENT(GradAtan, kShort, kG | kA, atan_gradient(g, a))
NARROWS_FACTOR(GradSinh, kLong, NW_EW_SINH, 0, kA, (Factor<V>{cosh_(a), is_within(a, kExpLimit<V>)}), hn::Not(is_finite(a)),
               f.value)
NARROWS_FACTOR(GradCosh, kLong, NW_EW_COSH, 0, kA, (Factor<V>{sinh_(a), is_within(a, kExpLimit<V>)}), hn::Not(is_finite(a)),
               f.value)
NARROWS_FACTOR(GradTanh, kLong, NW_EW_TANH, 0, kA, sigmoid_slope(hn::Add(a, a), 4), hn::Or(is_saturated(a), hn::IsNaN(a)),
               hn::IfThenElseZero(hn::IsNaN(a), a))
NARROWS_GRADIENT(GradAsinh, kLong, kG | kA, hn::Div(g, sleef::hypot_(a, one)))
NARROWS_GRADIENT(GradAcosh, kShort, kG | kA, hn::Div(g, acosh_divisor(a)))
NARROWS_GRADIENT(GradAtanh, kShort, kG | kA, hn::Div(g, hn::Mul(hn::Sub(one, a), hn::Add(one, a))))
NARROWS_FACTOR(GradSigmoid, kShort, NW_EW_SIGMOID, 0, kA, sigmoid_slope(a, 1), hn::Or(is_saturated(a), hn::IsNaN(a)),
               hn::IfThenElseZero(hn::IsNaN(a), a))
NARROWS_GRADIENT(GradRelu, kShort, kG | kA, pick(hn::Le(a, zero), zero, g))
NARROWS_FACTOR(GradElu, kLong, NW_EW_ELU, 0, kA, elu_slope(a, set<V>(alpha)),
               hn::Or(hn::Or(hn::Le(a, set<V>(-1.5 * kExpEnd<V>)), hn::Eq(set<V>(alpha), zero)), hn::IsNaN(a)),
               hn::IfThenElseZero(hn::IsNaN(a), one))
NARROWS_FACTOR(GradGelu, kLong, NW_EW_GELU, 0, kA, gelu_slope(a), is_step(a, kGeluEnd<V>), step(a))
NARROWS_FACTOR(GradGeluTanh, kLong, NW_EW_GELU_TANH, 0, kA, gelu_tanh_slope(a), is_step(a, kGeluEnd<V>), step(a))
NARROWS_FACTOR(GradSilu, kLong, NW_EW_SILU, 0, kA, silu_slope(a), is_step(a, kExpEnd<V>), step(a))
NARROWS_FACTOR(GradSoftplus, kShort, NW_EW_SOFTPLUS, 0, kA, softplus_slope(a), is_step(a, kExpEnd<V>), step(a))
NARROWS_FACTOR(GradErf, kLong, NW_EW_ERF, 0, kA, erf_slope(a, 1.12837916709551257389615890312), hn::Not(is_within(a, kErfEnd<V>)),
               hn::IfThenElseZero(hn::IsNaN(a), a))
NARROWS_FACTOR(GradErfc, kLong, NW_EW_ERFC, 0, kA, erf_slope(a, -1.12837916709551257389615890312),
               hn::Not(is_within(a, kErfEnd<V>)), hn::IfThenElseZero(hn::IsNaN(a), a))
NARROWS_GRADIENT(GradReciprocal, kShort, kG | kA, hn::Neg(over_both(g, a, a)))
NARROWS_GRADIENT(GradTimesA, kShort, kG | kA, hn::Mul(g, a))
NARROWS_GRADIENT(GradTimesB, kShort, kG | kB, hn::Mul(g, b))
NARROWS_GRADIENT(GradDivA, kShort, kG | kB, hn::Div(g, b))
NARROWS_FACTOR(GradDivB, kShort, NW_EW_DIV, 1, kA | kB, div_slope(a, b),
               hn::Or(hn::Or(hn::Eq(a, zero), hn::Eq(b, zero)), hn::Not(hn::And(is_finite(a), is_finite(b)))), f.value)
NARROWS_FACTOR(GradPowA, kLong, NW_EW_POW, 0, kA | kB, pow_slope_a(a, b), hn::Or(is_power_0(a, b), is_either_nan(a, b)),
               hn::IfThenZeroElse(is_power_0(a, b), hn::Add(a, b)))
NARROWS_FACTOR(GradPowB, kLong, NW_EW_POW, 1, kA | kB, pow_slope_b(a, b),
               hn::Or(hn::Or(hn::Le(a, zero), hn::Eq(a, one)), is_either_nan(a, b)),
               pick(hn::And(hn::Eq(a, zero), hn::Ge(b, zero)), zero, f.value))
NARROWS_FACTOR(GradAtan2A, kLong, NW_EW_ATAN2, 0, kA | kB, over_square(b, a), hn::Or(hn::Eq(b, zero), is_either_nan(a, b)),
               hn::IfThenZeroElse(hn::And(hn::Eq(a, zero), hn::Eq(b, zero)), f.value))
NARROWS_FACTOR(GradAtan2B, kLong, NW_EW_ATAN2, 1, kA | kB, minus(over_square(a, b)), hn::Or(hn::Eq(a, zero), is_either_nan(a, b)),
               hn::IfThenZeroElse(hn::And(hn::Eq(a, zero), hn::Eq(b, zero)), f.value))
NARROWS_FACTOR(GradHypotA, kLong, NW_EW_HYPOT, 0, kA | kB, over_distance(a, b), hn::Or(hn::Eq(a, zero), is_either_nan(a, b)),
               f.value)
NARROWS_FACTOR(GradHypotB, kLong, NW_EW_HYPOT, 1, kA | kB, over_distance(b, a), hn::Or(hn::Eq(b, zero), is_either_nan(a, b)),
               f.value)
NARROWS_GRADIENT(GradMaximumA, kShort, kG | kA | kB, won(g, hn::Eq(a, b), hn::Lt(a, b)))
NARROWS_GRADIENT(GradMaximumB, kShort, kG | kA | kB, won(g, hn::Eq(a, b), hn::Gt(a, b)))
NARROWS_FACTOR(GradFmodB, kLong, NW_EW_FMOD, 1, kA | kB, fmod_slope(a, b), hn::Or(hn::Not(is_finite(a)), hn::Eq(b, zero)), f.value)
NARROWS_FACTOR(GradRemainderB, kLong, NW_EW_REMAINDER, 1, kA | kB, remainder_slope(a, b),
               hn::Or(hn::Not(is_finite(a)), hn::Eq(b, zero)), f.value)
NARROWS_GRADIENT(GradCopysignA, kShort, kG | kA | kB, hn::Mul(g, hn::Mul(sign_(a), hn::CopySign(one, b))))
NARROWS_FACTOR(GradLogaddexpA, kLong, NW_EW_LOGADDEXP, 0, kA | kB, logaddexp_slope(a, b), is_step(hn::Sub(a, b), kExpEnd<V>),
               weight(a, b))
NARROWS_FACTOR(GradLogaddexpB, kLong, NW_EW_LOGADDEXP, 1, kA | kB, logaddexp_slope(b, a), is_step(hn::Sub(b, a), kExpEnd<V>),
               weight(b, a))
NARROWS_GRADIENT(GradSinc, kLong, kG | kA, sinc_gradient(g, a))
NARROWS_GRADIENT(GradWhereB, kShort, kG | kA, pick(hn::Ne(a, zero), g, zero))
NARROWS_GRADIENT(GradWhereC, kShort, kG | kA, pick(hn::Ne(a, zero), zero, g))
NARROWS_GRADIENT(GradClampA, kShort, kG | kA | kB | kC, pick(hn::And(hn::Ge(a, b), hn::Le(a, c)), g, zero))
NARROWS_GRADIENT(GradClampB, kShort, kG | kA | kB | kC, pick(hn::And(hn::Lt(a, b), hn::Lt(b, c)), g, zero))
NARROWS_GRADIENT(GradClampC, kShort, kG | kA | kB | kC,
                 pick(hn::Or(hn::Or(hn::Gt(a, c), hn::Lt(c, b)), hn::And(hn::Lt(a, b), hn::Eq(b, c))), g, zero))
#undef NARROWS_GRADIENT

template <class G>
constexpr GradientEntry by(int function, int operand) {
  return {function, operand, {G::kernel, G::kReads, G::kSame}};
}

template <class S>
constexpr GradientEntry kGradients[] = {
    by<GradNeg<S>>(NW_EW_NEG, 0),
    by<GradAbs<S>>(NW_EW_ABS, 0),
    by<GradZero<S>>(NW_EW_SIGN, 0),
    by<GradSquare<S>>(NW_EW_SQUARE, 0),
    by<GradSqrt<S>>(NW_EW_SQRT, 0),
    by<GradRsqrt<S>>(NW_EW_RSQRT, 0),
    by<GradCbrt<S>>(NW_EW_CBRT, 0),
    by<GradExp<S>>(NW_EW_EXP, 0),
    by<GradExp2<S>>(NW_EW_EXP2, 0),
    by<GradExp<S>>(NW_EW_EXPM1, 0),
    by<GradLog<S>>(NW_EW_LOG, 0),
    by<GradLog2<S>>(NW_EW_LOG2, 0),
    by<GradLog10<S>>(NW_EW_LOG10, 0),
    by<GradLog1p<S>>(NW_EW_LOG1P, 0),
    by<GradSin<S>>(NW_EW_SIN, 0),
    by<GradCos<S>>(NW_EW_COS, 0),
    by<GradTan<S>>(NW_EW_TAN, 0),
    by<GradAsin<S>>(NW_EW_ASIN, 0),
    by<GradAcos<S>>(NW_EW_ACOS, 0),
    by<GradAtan<S>>(NW_EW_ATAN, 0),
    by<GradSinh<S>>(NW_EW_SINH, 0),
    by<GradCosh<S>>(NW_EW_COSH, 0),
    by<GradTanh<S>>(NW_EW_TANH, 0),
    by<GradAsinh<S>>(NW_EW_ASINH, 0),
    by<GradAcosh<S>>(NW_EW_ACOSH, 0),
    by<GradAtanh<S>>(NW_EW_ATANH, 0),
    by<GradSigmoid<S>>(NW_EW_SIGMOID, 0),
    by<GradRelu<S>>(NW_EW_RELU, 0),
    by<GradElu<S>>(NW_EW_ELU, 0),
    by<GradGelu<S>>(NW_EW_GELU, 0),
    by<GradGeluTanh<S>>(NW_EW_GELU_TANH, 0),
    by<GradSilu<S>>(NW_EW_SILU, 0),
    by<GradSoftplus<S>>(NW_EW_SOFTPLUS, 0),
    by<GradErf<S>>(NW_EW_ERF, 0),
    by<GradErfc<S>>(NW_EW_ERFC, 0),
    by<GradZero<S>>(NW_EW_FLOOR, 0),
    by<GradZero<S>>(NW_EW_CEIL, 0),
    by<GradZero<S>>(NW_EW_ROUND, 0),
    by<GradZero<S>>(NW_EW_TRUNC, 0),
    by<GradReciprocal<S>>(NW_EW_RECIPROCAL, 0),
    by<GradSame<S>>(NW_EW_CAST, 0),
    by<GradSame<S>>(NW_EW_ADD, 0),
    by<GradSame<S>>(NW_EW_ADD, 1),
    by<GradSame<S>>(NW_EW_SUB, 0),
    by<GradNeg<S>>(NW_EW_SUB, 1),
    by<GradTimesB<S>>(NW_EW_MUL, 0),
    by<GradTimesA<S>>(NW_EW_MUL, 1),
    by<GradDivA<S>>(NW_EW_DIV, 0),
    by<GradDivB<S>>(NW_EW_DIV, 1),
    by<GradPowA<S>>(NW_EW_POW, 0),
    by<GradPowB<S>>(NW_EW_POW, 1),
    by<GradAtan2A<S>>(NW_EW_ATAN2, 0),
    by<GradAtan2B<S>>(NW_EW_ATAN2, 1),
    by<GradHypotA<S>>(NW_EW_HYPOT, 0),
    by<GradHypotB<S>>(NW_EW_HYPOT, 1),
    by<GradMaximumA<S>>(NW_EW_MAXIMUM, 0),
    by<GradMaximumB<S>>(NW_EW_MAXIMUM, 1),
    by<GradMaximumB<S>>(NW_EW_MINIMUM, 0),
    by<GradMaximumA<S>>(NW_EW_MINIMUM, 1),
    by<GradSame<S>>(NW_EW_FMOD, 0),
    by<GradFmodB<S>>(NW_EW_FMOD, 1),
    by<GradSame<S>>(NW_EW_REMAINDER, 0),
    by<GradRemainderB<S>>(NW_EW_REMAINDER, 1),
    by<GradCopysignA<S>>(NW_EW_COPYSIGN, 0),
    by<GradZero<S>>(NW_EW_COPYSIGN, 1),
    by<GradLogaddexpA<S>>(NW_EW_LOGADDEXP, 0),
    by<GradLogaddexpB<S>>(NW_EW_LOGADDEXP, 1),
    by<GradTimesB<S>>(NW_EW_FMA, 0),
    by<GradTimesA<S>>(NW_EW_FMA, 1),
    by<GradSame<S>>(NW_EW_FMA, 2),
    by<GradWhereB<S>>(NW_EW_WHERE, 1),
    by<GradWhereC<S>>(NW_EW_WHERE, 2),
    by<GradClampA<S>>(NW_EW_CLAMP, 0),
    by<GradClampB<S>>(NW_EW_CLAMP, 1),
    by<GradClampC<S>>(NW_EW_CLAMP, 2),
    by<GradSinc<S>>(NW_EW_SINC, 0),
};

template <class S>
Gradient gradient_lookup(int function, int operand) {
  for (const GradientEntry& entry : kGradients<S>)
    if (entry.function == function && entry.operand == operand) return entry.gradient;
  return {};
}

}  // namespace narrows::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
