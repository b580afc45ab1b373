// SPDX-License-Identifier: Apache-2.0
// test_dispatch.cpp -- core/dispatcher.cpp: the backend is where the tensors live; which of several serves; what passes through.
#include <algorithm>
#include <atomic>
#include <new>
#include <stdexcept>
#include <thread>
#include <vector>

#include "fixture.h"

using namespace narrows::test;

namespace {

constexpr DLDevice kOpenCl{kDLOpenCL, 0}, kPinned{kDLROCMHost, 0}, kManaged{kDLCUDAManaged, 1};
constexpr int32_t kRefusals[] = {NW_INVALID, NW_UNAVAILABLE, NW_OUT_OF_MEMORY, NW_NOT_CAPTURABLE, NW_FAILED, NW_DEVICE_LOST};

// The device on which a call of probe.noop/1 with these inputs was launched.
DLDevice ran_on(const Loaded& rt, std::vector<Array*> inputs, Array& out, DLDevice device = kNowhere) {
  DLDevice at{};
  for (const char* name : {"probe", "probecl", "probecpu"})
    if (void* extension = const_cast<void*>(nw_extension(rt, name, "probe/1")))
      static_cast<Probe*>(extension)->on_launch = [&](const nw_call& call) { at = call.device; };
  Call call("probe.noop/1", std::move(inputs), {&out});
  call.raw.device = device;
  call.ok(rt);
  return at;
}

std::string show(DLDevice device) { return std::to_string(device.device_type) + ":" + std::to_string(device.device_id); }

}  // namespace

TEST_CASE("a call runs where its tensors live") {
  Loaded rt({"probe", "probecl", "probecpu"});
  for (const DLDevice device : {kProbe, probe_device(2), kOpenCl, kCpu}) {
    Array a({3}, device), out({3}, device);
    CHECK(show(ran_on(rt, {&a}, out)) == show(device));
    CHECK(show(ran_on(rt, {&a}, out, device)) == show(device));
    CHECK(out.data<unsigned char>()[0] == 0x5A);
  }
}

TEST_CASE("pinned memory goes with either side and alone it is CPU") {
  Loaded rt({"probe", "probecpu"});
  Array pinned({3}, kPinned), other({3}, kPinned), cpu({3}, kCpu), device({3}, probe_device(1));
  CHECK(show(ran_on(rt, {&pinned}, other)) == show(kCpu));
  CHECK(show(ran_on(rt, {&pinned, &other}, cpu)) == show(kCpu));
  CHECK(show(ran_on(rt, {&cpu}, pinned)) == show(kCpu));
  CHECK(show(ran_on(rt, {&pinned}, device)) == show(probe_device(1)));
  CHECK(show(ran_on(rt, {&device}, pinned)) == show(probe_device(1)));
  CHECK(show(ran_on(rt, {&pinned}, other, probe_device(2))) == show(probe_device(2)));
  CHECK(show(ran_on(rt, {&pinned}, cpu, kCpu)) == show(kCpu));
  Call mixed("probe.noop/1", {&pinned, &device}, {&cpu});
  mixed.refused(rt, NW_INVALID, 3 - 1, {"b", "out", "CPU", "12"});
}

TEST_CASE("managed memory is its device's and goes with the CPU") {
  Loaded rt({"probe", "probecpu"});
  Array managed({3}, kManaged), other({3}, kManaged), cpu({3}, kCpu), device({3}, probe_device(2));
  CHECK(show(ran_on(rt, {&managed}, other)) == show(probe_device(1)));
  CHECK(show(ran_on(rt, {&managed}, device)) == show(probe_device(2)));
  CHECK(show(ran_on(rt, {&managed}, cpu)) == show(kCpu));
  CHECK(show(ran_on(rt, {&managed}, other, kCpu)) == show(kCpu));
}

