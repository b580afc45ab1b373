// elementwise_cast.cpp -- every dtype to every other: the function `cast`, and how f16 and bf16 reach f32 and return.
// One rounding, to nearest even; to an integer saturating, NaN to 0; to bool x != 0. Step 5 of a tensor's path.
#include "../targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/elementwise_cast.cpp"
#include <hwy/foreach_target.h>

#include <bit>
#include <tuple>
#include <utility>

#include "elementwise_loops-inl.h"

HWY_BEFORE_NAMESPACE();
namespace narrows::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

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
void cast_loop(const void* const* in, void* out, int64_t n) {
  const auto* a = static_cast<const From*>(in[0]);
  auto* o = static_cast<To*>(out);
  NARROWS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) o[i] = cast_element<To>(a[i]);
}

template <size_t Size>
void copy_loop(const void* const* in, void* out, int64_t n) {
  if (in[0] != out) std::memcpy(out, in[0], static_cast<size_t>(n) * Size);
}

// ---- halves and f32 ----

struct Float16 {
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
};

HWY_INLINE float widen(BFloat16 h) { return std::bit_cast<float>(static_cast<uint32_t>(h.bits) << 16); }
HWY_INLINE float widen(Float16 h) {
  const uint32_t size = h.bits & 0x7FFFu, sign = static_cast<uint32_t>(h.bits & 0x8000u) << 16;
  const uint32_t scaled = std::bit_cast<uint32_t>(std::bit_cast<float>(size << 13) * 0x1p112f);  // subnormals become normal
  return std::bit_cast<float>(scaled | (size >= 0x7C00u ? 0x7F800000u : 0u) | sign);
}

HWY_INLINE void narrow(float x, BFloat16* h) {
  const uint32_t bits = std::bit_cast<uint32_t>(x), rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
  h->bits = static_cast<uint16_t>(x != x ? (bits >> 16) | 0x40u : rounded);
}
HWY_INLINE void narrow(float x, Float16* h) {
  const uint32_t bits = std::bit_cast<uint32_t>(x), size = bits & 0x7FFFFFFFu;
  const uint32_t normal = (size + 0xFFFu + ((size >> 13) & 1u) - (112u << 23)) >> 13;
  // An ulp of 1/2 is the least subnormal of f16: the addition rounds as it should.
  const uint32_t subnormal = std::bit_cast<uint32_t>(std::bit_cast<float>(size) + 0.5f) - std::bit_cast<uint32_t>(0.5f);
  const uint32_t finite = size < 0x38800000u ? subnormal : normal;
  const uint32_t infinite = size > 0x7F800000u ? 0x7E00u | ((size >> 13) & 0x3FFu) : 0x7C00u;
  h->bits = static_cast<uint16_t>((size >= 0x47800000u ? infinite : finite) | ((bits >> 16) & 0x8000u));
}

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_ARCH_ARM_A64
constexpr bool kHasFloat16 = true;  // the instruction set converts
#else
constexpr bool kHasFloat16 = false;
#endif

template <class Half>
HWY_INLINE void widen_all(const Half* a, float* o, int64_t n) {
  int64_t i = 0;
  if constexpr (kHasFloat16 && std::is_same_v<Half, Float16>) {
    constexpr hn::ScalableTag<float> d;
    constexpr hn::Rebind<hwy::float16_t, decltype(d)> dh;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    for (; i + lanes <= n; i += lanes)
      hn::StoreU(hn::PromoteTo(d, hn::LoadU(dh, reinterpret_cast<const hwy::float16_t*>(a + i))), d, o + i);
  }
  NARROWS_INDEPENDENT
  for (int64_t j = i; j < n; ++j) o[j] = widen(a[j]);
}

