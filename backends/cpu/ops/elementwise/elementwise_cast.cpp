// SPDX-License-Identifier: Apache-2.0
// elementwise_cast.cpp -- every dtype to every other: the function `cast`, and how f16 and bf16 reach f32 and return.
// One rounding, to nearest even; to an integer saturating, NaN to 0; to bool x != 0.
#include "targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/elementwise/elementwise_cast.cpp"
#include <hwy/foreach_target.h>

#include <bit>
#include <tuple>
#include <utility>

#include "elementwise_loops-inl.h"
#include "ops/convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace narrows::cpu::HWY_NAMESPACE {

// ---- one element between two of the types that C++ has ----

struct Bool {
  uint8_t byte;
};

template <class To, class From>
HWY_INLINE To float_to_int(From x) {
  constexpr To least = std::numeric_limits<To>::min(), most = std::numeric_limits<To>::max();
  constexpr From low = static_cast<From>(least), high = static_cast<From>(uint64_t{1} << (std::numeric_limits<To>::digits - 1)) * 2;
  const From inside = x > low && x < high ? x : From{0};
  const To whole = static_cast<To>(inside);
  return x >= high ? most : x <= low ? least : whole;
}

template <class To, class From>
HWY_INLINE To int_to_int(From x) {
  constexpr To least = std::numeric_limits<To>::min(), most = std::numeric_limits<To>::max();
  if constexpr (std::is_signed_v<From> == std::is_signed_v<To>) {
    if constexpr (sizeof(From) > sizeof(To)) return static_cast<To>(x < least ? From{least} : x > most ? From{most} : x);
    return static_cast<To>(x);
  } else if constexpr (std::is_signed_v<From>) {
    const auto positive = static_cast<std::make_unsigned_t<From>>(x < 0 ? From{0} : x);
    return int_to_int<To>(positive);
  } else {
    if constexpr (sizeof(From) >= sizeof(To)) return static_cast<To>(x > static_cast<From>(most) ? static_cast<From>(most) : x);
    return static_cast<To>(x);
  }
}

template <class To, class From>
HWY_INLINE To cast_element(From x) {
  if constexpr (std::is_same_v<From, Bool>)
    return cast_element<To>(static_cast<uint8_t>(x.byte != 0));
  else if constexpr (std::is_same_v<To, Bool>)
    return Bool{static_cast<uint8_t>(x != 0)};
  else if constexpr (std::is_floating_point_v<To>)
    return static_cast<To>(x);
  else if constexpr (std::is_floating_point_v<From>)
    return float_to_int<To>(x);
  else
    return int_to_int<To>(x);
}

template <class From, class To>
HWY_NOINLINE void cast_loop(const void* const* in, void* out, int64_t n) {
  const auto* a = static_cast<const From*>(in[0]);
  auto* o = static_cast<To*>(out);
  NARROWS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) o[i] = cast_element<To>(a[i]);
}

template <size_t Size>
HWY_NOINLINE void copy_loop(const void* const* in, void* out, int64_t n) {
  if (in[0] != out) std::memcpy(out, in[0], static_cast<size_t>(n) * Size);
}

// ---- halves and f32 ----

template <class Half>
HWY_NOINLINE void narrow_all(const float* a, Half* o, int64_t n) {
  constexpr hn::ScalableTag<float> d;
  constexpr int64_t kWhole = kVectorsStored<Half>;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + kWhole * lanes <= n; i += kWhole * lanes) {
    hn::Vec<decltype(d)> x[kWhole];
    for (int64_t w = 0; w < kWhole; ++w) x[w] = hn::LoadU(d, a + i + w * lanes);
    StoreWhole(d, x, o + i, false);
  }
  for (; i < n; ++i) write(o + i, a[i]);
}

// ---- halves and the rest, by f32 ----

// A number that rounds to Half as x does, and that f32 holds: what is cut off is kept as a last bit that is set, two bits below
// those that Half has.
template <class Half>
HWY_INLINE float to_odd_float(double x) {
  constexpr int kKept = (std::is_same_v<Half, f16> ? 10 : 7) + 2;
  constexpr uint64_t kUnit = uint64_t{1} << (52 - kKept), kCut = kUnit - 1;
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  return static_cast<float>(std::bit_cast<double>((bits & ~kCut) | (((bits & kCut) + kCut) & kUnit)));
}
template <class Half, class From>
HWY_INLINE float to_odd_float(From x) {
  if constexpr (std::is_same_v<From, Bool>) {
    return x.byte != 0 ? 1.0f : 0.0f;
  } else if constexpr (sizeof(From) <= 2) {
    return static_cast<float>(x);
  } else if constexpr (std::is_same_v<From, int32_t>) {  // below 2^24 exact; from there on a multiple of 128, odd if it is not x
    const int32_t odd = (x & ~127) | (((x & 127) + 127) & 128);
    return static_cast<float>(static_cast<uint32_t>(x) + (1u << 24) > (1u << 25) ? odd : x);
  } else if constexpr (sizeof(From) == 4) {
    return to_odd_float<Half>(static_cast<double>(x));
  } else {  // 53 bits at most, the last one odd if any below it is set
    constexpr From exact = From{1} << 53;
    const bool wide = std::is_signed_v<From> ? x > exact || x < From{0} - exact : x > exact;
    const From odd = static_cast<From>((x & ~From{2047}) | ((x & 2047) != 0 ? From{2048} : From{0}));
    return to_odd_float<Half>(static_cast<double>(wide ? odd : x));
  }
}

constexpr int64_t kHalfPiece = 512;

