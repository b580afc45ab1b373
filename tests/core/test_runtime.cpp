// SPDX-License-Identifier: Apache-2.0
// test_runtime.cpp -- core/runtime.cpp: a runtime while plugins are loaded into it, in the child of a fork, and at exit.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "fixture.h"
#include "threads.h"

using namespace narrows::test;

namespace {

int32_t run_noop(nw_runtime* rt, int64_t key, DLDevice device = kProbe) {
  Array a({4}, device), out({4}, device);
  Call call("probe.noop/1", {&a}, {&out});
  call.params(ProbeParams{key, 0, 0});
  return call.run(rt);
}

// Constructed before any runtime, so that its destructor runs after those of whatever a runtime left behind.
class AtExit {
 public:
  ~AtExit() {
    if (rt == nullptr) return;
    int64_t shape[1] = {15}, taps[1] = {4};
    const DLTensor x = {nullptr, kCpu, 1, kF32, shape, nullptr, 0}, w = {nullptr, kCpu, 1, kF32, taps, nullptr, 0};
    const DLTensor* inputs[] = {&x, &w};
    auto call = sized<nw_call>();
    call.op = "conv1d";
    call.num_inputs = 2;
    call.inputs = inputs;
    nw_spec spec;
    if (nw_infer(rt, &call, &spec, 1, nullptr) != NW_OK || spec.shape[0] != 12) _exit(1);
    nw_runtime_destroy(rt);
  }
  nw_runtime* rt = nullptr;
};
AtExit at_exit;

}  // namespace

