// elementwise_grad-inl.h -- the kernels of elementwise_backward for one floating-point type: grad_out times the derivative by one
// operand. Subgradients and special values as torch has them. Step 5 of a tensor's path.
#if defined(NARROWS_ELEMENTWISE_GRAD_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef NARROWS_ELEMENTWISE_GRAD_INL_H
#undef NARROWS_ELEMENTWISE_GRAD_INL_H
#else
#define NARROWS_ELEMENTWISE_GRAD_INL_H
#endif

#include <string_view>

#include "elementwise_map-inl.h"
#include "elementwise_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace narrows::cpu::HWY_NAMESPACE {

// ---- derivatives that take more than a line ----

// sigmoid'(a), from exp(-|a|): no cancellation.
template <class V>
HWY_INLINE V sigmoid_slope(V a) {
  const V z = exp_(hn::Neg(hn::Abs(a))), sum = hn::Add(set<V>(1), z);
  return hn::Div(z, hn::Mul(sum, sum));
}
template <class V>
HWY_INLINE V sqrt_of_product(V a, V b) {  // which itself may overflow
  return hn::Mul(hn::Sqrt(a), hn::Sqrt(b));
}
template <class V>
HWY_INLINE V acosh_slope(V a) {
  const V one = set<V>(1), size = hn::Abs(a);
  const V slope = hn::Div(one, sqrt_of_product(hn::Abs(hn::Sub(size, one)), hn::Add(size, one)));
  return pick(hn::Lt(size, one), set<V>(std::numeric_limits<double>::quiet_NaN()), slope);
}
template <class V>
HWY_INLINE V gelu_slope(V a) {
  const V weight = hn::Mul(a, set<V>(0.398942280401432677939946059934));  // a/sqrt(2 pi)
  const Normal<V> n = normal(a);
  const V cdf = pick(hn::Lt(a, set<V>(0)), n.tail, hn::Sub(set<V>(1), n.tail));
  const V usual = hn::MulAdd(weight, n.density, cdf);
  if (hn::AllTrue(TagOf<V>(), n.near)) return usual;
  const V density = exp_(hn::Mul(hn::Mul(a, a), set<V>(-0.5)));
  return pick(n.near, usual, hn::Add(hn::Mul(set<V>(0.5), twice_normal_cdf(a)), hn::Mul(weight, density)));
}
template <class V>
HWY_INLINE V gelu_tanh_slope(V a) {
  constexpr double kLinear = 1.59576912160573071, kCubic = 3 * kLinear * 0.044715;
  const V t = gelu_tanh_argument(a).high;
  const V inner = hn::Add(set<V>(kLinear), hn::Mul(set<V>(kCubic), hn::Mul(a, a)));
  const V curved = hn::Mul(hn::Mul(a, sigmoid_slope(t)), inner);
  return hn::Add(sigmoid(t), pick(hn::Gt(hn::Abs(t), set<V>(2000)), set<V>(0), curved));
}
template <class V>
HWY_INLINE V pow_slope_a(V a, V b) {
  const V slope = hn::Mul(b, pow_(a, hn::Sub(b, set<V>(1))));
  return pick(hn::Eq(b, set<V>(0)), set<V>(0), slope);
}
template <class V>
HWY_INLINE V pow_slope_b(V a, V b) {
  const V zero = set<V>(0), slope = hn::Mul(pow_(a, b), log_(a));
  return pick(hn::And(hn::Eq(a, zero), hn::Ge(b, zero)), zero, slope);
}
// a/b rounded towards 0: the whole number of times that fmod takes b from a.
template <class V>
HWY_INLINE V whole_quotient(V a, V b, V rest) {
  return hn::Round(hn::Div(hn::Sub(a, rest), b));
}
// a/b rounded down: remainder takes b once more where the signs differ. Counted so for an infinite b, too.
template <class V>
HWY_INLINE V floor_quotient(V a, V b) {
  const V rest = fmod_(a, b), n = whole_quotient(a, b, rest);
  return pick(hn::And(hn::Ne(rest, set<V>(0)), signs_differ(rest, b)), hn::Sub(n, set<V>(1)), n);
}
// What maximum or minimum passes on: all to the winner, half to each at a tie, all past a NaN.
template <class V, class M>
HWY_INLINE V won(V g, M tie, M lost) {
  return pick(tie, hn::Mul(g, set<V>(0.5)), pick(lost, set<V>(0), g));
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

#define NARROWS_GRADIENT(Name, reads, expression)                                          \
  template <class S>                                                                       \
  struct Name {                                                                            \
    static constexpr unsigned kReads = reads;                                              \
    static constexpr bool kSame = std::string_view(#expression) == "g";                    \
    static void kernel(const Run& run) {                                                   \
      using V = Vector<Accumulate<S>>;                                                     \
      map_vectors<kReads, S>(run, [alpha = run.alpha](const V* v) HWY_ATTR {               \
        const V g = v[0], a = v[1], b = v[2], c = v[3], zero = set<V>(0), one = set<V>(1); \
        (void)alpha, (void)g, (void)a, (void)b, (void)c, (void)zero, (void)one;            \
        return expression;                                                                 \
      });                                                                                  \
    }                                                                                      \
  };
NARROWS_GRADIENT(GradZero, 0, zero)
NARROWS_GRADIENT(GradSame, kG, g)
NARROWS_GRADIENT(GradNeg, kG, hn::Neg(g))
NARROWS_GRADIENT(GradAbs, kG | kA, hn::Mul(g, sign_(a)))
NARROWS_GRADIENT(GradSquare, kG | kA, hn::Mul(g, hn::Add(a, a)))
NARROWS_GRADIENT(GradSqrt, kG | kA, hn::Div(g, hn::Mul(set<V>(2), hn::Sqrt(a))))
NARROWS_GRADIENT(GradRsqrt, kG | kA, hn::Div(hn::Div(hn::Mul(g, set<V>(-0.5)), hn::Sqrt(a)), a))
NARROWS_GRADIENT(GradCbrt, kG | kA, hn::Div(g, hn::Mul(set<V>(3), hn::Mul(sleef::cbrt_(a), sleef::cbrt_(a)))))
NARROWS_GRADIENT(GradExp, kG | kA, hn::Mul(g, exp_(a)))
NARROWS_GRADIENT(GradExp2, kG | kA, hn::Mul(g, hn::Mul(sleef::exp2_(a), set<V>(kLn2))))
NARROWS_GRADIENT(GradLog, kG | kA, hn::Div(g, a))
NARROWS_GRADIENT(GradLog2, kG | kA, hn::Div(g, hn::Mul(a, set<V>(kLn2))))
NARROWS_GRADIENT(GradLog10, kG | kA, hn::Div(g, hn::Mul(a, set<V>(2.30258509299404568401799145468))))
NARROWS_GRADIENT(GradLog1p, kG | kA, hn::Div(g, hn::Add(one, a)))
NARROWS_GRADIENT(GradSin, kG | kA, hn::Mul(g, cos_(a)))
NARROWS_GRADIENT(GradCos, kG | kA, hn::Neg(hn::Mul(g, sin_(a))))
NARROWS_GRADIENT(GradTan, kG | kA, hn::Mul(g, hn::Add(one, hn::Mul(sleef::tan_(a), sleef::tan_(a)))))
NARROWS_GRADIENT(GradAsin, kG | kA, hn::Div(g, sqrt_of_product(hn::Sub(one, a), hn::Add(one, a))))
NARROWS_GRADIENT(GradAcos, kG | kA, hn::Neg(hn::Div(g, sqrt_of_product(hn::Sub(one, a), hn::Add(one, a)))))
NARROWS_GRADIENT(GradAtan, kG | kA, hn::Div(g, hn::Add(one, hn::Mul(a, a))))
NARROWS_GRADIENT(GradSinh, kG | kA, hn::Mul(g, cosh_(a)))
NARROWS_GRADIENT(GradCosh, kG | kA, hn::Mul(g, sinh_(a)))
NARROWS_GRADIENT(GradTanh, kG | kA, hn::Mul(g, hn::Mul(set<V>(4), sigmoid_slope(hn::Add(a, a)))))
NARROWS_GRADIENT(GradAsinh, kG | kA, hn::Div(g, sleef::hypot_(a, one)))
NARROWS_GRADIENT(GradAcosh, kG | kA, hn::Mul(g, acosh_slope(a)))
NARROWS_GRADIENT(GradAtanh, kG | kA, hn::Div(g, hn::Mul(hn::Sub(one, a), hn::Add(one, a))))
NARROWS_GRADIENT(GradSigmoid, kG | kA, hn::Mul(g, sigmoid_slope(a)))
NARROWS_GRADIENT(GradRelu, kG | kA, pick(hn::Le(a, zero), zero, g))
NARROWS_GRADIENT(GradElu, kG | kA, pick(hn::Le(a, zero), hn::Mul(hn::Mul(g, set<V>(alpha)), exp_(a)), g))
NARROWS_GRADIENT(GradGelu, kG | kA, hn::Mul(g, gelu_slope(a)))
NARROWS_GRADIENT(GradGeluTanh, kG | kA, hn::Mul(g, gelu_tanh_slope(a)))
NARROWS_GRADIENT(GradSilu, kG | kA, hn::Mul(g, hn::Add(sigmoid(a), hn::Mul(a, sigmoid_slope(a)))))
NARROWS_GRADIENT(GradSoftplus, kG | kA, hn::Mul(g, sigmoid(a)))
NARROWS_GRADIENT(GradErf, kG | kA, hn::Mul(g, hn::Mul(set<V>(1.12837916709551257389615890312), exp_(hn::Neg(hn::Mul(a, a))))))
NARROWS_GRADIENT(GradErfc, kG | kA, hn::Mul(g, hn::Mul(set<V>(-1.12837916709551257389615890312), exp_(hn::Neg(hn::Mul(a, a))))))
NARROWS_GRADIENT(GradReciprocal, kG | kA, hn::Neg(hn::Div(hn::Div(g, a), a)))
NARROWS_GRADIENT(GradTimesA, kG | kA, hn::Mul(g, a))
NARROWS_GRADIENT(GradTimesB, kG | kB, hn::Mul(g, b))
NARROWS_GRADIENT(GradDivA, kG | kB, hn::Div(g, b))
NARROWS_GRADIENT(GradDivB, kG | kA | kB, hn::Mul(hn::Neg(g), hn::Div(hn::Div(a, b), b)))
NARROWS_GRADIENT(GradPowA, kG | kA | kB, hn::Mul(g, pow_slope_a(a, b)))
NARROWS_GRADIENT(GradPowB, kG | kA | kB, hn::Mul(g, pow_slope_b(a, b)))
NARROWS_GRADIENT(GradAtan2A, kG | kA | kB, hn::Mul(g, hn::Div(hn::Div(b, sleef::hypot_(a, b)), sleef::hypot_(a, b))))
NARROWS_GRADIENT(GradAtan2B, kG | kA | kB, hn::Mul(hn::Neg(g), hn::Div(hn::Div(a, sleef::hypot_(a, b)), sleef::hypot_(a, b))))
NARROWS_GRADIENT(GradHypotA, kG | kA | kB, hn::Mul(g, hn::Div(a, sleef::hypot_(a, b))))
NARROWS_GRADIENT(GradHypotB, kG | kA | kB, hn::Mul(g, hn::Div(b, sleef::hypot_(a, b))))
NARROWS_GRADIENT(GradMaximumA, kG | kA | kB, won(g, hn::Eq(a, b), hn::Lt(a, b)))
NARROWS_GRADIENT(GradMaximumB, kG | kA | kB, won(g, hn::Eq(a, b), hn::Gt(a, b)))
NARROWS_GRADIENT(GradFmodB, kG | kA | kB, hn::Mul(hn::Neg(g), whole_quotient(a, b, fmod_(a, b))))
NARROWS_GRADIENT(GradRemainderB, kG | kA | kB, hn::Mul(hn::Neg(g), floor_quotient(a, b)))
NARROWS_GRADIENT(GradCopysignA, kG | kA | kB, hn::Mul(g, hn::Mul(sign_(a), hn::CopySign(one, b))))
NARROWS_GRADIENT(GradLogaddexpA, kG | kA | kB, hn::Mul(g, sigmoid(hn::Sub(a, b))))
NARROWS_GRADIENT(GradLogaddexpB, kG | kA | kB, hn::Mul(g, sigmoid(hn::Sub(b, a))))
NARROWS_GRADIENT(GradWhereB, kG | kA, pick(hn::Ne(a, zero), g, zero))
NARROWS_GRADIENT(GradWhereC, kG | kA, pick(hn::Ne(a, zero), zero, g))
NARROWS_GRADIENT(GradClampA, kG | kA | kB | kC, pick(hn::And(hn::Ge(a, b), hn::Le(a, c)), g, zero))
NARROWS_GRADIENT(GradClampB, kG | kA | kB | kC, pick(hn::And(hn::Lt(a, b), hn::Lt(b, c)), g, zero))
NARROWS_GRADIENT(GradClampC, kG | kA | kB | kC,
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
