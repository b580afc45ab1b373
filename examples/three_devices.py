# SPDX-License-Identifier: Apache-2.0
"""One declaration, three devices: an op in C++ for the CPU, in CUDA and in GLSL. It runs on those devices that are here.

python3 examples/three_devices.py
"""

import shutil

import numpy as np

import narrows

DECLARATION = """
#pragma once
#include <narrows/plugin.hpp>
using namespace narrows::plugin;
struct Params { double factor; };
inline Op scale_op(Kernel kernel) {
  return {.name = "three.scale/1", .inputs = {"x"}, .outputs = {"y"}, .kernel = kernel,
          .params = {field("factor", &Params::factor, 1.0)}, .params_size = sizeof(Params)};
}
"""

CPP = """
#include "scale.h"
void scale(const Launch& call) {
  const auto factor = static_cast<float>(call.params<Params>().factor);
  const float* x = call.input<float>(0);
  float* y = call.output<float>(0);
  call.parallel_for(call.size(0), [=](int64_t i) { y[i] = factor * x[i]; });
}
NARROWS_PLUGIN("three", scale_op(scale))
"""

CUDA = """
#include <narrows/plugin_cuda.hpp>
#include "scale.h"
__global__ void times(const float* x, float* y, float factor, int64_t n) {
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (i < n) y[i] = factor * x[i];
}
void scale(const Launch& call) {
  const int64_t n = call.size(0);
  const auto factor = static_cast<float>(call.params<Params>().factor);
  if (n != 0) times<<<(n + 255) / 256, 256, 0, stream(call)>>>(call.input<float>(0), call.output<float>(0), factor, n);
  check(cudaGetLastError());
}
NARROWS_CUDA_PLUGIN("three_cuda", scale_op(scale))
"""

VULKAN = """
#include <narrows/plugin_vulkan.hpp>
#include "scale.h"
#include "times.comp.h"
struct Push { const float* x; float* y; uint64_t n; float factor; };
void scale(const Launch& call) {
  const auto n = static_cast<uint64_t>(call.size(0));
  const auto factor = static_cast<float>(call.params<Params>().factor);
  dispatch(call, times, Push{call.input<float>(0), call.output<float>(0), n, factor}, groups(n, 256));
}
NARROWS_VULKAN_PLUGIN("three_vulkan", scale_op(scale))
"""

TIMES = """
#version 460
#include <narrows/kernel.glsl>
layout(local_size_x = 256) in;
NARROWS_POINTER(Floats, float, 4)
layout(push_constant) uniform Push { Floats x, y; uint64_t n; float factor; };
void main() {
  const uint64_t i = narrows_index();
  if (i < n) at(y, i).value = factor * at(x, i).value;
}
"""

here = {str(device).partition(":")[0] for device in narrows.devices()}
sources = {"cpp_sources": CPP, "headers": {"scale.h": DECLARATION}}
if "cuda" in here and shutil.which("nvcc"):
    sources["cuda_sources"] = CUDA
if "vulkan" in here and shutil.which("glslc"):
    sources.update(vulkan_sources=VULKAN, shaders={"times": TIMES})
scale = narrows.load_inline("three", **sources).scale

x = np.arange(5, dtype="float32")
for device, needed in {"cpu": "cpp_sources", "cuda": "cuda_sources", "vulkan": "vulkan_sources"}.items():
    if needed not in sources:
        print(f"{device:7} is not here, or its compiler is not")
        continue
    y = scale(x, factor=3, device=device)
    np.testing.assert_array_equal(y, 3 * x)
    print(f"{device:7} {y}")
