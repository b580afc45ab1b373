// SPDX-License-Identifier: Apache-2.0
// elementwise_widths.cu -- kernels that access memory in one way only, whatever suits the GPU: one element a thread (f32, f16), a
// pair (f16x2), four pairs (f16x8), one 16-byte load and store (f32x4, f16x8_pack). For simple functions on contiguous tensors; to
// measure what the width of an access is worth.
#include "elementwise_functions.h"
#include "elementwise_loops.h"

namespace narrows::gpu {
namespace {

using Kernel = void (*)(VectorArgs);

template <int kWidth, class F>
constexpr Kernel width_kernel() {
  using T = std::conditional_t < kWidth<2, float, f16>;
  return vector_kernel<F, T, T, T, kWidthElements[kWidth], kWidthAccess[kWidth]>;
}

struct WidthRow {
  int function;
  Kernel kernels[kNumWidths];
};
template <class F>
constexpr WidthRow row(int function) {
  return {function,
          {width_kernel<0, F>(), width_kernel<1, F>(), width_kernel<2, F>(), width_kernel<3, F>(), width_kernel<4, F>(),
           width_kernel<5, F>()}};
}

const WidthRow kRows[] = {
    row<Add>(NW_EW_ADD),         row<Sub>(NW_EW_SUB),         row<Mul>(NW_EW_MUL),   row<Div>(NW_EW_DIV),
    row<Maximum>(NW_EW_MAXIMUM), row<Minimum>(NW_EW_MINIMUM), row<Relu>(NW_EW_RELU), row<Sigmoid>(NW_EW_SIGMOID),
    row<Elu>(NW_EW_ELU),         row<Gelu>(NW_EW_GELU),       row<Silu>(NW_EW_SILU), row<Square>(NW_EW_SQUARE),
};

}  // namespace

Kernel find_width(int width, int function) {
  for (const WidthRow& r : kRows)
    if (r.function == function) return r.kernels[width];
  return nullptr;
}

}  // namespace narrows::gpu
