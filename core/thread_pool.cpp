// thread_pool.cpp -- see thread_pool.h.
//
// One job at a time. The caller opens it in `state` (a job number, an open bit, a count of workers inside), works on it itself,
// closes it when no piece is left, and waits only for the workers still inside: one that wakes late finds the job closed.
// Every thread begins with a share of its own, the same in every job of a size: what it wrote last time is still in its caches.
// Then it helps the others with theirs.
#include "core/thread_pool.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>

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
constexpr uint32_t kMaxThreads = 1024;

// How long a thread looks for work before it sleeps, since waking it costs tens of microseconds: the gap between the loops of one
// op, and then the gap between the ops of a program in Python, for which the core is lent to whoever else wants it.
constexpr std::chrono::microseconds kSpin(20), kYield(500);

// Without the model a thread of a program that loaded libnarrows by dlopen asks malloc for this byte, and is ended where it is
// refused.
[[gnu::tls_model("initial-exec")]] thread_local bool inside_body = false;

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

uint32_t default_num_threads() {
  if (const char* text = getenv("NARROWS_NUM_THREADS")) {
    const long n = strtol(text, nullptr, 10);
    if (n >= 1) return static_cast<uint32_t>(std::min<long>(n, kMaxThreads));
  }
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return static_cast<uint32_t>(CPU_COUNT(&set));
  return std::max(1u, std::thread::hardware_concurrency());
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
  Job* job = nullptr;    // read between entering and leaving
  bool refused = false;  // the system gave no further thread
  std::vector<std::thread> workers;
  const uint32_t num_shares;
  const std::unique_ptr<Share[]> shares;

  explicit Crew(uint32_t num_threads) : num_shares(num_threads), shares(new Share[num_threads]) {}

  // As many workers as the system grants; the caller works anyway. They take no signals, which are the application's.
  void start(uint32_t count) {
    if (workers.size() == count || refused) return;
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

  void run(Job& work) {
    work.divide();
    job = &work;
    const uint32_t seen = left.load();
    const uint32_t s = state.load();
    state.store((number(s) + kJob) | kOpen);
    state.notify_all();
    work.work(0);
    if ((state.fetch_and(~kOpen) & kInside) == 0) return;
    if (!spin_until([&] { return left.load() != seen; })) left.wait(seen);
  }
};

ThreadPool::ThreadPool(uint32_t num_threads)
    : num_threads_(num_threads != 0 ? std::min(num_threads, kMaxThreads) : default_num_threads()), crew_(new Crew(num_threads_)) {}

ThreadPool::~ThreadPool() = default;

void ThreadPool::parallel_for(int64_t n, int64_t grain, Body body, void* arg) {
  if (n <= 0) return;
  const int64_t pieces = int64_t{num_threads_} * kPiecesPerThread;
  const int64_t piece = std::max({grain, int64_t{1}, n / pieces + (n % pieces != 0)});
  Crew& crew = *crew_;
  const bool serial = piece >= n || num_threads_ == 1 || inside_body || crew.busy.exchange(true, std::memory_order_acquire);
  if (serial) {
    const bool nested = inside_body;
    inside_body = true;
    body(arg, 0, n);
    inside_body = nested;
    return;
  }
  Job job{body, arg, n, piece, n / piece + (n % piece != 0), crew.shares.get(), crew.num_shares};
  crew.start(num_threads_ - 1);
  crew.run(job);
  crew.busy.store(false, std::memory_order_release);
}

void ThreadPool::after_fork_in_child() {
  // Its threads do not exist here, so it can be neither joined nor destroyed.
  [[maybe_unused]] const auto* left_behind = crew_.release();
  crew_.reset(new Crew(num_threads_));
}

}  // namespace narrows
