// SPDX-License-Identifier: Apache-2.0
// test_plan_cache.cpp -- core/plan_cache.cpp: bounded, single-flight per key, and nobody waits for a planner of another key.
#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "fixture.h"
#include "threads.h"

using namespace narrows::test;

namespace {

// probe.noop/1 with its own key for every number.
struct Keyed {
  Array a{{4}}, out{{4}};
  Call call{"probe.noop/1", {&a}, {&out}};
  explicit Keyed(int64_t key) { call.params(ProbeParams{key, 0, 0}); }
  int32_t run(nw_runtime* rt) { return call.run(rt); }
};

int64_t key_of(const nw_sig& sig) {
  ProbeParams params{};
  if (sig.params_size != 0) std::memcpy(&params, sig.params, std::min<size_t>(sig.params_size, sizeof params));
  return params.n;
}

// Planning of key 1 stops at the gate.
void stop_key_1(Probe& probe, Gate& gate) {
  probe.on_plan = [&gate](const nw_sig& sig) {
    if (key_of(sig) == 1) gate.wait();
  };
}

int live(const Probe& probe) { return probe.plans_made - probe.plans_freed; }

void check_no_leak(const Loaded& rt) {
  nw_plan_cache_clear(rt);
  CHECK(rt.probe().plans_made == rt.probe().plans_freed);
  CHECK(rt.probe().dead_plans == 0);
}

}  // namespace

TEST_CASE("a call that was planned is not planned again") {
  Loaded rt({"probe"});
  for (int i = 0; i < 100; ++i)
    for (int64_t key = 0; key < 5; ++key) CHECK(Keyed(key).run(rt) == NW_OK);
  CHECK(rt.probe().plans == 5);
  CHECK(rt.probe().launches == 500);
  check_no_leak(rt);
}

TEST_CASE("the cache keeps as many plans as it may and no more") {
  for (const uint32_t capacity : {1u, 4u, 100u, 300u, 0u}) {
    INFO("capacity " << capacity);
    const int bound = capacity == 0 ? 1024 : static_cast<int>(capacity);
    Loaded rt({"probe"}, Options{.plan_cache_capacity = capacity});
    for (int64_t key = 0; key < 3 * bound; ++key) {
      REQUIRE(Keyed(key).run(rt) == NW_OK);
      REQUIRE(live(rt.probe()) <= bound);
    }
    CHECK(live(rt.probe()) >= bound * 3 / 4);
    for (int64_t key = 0; key < 3 * bound; ++key) REQUIRE(Keyed(key).run(rt) == NW_OK);
    CHECK(live(rt.probe()) <= bound);
    check_no_leak(rt);
  }
}

TEST_CASE("a plan in constant use is not evicted") {
  Loaded rt({"probe"}, Options{.plan_cache_capacity = 4});
  int plans_of_0 = 0;
  rt.probe().on_plan = [&](const nw_sig& sig) { plans_of_0 += key_of(sig) == 0; };
  for (int64_t key = 1; key < 200; ++key) {
    REQUIRE(Keyed(0).run(rt) == NW_OK);
    REQUIRE(Keyed(key).run(rt) == NW_OK);
  }
  CHECK(plans_of_0 == 1);
}

TEST_CASE("a plan that is held survives its eviction") {
  Loaded rt({"probe"}, Options{.plan_cache_capacity = 2});
  Keyed held(0);
  nw_plan* plan = nullptr;
  REQUIRE(held.call.plan(rt, &plan) == NW_OK);
  for (int64_t key = 1; key < 20; ++key) REQUIRE(Keyed(key).run(rt) == NW_OK);
  CHECK(live(rt.probe()) <= 3);
  CHECK(nw_launch(plan, &held.call.raw, nullptr) == NW_OK);
  const int freed = rt.probe().plans_freed;
  nw_plan_release(plan);
  CHECK(rt.probe().plans_freed == freed + 1);
  check_no_leak(rt);
}

