// SPDX-License-Identifier: Apache-2.0
// fault.h -- which mistake a mutant makes: NARROWS_TEST_FAULT names a line of faults.txt, from which CMake writes the list of
// enumerators. Nothing is wrong where the variable is not set.
#pragma once

#include <cstdlib>
#include <cstring>

namespace mutants {

enum class Fault : int {
  none,
#define FAULT(name) name,
#include "faults.inc"
#undef FAULT
};

// The fault of that name; -1: there is none of it.
inline int fault_number(const char* name) {
  constexpr const char* kNames[] = {
      "none",
#define FAULT(name) #name,
#include "faults.inc"
#undef FAULT
  };
  for (int i = 0; i < static_cast<int>(sizeof kNames / sizeof *kNames); ++i)
    if (std::strcmp(kNames[i], name) == 0) return i;
  return -1;
}

inline int wanted_fault() {
  const char* const name = std::getenv("NARROWS_TEST_FAULT");
  return name == nullptr ? 0 : fault_number(name);
}

// Read once, when the plugin is queried.
inline int active_fault = 0;
inline bool fault(Fault f) { return active_fault == static_cast<int>(f); }

}  // namespace mutants
