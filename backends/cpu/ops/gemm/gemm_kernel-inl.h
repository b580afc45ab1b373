// SPDX-License-Identifier: Apache-2.0
// gemm_kernel-inl.h -- the register-blocked micro-kernel: tile (+)= a panel * b panel, every element one chain of multiply-adds in
// the order of k. A tile's rows are ld apart. Compiled once per instruction set.
#if defined(NARROWS_CPU_GEMM_KERNEL_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef NARROWS_CPU_GEMM_KERNEL_INL_H
#undef NARROWS_CPU_GEMM_KERNEL_INL_H
#else
#define NARROWS_CPU_GEMM_KERNEL_INL_H
#endif

#include <hwy/cache_control.h>

#include <algorithm>

#include "gemm_pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace narrows::cpu::HWY_NAMESPACE {

// The rows of a panel of b, packed.
template <class A>
struct PackedRows {
  const A* HWY_RESTRICT b;

  template <class D, size_t kVectors>
  HWY_INLINE void Next(D d, hn::Vec<D> (&row)[kVectors]) {
    HWY_UNROLL(3)
    for (size_t v = 0; v < kVectors; ++v) row[v] = hn::Load(d, b + v * hn::Lanes(d));
    b += 3 * hn::Lanes(d);
  }
};

// The same where they lie, packed on their way if kPacks: `step` elements from one to the next, and `jump` more after each `length`
// of them. What is fetched ahead is `ahead` elements on: rows far apart are not foreseen by the processor.
template <class A, class T, bool kPacks>
struct PlacedRows {
  const T* from;
  int64_t step, jump, length, left, ahead;
  A* HWY_RESTRICT packed;

  template <class D, size_t kVectors>
  HWY_INLINE void Next(D d, hn::Vec<D> (&row)[kVectors]) {
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    HWY_UNROLL(3)
    for (size_t v = 0; v < kVectors; ++v) {
      const int64_t at = static_cast<int64_t>(v) * lanes;
      if (at * static_cast<int64_t>(sizeof(T)) % 64 == 0) hwy::Prefetch(from + ahead + at);
      row[v] = LoadAs(d, from + at);
      if constexpr (kPacks) hn::Store(row[v], d, packed + at);
    }
    if constexpr (kPacks) packed += 3 * lanes;
    from += step;
    if (--left == 0) from += jump, left = length;
  }
};

template <class A, size_t kRows, size_t kVectors, class Rows>
HWY_INLINE void MultiplyTile(const A* HWY_RESTRICT a, Rows b, int64_t depth, A* HWY_RESTRICT tile, int64_t ld, bool add) {
  const hn::ScalableTag<A> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  hn::Vec<decltype(d)> sum[kRows][kVectors];
  HWY_UNROLL(8)
  for (size_t r = 0; r < kRows; ++r) {
    HWY_UNROLL(3)
    for (size_t v = 0; v < kVectors; ++v) sum[r][v] = hn::Zero(d);
  }
  for (int64_t k = 0; k < depth; ++k, a += kRows) {
    hn::Vec<decltype(d)> row[kVectors];
    b.Next(d, row);
    HWY_UNROLL(8)
    for (size_t r = 0; r < kRows; ++r) {
      const auto scale = hn::Set(d, a[r]);
      HWY_UNROLL(3)
      for (size_t v = 0; v < kVectors; ++v) sum[r][v] = hn::MulAdd(scale, row[v], sum[r][v]);
    }
  }
  HWY_UNROLL(8)
  for (size_t r = 0; r < kRows; ++r) {
    HWY_UNROLL(3)
    for (size_t v = 0; v < kVectors; ++v) {
      A* at = tile + static_cast<int64_t>(r) * ld + static_cast<int64_t>(v) * lanes;
      hn::Store(add ? hn::Add(hn::Load(d, at), sum[r][v]) : sum[r][v], d, at);
    }
  }
}

template <class A, size_t kRows, size_t kVectors>
void MicroKernel(const A* a, const A* b, int64_t depth, A* tile, int64_t ld, bool add) {
  MultiplyTile<A, kRows, kVectors>(a, PackedRows<A>{b}, depth, tile, ld, add);
}

