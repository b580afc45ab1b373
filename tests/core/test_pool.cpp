// SPDX-License-Identifier: Apache-2.0
// test_pool.cpp -- core/thread_pool.cpp, reached as a plugin reaches it: nw_host.parallel_for.
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "fixture.h"
#include "threads.h"

using namespace narrows::test;

namespace {

using Body = std::function<void(int64_t begin, int64_t end)>;

void parallel_for(const nw_host& host, int64_t n, int64_t grain, const Body& body) {
  host.parallel_for(
      host.ctx, n, grain, [](void* arg, int64_t begin, int64_t end) { (*static_cast<const Body*>(arg))(begin, end); },
      const_cast<Body*>(&body));
}

struct Pool {
  Loaded rt;
  const nw_host& host;
  explicit Pool(uint32_t threads) : rt({"probe"}, Options{.num_threads = threads}), host(*rt.probe().host) {}
};

struct Range {
  int64_t begin, end;
  bool operator<(const Range& other) const { return begin < other.begin; }
};

// The pieces in order; "" when they are exactly [0, n) and each but the last has `grain` at least.
std::string fault_in(std::vector<Range> pieces, int64_t n, int64_t grain) {
  std::sort(pieces.begin(), pieces.end());
  int64_t at = 0;
  for (const Range& piece : pieces) {
    if (piece.begin != at || piece.end <= piece.begin || piece.end > n)
      return "piece [" + std::to_string(piece.begin) + ", " + std::to_string(piece.end) + ") after " + std::to_string(at);
    if (piece.end != n && piece.end - piece.begin < grain) return "a piece of " + std::to_string(piece.end - piece.begin);
    at = piece.end;
  }
  return at == std::max<int64_t>(n, 0) ? "" : "ends at " + std::to_string(at);
}

std::vector<Range> pieces_of(const nw_host& host, int64_t n, int64_t grain) {
  std::mutex mutex;
  std::vector<Range> pieces;
  parallel_for(host, n, grain, [&](int64_t begin, int64_t end) {
    const std::lock_guard lock(mutex);
    pieces.push_back({begin, end});
  });
  return pieces;
}

}  // namespace

TEST_CASE("parallel_for covers 0 to n once") {
  for (const uint32_t threads : {1u, 2u, 3u, 8u}) {
    Pool pool(threads);
    CHECK(pool.host.struct_size == sizeof(nw_host));
    CHECK(pool.host.num_threads == threads);
    for (const int64_t n : {-3, 0, 1, 2, 3, 7, 8, 9, 31, 64, 1000, 12345})
      for (const int64_t grain :
           {INT64_MIN, int64_t{-1}, int64_t{0}, int64_t{1}, int64_t{2}, int64_t{7}, int64_t{999}, INT64_MAX}) {
        INFO(threads << " threads, n " << n << ", grain " << grain);
        CHECK(fault_in(pieces_of(pool.host, n, grain), n, grain) == "");
      }
  }
}

TEST_CASE("parallel_for over very many") {
  Pool pool(4);
  for (const int64_t n : {INT64_MAX, INT64_MAX - 1, INT64_MAX / 2 + 3, int64_t{1} << 62})
    for (const int64_t grain : {int64_t{1}, n / 2, n / 3 + 1, n - 1}) {
      INFO("n " << n << ", grain " << grain);
      CHECK(fault_in(pieces_of(pool.host, n, grain), n, grain) == "");
    }
}

TEST_CASE("every element is visited once job after job") {
  Pool pool(4);
  std::vector<std::atomic<int>> seen(257);
  constexpr int kJobs = 3000;
  for (int job = 0; job < kJobs; ++job)
    parallel_for(pool.host, static_cast<int64_t>(seen.size()), 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) seen[static_cast<size_t>(i)].fetch_add(1, std::memory_order_relaxed);
    });
  CHECK(std::all_of(seen.begin(), seen.end(), [](const std::atomic<int>& count) { return count == kJobs; }));
}

TEST_CASE("what a body writes is there when parallel_for returns") {
  Pool pool(4);
  std::vector<int> plain(1000);  // no atomics: returning orders it
  for (int round = 1; round < 200; ++round) {
    parallel_for(pool.host, 1000, 10, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) plain[static_cast<size_t>(i)] += round;
    });
    REQUIRE(plain.front() == plain.back());
  }
  CHECK(std::all_of(plain.begin(), plain.end(), [](int value) { return value == 199 * 200 / 2; }));
}

