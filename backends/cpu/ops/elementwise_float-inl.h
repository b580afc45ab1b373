// elementwise_float-inl.h -- the kernels of elementwise for one floating-point type: vectors for what gives the same type, plain
// loops (elementwise_loops-inl.h) for what gives a bool. Step 5 of a tensor's path.
#if defined(NARROWS_ELEMENTWISE_FLOAT_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef NARROWS_ELEMENTWISE_FLOAT_INL_H
#undef NARROWS_ELEMENTWISE_FLOAT_INL_H
#else
#define NARROWS_ELEMENTWISE_FLOAT_INL_H
#endif

#include "convert-inl.h"
#include "elementwise_loops-inl.h"
#include "elementwise_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace narrows::cpu::HWY_NAMESPACE {

// Applies f to the inputs as vectors, from left to right. S is how an element is stored; f sees f32 for f16 and bf16. What is
// less than a vector goes through a vector's worth of stack.
template <size_t Inputs, class S, class F>
HWY_INLINE void map_vectors(const Run& run, F f) {
  using T = Accumulate<S>;
  constexpr Tag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), n = run.n;
  const S* a[Inputs];
  int64_t step[Inputs];
  for (size_t k = 0; k < Inputs; ++k) {
    a[k] = static_cast<const S*>(run.in[k]);
    step[k] = run.constant[k] ? 0 : 1;
  }
  S* o = static_cast<S*>(run.out);
  const auto map_part = [&](int64_t begin, int64_t count) HWY_ATTR {
    HWY_ALIGN S last[HWY_LANES(T)] = {};
    Vector<T> v[Inputs];
    for (size_t k = 0; k < Inputs; ++k) {
      std::copy_n(a[k] + begin * step[k], count, last);
      v[k] = LoadAs(d, last);
    }
    StoreAs(d, f(v), last);
    std::copy_n(last, count, o + begin);
  };
  const auto map_parts = [&](int64_t begin, int64_t end) HWY_ATTR {
    for (int64_t count; begin < end; begin += count) map_part(begin, count = std::min(lanes, end - begin));
  };
  constexpr int64_t kWhole = kVectorsStored<S>;
  int64_t i = 0;
  if (run.streamed) {
    const int64_t past = static_cast<int64_t>(reinterpret_cast<uintptr_t>(o) / sizeof(S)) & (kWhole * lanes - 1);
    if (past != 0) map_parts(0, i = std::min(n, kWhole * lanes - past));
  }
  const auto map_wholes = [&](auto streamed) HWY_ATTR {
    for (; i + kWhole * lanes <= n; i += kWhole * lanes) {
      Vector<T> result[kWhole];
      for (int64_t w = 0; w < kWhole; ++w) {
        Vector<T> v[Inputs];
        for (size_t k = 0; k < Inputs; ++k) v[k] = LoadAs(d, a[k] + (i + w * lanes) * step[k]);
        result[w] = f(v);
      }
      StoreWhole<streamed()>(d, result, o + i);
    }
  };
  run.streamed ? map_wholes(std::true_type()) : map_wholes(std::false_type());
  map_parts(i, n);
}

// Kernels of functions of vectors.
#define NARROWS_MAP1(Name, expression)                                       \
  template <class S>                                                         \
  void Name(const Run& run) {                                                \
    using V = Vector<Accumulate<S>>;                                         \
    map_vectors<1, S>(run, [alpha = run.alpha](const V* v) HWY_ATTR {        \
      const V a = v[0], zero = set<V>(0), one = set<V>(1);                   \
      (void)alpha, (void)zero, (void)one;                                    \
      return expression;                                                     \
    });                                                                      \
  }
#define NARROWS_MAP2(Name, expression)                 \
  template <class S>                                   \
  void Name(const Run& run) {                          \
    using V = Vector<Accumulate<S>>;                   \
    map_vectors<2, S>(run, [](const V* v) HWY_ATTR {   \
      const V a = v[0], b = v[1];                      \
      return expression;                               \
    });                                                \
  }
