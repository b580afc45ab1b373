// SPDX-License-Identifier: Apache-2.0
// test_signature.cpp -- core/signature.cpp: what plan() sees of a call, and that the plan's key is exactly that.
#include <algorithm>

#include <cstring>
#include <functional>

#include "fixture.h"

using namespace narrows::test;

namespace {

using Extents = std::vector<int64_t>;

// The signature of the only input of probe.noop/1, as planned for it.
SeenTensor planned(const Loaded& rt, Array& input) {
  Array out(input.shape, input->device, input->dtype);
  nw_plan_cache_clear(rt);
  Call("probe.noop/1", {&input}, {&out}).ok(rt);
  return rt.probe().last_sig().tensors[0];
}

}  // namespace

TEST_CASE("strides that are NULL and strides written out are one signature") {
  Loaded rt({"probe"});
  Array base({24}), out({2, 3, 4});
  Array implicit = Array::view(base, {2, 3, 4}, {}), explicit_ = Array::view(base, {2, 3, 4}, {12, 4, 1});
  Call("probe.noop/1", {&implicit}, {&out}).ok(rt);
  CHECK(rt.probe().last_sig().tensors[0].strides == Extents{12, 4, 1});
  CHECK(rt.probe().last_sig().tensors[0].shape == Extents{2, 3, 4});
  Call("probe.noop/1", {&explicit_}, {&out}).ok(rt);
  CHECK(rt.probe().plans == 1);
}

TEST_CASE("strides of extents 1 and 0 are canonical") {
  Loaded rt({"probe"});
  Array base({24}), out({3, 1, 4}), none({0, 5});
  const int64_t strides[] = {0, 1, 4, 999, -7, INT64_MAX, INT64_MIN};
  for (const int64_t any : strides) {
    INFO("stride " << any);
    Array one = Array::view(base, {3, 1, 4}, {4, any, 1}), empty = Array::view(base, {0, 5}, {any, any});
    CHECK(planned(rt, one).strides == Extents{4, 4, 1});
    CHECK(planned(rt, empty).strides == Extents{5, 1});
  }
  nw_plan_cache_clear(rt);
  const int before = rt.probe().plans;
  for (const int64_t any : strides) {
    Array one = Array::view(base, {3, 1, 4}, {4, any, 1}), empty = Array::view(base, {0, 5}, {any, any});
    Call("probe.noop/1", {&one}, {&out}).ok(rt);
    Call("probe.noop/1", {&empty}, {&none}).ok(rt);
  }
  CHECK(rt.probe().plans == before + 2);
}

TEST_CASE("a tensor without elements needs no memory and counts as aligned") {
  Loaded rt({"probe"});
  Array base({24}), out({4, 0, 3});
  Array null = Array::view(base, {4, 0, 3}, {}), misaligned = Array::view(base, {4, 0, 3}, {}, 1);
  null.tensor.data = nullptr;
  const SeenTensor seen = planned(rt, null);
  CHECK(seen.align_log2 == 8);
  CHECK(seen.shape == Extents{4, 0, 3});
  CHECK(seen.strides == Extents{3, 3, 1});
  CHECK(planned(rt, misaligned).align_log2 == 8);
  Array huge = Array::view(base, {INT64_MAX, INT64_MAX, 0}, {});  // whose other extents don't matter
  huge.tensor.data = nullptr;
  Array huge_out = Array::view(base, {INT64_MAX, INT64_MAX, 0}, {});
  Call("probe.noop/1", {&huge}, {&huge_out}).ok(rt);
}

TEST_CASE("other strides are kept") {
  Loaded rt({"probe"});
  Array base({64});
  const std::pair<Extents, Extents> views[] = {{{3, 4}, {1, 3}}, {{3, 4}, {0, 1}}, {{3, 4}, {8, 2}}, {{2}, {5}}};
  for (const auto& [shape, strides] : views) {
    Array view = Array::view(base, shape, strides);
    CHECK(planned(rt, view).strides == strides);
  }
  Array reversed = Array::view(base, {3, 4}, {-4, -1}, 11 * 4);
  CHECK(planned(rt, reversed).strides == Extents{-4, -1});
}

