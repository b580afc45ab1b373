// SPDX-License-Identifier: Apache-2.0
// elementwise_float.cpp -- the kernels of elementwise for the floating-point dtypes; those of f16 and bf16 compute in f32.
#include "targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/elementwise/elementwise_float.cpp"
#include <hwy/foreach_target.h>

#include <utility>

#include "core/ops/elementwise_table.h"
#include "elementwise_float-inl.h"

HWY_BEFORE_NAMESPACE();
namespace narrows::cpu::HWY_NAMESPACE {

// What gives a bool goes through f32 in pieces, on which the loops for it work.
template <class S>
HWY_NOINLINE void widen_pieces(const Run& run, int64_t inputs, Kernel wide_kernel) {
  constexpr int64_t kPiece = 512, kMostInputs = 2;
  alignas(64) float wide[kMostInputs][kPiece];
  Run piece = run;
  for (int64_t i = 0; i < run.n; i += kPiece) {
    piece.n = std::min(kPiece, run.n - i);
    for (int64_t k = 0; k < inputs; ++k) {
      const S* from = static_cast<const S*>(run.in[k]);
      LoadRow(run.constant[k] ? from : from + i, 1, run.constant[k] ? 1 : piece.n, wide[k]);
      piece.in[k] = wide[k];
    }
    piece.out = static_cast<bool*>(run.out) + i;
    wide_kernel(piece);
  }
}

template <class S, size_t... I>
Kernel find_predicate(int function, std::index_sequence<I...>) {
  constexpr auto& wide = kPredicates<float>;
  static constexpr Entry kEntries[] = {
      {wide[I].function, [](const Run& run) { widen_pieces<S>(run, operands_of(wide[I].function), wide[I].kernel); }}...};
  return find_kernel(kEntries, function);
}

// The sign is a bit.
NARROWS_UNARY(FlipSign, T, { return static_cast<T>(a ^ 0x8000u); })
NARROWS_UNARY(ClearSign, T, { return static_cast<T>(a & 0x7FFFu); })

template <class S>
Kernel lookup_half_of(int function) {
  if (function == NW_EW_NEG) return loop<uint16_t, FlipSign>;
  if (function == NW_EW_ABS) return loop<uint16_t, ClearSign>;
  const Kernel kernel = find_kernel(kFloatKernels<S>, function);
  return kernel != nullptr ? kernel : find_predicate<S>(function, std::make_index_sequence<std::size(kPredicates<float>)>());
}
Kernel lookup_float(int function, int dtype) {
  switch (dtype) {
    case NW_DTYPE_FLOAT32: return float_lookup<float>(function);
    case NW_DTYPE_FLOAT64: return float_lookup<double>(function);
    case NW_DTYPE_FLOAT16: return lookup_half_of<f16>(function);
    case NW_DTYPE_BFLOAT16: return lookup_half_of<bf16>(function);
    default: return nullptr;
  }
}
}  // namespace narrows::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace narrows::cpu {
HWY_EXPORT(lookup_float);
Kernel float_kernel(const Instance& instance, int function, int dtype) {
  return NARROWS_DISPATCH(instance, lookup_float)(function, dtype);
}
}  // namespace narrows::cpu
#endif