TEST_CASE("mixed devices are refused and both are named") {
  Loaded rt({"probe", "probecl", "probecpu"});
  Array zero({3}, probe_device(0)), one({3}, probe_device(1)), cl({3}, kOpenCl), cpu({3}, kCpu);
  Call("probe.noop/1", {&zero, &one}, {&zero})
      .refused(rt, NW_INVALID, 1, {": a lives on", "12:0", ", and b on", "12:1", "expected one device"});
  Call("probe.noop/1", {&zero, &cl}, {&zero}).refused(rt, NW_INVALID, 1, {": a lives on", "12:0", ", and b on OpenCL:0"});
  Call("probe.noop/1", {&cpu, nullptr, &zero}, {&cpu}).refused(rt, NW_INVALID, 2, {": a lives on CPU:0, and c on", "12:0"});
  Call("probe.noop/1", {&zero}, {&cpu}).refused(rt, NW_INVALID, 1, {": a lives on", "12:0", ", and out on CPU:0"});
  Call named("probe.noop/1", {&zero}, {&zero});
  named.raw.device = kOpenCl;
  named.refused(rt, NW_INVALID, 0, {": a lives on", "12:0", "expected OpenCL:0"});
}

TEST_CASE("a call without tensors names its device") {
  Loaded rt({"probe"});
  rt.probe().on_infer = [](const nw_sig& sig, nw_spec* outputs, uint32_t) {
    outputs[0].ndim = 1;
    outputs[0].shape[0] = sig.device.device_id + 10;
  };
  Call call("probe.source/1", {}, {});
  std::vector<nw_spec> specs(1);
  expect_refused(call.infer(rt, specs), call.error, NW_INVALID, -1, {"probe.source/1", "device"});
  call.raw.device = probe_device(2);
  REQUIRE(call.infer(rt, specs) == NW_OK);
  CHECK(specs[0].shape[0] == 12);
  Array out({10});  // an output is a tensor
  Call("probe.source/1", {}, {&out}).ok(rt);
}

TEST_CASE("devices that do not exist") {
  Loaded rt({"probe"});
  for (const int32_t id : {3, -1, INT32_MAX, INT32_MIN}) {
    Array a({3}, probe_device(id)), out({3}, probe_device(id));
    Call("probe.noop/1", {&a}, {&out}).refused(rt, NW_INVALID, -1, {std::to_string(id).c_str(), "probe", "3 devices"});
  }
  for (const DLDevice device : {DLDevice{kDLMetal, 0}, DLDevice{static_cast<DLDeviceType>(77), 0}}) {
    Array a({3}, device), out({3}, device);
    Call("probe.noop/1", {&a}, {&out}).refused(rt, NW_UNAVAILABLE, -1, {device.device_type == 77 ? "77" : "Metal"});
  }
}

TEST_CASE("of two plugins for one device the first in search order serves") {
  Loaded rt({"probe", "probe2"});
  Array a({3}), out({3});
  Call call("probe.noop/1", {&a}, {&out});
  auto info = sized<nw_plan_info>();
  REQUIRE(call.plan(rt, nullptr, &info) == NW_OK);
  CHECK(std::string(info.backend) == "probe");
  CHECK(std::string(info.kernel) == "fast");
  call.ok(rt);
  CHECK(rt.probe("probe").launches == 1);
  CHECK(rt.probe("probe2").launches == 0);
  call.raw.backend = "probe2";
  REQUIRE(call.plan(rt, nullptr, &info) == NW_OK);
  CHECK(std::string(info.backend) == "probe2");
  call.ok(rt);
  CHECK(rt.probe("probe2").launches == 1);
  call.raw.backend = "probe";
  call.ok(rt);
  CHECK(rt.probe("probe").launches == 2);
  CHECK(rt.probe("probe2").launches == 1);
}

TEST_CASE("a plugin loaded later is asked first also for calls that were planned before") {
  Loaded rt({"probe"});
  Array a({3}), out({3});
  Call call("probe.noop/1", {&a}, {&out});
  call.ok(rt);
  REQUIRE(nw_load(rt, plugin_file("probe2").c_str(), nullptr) == NW_OK);
  call.ok(rt);
  CHECK(rt.probe("probe2").launches == 1);
}