#define NARROWS_MAP3(Name, expression)                 \
  template <class S>                                   \
  void Name(const Run& run) {                          \
    using V = Vector<Accumulate<S>>;                   \
    map_vectors<3, S>(run, [](const V* v) HWY_ATTR {   \
      const V a = v[0], b = v[1], c = v[2];            \
      return expression;                               \
    });                                                \
  }
NARROWS_MAP1(map_neg, hn::Neg(a))
NARROWS_MAP1(map_abs, hn::Abs(a))
NARROWS_MAP1(map_sign, sign_(a))
NARROWS_MAP1(map_square, hn::Mul(a, a))
NARROWS_MAP1(map_relu, pick(hn::Le(a, zero), zero, a))
NARROWS_MAP1(map_floor, hn::Floor(a))
NARROWS_MAP1(map_ceil, hn::Ceil(a))
NARROWS_MAP1(map_round, hn::Round(a))
NARROWS_MAP1(map_trunc, hn::Trunc(a))
NARROWS_MAP1(map_reciprocal, hn::Div(one, a))
NARROWS_MAP2(map_add, hn::Add(a, b))
NARROWS_MAP2(map_sub, hn::Sub(a, b))
NARROWS_MAP2(map_mul, hn::Mul(a, b))
NARROWS_MAP2(map_div, hn::Div(a, b))
NARROWS_MAP2(map_maximum, maximum_(a, b))
NARROWS_MAP2(map_minimum, minimum_(a, b))
NARROWS_MAP2(map_copysign, hn::CopySign(a, b))
NARROWS_MAP3(map_fma, hn::MulAdd(a, b, c))
NARROWS_MAP3(map_clamp, minimum_(maximum_(a, b), c))
NARROWS_MAP1(map_sqrt, hn::Sqrt(a))
NARROWS_MAP1(map_rsqrt, hn::Div(one, hn::Sqrt(a)))
NARROWS_MAP1(map_cbrt, sleef::cbrt_(a))
NARROWS_MAP1(map_exp, sleef::exp_(a))
NARROWS_MAP1(map_exp2, sleef::exp2_(a))
NARROWS_MAP1(map_expm1, sleef::expm1_(a))
NARROWS_MAP1(map_log, sleef::log_(a))
NARROWS_MAP1(map_log2, sleef::log2_(a))
NARROWS_MAP1(map_log10, sleef::log10_(a))
NARROWS_MAP1(map_log1p, log1p_(a))
NARROWS_MAP1(map_sin, sleef::sin_(a))
NARROWS_MAP1(map_cos, sleef::cos_(a))
NARROWS_MAP1(map_tan, sleef::tan_(a))
NARROWS_MAP1(map_asin, sleef::asin_(a))
NARROWS_MAP1(map_acos, sleef::acos_(a))
NARROWS_MAP1(map_atan, sleef::atan_(a))
NARROWS_MAP1(map_sinh, sinh_(a))
NARROWS_MAP1(map_cosh, cosh_(a))
NARROWS_MAP1(map_tanh, sleef::tanh_(a))
NARROWS_MAP1(map_asinh, asinh_(a))
NARROWS_MAP1(map_acosh, acosh_(a))
NARROWS_MAP1(map_atanh, sleef::atanh_(a))
NARROWS_MAP1(map_sigmoid, sigmoid(a))
NARROWS_MAP1(map_elu, elu(a, set<V>(alpha)))
NARROWS_MAP1(map_gelu, gelu(a))
NARROWS_MAP1(map_gelu_tanh, gelu_tanh(a))
NARROWS_MAP1(map_silu, silu(a))
NARROWS_MAP1(map_softplus, softplus(a))
NARROWS_MAP1(map_erf, sleef::erf_(a))
NARROWS_MAP1(map_erfc, sleef::erfc_(a))
NARROWS_MAP2(map_pow, pow_(a, b))
NARROWS_MAP2(map_atan2, sleef::atan2_(a, b))
NARROWS_MAP2(map_hypot, sleef::hypot_(a, b))
NARROWS_MAP2(map_fmod, fmod_(a, b))
NARROWS_MAP2(map_remainder, remainder_(a, b))
NARROWS_MAP2(map_logaddexp, logaddexp(a, b))
#undef NARROWS_MAP1
#undef NARROWS_MAP2
#undef NARROWS_MAP3