TEST_CASE("a plan in flight survives its eviction") {
  Loaded rt({"probe"}, Options{.plan_cache_capacity = 2});
  Gate gate;
  std::atomic<bool> first{true};
  rt.probe().on_launch = [&](const nw_call&) {
    if (first.exchange(false)) gate.wait();
  };
  std::atomic<int32_t> status{-1};
  {
    Thread flying([&] { status = Keyed(0).run(rt); });
    REQUIRE(gate.wait_until_arrived());
    for (int64_t key = 1; key < 20; ++key) CHECK(Keyed(key).run(rt) == NW_OK);
    nw_plan_cache_clear(rt);
    CHECK(live(rt.probe()) == 1);
    gate.open();
  }
  CHECK(status == NW_OK);
  CHECK(live(rt.probe()) == 0);
  check_no_leak(rt);
}

TEST_CASE("sixteen threads with one key plan once") {
  for (const uint32_t capacity : {1u, 0u}) {
    Loaded rt({"probe"}, Options{.plan_cache_capacity = capacity});
    for (int round = 0; round < 20; ++round) {
      nw_plan_cache_clear(rt);
      const int before = rt.probe().plans;
      rt.probe().on_plan = [](const nw_sig&) { std::this_thread::sleep_for(std::chrono::milliseconds(5)); };
      std::atomic<int> good{0};
      crowd(16, [&](int) { good += Keyed(7).run(rt) == NW_OK; });
      CHECK(good == 16);
      CHECK(rt.probe().plans == before + 1);
    }
    check_no_leak(rt);
  }
}

TEST_CASE("nobody waits for the planner of another key") {
  for (const uint32_t capacity : {4u, 0u}) {  // one shard, and many
    INFO("capacity " << capacity);
    Loaded rt({"probe"}, Options{.plan_cache_capacity = capacity});
    REQUIRE(Keyed(2).run(rt) == NW_OK);
    Gate gate;
    stop_key_1(rt.probe(), gate);
    std::atomic<int32_t> status{-1};
    {
      Thread planner([&] { status = Keyed(1).run(rt); });
      REQUIRE(gate.wait_until_arrived());
      CHECK(Keyed(2).run(rt) == NW_OK);                                           // a hit
      for (int64_t key = 3; key < 40; ++key) CHECK(Keyed(key).run(rt) == NW_OK);  // misses, and evictions
      Keyed asked(1);
      CHECK(asked.call.raw.op != nullptr);
      nw_plan_cache_clear(rt);
      CHECK(Keyed(2).run(rt) == NW_OK);
      auto info = sized<nw_backend_info>();
      CHECK(nw_backend(rt, 0, &info, nullptr) == NW_OK);
      CHECK(status == -1);
      gate.open();
    }
    CHECK(status == NW_OK);
    check_no_leak(rt);
  }
}

TEST_CASE("a planner that fails wakes those who wait and is not remembered") {
  Loaded rt({"probe"});
  struct Odd {};
  const std::function<void()> ways[] = {[] {}, [] { throw std::runtime_error("broken"); }, [] { throw Odd{}; }};
  for (const auto& way : ways) {
    Gate gate;
    rt.probe().plan_status = NW_FAILED;
    rt.probe().on_plan = [&](const nw_sig&) {
      gate.wait();
      way();
    };
    std::atomic<int> failed{0};
    std::vector<std::unique_ptr<Thread>> threads;
    for (int i = 0; i < 8; ++i) threads.push_back(std::make_unique<Thread>([&] { failed += Keyed(1).run(rt) == NW_FAILED; }));
    REQUIRE(gate.wait_until_arrived());
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    gate.open();
    threads.clear();
    CHECK(failed == 8);
    rt.probe().on_plan = nullptr;
    rt.probe().plan_status = NW_OK;
    CHECK(Keyed(1).run(rt) == NW_OK);
    nw_plan_cache_clear(rt);
  }
  check_no_leak(rt);
}

