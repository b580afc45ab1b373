// SPDX-License-Identifier: Apache-2.0
// thread_pool.cpp -- see thread_pool.h.
//
// One job at a time. The caller opens it in `state` (a job number, an open bit, a count of workers inside), works on it itself,
// closes it when no piece is left, and waits only for the workers still inside: one that wakes late finds the job closed.
// Every thread begins with a share of its own, the same in every job of a size: what it wrote last time is still in its caches.
// Then it helps the others with theirs. Workers beyond the number that a job wants sleep until a job wants more.
#include "core/thread_pool.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <cfenv>
#include <chrono>
#include <exception>
#include <thread>
#include <vector>

namespace narrows {
namespace {

constexpr uint32_t kInside = 0xFFFF;     // workers inside the job
constexpr uint32_t kOpen = 0x10000;      // workers may enter
constexpr uint32_t kJob = 0x20000;       // one step of the job number
constexpr int64_t kPiecesPerThread = 4;  // so that a slow thread holds the others up by a quarter of its share at most

// How long a thread looks for work before it sleeps, since waking it costs tens of microseconds: the gap between the loops of one
// op, and then the gap between the ops of a program in Python, for which the core is lent to whoever else wants it.
constexpr std::chrono::microseconds kSpin(20), kYield(500);

// Without the model a thread of a program that loaded libnarrows by dlopen asks malloc for these bytes, and is ended where it is
// refused.
[[gnu::tls_model("initial-exec")]] thread_local bool inside_body = false;
[[gnu::tls_model("initial-exec")]] thread_local uint64_t limit_here = UINT64_MAX;  // see ThreadLimit

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// True as soon as `ready` is; false if it was not in time.
template <class Ready>
bool spin_until(const Ready& ready) {
  const auto start = std::chrono::steady_clock::now();
  for (auto now = start; now - start < kYield; now = std::chrono::steady_clock::now()) {
    if (now - start > kSpin) sched_yield();
    for (int i = 0; i < 16; ++i, pause())
      if (ready()) return true;
  }
  return false;
}

// The pieces that a thread begins with, in a cache line of their own.
struct alignas(64) Share {
  std::atomic<int64_t> next{0};
  int64_t end = 0;
};

struct Job {
  ThreadPool::Body body;
  void* arg;
  int64_t n;
  int64_t piece;
  int64_t pieces;
  Share* shares;
  uint32_t num_shares;

  void divide() {
    for (int64_t k = 0; k < num_shares; ++k) {
      shares[k].next.store(pieces * k / num_shares, std::memory_order_relaxed);
      shares[k].end = pieces * (k + 1) / num_shares;
    }
  }

  // thread: 0 is the caller.
  void work(uint32_t thread) {
    inside_body = true;
    for (uint32_t k = 0; k < num_shares; ++k) {
      Share& share = shares[(thread + k) % num_shares];
      for (int64_t i = share.next.load(std::memory_order_relaxed);
           i < share.end && (i = share.next.fetch_add(1, std::memory_order_relaxed)) < share.end; ++i)
        body(arg, i * piece, i + 1 == pieces ? n : (i + 1) * piece);
    }
    inside_body = false;
  }
};

}  // namespace

struct ThreadPool::Crew {
  std::atomic<uint32_t> state{0};
  std::atomic<uint32_t> left{0};  // counts the times that the last worker left a closed job
  std::atomic<bool> busy{false};
  std::atomic<bool> stop{false};
  std::atomic<uint32_t> wanted;  // threads, by the newest job; set before that opens
  Job* job = nullptr;            // read between entering and leaving
  bool refused = false;          // the system gave no further thread
  std::vector<std::thread> workers;
  const std::unique_ptr<Share[]> shares;

  explicit Crew(uint32_t capacity) : wanted(capacity), shares(new Share[capacity]) {}

