// SPDX-License-Identifier: Apache-2.0
// elementwise_convert.h -- casts of one element: to nearest even into floating point, saturating into integers.
#pragma once

#include "elementwise_math.h"

namespace narrows::gpu {

// ---- on the way to 16 bits: an f32 that rounds there as the number itself would, its last bit telling that more follows ----

__device__ __forceinline__ float sticky(double x) {
  const float nearest = static_cast<float>(x);
  if (static_cast<double>(nearest) == x || x != x) return nearest;
  unsigned bits = __float_as_uint(nearest);
  if (fabs(static_cast<double>(nearest)) > fabs(x)) --bits;  // towards 0
  return __uint_as_float(bits | 1);
}
__device__ __forceinline__ float sticky(uint64_t x) {
  constexpr int kDigits = 24;
  const int places = 64 - kDigits - __clzll(static_cast<long long>(x));
  if (places <= 0) return static_cast<float>(x);
  const uint64_t high = x >> places, low = x & ((uint64_t{1} << places) - 1);
  return ldexpf(static_cast<float>(static_cast<uint32_t>(high | (low != 0))), places);
}
template <class C>
__device__ __forceinline__ float to_float(C x) {
  if constexpr (std::is_same_v<C, double>) {
    return sticky(x);
  } else if constexpr (std::is_integral_v<C> && sizeof(C) >= 4) {
    if constexpr (std::is_signed_v<C>)
      if (x < 0) return -sticky(uint64_t{0} - static_cast<uint64_t>(x));
    return sticky(static_cast<uint64_t>(x));
  } else {
    return static_cast<float>(x);
  }
}

// ---- into integers ----

// `x` is below 2^kBits, the first number past an integer type.
template <class To, class C>
__device__ __forceinline__ To saturated(C x) {
  using Limits = std::numeric_limits<To>;
  if constexpr (std::is_floating_point_v<C>) {
    constexpr C kPast = static_cast<C>(Limits::max() / 2 + 1) * C(2), kLowest = static_cast<C>(Limits::min());
    if (x != x) return To(0);
    return x >= kPast ? Limits::max() : x <= kLowest ? Limits::min() : static_cast<To>(x);
  } else {
    if constexpr (std::is_signed_v<C>) {
      if constexpr (std::is_unsigned_v<To>) {
        if (x < 0) return To(0);
      } else if (static_cast<int64_t>(x) < static_cast<int64_t>(Limits::min())) {
        return Limits::min();
      }
      if (x < 0) return static_cast<To>(x);
    }
    return static_cast<uint64_t>(x) > static_cast<uint64_t>(Limits::max()) ? Limits::max() : static_cast<To>(x);
  }
}

template <class To>
struct Cast {
  static constexpr int kArity = 1;
  static constexpr bool kHeavy = false;
  template <class C>
  static __device__ __forceinline__ auto apply(C a) {
    if constexpr (std::is_same_v<To, bool>)
      return a != 0;
    else if constexpr (std::is_same_v<To, f16> || std::is_same_v<To, bf16>)
      return to_float(a);
    else if constexpr (std::is_floating_point_v<To>)
      return static_cast<To>(a);
    else
      return saturated<To>(a);
  }
};

// From bool, of which any byte but 0 is true.
template <class To>
struct CastTruth {
  static constexpr int kArity = 1;
  static constexpr bool kHeavy = false;
  static __device__ __forceinline__ auto apply(uint8_t a) { return Cast<To>::apply(static_cast<uint8_t>(a != 0)); }
};

}  // namespace narrows::gpu
