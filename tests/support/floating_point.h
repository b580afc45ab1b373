// SPDX-License-Identifier: Apache-2.0
// floating_point.h -- the floating-point mode of the thread that asks: rounding, whether subnormal numbers are flushed to zero,
// which exceptions trap. A plugin may change it while it computes; what its caller computes next must not differ for it.
#pragma once

#include <cstdint>
#include <string>

namespace narrows::test {

class FloatingPointMode {
 public:
  FloatingPointMode();  // as it was when the program began
  // Empty where it is still so; else what differs, which is put right.
  std::string change() const;

 private:
  int rounding_;
  uint64_t control_;
};

}  // namespace narrows::test