TEST_CASE("0-d tensors") {
  Loaded rt({"probe"});
  Array scalar(Extents{});
  const SeenTensor seen = planned(rt, scalar);
  CHECK(seen.ndim == 0);
  CHECK(seen.align_log2 == 8);
}

TEST_CASE("alignment is that of data plus byte_offset 256 at most") {
  Loaded rt({"probe"});
  Array base({1024}, kProbe, kU8);
  for (uint16_t log2 = 0; log2 < 10; ++log2) {
    Array view = Array::view(base, {4}, {}, uint64_t{1} << log2);
    CHECK(planned(rt, view).align_log2 == std::min<uint16_t>(log2, 8));
    Array moved = Array::view(base, {4}, {});
    moved.tensor.data = static_cast<char*>(base.tensor.data) + (1 << log2);
    CHECK(planned(rt, moved).align_log2 == std::min<uint16_t>(log2, 8));
    moved.tensor.byte_offset = uint64_t{1} << log2;
    CHECK(planned(rt, moved).align_log2 == std::min(log2 + 1, 8));
  }
}

TEST_CASE("alias_of says which input an output is") {
  Loaded rt({"probe"});
  Array a({4}), b({4}), out({4});
  const auto alias = [&](std::vector<Array*> inputs, Array& output) {
    nw_plan_cache_clear(rt);
    Call("probe.noop/1", std::move(inputs), {&output}).ok(rt);
    const SeenSig sig = rt.probe().last_sig();
    for (uint32_t i = 0; i < sig.num_inputs; ++i) CHECK(sig.tensors[i].alias_of == -1);
    return sig.tensors.back().alias_of;
  };
  CHECK(alias({&a, &b}, out) == -1);
  CHECK(alias({&a, &b}, a) == 0);
  CHECK(alias({&a, &b}, b) == 1);
  CHECK(alias({&a, nullptr, &b}, b) == 2);
  CHECK(alias({&a, &a}, a) == 0);
  // One address, said in another way.
  Array base({8});
  Array by_offset = Array::view(base, {4}, {}, 16), by_data = Array::view(base, {4}, {1});
  by_data.tensor.data = static_cast<char*>(base.tensor.data) + 16;
  CHECK(alias({&a, &by_offset}, by_data) == 1);
  // Nothing is shared where there is no element.
  Array empty = Array::view(base, {0}, {}), other = Array::view(base, {0}, {});
  CHECK(alias({&empty}, other) == -1);
}

TEST_CASE("zeros at the end of params are trimmed") {
  Loaded rt({"probe"});
  Array a({4}), out({4});
  const ProbeParams params{7, 0, 0};
  std::vector<unsigned char> bytes(sizeof params + 64, 0);
  std::memcpy(bytes.data(), &params, sizeof params);
  for (const size_t size : {size_t{1}, size_t{8}, size_t{9}, sizeof params, sizeof params + 1, sizeof params + 64}) {
    INFO("params_size " << size);
    Call call("probe.noop/1", {&a}, {&out});
    call.blob({bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size)});
    call.ok(rt);
    CHECK(rt.probe().last_sig().params == std::vector<unsigned char>{7});
  }
  CHECK(rt.probe().plans == 1);
  for (const size_t size : {size_t{0}, size_t{1}, size_t{8}, sizeof params, sizeof params + 64}) {
    Call call("probe.noop/1", {&a}, {&out});
    call.blob(std::vector<unsigned char>(size, 0));
    call.ok(rt);
    CHECK(rt.probe().last_sig().params.empty());
  }
  CHECK(rt.probe().plans == 2);
  Call null("probe.noop/1", {&a}, {&out});
  null.raw.params = &params;  // of size 0: not read
  null.ok(rt);
  CHECK(rt.probe().plans == 2);
}

