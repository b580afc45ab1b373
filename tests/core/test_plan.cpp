// SPDX-License-Identifier: Apache-2.0
// test_plan.cpp -- core/dispatcher.cpp: plans that a caller holds, workspaces, traits, and inference by the plugin.
#include <algorithm>

#include "fixture.h"

using namespace narrows::test;

namespace {

// probe.noop/1 on two tensors of 4 floats.
struct Noop {
  Array a{{4}}, out{{4}};
  Call call{"probe.noop/1", {&a}, {&out}};
};

std::vector<std::string> slots(const std::vector<Event>& events) {
  std::vector<std::string> out;
  for (const Event& event : events) out.push_back(event.slot);
  return out;
}

using Slots = std::vector<std::string>;

}  // namespace

TEST_CASE("a plan is got launched and released") {
  Loaded rt({"probe"});
  rt.probe().workspace_size = 100;
  Noop n;
  nw_plan* plan = nullptr;
  auto info = sized<nw_plan_info>();
  REQUIRE(n.call.plan(rt, &plan, &info) == NW_OK);
  REQUIRE(plan != nullptr);
  CHECK(info.workspace_size == 100);
  CHECK(info.traits == NW_PLAN_CAPTURABLE);
  CHECK(std::string(info.kernel) == "fast");
  CHECK(std::string(info.backend) == "probe");
  CHECK(n.out.pristine());
  CHECK(rt.probe().launches == 0);
  for (int i = 0; i < 3; ++i) CHECK(nw_launch(plan, &n.call.raw, nullptr) == NW_OK);
  n.call.ok(rt);  // shares the plan
  CHECK(rt.probe().launches == 4);
  CHECK(rt.probe().plans == 1);
  CHECK(rt.probe().plans_freed == 0);
  nw_plan_release(plan);
  CHECK(rt.probe().plans_freed == 0);  // the cache has it
  nw_plan_cache_clear(rt);
  CHECK(rt.probe().plans_freed == 1);
}

TEST_CASE("a plan outlives the cache") {
  Loaded rt({"probe"});
  Noop n;
  nw_plan *plan = nullptr, *again = nullptr;
  REQUIRE(n.call.plan(rt, &plan) == NW_OK);
  nw_plan_cache_clear(rt);
  CHECK(rt.probe().plans_freed == 0);
  CHECK(nw_launch(plan, &n.call.raw, nullptr) == NW_OK);
  REQUIRE(n.call.plan(rt, &again) == NW_OK);
  CHECK(rt.probe().plans == 2);
  nw_plan_release(plan);
  CHECK(rt.probe().plans_freed == 1);
  CHECK(nw_launch(again, &n.call.raw, nullptr) == NW_OK);
  nw_plan_release(again);
  CHECK(rt.probe().dead_plans == 0);
}

TEST_CASE("an instance is destroyed once and after its plans") {
  int destroyed = 0, plans_left = -1;
  {
    Loaded rt({"probe"});
    Probe& probe = rt.probe();
    probe.on_destroy = [&] {
      ++destroyed;
      plans_left = probe.plans_made - probe.plans_freed;
    };
    for (int64_t key = 0; key < 5; ++key) {
      Noop n;
      n.call.params(ProbeParams{key, 0, 0});
      n.call.ok(rt);
    }
    CHECK(probe.plans_made == 5);
  }
  CHECK(destroyed == 1);
  CHECK(plans_left == 0);
}

TEST_CASE("without a place for the plan it is only a question") {
  Loaded rt({"probe"});
  Noop n;
  auto info = sized<nw_plan_info>();
  REQUIRE(n.call.plan(rt, nullptr, &info) == NW_OK);
  REQUIRE(n.call.plan(rt, nullptr, nullptr) == NW_OK);
  CHECK(rt.probe().plans == 0);
  CHECK(rt.probe().asks == 2);
  rt.probe().plan_status = NW_UNSUPPORTED;
  expect_refused(n.call.plan(rt, nullptr), n.call.error, NW_UNSUPPORTED, -1, {"the probe was told to"});
  nw_plan* plan = nullptr;
  expect_refused(n.call.plan(rt, &plan), n.call.error, NW_UNSUPPORTED, -1, {"the probe was told to"});
  CHECK(plan == nullptr);
}