// Two whole tiles, one below the other, of a panel of one vector: alone each has too few sums to hide what a multiply-add takes.
template <class A>
void MicroKernelOfTwo(const A* HWY_RESTRICT a, const A* HWY_RESTRICT b, int64_t depth, A* upper, A* lower, int64_t ld, bool add) {
  const hn::ScalableTag<A> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  hn::Vec<decltype(d)> sum[2 * kTileRows];
  HWY_UNROLL(16)
  for (auto& row : sum) row = hn::Zero(d);
  const A* a_lower = a + kTileRows * depth;
  for (int64_t k = 0; k < depth; ++k, a += kTileRows, a_lower += kTileRows, b += 3 * lanes) {
    const auto row = hn::Load(d, b);
    HWY_UNROLL(8)
    for (int64_t r = 0; r < kTileRows; ++r) {
      sum[r] = hn::MulAdd(hn::Set(d, a[r]), row, sum[r]);
      sum[kTileRows + r] = hn::MulAdd(hn::Set(d, a_lower[r]), row, sum[kTileRows + r]);
    }
  }
  HWY_UNROLL(16)
  for (int64_t r = 0; r < 2 * kTileRows; ++r) {
    A* const at = r < kTileRows ? upper + r * ld : lower + (r - kTileRows) * ld;
    hn::Store(add ? hn::Add(hn::Load(d, at), sum[r]) : sum[r], d, at);
  }
}

// Of a whole tile, whose panel is packed to `packed`, unless that is nullptr: columns j0 .. j0 + 3 vectors of the view.
template <class T, class A>
void MicroKernelPlaced(const A* a, const GemmView& view, int64_t k0, int64_t j0, int64_t depth, A* packed, A* tile, int64_t ld,
                       bool add) {
  const int64_t outer = k0 / view.depth_inner, inner = k0 % view.depth_inner;
  const T* from = static_cast<const T*>(view.base) + outer * view.depth_outer + j0 / view.width_inner * view.width_outer +
                  inner * view.depth_step + view.origin + j0 % view.width_inner;
  constexpr int64_t kAhead = 24;  // rows
  const int64_t length = view.depth_inner,
                step = length > 1 ? view.depth_step : 0;  // one that is never taken may be as large as any
  const int64_t jump = length == INT64_MAX ? 0 : view.depth_outer - length * step;
  const int64_t ahead = length > kAhead ? kAhead * step : kAhead / length * view.depth_outer;
  if (packed == nullptr)
    return MultiplyTile<A, kTileRows, 3>(a, PlacedRows<A, T, false>{from, step, jump, length, length - inner, ahead, nullptr},
                                         depth, tile, ld, add);
  const PlacedRows<A, T, true> rows{from, step, jump, length, length - inner, ahead, packed};
  MultiplyTile<A, kTileRows, 3>(a, rows, depth, tile, ld, add);
}
inline void MultiplyPlaced(const float* a, const GemmView& view, int64_t k0, int64_t j0, int64_t depth, float* packed, float* tile,
                           int64_t ld, bool add) {
  if (view.dtype == Dtype::f16) return MicroKernelPlaced<f16>(a, view, k0, j0, depth, packed, tile, ld, add);
  if (view.dtype == Dtype::bf16) return MicroKernelPlaced<bf16>(a, view, k0, j0, depth, packed, tile, ld, add);
  MicroKernelPlaced<float>(a, view, k0, j0, depth, packed, tile, ld, add);
}
inline void MultiplyPlaced(const double* a, const GemmView& view, int64_t k0, int64_t j0, int64_t depth, double* packed,
                           double* tile, int64_t ld, bool add) {
  MicroKernelPlaced<double>(a, view, k0, j0, depth, packed, tile, ld, add);
}

