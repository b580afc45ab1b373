// elementwise_grad_half.cpp -- the kernels of elementwise_backward for f16 and bf16, which compute in f32. Step 5 of a tensor's
// path.
#include "../targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/elementwise_grad_half.cpp"
#include <hwy/foreach_target.h>

#include "elementwise_grad-inl.h"

HWY_BEFORE_NAMESPACE();
namespace narrows::cpu::HWY_NAMESPACE {
Gradient lookup_gradient_half(int function, int operand, int dtype) {
  return dtype == NW_DTYPE_FLOAT16 ? gradient_lookup<f16>(function, operand) : gradient_lookup<bf16>(function, operand);
}
}  // namespace narrows::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace narrows::cpu {
HWY_EXPORT(lookup_gradient_half);
Gradient half_gradient(const Instance& instance, int function, int operand, int dtype) {
  return NARROWS_DISPATCH(instance, lookup_gradient_half)(function, operand, dtype);
}
}  // namespace narrows::cpu
#endif