TEST_CASE("planning does not touch memory and needs none") {
  Loaded rt({"probe"});
  Noop n;
  n.a->data = reinterpret_cast<void*>(uintptr_t{0x10000});  // nobody's
  n.out->data = reinterpret_cast<void*>(uintptr_t{0x20000});
  nw_plan* plan = nullptr;
  REQUIRE(n.call.plan(rt, &plan) == NW_OK);
  nw_plan_release(plan);
  n.a->data = n.out->data = nullptr;  // aligned, and no alias
  REQUIRE(n.call.plan(rt, &plan) == NW_OK);
  CHECK(rt.probe().plans == 1);
  CHECK(rt.probe().last_sig().tensors[1].alias_of == -1);
  Noop real;
  CHECK(nw_launch(plan, &real.call.raw, nullptr) == NW_OK);
  expect_refused(nw_launch(plan, &n.call.raw, &n.call.error), n.call.error, NW_INVALID, 0, {"data", "NULL"});
  nw_plan_release(plan);
}

TEST_CASE("a call that does not fit the plan is refused") {
  Loaded rt({"probe", "probe2"});
  Noop n;
  nw_plan* plan = nullptr;
  REQUIRE(n.call.plan(rt, &plan) == NW_OK);
  Array base({64});
  Array longer({5}), longer_out({5}), integers({4}, kProbe, kI32), integers_out({4}, kProbe, kI32),
      strided = Array::view(base, {4}, {2}), misaligned = Array::view(base, {4}, {}, 4), elsewhere({4}, probe_device(1)),
      elsewhere_out({4}, probe_device(1));
  const auto refused = [&](const char* what, const std::function<void(Call&)>& bend) {
    INFO(what);
    Call call("probe.noop/1", {&n.a}, {&n.out});
    bend(call);
    Error error;
    expect_refused(nw_launch(plan, &call.raw, &error), error, NW_INVALID, -1, {"fit", "plan"});
    CHECK(nw_launch(plan, &call.raw, nullptr) == NW_INVALID);
  };
  refused("another op", [](Call& call) { call.raw.op = "probe.dtype/1"; });
  refused("another shape", [&](Call& call) { call.inputs[0] = &longer.tensor, call.outputs[0] = &longer_out.tensor; });
  refused("another dtype", [&](Call& call) { call.inputs[0] = &integers.tensor, call.outputs[0] = &integers_out.tensor; });
  refused("other strides", [&](Call& call) { call.inputs[0] = &strided.tensor; });
  refused("another alignment", [&](Call& call) { call.inputs[0] = &misaligned.tensor; });
  refused("in place", [&](Call& call) { call.outputs[0] = &n.a.tensor; });
  refused("another device", [&](Call& call) { call.inputs[0] = &elsewhere.tensor, call.outputs[0] = &elsewhere_out.tensor; });
  refused("other params", [](Call& call) { call.params(ProbeParams{1, 0, 0}); });
  refused("other flags", [](Call& call) { call.raw.flags = NW_DETERMINISTIC; });
  refused("another kernel", [](Call& call) { call.raw.kernel = "slow"; });
  refused("another backend", [](Call& call) { call.raw.backend = "probe2"; });
  CHECK(rt.probe().launches == 0);
  CHECK(n.out.pristine());
  n.call.raw.num_inputs = 1;
  CHECK(nw_launch(plan, &n.call.raw, nullptr) == NW_OK);
  nw_plan_release(plan);
}

TEST_CASE("a plan fits tensors that are aligned better than planned and no others") {
  Loaded rt({"probe"});
  Array base({64}), out({4});
  const auto at = [&](uint64_t byte_offset) { return Array::view(base, {4}, {}, byte_offset); };
  Array planned = at(16);
  Call call("probe.noop/1", {&planned, nullptr, &planned}, {&out});
  nw_plan* plan = nullptr;
  REQUIRE(call.plan(rt, &plan) == NW_OK);
  for (const uint64_t byte_offset : {0, 16, 32, 48, 64, 128}) {
    INFO(byte_offset);
    Array better = at(byte_offset);
    Call one("probe.noop/1", {&better, nullptr, &planned}, {&out}), both("probe.noop/1", {&better, nullptr, &better}, {&out});
    CHECK(nw_launch(plan, &one.raw, nullptr) == NW_OK);
    CHECK(nw_launch(plan, &both.raw, nullptr) == NW_OK);
  }
  Array best = at(0);
  for (const uint64_t byte_offset : {1, 4, 8, 24}) {
    INFO(byte_offset);
    Array worse = at(byte_offset);
    Call other("probe.noop/1", {&best, nullptr, &worse}, {&out});
    expect_refused(nw_launch(plan, &other.raw, &other.error), other.error, NW_INVALID, -1, {"fit", "alignment"});
  }
  Call present("probe.noop/1", {&best, &best, &best}, {&out});  // where the plan has no tensor
  expect_refused(nw_launch(plan, &present.raw, &present.error), present.error, NW_INVALID, -1, {"fit"});
  nw_plan_release(plan);
}

