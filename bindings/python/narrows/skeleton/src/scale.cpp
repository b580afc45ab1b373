// SPDX-License-Identifier: Apache-2.0
// y = factor * x on the CPU.
#include "scale.h"

namespace {

void scale(const narrows::plugin::Launch& call) {
  const auto factor = static_cast<float>(call.params<Params>().factor);
  const float* x = call.input<float>(0);
  float* y = call.output<float>(0);
  call.parallel_for(call.size(0), [=](int64_t i) { y[i] = factor * x[i]; });
}

}  // namespace

NARROWS_PLUGIN("my_ops", scale_op(scale))
