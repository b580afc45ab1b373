// SPDX-License-Identifier: Apache-2.0
// thread_count.h -- how many threads this process should use, by everybody who has a say in it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace narrows {

struct ThreadCount {
  struct Limit {
    const char* source;
    uint32_t threads;
  };
  uint32_t threads;                  // the smallest of the limits
  std::vector<Limit> limits;         // those that are set: NARROWS_NUM_THREADS, OMP_NUM_THREADS, affinity mask, cgroup quota
  std::vector<std::string> ignored;  // what is wrong with a variable that is no limit for it
};

constexpr uint32_t kMaxThreads = 1024;

ThreadCount count_threads();

}  // namespace narrows
