// gemm-inl.h -- packing and the register-blocked micro-kernel. Step 5 of a tensor's path. Compiled once per instruction set.
#if defined(NARROWS_CPU_GEMM_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef NARROWS_CPU_GEMM_INL_H
#undef NARROWS_CPU_GEMM_INL_H
#else
#define NARROWS_CPU_GEMM_INL_H
#endif

#include <algorithm>

#include "convert-inl.h"
#include "gemm.h"

HWY_BEFORE_NAMESPACE();
namespace narrows::cpu::HWY_NAMESPACE {

// Rows of a tile: with three vectors of columns, all the registers that leave room for operands.
#if HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM_A64
inline constexpr int64_t kTileRows = 8;  // 32 registers
#else
inline constexpr int64_t kTileRows = 4;  // 16 registers
#endif

// ---- packing: dst[(k - k0) * ld + (j - j0)] = view(k, j), zeros from `count` to `width`

// Columns of a block that share jo: `count` of them from column `first` on.
struct Run {
  int64_t first, count, offset, position;
};

inline int64_t SplitRuns(const GemmView& view, int64_t j0, int64_t count, Run* runs) {
  int64_t num = 0;
  for (int64_t j = 0; j < count;) {
    const int64_t outer = (j0 + j) / view.width_inner, inner = (j0 + j) % view.width_inner;
    const int64_t n = std::min(count - j, view.width_inner - inner);
    runs[num++] = {j, n, outer * view.width_outer, inner * view.width_step};
    j += n;
  }
  return num;
}

template <class T, class A>
HWY_INLINE void PackRun(const GemmView& view, const T* base, int64_t position, int64_t count, A* dst) {
  const int64_t step = view.width_step, last = position + (count - 1) * step;
  if (view.extent == kUnbounded || (std::min(position, last) >= 0 && std::max(position, last) < view.extent))
    return LoadRow(base + position * view.stride, count > 1 ? step * view.stride : 0, count, dst);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t at = position + i * step;
    dst[i] = at >= 0 && at < view.extent ? read(base + at * view.stride) : A{0};
  }
}

// Row by row: for columns that lie close together.
template <class T, class A>
void PackRows(const GemmView& view, int64_t k0, int64_t depth, int64_t j0, int64_t count, int64_t width, A* dst, int64_t ld) {
  Run runs[HWY_MAX(8, 3 * hn::MaxLanes(hn::ScalableTag<A>()))];
  const int64_t num_runs = SplitRuns(view, j0, count, runs);
  int64_t outer = k0 / view.depth_inner, inner = k0 % view.depth_inner;
  for (int64_t k = 0; k < depth; ++k, dst += ld) {
    const T* row = static_cast<const T*>(view.base) + outer * view.depth_outer;
    const int64_t position = inner * view.depth_step + view.origin;
    for (int64_t r = 0; r < num_runs; ++r)
      PackRun(view, row + runs[r].offset, position + runs[r].position, runs[r].count, dst + runs[r].first);
    for (int64_t j = count; j < width; ++j) dst[j] = A{0};
    if (++inner == view.depth_inner) inner = 0, ++outer;
  }
}

#if HWY_TARGET != HWY_SCALAR
// Four (f32) or two (f64) rows of as many elements, transposed.
template <class T>
HWY_INLINE void Transpose(const T* const* p, float* dst, int64_t ld) {
  const hn::FixedTag<float, 4> d;
  const auto a = LoadAs(d, p[0]), b = LoadAs(d, p[1]), e = LoadAs(d, p[2]), f = LoadAs(d, p[3]);
  const auto ab0 = hn::InterleaveLower(d, a, b), ab1 = hn::InterleaveUpper(d, a, b);
  const auto ef0 = hn::InterleaveLower(d, e, f), ef1 = hn::InterleaveUpper(d, e, f);
  hn::StoreU(hn::ConcatLowerLower(d, ef0, ab0), d, dst);
  hn::StoreU(hn::ConcatUpperUpper(d, ef0, ab0), d, dst + ld);
  hn::StoreU(hn::ConcatLowerLower(d, ef1, ab1), d, dst + 2 * ld);
  hn::StoreU(hn::ConcatUpperUpper(d, ef1, ab1), d, dst + 3 * ld);
}
HWY_INLINE void Transpose(const double* const* p, double* dst, int64_t ld) {
  const hn::FixedTag<double, 2> d;
  const auto a = hn::LoadU(d, p[0]), b = hn::LoadU(d, p[1]);
  hn::StoreU(hn::InterleaveLower(d, a, b), d, dst);
  hn::StoreU(hn::InterleaveUpper(d, a, b), d, dst + ld);
}
#endif