// True where `count` columns from j0 on lie side by side, and inside, in every row of that range.
inline bool IsPlaced(const GemmView& view, int64_t k0, int64_t depth, int64_t j0, int64_t count) {
  const int64_t j = j0 % view.width_inner;
  if (view.stride != 1 || view.width_step != 1 || j + count > view.width_inner) return false;
  if (view.extent == kUnbounded) return true;
  const int64_t first = k0 % view.depth_inner,
                last = first + depth - 1 < view.depth_inner ? first + depth - 1 : view.depth_inner - 1;
  const int64_t begin = first + depth > view.depth_inner ? 0 : first;
  const int64_t a = begin * view.depth_step, b = last * view.depth_step, at = view.origin + j;
  return std::min(a, b) + at >= 0 && std::max(a, b) + at + count <= view.extent;
}

#if HWY_TARGET != HWY_SCALAR
// Sums that lie column after column, to a tile or added to it.
template <class D, class A = hn::TFromD<D>>
HWY_INLINE void StoreByRow(D d, const A* by_column, A* HWY_RESTRICT tile, int64_t ld, bool add) {
  constexpr int64_t kLanes = hn::MaxLanes(D());
  const A* column[kLanes];
  HWY_UNROLL(16)
  for (int64_t c = 0; c < kLanes; ++c) column[c] = by_column + c * kLanes;
  if (!add) return TransposeSquare<A>(d, column, 0, tile, ld);
  HWY_ALIGN A by_row[kLanes * kLanes];
  TransposeSquare<A>(d, column, 0, by_row, kLanes);
  for (int64_t r = 0; r < kLanes; ++r)
    hn::Store(hn::Add(hn::Load(d, tile + r * ld), hn::Load(d, by_row + r * kLanes)), d, tile + r * ld);
}

// A micro-kernel where b is not packed: a's panel has as many rows as a vector lanes, and b's columns are contiguous along k,
// `stride` apart; those from `columns` on are not read. The result is transposed on its way to the tile, whose rows are ld apart.
template <class A>
void MultiplyInPlace(const A* HWY_RESTRICT a, const A* HWY_RESTRICT b, int64_t stride, int64_t columns, int64_t depth,
                     A* HWY_RESTRICT tile, int64_t ld, bool add) {
  constexpr int64_t kLanes = hn::MaxLanes(hn::ScalableTag<A>()), kUnroll = 4;
  const hn::CappedTag<A, kLanes> d;
  hn::Vec<decltype(d)> sum[kLanes];
  HWY_UNROLL(16)
  for (auto& column : sum) column = hn::Zero(d);
  int64_t k = 0;
  for (; columns == kLanes && k + kUnroll <= depth; k += kUnroll) {
    const A* column = b + k;
    HWY_UNROLL(16)
    for (int64_t c = 0; c < kLanes; c += kUnroll, column += kUnroll * stride) {
      asm("" : "+r"(column));  // hides the steps: compilers make a pointer of each, and have no registers for them
      HWY_UNROLL(4)
      for (int64_t i = 0; i < kUnroll; ++i, a += kLanes) {
        const auto row = hn::Load(d, a);
        HWY_UNROLL(4)
        for (int64_t e = 0; e < kUnroll; ++e) sum[c + e] = hn::MulAdd(hn::Set(d, column[e * stride + i]), row, sum[c + e]);
      }
      a -= kUnroll * kLanes;
    }
    a += kUnroll * kLanes;
  }
  for (; k < depth; ++k, a += kLanes) {
    HWY_UNROLL(16)
    for (int64_t c = 0; c < kLanes; ++c)
      sum[c] = hn::MulAdd(hn::Set(d, b[k + std::min(c, columns - 1) * stride]), hn::Load(d, a), sum[c]);
  }
  HWY_ALIGN A by_column[kLanes * kLanes];
  HWY_UNROLL(16)
  for (int64_t c = 0; c < kLanes; ++c) hn::Store(sum[c], d, by_column + c * kLanes);
  StoreByRow(d, by_column, tile, ld, add);
}

