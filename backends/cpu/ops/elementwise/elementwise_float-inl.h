// SPDX-License-Identifier: Apache-2.0
// elementwise_float-inl.h -- the kernels of elementwise for one floating-point type: vectors for what gives the same type, plain
// loops (elementwise_loops-inl.h) for what gives a bool.
#if defined(NARROWS_ELEMENTWISE_FLOAT_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef NARROWS_ELEMENTWISE_FLOAT_INL_H
#undef NARROWS_ELEMENTWISE_FLOAT_INL_H
#else
#define NARROWS_ELEMENTWISE_FLOAT_INL_H
#endif

#include "elementwise_fma-inl.h"
#include "elementwise_loops-inl.h"
#include "elementwise_map-inl.h"
#include "elementwise_math-inl.h"
#include "elementwise_sqrt-inl.h"

HWY_BEFORE_NAMESPACE();
namespace narrows::cpu::HWY_NAMESPACE {

#define NARROWS_BY_STORAGE(name)    \
  [&]() HWY_ATTR {                  \
    if constexpr (sizeof(S) == 2)   \
      return sleef::name##_half(a); \
    else                            \
      return sleef::name##_(a);     \
  }()
NARROWS_MAP1(map_sign, kShort, sign_(a))
NARROWS_MAP1(map_square, kShort, hn::Mul(a, a))
NARROWS_MAP1(map_relu, kShort, pick(hn::Le(a, set<V>(0)), set<V>(0), a))
NARROWS_MAP1(map_floor, kShort, rounded(a, hn::Floor(a)))
NARROWS_MAP1(map_ceil, kShort, rounded(a, hn::Ceil(a)))
NARROWS_MAP1(map_round, kShort, rounded(a, hn::Round(a)))
NARROWS_MAP1(map_trunc, kShort, rounded(a, hn::Trunc(a)))
NARROWS_MAP1(map_reciprocal, kShort, hn::Div(set<V>(1), a))
NARROWS_MAP2(map_mul, kShort, hn::Mul(a, b))
NARROWS_MAP2(map_div, kShort, hn::Div(a, b))
NARROWS_MAP2(map_maximum, kShort, maximum_(a, b))
NARROWS_MAP2(map_minimum, kShort, minimum_(a, b))
NARROWS_MAP2(map_copysign, kShort, hn::CopySign(a, b))
NARROWS_MAP3(map_fma, kShort, fma_<S>(a, b, c))
NARROWS_MAP3(map_clamp, kShort, minimum_(maximum_(a, b), c))
NARROWS_MAP1(map_sqrt, kLong, sqrt_(a))
NARROWS_MAP1(map_rsqrt, kShort, hn::Div(set<V>(1), hn::Sqrt(a)))
NARROWS_MAP1(map_cbrt, kLong, sleef::cbrt_(a))
NARROWS_MAP1(map_exp, kLong, exp_<S>(a))
NARROWS_MAP1(map_exp2, kLong, sleef::exp2_(a))
NARROWS_MAP1(map_expm1, kLong, expm1_(a))
NARROWS_MAP1(map_log, kLong, log_<S>(a))
NARROWS_MAP1(map_log2, kLong, sleef::log2_(a))
NARROWS_MAP1(map_log10, kLong, sleef::log10_(a))
NARROWS_MAP1(map_log1p, kLong, log1p_(a))
NARROWS_MAP1(map_sin, kLong, sin_<S>(a))
NARROWS_MAP1(map_cos, kLong, cos_<S>(a))
NARROWS_MAP1(map_tan, kLong, tan_<S>(a))
NARROWS_MAP1(map_asin, kLong, NARROWS_BY_STORAGE(asin))
NARROWS_MAP1(map_acos, kLong, NARROWS_BY_STORAGE(acos))
NARROWS_MAP1(map_atan, kLong, NARROWS_BY_STORAGE(atan))
NARROWS_MAP1(map_sinh, kLong, sinh_(a))
NARROWS_MAP1(map_cosh, kLong, cosh_(a))
NARROWS_MAP1(map_tanh, kLong, tanh_<S>(a))
NARROWS_MAP1(map_asinh, kLong, asinh_(a))
NARROWS_MAP1(map_acosh, kLong, acosh_(a))
NARROWS_MAP1(map_atanh, kLong, sleef::atanh_(a))
NARROWS_MAP1(map_sigmoid, kLong, sigmoid<S>(a))
NARROWS_MAP1(map_elu, kLong, elu(a, set<V>(alpha)))
NARROWS_MAP1(map_gelu, kLong, gelu<S>(a))
NARROWS_MAP1(map_gelu_tanh, kLong, gelu_tanh(a))
NARROWS_MAP1(map_silu, kLong, silu(a))
NARROWS_MAP1(map_softplus, kLong, softplus(a))
NARROWS_MAP1(map_erf, kLong, erf_<S>(a))
NARROWS_MAP1(map_erfc, kLong, sleef::erfc_(a))
NARROWS_MAP1(map_sinc, kLong, sinc<S>(a))
NARROWS_MAP2(map_pow, kLong, pow_<S>(a, b))
NARROWS_MAP2(map_atan2, kLong, sleef::atan2_(a, b))
NARROWS_MAP2(map_hypot, kLong, sleef::hypot_(a, b))
NARROWS_MAP2(map_fmod, kLong, fmod_(a, b))
NARROWS_MAP2(map_remainder, kLong, remainder_(a, b))
NARROWS_MAP2(map_logaddexp, kLong, logaddexp(a, b))
#undef NARROWS_BY_STORAGE

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
    {NW_EW_SINC, map_sinc<S>},
};

template <class T>
Kernel float_lookup(int function) {
  const Kernel kernel = find_kernel(kFloatKernels<T>, function);
  return kernel != nullptr ? kernel : find_kernel(kPredicates<T>, function);
}

}  // namespace narrows::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