  // As many workers as the system grants; the caller works anyway. They take no signals, which are the application's.
  void start(uint32_t count) {
    if (workers.size() >= count || refused) return;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      while (workers.size() < count)
        workers.emplace_back([this, thread = static_cast<uint32_t>(workers.size() + 1)] { serve(thread); });
    } catch (const std::exception&) {
      refused = true;
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  ~Crew() {
    stop = true;
    state.fetch_add(kJob);
    state.notify_all();
    want(UINT32_MAX);
    for (std::thread& worker : workers) worker.join();
  }

  static uint32_t number(uint32_t s) { return s & ~(kOpen | kInside); }
  static bool is_new(uint32_t s, uint32_t done) { return (s & kOpen) && number(s) != done; }

  void serve(uint32_t thread) {
    std::fesetenv(FE_DFL_ENV);  // and not what the thread had set that was the first to need workers
    uint32_t done = 0;          // number of the last job seen
    for (;;) {
      uint32_t s = 0;
      spin_until([&] {
        s = state.load();  // before `stop`: whoever stops a crew sets that first
        return is_new(s, done) || stop;
      });
      if (stop) return;
      if (has_slept_unwanted(thread)) continue;
      if (!is_new(s, done)) {
        state.wait(s);
        continue;
      }
      if (!state.compare_exchange_weak(s, s + 1)) continue;
      done = number(s);
      job->work(thread);
      leave();
    }
  }

  void leave() {
    const uint32_t before = state.fetch_sub(1);
    if ((before & kInside) == 1 && !(before & kOpen)) {
      left.fetch_add(1);
      left.notify_one();
    }
  }

  void want(uint32_t threads) {
    if (wanted.exchange(threads) < threads) wanted.notify_all();
  }

  bool has_slept_unwanted(uint32_t thread) {
    uint32_t now = wanted.load();
    if (thread < now) return false;
    for (; thread >= now; now = wanted.load()) wanted.wait(now);
    return true;
  }

  void run(Job& work) {
    work.divide();
    job = &work;
    want(work.num_shares);
    const uint32_t seen = left.load();
    const uint32_t s = state.load();
    state.store((number(s) + kJob) | kOpen);
    state.notify_all();
    work.work(0);
    if ((state.fetch_and(~kOpen) & kInside) == 0) return;
    if (!spin_until([&] { return left.load() != seen; })) left.wait(seen);
  }
};

ThreadPool::ThreadPool(uint32_t capacity) : capacity_(capacity), num_threads_(capacity), crew_(new Crew(capacity)) {}

ThreadPool::~ThreadPool() = default;

uint32_t ThreadPool::usable_threads() const {
  return inside_body ? 1 : static_cast<uint32_t>(std::min<uint64_t>(num_threads(), limit_here));
}

void ThreadPool::parallel_for(int64_t n, int64_t grain, Body body, void* arg) {
  if (n <= 0) return;
  const uint32_t threads = usable_threads();
  const int64_t pieces = int64_t{threads} * kPiecesPerThread;
  const int64_t piece = std::max({grain, int64_t{1}, n / pieces + (n % pieces != 0)});
  Crew& crew = *crew_;
  const bool serial = piece >= n || threads == 1 || crew.busy.exchange(true, std::memory_order_acquire);
  if (serial) {
    const bool nested = inside_body;
    inside_body = true;
    body(arg, 0, n);
    inside_body = nested;
    return;
  }
  Job job{body, arg, n, piece, n / piece + (n % piece != 0), crew.shares.get(), threads};
  crew.start(threads - 1);
  crew.run(job);
  crew.busy.store(false, std::memory_order_release);
}

void ThreadPool::after_fork_in_child() {
  // Its threads do not exist here, so it can be neither joined nor destroyed.
  [[maybe_unused]] const auto* left_behind = crew_.release();
  crew_.reset(new Crew(capacity_));
}

uint64_t ThreadLimit::lower(uint64_t most) {
  const uint64_t before = limit_here;
  limit_here = std::min(before, most);
  return before;
}

void ThreadLimit::restore(uint64_t before) { limit_here = before; }

}  // namespace narrows