// Columns j0 .. j0 + N of `length` consecutive ki from `inner` on, at consecutive addresses.
template <int N, class T, class A>
HWY_INLINE void PackColumns(const GemmView& view, int64_t outer, int64_t inner, int64_t length, int64_t j0, A* dst, int64_t ld) {
  const T* column[N];  // its position 0
  int64_t position[N];
  int64_t low = 0, high = length;  // where every column is inside
  for (int c = 0; c < N; ++c) {
    const int64_t jo = (j0 + c) / view.width_inner, ji = (j0 + c) % view.width_inner;
    position[c] = inner * view.depth_step + ji * view.width_step + view.origin;
    column[c] = static_cast<const T*>(view.base) + outer * view.depth_outer + jo * view.width_outer;
    if (view.extent == kUnbounded) continue;
    low = std::max(low, -position[c]);
    high = std::min(high, view.extent - position[c]);
  }
  const auto element = [&](int64_t i, int c) {
    const bool inside = view.extent == kUnbounded || (position[c] + i >= 0 && position[c] + i < view.extent);
    dst[i * ld + c] = inside ? read(column[c] + (position[c] + i)) : A{0};
  };
  int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  if constexpr (N == 16 / sizeof(A)) {
    for (; i < std::min(low, length); ++i)
      for (int c = 0; c < N; ++c) element(i, c);
    for (; i + N <= high; i += N) {
      const T* p[N];
      for (int c = 0; c < N; ++c) p[c] = column[c] + (position[c] + i);
      Transpose(p, dst + i * ld, ld);
    }
  }
#endif
  for (; i < length; ++i)
    for (int c = 0; c < N; ++c) element(i, c);
}

// Column by column: for depth that lies contiguous.
template <class T, class A>
void PackTransposed(const GemmView& view, int64_t k0, int64_t depth, int64_t j0, int64_t count, int64_t width, A* dst, int64_t ld) {
  constexpr int kBlock = 16 / sizeof(A);
  int64_t outer = k0 / view.depth_inner, inner = k0 % view.depth_inner;
  for (int64_t k = 0, length; k < depth; k += length, inner = 0, ++outer) {
    length = std::min(depth - k, view.depth_inner - inner);
    int64_t j = 0;
    for (; j + kBlock <= count; j += kBlock) PackColumns<kBlock, T>(view, outer, inner, length, j0 + j, dst + k * ld + j, ld);
    for (; j < count; ++j) PackColumns<1, T>(view, outer, inner, length, j0 + j, dst + k * ld + j, ld);
  }
  for (int64_t k = 0; count < width && k < depth; ++k)
    for (int64_t j = count; j < width; ++j) dst[k * ld + j] = A{0};
}

template <class T, class A = Accumulate<T>>
void PackAs(const GemmView& view, int64_t k0, int64_t depth, int64_t j0, int64_t count, int64_t width, A* dst, int64_t ld) {
  const bool rows_contiguous = view.width_step == 1 && view.stride == 1 && view.width_inner >= std::min<int64_t>(count, 8);
  const bool depth_contiguous = view.depth_step == 1 && view.stride == 1;
  if (depth_contiguous && !rows_contiguous && view.depth_inner >= 8) {
    PackTransposed<T>(view, k0, depth, j0, count, width, dst, ld);
  } else {
    PackRows<T>(view, k0, depth, j0, count, width, dst, ld);
  }
}

inline void Pack(const GemmView& v, int64_t k0, int64_t depth, int64_t j0, int64_t count, int64_t width, float* dst, int64_t ld) {
  if (v.dtype == Dtype::f16) return PackAs<f16>(v, k0, depth, j0, count, width, dst, ld);
  if (v.dtype == Dtype::bf16) return PackAs<bf16>(v, k0, depth, j0, count, width, dst, ld);
  PackAs<float>(v, k0, depth, j0, count, width, dst, ld);
}
inline void Pack(const GemmView& v, int64_t k0, int64_t depth, int64_t j0, int64_t count, int64_t width, double* dst, int64_t ld) {
  PackAs<double>(v, k0, depth, j0, count, width, dst, ld);
}

// ---- micro-kernel: tile (+)= a panel * b panel, every element one chain of multiply-adds in the order of k

template <class A, size_t kRows, size_t kVectors>
void MicroKernel(const A* HWY_RESTRICT a, const A* HWY_RESTRICT b, int64_t depth, A* HWY_RESTRICT tile, bool add) {
  const hn::ScalableTag<A> d;
  const size_t lanes = hn::Lanes(d), ld = 3 * lanes;
  hn::Vec<decltype(d)> sum[kRows][kVectors];
  HWY_UNROLL(8)
  for (size_t r = 0; r < kRows; ++r) {
    HWY_UNROLL(3)
    for (size_t v = 0; v < kVectors; ++v) sum[r][v] = hn::Zero(d);
  }
  for (int64_t k = 0; k < depth; ++k, a += kRows, b += ld) {
    hn::Vec<decltype(d)> row[kVectors];
    HWY_UNROLL(3)
    for (size_t v = 0; v < kVectors; ++v) row[v] = hn::Load(d, b + v * lanes);
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
      A* at = tile + r * ld + v * lanes;
      hn::Store(add ? hn::Add(hn::Load(d, at), sum[r][v]) : sum[r][v], d, at);
    }
  }
}

// Height of the tile that computes `rows` rows: a power of two, so that few kernels serve all edges.
inline int64_t Height(int64_t rows) { return rows > 4 ? 8 : rows > 2 ? 4 : rows; }

template <class A>
using MicroKernelFn = void (*)(const A*, const A*, int64_t, A*, bool);

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