TEST_CASE("NARROWS_BACKEND chooses among the plugins of a device") {
  const Environment variable("NARROWS_BACKEND", "probe2");
  Loaded rt({"probe", "probe2", "probecl"});
  Array a({3}), out({3}), cl({3}, kOpenCl);
  Call call("probe.noop/1", {&a}, {&out});
  call.ok(rt);
  CHECK(rt.probe("probe2").launches == 1);
  call.raw.backend = "probe";  // the call's own word is the last
  call.ok(rt);
  CHECK(rt.probe("probe").launches == 1);
  Call("probe.noop/1", {&cl}, {&cl}).ok(rt);  // of which the variable says nothing
  rt.probe("probe2").plan_status = NW_UNSUPPORTED;
  nw_plan_cache_clear(rt);
  call.raw.backend = nullptr;
  call.refused(rt, NW_UNSUPPORTED, -1, {"probe2"});  // named, so nobody else is asked
}

TEST_CASE("an unknown NARROWS_BACKEND is an error of the call and says where it comes from") {
  const Environment variable("NARROWS_BACKEND", "nobody");
  Loaded rt({"probe"});
  Array a({3}), out({3});
  Call("probe.noop/1", {&a}, {&out}).refused(rt, NW_INVALID, -1, {"nobody", "NARROWS_BACKEND", "probe"});
}

TEST_CASE("after unsupported the next plugin is asked") {
  Loaded rt({"probe", "probe2"});
  Array a({3}), out({3});
  Call call("probe.noop/1", {&a}, {&out});
  rt.probe("probe").plan_status = NW_UNSUPPORTED;
  auto info = sized<nw_plan_info>();
  REQUIRE(call.plan(rt, nullptr, &info) == NW_OK);
  CHECK(std::string(info.backend) == "probe2");
  call.ok(rt);
  CHECK(rt.probe("probe").plans == 1);
  CHECK(rt.probe("probe").launches == 0);
  CHECK(rt.probe("probe2").launches == 1);
  call.ok(rt);
  CHECK(rt.probe("probe").plans == 1);  // the cache remembers who said yes
  call.raw.backend = "probe";
  call.refused(rt, NW_UNSUPPORTED, -1, {"probe", "the probe was told to"});
}

TEST_CASE("where nobody supports a call everybody's reason is told") {
  Loaded rt({"probe", "probe2"});
  rt.probe("probe").plan_status = NW_UNSUPPORTED;
  rt.probe("probe").message = "no f32 here";
  rt.probe("probe2").plan_status = NW_UNSUPPORTED;
  rt.probe("probe2").message = "only on Sundays";
  Array a({3}), out({3});
  Call("probe.noop/1", {&a}, {&out})
      .refused(rt, NW_UNSUPPORTED, -1, {"probe.noop/1", "probe: no f32 here", "probe2: only on Sundays"});
  rt.probe("probe").message = "probe.noop/1: no f32 here";
  Call("probe.noop/1", {&a}, {&out}).refused(rt, NW_UNSUPPORTED, -1, {"probe.noop/1: probe: no f32 here; probe2: only on Sundays"});
}

TEST_CASE("a reason that names the op or the plugin is told as it is") {
  Loaded rt({"probe"});
  Array a({3}), out({3});
  Call call("probe.noop/1", {&a}, {&out});
  const auto told = [&](int32_t status, const char* message) {
    rt.probe().plan_status = status;
    rt.probe().message = message;
    call.refused(rt, status, -1, {});
    return call.error.text();
  };
  CHECK(told(NW_UNSUPPORTED, "probe.noop/1: no f32 here") == "probe.noop/1: no f32 here");
  CHECK(told(NW_UNSUPPORTED, "probe: no f32 here") == "probe.noop/1: probe: no f32 here");
  CHECK(told(NW_INVALID, "probe.noop/1: a is odd") == "probe.noop/1: a is odd");
  CHECK(told(NW_INVALID, "a is odd") == "probe: a is odd");
}

TEST_CASE("after any other status nobody else is asked") {
  Loaded rt({"probe", "probe2"});
  Array a({3}), out({3});
  Call call("probe.noop/1", {&a}, {&out});
  for (const int32_t status : kRefusals) {
    INFO(nw_status_name(status));
    rt.probe("probe").plan_status = status;
    call.refused(rt, status, -1, {"the probe was told to"});
    CHECK(call.error.native_code == 77);
    CHECK(rt.probe("probe2").plans == 0);
  }
  rt.probe("probe").plan_status = NW_OK;
  call.ok(rt);  // a failed plan is not kept
}