TEST_CASE("params that are all zeros are NULL and 0 bytes for the plugin") {
  Loaded rt({"probe"});
  Array a({4}), out({4});
  bool planned = false, launched = false;
  rt.probe().on_plan = [&](const nw_sig& sig) { planned = sig.params == nullptr && sig.params_size == 0; };
  rt.probe().on_launch = [&](const nw_call& made) { launched = made.params == nullptr && made.params_size == 0; };
  for (const size_t size : {size_t{0}, size_t{1}, size_t{8}, sizeof(ProbeParams), sizeof(ProbeParams) + 64}) {
    INFO("params_size " << size);
    nw_plan_cache_clear(rt);
    planned = launched = false;
    Call call("probe.noop/1", {&a}, {&out});
    call.blob(std::vector<unsigned char>(size, 0)).ok(rt);
    CHECK(planned);
    CHECK(launched);
  }
  rt.probe().on_launch = [&](const nw_call& made) { launched = made.params != nullptr && made.params_size == 1; };
  Call call("probe.noop/1", {&a}, {&out});
  call.params(ProbeParams{7, 0, 0}).ok(rt);
  CHECK(launched);
}

TEST_CASE("absent inputs at the end are stripped those between are marked") {
  Loaded rt({"probe"});
  Array a({4}), c({4}), out({4});
  Call("probe.noop/1", {&a}, {&out}).ok(rt);
  Call("probe.noop/1", {&a, nullptr}, {&out}).ok(rt);
  Call("probe.noop/1", {&a, nullptr, nullptr}, {&out}).ok(rt);
  Call("probe.noop/1", {&a, nullptr, nullptr, nullptr, nullptr}, {&out}).ok(rt);
  CHECK(rt.probe().plans == 1);
  CHECK(rt.probe().last_sig().num_inputs == 1);
  Call("probe.noop/1", {&a, nullptr, &c}, {&out}).ok(rt);
  const SeenSig sig = rt.probe().last_sig();
  REQUIRE(sig.num_inputs == 3);
  CHECK(sig.tensors[1].ndim == -1);
  CHECK(sig.tensors[1].dtype.bits == 0);
  CHECK(sig.tensors[1].align_log2 == 0);
}

TEST_CASE("an output that is not wanted is absent") {
  Loaded rt({"probe"});
  Array a({4}), y({4}), aux({4});
  Call("probe.aux/1", {&a}, {&y, nullptr}).ok(rt);
  SeenSig sig = rt.probe().last_sig();
  REQUIRE(sig.num_outputs == 2);
  CHECK(sig.tensors[2].ndim == -1);
  Call("probe.aux/1", {&a}, {&y, &aux}).ok(rt);
  CHECK(rt.probe().last_sig().tensors[2].ndim == 1);
  CHECK(rt.probe().plans == 2);
}

TEST_CASE("the rest of the signature") {
  Loaded rt({"probe"});
  Array a({4}, probe_device(1), kF16), out({4}, probe_device(1), kF16);
  Call call("probe.noop/1", {&a}, {&out});
  call.raw.flags = NW_DETERMINISTIC;
  call.ok(rt);
  const SeenSig sig = rt.probe().last_sig();
  CHECK(sig.struct_size == sizeof(nw_sig));
  CHECK(sig.flags == NW_DETERMINISTIC);
  CHECK(sig.op == "probe.noop/1");
  CHECK(!sig.kernel.has_value());
  CHECK(sig.device.device_id == 1);
  CHECK(sig.device.device_type == kDLExtDev);
  CHECK(sig.tensors[0].flags == 0);
  CHECK((sig.tensors[0].dtype.code == kDLFloat && sig.tensors[0].dtype.bits == 16 && sig.tensors[0].dtype.lanes == 1));
}

