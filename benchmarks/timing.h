// SPDX-License-Identifier: Apache-2.0
// timing.h -- what the programs that take times share.
#pragma once

#include <narrows/narrows.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace narrows::bench {

// Ends the program, with the error's words and 2, where a call of the library failed.
inline void need(int32_t status, const nw_error& error) {
  if (status == NW_OK) return;
  std::fprintf(stderr, "%s\n", error.message);
  std::exit(2);
}

inline double now_us() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

inline double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

}  // namespace narrows::bench
