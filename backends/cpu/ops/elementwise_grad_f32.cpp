// elementwise_grad_f32.cpp -- the kernels of elementwise_backward for f32, and of f16 and bf16 those
// whose results are summed. Step 5 of a tensor's path.
#include "../targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/elementwise_grad_f32.cpp"
#include <hwy/foreach_target.h>

#include "elementwise_grad-inl.h"

HWY_BEFORE_NAMESPACE();
namespace narrows::cpu::HWY_NAMESPACE {
Gradient lookup_gradient_f32(int function, int operand) { return gradient_lookup<float>(function, operand); }
Accumulator lookup_accumulator_f32() { return accumulate<float>; }
}  // namespace narrows::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace narrows::cpu {
HWY_EXPORT(lookup_gradient_f32);
Gradient f32_gradient(const Instance& instance, int function, int operand) {
  return NARROWS_DISPATCH(instance, lookup_gradient_f32)(function, operand);
}
HWY_EXPORT(lookup_accumulator_f32);
Accumulator f32_accumulator(const Instance& instance) { return NARROWS_DISPATCH(instance, lookup_accumulator_f32)(); }
}  // namespace narrows::cpu
#endif