TEST_CASE("an idle pool puts a body on every thread and on no more") {
  for (const uint32_t threads : {2u, 5u}) {
    Pool pool(threads);
    Gate all;
    std::mutex mutex;
    std::set<std::thread::id> ids;
    std::atomic<int> in_time{0};
    parallel_for(pool.host, threads, 1, [&](int64_t begin, int64_t end) {
      {
        const std::lock_guard lock(mutex);
        ids.insert(std::this_thread::get_id());
        if (ids.size() == threads) all.open();
      }
      if (end - begin == 1) in_time += all.wait();
    });
    CHECK(ids.size() == threads);
    CHECK(in_time == static_cast<int>(threads));
    CHECK(ids.count(std::this_thread::get_id()) == 1);  // the caller's own is among them
    std::atomic<int> now{0}, most{0};
    parallel_for(pool.host, 200, 1, [&](int64_t, int64_t) {
      const int here = ++now;
      for (int before = most; before < here && !most.compare_exchange_weak(before, here);) {
      }
      std::this_thread::yield();
      --now;
    });
    CHECK(most <= static_cast<int>(threads));
  }
}

TEST_CASE("threads come while they look for work, while they lend their core, and from their sleep") {
  for (const auto pause : {std::chrono::microseconds(0), std::chrono::microseconds(100), std::chrono::microseconds(5000)}) {
    Pool pool(2);
    for (int round = 0; round < 5; ++round) {
      Gate both;
      std::atomic<int> inside{0}, in_time{0};
      parallel_for(pool.host, 2, 1, [&](int64_t, int64_t) {
        if (++inside == 2) both.open();
        in_time += both.wait();
      });
      CHECK(in_time == 2);
      std::this_thread::sleep_for(pause);
    }
  }
}

TEST_CASE("nested it runs on the thread that asks") {
  Pool pool(4);
  std::atomic<int> wrong{0}, inner{0};
  parallel_for(pool.host, 16, 1, [&](int64_t begin, int64_t end) {
    const auto me = std::this_thread::get_id();
    for (int64_t i = begin; i < end; ++i)
      parallel_for(pool.host, 100, 1, [&](int64_t b, int64_t e) {
        wrong += std::this_thread::get_id() != me;
        inner += static_cast<int>(e - b);
        parallel_for(pool.host, 1, 1, [&](int64_t, int64_t) { wrong += std::this_thread::get_id() != me; });
      });
  });
  CHECK(wrong == 0);
  CHECK(inner == 1600);
}

TEST_CASE("many callers at once") {
  Pool pool(3);
  std::atomic<int> bad{0};
  crowd(8, [&](int) {
    for (int i = 0; i < 200; ++i) {
      std::atomic<int64_t> sum{0};
      parallel_for(pool.host, 1000, 1, [&](int64_t begin, int64_t end) {
        for (int64_t k = begin; k < end; ++k) sum += k;
      });
      bad += sum != 999 * 1000 / 2;
    }
  });
  CHECK(bad == 0);
}

TEST_CASE("where the system gives no further thread the caller works alone") {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  SKIP("a sanitizer needs address space of its own");
#endif
  Pool pool(1000);
  const pid_t child = fork();
  if (child == 0) {
    // No address space for a thousand stacks, and some for the rest.
    long pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const auto limit = static_cast<rlim_t>(pages * sysconf(_SC_PAGESIZE) + (64 << 20));
    const rlimit space{limit, limit};
    if (setrlimit(RLIMIT_AS, &space) != 0) _exit(1);
    for (int round = 0; round < 2; ++round) {  // the second time it does not even ask
      std::atomic<int64_t> sum{0};
      parallel_for(pool.host, 10000, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) sum += i;
      });
      if (sum != 9999 * 10000 / 2) _exit(2);
    }
    std::ifstream status("/proc/self/status");
    for (std::string word; status >> word;)
      if (int threads = 0; word == "Threads:" && status >> threads) _exit(threads < 1000 ? 0 : 3);
    _exit(4);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

TEST_CASE("two runtimes have two pools") {
  Pool one(2), two(3);
  Gate gate;
  std::atomic<int> done{0};
  Thread busy([&] {
    parallel_for(one.host, 2, 1, [&](int64_t, int64_t) {
      gate.wait();
      ++done;
    });
  });
  REQUIRE(gate.wait_until_arrived());
  CHECK(fault_in(pieces_of(two.host, 1000, 1), 1000, 1) == "");
  CHECK(fault_in(pieces_of(one.host, 1000, 1), 1000, 1) == "");  // busy: on this thread
  gate.open();
  busy.join();
  CHECK(done >= 1);
}

// Threads that work on a loop at one moment, and those that work on any of so many loops.
struct Seen {
  int most = 0;
  size_t threads = 0;
};

