// SPDX-License-Identifier: Apache-2.0
// gemm_pack-inl.h -- packing: panels of an operand, in the order in which a micro-kernel reads them and in the dtype of the sums.
// Compiled once per instruction set.
//
//   dst[(k - k0) * ld + (j - j0)] = view(k, j), zeros from `count` to `width`
//
// Pack() takes the dtype, PackAs() cuts columns into panels. How the elements of a panel lie decides what packs it:
//   columns 1 or 2 apart (AVX-512: up to 15), all in one run   PackVectors(): a row of all panels at a time, by whole vectors
//   columns whose elements lie 1 or 2 apart along the depth    PackTransposed(): squares, transposed in registers
//   all else: several runs, a last panel, other strides        PackRows(): a row at a time, run by run
// What lies outside the view's extent is zero; runs that it cuts go element by element (PackRun(), PackColumns()).
#if defined(NARROWS_CPU_GEMM_PACK_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef NARROWS_CPU_GEMM_PACK_INL_H
#undef NARROWS_CPU_GEMM_PACK_INL_H
#else
#define NARROWS_CPU_GEMM_PACK_INL_H
#endif

#include <algorithm>

#include "gemm.h"
#include "ops/convert-inl.h"
#if HWY_TARGET == HWY_AVX3
#include <immintrin.h>
#endif

HWY_BEFORE_NAMESPACE();
namespace narrows::cpu::HWY_NAMESPACE {

// Rows of a tile: with three vectors of columns, all the registers that leave room for operands.
#if HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM_A64
inline constexpr int64_t kTileRows = 8;  // 32 registers
#else
inline constexpr int64_t kTileRows = 4;  // 16 registers
#endif

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

// Elements up to so far apart are taken out of whole vectors, two of f64 at once at least; elsewhere (AVX2, NEON) that is no faster
// than one by one.
inline constexpr int64_t kMaxStep = HWY_TARGET == HWY_AVX3 ? 15 : 2;

// Vectors of a row whose elements are a step apart. kStep: the step where it is 1 or 2, else 0.
template <int kStep, class D, class T>
class StepLoads {
 public:
  explicit StepLoads(int64_t) {}
  // Lanes(d) elements at p[0], p[step], ...; none past the last is read.
  HWY_INLINE hn::Vec<D> Load(D d, const T* p, bool last) const {
#if HWY_TARGET != HWY_SCALAR
    if constexpr (kStep == 2) {
      const auto lanes = static_cast<int64_t>(hn::Lanes(d));
      const auto low = LoadAs(d, p);
      if (!last) return hn::ConcatEven(d, LoadAs(d, p + lanes), low);
      const auto high = LoadAs(d, p + lanes - 1);
      return hn::ConcatUpperLower(d, hn::ConcatOdd(d, high, high), hn::ConcatEven(d, low, low));
    }
#endif
    (void)last;
    return LoadAs(d, p);
  }
};

#if HWY_TARGET == HWY_AVX3
// Any step: of two vectors of memory as many elements as they hold, by a permutation, until there are enough. That costs less than
// a gather, on AMD's processors by far. By intrinsics: Highway's older versions do not permute two vectors.
template <class D, class T>
class StepLoads<0, D, T> {
 public:
  explicit StepLoads(int64_t step) : step_(step) {
    while ((at_once_ - 1) * step >= 2 * kLanes) at_once_ /= 2;
    const int64_t span = (at_once_ - 1) * step + 1;
    low_ = FirstBits(std::min(span, kLanes)), high_ = FirstBits(std::max<int64_t>(span - kLanes, 0));
    alignas(64) Bits index[kLanes];
    for (int64_t i = 0; i < kLanes; ++i) index[i] = static_cast<Bits>((i & (at_once_ - 1)) * step);
    index_ = _mm512_load_si512(index);
  }
  HWY_INLINE hn::Vec<D> Load(D d, const T* p, bool) const {
    __m512i found = Find(p);
    for (int64_t i = at_once_; i < kOutputs; i += at_once_) found = Blend(~0u << i, found, Find(p + i * step_));
    alignas(64) Bits bits[kLanes];  // of which d takes the first
    _mm512_store_si512(bits, found);
    return Widen<T>(d, hn::Load(hn::Rebind<Bits, D>(), bits));
  }

