// SPDX-License-Identifier: Apache-2.0
// runtime.h -- a runtime of the public C API, as an application has it, and a call on a device of it.
#pragma once

#include <narrows/narrows.h>
#include <narrows/ops.h>
#include <narrows/vulkan.h>

#include <catch2/catch_test_macros.hpp>

namespace narrows::vulkan::test {

// The copy of the backend that the test program itself holds, as a plugin for a Runtime; a Driver stands under it.
inline const char* here() { return NARROWS_TEST_HERE; }

struct Runtime {
  explicit Runtime(const char* plugin = nullptr) {
    REQUIRE(nw_runtime_create(nullptr, &handle, nullptr) == NW_OK);
    if (plugin != nullptr) REQUIRE(nw_load(handle, plugin, nullptr) == NW_OK);
    vulkan = static_cast<const nw_vulkan*>(nw_extension(handle, "vulkan", "vulkan/1"));
    REQUIRE(vulkan != nullptr);
  }
  ~Runtime() { nw_runtime_destroy(handle); }
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;
  nw_runtime* handle = nullptr;
  const nw_vulkan* vulkan = nullptr;
};

constexpr DLDevice on(int32_t id) { return {kDLVulkan, id}; }

// A float tensor of one dimension on a device.
struct FloatTensor {
  void* data;
  int64_t size, stride = 1;
  uint64_t byte_offset = 0;
};

// out = a + b; the status. The tensors are of one size.
inline int32_t add(const Runtime& rt, int32_t id, const FloatTensor& a, const FloatTensor& b, const FloatTensor& out,
                   nw_error* error = nullptr, void* stream = nullptr) {
  const FloatTensor given[] = {a, b, out};
  DLTensor tensors[3];
  int64_t sizes[3], strides[3];
  for (int i = 0; i < 3; ++i) {
    sizes[i] = given[i].size, strides[i] = given[i].stride;
    tensors[i] = {given[i].data, on(id), 1, {kDLFloat, 32, 1}, &sizes[i], &strides[i], given[i].byte_offset};
  }
  const DLTensor *inputs[] = {&tensors[0], &tensors[1]}, *outputs[] = {&tensors[2]};
  nw_elementwise_params params{};
  params.function = NW_EW_ADD;
  nw_call call{};
  call.struct_size = sizeof call;
  call.op = "elementwise";
  call.num_inputs = 2;
  call.inputs = inputs;
  call.num_outputs = 1;
  call.outputs = outputs;
  call.params = &params;
  call.params_size = sizeof params;
  call.stream = stream;
  return nw_run(rt.handle, &call, error);
}

// The same of n floats each, side by side.
inline int32_t add(const Runtime& rt, int32_t id, void* a, void* b, void* out, int64_t n, nw_error* error = nullptr,
                   void* stream = nullptr) {
  return add(rt, id, FloatTensor{a, n}, FloatTensor{b, n}, FloatTensor{out, n}, error, stream);
}

}  // namespace narrows::vulkan::test