TEST_CASE("a planner that fails takes no room") {
  Loaded rt({"probe"}, Options{.plan_cache_capacity = 2});
  rt.probe().plan_status = NW_FAILED;
  CHECK(Keyed(1).run(rt) == NW_FAILED);
  rt.probe().plan_status = NW_OK;
  for (const int64_t key : {1, 2, 1, 2}) CHECK(Keyed(key).run(rt) == NW_OK);
  CHECK(rt.probe().plans == 3);
  check_no_leak(rt);
}

TEST_CASE("the cache may be cleared while a key is planned and the key be asked for again") {
  Loaded rt({"probe"});
  Gate gate;
  std::atomic<int> planners{0};
  rt.probe().on_plan = [&](const nw_sig&) {
    if (planners++ == 0) gate.wait();
  };
  std::atomic<int32_t> status{-1};
  {
    Thread planner([&] { status = Keyed(1).run(rt); });
    REQUIRE(gate.wait_until_arrived());
    nw_plan_cache_clear(rt);
    CHECK(Keyed(1).run(rt) == NW_OK);  // by a plan of its own
    gate.open();
  }
  CHECK(status == NW_OK);
  CHECK(rt.probe().plans == 2);
  CHECK(Keyed(1).run(rt) == NW_OK);
  CHECK(rt.probe().plans == 2);
  check_no_leak(rt);
}

TEST_CASE("a planner that fails after the cache was cleared takes nobody else's plan with it") {
  for (const bool again : {false, true}) {
    INFO((again ? "the key was planned again" : "nobody asked for the key meanwhile"));
    Loaded rt({"probe"});
    Gate gate;
    std::atomic<int> planners{0};
    rt.probe().on_plan = [&](const nw_sig&) {
      if (planners++ != 0) return;
      gate.wait();
      throw std::runtime_error("broken");
    };
    std::atomic<int32_t> status{-1};
    {
      Thread planner([&] { status = Keyed(1).run(rt); });
      REQUIRE(gate.wait_until_arrived());
      nw_plan_cache_clear(rt);
      if (again) CHECK(Keyed(1).run(rt) == NW_OK);
      gate.open();
    }
    CHECK(status == NW_FAILED);
    CHECK(Keyed(1).run(rt) == NW_OK);
    CHECK(rt.probe().plans == 2);
    check_no_leak(rt);
  }
}

TEST_CASE("a cache that is full of keys being planned grows until they are") {
  Loaded rt({"probe"}, Options{.plan_cache_capacity = 1});
  Gate gate;
  stop_key_1(rt.probe(), gate);
  std::atomic<int32_t> status{-1};
  {
    Thread planner([&] { status = Keyed(1).run(rt); });
    REQUIRE(gate.wait_until_arrived());
    for (int64_t key = 2; key < 6; ++key) {
      CHECK(Keyed(key).run(rt) == NW_OK);
      CHECK(live(rt.probe()) == 1);
    }
    gate.open();
  }
  CHECK(status == NW_OK);
  CHECK(live(rt.probe()) == 1);
  check_no_leak(rt);
}

TEST_CASE("many threads many keys a small cache") {
  Loaded rt({"probe"}, Options{.plan_cache_capacity = 8});
  std::atomic<int> good{0};
  crowd(16, [&](int thread) {
    uint64_t random = static_cast<uint64_t>(thread) * 0x9E3779B97F4A7C15 + 1;
    for (int i = 0; i < 300; ++i) {
      random = random * 6364136223846793005 + 1442695040888963407;
      Keyed keyed(static_cast<int64_t>(random >> 60));
      if (i % 50 == 49) nw_plan_cache_clear(rt);
      if (i % 3 != 0) {
        good += keyed.run(rt) == NW_OK;
        continue;
      }
      nw_plan* plan = nullptr;
      const bool got = keyed.call.plan(rt, &plan) == NW_OK && nw_launch(plan, &keyed.call.raw, nullptr) == NW_OK;
      nw_plan_release(plan);
      good += got;
    }
  });
  CHECK(good == 16 * 300);
  CHECK(live(rt.probe()) <= 8);
  check_no_leak(rt);
}
