// SPDX-License-Identifier: Apache-2.0
// lltm_sequence-inl.h -- products of some rows of the batch with packed weights. Compiled once per instruction set.
#if defined(NARROWS_CPU_LLTM_SEQUENCE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef NARROWS_CPU_LLTM_SEQUENCE_INL_H
#undef NARROWS_CPU_LLTM_SEQUENCE_INL_H
#else
#define NARROWS_CPU_LLTM_SEQUENCE_INL_H
#endif

#include "lltm-inl.h"
#include "lltm_sequence.h"
#include "ops/gemm/gemm_kernel-inl.h"

HWY_BEFORE_NAMESPACE();
namespace narrows::cpu::HWY_NAMESPACE {

// Rows 0 .. rows of a view as a micro-kernel's left operand, tile after tile. The last tile may be lower.
template <class A>
void PackTiles(const GemmView& view, int64_t depth, int64_t rows, A* to) {
  const int64_t whole = rows / kTileRows * kTileRows, height = Height(rows - whole);
  if (whole > 0) Pack(view, 0, depth, 0, whole, PanelRow<A>{to, 0, kTileRows, kTileRows, kTileRows * depth});
  if (whole < rows) Pack(view, 0, depth, whole, rows - whole, PanelRow<A>{to + whole * depth, 0, height, height, 0});
}

// out (rows, ld) (+)= those tiles times a panel of `depth` rows by three vectors. A range of depths at a time stays in the
// first-level cache for all tiles.
template <class A>
void MultiplyTiles(const A* tiles, int64_t depth, int64_t rows, const A* panel, A* out, int64_t ld, bool add) {
  constexpr int64_t kBlock = sizeof(A) == 8 ? kDepthBlockOfF64 : kDepthBlock;
  const auto columns = 3 * static_cast<int64_t>(hn::Lanes(hn::ScalableTag<A>()));
  const int64_t blocks = std::max<int64_t>(ceil_div(depth, kBlock), 1);
  for (int64_t i = 0; i < blocks; ++i) {
    const int64_t begin = depth * i / blocks, length = depth * (i + 1) / blocks - begin;
    for (int64_t row = 0; row < rows; row += kTileRows) {
      const int64_t height = Height(std::min(rows - row, kTileRows));
      ChooseMicroKernel<A>(height, 3)(tiles + row * depth + begin * height, panel + begin * columns, length, out + row * ld, ld,
                                      add || i > 0);
    }
  }
}

// x as it is after it was stored as T.
template <class T, class D>
HWY_INLINE hn::Vec<D> RoundTo(D d, hn::Vec<D> x) {
  if constexpr (sizeof(T) == sizeof(hn::TFromD<D>)) return x;
  HWY_ALIGN T stored[hn::MaxLanes(D())];
  StoreAs(d, x, stored);
  return LoadAs(d, stored);
}

}  // namespace narrows::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