TEST_CASE("the next plugin infers what the first does not support") {
  Loaded rt({"probe", "probe2"});
  rt.probe("probe").infer_status = NW_UNSUPPORTED;
  rt.probe("probe").plan_status = NW_UNSUPPORTED;
  rt.probe("probe2").on_infer = [](const nw_sig&, nw_spec* outputs, uint32_t) {
    outputs[0].ndim = 1;
    outputs[0].shape[0] = 3;
  };
  Array out({3});
  Call("probe.source/1", {}, {&out}).ok(rt);
  CHECK(rt.probe("probe2").launches == 1);
}

TEST_CASE("a launch's status passes through and nothing is retried") {
  Loaded rt({"probe", "probe2"});
  Array a({3}), out({3});
  Call call("probe.noop/1", {&a}, {&out});
  call.ok(rt);
  for (const int32_t status :
       {NW_INVALID, NW_UNSUPPORTED, NW_UNAVAILABLE, NW_OUT_OF_MEMORY, NW_NOT_CAPTURABLE, NW_FAILED, NW_DEVICE_LOST}) {
    INFO(nw_status_name(status));
    rt.probe("probe").launch_status = status;
    expect_refused(call.run(rt), call.error, status, -1, {"probe", "the probe was told to"});
    CHECK(call.error.native_code == 77);
    CHECK(call.run(rt) == status);
  }
  CHECK(rt.probe("probe2").plans == 0);
  for (const int32_t status : {99, -5}) {  // no status at all
    rt.probe("probe").launch_status = status;
    expect_refused(call.run(rt), call.error, NW_FAILED, -1, {std::to_string(status).c_str()});
  }
}

// A call of a device in a loop; how many gave this status, and wrote their output or left it.
int count_calls(nw_runtime* rt, DLDevice device, int32_t expected, int rounds) {
  Array a({3}, device), out({3}, device);
  Call call("probe.noop/1", {&a}, {&out});
  int count = 0;
  for (int i = 0; i < rounds; ++i) {
    out.data<unsigned char>()[0] = 0;
    count += call.run(rt) == expected && (out.data<unsigned char>()[0] == 0x5A) == (expected == NW_OK);
  }
  return count;
}

TEST_CASE("a lost device takes nobody with it") {
  constexpr int kRounds = 200;
  const DLDevice survivors[] = {probe_device(1), probe_device(2), kOpenCl, kCpu};
  Probe* probe = nullptr;
  {
    Loaded rt({"probe", "probecl", "probecpu"}), other({"probe"});
    probe = &rt.probe("probe");
    for (const DLDevice device : {kProbe, survivors[0], survivors[1], survivors[2], survivors[3]})
      REQUIRE(count_calls(rt, device, NW_OK, 1) == 1);
    probe->lost = kProbe.device_id;
    Array a({3}), out({3});
    Call("probe.noop/1", {&a}, {&out}).refused(rt, NW_DEVICE_LOST, -1, {"probe", "the probe was told to"});
    Error error;
    void* data = nullptr;
    CHECK(nw_alloc(rt, kProbe, 64, nullptr, &data, &error) == NW_DEVICE_LOST);
    CHECK(nw_stream_sync(rt, kProbe, nullptr, &error) == NW_DEVICE_LOST);

    std::vector<std::thread> threads;  // those that call it, and those that call the others, at once
    std::atomic<int> right{0};
    for (const DLDevice device : {kProbe, survivors[0], survivors[1], survivors[2], survivors[3]})
      threads.emplace_back([&, device] {
        right += count_calls(
            rt, device,
            device.device_id == 0 && device.device_type == kProbe.device_type ? int32_t{NW_DEVICE_LOST} : int32_t{NW_OK}, kRounds);
      });
    for (std::thread& thread : threads) thread.join();
    CHECK(right == 5 * kRounds);
    for (const DLDevice device : survivors) {
      REQUIRE(nw_alloc(rt, device, 64, nullptr, &data, &error) == NW_OK);
      CHECK(nw_stream_sync(rt, device, nullptr, &error) == NW_OK);
      CHECK(nw_free(rt, device, data, nullptr, &error) == NW_OK);
    }
    CHECK(count_calls(other, kProbe, NW_OK, 1) == 1);  // another runtime has its own
    CHECK(probe->dead_plans == 0);
    probe->lost = -1;  // a driver that was reset
    CHECK(count_calls(rt, kProbe, NW_OK, 1) == 1);
    probe->lost = kProbe.device_id;
    probe->on_destroy = [probe] { CHECK(probe->plans_made == probe->plans_freed); };
  }
}

