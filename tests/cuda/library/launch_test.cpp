// SPDX-License-Identifier: Apache-2.0
// launch_test.cpp -- backends/cuda/plugin.cpp without a GPU: what a call is answered that fails with some of its work enqueued. The
// ops and the platform are the test's own, and of CUDA's runtime what a copy calls (CMakeLists.txt wraps it).
#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <new>
#include <vector>

#include "backend.h"
#include "memory_check.h"
#include "ops/program/compiler.h"
#include "ops/program/program.h"

using namespace narrows::gpu;

namespace {

// What launches and copies return, one after the other; then all succeed.
std::vector<cudaError_t> results;
cudaError_t next_result() {
  if (results.empty()) return cudaSuccess;
  const cudaError_t next = results.front();
  results.erase(results.begin());
  return next;
}

constexpr const char* kKernels[] = {"twice", nullptr};
void no_kernel(int) {}

// Two kernels, and what else is done before each.
struct Twice final : Plan {
  void launch(const nw_call& call) const override {
    if (before != nullptr) before();
    launch_kernel(no_kernel, 1, 1, 0, stream_of(call), 1);
    if (between != nullptr) between();
    launch_kernel(no_kernel, 1, 1, 0, stream_of(call), 2);
  }
  void (*before)() = nullptr;
  void (*between)() = nullptr;
};

}  // namespace

namespace narrows::gpu {

const Op conv1d{"conv1d", kKernels, nullptr}, conv1d_backward{"conv1d_backward", kKernels, nullptr};
const Op elementwise{"elementwise", kKernels, nullptr}, elementwise_backward{"elementwise_backward", kKernels, nullptr};
const Op lltm{"lltm", kKernels, nullptr}, lltm_backward{"lltm_backward", kKernels, nullptr};
const Op lltm_sequence{"lltm_sequence", kKernels, nullptr}, lltm_sequence_backward{"lltm_sequence_backward", kKernels, nullptr};
const char* const kProgramKernels[] = {nullptr};
std::unique_ptr<Plan> plan_program(const Instance&, std::string_view, const nw_sig&, bool) { return nullptr; }
std::string source_of_program(std::string_view) { return {}; }
std::string compiler_description() { return {}; }

DeviceScope::DeviceScope(int) {}
DeviceScope::~DeviceScope() = default;
gpuFunction_t find_function(const void*) { return nullptr; }
gpuError_t launch_symbol(const void*, gpuFunction_t, const Grid&, void**, gpuStream_t) { return next_result(); }
bool is_default_stream(gpuStream_t) { return true; }
int stream_device(gpuStream_t) { return -1; }
void check_memory(const nw_call&, uint64_t, int32_t) {}

}  // namespace narrows::gpu

extern "C" {
const nw_plugin* narrows_plugin_query(uint32_t host_major, nw_error* error);
cudaError_t __wrap_cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status);
cudaError_t __wrap_cudaMemcpyAsync(void*, const void*, size_t, cudaMemcpyKind, cudaStream_t);
cudaError_t __wrap_cudaStreamSynchronize(cudaStream_t);

cudaError_t __wrap_cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  return *status = cudaStreamCaptureStatusNone, cudaSuccess;
}
cudaError_t __wrap_cudaMemcpyAsync(void*, const void*, size_t, cudaMemcpyKind, cudaStream_t) { return next_result(); }
cudaError_t __wrap_cudaStreamSynchronize(cudaStream_t) { return next_result(); }
}

namespace {

struct Answer {
  int32_t status;
  nw_error error{};
  bool says(const char* words) const { return std::strstr(error.message, words) != nullptr; }
};

Instance& instance() {
  static Instance made{nullptr, false, std::vector<Device>(1), nullptr, nullptr};
  return made;
}

Answer launched(const Twice& plan, std::vector<cudaError_t> each = {}) {
  results = std::move(each);
  const nw_call call{};
  Answer answer{};
  answer.status =
      narrows_plugin_query(NW_ABI_MAJOR, nullptr)->launch(&instance(), static_cast<const Plan*>(&plan), &call, &answer.error);
  if (answer.status != NW_OK) CHECK(answer.error.status == answer.status);
  return answer;
}

Answer copied(std::vector<cudaError_t> each) {
  results = std::move(each);
  char from = 0, to = 0;
  Answer answer{};
  answer.status =
      narrows_plugin_query(NW_ABI_MAJOR, nullptr)
          ->copy(&instance(), {static_cast<DLDeviceType>(kDeviceType), 0}, &to, {kDLCPU, 0}, &from, 1, nullptr, &answer.error);
  if (answer.status != NW_OK) CHECK(answer.error.status == answer.status);
  return answer;
}

struct Error {
  cudaError_t error;
  int32_t status;
};
// One of each status that promises that nothing was enqueued.
constexpr Error kPromises[] = {{cudaErrorInvalidResourceHandle, NW_INVALID},
                               {cudaErrorNoKernelImageForDevice, NW_UNSUPPORTED},
                               {cudaErrorDevicesUnavailable, NW_UNAVAILABLE},
                               {cudaErrorMemoryAllocation, NW_OUT_OF_MEMORY},
                               {cudaErrorStreamCaptureInvalidated, NW_NOT_CAPTURABLE}};

}  // namespace

TEST_CASE("launch: a first kernel that is not enqueued is told by its own status", "[enqueued]") {
  CHECK(launched({}).status == NW_OK);
  for (const auto& [error, status] : kPromises) {
    const Answer answer = launched({}, {error});
    CHECK(answer.status == status);
    CHECK(answer.says(cudaGetErrorName(error)));
    CHECK(answer.error.native_code == error);
  }
}

TEST_CASE("launch: what fails after a kernel was enqueued has failed, for the same reason", "[enqueued]") {
  for (const auto& [error, status] : kPromises) {
    INFO(cudaGetErrorName(error));
    const Answer answer = launched({}, {cudaSuccess, error});
    CHECK(answer.status == NW_FAILED);
    CHECK(answer.says(cudaGetErrorName(error)));
    CHECK(answer.error.native_code == error);
    CHECK(launched({}, {error}).status == status);  // nothing of this call's
  }
  CHECK(launched({}, {cudaSuccess, cudaErrorIllegalAddress}).status == NW_DEVICE_LOST);
}

TEST_CASE("launch: so has a call that finds no host memory then", "[enqueued]") {
  Twice plan;
  plan.between = [] { throw std::bad_alloc(); };
  const Answer answer = launched(plan);
  CHECK(answer.status == NW_FAILED);
  CHECK(answer.says("out of host memory"));
}

TEST_CASE("launch: a product of the library's counts as a kernel", "[enqueued]") {
  Twice plan;
  plan.before = mark_enqueued;
  CHECK(launched(plan, {cudaErrorInvalidValue}).status == NW_FAILED);
}

TEST_CASE("copy: what fails while it is waited for has failed", "[enqueued]") {
  CHECK(copied({}).status == NW_OK);
  CHECK(copied({cudaErrorInvalidValue}).status == NW_INVALID);
  const Answer answer = copied({cudaSuccess, cudaErrorStreamCaptureUnsupported});
  CHECK(answer.status == NW_FAILED);
  CHECK(answer.says("waiting for a copy: cudaErrorStreamCaptureUnsupported"));
}
