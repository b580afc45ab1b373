// SPDX-License-Identifier: Apache-2.0
// thread_count.cpp -- see thread_count.h.
#include "core/thread_count.h"

#include <sched.h>
#include <stdlib.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "core/cpu_quota.h"

namespace narrows {
namespace {

// The number that a text begins with, blanks around it; 0: it is none, or what follows is neither its end nor a list's comma.
uint32_t number_in(const char* text, bool list) {
  char* end = nullptr;
  const long number = strtol(text, &end, 10);  // of too large a number the largest
  end += strspn(end, " \t");
  const bool whole = *end == '\0' || (list && *end == ',');
  return whole && number >= 1 ? static_cast<uint32_t>(std::min<long>(number, kMaxThreads)) : 0;
}

// OMP_NUM_THREADS may be a list: of the number at each level of nesting. An empty variable is as one that is not set.
void add_variable(ThreadCount& count, const char* name, bool list) {
  const char* const text = getenv(name);
  if (text == nullptr || *text == '\0') return;
  const uint32_t threads = number_in(text, list);
  if (threads != 0)
    count.limits.push_back({name, threads});
  else
    count.ignored.push_back(std::string(name) + " = '" + text + "' is ignored; expected a number of 1 or more");
}

uint32_t affinity() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return static_cast<uint32_t>(CPU_COUNT(&set));
  return std::max(1u, std::thread::hardware_concurrency());
}

}  // namespace

ThreadCount count_threads() {
  ThreadCount count{kMaxThreads, {}, {}};
  add_variable(count, "NARROWS_NUM_THREADS", false);
  add_variable(count, "OMP_NUM_THREADS", true);
  count.limits.push_back({"affinity mask", affinity()});
  const char* const root = secure_getenv("NARROWS_TEST_ROOT");
  const uint64_t quota = cpu_quota(root != nullptr ? root : "");
  if (quota != 0) count.limits.push_back({"cgroup quota", static_cast<uint32_t>(std::min<uint64_t>(quota, kMaxThreads))});
  for (const ThreadCount::Limit& limit : count.limits) count.threads = std::min(count.threads, limit.threads);
  return count;
}

}  // namespace narrows