TEST_CASE("NW_FITS: a launch that its caller knows to fit is not compared with the plan") {
  Loaded rt({"probe"});
  rt.probe().workspace_size = 100;
  Noop n;
  Call call("probe.noop/1", {&n.a, nullptr, nullptr}, {&n.out});
  nw_plan* plan = nullptr;
  REQUIRE(call.plan(rt, &plan) == NW_OK);
  nw_call seen{};
  rt.probe().on_launch = [&](const nw_call& launched) { seen = launched; };
  call.raw.flags = NW_FITS;
  Error error;

  SECTION("a plugin sees what it sees of other launches") {
    const DLTensor nowhere{};
    call.inputs[0] = &nowhere;  // which is not looked at
    CHECK(nw_launch(plan, &call.raw, nullptr) == NW_OK);
    CHECK(seen.flags == 0);
    CHECK(seen.num_inputs == 1);  // without the absent ones
    CHECK(seen.inputs[0] == &nowhere);
    CHECK(seen.device.device_type == n.a.tensor.device.device_type);
    CHECK(seen.workspace != nullptr);
    CHECK(rt.probe().launches == 1);
  }
  SECTION("other flags are the plan's, or refused") {
    for (const uint32_t other : {uint32_t{NW_DETERMINISTIC}, uint32_t{1} << 31}) {
      call.raw.flags = NW_FITS | other;
      expect_refused(nw_launch(plan, &call.raw, &error), error, NW_INVALID, -1, {"flags", "beside NW_FITS", "expected 0x0"});
    }
    CHECK(rt.probe().launches == 0);
    call.raw.flags = NW_DETERMINISTIC;
    nw_plan* deterministic = nullptr;
    REQUIRE(call.plan(rt, &deterministic) == NW_OK);
    call.raw.flags = NW_FITS | NW_DETERMINISTIC;
    CHECK(nw_launch(deterministic, &call.raw, nullptr) == NW_OK);
    CHECK(seen.flags == NW_DETERMINISTIC);
    nw_plan_release(deterministic);
  }
  SECTION("what is no launch of a plan refuses it") {
    nw_plan* none = nullptr;
    nw_spec spec{};
    expect_refused(nw_run(rt, &call.raw, &error), error, NW_UNSUPPORTED, -1, {"flags 0x2"});
    expect_refused(nw_plan_get(rt, &call.raw, &none, nullptr, &error), error, NW_UNSUPPORTED, -1, {"flags 0x2"});
    expect_refused(nw_infer(rt, &call.raw, &spec, 1, &error), error, NW_UNSUPPORTED, -1, {"flags 0x2"});
    CHECK(rt.probe().launches == 0);
  }
  SECTION("a workspace that does not do is refused all the same") {
    call.raw.workspace = n.a->data, call.raw.workspace_size = 99;
    expect_refused(nw_launch(plan, &call.raw, &error), error, NW_INVALID, -1, {"workspace_size = 99", "100 bytes"});
    CHECK(rt.probe().launches == 0);
  }
  nw_plan_release(plan);
}

TEST_CASE("a plan may leave the cache while it is launched") {
  Loaded rt({"probe"});
  Noop n;
  nw_plan* plan = nullptr;
  REQUIRE(n.call.plan(rt, &plan) == NW_OK);
  rt.probe().on_launch = [&](const nw_call&) {
    nw_plan_cache_clear(rt);
    CHECK(rt.probe().plans_freed == 0);
  };
  n.call.ok(rt);
  CHECK(nw_launch(plan, &n.call.raw, nullptr) == NW_OK);
  nw_plan_release(plan);
  CHECK(rt.probe().plans_freed == 1);
  CHECK(rt.probe().dead_plans == 0);
}

