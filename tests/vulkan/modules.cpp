// SPDX-License-Identifier: Apache-2.0
// "vulkan_kernels/1" through the public C API: modules of other plugins, what of them is refused, and dispatches on a call's
// stream.
#include <narrows/plugin.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "runtime.h"
#include "test_shaders.h"

namespace narrows::vulkan::test {
namespace {

// steps.comp: words[i] = words[i] * factor + step[0] for i < count.
struct Push {
  void* words;
  void* step;
  uint32_t count, padding = 0;
};
constexpr uint32_t kCount = 1000;

struct Fixture {
  Fixture() {
    kernels = static_cast<const nw_vulkan_kernels*>(nw_extension(rt.handle, "vulkan", "vulkan_kernels/1"));
    REQUIRE(kernels != nullptr);
    const Shader& steps = shaders::steps;
    REQUIRE(kernels->module(kernels->self, steps.words, steps.size, &module, nullptr) == NW_OK);
    for (void** data : {&words, &step}) REQUIRE(nw_alloc(rt.handle, on(0), 4 * kCount, nullptr, data, nullptr) == NW_OK);
    const std::vector<uint32_t> ones(kCount, 1);
    for (void* data : {words, step}) put(data, ones);
    call.struct_size = sizeof call;
    call.op = "test";
    call.num_inputs = 1;
    call.inputs = &inputs;
    call.num_outputs = 1;
    call.outputs = &outputs;
    call.device = on(0);
  }
  ~Fixture() {
    for (void* data : {words, step})
      if (data != nullptr) CHECK(nw_free(rt.handle, on(0), data, nullptr, nullptr) == NW_OK);
  }
  Fixture(const Fixture&) = delete;
  Fixture& operator=(const Fixture&) = delete;

  void put(void* data, const std::vector<uint32_t>& values) const {
    REQUIRE(nw_copy(rt.handle, on(0), data, {kDLCPU, 0}, values.data(), 4 * values.size(), nullptr, nullptr) == NW_OK);
  }
  std::vector<uint32_t> get() const {
    std::vector<uint32_t> out(kCount);
    REQUIRE(nw_copy(rt.handle, {kDLCPU, 0}, out.data(), on(0), words, 4 * kCount, nullptr, nullptr) == NW_OK);
    return out;
  }
  nw_vulkan_dispatch dispatch(uint32_t count = kCount) {
    push = {words, step, count};
    return {sizeof(nw_vulkan_dispatch), 0, module, nullptr, &push, 0, sizeof push, {(kCount + 63) / 64, 1, 1}, 0};
  }
  int32_t launch(const std::vector<const nw_vulkan_dispatch*>& list) {
    return kernels->launch(kernels->self, &call, list.data(), static_cast<uint32_t>(list.size()), &error);
  }

