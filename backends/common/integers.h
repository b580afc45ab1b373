// SPDX-License-Identifier: Apache-2.0
// integers.h -- division by a multiplication; slices of a reduction. Quotients rounded up are narrows/plugin_space.hpp's.
#pragma once

#include <algorithm>
#include <cstdint>
#include <narrows/plugin_space.hpp>

namespace narrows::common {

using plugin::ceil_div;
using plugin::round_up;

// What a kernel is given to divide by a number. Of dividends and divisors below 2^31: q = (n + (n * multiplier >> 32)) >> shift
// with multiplier = 2^32 * (2^shift - d) / d + 1 and 2^(shift - 1) < d <= 2^shift (Granlund and Montgomery, 1994, figure 4.1).
struct Divider {
  uint32_t multiplier = 1, shift = 0;

  Divider() = default;
  explicit Divider(int64_t d) {
    while ((int64_t{1} << shift) < d) ++shift;
    multiplier = static_cast<uint32_t>(
        (uint64_t{1} << 32) * ((uint64_t{1} << shift) - static_cast<uint64_t>(d)) / static_cast<uint64_t>(d) + 1);
  }
};

// A reduction of so many stages, for each of `tiles` results: slices so that they keep so many workers busy. None is shorter than
// `least` stages.
inline int64_t num_slices(int64_t tiles, int64_t stages, int64_t workers, int64_t least = 4) {
  if (tiles <= 0 || tiles >= workers) return 1;
  return std::clamp<int64_t>(stages / least, 1, 2 * workers / tiles);
}

}  // namespace narrows::common
