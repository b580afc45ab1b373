// SPDX-License-Identifier: Apache-2.0
// kit_plugin.cpp -- a plugin whose source is in CUDA, as an author writes one with plugin_cuda.hpp, but for its launch: the C++
// compiler, which compiles it here, knows no <<<>>>. The folder narrows/hip has CUDA's names, for a HIP that the CPU plays.
#include <cuda_runtime.h>
#include <narrows/plugin_cuda.hpp>

namespace {

struct Params {
  float factor;
};

__global__ void times(const float* x, float* y, float factor, int64_t n) {
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (i < n) y[i] = factor * x[i];
}

void scale(const narrows::plugin::Launch& call) {
  int64_t n = call.size(0);
  if (n == 0) return;
  const float* x = call.input<float>(0);
  float* y = call.output<float>(0);
  float factor = call.params<Params>().factor;
  void* arguments[] = {&x, &y, &factor, &n};
  const auto blocks = static_cast<unsigned>((n + 255) / 256);
  narrows::plugin::check(cudaLaunchKernel(times, dim3{blocks, 1, 1}, dim3{256, 1, 1}, arguments, 0, narrows::plugin::stream(call)));
}

// y = a + b of any strides, by a space that the kernel gets by value.
__global__ void add_in(narrows::plugin::Space space, float* y, const float* a, const float* b) {
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (i >= space.size()) return;
  const auto at = [&](int k) { return space.offset_of(k, i) / int64_t{sizeof(float)}; };
  y[at(0)] = a[at(1)] + b[at(2)];
}

void add(const narrows::plugin::Launch& call) {
  narrows::plugin::Space space = call.space({call.out(0), call.in(0), call.in(1)});
  if (space.size() == 0) return;
  const float *a = narrows::plugin::data<float>(&call.in(0)), *b = narrows::plugin::data<float>(&call.in(1));
  float* y = narrows::plugin::data<float>(&call.out(0));
  void* arguments[] = {&space, &y, &a, &b};
  const auto blocks = static_cast<unsigned>((space.size() + 255) / 256);
  narrows::plugin::check(
      cudaLaunchKernel(add_in, dim3{blocks, 1, 1}, dim3{256, 1, 1}, arguments, 0, narrows::plugin::stream(call)));
}

}  // namespace

NARROWS_CUDA_PLUGIN("kit_on_hip",
                    {.name = "kit.scale/1",
                     .inputs = {"x"},
                     .outputs = {"y"},
                     .kernel = scale,
                     .params = {narrows::plugin::field("factor", &Params::factor, 1.0)},
                     .params_size = sizeof(Params),
                     .layout = narrows::plugin::Layout::copied},
                    {.name = "kit.add/1",
                     .inputs = {"a", "b"},
                     .outputs = {"y"},
                     .shape_rule = "... ; ... -> ...",
                     .kernel = add,
                     .layout = narrows::plugin::Layout::strided})