 private:
  using Bits = hwy::UnsignedFromSize<sizeof(T)>;
  static constexpr int64_t kLanes = 64 / sizeof(T), kOutputs = hn::MaxLanes(D());

  static uint32_t FirstBits(int64_t count) { return static_cast<uint32_t>((uint64_t{1} << count) - 1); }
  // The first at_once_ elements from p on, over and over.
  HWY_INLINE __m512i Find(const T* p) const {
    if constexpr (sizeof(T) == 2) {
      const __m512i low = _mm512_maskz_loadu_epi16(low_, p), high = _mm512_maskz_loadu_epi16(high_, p + kLanes);
      return _mm512_permutex2var_epi16(low, index_, high);
    } else if constexpr (sizeof(T) == 4) {
      const auto first = static_cast<__mmask16>(low_), second = static_cast<__mmask16>(high_);
      const __m512i low = _mm512_maskz_loadu_epi32(first, p), high = _mm512_maskz_loadu_epi32(second, p + kLanes);
      return _mm512_permutex2var_epi32(low, index_, high);
    } else {
      const auto first = static_cast<__mmask8>(low_), second = static_cast<__mmask8>(high_);
      const __m512i low = _mm512_maskz_loadu_epi64(first, p), high = _mm512_maskz_loadu_epi64(second, p + kLanes);
      return _mm512_permutex2var_epi64(low, index_, high);
    }
  }
  static HWY_INLINE __m512i Blend(uint32_t mask, __m512i no, __m512i yes) {
    if constexpr (sizeof(T) == 2) {
      return _mm512_mask_mov_epi16(no, mask, yes);
    } else if constexpr (sizeof(T) == 4) {
      return _mm512_mask_mov_epi32(no, static_cast<__mmask16>(mask), yes);
    } else {
      return _mm512_mask_mov_epi64(no, static_cast<__mmask8>(mask), yes);
    }
  }

  int64_t step_, at_once_ = kOutputs;
  uint32_t low_, high_;  // which elements of the two vectors are read: none past the last
  __m512i index_;
};
#endif

// Panels side by side: panel p of `width` columns lies at dst + p * panel_stride, rows ld apart.
template <class A>
struct PanelRow {
  A* dst;
  int64_t panels, width, ld, panel_stride;
};

// Panels of kVectors whole vectors, all of one run. A row of all of them at a time: reads are long, and reach a page once.
template <int kStep, size_t kVectors, class T, class D, class A = hn::TFromD<D>>
void PackVectors(D d, const GemmView& view, int64_t k0, int64_t depth, const Run& run, PanelRow<A> out) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), step = kStep != 0 ? kStep : view.width_step,
                last = (run.count - 1) * step;
  const StepLoads<kStep, D, T> loads(step);
  int64_t outer = k0 / view.depth_inner, inner = k0 % view.depth_inner;
  for (int64_t k = 0; k < depth; ++k, out.dst += out.ld) {
    const T* row = static_cast<const T*>(view.base) + outer * view.depth_outer + run.offset;
    int64_t position = inner * view.depth_step + view.origin + run.position;
    const bool inside = view.extent == kUnbounded || (position >= 0 && position + last < view.extent);
    A* dst = out.dst;
    for (int64_t p = 0; p < out.panels; ++p, dst += out.panel_stride, position += step * out.width) {
      if (!inside) {
        PackRun(view, row, position, out.width, dst);
        continue;
      }
      HWY_UNROLL(3)
      for (size_t v = 0; v < kVectors; ++v) {
        const int64_t at = static_cast<int64_t>(v) * lanes;
        hn::StoreU(loads.Load(d, row + position + step * at, v + 1 == kVectors), d, dst + at);
      }
    }
    if (++inner == view.depth_inner) inner = 0, ++outer;
  }
}

