// SPDX-License-Identifier: Apache-2.0
// convert-inl.h -- vectors of accumulators from and to memory of any dtype, alignment and stride. Compiled once per instruction
// set.
#if defined(NARROWS_CPU_CONVERT_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef NARROWS_CPU_CONVERT_INL_H
#undef NARROWS_CPU_CONVERT_INL_H
#else
#define NARROWS_CPU_CONVERT_INL_H
#endif

#include <hwy/highway.h>

#include "float_types.h"

HWY_BEFORE_NAMESPACE();
namespace narrows::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// True where the CPU itself converts f16. Elsewhere integer instructions do.
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128 || (HWY_ARCH_X86 && HWY_TARGET >= HWY_SSE4)
inline constexpr bool kHasF16 = false;
#else
inline constexpr bool kHasF16 = true;
#endif

template <class D>
using HalfBits = hn::Rebind<uint16_t, D>;

template <class D>
HWY_INLINE hn::Vec<D> WidenF16(D d, hn::Vec<HalfBits<D>> half) {
  if constexpr (kHasF16) {
    return hn::PromoteTo(d, hn::BitCast(hn::Rebind<hwy::float16_t, D>(), half));
  } else {
    const hn::RebindToSigned<D> di;
    const auto bits = hn::BitCast(di, hn::PromoteTo(hn::RebindToUnsigned<D>(), half));
    const auto magnitude = hn::ShiftLeft<13>(hn::And(bits, hn::Set(di, 0x7fff)));
    const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(di, 0x8000)));
    const auto scaled = hn::BitCast(di, hn::Mul(hn::BitCast(d, magnitude), hn::Set(d, 0x1p112f)));
    const auto special = hn::Gt(magnitude, hn::Set(di, 0x0f7fffff));
    return hn::BitCast(d, hn::Or(sign, hn::IfThenElse(special, hn::Or(magnitude, hn::Set(di, 0x7f800000)), scaled)));
  }
}

template <class D>
HWY_INLINE hn::Vec<HalfBits<D>> NarrowF16(D d, hn::Vec<D> x) {
  if constexpr (kHasF16) {
    return hn::BitCast(HalfBits<D>(), hn::DemoteTo(hn::Rebind<hwy::float16_t, D>(), x));
  } else {
    const hn::RebindToSigned<D> di;
    const auto bits = hn::BitCast(di, x);
    const auto magnitude = hn::And(bits, hn::Set(di, 0x7fffffff));
    const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(di, 1));
    const auto normal = hn::ShiftRight<13>(hn::Add(hn::Sub(magnitude, hn::Set(di, 0x37fff001)), odd));
    const auto subnormal = hn::Sub(hn::BitCast(di, hn::Add(hn::BitCast(d, magnitude), hn::Set(d, 0.5f))), hn::Set(di, 0x3f000000));
    const auto payload = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(di, 0x3ff));
    const auto nan = hn::Gt(magnitude, hn::Set(di, 0x7f800000));
    const auto special = hn::IfThenElse(nan, hn::Or(payload, hn::Set(di, 0x7e00)), hn::Set(di, 0x7c00));
    const auto finite = hn::IfThenElse(hn::Lt(magnitude, hn::Set(di, 0x38800000)), subnormal, normal);
    const auto half = hn::IfThenElse(hn::Gt(magnitude, hn::Set(di, 0x477fffff)), special, finite);
    const auto sign = hn::And(hn::BitCast(di, hn::ShiftRight<16>(hn::BitCast(hn::RebindToUnsigned<D>(), x))), hn::Set(di, 0x8000));
    return hn::DemoteTo(HalfBits<D>(), hn::Or(half, sign));
  }
}

// Rounded to bf16, which are the upper halves of the lanes.
template <class D>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> RoundBF16(D d, hn::Vec<D> x) {
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::BitCast(du, x);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  const auto rounded = hn::Add(hn::Add(bits, hn::Set(du, 0x7fffu)), odd);
  // Ne(x, x) would not do: on x86 Highway's is false for NaN.
  return hn::BitCast(du,
                     hn::IfThenElse(hn::IsNaN(x), hn::BitCast(d, hn::Or(bits, hn::Set(du, 0x400000u))), hn::BitCast(d, rounded)));
}
template <class D>
HWY_INLINE hn::Vec<HalfBits<D>> NarrowBF16(D d, hn::Vec<D> x) {
  const hn::RebindToSigned<D> di;
  return hn::DemoteTo(HalfBits<D>(), hn::BitCast(di, hn::ShiftRight<16>(RoundBF16(d, x))));
}

// Lanes(d) elements of T, given by their bits.
template <class T, class D>
HWY_INLINE hn::Vec<D> Widen(D d, hn::Vec<hn::Rebind<hwy::UnsignedFromSize<sizeof(T)>, D>> bits) {
  if constexpr (std::is_same_v<T, f16>) {
    return WidenF16(d, bits);
  } else if constexpr (std::is_same_v<T, bf16>) {
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(hn::RebindToUnsigned<D>(), bits)));
  } else {
    return hn::BitCast(d, bits);
  }
}