template <class Half>
HWY_INLINE void narrow_all(const float* a, Half* o, int64_t n) {
  int64_t i = 0;
  if constexpr (kHasFloat16 && std::is_same_v<Half, Float16>) {
    constexpr hn::ScalableTag<float> d;
    constexpr hn::Rebind<hwy::float16_t, decltype(d)> dh;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    for (; i + lanes <= n; i += lanes)
      hn::StoreU(hn::DemoteTo(dh, hn::LoadU(d, a + i)), dh, reinterpret_cast<hwy::float16_t*>(o + i));
  }
  NARROWS_INDEPENDENT
  for (int64_t j = i; j < n; ++j) narrow(a[j], o + j);
}

// ---- halves and the rest, by f32 ----

// To f32 such that rounding it again rounds once: what is not exact ends in an odd bit.
HWY_INLINE float to_odd_float(double x) {
  const float f = static_cast<float>(x);
  const uint32_t bits = std::bit_cast<uint32_t>(f);
  const bool exact = static_cast<double>(f) == x, away = std::abs(static_cast<double>(f)) > std::abs(x);
  return exact || x != x ? f : std::bit_cast<float>((bits - (away ? 1u : 0u)) | 1u);
}
template <class From>
HWY_INLINE float to_odd_float(From x) {
  if constexpr (std::is_same_v<From, Bool>)
    return x.byte != 0 ? 1.0f : 0.0f;
  else if constexpr (std::is_same_v<From, float> || sizeof(From) <= 2)
    return static_cast<float>(x);
  else if constexpr (sizeof(From) == 4)
    return to_odd_float(static_cast<double>(x));
  else {  // 53 bits at most, the last one odd if any below it is set
    constexpr From exact = From{1} << 53;
    const bool wide = std::is_signed_v<From> ? x > exact || x < From{0} - exact : x > exact;
    const From odd = static_cast<From>((x & ~From{2047}) | ((x & 2047) != 0 ? From{2048} : From{0}));
    return to_odd_float(static_cast<double>(wide ? odd : x));
  }
}

constexpr int64_t kHalfPiece = 512;

template <class Half, class To>
void widen_loop(const void* const* in, void* out, int64_t n) {
  const Half* a = static_cast<const Half*>(in[0]);
  To* o = static_cast<To*>(out);
  if constexpr (std::is_same_v<To, float>) return widen_all(a, o, n);
  alignas(64) float piece[kHalfPiece];
  for (int64_t i = 0; i < n; i += kHalfPiece) {
    const int64_t size = std::min(kHalfPiece, n - i);
    widen_all(a + i, piece, size);
    const void* from = piece;
    cast_loop<float, To>(&from, o + i, size);
  }
}

template <class From, class Half>
void narrow_loop(const void* const* in, void* out, int64_t n) {
  const From* a = static_cast<const From*>(in[0]);
  Half* o = static_cast<Half*>(out);
  if constexpr (std::is_same_v<From, float>) return narrow_all(a, o, n);
  alignas(64) float piece[kHalfPiece];
  for (int64_t i = 0; i < n; i += kHalfPiece) {
    const int64_t size = std::min(kHalfPiece, n - i);
    NARROWS_INDEPENDENT
    for (int64_t j = 0; j < size; ++j) piece[j] = to_odd_float(a[i + j]);
    narrow_all(piece, o + i, size);
  }
}

template <class From, class To>
void half_loop(const void* const* in, void* out, int64_t n) {
  const From* a = static_cast<const From*>(in[0]);
  To* o = static_cast<To*>(out);
  alignas(64) float piece[kHalfPiece];
  for (int64_t i = 0; i < n; i += kHalfPiece) {
    const int64_t size = std::min(kHalfPiece, n - i);
    widen_all(a + i, piece, size);
    narrow_all(piece, o + i, size);
  }
}

// ---- the table ----

template <class T>
constexpr bool is_half = std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>;

template <class From, class To>
constexpr Loop choose_cast() {
  if constexpr (std::is_same_v<From, To> && !std::is_same_v<From, Bool>)
    return copy_loop<sizeof(From)>;
  else if constexpr (is_half<From> && is_half<To>)
    return half_loop<From, To>;
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
using Types =
    std::tuple<float, double, Float16, BFloat16, int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t, Bool>;
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
