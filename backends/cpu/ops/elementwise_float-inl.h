// elementwise_float-inl.h -- the kernels of elementwise for one floating-point type: plain loops where one line says it all
// (elementwise_loops-inl.h), vectors for the rest. Step 5 of a tensor's path.
#if defined(NARROWS_ELEMENTWISE_FLOAT_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef NARROWS_ELEMENTWISE_FLOAT_INL_H
#undef NARROWS_ELEMENTWISE_FLOAT_INL_H
#else
#define NARROWS_ELEMENTWISE_FLOAT_INL_H
#endif

#include "elementwise_loops-inl.h"
#include "elementwise_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace narrows::cpu::HWY_NAMESPACE {

// Applies f(inputs as vectors, alpha) from left to right; the last elements go through a vector's worth of stack.
template <size_t Inputs, class T, class F>
HWY_INLINE void map_vectors(const void* const* in, void* out, int64_t n, F f) {
  constexpr Tag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const T* a[Inputs];
  for (size_t k = 0; k < Inputs; ++k) a[k] = static_cast<const T*>(in[k]);
  T* o = static_cast<T*>(out);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    Vector<T> v[Inputs];
    for (size_t k = 0; k < Inputs; ++k) v[k] = hn::LoadU(d, a[k] + i);
    hn::StoreU(f(v), d, o + i);
  }
  if (i == n) return;
  HWY_ALIGN T last[HWY_LANES(T)] = {};
  Vector<T> v[Inputs];
  for (size_t k = 0; k < Inputs; ++k) {
    std::copy(a[k] + i, a[k] + n, last);
    v[k] = hn::Load(d, last);
  }
  hn::Store(f(v), d, last);
  std::copy(last, last + (n - i), o + i);
}

// Kernels of functions of vectors.
#define NARROWS_MAP1(Name, expression)                                   \
  template <class T>                                                     \
  void Name(const void* const* in, void* out, int64_t n, double alpha) { \
    (void)alpha;                                                         \
    map_vectors<1, T>(in, out, n, [alpha](const Vector<T>* v) HWY_ATTR { \
      const Vector<T> a = v[0];                                          \
      (void)alpha;                                                       \
      return expression;                                                 \
    });                                                                  \
  }
#define NARROWS_MAP2(Name, expression)                              \
  template <class T>                                                \
  void Name(const void* const* in, void* out, int64_t n, double) {  \
    map_vectors<2, T>(in, out, n, [](const Vector<T>* v) HWY_ATTR { \
      const Vector<T> a = v[0], b = v[1];                           \
      return expression;                                            \
    });                                                             \
  }
NARROWS_MAP1(map_sqrt, hn::Sqrt(a))
NARROWS_MAP1(map_rsqrt, hn::Div(set<Vector<T>>(1), hn::Sqrt(a)))
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
NARROWS_MAP1(map_elu, elu(a, set<Vector<T>>(alpha)))
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

NARROWS_UNARY(Floor, T, { return std::floor(a); })
NARROWS_UNARY(Ceil, T, { return std::ceil(a); })
NARROWS_UNARY(Round, T, { return std::nearbyint(a); })
NARROWS_UNARY(Trunc, T, { return std::trunc(a); })
NARROWS_UNARY(Reciprocal, T, { return 1 / a; })
NARROWS_UNARY(IsInf, bool, { return std::abs(a) == std::numeric_limits<T>::infinity(); })
NARROWS_UNARY(IsFinite, bool, { return std::abs(a) < std::numeric_limits<T>::infinity(); })
NARROWS_BINARY(Divide, T, { return a / b; })
NARROWS_BINARY(CopySign, T, { return std::copysign(a, b); })

// What floating point has beyond kLoops.
template <class T>
constexpr Entry kFloatKernels[] = {
    {NW_EW_SQRT, map_sqrt<T>},
    {NW_EW_RSQRT, map_rsqrt<T>},
    {NW_EW_CBRT, map_cbrt<T>},
    {NW_EW_EXP, map_exp<T>},
    {NW_EW_EXP2, map_exp2<T>},
    {NW_EW_EXPM1, map_expm1<T>},
    {NW_EW_LOG, map_log<T>},
    {NW_EW_LOG2, map_log2<T>},
    {NW_EW_LOG10, map_log10<T>},
    {NW_EW_LOG1P, map_log1p<T>},
    {NW_EW_SIN, map_sin<T>},
    {NW_EW_COS, map_cos<T>},
    {NW_EW_TAN, map_tan<T>},
    {NW_EW_ASIN, map_asin<T>},
    {NW_EW_ACOS, map_acos<T>},
    {NW_EW_ATAN, map_atan<T>},
    {NW_EW_SINH, map_sinh<T>},
    {NW_EW_COSH, map_cosh<T>},
    {NW_EW_TANH, map_tanh<T>},
    {NW_EW_ASINH, map_asinh<T>},
    {NW_EW_ACOSH, map_acosh<T>},
    {NW_EW_ATANH, map_atanh<T>},
    {NW_EW_SIGMOID, map_sigmoid<T>},
    {NW_EW_ELU, map_elu<T>},
    {NW_EW_GELU, map_gelu<T>},
    {NW_EW_GELU_TANH, map_gelu_tanh<T>},
    {NW_EW_SILU, map_silu<T>},
    {NW_EW_SOFTPLUS, map_softplus<T>},
    {NW_EW_ERF, map_erf<T>},
    {NW_EW_ERFC, map_erfc<T>},
    {NW_EW_FLOOR, loop<T, Floor>},
    {NW_EW_CEIL, loop<T, Ceil>},
    {NW_EW_ROUND, loop<T, Round>},
    {NW_EW_TRUNC, loop<T, Trunc>},
    {NW_EW_RECIPROCAL, loop<T, Reciprocal>},
    {NW_EW_ISNAN, loop<T, IsNan>},
    {NW_EW_ISINF, loop<T, IsInf>},
    {NW_EW_ISFINITE, loop<T, IsFinite>},
    {NW_EW_DIV, loop<T, Divide>},
    {NW_EW_POW, map_pow<T>},
    {NW_EW_ATAN2, map_atan2<T>},
    {NW_EW_HYPOT, map_hypot<T>},
    {NW_EW_FMOD, map_fmod<T>},
    {NW_EW_REMAINDER, map_remainder<T>},
    {NW_EW_COPYSIGN, loop<T, CopySign>},
    {NW_EW_LOGADDEXP, map_logaddexp<T>},
};

template <class T>
Kernel float_lookup(int function) {
  const Kernel kernel = find_kernel(kLoops<T>, function);
  return kernel != nullptr ? kernel : find_kernel(kFloatKernels<T>, function);
}

}  // namespace narrows::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
