// SPDX-License-Identifier: Apache-2.0
// thread_pool.h -- the one pool of a runtime, which plugins reach through nw_host.parallel_for.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace narrows {

// Numbers of threads count the calling one.
class ThreadPool {
 public:
  using Body = void (*)(void* arg, int64_t begin, int64_t end);

  explicit ThreadPool(uint32_t capacity);
  ~ThreadPool();

  uint32_t capacity() const { return capacity_; }

  // The most that a loop uses, at first all. A loop that runs keeps the number with which it began.
  uint32_t num_threads() const { return num_threads_.load(std::memory_order_relaxed); }
  void set_num_threads(uint32_t threads) { num_threads_.store(threads, std::memory_order_relaxed); }  // 1 .. capacity
  // As many would work on a loop that this thread begins now: 1 in a body.
  uint32_t usable_threads() const;

  // body(arg, begin, end) over pieces of [0, n), each at least `grain` long but the last; returns when all are done. Serial when
  // called from a body, or while another thread's job has the workers.
  void parallel_for(int64_t n, int64_t grain, Body body, void* arg);

  // In a forked child, where no worker lives: starts again with a pool of the same size.
  void after_fork_in_child();

 private:
  struct Crew;
  const uint32_t capacity_;
  std::atomic<uint32_t> num_threads_;
  std::unique_ptr<Crew> crew_;
};

// Limits the loops that this thread begins, in whatever pool, for the length of a scope. 0: it does not.
class ThreadLimit {
 public:
  explicit ThreadLimit(uint64_t most) : before_(most == 0 ? 0 : lower(most)) {}
  ~ThreadLimit() {
    if (before_ != 0) restore(before_);
  }
  ThreadLimit(const ThreadLimit&) = delete;
  ThreadLimit& operator=(const ThreadLimit&) = delete;

 private:
  static uint64_t lower(uint64_t most);  // gives the limit that was there before
  static void restore(uint64_t before);
  const uint64_t before_;
};

}  // namespace narrows
