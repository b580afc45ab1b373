// SPDX-License-Identifier: Apache-2.0
// cuda_launch.cu -- what nw_run costs the host on CUDA above a bare launch: a tiny add by a cached plan, beside an empty kernel
// with as many bytes of arguments, on the same stream, by cudaLaunchKernel and as the add itself is launched where launches
// overlap: by cudaLaunchKernelExC with programmatic stream serialization.
//   NARROWS_PLUGIN_PATH=build/cuda/lib/narrows/backends build/cuda/bin/bench_cuda_launch
#include <cuda_runtime.h>
#include <narrows/narrows.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "ops/elementwise/elementwise.h"

namespace {

using Arguments = narrows::gpu::VectorArgs;  // of the kernel that a contiguous add launches

__global__ void empty_kernel(const __grid_constant__ Arguments) {}

void need(bool done, const char* what) {
  if (done) return;
  std::fprintf(stderr, "bench_cuda_launch: %s\n", what);
  std::exit(1);
}

// Microseconds of the host for each of several bodies, which take turns: medians over rounds of a few launches, so few that the
// device's queue never fills, and waited for between the rounds.
template <class... Body>
std::vector<double> host_us(cudaStream_t stream, Body... body) {
  constexpr int kRounds = 501, kLaunches = 100;
  std::vector<std::vector<double>> rounds(sizeof...(body));
  const auto time = [&](auto& launch, std::vector<double>& times) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kLaunches; ++i) launch();
    times.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count() / kLaunches);
    need(cudaStreamSynchronize(stream) == cudaSuccess, "a launch failed");
  };
  for (int r = 0; r < kRounds; ++r) {
    size_t i = 0;
    (time(body, rounds[i++]), ...);
  }
  std::vector<double> medians;
  for (std::vector<double>& times : rounds) {
    std::nth_element(times.begin(), times.begin() + kRounds / 2, times.end());
    medians.push_back(times[kRounds / 2]);
  }
  return medians;
}

}  // namespace

int main() {
  constexpr int64_t kElements = 1024;
  nw_error error{};
  nw_runtime* runtime = nullptr;
  need(nw_runtime_create(nullptr, &runtime, &error) == NW_OK, error.message);
  cudaStream_t stream = nullptr;
  need(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess, "no CUDA device");
  int64_t shape[] = {kElements};
  DLTensor tensors[3]{};
  for (DLTensor& t : tensors) {
    need(cudaMalloc(&t.data, kElements * sizeof(float)) == cudaSuccess, "no memory");
    t.device = {kDLCUDA, 0}, t.ndim = 1, t.dtype = {kDLFloat, 32, 1}, t.shape = shape;
  }
  const DLTensor* inputs[] = {&tensors[0], &tensors[1]};
  const DLTensor* outputs[] = {&tensors[2]};
  nw_elementwise_params params{};
  params.function = NW_EW_ADD;
  nw_call call{};
  call.struct_size = sizeof call;
  call.op = "elementwise", call.backend = "cuda", call.stream = stream;
  call.inputs = inputs, call.num_inputs = 2, call.outputs = outputs, call.num_outputs = 1;
  call.params = &params, call.params_size = sizeof params;
  nw_plan* plan = nullptr;
  nw_plan_info info{};
  info.struct_size = sizeof info;
  need(nw_plan_get(runtime, &call, &plan, &info, &error) == NW_OK, error.message);

  Arguments arguments{};
  void* pointers[] = {&arguments};
  const void* const kernel = reinterpret_cast<const void*>(empty_kernel);
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(1), config.blockDim = dim3(256), config.stream = stream, config.attrs = &attribute, config.numAttrs = 1;
  const auto medians = host_us(
      stream,
      [&] { need(cudaLaunchKernel(kernel, dim3(1), dim3(256), pointers, 0, stream) == cudaSuccess, "cudaLaunchKernel failed"); },
      [&] { need(cudaLaunchKernelExC(&config, kernel, pointers) == cudaSuccess, "cudaLaunchKernelExC failed"); },
      [&] { need(nw_run(runtime, &call, &error) == NW_OK, error.message); },
      [&] { need(nw_launch(plan, &call, &error) == NW_OK, error.message); });
  nw_plan_release(plan);
  std::printf("host time of a launch, medians, and above either bare one; arguments of %zu bytes\n", sizeof arguments);
  std::printf("  cudaLaunchKernel, an empty kernel                %6.3f us\n", medians[0]);
  std::printf("  cudaLaunchKernelExC, the same, overlapping       %6.3f us\n", medians[1]);
  std::printf("  nw_run, add of %lld f32 (%s)                   %6.3f us, %+.3f us, %+.3f us\n", static_cast<long long>(kElements),
              info.kernel, medians[2], medians[2] - medians[0], medians[2] - medians[1]);
  std::printf("  nw_launch of its plan                            %6.3f us, %+.3f us, %+.3f us\n", medians[3],
              medians[3] - medians[0], medians[3] - medians[1]);
  return 0;
}
