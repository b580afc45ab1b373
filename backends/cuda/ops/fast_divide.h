// SPDX-License-Identifier: Apache-2.0
// fast_divide.h -- division by a number that a kernel is given: a multiplication and a shift.
#pragma once

#include "backend.h"

namespace narrows::gpu {

// Of dividends and divisors below 2^31.
struct FastDivide {
  uint32_t divisor = 1, multiplier = 1, shift = 0;

  FastDivide() = default;
  explicit FastDivide(int64_t d) : divisor(static_cast<uint32_t>(d)) {
    const common::Divider by(d);
    multiplier = by.multiplier, shift = by.shift;
  }
  __device__ __forceinline__ void divide(uint32_t n, uint32_t* quotient, uint32_t* remainder) const {
    *quotient = (n + __umulhi(n, multiplier)) >> shift;
    *remainder = n - *quotient * divisor;
  }
};

inline constexpr int64_t kFastDivideLimit = int64_t{1} << 31;

}  // namespace narrows::gpu