// True where a panel's width is whole vectors, and the panels were packed.
template <int kStep, class T, class A>
bool PackWhole(const GemmView& view, int64_t k0, int64_t depth, const Run& run, const PanelRow<A>& out) {
  const hn::ScalableTag<A> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  if (out.width == 3 * lanes) return PackVectors<kStep, 3, T>(d, view, k0, depth, run, out), true;
  if (out.width == 2 * lanes) return PackVectors<kStep, 2, T>(d, view, k0, depth, run, out), true;
  if (out.width == lanes) return PackVectors<kStep, 1, T>(d, view, k0, depth, run, out), true;
  if constexpr (hn::MaxLanes(d) * sizeof(A) > 16)
    if (out.width * 2 == lanes) return PackVectors<kStep, 1, T>(hn::Half<decltype(d)>(), view, k0, depth, run, out), true;
  return false;
}

// True where columns are best read along their depth.
inline bool IsAlongDepth(const GemmView& view) {
  return (view.depth_step == 1 || view.depth_step == 2) && view.stride == 1 && view.depth_inner >= 8;
}

// The same for panels of any run: those of one run are packed together, none where a panel has two.
template <class T, class A>
bool PackWholePanels(const GemmView& view, int64_t k0, int64_t depth, int64_t j0, const PanelRow<A>& out) {
  const bool far_apart = view.width_step > 2 && view.width_step <= kMaxStep && !IsAlongDepth(view);
  if (view.stride != 1 || (view.width_step != 1 && view.width_step != 2 && !far_apart)) return false;
  const Run run = {0, out.panels * out.width, j0 / view.width_inner * view.width_outer, j0 % view.width_inner * view.width_step};
  if (j0 % view.width_inner + run.count > view.width_inner) return false;
  if constexpr (kMaxStep > 2)
    if (far_apart) return PackWhole<0, T>(view, k0, depth, run, out);
  return view.width_step == 1 ? PackWhole<1, T>(view, k0, depth, run, out) : PackWhole<2, T>(view, k0, depth, run, out);
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
// Vectors are made of blocks of 16 bytes: of kBlock elements.
template <class A>
inline constexpr size_t kBlock = 16 / sizeof(A);

// v[c], c in [0, kBlock): in every block the elements of column c. Afterwards those of depth c.
template <class D>
HWY_INLINE void TransposeInBlocks(D d, hn::Vec<D>* v) {
  if constexpr (sizeof(hn::TFromD<D>) == 8) {
    const auto a = v[0], b = v[1];
    v[0] = hn::InterleaveLower(d, a, b), v[1] = hn::InterleaveUpper(d, a, b);
  } else {
    const hn::Repartition<double, D> pairs;
    const auto ab0 = hn::BitCast(pairs, hn::InterleaveLower(d, v[0], v[1]));
    const auto ab1 = hn::BitCast(pairs, hn::InterleaveUpper(d, v[0], v[1]));
    const auto ce0 = hn::BitCast(pairs, hn::InterleaveLower(d, v[2], v[3]));
    const auto ce1 = hn::BitCast(pairs, hn::InterleaveUpper(d, v[2], v[3]));
    v[0] = hn::BitCast(d, hn::InterleaveLower(pairs, ab0, ce0)), v[1] = hn::BitCast(d, hn::InterleaveUpper(pairs, ab0, ce0));
    v[2] = hn::BitCast(d, hn::InterleaveLower(pairs, ab1, ce1)), v[3] = hn::BitCast(d, hn::InterleaveUpper(pairs, ab1, ce1));
  }
}

// One, two or four vectors kBlock apart, of as many blocks: block j of vector i to block i of vector j.
template <size_t kBlocks, class D>
HWY_INLINE void TransposeBlocks(D d, hn::Vec<D>* v) {
  constexpr size_t kStep = kBlock<hn::TFromD<D>>;
  if constexpr (kBlocks == 2) {
    const auto a = v[0], b = v[kStep];
    v[0] = hn::ConcatLowerLower(d, b, a), v[kStep] = hn::ConcatUpperUpper(d, b, a);
  } else if constexpr (kBlocks == 4) {
    const auto a = v[0], b = v[kStep], c = v[2 * kStep], e = v[3 * kStep];
    const auto ac0 = hn::ConcatLowerLower(d, c, a), ac1 = hn::ConcatUpperUpper(d, c, a);
    const auto be0 = hn::ConcatLowerLower(d, e, b), be1 = hn::ConcatUpperUpper(d, e, b);
    v[0] = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(be0), ac0), v[kStep] = hn::OddEvenBlocks(be0, hn::SwapAdjacentBlocks(ac0));
    v[2 * kStep] = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(be1), ac1);
    v[3 * kStep] = hn::OddEvenBlocks(be1, hn::SwapAdjacentBlocks(ac1));
  }
}

