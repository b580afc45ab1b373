// SPDX-License-Identifier: Apache-2.0
// test_backend.cpp -- core/backend.cpp: when instances are made, which plugins are passed over, and that what was made is
// destroyed.
#include <stdexcept>

#include "fixture.h"

using namespace narrows::test;

namespace {

int32_t run_faulty(nw_runtime* rt, Error* error) {
  Array a({2}), out({2});
  Call call("faulty.op/1", {&a}, {&out});
  const int32_t status = call.run(rt);
  *error = call.error;
  return status;
}

}  // namespace

TEST_CASE("a plugin that lacks the device's number is passed over") {
  for (const bool three_first : {true, false}) {
    INFO((three_first ? "three devices, then two" : "two devices, then three"));
    Loaded rt(three_first ? std::initializer_list<const char*>{"probe"} : std::initializer_list<const char*>{"probe2"});
    REQUIRE(nw_load(rt, plugin_file("fine").c_str(), nullptr) == NW_OK);  // of the same type; has one device, and lacks the op
    REQUIRE(nw_load(rt, plugin_file(three_first ? "probe2" : "probe").c_str(), nullptr) == NW_OK);
    Array a({3}, probe_device(2)), out({3}, probe_device(2));
    Call("probe.noop/1", {&a}, {&out}).ok(rt);
    CHECK(rt.probe("probe").launches == 1);
    Call named("probe.noop/1", {&a}, {&out});
    named.raw.backend = "probe2";
    named.refused(rt, NW_INVALID, -1, {"12:2 does not exist", "probe2 has 2 devices"});
    void* data = nullptr;
    REQUIRE(nw_alloc(rt, probe_device(2), 8, nullptr, &data, nullptr) == NW_OK);
    REQUIRE(nw_free(rt, probe_device(2), data, nullptr, nullptr) == NW_OK);
    Error error;
    expect_refused(nw_alloc(rt, probe_device(3), 8, nullptr, &data, &error), error, NW_INVALID, -1, {"12:3 does not exist"});
  }
}

TEST_CASE("a device that a plugin was given after it was opened is served") {
  Loaded rt({"probe"});
  Array a({3}, probe_device(3)), out({3}, probe_device(3));
  Call("probe.noop/1", {&a}, {&out}).refused(rt, NW_INVALID, -1, {"12:3 does not exist", "probe has 3 devices"});
  rt.probe("probe").more_devices = 1;
  Call("probe.noop/1", {&a}, {&out}).ok(rt);
  CHECK(rt.probe("probe").launches == 1);
  CHECK(rt.runtime->backends()[0].device_count == 4);
  Array beyond({3}, probe_device(4));
  Call("probe.noop/1", {&beyond}, {&beyond}).refused(rt, NW_INVALID, -1, {"12:4 does not exist", "probe has 4 devices"});
}

TEST_CASE("device type 0 is no memory of a plugin that has neither pinned nor managed memory") {
  Loaded rt({"probecl"});
  for (const DLDevice device : {DLDevice{}, DLDevice{static_cast<DLDeviceType>(0), 1}}) {
    Array a({3}, device), out({3}, device), cl({3}, {kDLOpenCL, 0});
    Call("probe.noop/1", {&a}, {&out}).refused(rt, NW_UNAVAILABLE, -1, {"device type 0"});
    Call("probe.noop/1", {&a}, {&cl}).refused(rt, NW_INVALID, 1, {"a lives on device type 0", "out on OpenCL:0"});
  }
}

TEST_CASE("a plugin that cannot be opened does not disturb those before it") {
  Folder folder;
  folder.add("fine", "narrows_1.so");
  const std::string broken = folder.add("fault_create_odd_status", "narrows_2.so");
  Runtime rt(folder);
  Error error;
  const int32_t status = run_faulty(rt, &error);
  INFO((status == NW_OK ? "" : error.text()));
  CHECK(status == NW_OK);
  CHECK(rt.backend_of_file(broken).status == NW_FAILED);
}

TEST_CASE("an instance that is NULL is destroyed too") {
  std::string log;
  auto options = sized<nw_options>();
  options.plugin_path = "";
  options.log_ctx = &log;
  options.log = [](void* ctx, int32_t, const char* message) { *static_cast<std::string*>(ctx) += message; };
  for (const bool opened : {false, true}) {
    log.clear();
    nw_runtime* rt = nullptr;
    REQUIRE(nw_runtime_create(&options, &rt, nullptr) == NW_OK);
    REQUIRE(nw_load(rt, plugin_file("fine_no_instance").c_str(), nullptr) == NW_OK);
    Error error;
    if (opened) CHECK(run_faulty(rt, &error) == NW_OK);
    CHECK(!contains(log, "destroyed"));
    nw_runtime_destroy(rt);
    CHECK(contains(log, "fine_no_instance is destroyed") == opened);
  }
}

TEST_CASE("a plugin that can no longer count its devices is listed with its reason") {
  Loaded rt({"probe"});
  auto info = sized<nw_backend_info>();
  REQUIRE(nw_backend(rt, 0, &info, nullptr) == NW_OK);
  CHECK(info.status == NW_OK);
  rt.probe().on_slot = [](const std::string& slot) {
    if (slot == "device_count") throw std::runtime_error("they have left");
  };
  REQUIRE(nw_backend(rt, 0, &info, nullptr) == NW_OK);
  CHECK(info.status == NW_FAILED);
  CHECK(contains(info.reason, "they have left"));
  REQUIRE(nw_backend(rt, 0, &info, nullptr) == NW_OK);
  CHECK(contains(info.reason, "they have left"));
  rt.probe().on_slot = nullptr;
  REQUIRE(nw_backend(rt, 0, &info, nullptr) == NW_OK);
  CHECK(info.status == NW_OK);
}