Seen seen_in(const nw_host& host, int loops) {
  std::atomic<int> now{0}, most{0};
  std::mutex mutex;
  std::set<std::thread::id> ids;
  for (int i = 0; i < loops; ++i)
    parallel_for(host, 64, 1, [&](int64_t, int64_t) {
      const int here = ++now;
      for (int before = most; before < here && !most.compare_exchange_weak(before, here);) {
      }
      {
        const std::lock_guard lock(mutex);
        ids.insert(std::this_thread::get_id());
      }
      std::this_thread::sleep_for(std::chrono::microseconds(50));
      --now;
    });
  return {most, ids.size()};
}

// Every thread of a loop comes, however long that takes.
bool brings(const nw_host& host, uint32_t threads, const std::function<void()>& visit = [] {}) {
  Gate all;
  std::atomic<uint32_t> inside{0}, in_time{0};
  parallel_for(host, threads, 1, [&](int64_t, int64_t) {
    visit();
    if (++inside == threads) all.open();
    in_time += all.wait();
  });
  return inside == threads && in_time == threads;
}

TEST_CASE("nw_set_num_threads lowers what a loop uses and raises it again") {
  Pool pool(6);
  nw_runtime* const rt = pool.rt;
  CHECK(nw_get_num_threads(rt) == 6);
  REQUIRE(brings(pool.host, 6));
  for (const uint32_t threads : {2u, 1u, 4u, 6u, 3u, 5u}) {
    INFO(threads << " threads");
    REQUIRE(nw_set_num_threads(rt, threads, nullptr) == NW_OK);
    CHECK(nw_get_num_threads(rt) == threads);
    CHECK(pool.host.usable_threads(pool.host.ctx) == threads);
    CHECK(pool.host.num_threads == 6);  // what a plugin's workspace is made for
    CHECK(brings(pool.host, threads));
    const Seen seen = seen_in(pool.host, 20);
    CHECK(seen.most <= static_cast<int>(threads));
    CHECK(seen.threads <= threads);
  }
}

TEST_CASE("a number of threads that the pool has not is refused with both numbers") {
  Pool pool(3);
  nw_runtime* const rt = pool.rt;
  REQUIRE(nw_set_num_threads(rt, 2, nullptr) == NW_OK);
  for (const int64_t wrong : {int64_t{0}, int64_t{-1}, int64_t{4}, INT64_MAX, INT64_MIN, (int64_t{1} << 32) + 1}) {
    Error error;
    expect_refused(nw_set_num_threads(rt, wrong, &error), error, NW_INVALID, -1,
                   {"num_threads = ", std::to_string(wrong).c_str(), "expected 1 to 3"});
  }
  CHECK(nw_get_num_threads(rt) == 2);
  CHECK(nw_set_num_threads(nullptr, 1, nullptr) == NW_INVALID);
  CHECK(nw_get_num_threads(nullptr) == 0);
}

TEST_CASE("only as many threads are started as loops have wanted") {
  const auto threads = [] {
    std::ifstream status("/proc/self/status");
    int count = -1;
    for (std::string word; status >> word;)
      if (word == "Threads:") status >> count;
    return count;
  };
  std::thread([] {}).join();  // the first one may bring one of a sanitizer's along
  const int before = threads();
  Pool pool(8);
  REQUIRE(nw_set_num_threads(pool.rt, 3, nullptr) == NW_OK);
  seen_in(pool.host, 3);
  CHECK(threads() == before + 2);
  REQUIRE(nw_set_num_threads(pool.rt, 1, nullptr) == NW_OK);
  seen_in(pool.host, 1);
  REQUIRE(nw_set_num_threads(pool.rt, 5, nullptr) == NW_OK);
  seen_in(pool.host, 3);
  CHECK(threads() == before + 4);
}

TEST_CASE("threads that no loop wants sleep") {
  Pool pool(4);
  std::mutex mutex;
  std::set<clockid_t> clocks;  // of the threads' CPU time
  REQUIRE(brings(pool.host, 4, [&] {
    clockid_t clock = 0;
    pthread_getcpuclockid(pthread_self(), &clock);
    const std::lock_guard lock(mutex);
    clocks.insert(clock);
  }));
  REQUIRE(clocks.size() == 4);
  REQUIRE(nw_set_num_threads(pool.rt, 2, nullptr) == NW_OK);
  seen_in(pool.host, 5);  // the others see that they are not wanted
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const auto times = [&] {
    std::vector<double> all;
    for (const clockid_t clock : clocks) {
      timespec now{};
      clock_gettime(clock, &now);
      all.push_back(static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec));
    }
    return all;
  };
  const std::vector<double> before = times();
  seen_in(pool.host, 100);
  const std::vector<double> after = times();
  int asleep = 0;  // one that woke once would have looked for work for half a millisecond at most
  for (size_t i = 0; i < before.size(); ++i) asleep += after[i] - before[i] < 1e-3;
  CHECK(asleep == 2);
}