TEST_CASE("without a workspace one is allocated around the launch in stream order") {
  Loaded rt({"probe"});
  rt.probe().workspace_size = 1000;
  Noop n;
  int stream = 0;
  n.call.raw.stream = &stream;
  n.call.ok(rt);
  const std::vector<Event> events = rt.probe().take_events();
  REQUIRE(slots(events) == Slots{"alloc", "launch", "free"});
  CHECK(events[0].size == 1000);
  CHECK(events[0].device_id == 0);
  CHECK(events[1].data == events[0].data);
  CHECK(events[1].size >= 1000);
  CHECK(events[2].data == events[0].data);
  for (const Event& event : events) CHECK(event.stream == &stream);
  // The same by a plan that is held.
  nw_plan* plan = nullptr;
  REQUIRE(n.call.plan(rt, &plan) == NW_OK);
  REQUIRE(nw_launch(plan, &n.call.raw, nullptr) == NW_OK);
  CHECK(slots(rt.probe().take_events()) == Slots{"alloc", "launch", "free"});
  nw_plan_release(plan);
}

TEST_CASE("the workspace lives on the call's device") {
  Loaded rt({"probe"});
  rt.probe().workspace_size = 64;
  Array a({4}, probe_device(2)), out({4}, probe_device(2));
  Call("probe.noop/1", {&a}, {&out}).ok(rt);
  for (const Event& event : rt.probe().take_events()) CHECK(event.device_id == 2);
}

TEST_CASE("the workspace is freed when the launch fails or throws") {
  Loaded rt({"probe"});
  rt.probe().workspace_size = 1000;
  Noop n;
  for (const int32_t status : {NW_FAILED, NW_DEVICE_LOST, NW_UNSUPPORTED}) {
    rt.probe().launch_status = status;
    CHECK(n.call.run(rt) == status);
    CHECK(slots(rt.probe().take_events()) == Slots{"alloc", "launch", "free"});
  }
  rt.probe().on_launch = [](const nw_call&) { throw 1; };
  CHECK(n.call.run(rt) == NW_FAILED);
  CHECK(slots(rt.probe().take_events()) == Slots{"alloc", "launch", "free"});
}

TEST_CASE("a workspace that cannot be had is the call's error and nothing is launched") {
  Loaded rt({"probe"});
  rt.probe().workspace_size = 1000;
  Noop n;
  for (const int32_t status : {NW_OUT_OF_MEMORY, NW_NOT_CAPTURABLE, NW_DEVICE_LOST}) {
    rt.probe().alloc_status = status;
    n.call.refused(rt, status, -1, {"the probe was told to"});
    CHECK(slots(rt.probe().take_events()) == Slots{"alloc", "alloc"});  // refused() asks twice
  }
  Array workspace({1024});
  n.call.raw.workspace = workspace->data;
  n.call.raw.workspace_size = 4096;
  n.call.ok(rt);
}

TEST_CASE("a workspace of the caller's own is passed on or refused when it does not do") {
  Loaded rt({"probe"});
  rt.probe().workspace_size = 1000;
  Noop n;
  Array workspace({1024});
  auto* const data = static_cast<char*>(workspace->data);
  n.call.raw.workspace = data;
  n.call.raw.workspace_size = 1000;
  n.call.ok(rt);
  std::vector<Event> events = rt.probe().take_events();
  REQUIRE(slots(events) == Slots{"launch"});
  CHECK(events[0].data == data);
  CHECK(events[0].size == 1000);
  n.call.raw.workspace_size = 999;
  n.call.refused(rt, NW_INVALID, -1, {"workspace_size", "999", "1000"});
  n.call.raw.workspace_size = 0;
  n.call.refused(rt, NW_INVALID, -1, {"workspace_size", "0", "1000"});
  n.call.raw.workspace_size = 2048;
  for (const int off : {1, 8, 128, 255}) {
    n.call.raw.workspace = data + off;
    n.call.refused(rt, NW_INVALID, -1, {"workspace", "256"});
  }
  n.call.raw.workspace = data + 256;
  n.call.ok(rt);
  nw_plan* plan = nullptr;
  REQUIRE(n.call.plan(rt, &plan) == NW_OK);
  n.call.raw.workspace_size = 10;
  CHECK(nw_launch(plan, &n.call.raw, nullptr) == NW_INVALID);
  nw_plan_release(plan);
  rt.probe().workspace_size = 0;  // nothing needed: whatever is given is left alone
  nw_plan_cache_clear(rt);
  rt.probe().take_events();
  n.call.raw.workspace = data + 1;
  n.call.ok(rt);
  n.call.raw.workspace = nullptr;
  n.call.raw.workspace_size = 77;
  n.call.ok(rt);
  CHECK(slots(rt.probe().take_events()) == Slots{"launch", "launch"});
}

