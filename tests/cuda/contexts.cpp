// SPDX-License-Identifier: Apache-2.0
// contexts.cpp -- what a call leaves as it was: the caller's current device, its contexts, its last error; and that no context
// appears on a device that the call does not use.
#include <cstring>
#include <thread>

#include "cuda.h"

using namespace narrows::test;

namespace {

// The driver's function of that name: the test links the runtime alone.
template <class Function>
Function driver(const char* name, unsigned version) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  CUDA_OK(cudaGetDriverEntryPointByVersion(name, &function, version, cudaEnableDefault, &found));
  REQUIRE(function != nullptr);
  return reinterpret_cast<Function>(function);
}

CUcontext current_context() {
  CUcontext context = nullptr;
  REQUIRE(driver<CUresult (*)(CUcontext*)>("cuCtxGetCurrent", 4000)(&context) == CUDA_SUCCESS);
  return context;
}

bool has_context(int id) {
  unsigned flags = 0;
  int active = 0;
  REQUIRE(driver<CUresult (*)(CUdevice, unsigned*, int*)>("cuDevicePrimaryCtxGetState", 7000)(id, &flags, &active) == CUDA_SUCCESS);
  return active != 0;
}

}  // namespace

TEST_CASE("contexts: a thread without a context has none afterwards", "[contexts]") {
  const Buffer a(400), b(400), out(400);
  CUDA_OK(cudaDeviceSynchronize());
  CUcontext before = nullptr, after = nullptr;
  int32_t status = -1;
  nw_error error{};
  std::thread([&] {
    before = current_context();
    Addition call(device(), a.data(), b.data(), out.data(), 100);
    status = call.run(&error);
    after = current_context();
  }).join();
  INFO(error.message);
  CHECK(status == NW_OK);
  CHECK(before == nullptr);
  CHECK(after == nullptr);
}

// Other kernels are planned otherwise, and the vendor's library is not ours. Alone in its process: the library is opened here.
TEST_CASE("contexts: a thread without one has none after the first calls on matrix units either", "[.][fresh]") {
  const std::vector<Example> calls = matrix_examples();
  CUDA_OK(cudaDeviceSynchronize());
  for (const Example& e : calls) {
    Call call(e.op, e.input_pointers(), e.output_pointers(), e.params);
    CUcontext before = nullptr, after = nullptr;
    int32_t status = -1;
    nw_error error{};
    std::thread([&] {
      before = current_context();
      status = nw_run(runtime(), &call.raw, &error);
      after = current_context();
    }).join();
    INFO(e.what << ": " << error.message);
    CHECK(status == NW_OK);
    CHECK(before == nullptr);
    CHECK(after == nullptr);
  }
  CUDA_OK(cudaDeviceSynchronize());
}

// The backends here have a runtime of their own, linked statically: only one that shares the caller's, as AMD's is, could fail.
TEST_CASE("contexts: the caller's last error stays", "[contexts]") {
  const Buffer a(400), b(400), out(400);
  Addition call(device(), a.data(), b.data(), out.data(), 100);
  REQUIRE(call.run() == NW_OK);
  CHECK(cudaSetDevice(9999) == cudaErrorInvalidDevice);
  CHECK(cudaPeekAtLastError() == cudaErrorInvalidDevice);
  nw_error error{};
  const int32_t status = call.run(&error);
  INFO(error.message);
  CHECK(status == NW_OK);  // a launch reads its own return code, not what was there before
  CHECK(cudaGetLastError() == cudaErrorInvalidDevice);
  CHECK(cudaGetLastError() == cudaSuccess);
}

// By the backend: while it plans, and before a launch.
TEST_CASE("contexts: a refused call changes nothing either", "[contexts][checked]") {
  CUcontext before = nullptr, after = nullptr;
  int32_t planned = NW_OK, launched = NW_OK;
  nw_error plan_error{}, launch_error{};
  const Buffer out(400);
  std::vector<float> host(100);
  std::thread([&] {
    before = current_context();
    Addition forced(device(), out.data(), out.data(), out.data(), 100);
    forced.call.kernel = "f16";
    planned = forced.run(&plan_error);
    Addition foreign(device(), host.data(), host.data(), out.data(), 100);
    launched = foreign.run(&launch_error);
    after = current_context();
  }).join();
  expect_status(planned, plan_error, NW_UNSUPPORTED, {"kernel 'f16'"});
  expect_status(launched, launch_error, NW_INVALID, {"tensor 0", "no memory that the driver knows"});
  CHECK(before == nullptr);
  CHECK(after == nullptr);
}

TEST_CASE("contexts: a call on one device leaves the other alone", "[contexts][two]") {
  NEEDS_TWO_GPUS();
  CUDA_OK(cudaSetDevice(1));
  const Buffer a(400), b(400), out(400);
  const std::vector<float> ones(100, 1), twos(100, 2);
  CUDA_OK(cudaMemcpy(a.data(), ones.data(), 400, cudaMemcpyHostToDevice));
  CUDA_OK(cudaMemcpy(b.data(), twos.data(), 400, cudaMemcpyHostToDevice));
  CUDA_OK(cudaSetDevice(0));
  const CUcontext before = current_context();
  Addition call({kDLCUDA, 1}, a.data(), b.data(), out.data(), 100);
  nw_error error{};
  const int32_t status = call.run(&error);
  INFO(error.message);
  CHECK(status == NW_OK);
  int current = -1;
  CUDA_OK(cudaGetDevice(&current));
  CHECK(current == 0);
  CHECK(current_context() == before);
  std::vector<float> sums(100);
  CUDA_OK(cudaSetDevice(1));
  CUDA_OK(cudaMemcpy(sums.data(), out.data(), 400, cudaMemcpyDeviceToHost));
  CUDA_OK(cudaSetDevice(0));
  CHECK(sums == std::vector<float>(100, 3));
}

TEST_CASE("contexts: tensors and streams of two devices are refused", "[contexts][two][checked]") {
  NEEDS_TWO_GPUS();
  CUDA_OK(cudaSetDevice(1));
  const Buffer far(400);
  const Stream far_stream;
  CUDA_OK(cudaSetDevice(0));
  const Buffer a(400), out(400);
  nw_error error{};
  Addition mixed({kDLCUDA, 0}, a.data(), far.data(), out.data(), 100);
  expect_status(mixed.run(&error), error, NW_INVALID, {"tensor 1", "device 1", "expected device 0"});
  mixed.tensors[1].device = {kDLCUDA, 1};
  expect_status(mixed.run(&error), error, NW_INVALID, {"device"});
  Addition call({kDLCUDA, 0}, a.data(), a.data(), out.data(), 100);
  call.call.stream = far_stream;
  expect_status(call.run(&error), error, NW_INVALID, {"stream", "device 1", "device 0"});
}

// Alone in its process: other tests have opened the second device.
TEST_CASE("contexts: no context appears on a device that no call uses", "[.][alone]") {
  NEEDS_TWO_GPUS();
  CHECK_FALSE(has_context(1));
  const Buffer a(400), b(400), out(400);
  Addition call({kDLCUDA, 0}, a.data(), b.data(), out.data(), 100);
  REQUIRE(call.run() == NW_OK);
  for (const Example& e : matrix_examples()) expect_ok(e.run());
  CUDA_OK(cudaDeviceSynchronize());
  CHECK(has_context(0));
  CHECK_FALSE(has_context(1));
}