template <class S>
constexpr Entry kFloatKernels[] = {
    {NW_EW_NEG, map_neg<S>},
    {NW_EW_ABS, map_abs<S>},
    {NW_EW_SIGN, map_sign<S>},
    {NW_EW_SQUARE, map_square<S>},
    {NW_EW_RELU, map_relu<S>},
    {NW_EW_SQRT, map_sqrt<S>},
    {NW_EW_RSQRT, map_rsqrt<S>},
    {NW_EW_CBRT, map_cbrt<S>},
    {NW_EW_EXP, map_exp<S>},
    {NW_EW_EXP2, map_exp2<S>},
    {NW_EW_EXPM1, map_expm1<S>},
    {NW_EW_LOG, map_log<S>},
    {NW_EW_LOG2, map_log2<S>},
    {NW_EW_LOG10, map_log10<S>},
    {NW_EW_LOG1P, map_log1p<S>},
    {NW_EW_SIN, map_sin<S>},
    {NW_EW_COS, map_cos<S>},
    {NW_EW_TAN, map_tan<S>},
    {NW_EW_ASIN, map_asin<S>},
    {NW_EW_ACOS, map_acos<S>},
    {NW_EW_ATAN, map_atan<S>},
    {NW_EW_SINH, map_sinh<S>},
    {NW_EW_COSH, map_cosh<S>},
    {NW_EW_TANH, map_tanh<S>},
    {NW_EW_ASINH, map_asinh<S>},
    {NW_EW_ACOSH, map_acosh<S>},
    {NW_EW_ATANH, map_atanh<S>},
    {NW_EW_SIGMOID, map_sigmoid<S>},
    {NW_EW_ELU, map_elu<S>},
    {NW_EW_GELU, map_gelu<S>},
    {NW_EW_GELU_TANH, map_gelu_tanh<S>},
    {NW_EW_SILU, map_silu<S>},
    {NW_EW_SOFTPLUS, map_softplus<S>},
    {NW_EW_ERF, map_erf<S>},
    {NW_EW_ERFC, map_erfc<S>},
    {NW_EW_FLOOR, map_floor<S>},
    {NW_EW_CEIL, map_ceil<S>},
    {NW_EW_ROUND, map_round<S>},
    {NW_EW_TRUNC, map_trunc<S>},
    {NW_EW_RECIPROCAL, map_reciprocal<S>},
    {NW_EW_ADD, map_add<S>},
    {NW_EW_SUB, map_sub<S>},
    {NW_EW_MUL, map_mul<S>},
    {NW_EW_DIV, map_div<S>},
    {NW_EW_POW, map_pow<S>},
    {NW_EW_ATAN2, map_atan2<S>},
    {NW_EW_HYPOT, map_hypot<S>},
    {NW_EW_MAXIMUM, map_maximum<S>},
    {NW_EW_MINIMUM, map_minimum<S>},
    {NW_EW_FMOD, map_fmod<S>},
    {NW_EW_REMAINDER, map_remainder<S>},
    {NW_EW_COPYSIGN, map_copysign<S>},
    {NW_EW_LOGADDEXP, map_logaddexp<S>},
    {NW_EW_FMA, map_fma<S>},
    {NW_EW_CLAMP, map_clamp<S>},
};

template <class T>
Kernel float_lookup(int function) {
  const Kernel kernel = find_kernel(kFloatKernels<T>, function);
  return kernel != nullptr ? kernel : find_kernel(kPredicates<T>, function);
}

}  // namespace narrows::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