template <class Half, class To>
HWY_NOINLINE void widen_loop(const void* const* in, void* out, int64_t n) {
  const Half* a = static_cast<const Half*>(in[0]);
  To* o = static_cast<To*>(out);
  if constexpr (std::is_same_v<To, float>) return LoadRow(a, 1, n, o);
  alignas(64) float piece[kHalfPiece];
  for (int64_t i = 0; i < n; i += kHalfPiece) {
    const int64_t size = std::min(kHalfPiece, n - i);
    LoadRow(a + i, 1, size, piece);
    const void* from = piece;
    cast_loop<float, To>(&from, o + i, size);
  }
}

template <class From, class Half>
HWY_NOINLINE void narrow_loop(const void* const* in, void* out, int64_t n) {
  const From* a = static_cast<const From*>(in[0]);
  Half* o = static_cast<Half*>(out);
  if constexpr (std::is_same_v<From, float>) return narrow_all(a, o, n);
  alignas(64) float piece[kHalfPiece];
  for (int64_t i = 0; i < n; i += kHalfPiece) {
    const int64_t size = std::min(kHalfPiece, n - i);
    NARROWS_INDEPENDENT
    for (int64_t j = 0; j < size; ++j) piece[j] = to_odd_float<Half>(a[i + j]);
    narrow_all(piece, o + i, size);
  }
}

template <class From, class To>
HWY_NOINLINE void half_loop(const void* const* in, void* out, int64_t n) {
  const From* a = static_cast<const From*>(in[0]);
  To* o = static_cast<To*>(out);
  alignas(64) float piece[kHalfPiece];
  for (int64_t i = 0; i < n; i += kHalfPiece) {
    const int64_t size = std::min(kHalfPiece, n - i);
    LoadRow(a + i, 1, size, piece);
    narrow_all(piece, o + i, size);
  }
}

// ---- floating point to integers, by vectors ----

// To int32, or int64 from f64: Highway's conversions saturate; those that it emulates do not at every limit, and
// there the plain loop does all.
template <class From, class To>
HWY_NOINLINE void whole_loop(const void* const* in, void* out, int64_t n) {
  const From* a = static_cast<const From*>(in[0]);
  To* o = static_cast<To*>(out);
  int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  using T = Accumulate<From>;
  constexpr hn::ScalableTag<T> d;
  constexpr hn::Rebind<To, decltype(d)> di;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (; i + lanes <= n; i += lanes) {
    const auto x = LoadAs(d, a + i), number = hn::IfThenZeroElse(hn::IsNaN(x), x);
    if constexpr (sizeof(To) < sizeof(T))
      hn::StoreU(hn::DemoteTo(di, number), di, o + i);
    else
      hn::StoreU(hn::ConvertTo(di, number), di, o + i);
  }
#endif
  for (; i < n; ++i) o[i] = cast_element<To>(read(a + i));
}

// To what is narrower than int32, of which saturating twice is saturating once.
template <class From, class To>
HWY_NOINLINE void small_loop(const void* const* in, void* out, int64_t n) {
  alignas(64) int32_t piece[kHalfPiece];
  for (int64_t i = 0; i < n; i += kHalfPiece) {
    const int64_t size = std::min(kHalfPiece, n - i);
    const void *from = static_cast<const From*>(in[0]) + i, *whole = piece;
    whole_loop<From, int32_t>(&from, piece, size);
    cast_loop<int32_t, To>(&whole, static_cast<To*>(out) + i, size);
  }
}

// ---- the table ----

template <class T>
constexpr bool is_half = std::is_same_v<T, f16> || std::is_same_v<T, bf16>;

template <class From, class To>
constexpr Loop choose_cast() {
  if constexpr (std::is_same_v<From, To> && !std::is_same_v<From, Bool>)
    return copy_loop<sizeof(From)>;
  else if constexpr (is_half<From> && is_half<To>)
    return half_loop<From, To>;
  else if constexpr ((is_half<From> || std::is_floating_point_v<From>) && std::is_same_v<To, int32_t>)
    return whole_loop<From, To>;
  else if constexpr (std::is_same_v<From, double> && std::is_same_v<To, int64_t>)
    return whole_loop<From, To>;
  else if constexpr ((is_half<From> || std::is_floating_point_v<From>) && std::is_integral_v<To> && sizeof(To) <= 2)
    return small_loop<From, To>;
  else if constexpr (is_half<From>)
    return widen_loop<From, To>;
  else if constexpr (is_half<To>)
    return narrow_loop<From, To>;
  else
    return cast_loop<From, To>;
}

template <class From, class To>
void cast_by(const Run& run) {
  kernel<choose_cast<From, To>(), To, From>(run);
}

// In the order of NW_DTYPE_*, from 1.
using Types = std::tuple<float, double, f16, bf16, int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t, Bool>;
constexpr size_t kNumTypes = std::tuple_size_v<Types>;

template <size_t... I>
Kernel find_cast(size_t index, std::index_sequence<I...>) {
  static constexpr Kernel kCasts[] = {
      cast_by<std::tuple_element_t<I / kNumTypes, Types>, std::tuple_element_t<I % kNumTypes, Types>>...};
  return kCasts[index];
}

Kernel lookup_cast(int from, int to) {
  const size_t index = static_cast<size_t>(from - 1) * kNumTypes + static_cast<size_t>(to - 1);
  return find_cast(index, std::make_index_sequence<kNumTypes * kNumTypes>());
}

}  // namespace narrows::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace narrows::cpu {
HWY_EXPORT(lookup_cast);
Kernel cast_kernel(const Instance& instance, int from, int to) { return NARROWS_DISPATCH(instance, lookup_cast)(from, to); }
}  // namespace narrows::cpu
#endif
