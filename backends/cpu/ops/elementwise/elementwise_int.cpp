// SPDX-License-Identifier: Apache-2.0
// elementwise_int.cpp -- the kernels of elementwise for integers and bool.
#include "targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/elementwise/elementwise_int.cpp"
#include <hwy/foreach_target.h>

#include "elementwise_int-inl.h"

HWY_BEFORE_NAMESPACE();
namespace narrows::cpu::HWY_NAMESPACE {

// ---- bool: any byte but 0 is true, and what is stored is 0 or 1 ----

template <class V>
HWY_INLINE V truth(V bytes) {
  return hn::Min(bytes, hn::Set(hn::DFromV<V>(), 1));
}
template <class V>
HWY_INLINE V negated(V truth) {
  return hn::Xor(truth, hn::Set(hn::DFromV<V>(), 1));
}
NARROWS_MAP2(bool_eq, kShort, negated(hn::Xor(truth(a), truth(b))))
NARROWS_MAP2(bool_and, kShort, truth(hn::Min(a, b)))
NARROWS_MAP2(bool_or, kShort, truth(hn::Or(a, b)))
NARROWS_MAP2(bool_xor, kShort, hn::Xor(truth(a), truth(b)))
NARROWS_MAP3(bool_where, kShort, truth(hn::IfThenElse(hn::Eq(a, hn::Zero(hn::DFromV<V>())), c, b)))

constexpr Entry kBoolKernels[] = {
    {NW_EW_LOGICAL_NOT, loop<uint8_t, LogicalNot>},
    {NW_EW_BITWISE_NOT, loop<uint8_t, LogicalNot>},
    {NW_EW_EQ, bool_eq<uint8_t>},
    {NW_EW_NE, bool_xor<uint8_t>},
    {NW_EW_LOGICAL_AND, bool_and<uint8_t>},
    {NW_EW_LOGICAL_OR, bool_or<uint8_t>},
    {NW_EW_LOGICAL_XOR, bool_xor<uint8_t>},
    {NW_EW_BITWISE_AND, bool_and<uint8_t>},
    {NW_EW_BITWISE_OR, bool_or<uint8_t>},
    {NW_EW_BITWISE_XOR, bool_xor<uint8_t>},
    {NW_EW_WHERE, bool_where<uint8_t>},
};

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
    case NW_DTYPE_BOOL: return find_kernel(kBoolKernels, function);
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
