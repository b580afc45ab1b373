// SPDX-License-Identifier: Apache-2.0
// y = factor * x on Vulkan's devices: the shader is times.comp.
#include <narrows/plugin_vulkan.hpp>

#include "scale.h"
#include "times.comp.h"

namespace {

// The push constants of the shader.
struct Push {
  const float* x;
  float* y;
  uint64_t n;
  float factor;
};

void scale(const narrows::plugin::Launch& call) {
  const auto n = static_cast<uint64_t>(call.size(0));
  const auto factor = static_cast<float>(call.params<Params>().factor);
  const Push push{call.input<float>(0), call.output<float>(0), n, factor};
  narrows::plugin::dispatch(call, times, push, narrows::plugin::groups(n, 256));
}

}  // namespace

NARROWS_VULKAN_PLUGIN("my_ops_vulkan", scale_op(scale))
