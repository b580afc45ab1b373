// SPDX-License-Identifier: Apache-2.0
// threads.h -- gates and crowds for tests with threads. Catch2's macros are for the main thread: threads count, the test checks.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace narrows::test {

// Where threads wait until the test lets them pass. No wait is endless: a test that hangs says nothing.
class Gate {
 public:
  static constexpr auto kLimit = std::chrono::seconds(30);
  // True when it was opened in time.
  bool wait() {
    std::unique_lock lock(mutex_);
    ++arrived_;
    changed_.notify_all();
    return changed_.wait_for(lock, kLimit, [&] { return open_; });
  }
  bool wait_until_arrived(int count = 1) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kLimit, [&] { return arrived_ >= count; });
  }
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int arrived_ = 0;
  bool open_ = false;
};

// Runs work(index) on so many threads, which start together; ends when all are done.
inline void crowd(int threads, const std::function<void(int)>& work) {
  Gate start;
  std::vector<std::thread> all;
  for (int i = 0; i < threads; ++i)
    all.emplace_back([&, i] {
      start.wait();
      work(i);
    });
  start.wait_until_arrived(threads);
  start.open();
  for (std::thread& thread : all) thread.join();
}

// A thread that is joined at the end, whatever happens.
class Thread {
 public:
  explicit Thread(std::function<void()> work) : thread_(std::move(work)) {}
  ~Thread() { join(); }
  void join() {
    if (thread_.joinable()) thread_.join();
  }

 private:
  std::thread thread_;
};

}  // namespace narrows::test
