// SPDX-License-Identifier: Apache-2.0
// elementwise_fma-inl.h -- a*b + c, rounded once to the type that it is stored in.
#if defined(NARROWS_ELEMENTWISE_FMA_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef NARROWS_ELEMENTWISE_FMA_INL_H
#undef NARROWS_ELEMENTWISE_FMA_INL_H
#else
#define NARROWS_ELEMENTWISE_FMA_INL_H
#endif

#include <hwy/highway.h>

#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

#include "ops/float_types.h"

HWY_BEFORE_NAMESPACE();
namespace narrows::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// A function of libm, lane by lane.
template <class V, class F>
HWY_INLINE V per_lane(V a, V b, V c, F f) {
  using T = hn::TFromV<V>;
  constexpr hn::ScalableTag<T> d;
  HWY_ALIGN T x[HWY_LANES(T)], y[HWY_LANES(T)], z[HWY_LANES(T)];
  hn::Store(a, d, x);
  hn::Store(b, d, y);
  hn::Store(c, d, z);
  for (size_t i = 0; i < hn::Lanes(d); ++i) z[i] = f(x[i], y[i], z[i]);
  return hn::Load(d, z);
}

// Numbers of 16 bits are multiplied and added as f32. Their sum rounds a second time when it is stored. That goes wrong only where
// the first rounding has made a tie: there the sum is moved by a bit towards what was lost.

// Sums that may be ties between two numbers of S; of those too small for a normal f16, all. Without fused instructions a product of
// bf16 may have overflowed, or have become 0, by itself.
template <class S, class V>
HWY_INLINE auto may_be_tie(V sum) {
  constexpr hn::ScalableTag<float> d;
  constexpr hn::RebindToUnsigned<decltype(d)> du;
  constexpr uint32_t kBelow = std::is_same_v<S, f16> ? 0x1fff : 0xffff;  // the bits that S has no room for
  const auto is_half = hn::Eq(hn::And(hn::BitCast(du, sum), hn::Set(du, kBelow)), hn::Set(du, (kBelow + 1) / 2));
  const auto tie = hn::RebindMask(d, is_half);
  const V size = hn::Abs(sum);
  if constexpr (std::is_same_v<S, f16>)
    return hn::Or(tie, hn::Lt(size, hn::Set(d, 0x1p-14f)));
  else if constexpr (!HWY_NATIVE_FMA)
    return hn::Or(tie, hn::Not(hn::And(hn::Gt(size, hn::Zero(d)), hn::Le(size, hn::Set(d, hwy::HighestValue<float>())))));
  else
    return tie;
}
// `sum` is what was rounded to nearest; `lost` has the sign of what it lacks. If it ends with a 0, the neighbour on that side.
template <class V>
HWY_INLINE V moved_towards(V sum, V lost) {
  constexpr hn::ScalableTag<float> d;
  constexpr hn::RebindToSigned<decltype(d)> di;
  const V zero = hn::Zero(d);
  const auto bits = hn::BitCast(di, sum), one = hn::Set(di, 1);
  const auto is_even = hn::RebindMask(d, hn::Eq(hn::And(bits, one), hn::Zero(di)));
  const auto inwards = hn::BroadcastSignBit(hn::BitCast(di, hn::Xor(sum, lost)));  // -1 where the signs differ
  const V moved = hn::BitCast(d, hn::Add(bits, hn::Or(inwards, one)));
  return hn::IfThenElse(hn::And(is_even, hn::Or(hn::Lt(lost, zero), hn::Gt(lost, zero))), moved, sum);
}
// The same for any product of bf16, which f64 holds.
inline float odd_sum(float a, float b, float c) {
  const double product = static_cast<double>(a) * static_cast<double>(b), addend = static_cast<double>(c), sum = product + addend;
  const float rounded = static_cast<float>(sum);
  if (!(std::abs(rounded) <= hwy::HighestValue<float>())) return rounded;
  const double back = sum - product, low = (product - (sum - back)) + (addend - back);
  const double lost = (sum - static_cast<double>(rounded)) + low;
  if (lost == 0 || (std::bit_cast<uint32_t>(rounded) & 1) != 0) return rounded;
  return std::nextafter(rounded, lost < 0 ? -std::numeric_limits<float>::infinity() : std::numeric_limits<float>::infinity());
}
template <class S, class V>
HWY_NOINLINE V mended_sum(V a, V b, V c, V sum) {
  constexpr hn::ScalableTag<float> d;
  const V product = hn::Mul(a, b), back = hn::Sub(sum, product);
  const V mended = moved_towards(sum, hn::Add(hn::Sub(product, hn::Sub(sum, back)), hn::Sub(c, back)));
  if constexpr (std::is_same_v<S, f16>) return mended;
  const V size = hn::Abs(product);
  const auto is_exact = hn::And(hn::Ge(size, hn::Set(d, 0x1p-100f)), hn::Le(size, hn::Set(d, 0x1p127f)));
  if (hn::AllTrue(d, is_exact)) return mended;
  return hn::IfThenElse(is_exact, mended, per_lane(a, b, c, odd_sum));
}

template <class S, class V>
HWY_INLINE V fma_(V a, V b, V c) {
  if constexpr (sizeof(S) == 2) {
    const V sum = HWY_NATIVE_FMA ? hn::MulAdd(a, b, c) : hn::Add(hn::Mul(a, b), c);
    const auto tie = may_be_tie<S>(sum);
    if (HWY_LIKELY(hn::AllFalse(hn::ScalableTag<float>(), tie))) return sum;
    return hn::IfThenElse(tie, mended_sum<S>(a, b, c, sum), sum);
  } else if constexpr (HWY_NATIVE_FMA) {
    return hn::MulAdd(a, b, c);
  } else {
    return per_lane(a, b, c, [](auto x, auto y, auto z) { return std::fma(x, y, z); });
  }
}

}  // namespace narrows::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
