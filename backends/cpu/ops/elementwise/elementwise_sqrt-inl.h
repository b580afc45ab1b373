// SPDX-License-Identifier: Apache-2.0
// elementwise_sqrt-inl.h -- the square root, correctly rounded.
#if defined(NARROWS_ELEMENTWISE_SQRT_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef NARROWS_ELEMENTWISE_SQRT_INL_H
#undef NARROWS_ELEMENTWISE_SQRT_INL_H
#else
#define NARROWS_ELEMENTWISE_SQRT_INL_H
#endif

#include <hwy/highway.h>

#if HWY_TARGET == HWY_AVX3
#include <immintrin.h>
#endif

HWY_BEFORE_NAMESPACE();
namespace narrows::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_AVX3
// 14 bits of 1/sqrt(a).
HWY_INLINE hn::Vec512<float> near_rsqrt(hn::Vec512<float> a) { return hn::Vec512<float>{_mm512_rsqrt14_ps(a.raw)}; }
HWY_INLINE hn::Vec512<double> near_rsqrt(hn::Vec512<double> a) { return hn::Vec512<double>{_mm512_rsqrt14_pd(a.raw)}; }

// The instruction takes more than twice as long. Goldschmidt's iteration, and a step of Newton's whose only rounding is the
// result's (P. Markstein, "Computation of elementary functions on the IBM RISC System/6000 processor", 1990): the same bits as the
// instruction's where no remainder underflows. tests/python/test_numpy.py looks at every mantissa of f32, and at f64's hardest.
template <class V>
HWY_INLINE V sqrt_(V a) {
  using T = hn::TFromV<V>;
  constexpr bool kWide = sizeof(T) == 8;
  const hn::ScalableTag<T> d;
  const V half = hn::Set(d, T{0.5}), least = hn::Set(d, kWide ? static_cast<T>(0x1p-900) : static_cast<T>(0x1p-90)),
          most = hn::Set(d, hwy::HighestValue<T>());
  if (HWY_UNLIKELY(!hn::AllTrue(d, hn::And(hn::Ge(a, least), hn::Le(a, most))))) return hn::Sqrt(a);
  const V y = near_rsqrt(a);
  V root = hn::Mul(a, y), slope = hn::Mul(y, half);  // of sqrt(a), of 1/(2 sqrt(a))
  for (int i = 0; i < (kWide ? 2 : 1); ++i) {
    const V error = hn::NegMulAdd(root, slope, half);
    root = hn::MulAdd(root, error, root);
    slope = hn::MulAdd(slope, error, slope);
  }
  return hn::MulAdd(hn::NegMulAdd(root, root, a), slope, root);
}
#else
template <class V>
HWY_INLINE V sqrt_(V a) {
  return hn::Sqrt(a);
}
#endif

}  // namespace narrows::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
