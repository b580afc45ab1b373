// SPDX-License-Identifier: Apache-2.0
// plugin_header_test.cu -- plugin_cuda.hpp's table without a GPU: a runtime of the test's own counts two of them (CMakeLists.txt
// wraps it). On a real one tests/python/plugins/test_plugins_gpu.py runs it.
#include <narrows/plugin_cuda.hpp>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <catch2/catch_test_macros.hpp>
#include <limits>
#include <string>

namespace {

int current = 0;

// What a kernel is told that asks for input 0, of that dtype, as Ts; "" where it gets it.
template <class T>
std::string refusal(DLDataType dtype) {
  T items[1];
  int64_t extent = 1;
  DLTensor x{};
  x.data = items;
  x.dtype = dtype;
  x.ndim = 1;
  x.shape = &extent;
  const DLTensor* inputs[] = {&x};
  nw_call call{};
  call.inputs = inputs;
  call.num_inputs = 1;
  const narrows::plugin::Launch launch(nullptr, &call);
  try {
    return launch.input<T>(0) == items ? "" : "another address";
  } catch (const std::invalid_argument& e) {
    return e.what();
  }
}

}  // namespace

extern "C" {
cudaError_t __wrap_cudaGetDeviceCount(int* count);
cudaError_t __wrap_cudaGetDevice(int* device);
cudaError_t __wrap_cudaSetDevice(int device);

cudaError_t __wrap_cudaGetDeviceCount(int* count) { return *count = 2, cudaSuccess; }
cudaError_t __wrap_cudaGetDevice(int* device) { return *device = current, cudaSuccess; }
cudaError_t __wrap_cudaSetDevice(int device) {
  if (device < 0 || device > 1) return cudaErrorInvalidDevice;
  return current = device, cudaSuccess;
}
}

TEST_CASE("plugin_cuda.hpp: a device that does not exist is refused, and nothing is written", "[plugin_header]") {
  static const narrows::plugin::CudaPlugin plugin("test", {});
  const nw_plugin& table = *plugin.table();
  const auto expect = [](const char* slot, int32_t id, auto&& call) {
    INFO(slot << ", device " << id);
    nw_error error{};
    CHECK(call(&error) == NW_INVALID);
    CHECK(error.status == NW_INVALID);
    CHECK(std::string(error.message).find("device_id is " + std::to_string(id)) != std::string::npos);
    CHECK(call(nullptr) == NW_INVALID);
    CHECK(current == 0);
  };
  for (const int32_t id : {-1, 2, std::numeric_limits<int32_t>::max()}) {
    nw_device_info info{};
    info.struct_size = sizeof info;
    char byte = 0;
    void *data = &data, *stream = &stream;
    const DLDevice host{kDLCPU, 0}, here{kDLCUDA, 0}, nowhere{kDLCUDA, id};
    nw_call launch{};
    launch.device = nowhere;
    expect("device_info", id, [&](nw_error* e) { return table.device_info(nullptr, id, &info, e); });
    expect("alloc", id, [&](nw_error* e) { return table.alloc(nullptr, id, 8, nullptr, &data, e); });
    expect("free", id, [&](nw_error* e) { return table.free(nullptr, id, nullptr, nullptr, e); });
    expect("copy to", id, [&](nw_error* e) { return table.copy(nullptr, nowhere, &byte, host, &byte, 1, nullptr, e); });
    expect("copy from", id, [&](nw_error* e) { return table.copy(nullptr, here, &byte, nowhere, &byte, 1, nullptr, e); });
    expect("stream_create", id, [&](nw_error* e) { return table.stream_create(nullptr, id, &stream, e); });
    expect("stream_destroy", id, [&](nw_error* e) { return table.stream_destroy(nullptr, id, nullptr, e); });
    expect("stream_sync", id, [&](nw_error* e) { return table.stream_sync(nullptr, id, nullptr, e); });
    expect("stream_wait", id, [&](nw_error* e) { return table.stream_wait(nullptr, id, nullptr, nullptr, e); });
    expect("launch", id, [&](nw_error* e) { return table.launch(nullptr, nullptr, &launch, e); });
    CHECK(data == &data);
    CHECK(stream == &stream);
    CHECK(info.name[0] == '\0');
  }
}

TEST_CASE("plugin_cuda.hpp: a call on another device leaves the caller's current", "[plugin_header]") {
  static const narrows::plugin::CudaPlugin plugin("test", {});
  CHECK(plugin.table()->stream_sync(nullptr, 1, nullptr, nullptr) == NW_OK);
  CHECK(current == 0);
}

TEST_CASE("plugin_cuda.hpp: CUDA's 16-bit types read tensors of their own dtype alone", "[plugin_header]") {
  constexpr DLDataType kF16{kDLFloat, 16, 1}, kBf16{kDLBfloat, 16, 1}, kI16{kDLInt, 16, 1};
  CHECK(refusal<__half>(kF16).empty());
  CHECK(refusal<__nv_bfloat16>(kBf16).empty());
  CHECK(refusal<__half>(kBf16) == "input 0 has dtype bfloat16; the kernel asks for float16");
  CHECK(refusal<__nv_bfloat16>(kF16) == "input 0 has dtype float16; the kernel asks for bfloat16");
  CHECK(refusal<__half>(kI16) == "input 0 has dtype int16; the kernel asks for float16");
}
