// SPDX-License-Identifier: Apache-2.0
// elementwise_gradients.cpp -- the kernels of elementwise_backward, and the sums over what was broadcast: those of f32 take f16 and
// bf16 too, whose gradients come in f32 then.
#include "targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/elementwise/elementwise_gradients.cpp"
#include <hwy/foreach_target.h>

#include "elementwise_grad-inl.h"

HWY_BEFORE_NAMESPACE();
namespace narrows::cpu::HWY_NAMESPACE {
Gradient lookup_gradient(int function, int operand, int dtype) {
  switch (dtype) {
    case NW_DTYPE_FLOAT32: return gradient_lookup<float>(function, operand);
    case NW_DTYPE_FLOAT64: return gradient_lookup<double>(function, operand);
    case NW_DTYPE_FLOAT16: return gradient_lookup<f16>(function, operand);
    case NW_DTYPE_BFLOAT16: return gradient_lookup<bf16>(function, operand);
    default: return {};
  }
}
Accumulator lookup_accumulator(int dtype) { return dtype == NW_DTYPE_FLOAT64 ? accumulate<double> : accumulate<float>; }
}  // namespace narrows::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace narrows::cpu {
HWY_EXPORT(lookup_gradient);
Gradient gradient_kernel(const Instance& instance, int function, int operand, int dtype) {
  return NARROWS_DISPATCH(instance, lookup_gradient)(function, operand, dtype);
}
HWY_EXPORT(lookup_accumulator);
Accumulator accumulator(const Instance& instance, int dtype) { return NARROWS_DISPATCH(instance, lookup_accumulator)(dtype); }
}  // namespace narrows::cpu
#endif
