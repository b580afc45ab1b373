// SPDX-License-Identifier: Apache-2.0
// integers.h -- quotients rounded up, which tiles and groups are counted by.
#pragma once

#include <cstdint>

namespace narrows::common {

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

}  // namespace narrows::common
