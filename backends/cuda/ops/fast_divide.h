// SPDX-License-Identifier: Apache-2.0
// fast_divide.h -- division by a number that a kernel is given: a multiplication and a shift. Step 5 of a tensor's path.
#pragma once

#include "backend.h"

namespace narrows::gpu {

// Of dividends and divisors below 2^31. q = (n + (n * multiplier >> 32)) >> shift with multiplier = 2^32 * (2^shift - d) / d + 1
// and 2^(shift - 1) < d <= 2^shift (Granlund and Montgomery, 1994, figure 4.1).
struct FastDivide {
  uint32_t divisor = 1, multiplier = 1, shift = 0;

  FastDivide() = default;
  explicit FastDivide(int64_t d) : divisor(static_cast<uint32_t>(d)) {
    while ((int64_t{1} << shift) < d) ++shift;
    multiplier = static_cast<uint32_t>(
        (uint64_t{1} << 32) * ((uint64_t{1} << shift) - static_cast<uint64_t>(d)) / static_cast<uint64_t>(d) + 1);
  }
  __device__ __forceinline__ void divide(uint32_t n, uint32_t* quotient, uint32_t* remainder) const {
    *quotient = (n + __umulhi(n, multiplier)) >> shift;
    *remainder = n - *quotient * divisor;
  }
};

inline constexpr int64_t kFastDivideLimit = int64_t{1} << 31;

}  // namespace narrows::gpu