TEST_CASE("a plugin counts tensors by its signature the caller by the call") {
  Loaded rt({"probe"});
  Array a({3}), b({3}), out({3});
  Call call("probe.noop/1", {&a, nullptr, nullptr}, {&out});  // the signature has one input
  Call full("probe.noop/1", {&a, nullptr, &b}, {&out});
  Probe& probe = rt.probe();
  for (std::atomic<int32_t>* status : {&probe.plan_status, &probe.launch_status}) {
    *status = NW_INVALID;
    probe.argument = 0;
    expect_refused(call.run(rt), call.error, NW_INVALID, 0, {});
    probe.argument = 1;  // the output
    expect_refused(call.run(rt), call.error, NW_INVALID, 3, {});
    probe.argument = 2;  // c
    expect_refused(full.run(rt), full.error, NW_INVALID, 2, {});
    probe.argument = 3;
    expect_refused(full.run(rt), full.error, NW_INVALID, 3, {});
    for (const int32_t nobodys : {-2, 4, 70'000, std::numeric_limits<int32_t>::max(), std::numeric_limits<int32_t>::min()}) {
      probe.argument = nobodys;
      expect_refused(full.run(rt), full.error, NW_INVALID, -1, {});
    }
    *status = NW_OK;
    call.ok(rt);
    full.ok(rt);
  }
}

TEST_CASE("unknown names are refused") {
  Loaded rt({"probe", "probe2", "probecl"});
  Array a({3}), out({3});
  for (const bool cached : {false, true}) {
    INFO("a plan of the same tensors is " << (cached ? "" : "not ") << "cached");
    Call("probe.ghost/1", {&a}, {&out}).refused(rt, NW_INVALID, -1, {"unknown op", "probe.ghost/1"});
    Call("", {&a}, {&out}).refused(rt, NW_INVALID, -1, {"op"});
    Call call("probe.noop/1", {&a}, {&out});
    call.raw.backend = "ghost";
    call.refused(rt, NW_INVALID, -1, {"unknown backend", "ghost", "probe, probe2"});
    call.raw.backend = "";
    call.refused(rt, NW_INVALID, -1, {"backend"});
    call.raw.backend = "probecl";
    call.refused(rt, NW_INVALID, -1, {"probecl", "OpenCL", "12:0"});
    call.raw.backend = nullptr;
    call.raw.kernel = "ghost";
    call.refused(rt, NW_UNSUPPORTED, -1, {"kernel", "ghost", "fast, slow"});
    call.raw.kernel = "";
    call.refused(rt, NW_UNSUPPORTED, -1, {"kernel"});
    call.raw.kernel = nullptr;
    for (const auto& [flags, text] : {std::pair{2u, "flags 0x2;"}, {3u, "flags 0x3;"}, {0x80000000u, "flags 0x80000000;"}}) {
      call.raw.flags = flags;
      call.refused(rt, NW_UNSUPPORTED, -1, {text, "knows 0x1", "probe.noop/1"});
    }
    call.raw.flags = 0;
    call.ok(rt);
  }
}

TEST_CASE("a kernel can be forced where the plugin lists it for the op") {
  Loaded rt({"probe"});
  Array a({3}), b({3}), out({3}), second({3});
  Call call("probe.noop/1", {&a}, {&out});
  for (const char* kernel : {"fast", "slow"}) {
    call.raw.kernel = kernel;
    auto info = sized<nw_plan_info>();
    REQUIRE(call.plan(rt, nullptr, &info) == NW_OK);
    CHECK(std::string(info.kernel) == kernel);
    call.ok(rt);
    CHECK(rt.probe().last_sig().kernel == kernel);
  }
  Call strict("probe.strict/1", {&a, &b}, {&out, &second});
  strict.raw.kernel = "fast";
  strict.refused(rt, NW_UNSUPPORTED, -1, {"kernel", "fast"});
}

TEST_CASE("an op that the device's plugins lack is unsupported") {
  Loaded rt({"probe", "probecl", "fine"});
  Array a({3}, kOpenCl), out({3}, kOpenCl);
  Call("faulty.op/1", {&a}, {&out}).refused(rt, NW_UNSUPPORTED, -1, {"faulty.op/1", "probecl"});
  Array x({3}), y({3});
  Call named("faulty.op/1", {&x}, {&y});
  named.raw.backend = "probe";
  named.refused(rt, NW_UNSUPPORTED, -1, {"faulty.op/1", "probe"});
  named.raw.backend = nullptr;
  named.ok(rt);  // fine has it
}

TEST_CASE("a plugin that throws is a failed call") {
  Loaded rt({"probe"});
  Array a({3}), out({3});
  Call call("probe.noop/1", {&a}, {&out});
  Probe& probe = rt.probe();
  struct Odd {};
  probe.on_plan = [](const nw_sig&) { throw std::runtime_error("planning went wrong"); };
  call.refused(rt, NW_FAILED, -1, {"probe", "plan", "planning went wrong"});
  probe.on_plan = [](const nw_sig&) { throw Odd{}; };
  call.refused(rt, NW_FAILED, -1, {"probe", "plan"});
  probe.on_plan = [](const nw_sig&) { throw std::bad_alloc(); };
  call.refused(rt, NW_OUT_OF_MEMORY, -1, {"probe"});
  probe.on_plan = nullptr;
  probe.on_launch = [](const nw_call&) { throw std::runtime_error("launching went wrong"); };
  expect_refused(call.run(rt), call.error, NW_FAILED, -1, {"probe", "launch", "launching went wrong"});
  probe.on_launch = [](const nw_call&) { throw Odd{}; };
  expect_refused(call.run(rt), call.error, NW_FAILED, -1, {"probe", "launch"});
  probe.on_launch = nullptr;
  probe.on_infer = [](const nw_sig&, nw_spec*, uint32_t) { throw std::runtime_error("inference went wrong"); };
  Call("probe.source/1", {}, {&out}).refused(rt, NW_FAILED, -1, {"probe", "infer", "inference went wrong"});
  call.ok(rt);
}

TEST_CASE("a plugin that throws in a slot of memory streams or extensions is a failed call") {
  Loaded rt({"probe"});
  Probe& probe = rt.probe();
  struct Odd {};
  std::string wanted, asked;
  bool odd = false;
  probe.on_slot = [&](const std::string& slot) {
    asked += slot + " ";
    if (slot.rfind(wanted, 0) != 0) return;
    if (odd) throw Odd{};
    throw std::runtime_error("went wrong inside");
  };
  unsigned char bytes[4] = {1, 2, 3, 4}, to[4] = {};
  void* data = &probe;
  auto info = sized<nw_device_info>();
  const std::pair<const char*, std::function<int32_t(nw_error*)>> calls[] = {
      {"alloc", [&](nw_error* e) { return nw_alloc(rt, kProbe, 8, nullptr, &data, e); }},
      {"free", [&](nw_error* e) { return nw_free(rt, kProbe, nullptr, nullptr, e); }},
      {"copy", [&](nw_error* e) { return nw_copy(rt, kProbe, to, kCpu, bytes, 4, nullptr, e); }},
      {"stream_create", [&](nw_error* e) { return nw_stream_create(rt, kProbe, &data, e); }},
      {"stream_destroy", [&](nw_error* e) { return nw_stream_destroy(rt, kProbe, nullptr, e); }},
      {"stream_sync", [&](nw_error* e) { return nw_stream_sync(rt, kProbe, nullptr, e); }},
      {"stream_wait", [&](nw_error* e) { return nw_stream_wait(rt, kProbe, nullptr, nullptr, e); }},
      {"device_info", [&](nw_error* e) { return nw_device(rt, kProbe, &info, e); }},
  };
  for (const auto& [slot, call] : calls) {
    INFO(slot);
    wanted = slot;
    Error error;
    odd = false;
    expect_refused(call(&error), error, NW_FAILED, -1, {"probe", slot, "threw", "went wrong inside"});
    odd = true;
    error = Error();
    expect_refused(call(&error), error, NW_FAILED, -1, {"probe", slot, "threw"});
    CHECK(contains(asked, slot));
    CHECK(data == &probe);
    CHECK(to[0] == 0);
  }
  wanted = "extension";
  CHECK(nw_extension(rt, "probe", "probe/1") == nullptr);
  // A workspace that throws on its way in or out is the call's error, or nobody's.
  probe.workspace_size = 64;
  Array a({3}), out({3});
  Call call("probe.noop/1", {&a}, {&out});
  wanted = "alloc";
  call.refused(rt, NW_FAILED, -1, {"probe", "alloc", "threw"});
  wanted = "free";
  call.ok(rt);
  probe.on_slot = nullptr;
  call.ok(rt);
}

TEST_CASE("a plugin that throws while it is destroyed ends nothing else") {
  bool destroyed = false;
  {
    Loaded rt({"probe"});
    rt.probe().on_destroy = [&] {
      destroyed = true;
      throw std::runtime_error("destroying went wrong");
    };
    Array a({3}), out({3});
    Call("probe.noop/1", {&a}, {&out}).ok(rt);
  }
  CHECK(destroyed);
}

TEST_CASE("a built-in op goes to every plugin that lists it") {
  Loaded rt({"probe"});
  Array a({3}), b({3}), out({3});
  Call call("elementwise", {&a, &b}, {&out});
  nw_elementwise_params params{};
  params.function = NW_EW_ADD;
  call.params(params);
  call.ok(rt);
  CHECK(rt.probe().launches == 1);
  CHECK(rt.probe().last_sig().op == "elementwise");
  params.function = 0;
  Call wrong("elementwise", {&a, &b}, {&out});
  wrong.params(params).refused(rt, NW_INVALID, -1, {"function"});
  CHECK(rt.probe().launches == 1);
  Array x({1, 1, 4}), w({1, 1, 2}), y({1, 1, 3});
  Call("conv1d", {&x, &w}, {&y}).refused(rt, NW_UNSUPPORTED, -1, {"conv1d", "probe"});
}

TEST_CASE("tensors of an op that nobody knows are counted") {
  Loaded rt({"probe"});
  Array a({3}), out({3});
  out->ndim = -1;
  Call("probe.ghost/1", {&a, nullptr}, {&out}).refused(rt, NW_INVALID, 2, {"probe.ghost/1: output 0 has ndim -1"});
  a->ndim = 17;
  Call("probe.ghost/1", {nullptr, &a}, {&out}).refused(rt, NW_INVALID, 1, {"probe.ghost/1: input 1 has ndim 17"});
}

TEST_CASE("pinned memory of one plugin is not memory of another's device") {
  Loaded rt({"probe", "probecl"});
  Array pinned({3}, kPinned), out({3}, kOpenCl);
  Call call("probe.noop/1", {&pinned}, {&out});
  call.raw.device = kOpenCl;
  call.refused(rt, NW_INVALID, 0, {"a lives on ROCMHost:0", "expected OpenCL:0"});
}

TEST_CASE("where no plugin has the device the first one's reason is told") {
  Loaded rt({"probe", "probe2"});
  Array a({3}, probe_device(7)), out({3}, probe_device(7));
  Call("probe.noop/1", {&a}, {&out}).refused(rt, NW_INVALID, -1, {"12:7 does not exist", "probe has 3 devices"});
  void* data = nullptr;
  Error error;
  expect_refused(nw_alloc(rt, probe_device(7), 8, nullptr, &data, &error), error, NW_INVALID, -1, {"probe has 3 devices"});
  Array source({3}, probe_device(7));
  Call("probe.source/1", {}, {&source}).refused(rt, NW_INVALID, -1, {"12:7 does not exist", "probe has 3 devices"});
}

TEST_CASE("where no plugin of the device has the op all of them are named") {
  Loaded rt({"probe", "probe2"});
  Array x({1, 1, 4}), w({1, 1, 2}), y({1, 1, 3});
  Call("conv1d", {&x, &w}, {&y}).refused(rt, NW_UNSUPPORTED, -1, {"conv1d: not among the ops of probe, probe2"});
}
