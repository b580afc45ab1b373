// SPDX-License-Identifier: Apache-2.0
// test_fork.cpp -- after fork the child's CPU works, whatever the parent's other threads were doing, and devices that were open
// answer that they are unavailable. The parent notices nothing.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fixture.h"
#include "threads.h"

using namespace narrows::test;

#if defined(__SANITIZE_THREAD__)
#define SKIP_UNDER_TSAN() SKIP("ThreadSanitizer allows no threads in the child of a process with threads")
#else
#define SKIP_UNDER_TSAN() (void)0
#endif
#if defined(__SANITIZE_ADDRESS__)
#define SKIP_UNDER_ASAN() SKIP("AddressSanitizer's allocator stays locked in the child when another thread was inside it")
#else
#define SKIP_UNDER_ASAN() (void)0
#endif

namespace {

constexpr int kTimedOut = -1000;

// What the child's work returned; minus the signal that killed it, or kTimedOut. The child may not use Catch2, nor run exit
// handlers.
int in_child(const std::function<int()>& work) {
  const pid_t child = fork();
  if (child == 0) _exit(work());
  if (child < 0) return -999;
  for (int i = 0; i < 12000; ++i) {
    int status = 0;
    if (waitpid(child, &status, WNOHANG) == child) return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    usleep(10000);
  }
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  return kTimedOut;
}

int32_t run_on(nw_runtime* rt, DLDevice device, int64_t key = 0, Error* error = nullptr) {
  Array a({4}, device), out({4}, device);
  Call call("probe.noop/1", {&a}, {&out});
  call.params(ProbeParams{key, 0, 0});
  const int32_t status = call.run(rt);
  if (error != nullptr) *error = call.error;
  return status == NW_OK && out.data<unsigned char>()[0] != 0x5A ? NW_FAILED : status;
}

// In the child: calls that are cached and calls that are not, and the pool with all its threads.
int cpu_works(nw_runtime* rt) {
  for (int64_t key = 0; key < 3; ++key)
    if (run_on(rt, kCpu, key) != NW_OK) return 1;
  nw_plan_cache_clear(rt);
  if (run_on(rt, kCpu) != NW_OK) return 2;
  const auto* probe = static_cast<const Probe*>(nw_extension(rt, "probecpu", "probe/1"));
  if (probe == nullptr) return 3;
  std::atomic<int64_t> sum{0};
  for (int job = 0; job < 50; ++job)
    probe->host->parallel_for(
        probe->host->ctx, 1000, 1,
        [](void* arg, int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) *static_cast<std::atomic<int64_t>*>(arg) += i;
        },
        &sum);
  return sum == 50 * (999 * 1000 / 2) ? 0 : 4;
}

}  // namespace

TEST_CASE("in the child of a fork the CPU works") {
  SKIP_UNDER_TSAN();
  Loaded rt({"probecpu"}, Options{.num_threads = 3});
  CHECK(in_child([&] { return cpu_works(rt); }) == 0);  // nothing was open
  REQUIRE(cpu_works(rt) == 0);
  CHECK(in_child([&] { return cpu_works(rt); }) == 0);
  CHECK(in_child([&] { return in_child([&] { return cpu_works(rt); }); }) == 0);  // and in its child
  CHECK(cpu_works(rt) == 0);
}

TEST_CASE("in the child of a fork an open device is unavailable one that was not open works") {
  SKIP_UNDER_TSAN();
  Loaded rt({"probe", "probecl", "probecpu"});
  Array a({4}), out({4});
  Call call("probe.noop/1", {&a}, {&out});
  nw_plan* plan = nullptr;
  REQUIRE(call.plan(rt, &plan) == NW_OK);
  REQUIRE(nw_launch(plan, &call.raw, nullptr) == NW_OK);
  CHECK(in_child([&] {
          Error error;
          if (run_on(rt, kProbe, 0, &error) != NW_UNAVAILABLE) return 1;
          if (!contains(error.text(), "fork") || !contains(error.text(), "probe")) return 2;
          if (run_on(rt, kProbe, 99) != NW_UNAVAILABLE) return 3;
          if (nw_launch(plan, &call.raw, nullptr) != NW_UNAVAILABLE) return 4;
          void* data = nullptr;
          if (nw_alloc(rt, kProbe, 8, nullptr, &data, nullptr) != NW_UNAVAILABLE) return 5;
          auto info = sized<nw_backend_info>();
          if (nw_backend(rt, 0, &info, nullptr) != NW_OK || info.status != NW_UNAVAILABLE) return 6;
          if (!contains(info.reason, "fork")) return 7;
          if (run_on(rt, {kDLOpenCL, 0}) != NW_OK) return 8;  // opened here
          nw_plan_release(plan);
          if (cpu_works(rt) != 0) return 9;
          nw_runtime_destroy(rt);
          return 0;
        }) == 0);
  CHECK(run_on(rt, kProbe) == NW_OK);
  CHECK(nw_launch(plan, &call.raw, nullptr) == NW_OK);
  nw_plan_release(plan);
}

