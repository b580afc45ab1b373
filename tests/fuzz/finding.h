// SPDX-License-Identifier: Apache-2.0
// finding.h -- how a target reports: it says what is wrong and ends the process, which libFuzzer and the plain driver both take
// for a crash.
#pragma once

#include <cstdarg>
#include <cstdio>
#include <cstdlib>

namespace narrows::fuzz {

[[noreturn]] __attribute__((format(printf, 1, 2))) inline void finding(const char* text, ...) {
  va_list args;
  va_start(args, text);
  std::fputs("FINDING: ", stderr);
  std::vfprintf(stderr, text, args);
  std::fputs("\n", stderr);
  va_end(args);
  std::abort();
}

}  // namespace narrows::fuzz
