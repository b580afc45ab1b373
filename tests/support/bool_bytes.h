// SPDX-License-Identifier: Apache-2.0
// bool_bytes.h -- the bytes that tests put into tensors of bool: any byte but 0 is true.
#pragma once

#include "harness.h"

namespace narrows::test {

inline constexpr uint8_t kBoolBytes[] = {0, 1, 2, 127, 128, 255};

// One of them; every other time 0.
inline uint8_t any_bool(Rng& rng) {
  const int64_t i = rng.integer(-4, 5);
  return i <= 0 ? uint8_t{0} : kBoolBytes[i];
}

}  // namespace narrows::test
