// elementwise_grad_f64.cpp -- the kernels of elementwise_backward for f64. Step 5 of a tensor's path.
#include "../targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/elementwise_grad_f64.cpp"
#include <hwy/foreach_target.h>

#include "elementwise_grad-inl.h"

HWY_BEFORE_NAMESPACE();
namespace narrows::cpu::HWY_NAMESPACE {
Gradient lookup_gradient_f64(int function, int operand) { return gradient_lookup<double>(function, operand); }
Accumulator lookup_accumulator_f64() { return accumulate<double>; }
}  // namespace narrows::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace narrows::cpu {
HWY_EXPORT(lookup_gradient_f64);
Gradient f64_gradient(const Instance& instance, int function, int operand) {
  return NARROWS_DISPATCH(instance, lookup_gradient_f64)(function, operand);
}
HWY_EXPORT(lookup_accumulator_f64);
Accumulator f64_accumulator(const Instance& instance) { return NARROWS_DISPATCH(instance, lookup_accumulator_f64)(); }
}  // namespace narrows::cpu
#endif
