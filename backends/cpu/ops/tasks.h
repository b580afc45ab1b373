// SPDX-License-Identifier: Apache-2.0
// tasks.h -- how an op's work is given to the host's threads, and how its workspace is cut.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "../backend.h"
#include "common/integers.h"

namespace narrows::cpu {

// Bytes, rounded up so that the part that follows is aligned like the workspace.
constexpr uint64_t aligned_bytes(uint64_t bytes) {
  return (bytes + NW_WORKSPACE_ALIGN - 1) / NW_WORKSPACE_ALIGN * NW_WORKSPACE_ALIGN;
}

// Waking threads pays from here on, in multiply-adds. By benchmarks/threads.cpp: with half of it two threads take as long as one
// (14.6 us), with it 16.6 us instead of 28.8; threads that sleep are not worth waking for ten times as much, but cost little
// either.
constexpr double kWorthWaking = 1e6;

// Writing past the caches pays where a call has more bytes than this: elementwise.cpp says why.
constexpr int64_t kBytesWorthStreaming = 32 << 20;

// Slots that run_tasks() will use.
inline int64_t num_slots(const Instance& instance, int64_t tasks, double cost) {
  if (cost * static_cast<double>(tasks) < kWorthWaking) return std::min<int64_t>(tasks, 1);
  return std::min(instance.num_threads(), tasks);
}

// body(slot, begin, end) over pieces of [0, tasks); pieces with the same slot < num_slots() never run at once, so that slots
// own scratch. Pieces go to whoever is free: a task's result may depend on its number alone. `cost` is one task's.
template <class Body>
void run_tasks(const Instance& instance, int64_t tasks, double cost, Body&& body) {
  const int64_t slots = num_slots(instance, tasks, cost);
  if (slots == 0) return;
  if (slots == 1) return body(int64_t{0}, int64_t{0}, tasks);
  const auto worthwhile = static_cast<int64_t>(kWorthWaking / 4 / std::max(cost, 1.0));
  const int64_t piece = std::clamp<int64_t>(worthwhile, 1, std::max<int64_t>(1, tasks / (4 * slots)));
  std::atomic<int64_t> next{0};
  instance.parallel_for(slots, 1, [&](int64_t first, int64_t last) {
    for (int64_t slot = first; slot < last; ++slot)
      for (int64_t begin; (begin = next.fetch_add(piece, std::memory_order_relaxed)) < tasks;)
        body(slot, begin, std::min(begin + piece, tasks));
  });
}

}  // namespace narrows::cpu
