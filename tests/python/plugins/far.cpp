// SPDX-License-Identifier: Apache-2.0
// A plugin whose op no CPU has: far.scale/1, y = factor*x. Its device calls itself CUDA's and is host memory.
#include <narrows/plugin.h>
#define kDLCPU kDLCUDA  // in what follows: plugin.hpp is for the CPU
#include <narrows/plugin.hpp>

struct Scale {
  float factor;
};

void scale(const narrows::plugin::Launch& call) {
  const float *const x = call.input<float>(0), factor = call.params<Scale>().factor;
  float* const y = call.output<float>(0);
  call.parallel_for(call.size(0), [=](int64_t i) { y[i] = factor * x[i]; });
}

const std::vector<nw_param> kScale = {narrows::plugin::field("factor", &Scale::factor, 2.0)};

NARROWS_PLUGIN("far",
               {.name = "far.scale/1",
                .inputs = {"x"},
                .outputs = {"y"},
                .kernel = scale,
                .params = kScale,
                .params_size = sizeof(Scale),
                .backward = "far.scale_backward/1",
                .traits = NW_PLAN_CAPTURABLE},
               {.name = "far.scale_backward/1", .kernel = scale})