TEST_CASE("nw_call.max_threads limits one launch") {
  Loaded rt({"probecpu"}, Options{.num_threads = 4});
  Probe& probe = rt.probe("probecpu");
  const nw_host& host = *probe.host;
  Array a({4}, kCpu), out({4}, kCpu);
  std::vector<uint32_t> usable;
  Seen seen;
  probe.on_launch = [&](const nw_call&) {
    usable.push_back(host.usable_threads(host.ctx));
    seen = seen_in(host, 10);
    parallel_for(host, 1, 1, [&](int64_t, int64_t) { usable.push_back(host.usable_threads(host.ctx)); });
  };
  const auto run = [&](uint64_t most) {
    Call call("probe.noop/1", {&a}, {&out});
    call.raw.max_threads = most;
    usable.clear();
    call.ok(rt);
    REQUIRE(usable.size() == 2);
    CHECK(usable[1] == 1);  // in a body
    CHECK(seen.threads <= usable[0]);
    return usable[0];
  };
  const auto both = [&](uint64_t most, uint32_t expected) {
    INFO("max_threads " << most);
    CHECK(run(most) == expected);
    CHECK(host.usable_threads(host.ctx) == nw_get_num_threads(rt));  // and afterwards all may be used
  };
  for (const uint64_t most : {uint64_t{0}, uint64_t{4}, uint64_t{5}, UINT64_MAX}) both(most, 4);
  both(1, 1);
  both(3, 3);
  REQUIRE(nw_set_num_threads(rt, 2, nullptr) == NW_OK);
  both(0, 2);
  both(3, 2);
  both(1, 1);
  CHECK(probe.plans == 1);  // it is no part of a plan
}

TEST_CASE("a launch in a launch uses no more threads than that") {
  Loaded rt({"probecpu"}, Options{.num_threads = 4});
  Probe& probe = rt.probe("probecpu");
  Array a({4}, kCpu), out({4}, kCpu);
  Call inner("probe.noop/1", {&a}, {&out}), outer("probe.noop/1", {&a}, {&out});
  std::vector<uint32_t> usable;
  bool nested = false;
  probe.on_launch = [&](const nw_call&) {
    usable.push_back(probe.host->usable_threads(probe.host->ctx));
    if (nested) return;
    nested = true;
    for (const uint64_t most : {1, 0, 3}) {
      inner.raw.max_threads = most;
      inner.ok(rt);
    }
    usable.push_back(probe.host->usable_threads(probe.host->ctx));
  };
  outer.raw.max_threads = 2;
  outer.ok(rt);
  CHECK(usable == std::vector<uint32_t>{2, 1, 2, 2, 2});
}

TEST_CASE("a launch that fails leaves no limit behind") {
  Loaded rt({"probecpu"}, Options{.num_threads = 4});
  Probe& probe = rt.probe("probecpu");
  Array a({4}, kCpu), out({4}, kCpu);
  Call call("probe.noop/1", {&a}, {&out});
  call.raw.max_threads = 1;
  probe.on_launch = [](const nw_call&) { throw std::runtime_error("no"); };
  CHECK(call.run(rt) == NW_FAILED);
  CHECK(probe.host->usable_threads(probe.host->ctx) == 4);
}

TEST_CASE("the number is set while loops run in other threads") {
  Pool pool(4);
  nw_runtime* const rt = pool.rt;
  std::atomic<int> bad{0};
  std::atomic<bool> done{false};
  Thread sets([&] {
    for (int i = 0; !done; ++i) bad += nw_set_num_threads(rt, 1 + i % 4, nullptr) != NW_OK;
  });
  crowd(3, [&](int) {
    for (int i = 0; i < 300; ++i) {
      std::atomic<int64_t> sum{0};
      parallel_for(pool.host, 1000, 1, [&](int64_t begin, int64_t end) {
        for (int64_t k = begin; k < end; ++k) sum += k;
      });
      bad += sum != 999 * 1000 / 2;
      bad += nw_get_num_threads(rt) < 1 || nw_get_num_threads(rt) > 4;
    }
  });
  done = true;
  sets.join();
  CHECK(bad == 0);
}

TEST_CASE("a loop that runs keeps its threads") {
  Pool pool(3);
  Gate gate, all;
  std::atomic<int> inside{0};
  Thread loop([&] {
    parallel_for(pool.host, 3, 1, [&](int64_t, int64_t) {
      if (++inside == 3) all.open();
      gate.wait();
    });
  });
  REQUIRE(all.wait());
  REQUIRE(nw_set_num_threads(pool.rt, 1, nullptr) == NW_OK);
  CHECK(fault_in(pieces_of(pool.host, 100, 1), 100, 1) == "");
  CHECK(inside == 3);
  gate.open();
  loop.join();
  CHECK(seen_in(pool.host, 5).threads == 1);
}