// A square of as many columns as a vector has lanes: column[c][0], column[c][kStep] ... to dst[0 .. lanes)[c].
template <class T, int kStep = 1, class D, class A = hn::TFromD<D>>
HWY_INLINE void TransposeSquare(D d, const T* const* column, int64_t position, A* dst, int64_t ld) {
  constexpr size_t kLanes = hn::MaxLanes(D()), kBlocks = kLanes / kBlock<A>;
  const StepLoads<kStep, D, T> loads(kStep);
  hn::Vec<D> v[kLanes];
  HWY_UNROLL(16)
  for (size_t c = 0; c < kLanes; ++c) v[c] = loads.Load(d, column[c] + position, true);
  HWY_UNROLL(4)
  for (size_t b = 0; b < kBlocks; ++b) TransposeInBlocks(d, v + b * kBlock<A>);
  HWY_UNROLL(4)
  for (size_t i = 0; i < kBlock<A>; ++i) TransposeBlocks<kBlocks>(d, v + i);
  HWY_UNROLL(16)
  for (size_t k = 0; k < kLanes; ++k) hn::StoreU(v[k], d, dst + static_cast<int64_t>(k) * ld);
}
#endif

// Columns j0 .. j0 + N of `length` consecutive ki from `inner` on, whose elements lie kStep apart.
template <int N, int kStep, class T, class A>
void PackColumns(const GemmView& view, int64_t outer, int64_t inner, int64_t length, int64_t j0, A* dst, int64_t ld) {
  const T* column[N];              // its element at `inner`
  int64_t low = 0, high = length;  // where every column is inside
  int64_t position[N];
  for (int c = 0; c < N; ++c) {
    const int64_t jo = (j0 + c) / view.width_inner, ji = (j0 + c) % view.width_inner;
    position[c] = inner * view.depth_step + view.origin + ji * view.width_step;
    column[c] = static_cast<const T*>(view.base) + outer * view.depth_outer + jo * view.width_outer + position[c];
    if (view.extent == kUnbounded) continue;
    low = std::max(low, ceil_div(-position[c], kStep));
    high = std::min(high, ceil_div(view.extent - position[c], kStep));
  }
  const auto element = [&](int64_t i, int c) {
    const int64_t at = position[c] + i * kStep;
    const bool inside = view.extent == kUnbounded || (at >= 0 && at < view.extent);
    dst[i * ld + c] = inside ? read(column[c] + i * kStep) : A{0};
  };
  int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  if constexpr (N > 1) {
    for (; i < std::min(low, length); ++i)
      for (int c = 0; c < N; ++c) element(i, c);
    for (; i + N <= high; i += N) TransposeSquare<T, kStep>(hn::CappedTag<A, N>(), column, i * kStep, dst + i * ld, ld);
    constexpr int kSmall = static_cast<int>(kBlock<A>);
    for (; N > kSmall && i + kSmall <= high; i += kSmall)
      for (int c = 0; c < N; c += kSmall)
        TransposeSquare<T, kStep>(hn::CappedTag<A, kSmall>(), column + c, i * kStep, dst + i * ld + c, ld);
  }
#endif
  for (; i < length; ++i)
    for (int c = 0; c < N; ++c) element(i, c);
}