TEST_CASE("everything in the signature is in the key and the plugin") {
  Loaded rt({"probe", "probe2"});
  Array base({64});
  Array a({4, 2}), out({4, 2});
  struct Variant {
    const char* what;
    std::function<void(Call&)> bend;
  };
  Array wide({4, 2}, kProbe, kF64), wide_out({4, 2}, kProbe, kF64), flat({8}), flat_out({8}), integers({4, 2}, kProbe, kI32),
      integers_out({4, 2}, kProbe, kI32);
  Array longer({4, 3}), longer_out({4, 3}), column = Array::view(base, {4, 2}, {1, 4}), shifted = Array::view(base, {4, 2}, {}, 4);
  Array elsewhere({4, 2}, probe_device(1)), elsewhere_out({4, 2}, probe_device(1)), b({4, 2});
  const auto replace = [](Array& input, Array& output) {
    return [&](Call& call) {
      call.inputs[0] = &input.tensor;
      call.outputs[0] = &output.tensor;
    };
  };
  const Variant variants[] = {
      {"nothing", [](Call&) {}},
      {"dtype", replace(wide, wide_out)},
      {"dtype of one size", replace(integers, integers_out)},
      {"rank", replace(flat, flat_out)},
      {"shape", replace(longer, longer_out)},
      {"strides", replace(column, out)},
      {"alignment", replace(shifted, out)},
      {"alignment of the output", replace(a, shifted)},
      {"alias", replace(a, a)},
      {"device", replace(elsewhere, elsewhere_out)},
      {"an input more",
       [&](Call& call) {
         call.inputs.push_back(&b.tensor);
         call.raw.inputs = call.inputs.data();
         call.raw.num_inputs = 2;
       }},
      {"params", [](Call& call) { call.params(ProbeParams{1, 0, 0}); }},
      {"other params", [](Call& call) { call.params(ProbeParams{0, 1, 0}); }},
      {"params of the last byte", [](Call& call) { call.params(ProbeParams{0, 0, INT64_MIN}); }},
      {"flags", [](Call& call) { call.raw.flags = NW_DETERMINISTIC; }},
      {"kernel", [](Call& call) { call.raw.kernel = "slow"; }},
      {"other kernel", [](Call& call) { call.raw.kernel = "fast"; }},
      {"op", [](Call& call) { call.raw.op = "probe.dtype/1"; }},
  };
  for (const bool again : {false, true}) {
    int plans = again ? static_cast<int>(std::size(variants)) : 0;
    for (const Variant& variant : variants) {
      INFO(variant.what << (again ? ", again" : ""));
      Call call("probe.noop/1", {&a}, {&out});
      variant.bend(call);
      call.ok(rt);
      CHECK(rt.probe().plans == plans + (again ? 0 : 1));
      if (!again) ++plans;
    }
  }
  Call call("probe.noop/1", {&a}, {&out});
  call.raw.backend = "probe2";
  call.ok(rt);
  CHECK(rt.probe("probe2").plans == 1);
}

TEST_CASE("nothing else is in the key") {
  Loaded rt({"probe"});
  Array a({4}), b({4}), out({4}), other({4}), workspace({64});
  Call("probe.noop/1", {&a}, {&out}).ok(rt);
  Call("probe.noop/1", {&b}, {&other}).ok(rt);  // other addresses
  Call call("probe.noop/1", {&a}, {&out});
  call.raw.stream = &a;
  call.ok(rt);
  call.raw.workspace = workspace->data;
  call.raw.workspace_size = 256;
  call.ok(rt);
  call.raw.device = kProbe;
  call.ok(rt);
  std::string op = "probe.noop/1";  // other pointers to the same names
  call.raw.op = op.c_str();
  call.ok(rt);
  CHECK(rt.probe().plans == 1);
}

TEST_CASE("a call with the most tensors and the most dimensions") {
  Loaded rt({"probe"});
  const Extents ones(NW_MAX_NDIM, 1);
  Array a(ones), b(ones), c(ones), out(ones);
  Call("probe.noop/1", {&a, &b, &c}, {&out}).ok(rt);
  CHECK(rt.probe().last_sig().tensors[3].strides == ones);
  std::vector<unsigned char> blob(100000, 0);  // longer than any inline buffer
  blob[23] = 1;
  Call call("probe.noop/1", {&a, &b, &c}, {&out});
  call.blob(blob).ok(rt);
  CHECK(rt.probe().last_sig().params.size() == 24);
}