// Lanes(d) contiguous elements at p.
template <class D, class T>
HWY_INLINE hn::Vec<D> LoadAs(D d, const T* p) {
#if HWY_TARGET == HWY_SCALAR
  return hn::Set(d, read(p));  // its LoadU wants the alignment of an element
#else
  using Bits = hwy::UnsignedFromSize<sizeof(T)>;
  return Widen<T>(d, hn::LoadU(hn::Rebind<Bits, D>(), reinterpret_cast<const Bits*>(p)));
#endif
}
template <class D, class T>
HWY_INLINE void StoreAs(D d, hn::Vec<D> x, T* p) {
#if HWY_TARGET == HWY_SCALAR
  (void)d;
  write(p, hn::GetLane(x));
#else
  if constexpr (std::is_same_v<T, f16>) {
    hn::StoreU(NarrowF16(d, x), HalfBits<D>(), reinterpret_cast<uint16_t*>(p));
  } else if constexpr (std::is_same_v<T, bf16>) {
    hn::StoreU(NarrowBF16(d, x), HalfBits<D>(), reinterpret_cast<uint16_t*>(p));
  } else {
    hn::StoreU(x, d, p);
  }
#endif
}

// A whole vector of memory: two of d's for f16 and bf16, else one.
template <class T>
inline constexpr int64_t kVectorsStored = HWY_TARGET != HWY_SCALAR && sizeof(T) < sizeof(Accumulate<T>) ? 2 : 1;

// Stores x[0 .. kVectorsStored). `streamed`: past the caches; p is aligned to what is stored.
template <class D, class T>
HWY_INLINE void StoreWhole(D d, const hn::Vec<D>* x, T* p, bool streamed) {
#if HWY_TARGET == HWY_SCALAR
  (void)streamed;
  StoreAs(d, x[0], p);
#else
  if constexpr (kVectorsStored<T> == 2) {
    const hn::Repartition<uint16_t, D> du;
    hn::Vec<decltype(du)> halves;
    if constexpr (std::is_same_v<T, f16>)
      halves = hn::Combine(du, NarrowF16(d, x[1]), NarrowF16(d, x[0]));
    else
      halves = hn::ConcatOdd(du, hn::BitCast(du, RoundBF16(d, x[1])), hn::BitCast(du, RoundBF16(d, x[0])));
    auto* bits = reinterpret_cast<uint16_t*>(p);
    streamed ? hn::Stream(halves, du, bits) : hn::StoreU(halves, du, bits);
  } else {
    const hn::Vec<D> whole = x[0];
    streamed ? hn::Stream(whole, d, p) : hn::StoreU(whole, d, p);
  }
#endif
}

// The first `count` elements at p[0], p[stride], ...; the lanes past them are 0.
template <class D, class T>
HWY_INLINE hn::Vec<D> LoadStrided(D d, const T* p, int64_t stride, int64_t count) {
  if (stride == 1 && count == static_cast<int64_t>(hn::Lanes(d))) return LoadAs(d, p);
  HWY_ALIGN hn::TFromD<D> lanes[hn::MaxLanes(D())] = {};
  for (int64_t i = 0; i < count; ++i) lanes[i] = read(p + i * stride);
  return hn::Load(d, lanes);
}
template <class D, class T>
HWY_INLINE void StoreStrided(D d, hn::Vec<D> x, T* p, int64_t stride, int64_t count) {
  if (stride == 1 && count == static_cast<int64_t>(hn::Lanes(d))) return StoreAs(d, x, p);
  HWY_ALIGN hn::TFromD<D> lanes[hn::MaxLanes(D())];
  hn::Store(x, d, lanes);
  for (int64_t i = 0; i < count; ++i) write(p + i * stride, lanes[i]);
}

// `count` elements at any stride, to and from a contiguous row of accumulators.
template <class T>
HWY_INLINE void LoadRow(const T* p, int64_t stride, int64_t count, Accumulate<T>* row) {
  const hn::ScalableTag<Accumulate<T>> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  if (stride == 1) {
    for (; i + lanes <= count; i += lanes) hn::StoreU(LoadAs(d, p + i), d, row + i);
#if HWY_TARGET != HWY_SCALAR
  } else if (stride == 2) {
    // Two vectors have one element more than is wanted: the last one may lie outside, so it stays in the loop below.
    for (; i + lanes < count; i += lanes)
      hn::StoreU(hn::ConcatEven(d, LoadAs(d, p + 2 * i + lanes), LoadAs(d, p + 2 * i)), d, row + i);
#endif
  }
  for (; i < count; ++i) row[i] = read(p + i * stride);
}
template <class T>
HWY_INLINE void StoreRow(const Accumulate<T>* row, int64_t count, T* p, int64_t stride) {
  const hn::ScalableTag<Accumulate<T>> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  if (stride == 1)
    for (; i + lanes <= count; i += lanes) StoreAs(d, hn::LoadU(d, row + i), p + i);
  for (; i < count; ++i) write(p + i * stride, row[i]);
}

}  // namespace narrows::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