TEST_CASE("NW_DETERMINISTIC refuses a plan that is not") {
  Loaded rt({"probe", "probe2"});
  rt.probe("probe").traits = NW_PLAN_NONDETERMINISTIC;
  Noop n;
  auto info = sized<nw_plan_info>();
  REQUIRE(n.call.plan(rt, nullptr, &info) == NW_OK);
  CHECK(info.traits == NW_PLAN_NONDETERMINISTIC);
  n.call.raw.flags = NW_DETERMINISTIC;
  n.call.ok(rt);  // by the next plugin
  CHECK(rt.probe("probe2").launches == 1);
  CHECK(rt.probe("probe").plans == rt.probe("probe").plans_freed);  // the refused plan is not leaked
  n.call.raw.backend = "probe";
  n.call.refused(rt, NW_UNSUPPORTED, -1, {"probe", "DETERMINISTIC"});
  CHECK(rt.probe("probe").plans == rt.probe("probe").plans_freed);
  expect_refused(n.call.plan(rt, nullptr), n.call.error, NW_UNSUPPORTED, -1, {"DETERMINISTIC"});
  n.call.raw.flags = 0;
  n.call.ok(rt);
}

TEST_CASE("a plugin infers shapes and dtypes where the op has no rule") {
  Loaded rt({"probe"});
  rt.probe().on_infer = [](const nw_sig& sig, nw_spec* outputs, uint32_t num_outputs) {
    for (uint32_t i = 0; i < num_outputs; ++i) {
      outputs[i].dtype = i == 0 ? kI64 : sig.tensors[0].dtype;
      outputs[i].ndim = 1;
      outputs[i].shape[0] = sig.tensors[0].shape[0] * (i + 1);
    }
  };
  Array a({5}), first({5}, kProbe, kI64), second({10});
  std::vector<nw_spec> specs(2);
  Call call("probe.infer/1", {&a}, {&first, &second});
  REQUIRE(call.infer(rt, specs) == NW_OK);
  CHECK((specs[0].dtype.code == kDLInt && specs[0].shape[0] == 5 && specs[0].ndim == 1));
  CHECK((specs[1].dtype.code == kDLFloat && specs[1].shape[0] == 10));
  const SeenSig seen = rt.probe().last_sig();
  CHECK(seen.num_outputs == 0);  // inputs only
  CHECK(seen.tensors.size() == 1);
  call.ok(rt);
  Call wrong("probe.infer/1", {&a}, {&second, &first});
  wrong.refused(rt, NW_INVALID, 3 - 2, {"first", "float32", "int64"});
}

TEST_CASE("a plugin may infer that an output belongs to an absent input") {
  Loaded rt({"probe"});
  rt.probe().on_infer = [](const nw_sig& sig, nw_spec* outputs, uint32_t) {
    outputs[0].ndim = 1;
    outputs[0].shape[0] = 5;
    outputs[1].ndim = sig.num_inputs > 1 ? 1 : -1;  // the gradient of b
    outputs[1].shape[0] = sig.num_inputs > 1 ? 5 : 0;
  };
  Array a({5}), b({5}), first({5}), second({5});
  std::vector<nw_spec> specs(2);
  Call call("probe.infer/1", {&a}, {&first, &second});
  REQUIRE(call.infer(rt, specs) == NW_OK);
  CHECK(specs[1].ndim == -1);
  call.refused(rt, NW_INVALID, 2, {"second", "absent", "expected second = NULL"});
  Call("probe.infer/1", {&a, &b}, {&first, &second}).ok(rt);
}

TEST_CASE("with a rule the plugin still says the dtypes") {
  Loaded rt({"probe"});
  rt.probe().on_infer = [](const nw_sig&, nw_spec* outputs, uint32_t) { outputs[0].dtype = kI64; };
  Array a({5}), out({5}, kProbe, kI64);
  std::vector<nw_spec> specs(1);
  Call call("probe.dtype/1", {&a}, {&out});
  REQUIRE(call.infer(rt, specs) == NW_OK);
  CHECK((specs[0].dtype.code == kDLInt && specs[0].dtype.bits == 64 && specs[0].ndim == 1 && specs[0].shape[0] == 5));
  call.ok(rt);
}