  const Runtime rt;
  const nw_vulkan_kernels* kernels = nullptr;
  const void* module = nullptr;
  void *words = nullptr, *step = nullptr;
  Push push{};
  int64_t size = kCount;
  DLTensor in{nullptr, on(0), 1, {kDLUInt, 32, 1}, &size, nullptr, 0}, out = in;
  const DLTensor *inputs = &in, *outputs = &out;
  nw_call call{};
  nw_error error{};
};

}  // namespace

TEST_CASE("dispatches of a plugin's module run in order, on the call's stream", "[modules]") {
  Fixture f;
  f.in.data = f.step, f.out.data = f.words;
  const uint32_t two = 2, three = 3;
  nw_vulkan_dispatch first = f.dispatch(), second = first, third = first;
  first.constants = &two, second.constants = &three;
  first.num_constants = second.num_constants = 1;
  void* stream = nullptr;
  REQUIRE(nw_stream_create(f.rt.handle, on(0), &stream, nullptr) == NW_OK);
  f.call.stream = stream;
  REQUIRE(f.launch({&first, &second, &third}) == NW_OK);  // ((1 * 2 + 1) * 3 + 1) * 1 + 1
  REQUIRE(nw_stream_sync(f.rt.handle, on(0), stream, nullptr) == NW_OK);
  CHECK(f.get() == std::vector<uint32_t>(kCount, 11));
  REQUIRE(nw_stream_destroy(f.rt.handle, on(0), stream, nullptr) == NW_OK);

  f.call.stream = nullptr;
  const void* again = nullptr;
  const std::vector<uint32_t> copy(shaders::steps.words, shaders::steps.words + shaders::steps.size / 4);
  REQUIRE(f.kernels->module(f.kernels->self, copy.data(), 4 * copy.size(), &again, nullptr) == NW_OK);
  CHECK(again == f.module);
  first.groups[0] = 0;  // runs nothing
  nw_vulkan_dispatch half = f.dispatch(kCount / 2);
  half.flags = NW_VULKAN_UNORDERED;
  REQUIRE(f.launch({&first, &half}) == NW_OK);
  std::vector<uint32_t> expected(kCount, 11);
  std::fill_n(expected.begin(), kCount / 2, 12);
  CHECK(f.get() == expected);
  CHECK(f.launch({}) == NW_OK);
  CHECK(f.kernels->plugin->device_type == kDLVulkan);
}

TEST_CASE("a dispatch that cannot be is refused, and nothing of its launch runs", "[modules]") {
  Fixture f;
  f.in.data = f.step, f.out.data = f.words;
  const uint32_t one = 1;
  float host = 0;
  struct {
    std::function<void(nw_vulkan_dispatch&)> spoil;
    int32_t status;
    const char* words;
  } const cases[] = {
      {[](auto& d) { d.struct_size = 48; }, NW_INVALID, "dispatches[1]->struct_size is 48; expected 56 or more"},
      {[](auto& d) { d.flags = 2; }, NW_UNSUPPORTED, "dispatches[1]: flags are 0x2"},
      {[](auto& d) { d.reserved = 1; }, NW_UNSUPPORTED, "reserved is 1"},
      {[&](auto& d) { d.module = &host; }, NW_INVALID, "expected one that this instance gave"},
      {[](auto& d) { d.module = nullptr; }, NW_INVALID, "dispatches[1]->module is"},
      {[&](auto& d) { d.constants = &one, d.num_constants = 17; }, NW_INVALID, "num_constants is 17; expected at most 16"},
      {[](auto& d) { d.num_constants = 1; }, NW_INVALID, "dispatches[1]->constants is NULL"},
      {[](auto& d) { d.push_size = 132; }, NW_INVALID, "push_size is 132; expected a multiple of 4 up to 128"},
      {[](auto& d) { d.push_size = 6; }, NW_INVALID, "push_size is 6"},
      {[](auto& d) { d.push = nullptr; }, NW_INVALID, "dispatches[1]->push is NULL"},
  };
  for (const auto& [spoil, status, words] : cases) {
    nw_vulkan_dispatch good = f.dispatch(), bad = good;
    spoil(bad);
    INFO(words);
    CHECK(f.launch({&good, &bad}) == status);
    INFO(f.error.message);
    CHECK(std::strstr(f.error.message, words) != nullptr);
  }
  const nw_vulkan_dispatch good = f.dispatch();
  CHECK(f.launch({&good, nullptr}) == NW_INVALID);
  CHECK(f.kernels->launch(f.kernels->self, nullptr, nullptr, 0, &f.error) == NW_INVALID);
  CHECK(f.kernels->launch(f.kernels->self, &f.call, nullptr, 1, &f.error) == NW_INVALID);
  f.out.data = &host;
  CHECK(f.launch({&good}) == NW_INVALID);
  CHECK(f.error.argument == 1);
  CHECK(std::strstr(f.error.message, "lie in no live allocation") != nullptr);
  f.out.data = f.words;
  f.call.workspace = &host, f.call.workspace_size = 4;
  CHECK(f.launch({&good}) == NW_INVALID);
  CHECK(std::strstr(f.error.message, "workspace") != nullptr);
  f.call.workspace = nullptr, f.call.workspace_size = 0;
  f.call.device = {kDLCPU, 0};
  CHECK(f.launch({&good}) == NW_INVALID);
  f.call.device = on(99);
  CHECK(f.launch({&good}) == NW_INVALID);
  f.call.device = on(0);
  CHECK(f.get() == std::vector<uint32_t>(kCount, 1));
}

TEST_CASE("words that are no module of a compute shader are refused", "[modules]") {
  Fixture f;
  const std::vector<uint32_t> whole(shaders::steps.words, shaders::steps.words + shaders::steps.size / 4);
  const auto refused = [&](const std::vector<uint32_t>& words, const char* why) {
    const void* out = nullptr;
    CHECK(f.kernels->module(f.kernels->self, words.data(), 4 * words.size(), &out, &f.error) == NW_INVALID);
    INFO(f.error.message);
    CHECK(std::strstr(f.error.message, why) != nullptr);
    CHECK(out == nullptr);
  };
  refused({whole[0]}, "expected a SPIR-V module");
  std::vector<uint32_t> bad = whole;
  bad[0] = 7;
  refused(bad, "the first of them 0x7; expected a SPIR-V module");
  bad = whole;
  bad.pop_back();  // of OpFunctionEnd
  refused(bad, "a function without an end");
  bad = whole;
  bad[5] &= 0xffff;  // of no words
  refused(bad, "breaks off at word 5");
  bad = whole;
  bad.resize(whole.size() - 3);
  const void* out = nullptr;
  CHECK(f.kernels->module(f.kernels->self, bad.data(), 4 * bad.size(), &out, &f.error) == NW_INVALID);
  CHECK(f.kernels->module(f.kernels->self, whole.data(), 4 * whole.size() - 2, &out, &f.error) == NW_INVALID);
  CHECK(std::strstr(f.error.message, "expected a multiple of 4") != nullptr);
  CHECK(f.kernels->module(f.kernels->self, nullptr, 4, &out, &f.error) == NW_INVALID);
  CHECK(f.kernels->module(f.kernels->self, whole.data(), 4 * whole.size(), nullptr, &f.error) == NW_INVALID);
  const std::vector<uint32_t> binding = {whole[0], 0x10500, 0, 9, 0, 4u << 16 | 71, 5, 33, 0};  // OpDecorate %5 Binding 0
  refused(binding, "has a descriptor");
  const std::vector<uint32_t> empty = {whole[0], 0x10500, 0, 9, 0, 2u << 16 | 17, 1};  // OpCapability Shader
  refused(empty, "has no such entry point");
}

}  // namespace narrows::vulkan::test