// Columns in squares of N, what is left in smaller ones.
template <int N, int kStep, class T, class A>
void PackSquares(const GemmView& view, int64_t outer, int64_t inner, int64_t length, int64_t j0, int64_t count, A* dst,
                 int64_t ld) {
  int64_t j = 0;
  for (; j + N <= count; j += N) PackColumns<N, kStep, T>(view, outer, inner, length, j0 + j, dst + j, ld);
  if constexpr (N > 1)
    if (j < count)
      PackSquares<(N > 16 / static_cast<int>(sizeof(A)) ? N / 2 : 1), kStep, T>(view, outer, inner, length, j0 + j, count - j,
                                                                                dst + j, ld);
}

// Column by column.
template <int kStep, class T, class A>
void PackTransposed(const GemmView& view, int64_t k0, int64_t depth, int64_t j0, int64_t count, int64_t width, A* dst, int64_t ld) {
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(hn::ScalableTag<A>()));
  int64_t outer = k0 / view.depth_inner, inner = k0 % view.depth_inner;
  for (int64_t k = 0, length; k < depth; k += length, inner = 0, ++outer) {
    length = std::min(depth - k, view.depth_inner - inner);
    PackSquares<kLanes, kStep, T>(view, outer, inner, length, j0, count, dst + k * ld, ld);
  }
  for (int64_t k = 0; count < width && k < depth; ++k)
    for (int64_t j = count; j < width; ++j) dst[k * ld + j] = A{0};
}

// One panel: columns j0 .. j0 + count, and zeros up to `width`.
template <class T, class A>
void PackPanel(const GemmView& view, int64_t k0, int64_t depth, int64_t j0, int64_t count, int64_t width, A* dst, int64_t ld) {
  const bool rows_contiguous = view.width_step == 1 && view.stride == 1 && view.width_inner >= std::min<int64_t>(count, 8);
  if (IsAlongDepth(view) && !rows_contiguous) {
    const auto pack = view.depth_step == 1 ? PackTransposed<1, T, A> : PackTransposed<2, T, A>;
    pack(view, k0, depth, j0, count, width, dst, ld);
  } else if (count < width || !PackWholePanels<T>(view, k0, depth, j0, PanelRow<A>{dst, 1, width, ld, 0})) {
    PackRows<T>(view, k0, depth, j0, count, width, dst, ld);
  }
}

// Columns j0 .. j0 + count in panels of out.width; the last one may hold fewer, and is filled with zeros.
template <class T, class A = Accumulate<T>>
void PackAs(const GemmView& view, int64_t k0, int64_t depth, int64_t j0, int64_t count, PanelRow<A> out) {
  // Of a every row is multiplied, of b whole vectors are.
  const auto lanes = out.width <= kTileRows ? out.width : static_cast<int64_t>(hn::Lanes(hn::ScalableTag<A>()));
  while (count > 0) {
    // As many whole panels as lie in one run.
    const int64_t left = view.width_inner - j0 % view.width_inner;
    out.panels = std::min(count, left) / out.width;
    if (out.panels < 2 || !PackWholePanels<T>(view, k0, depth, j0, out)) {
      // The last one ends with what is multiplied.
      PackPanel<T>(view, k0, depth, j0, std::min(count, out.width), std::min(out.width, round_up(count, lanes)), out.dst, out.ld);
      out.panels = 1;
    }
    const int64_t done = out.panels * out.width;
    j0 += done, count -= done, out.dst += out.panels * out.panel_stride;
  }
}

inline void Pack(const GemmView& view, int64_t k0, int64_t depth, int64_t j0, int64_t count, const PanelRow<float>& out) {
  if (view.dtype == Dtype::f16) return PackAs<f16>(view, k0, depth, j0, count, out);
  if (view.dtype == Dtype::bf16) return PackAs<bf16>(view, k0, depth, j0, count, out);
  PackAs<float>(view, k0, depth, j0, count, out);
}
inline void Pack(const GemmView& view, int64_t k0, int64_t depth, int64_t j0, int64_t count, const PanelRow<double>& out) {
  PackAs<double>(view, k0, depth, j0, count, out);
}

}  // namespace narrows::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