TEST_CASE("in the child of a fork a plan of an open device is released without its plugin") {
  Loaded rt({"probe"});
  Array a({4}), out({4});
  Call call("probe.noop/1", {&a}, {&out});
  nw_plan* plan = nullptr;
  REQUIRE(call.plan(rt, &plan) == NW_OK);
  nw_plan_cache_clear(rt);  // so that the last reference is this one
  Probe& probe = rt.probe();
  CHECK(in_child([&] {
          nw_plan_release(plan);
          return probe.plans_freed.load();
        }) == 0);
  nw_plan_release(plan);
  CHECK(probe.plans_freed == 1);
}

TEST_CASE("a new runtime in the child opens the device anew") {
  SKIP_UNDER_TSAN();
  Loaded rt({"probe", "probecpu"});
  REQUIRE(run_on(rt, kProbe) == NW_OK);
  CHECK(in_child([&] {
          auto options = sized<nw_options>();
          options.plugin_path = rt.folder.path().c_str();
          nw_runtime* own = nullptr;
          if (nw_runtime_create(&options, &own, nullptr) != NW_OK) return 1;
          if (run_on(own, kProbe) != NW_OK) return 2;
          if (cpu_works(own) != 0) return 3;
          nw_runtime_destroy(own);
          return 0;
        }) == 0);
}

TEST_CASE("the number of threads in the child of a fork is the child's own") {
  Loaded rt({"probecpu"}, Options{.num_threads = 3});
  REQUIRE(cpu_works(rt) == 0);
  REQUIRE(nw_set_num_threads(rt, 2, nullptr) == NW_OK);
  CHECK(in_child([&] {
          if (nw_get_num_threads(rt) != 2) return 10;
          if (nw_set_num_threads(rt, 4, nullptr) != NW_INVALID) return 11;
          if (nw_set_num_threads(rt, 1, nullptr) != NW_OK || nw_get_num_threads(rt) != 1) return 12;
          return cpu_works(rt);
        }) == 0);
  CHECK(nw_get_num_threads(rt) == 2);
  SKIP_UNDER_TSAN();
  CHECK(in_child([&] { return nw_set_num_threads(rt, 3, nullptr) != NW_OK ? 13 : cpu_works(rt); }) == 0);
  CHECK(nw_get_num_threads(rt) == 2);
}

TEST_CASE("fork while another thread is inside a call") {
  SKIP_UNDER_TSAN();
  for (const char* where : {"launch", "plan", "infer", "alloc", "the pool"}) {
    INFO("inside " << where);
    Loaded rt({"probecpu"}, Options{.num_threads = 3});
    Probe& probe = rt.probe("probecpu");
    Gate gate;
    const pid_t parent = getpid();
    const auto stop = [&, parent] {
      if (getpid() == parent) gate.wait();
    };
    const std::string place = where;
    if (place == "launch") probe.on_launch = [&](const nw_call&) { stop(); };
    if (place == "plan") probe.on_plan = [&](const nw_sig&) { stop(); };
    if (place == "alloc") probe.workspace_size = 64;
    probe.on_slot = [&](const std::string& slot) {
      if (slot == place) stop();
    };
    if (place == "infer") probe.on_infer = [&](const nw_sig&, nw_spec*, uint32_t) { stop(); };
    std::function<void()> body = stop;
    if (place == "the pool")
      probe.on_launch = [&](const nw_call&) {
        if (getpid() == parent)
          probe.host->parallel_for(
              probe.host->ctx, 3, 1, [](void* arg, int64_t, int64_t) { (*static_cast<std::function<void()>*>(arg))(); }, &body);
      };
    std::atomic<int32_t> status{-1};
    int child = kTimedOut;
    {
      Thread inside([&] { status = run_on(rt, kCpu); });
      if (gate.wait_until_arrived(place == "the pool" ? 3 : 1)) child = in_child([&] { return cpu_works(rt); });
      gate.open();
    }
    CHECK(child == 0);
    CHECK(status == NW_OK);
    CHECK(cpu_works(rt) == 0);
  }
}