// The same of two tiles, one below the other: an element of b is read once for both.
template <class A>
void MultiplyTwoInPlace(const A* HWY_RESTRICT upper_a, const A* HWY_RESTRICT b, int64_t stride, int64_t columns, int64_t depth,
                        A* upper, A* lower, int64_t ld, bool add) {
  constexpr int64_t kLanes = hn::MaxLanes(hn::ScalableTag<A>()), kHalf = kLanes / 2, kUnroll = 4;
  static_assert(kHalf % kUnroll == 0);
  const hn::CappedTag<A, kLanes> d;
  HWY_ALIGN A by_column[2][kLanes * kLanes];
  for (int64_t first = 0; first < kLanes; first += kHalf) {
    const A *upper_row = upper_a, *lower_row = upper_a + kLanes * depth;
    hn::Vec<decltype(d)> sum[2][kHalf];
    HWY_UNROLL(8)
    for (int64_t c = 0; c < kHalf; ++c) sum[0][c] = sum[1][c] = hn::Zero(d);
    int64_t k = 0;
    for (; first + kHalf <= columns && k + kUnroll <= depth; k += kUnroll) {
      const A* column = b + first * stride + k;
      HWY_UNROLL(8)
      for (int64_t c = 0; c < kHalf; c += kUnroll, column += kUnroll * stride) {
        asm("" : "+r"(column));  // as above
        HWY_UNROLL(4)
        for (int64_t i = 0; i < kUnroll; ++i) {
          const auto in_upper = hn::Load(d, upper_row + i * kLanes), in_lower = hn::Load(d, lower_row + i * kLanes);
          HWY_UNROLL(4)
          for (int64_t e = 0; e < kUnroll; ++e) {
            const auto scale = hn::Set(d, column[e * stride + i]);
            sum[0][c + e] = hn::MulAdd(scale, in_upper, sum[0][c + e]);
            sum[1][c + e] = hn::MulAdd(scale, in_lower, sum[1][c + e]);
          }
        }
      }
      upper_row += kUnroll * kLanes, lower_row += kUnroll * kLanes;
    }
    for (; k < depth; ++k, upper_row += kLanes, lower_row += kLanes) {
      HWY_UNROLL(8)
      for (int64_t c = 0; c < kHalf; ++c) {
        const auto scale = hn::Set(d, b[k + std::min(first + c, columns - 1) * stride]);
        sum[0][c] = hn::MulAdd(scale, hn::Load(d, upper_row), sum[0][c]);
        sum[1][c] = hn::MulAdd(scale, hn::Load(d, lower_row), sum[1][c]);
      }
    }
    HWY_UNROLL(8)
    for (int64_t c = 0; c < kHalf; ++c) {
      hn::Store(sum[0][c], d, by_column[0] + (first + c) * kLanes);
      hn::Store(sum[1][c], d, by_column[1] + (first + c) * kLanes);
    }
  }
  StoreByRow(d, by_column[0], upper, ld, add);
  StoreByRow(d, by_column[1], lower, ld, add);
}
#endif

// Height of the tile that computes `rows` rows: a power of two, so that few kernels serve all edges.
inline int64_t Height(int64_t rows) { return rows > 4 ? 8 : rows > 2 ? 4 : rows; }

template <class A>
using MicroKernelFn = void (*)(const A*, const A*, int64_t, A*, int64_t, bool);

// By tile height (1, 2, 4, 8) and vectors used (1, 2, 3).
template <class A>
MicroKernelFn<A> ChooseMicroKernel(int64_t height, int64_t vectors) {
  static constexpr MicroKernelFn<A> kKernels[4][3] = {
      {MicroKernel<A, 1, 1>, MicroKernel<A, 1, 2>, MicroKernel<A, 1, 3>},
      {MicroKernel<A, 2, 1>, MicroKernel<A, 2, 2>, MicroKernel<A, 2, 3>},
      {MicroKernel<A, 4, 1>, MicroKernel<A, 4, 2>, MicroKernel<A, 4, 3>},
      {MicroKernel<A, kTileRows, 1>, MicroKernel<A, kTileRows, 2>, MicroKernel<A, kTileRows, 3>},
  };
  return kKernels[height == 8 ? 3 : height / 2][vectors - 1];
}

}  // namespace narrows::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
