// SPDX-License-Identifier: Apache-2.0
// y = factor * x on NVIDIA's GPUs, and on AMD's.
#include <narrows/plugin_cuda.hpp>

#include "scale.h"

namespace {

__global__ void times(const float* x, float* y, float factor, int64_t n) {
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (i < n) y[i] = factor * x[i];
}

void scale(const narrows::plugin::Launch& call) {
  const int64_t n = call.size(0);
  if (n == 0) return;
  const auto factor = static_cast<float>(call.params<Params>().factor);
  const auto blocks = static_cast<unsigned>((n + 255) / 256);
  times<<<blocks, 256, 0, narrows::plugin::stream(call)>>>(call.input<float>(0), call.output<float>(0), factor, n);
  narrows::plugin::check(cudaGetLastError());
}

}  // namespace

NARROWS_CUDA_PLUGIN("my_ops_cuda", scale_op(scale))
