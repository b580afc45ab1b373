// thread_pool.h -- the one pool of a runtime, which plugins reach through nw_host.parallel_for.
#pragma once

#include <cstdint>
#include <memory>

namespace narrows {

class ThreadPool {
 public:
  using Body = void (*)(void* arg, int64_t begin, int64_t end);

  // num_threads counts the calling thread; 0: NARROWS_NUM_THREADS, else as many as the affinity mask allows.
  explicit ThreadPool(uint32_t num_threads);
  ~ThreadPool();

  uint32_t num_threads() const { return num_threads_; }

  // body(arg, begin, end) over pieces of [0, n), each at least `grain` long but the last; returns when all are done. Serial when
  // called from a body, or while another thread's job has the workers.
  void parallel_for(int64_t n, int64_t grain, Body body, void* arg);

  // In a forked child, where no worker lives: starts again with a pool of the same size.
  void after_fork_in_child();

 private:
  struct Crew;
  uint32_t num_threads_;
  std::unique_ptr<Crew> crew_;
};

}  // namespace narrows
