// elementwise_f32.cpp -- the kernels of elementwise for f32. Step 5 of a tensor's path.
#include "../targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/elementwise_f32.cpp"
#include <hwy/foreach_target.h>

#include "elementwise_float-inl.h"

HWY_BEFORE_NAMESPACE();
namespace narrows::cpu::HWY_NAMESPACE {
Kernel lookup_f32(int function) { return float_lookup<float>(function); }
}  // namespace narrows::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace narrows::cpu {
HWY_EXPORT(lookup_f32);
Kernel f32_kernel(const Instance& instance, int function) { return NARROWS_DISPATCH(instance, lookup_f32)(function); }
}  // namespace narrows::cpu
#endif