TEST_CASE("fork while another thread waits for the plan that a third one makes") {
  SKIP_UNDER_TSAN();
  Loaded rt({"probecpu"}, Options{.num_threads = 3});
  Gate gate;
  const pid_t parent = getpid();
  rt.probe("probecpu").on_plan = [&](const nw_sig&) {
    if (getpid() == parent) gate.wait();
  };
  std::atomic<int> good{0};
  int child = kTimedOut;
  {
    Thread plans([&] { good += run_on(rt, kCpu) == NW_OK; });
    REQUIRE(gate.wait_until_arrived());
    Thread waits([&] { good += run_on(rt, kCpu) == NW_OK; });
    usleep(20000);
    child = in_child([&] { return cpu_works(rt); });  // of the same key
    gate.open();
  }
  CHECK(child == 0);
  CHECK(good == 2);
}

// The instance says through the log that it is being created; there the thread is stopped.
TEST_CASE("fork while another thread opens the device") {
  SKIP_UNDER_TSAN();
  for (const DLDevice device : {kCpu, kProbe}) {
    INFO("device type " << device.device_type);
    struct Stop {
      Gate gate;
      pid_t parent = getpid();
    } stop;
    Folder folder;
    folder.add("probecpu");
    folder.add("probe");
    auto options = sized<nw_options>();
    options.plugin_path = folder.path().c_str();
    options.num_threads = 3;
    options.log_ctx = &stop;
    options.log = [](void* ctx, int32_t, const char* message) {
      auto& at = *static_cast<Stop*>(ctx);
      if (getpid() == at.parent && contains(message, "is created")) at.gate.wait();
    };
    nw_runtime* rt = nullptr;
    REQUIRE(nw_runtime_create(&options, &rt, nullptr) == NW_OK);
    std::atomic<int32_t> status{-1};
    int child = kTimedOut;
    {
      Thread opens([&] { status = run_on(rt, device); });
      if (stop.gate.wait_until_arrived()) child = in_child([&] { return run_on(rt, device) != NW_OK ? 20 : cpu_works(rt); });
      stop.gate.open();
    }
    CHECK(child == 0);  // the device was not open when the process was copied, so it is opened in the child
    CHECK(status == NW_OK);
    CHECK(cpu_works(rt) == 0);
    nw_runtime_destroy(rt);
  }
}

TEST_CASE("fork while other threads are busy again and again") {
  SKIP_UNDER_TSAN();
  SKIP_UNDER_ASAN();
  Loaded rt({"probe", "probecpu"}, Options{.num_threads = 3, .plan_cache_capacity = 4});
  REQUIRE(run_on(rt, kProbe) == NW_OK);
  REQUIRE(cpu_works(rt) == 0);
  for (const char* name : {"probe", "probecpu"}) rt.probe(name).recording = false;
  std::atomic<bool> done{false};
  std::atomic<int> bad{0};
  std::vector<int> children;
  {
    std::vector<std::unique_ptr<Thread>> busy;
    for (int i = 0; i < 3; ++i)
      busy.push_back(std::make_unique<Thread>([&, i] {
        for (int64_t key = i; !done; ++key) {
          bad += run_on(rt, kCpu, key % 16) != NW_OK;
          bad += run_on(rt, kProbe, key % 16) != NW_OK;
          if (key % 7 == 0) nw_plan_cache_clear(rt);
          if (key % 11 == 0) bad += nw_backend_count(rt) == 0;
          if (key % 5 == 0) bad += cpu_works(rt) != 0;
        }
      }));
    for (int i = 0; i < 20; ++i)
      children.push_back(in_child([&] { return run_on(rt, kProbe) == NW_UNAVAILABLE ? cpu_works(rt) : 10; }));
    done = true;
  }
  CHECK(children == std::vector<int>(20, 0));
  CHECK(bad == 0);
}