TEST_CASE("with a rule the dtype is that of input 0 where the plugin infers nothing and its failure is the call's") {
  Loaded rt({"probe"});
  Array a({5}, kProbe, kF64), out({5}, kProbe, kF64);
  std::vector<nw_spec> specs(1);
  Call call("probe.dtype/1", {&a}, {&out});
  rt.probe().infer_status = NW_UNSUPPORTED;
  REQUIRE(call.infer(rt, specs) == NW_OK);
  CHECK((specs[0].dtype.code == kDLFloat && specs[0].dtype.bits == 64));
  rt.probe().infer_status = NW_FAILED;
  expect_refused(call.infer(rt, specs), call.error, NW_FAILED, -1, {"probe", "the probe was told to"});
}

TEST_CASE("nw_infer gives all gradients of a built-in op before it is known which are wanted") {
  Loaded rt({"probe"});
  Array grad({2, 3}), condition({3}, kProbe, kB8), b({2, 1});
  nw_elementwise_params params{};
  params.function = NW_EW_WHERE;
  std::vector<nw_spec> specs(3);
  Call call("elementwise_backward", {&grad, &condition, &b}, {});
  REQUIRE(call.params(params).infer(rt, specs) == NW_OK);
  CHECK((specs[0].ndim == 1 && specs[0].shape[0] == 3 && specs[0].dtype.code == kDLBool));  // which a call must leave NULL
  CHECK((specs[1].ndim == 2 && specs[1].shape[0] == 2 && specs[1].shape[1] == 1 && specs[1].dtype.code == kDLFloat));
  CHECK(specs[2].ndim == -1);
}

TEST_CASE("a plugin's refusal to infer is the caller's") {
  Loaded rt({"probe"});
  Array a({5});
  std::vector<nw_spec> specs(2);
  Call call("probe.infer/1", {&a}, {});
  for (const int32_t status : {NW_INVALID, NW_UNSUPPORTED, NW_FAILED}) {
    rt.probe().infer_status = status;
    expect_refused(call.infer(rt, specs), call.error, status, -1, {"the probe was told to"});
  }
  rt.probe().infer_status = NW_OK;
  for (const int64_t ndim : {-2, 17, 1000}) {  // nonsense is the plugin's failure
    rt.probe().on_infer = [=](const nw_sig&, nw_spec* outputs, uint32_t) { outputs[0].ndim = static_cast<int32_t>(ndim); };
    expect_refused(call.infer(rt, specs), call.error, NW_FAILED, -1, {"probe", "infer"});
  }
  rt.probe().on_infer = [](const nw_sig&, nw_spec* outputs, uint32_t) { outputs[0].ndim = 1, outputs[0].shape[0] = -4; };
  expect_refused(call.infer(rt, specs), call.error, NW_FAILED, -1, {"probe", "infer"});
}

TEST_CASE("nw_infer reads no data no outputs and no stream") {
  Loaded rt({"probecpu"});
  Array a({2, 3}, kCpu);
  a->data = nullptr;
  Call call("probe.noop/1", {&a}, {});
  call.raw.stream = &a;  // which the CPU would refuse
  call.raw.outputs = reinterpret_cast<const DLTensor* const*>(uintptr_t{16});
  call.raw.num_outputs = 1;
  std::vector<nw_spec> specs(1);
  REQUIRE(call.infer(rt, specs) == NW_OK);
  CHECK((specs[0].ndim == 2 && specs[0].shape[1] == 3));
}

TEST_CASE("outputs that exist for backward only may be NULL and what is saved reaches the backward op") {
  Loaded rt({"probe"});
  Array a({4}), y({4}), aux({4}), grad_y({4}), grad_a({4});
  Call("probe.aux/1", {&a}, {nullptr, &aux}).refused(rt, NW_INVALID, 1, {"y", "NULL"});
  Call("probe.aux/1", {&a}, {&y, &aux}).ok(rt);
  Call("probe.aux_backward/1", {&grad_y, &a, nullptr, &aux}, {&grad_a}).ok(rt);
  Call("probe.aux_backward/1", {nullptr, &a, nullptr, &aux}, {&grad_a}).ok(rt);
  const SeenSig sig = rt.probe().last_sig();
  REQUIRE(sig.num_inputs == 4);
  CHECK(sig.tensors[0].ndim == -1);
  CHECK(sig.tensors[3].ndim == 1);
  Call nothing("probe.aux_backward/1", {&grad_y, &a, nullptr, &aux}, {nullptr});
  nothing.ok(rt);  // nobody wants anything
}
