// elementwise_int.cpp -- the kernels of elementwise for integers, and for bool as 0 and 1 in uint8. Step 5 of a tensor's path.
#include "../targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/elementwise_int.cpp"
#include <hwy/foreach_target.h>

#include "elementwise_int-inl.h"

HWY_BEFORE_NAMESPACE();
namespace narrows::cpu::HWY_NAMESPACE {
Kernel lookup_int(int function, int dtype) {
  switch (dtype) {
    case NW_DTYPE_INT8: return int_lookup<int8_t>(function);
    case NW_DTYPE_INT16: return int_lookup<int16_t>(function);
    case NW_DTYPE_INT32: return int_lookup<int32_t>(function);
    case NW_DTYPE_INT64: return int_lookup<int64_t>(function);
    case NW_DTYPE_UINT8: return int_lookup<uint8_t>(function);
    case NW_DTYPE_UINT16: return int_lookup<uint16_t>(function);
    case NW_DTYPE_UINT32: return int_lookup<uint32_t>(function);
    case NW_DTYPE_UINT64: return int_lookup<uint64_t>(function);
    case NW_DTYPE_BOOL: return int_lookup<uint8_t>(function == NW_EW_BITWISE_NOT ? NW_EW_LOGICAL_NOT : function);
    default: return nullptr;
  }
}
}  // namespace narrows::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace narrows::cpu {
HWY_EXPORT(lookup_int);
Kernel int_kernel(const Instance& instance, int function, int dtype) {
  return NARROWS_DISPATCH(instance, lookup_int)(function, dtype);
}
}  // namespace narrows::cpu
#endif
