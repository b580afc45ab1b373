// SPDX-License-Identifier: Apache-2.0
// test_memory.cpp -- core/api.cpp: memory, copies and streams go to the plugin that serves the device.
#include <cstring>

#include "fixture.h"

using namespace narrows::test;

namespace {

constexpr DLDevice kOpenCl{kDLOpenCL, 0}, kPinned{kDLROCMHost, 0}, kManaged{kDLCUDAManaged, 0}, kMetal{kDLMetal, 0};

std::string took(const Loaded& rt) {  // "probe: copy 1 to 12": who did what since the last time
  std::string out;
  for (const char* name : {"probe", "probe2", "probecl", "probecpu"})
    if (void* extension = const_cast<void*>(nw_extension(rt, name, "probe/1")))
      for (const Event& event : static_cast<Probe*>(extension)->take_events())
        out += (out.empty() ? "" : "; ") + std::string(name) + ": " + event.slot;
  return out;
}

}  // namespace

TEST_CASE("memory comes from the first plugin that serves the device") {
  Loaded rt({"probe", "probe2", "probecl", "probecpu"});
  int stream = 0;
  for (const auto& [device, name] :
       {std::pair<DLDevice, const char*>{probe_device(2), "probe"}, {kOpenCl, "probecl"}, {kCpu, "probecpu"}}) {
    void* const on = device.device_type == kDLCPU ? nullptr : &stream;
    void* data = nullptr;
    REQUIRE(nw_alloc(rt, device, 1000, on, &data, nullptr) == NW_OK);
    REQUIRE(data != nullptr);
    CHECK(reinterpret_cast<uintptr_t>(data) % 256 == 0);
    std::vector<Event> events = rt.probe(name).take_events();
    REQUIRE(events.size() == 1);
    CHECK(events[0].slot == "alloc");
    CHECK(events[0].device_id == device.device_id);
    CHECK(events[0].size == 1000);
    CHECK(events[0].stream == on);
    REQUIRE(nw_free(rt, device, data, on, nullptr) == NW_OK);
    events = rt.probe(name).take_events();
    REQUIRE(events.size() == 1);
    CHECK((events[0].slot == "free" && events[0].data == data && events[0].stream == on));
    REQUIRE(nw_free(rt, device, nullptr, nullptr, nullptr) == NW_OK);
    data = &stream;
    REQUIRE(nw_alloc(rt, device, 0, nullptr, &data, nullptr) == NW_OK);
    CHECK(data == nullptr);
  }
}

TEST_CASE("what memory and stream functions refuse") {
  Loaded rt({"probe", "probecpu"});
  void* data = nullptr;
  Error error;
  expect_refused(nw_alloc(rt, kProbe, 8, nullptr, nullptr, &error), error, NW_INVALID, -1, {"data", "NULL"});
  expect_refused(nw_alloc(nullptr, kProbe, 8, nullptr, &data, &error), error, NW_INVALID, -1, {"runtime", "NULL"});
  expect_refused(nw_alloc(rt, kMetal, 8, nullptr, &data, &error), error, NW_UNAVAILABLE, -1, {"Metal"});
  expect_refused(nw_alloc(rt, kNowhere, 8, nullptr, &data, &error), error, NW_UNAVAILABLE, -1, {"0"});
  expect_refused(nw_alloc(rt, probe_device(3), 8, nullptr, &data, &error), error, NW_INVALID, -1, {"12:3", "3 devices"});
  expect_refused(nw_alloc(rt, probe_device(-1), 8, nullptr, &data, &error), error, NW_INVALID, -1, {"-1"});
  expect_refused(nw_alloc(rt, kCpu, 8, &data, &data, &error), error, NW_INVALID, -1, {"stream", "CPU"});
  expect_refused(nw_free(rt, kCpu, nullptr, &data, &error), error, NW_INVALID, -1, {"stream", "CPU"});
  expect_refused(nw_free(rt, kMetal, nullptr, nullptr, &error), error, NW_UNAVAILABLE, -1, {"Metal"});
  expect_refused(nw_stream_create(rt, kProbe, nullptr, &error), error, NW_INVALID, -1, {"stream", "NULL"});
  expect_refused(nw_stream_create(rt, probe_device(5), &data, &error), error, NW_INVALID, -1, {"12:5"});
  expect_refused(nw_stream_sync(rt, kCpu, &data, &error), error, NW_INVALID, -1, {"stream", "CPU"});
  expect_refused(nw_stream_wait(rt, kCpu, nullptr, &data, &error), error, NW_INVALID, -1, {"stream", "CPU"});
  expect_refused(nw_stream_destroy(nullptr, kProbe, &data, &error), error, NW_INVALID, -1, {"runtime", "NULL"});
  rt.probe().alloc_status = NW_OUT_OF_MEMORY;
  expect_refused(nw_alloc(rt, kProbe, 8, nullptr, &data, &error), error, NW_OUT_OF_MEMORY, -1, {"probe", "told to"});
  CHECK(nw_alloc(rt, kProbe, 8, nullptr, &data, nullptr) == NW_OUT_OF_MEMORY);
  CHECK(data == nullptr);
}

