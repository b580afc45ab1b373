// SPDX-License-Identifier: Apache-2.0
// conv1d-inl.h -- lines: positions of a signal at a step, as accumulators side by side. Compiled once per instruction set.
#if defined(NARROWS_CPU_CONV1D_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef NARROWS_CPU_CONV1D_INL_H
#undef NARROWS_CPU_CONV1D_INL_H
#else
#define NARROWS_CPU_CONV1D_INL_H
#endif

#include <algorithm>

#include "conv1d.h"
#include "ops/convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace narrows::cpu::HWY_NAMESPACE {

// A signal of one channel: x(position) = base[position * stride], 0 outside [0, extent).
template <class T>
struct Signal {
  const T* base;
  int64_t stride, extent;
};

// Elements x(position + i * step) for i in [0, count), then zeros up to `length`. Gives the signal's own memory where they lie
// there as they are wanted (`padded` elements of it are then read), else `line`, filled.
template <class T, class A = Accumulate<T>>
const A* Line(const Signal<T>& x, int64_t position, int64_t step, int64_t count, int64_t padded, A* line) {
  if constexpr (std::is_same_v<T, A>)
    if (step == 1 && x.stride == 1 && position >= 0 && position <= x.extent - padded && is_aligned(x.base))
      return x.base + position;
  // Divided, and multiplied only where it is taken, so that a huge step does not overflow.
  const int64_t low = position >= 0 ? 0 : std::min(count, (-position - 1) / step + 1);
  const int64_t high = position >= x.extent ? low : std::max(low, std::min(count, (x.extent - 1 - position) / step + 1));
  std::fill(line, line + low, A{0});
  const int64_t stride = high - low > 1 ? step * x.stride : 0;
  if (low < high) LoadRow(x.base + (position + low * step) * x.stride, stride, high - low, line + low);
  std::fill(line + high, line + padded, A{0});
  return line;
}

}  // namespace narrows::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