TEST_CASE("an exit handler may call") {
  const pid_t child = fork();
  if (child == 0) {
    auto options = sized<nw_options>();
    options.plugin_path = "";
    if (nw_runtime_create(&options, &at_exit.rt, nullptr) != NW_OK) _exit(2);
    std::exit(0);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

TEST_CASE("without a callback warnings and errors go to stderr and nothing else does") {
  Folder folder;
  const std::string missing = folder / "missing", file = folder / "stderr";
  const int before = dup(STDERR_FILENO), to = open(file.c_str(), O_CREAT | O_WRONLY, 0600);
  REQUIRE((before >= 0 && to >= 0 && dup2(to, STDERR_FILENO) == STDERR_FILENO));
  auto options = sized<nw_options>();
  options.plugin_path = missing.c_str();
  nw_runtime* rt = nullptr;
  const int32_t created = nw_runtime_create(&options, &rt, nullptr);
  const int32_t loaded = nw_load(rt, plugin_file("probe").c_str(), nullptr);
  if (const auto* probe = static_cast<const Probe*>(nw_extension(rt, "probe", "probe/1"))) {
    probe->host->log(probe->host->ctx, NW_LOG_INFO, "for information");
    probe->host->log(probe->host->ctx, NW_LOG_ERROR, "went wrong");
    probe->host->log(probe->host->ctx, NW_LOG_ERROR, nullptr);
  }
  nw_runtime_destroy(rt);
  fflush(stderr);
  dup2(before, STDERR_FILENO);
  close(before);
  close(to);
  REQUIRE((created == NW_OK && loaded == NW_OK));
  const std::vector<unsigned char> bytes = read_file(file);
  const std::string text(bytes.begin(), bytes.end());
  CHECK(text == "narrows: warning: " + missing + ": cannot be searched for plugins: No such file or directory\n" +
                    "narrows: error: went wrong\nnarrows: error: \n");
}

TEST_CASE("a plan that is held past its runtime is harmless") {
  int destroyed = 0;
  {
    Array a({4}), out({4});
    Call call("probe.noop/1", {&a}, {&out});
    nw_plan* plans[2] = {};
    {
      Loaded rt({"probe"});
      rt.probe().on_destroy = [&] { ++destroyed; };
      for (nw_plan*& plan : plans) REQUIRE(call.plan(rt, &plan) == NW_OK);
    }
    CHECK(nw_launch(plans[0], &call.raw, nullptr) == NW_OK);
    nw_plan_release(plans[0]);
    CHECK(nw_launch(plans[1], &call.raw, nullptr) == NW_OK);
    CHECK(destroyed == 0);
    nw_plan_release(plans[1]);
  }
  CHECK(destroyed == 1);
}

TEST_CASE("a plugin that is loaded over one of its name leaves no moment without either") {
  Loaded rt({"probe"});
  rt.probe().recording = false;
  std::atomic<bool> done{false};
  std::atomic<int> bad{0}, loaded{0};
  {
    std::vector<std::unique_ptr<Thread>> callers;
    for (int i = 0; i < 2; ++i)
      callers.push_back(std::make_unique<Thread>([&, i] {
        for (int64_t key = i; !done; key += 2) {
          const nw_op* op = nullptr;
          bad += run_noop(rt, key) != NW_OK;
          bad += nw_find_op(rt, "probe.noop/1", &op, nullptr) != NW_OK;
          bad += nw_extension(rt, "probe", "probe/1") == nullptr;
        }
      }));
    for (int i = 0; i < 300; ++i) loaded += nw_load(rt, plugin_file("probe").c_str(), nullptr) == NW_OK;
    done = true;
  }
  CHECK(loaded == 300);
  CHECK(bad == 0);
}

TEST_CASE("a plugin that is loaded over one of its name while others are asked is found") {
  Loaded rt({"probe"});
  REQUIRE(nw_load(rt, plugin_file("probe2").c_str(), nullptr) == NW_OK);  // is asked first, and lacks the device
  bool loaded = false;
  rt.probe("probe2").on_slot = [&](const std::string& slot) {
    if (slot != "device_count" || std::exchange(loaded, true)) return;
    CHECK(nw_load(rt, plugin_file("probe").c_str(), nullptr) == NW_OK);
  };
  void* data = nullptr;
  CHECK(nw_alloc(rt, probe_device(2), 8, nullptr, &data, nullptr) == NW_OK);
  CHECK(loaded);
  CHECK(nw_free(rt, probe_device(2), data, nullptr, nullptr) == NW_OK);
}

TEST_CASE("a runtime is destroyed in the child of a fork with its threads and the instances of the CPU") {
#if defined(__SANITIZE_THREAD__)
  SKIP("ThreadSanitizer allows no threads in the child of a process with threads");
#endif
  Loaded rt({"probecpu"}, Options{.num_threads = 3});
  REQUIRE(run_noop(rt, 0, kCpu) == NW_OK);  // a plan in the cache that the child leaves behind
  const pid_t child = fork();
  if (child == 0) {
    bool destroyed = false;
    auto* probe = static_cast<Probe*>(const_cast<void*>(nw_extension(rt, "probecpu", "probe/1")));
    if (probe == nullptr || run_noop(rt, 0, kCpu) != NW_OK) _exit(1);
    probe->on_destroy = [&] { destroyed = true; };
    probe->host->parallel_for(probe->host->ctx, 1000, 1, [](void*, int64_t, int64_t) {}, nullptr);
    nw_runtime_destroy(rt);
    // A thread that was joined may stand in the list for a moment more.
    const auto threads = [] { return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {}); };
    for (int i = 0; i < 5000 && threads() != 1; ++i) usleep(1000);
    _exit(!destroyed ? 2 : threads() != 1 ? 3 : 0);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

TEST_CASE("the runtime that bindings share is not destroyed") {
  nw_runtime *first = nullptr, *second = nullptr;
  Error error;
  expect_refused(nw_runtime_default(nullptr, &error), error, NW_INVALID, -1, {"out", "NULL"});
  REQUIRE(nw_runtime_default(&first, &error) == NW_OK);
  nw_runtime_destroy(first);
  REQUIRE(nw_runtime_default(&second, &error) == NW_OK);
  CHECK(first == second);
  const nw_op* op = nullptr;
  CHECK(nw_find_op(second, "conv1d", &op, &error) == NW_OK);
}