TEST_CASE("a copy is done by the plugin of the side that is not host memory") {
  Loaded rt({"probe", "probe2", "probecl", "probecpu"});
  unsigned char from[16], to[16];
  std::memset(from, 7, sizeof from);
  const struct {
    DLDevice to, from;
    const char* who;
  } copies[] = {
      {kProbe, kCpu, "probe: copy 1 to 12"},
      {kCpu, kProbe, "probe: copy 12 to 1"},
      {kProbe, kPinned, "probe: copy 11 to 12"},
      {kPinned, kProbe, "probe: copy 12 to 11"},
      {kProbe, kManaged, "probe: copy 13 to 12"},
      {kManaged, kCpu, "probe: copy 1 to 13"},
      {kProbe, probe_device(2), "probe: copy 12 to 12"},
      {kOpenCl, kCpu, "probecl: copy 1 to 4"},
      {kCpu, kCpu, "probecpu: copy 1 to 1"},
  };
  for (const auto& copy : copies) {
    INFO(copy.who);
    std::memset(to, 0, sizeof to);
    Error error;
    const int32_t status = nw_copy(rt, copy.to, to, copy.from, from, sizeof from, nullptr, &error);
    INFO((status == NW_OK ? "" : error.text()));
    CHECK(status == NW_OK);
    CHECK(took(rt) == copy.who);
    CHECK(std::memcmp(to, from, sizeof to) == 0);
  }
}

TEST_CASE("pinned memory to the CPU is a copy too") {
  Loaded rt({"probe", "probecpu"});
  unsigned char from[4] = {1, 2, 3, 4}, to[4] = {};
  REQUIRE(nw_copy(rt, kCpu, to, kPinned, from, 4, nullptr, nullptr) == NW_OK);
  CHECK(to[3] == 4);
  REQUIRE(nw_copy(rt, kPinned, to, kPinned, from, 3, nullptr, nullptr) == NW_OK);
}

TEST_CASE("what a copy refuses") {
  Loaded rt({"probe", "probecl", "probecpu"});
  unsigned char a[4] = {}, b[4] = {9, 9, 9, 9};
  Error error;
  expect_refused(nw_copy(rt, kOpenCl, b, kProbe, a, 4, nullptr, &error), error, NW_UNSUPPORTED, -1, {"OpenCL:0", "12:0"});
  expect_refused(nw_copy(rt, kProbe, b, kOpenCl, a, 4, nullptr, &error), error, NW_UNSUPPORTED, -1, {"OpenCL:0", "12:0"});
  expect_refused(nw_copy(rt, kOpenCl, b, kPinned, a, 4, nullptr, &error), error, NW_UNSUPPORTED, -1, {"OpenCL:0", "ROCMHost:0"});
  expect_refused(nw_copy(rt, kPinned, b, kOpenCl, a, 4, nullptr, &error), error, NW_UNSUPPORTED, -1, {"OpenCL:0", "ROCMHost:0"});
  expect_refused(nw_copy(rt, kPinned, b, probe_device(7), a, 4, nullptr, &error), error, NW_INVALID, -1, {"12:7"});
  expect_refused(nw_copy(rt, kMetal, b, kCpu, a, 4, nullptr, &error), error, NW_UNAVAILABLE, -1, {"Metal"});
  expect_refused(nw_copy(rt, probe_device(7), b, kCpu, a, 4, nullptr, &error), error, NW_INVALID, -1, {"12:7"});
  expect_refused(nw_copy(rt, kProbe, b, probe_device(7), a, 4, nullptr, &error), error, NW_INVALID, -1, {"12:7"});
  expect_refused(nw_copy(rt, kProbe, nullptr, kCpu, a, 4, nullptr, &error), error, NW_INVALID, -1, {"dst", "NULL", "4"});
  expect_refused(nw_copy(rt, kProbe, b, kCpu, nullptr, 4, nullptr, &error), error, NW_INVALID, -1, {"src", "NULL", "4"});
  expect_refused(nw_copy(rt, kCpu, b, kCpu, a, 4, &error, &error), error, NW_INVALID, -1, {"stream", "CPU"});
  expect_refused(nw_copy(nullptr, kCpu, b, kCpu, a, 4, nullptr, &error), error, NW_INVALID, -1, {"runtime", "NULL"});
  CHECK(b[0] == 9);
  CHECK(took(rt).empty());
  REQUIRE(nw_copy(rt, kProbe, nullptr, kCpu, nullptr, 0, nullptr, nullptr) == NW_OK);  // nothing to do
}

TEST_CASE("streams go to the plugin of their device") {
  Loaded rt({"probe", "probecl"});
  const DLDevice device = probe_device(1);
  void *one = nullptr, *two = nullptr;
  REQUIRE(nw_stream_create(rt, device, &one, nullptr) == NW_OK);
  REQUIRE(nw_stream_create(rt, device, &two, nullptr) == NW_OK);
  CHECK(one != nullptr);
  CHECK(one != two);
  REQUIRE(nw_stream_sync(rt, device, one, nullptr) == NW_OK);
  REQUIRE(nw_stream_wait(rt, device, one, two, nullptr) == NW_OK);
  REQUIRE(nw_stream_destroy(rt, device, two, nullptr) == NW_OK);
  const std::vector<Event> events = rt.probe().take_events();
  REQUIRE(events.size() == 5);
  CHECK((events[2].slot == "stream_sync" && events[2].stream == one && events[2].device_id == 1));
  CHECK((events[3].slot == "stream_wait" && events[3].stream == one && events[3].data == two));
  CHECK((events[4].slot == "stream_destroy" && events[4].stream == two));
  Array a({2}, device), out({2}, device);
  Call call("probe.noop/1", {&a}, {&out});
  call.raw.stream = one;
  call.ok(rt);
  CHECK(rt.probe().take_events()[0].stream == one);
  REQUIRE(nw_stream_destroy(rt, device, one, nullptr) == NW_OK);
  CHECK(rt.probe("probecl").take_events().empty());
}
