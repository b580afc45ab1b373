// SPDX-License-Identifier: Apache-2.0
// test_threads.cpp -- everything may be called from many threads at once; several runtimes live in one process.
#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "fixture.h"
#include "threads.h"

using namespace narrows::test;

namespace {

int32_t run_noop(nw_runtime* rt, int64_t key, DLDevice device = kProbe) {
  Array a({4}, device), out({4}, device);
  Call call("probe.noop/1", {&a}, {&out});
  call.params(ProbeParams{key, 0, 0});
  const int32_t status = call.run(rt);
  return status == NW_OK && out.data<unsigned char>()[0] != 0x5A ? NW_FAILED : status;
}

void quiet(void*, int32_t, const char*) {}

nw_runtime* create(const std::string& path) {
  auto options = sized<nw_options>();
  options.plugin_path = path.c_str();
  options.num_threads = 2;
  options.log = quiet;
  nw_runtime* rt = nullptr;
  return nw_runtime_create(&options, &rt, nullptr) == NW_OK ? rt : nullptr;
}

}  // namespace

TEST_CASE("sixteen threads load run clear create and destroy at once") {
  Folder folder;
  folder.add("probe");
  folder.add("fault_null_launch");
  std::atomic<int> bad{0};
  crowd(16, [&](int thread) {
    for (int i = 0; i < 12; ++i) {
      nw_runtime* rt = create(folder.path());
      bad += rt == nullptr;
      bad += run_noop(rt, thread) != NW_OK;
      bad += nw_load(rt, plugin_file("probecl").c_str(), nullptr) != NW_OK;
      bad += run_noop(rt, i, {kDLOpenCL, 0}) != NW_OK;
      nw_plan_cache_clear(rt);
      bad += run_noop(rt, thread) != NW_OK;
      nw_runtime_destroy(rt);
    }
  });
  CHECK(bad == 0);
}

TEST_CASE("sixteen threads do everything to one runtime") {
  Loaded rt({"probe"});
  std::atomic<int> bad{0};
  crowd(16, [&](int thread) {
    for (int i = 0; i < 60; ++i) switch ((thread + i) % 8) {
        case 0: nw_plan_cache_clear(rt); break;
        case 1: {
          if (i % 10 == 0) bad += nw_load(rt, plugin_file(thread % 2 == 0 ? "probe2" : "fine").c_str(), nullptr) != NW_OK;
          break;
        }
        case 2: {
          auto info = sized<nw_backend_info>();
          for (uint32_t k = 0; k < nw_backend_count(rt); ++k) bad += nw_backend(rt, k, &info, nullptr) != NW_OK;
          break;
        }
        case 3: {
          const nw_op* op = nullptr;
          bad += nw_find_op(rt, "probe.noop/1", &op, nullptr) != NW_OK || op->max_inputs != 3;
          break;
        }
        case 4: {
          void* data = nullptr;
          bad += nw_alloc(rt, kProbe, 64, nullptr, &data, nullptr) != NW_OK;
          bad += nw_free(rt, kProbe, data, nullptr, nullptr) != NW_OK;
          break;
        }
        case 5: bad += nw_load(rt, plugin_file("fault_null_launch").c_str(), nullptr) != NW_INVALID && i % 20 == 0; break;
        case 6: bad += nw_extension(rt, "probe", "probe/1") == nullptr; break;
        default: bad += run_noop(rt, i % 4) != NW_OK;
      }
  });
  CHECK(bad == 0);
  CHECK(rt.probe().dead_plans == 0);
}

TEST_CASE("threads that are first together get one instance") {
  for (int round = 0; round < 20; ++round) {
    Loaded rt({"probe"});
    std::mutex mutex;
    std::vector<const void*> seen;
    std::atomic<int> bad{0};
    crowd(16, [&](int thread) {
      if (thread % 2 == 0) bad += run_noop(rt, thread) != NW_OK;
      const void* extension = nw_extension(rt, "probe", "probe/1");
      const std::lock_guard lock(mutex);
      seen.push_back(extension);
    });
    CHECK(bad == 0);
    for (const void* extension : seen) CHECK((extension != nullptr && extension == seen[0]));
  }
}

TEST_CASE("two runtimes know nothing of each other") {
  auto one = std::make_unique<Loaded>(std::initializer_list<const char*>{"probe"}, Options{.num_threads = 2});
  Loaded two({"probe"}, Options{.num_threads = 3});
  CHECK(&one->probe() != &two.probe());
  CHECK(one->probe().host->num_threads == 2);
  CHECK(two.probe().host->num_threads == 3);
  one->probe().plan_status = NW_UNSUPPORTED;
  CHECK(run_noop(*one, 1) == NW_UNSUPPORTED);
  CHECK(run_noop(two, 1) == NW_OK);
  one->probe().plan_status = NW_OK;
  CHECK(run_noop(*one, 1) == NW_OK);
  CHECK(one->probe().launches == 1);
  CHECK(two.probe().launches == 1);
  REQUIRE(nw_load(*one, plugin_file("probecl").c_str(), nullptr) == NW_OK);
  CHECK(run_noop(two, 1, {kDLOpenCL, 0}) == NW_UNAVAILABLE);
  one.reset();
  CHECK(run_noop(two, 1) == NW_OK);
  CHECK(two.probe().plans == 1);
}

TEST_CASE("a plan of one runtime is launched on its own") {
  Loaded one({"probe"}), two({"probe"});
  Array a({4}), out({4});
  Call call("probe.noop/1", {&a}, {&out});
  nw_plan* plan = nullptr;
  REQUIRE(call.plan(one, &plan) == NW_OK);
  REQUIRE(nw_launch(plan, &call.raw, nullptr) == NW_OK);
  CHECK(one.probe().launches == 1);
  CHECK(two.probe().launches == 0);
  nw_plan_release(plan);
}

TEST_CASE("one plan is launched by many threads at once") {
  Loaded rt({"probe"});
  Array shared({4});
  Array shared_out({4});
  Call call("probe.noop/1", {&shared}, {&shared_out});
  nw_plan* plan = nullptr;
  REQUIRE(call.plan(rt, &plan) == NW_OK);
  std::atomic<int> bad{0};
  crowd(16, [&](int) {
    Array a({4}), out({4});
    Call own("probe.noop/1", {&a}, {&out});
    for (int i = 0; i < 200; ++i) bad += nw_launch(plan, &own.raw, nullptr) != NW_OK;
  });
  CHECK(bad == 0);
  CHECK(rt.probe().launches == 3200);
  nw_plan_release(plan);
}
