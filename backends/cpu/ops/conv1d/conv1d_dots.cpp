// SPDX-License-Identifier: Apache-2.0
// conv1d_dots.cpp -- conv1d of few outputs a filter, such as a streaming step or a matrix times a vector: a dot product for each
// output. A filter's taps are read once, where they lie; what they meet in x is gathered. Vectors go along the depth, or, where a
// filter's outputs fill them, across its outputs. The sum of an output takes the same steps whatever is computed beside it.
#include <hwy/cache_control.h>

#include <array>

#include "conv1d.h"
#include "processor.h"
#include "targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/conv1d/conv1d_dots.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first.
#include "ops/gemm/gemm_pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace narrows::cpu::HWY_NAMESPACE {

// A processor of 32 vectors. Columns of a tile of four filters: their sums, a vector of each column and one of a filter fill them.
inline constexpr bool kManyRegisters = kTileRows == 8;
inline constexpr int kMostColumns = kManyRegisters ? 6 : 3;

#if HWY_TARGET != HWY_SCALAR
// The sum of a vector's blocks of 16 bytes.
template <class D>
HWY_INLINE auto SumOfBlocks(D d, hn::Vec<D> v) {
  if constexpr (hn::MaxLanes(D()) * sizeof(hn::TFromD<D>) > 16) {
    const hn::Half<D> half;
    return SumOfBlocks(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  } else {
    (void)d;
    return v;
  }
}
// Two vectors' elements, added in pairs: of a in the even lanes of a block, of b in the odd ones.
template <class D>
HWY_INLINE hn::Vec<D> AddPairs(D d, hn::Vec<D> a, hn::Vec<D> b) {
  return hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b));
}

// Four vectors' blocks of four elements, added: lane i of a block has the sum of that block of the i-th one.
template <class D>
HWY_INLINE hn::Vec<D> AddFours(D d, hn::Vec<D> a, hn::Vec<D> b, hn::Vec<D> c, hn::Vec<D> e) {
  const hn::Repartition<double, D> pairs;
  const auto ab = hn::BitCast(pairs, AddPairs(d, a, b)), ce = hn::BitCast(pairs, AddPairs(d, c, e));
  return hn::Add(hn::BitCast(d, hn::InterleaveLower(pairs, ab, ce)), hn::BitCast(d, hn::InterleaveUpper(pairs, ab, ce)));
}
#endif

// sums[i] = the sum of v[i]'s lanes, for a block of 16 bytes of sums at a time: a tree for each, of which all share the steps.
template <int N, class D, class A = hn::TFromD<D>>
HWY_INLINE void SumLanes(D d, const hn::Vec<D> (&v)[N], A* HWY_RESTRICT sums) {
#if HWY_TARGET == HWY_SCALAR
  for (int i = 0; i < N; ++i) sums[i] = hn::GetLane(v[i]);
  (void)d;
#else
  constexpr int kSums = 16 / sizeof(A);
  static_assert(N % kSums == 0);
  const hn::CappedTag<A, kSums> block;
  HWY_UNROLL(12)
  for (int i = 0; i < N; i += kSums) {
    if constexpr (kSums == 2) {
      hn::StoreU(SumOfBlocks(d, AddPairs(d, v[i], v[i + 1])), block, sums + i);
    } else {
      hn::StoreU(SumOfBlocks(d, AddFours(d, v[i], v[i + 1], v[i + 2], v[i + 3])), block, sums + i);
    }
  }
#endif
}

// out[r * out_stride + n] = the dot product of filter r and column n, and bias[r]; without a bias, out[r * N + n] = that product.
// Columns end with zeros up to a whole vector; filters do not. Each load of a filter fetches the line `ahead` elements on; of f64
// that takes longer than it saves.
template <int R, int N, class T, class A = Accumulate<T>>
void Dots(const T* HWY_RESTRICT w, int64_t w_stride, int64_t ahead, const A* HWY_RESTRICT x, int64_t x_stride, int64_t depth,
          const A* HWY_RESTRICT bias, A* HWY_RESTRICT out, int64_t out_stride) {
  const hn::ScalableTag<A> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  hn::Vec<decltype(d)> sum[round_up(R * N, 4)];  // as SumLanes() takes them
  HWY_UNROLL(24)
  for (auto& s : sum) s = hn::Zero(d);
  const auto add = [&](int64_t k, auto load) HWY_ATTR {
    hn::Vec<decltype(d)> column[N];
    HWY_UNROLL(6)
    for (int n = 0; n < N; ++n) column[n] = hn::Load(d, x + n * x_stride + k);
    HWY_UNROLL(8)
    for (int r = 0; r < R; ++r) {
      const auto filter = load(w + r * w_stride + k);
      if constexpr (N > 1) HWY_FENCE;  // else GCC reads it again for each column: too many loads
      if constexpr (!std::is_same_v<T, double>) hwy::Prefetch(w + r * w_stride + k + ahead);
      HWY_UNROLL(6)
      for (int n = 0; n < N; ++n) sum[r * N + n] = hn::MulAdd(filter, column[n], sum[r * N + n]);
    }
  };
  int64_t k = 0;
  for (; k + lanes <= depth; k += lanes) add(k, [&](const T* p) HWY_ATTR { return LoadAs(d, p); });
  if (k < depth) add(k, [&](const T* p) HWY_ATTR { return LoadStrided(d, p, 1, depth - k); });
  if (bias == nullptr) return SumLanes(d, sum, out);
  HWY_ALIGN A sums[round_up(R * N, 4)];
  SumLanes(d, sum, sums);
  HWY_UNROLL(8)
  for (int r = 0; r < R; ++r) {
    HWY_UNROLL(6)
    for (int n = 0; n < N; ++n) out[r * out_stride + n] = sums[r * N + n] + bias[r];
  }
}

template <class T>
using DotsFn = void (*)(const T*, int64_t, int64_t, const Accumulate<T>*, int64_t, int64_t, const Accumulate<T>*, Accumulate<T>*,
                        int64_t);

// Columns of a tile of eight filters.
inline constexpr int kMostColumnsOfEight = kManyRegisters ? 3 : 1;

// By filters (1, 2, 4 and, of fewer columns, 8) and columns.
template <int R, class T, int... N>
DotsFn<T> ChooseColumns(int64_t columns, std::integer_sequence<int, N...>) {
  static constexpr DotsFn<T> kKernels[] = {Dots<R, N + 1, T>...};
  return kKernels[columns - 1];
}
template <class T>
DotsFn<T> ChooseDots(int64_t rows, int64_t columns) {
  constexpr auto kAll = std::make_integer_sequence<int, kMostColumns>();
  if (rows == 8) return ChooseColumns<8, T>(columns, std::make_integer_sequence<int, kMostColumnsOfEight>());
  return rows == 4   ? ChooseColumns<4, T>(columns, kAll)
         : rows == 2 ? ChooseColumns<2, T>(columns, kAll)
                     : ChooseColumns<1, T>(columns, kAll);
}

// ---- vectors across a filter's outputs ----

// A vector holds a few outputs: of each the products of a block of 16 bytes of the depth, which are added at the end. One load
// gives a filter's block to all of them, and serves every vector of outputs. With as many outputs as lanes each multiply-add would
// need a load of its own, and fewer outputs would leave lanes empty.
// Outputs of a vector; 0: there are no such kernels.
int64_t AcrossOutputs() {
  const bool compiled = HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2;
  return compiled ? static_cast<int64_t>(hn::Lanes(hn::ScalableTag<float>())) / 4 : 0;
}

#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
inline constexpr int64_t kAcrossRows = 8, kAcrossVectors = 4;  // of a tile, at most

// The first `count` outputs' sums, of V vectors, and a bias.
template <int V, class D, class A = hn::TFromD<D>>
HWY_INLINE void StoreAcross(D d, const hn::Vec<D>* sum, A bias, int64_t count, A* HWY_RESTRICT out) {
  constexpr int64_t kLanes = hn::MaxLanes(D()), kDepths = kBlock<A>, kBlocks = kLanes / kDepths;
  // Lane i of block b is that of output i * kBlocks + b.
  HWY_ALIGN static constexpr auto kOrder = [] {
    std::array<hwy::SignedFromSize<sizeof(A)>, kLanes> order{};
    for (int64_t i = 0; i < kLanes; ++i) order[i] = i % kBlocks * kDepths + i / kBlocks;
    return order;
  }();
  const auto order = hn::SetTableIndices(d, kOrder.data());
  const auto zero = hn::Zero(d), added = hn::Set(d, bias);
  const auto vector = [&](int v) HWY_ATTR { return v < V ? sum[v < V ? v : 0] : zero; };
  const auto store = [&](int64_t first, hn::Vec<D> sums) HWY_ATTR {
    const auto mask = hn::FirstN(d, static_cast<size_t>(count - first));
    hn::BlendedStore(hn::Add(hn::TableLookupLanes(sums, order), added), mask, d, out + first);
  };
  if constexpr (kDepths == 2) {
    store(0, AddPairs(d, vector(0), vector(1)));
    if constexpr (V > 2) store(kLanes, AddPairs(d, vector(2), vector(3)));
  } else {
    store(0, AddFours(d, vector(0), vector(1), vector(2), vector(3)));
  }
}

// out[r * out_stride + i] = the sum of filter r and output i < columns, and bias[r]. x has V vectors for each block of a filter.
template <int R, int V, class A>
void Across(const A* HWY_RESTRICT w, int64_t w_stride, const A* HWY_RESTRICT x, int64_t depth, const A* bias, int64_t columns,
            A* HWY_RESTRICT out, int64_t out_stride) {
  const hn::ScalableTag<A> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  constexpr auto kDepths = static_cast<int64_t>(kBlock<A>);
  hn::Vec<decltype(d)> sum[R * V];
  HWY_UNROLL(16)
  for (auto& s : sum) s = hn::Zero(d);
  const auto add = [&](auto block_of) HWY_ATTR {
    // The fewer operands stay in registers.
    if constexpr (V <= R) {
      hn::Vec<decltype(d)> row[V];
      HWY_UNROLL(4)
      for (int v = 0; v < V; ++v) row[v] = hn::Load(d, x + v * lanes);
      HWY_UNROLL(8)
      for (int r = 0; r < R; ++r) {
        const auto filter = hn::LoadDup128(d, block_of(r));
        HWY_UNROLL(4)
        for (int v = 0; v < V; ++v) sum[r * V + v] = hn::MulAdd(filter, row[v], sum[r * V + v]);
      }
    } else {
      hn::Vec<decltype(d)> filter[R];
      HWY_UNROLL(3)
      for (int r = 0; r < R; ++r) filter[r] = hn::LoadDup128(d, block_of(r));
      HWY_UNROLL(4)
      for (int v = 0; v < V; ++v) {
        const auto row = hn::Load(d, x + v * lanes);
        HWY_FENCE;  // as in Dots()
        HWY_UNROLL(3)
        for (int r = 0; r < R; ++r) sum[r * V + v] = hn::MulAdd(filter[r], row, sum[r * V + v]);
      }
    }
  };
  int64_t k = 0;
  for (; k + kDepths <= depth; k += kDepths, x += V * lanes) {
    const A *upper = w + k, *lower = R > 4 ? upper + 4 * w_stride : upper;
    asm("" : "+r"(upper), "+r"(lower));  // compilers make a pointer of each row, and have no registers for them
    add([&](int r) HWY_ATTR { return r < 4 ? upper + r * w_stride : lower + (r - 4) * w_stride; });
  }
  if (k < depth) {
    HWY_ALIGN A last[R * kDepths] = {};
    for (int64_t r = 0; r < R; ++r) std::copy(w + r * w_stride + k, w + r * w_stride + depth, last + r * kDepths);
    add([&](int r) HWY_ATTR { return last + r * kDepths; });
  }
  HWY_UNROLL(8)
  for (int r = 0; r < R; ++r) StoreAcross<V>(d, sum + r * V, bias[r], columns, out + r * out_stride);
}

template <class A>
using AcrossFn = void (*)(const A*, int64_t, const A*, int64_t, const A*, int64_t, A*, int64_t);
template <int R, class A>
AcrossFn<A> ChooseAcross(int64_t vectors) {
  return vectors == 1 ? Across<R, 1, A> : vectors == 2 ? Across<R, 2, A> : vectors == 3 ? Across<R, 3, A> : Across<R, 4, A>;
}
// Filters of a tile: sums fill the registers.
constexpr int64_t RowsAcross(int64_t vectors) {
  if constexpr (kManyRegisters) return vectors < 4 ? 8 : 4;
  return vectors < 4 ? 4 : 3;
}
template <class A>
AcrossFn<A> ChooseAcross(int64_t rows, int64_t vectors) {
  if constexpr (kManyRegisters)
    if (rows == 8) return vectors == 1 ? Across<8, 1, A> : vectors == 2 ? Across<8, 2, A> : Across<8, 3, A>;
  if (rows == 3) return ChooseAcross<3, A>(vectors);
  return rows == 4 ? ChooseAcross<4, A>(vectors) : rows == 2 ? ChooseAcross<2, A>(vectors) : ChooseAcross<1, A>(vectors);
}
#endif

// Some filters of a group by some of its columns.
template <class T, class A = Accumulate<T>>
class DotsTask {
 public:
  DotsTask(const DotsLayout& layout, const Correlation& c, const CorrelationData& data, int64_t group, void* scratch)
      : c_(c), depth_(c.ins * c.taps), stride_(layout.column_stride), across_(layout.across), columns_(static_cast<A*>(scratch)),
        offsets_(reinterpret_cast<int64_t*>(static_cast<char*>(scratch) + layout.columns_bytes)),
        in_(static_cast<const T*>(data.in) + group * c.in_group),
        w_(static_cast<const T*>(data.w) + c.w_offset + group * c.w_group),
        out_(static_cast<T*>(data.out) + c.out_offset + group * c.out_group) {
    if (data.bias != nullptr) bias_ = static_cast<const T*>(data.bias) + group * c.outs * c.bias_stride;
  }

  // Filters begin up to end, by that many columns from first on.
  void Run(int64_t begin, int64_t end, int64_t first, int64_t columns) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
    if constexpr (std::is_same_v<T, A>)
      if (across_) return RunAcross(begin, end, columns);
#endif
    const bool of_one = first % c_.length + columns <= c_.length;  // example
    placed_ = of_one && c_.out_position == 1;
    const bool gathered = of_one && GatherSquares(first / c_.length, first % c_.length, columns);
    for (int64_t i = 0; i < columns; ++i) {
      const int64_t n = (first + i) / c_.length, q = (first + i) % c_.length;
      if (!gathered) Gather(n, q, columns_ + i * stride_);
      offsets_[i] = n * c_.out_batch + q * c_.out_position;
    }
    const int64_t most = columns <= kMostColumnsOfEight ? 8 : 4;
    for (int64_t m = begin, rows; m < end; m += rows) {
      for (rows = most; rows > end - m;) rows /= 2;
      // Blocks of columns as even as can be: one alone would have too few sums.
      const int64_t blocks = ceil_div(columns, kMostColumns);
      for (int64_t i = 0; i < blocks; ++i) Compute(m, rows, columns * i / blocks, columns * (i + 1) / blocks);
    }
  }

 private:
  // What filters of one tap meet for outputs of one example that lie side by side and are inside. False: it is not so.
  bool GatherSquares([[maybe_unused]] int64_t n, [[maybe_unused]] int64_t q, [[maybe_unused]] int64_t columns) const {
#if HWY_TARGET != HWY_SCALAR
    constexpr auto kSide = static_cast<int64_t>(kBlock<A>);
    const int64_t first = q + c_.origin;
    if (c_.taps != 1 || c_.step * c_.in_position != 1 || first < 0 || first + columns > c_.extent) return false;
    if (columns < kSide || c_.ins < kSide) return false;
    const hn::CappedTag<A, kSide> d;
    const T* base = in_ + n * c_.in_batch + first;
    for (int64_t step = 0; step < c_.ins; step += kSide) {
      const int64_t c = std::min(step, c_.ins - kSide);  // the last squares cover some again
      const T* channel[kSide];
      for (int64_t i = 0; i < kSide; ++i) channel[i] = base + (c + i) * c_.in_channel;
      for (int64_t i = 0; i < columns; i += kSide) {
        const int64_t from = std::min(i, columns - kSide);
        TransposeSquare<T>(d, channel, from, columns_ + from * stride_ + c, stride_);
      }
    }
    for (int64_t i = 0; i < columns; ++i) std::fill(columns_ + i * stride_ + c_.ins, columns_ + (i + 1) * stride_, A{0});
    return true;
#else
    return false;
#endif
  }
  // What the taps of output (n, q) meet, in the order of a filter's taps.
  void Gather(int64_t n, int64_t q, A* dst) const {
    const int64_t first = q * c_.step + c_.origin;
    const int64_t low = first >= 0 ? 0 : std::min(c_.taps, (-first - 1) / c_.tap_step + 1);
    const int64_t high = first >= c_.extent ? low : std::max(low, std::min(c_.taps, (c_.extent - 1 - first) / c_.tap_step + 1));
    const T* channel = in_ + n * c_.in_batch;
    A* const end = dst + stride_;
    if (low < high) channel += (first + low * c_.tap_step) * c_.in_position;
    if (c_.taps == 1 && low < high) {
      LoadRow(channel, c_.ins > 1 ? c_.in_channel : 0, c_.ins, dst);
      dst += c_.ins;
    } else {
      const int64_t step = high - low > 1 ? c_.tap_step * c_.in_position : 0;
      for (int64_t c = 0; c < c_.ins; ++c, dst += c_.taps) {
        std::fill(dst, dst + low, A{0});
        for (int64_t j = low; j < high; ++j) dst[j] = read(channel + c * c_.in_channel + (j - low) * step);
        std::fill(dst + high, dst + c_.taps, A{0});
      }
    }
    std::fill(dst, end, A{0});
  }

  void Compute(int64_t m, int64_t rows, int64_t begin, int64_t end) const {
    const int64_t columns = end - begin, w_stride = rows > 1 ? c_.w_out : 0;
    T* const out = out_ + m * c_.out_channel;
    const auto run = [&](const A* bias, A* to, int64_t stride) {
      const auto dots = ChooseDots<T>(rows, columns);
      dots(w_ + m * c_.w_out, w_stride, NextTile(rows), columns_ + begin * stride_, stride_, depth_, bias, to, stride);
    };
    if constexpr (std::is_same_v<T, A>) {
      if (placed_) {
        A bias[8];
        for (int64_t r = 0; r < rows; ++r) bias[r] = Bias(m + r);
        return run(bias, out + offsets_[begin], rows > 1 ? c_.out_channel : 0);
      }
    }
    HWY_ALIGN A sums[24];
    run(nullptr, sums, columns);
    for (int64_t r = 0; r < rows; ++r) {
      const A bias = Bias(m + r);
      T* row = out + r * c_.out_channel;
      for (int64_t i = 0; i < columns; ++i) write(row + offsets_[begin + i], sums[r * columns + i] + bias);
    }
  }

#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
  // ---- vectors across outputs: all columns, of one example ----

  static constexpr auto kDepths = static_cast<int64_t>(kBlock<A>);
  static constexpr int64_t kOutputs = hn::MaxLanes(hn::ScalableTag<A>()) / kDepths, kMostOutputs = kAcrossVectors * kOutputs;

  void RunAcross(int64_t begin, int64_t end, int64_t columns) {
    // In groups as even as can be. What packing one stores past its end, the next one stores over.
    const int64_t vectors = ceil_div(columns, kOutputs), in_group = ceil_div(vectors, ceil_div(vectors, kAcrossVectors));
    const int64_t width = in_group * kOutputs, most = RowsAcross(in_group);
    const auto for_groups = [&](auto use) {
      for (int64_t first = 0; first < columns; first += width)
        use(first, std::min(columns - first, width), columns_ + first * round_up(depth_, kDepths));
    };
    for_groups([&](int64_t first, int64_t count, A* x) { PackRows(first, count, x); });
    for (int64_t m = begin, rows; m < end; m += rows) {
      for (rows = most; rows > end - m;) rows /= 2;
      for_groups([&](int64_t first, int64_t count, A* x) { ComputeAcross(m, rows, first, count, x); });
    }
  }
  void ComputeAcross(int64_t m, int64_t rows, int64_t first, int64_t columns, const A* x) const {
    HWY_ALIGN A sums[kAcrossRows * kMostOutputs], bias[kAcrossRows];
    for (int64_t r = 0; r < rows; ++r) bias[r] = Bias(m + r);
    const int64_t vectors = ceil_div(columns, kOutputs), w_stride = rows > 1 ? c_.w_out : 0;
    const auto across = ChooseAcross<A>(rows, vectors);
    T* const out = out_ + m * c_.out_channel + first * c_.out_position;
    const auto run = [&](A* to, int64_t stride) { across(w_ + m * c_.w_out, w_stride, x, depth_, bias, columns, to, stride); };
    if (c_.out_position == 1) return run(out, rows > 1 ? c_.out_channel : 0);
    run(sums, kMostOutputs);
    for (int64_t r = 0; r < rows; ++r) StoreRow(sums + r * kMostOutputs, columns, out + r * c_.out_channel, c_.out_position);
  }

  // For each block of a filter's taps: of each output what they meet, zeros past the last tap.
  void PackRows(int64_t first, int64_t columns, A* dst) const {
    HWY_ALIGN A gathered[kDepths][kMostOutputs];
    const A* row[kDepths];
    const int64_t origin = c_.origin + first * c_.step, last = origin + (c_.taps - 1) * c_.tap_step;
    const bool placed = c_.step * c_.in_position == 1 && origin >= 0 && last + columns <= c_.extent;
    const A* channel = in_ + (placed ? origin : 0);
    const int64_t size = ceil_div(columns, kOutputs) * kOutputs * kDepths;
    for (int64_t k = 0, c = 0, j = 0; k < depth_; k += kDepths, dst += size) {
      for (int64_t i = 0; i < kDepths; ++i) {
        if (placed && k + i < depth_) {
          row[i] = channel + j * c_.tap_step;
        } else {
          GatherRow(c, j * c_.tap_step + origin, columns, gathered[i]);
          row[i] = gathered[i];
        }
        if (++j == c_.taps) {
          j = 0;
          if (++c < c_.ins) channel += c_.in_channel;
        }
      }
      PackBlock(row, columns, dst);
    }
  }
  // What a tap meets for each output; zeros past the last channel.
  void GatherRow(int64_t c, int64_t at, int64_t columns, A* row) const {
    for (int64_t i = 0; i < columns; ++i, at += c_.step)
      row[i] = c < c_.ins && at >= 0 && at < c_.extent ? read(in_ + c * c_.in_channel + at * c_.in_position) : A{0};
  }
  // What it stores past the last output is stored over by the next block, or lies past the last one.
  static HWY_INLINE void PackBlock(const A* const* row, int64_t columns, A* HWY_RESTRICT dst) {
    const hn::ScalableTag<A> d;
    const auto first = hn::FirstN(d, static_cast<size_t>(columns));
    if constexpr (kDepths == 2) {
      const auto lanes = static_cast<int64_t>(hn::Lanes(d));
      hn::StoreInterleaved2(hn::MaskedLoad(first, d, row[0]), hn::MaskedLoad(first, d, row[1]), d, dst);
      if (columns <= lanes) return;
      const auto rest = hn::FirstN(d, static_cast<size_t>(columns - lanes));
      hn::StoreInterleaved2(hn::MaskedLoad(rest, d, row[0] + lanes), hn::MaskedLoad(rest, d, row[1] + lanes), d, dst + 2 * lanes);
    } else {
      const auto load = [&](int i) HWY_ATTR { return hn::MaskedLoad(first, d, row[i]); };
      hn::StoreInterleaved4(load(0), load(1), load(2), load(3), d, dst);
    }
  }
#endif

  // -0 leaves every sum as it is.
  A Bias(int64_t m) const { return bias_ != nullptr ? read(bias_ + m * c_.bias_stride) : A{-0.0}; }

  // Elements from a tile of filters to the next. 0 where they are so long that the processor itself fetches ahead.
  int64_t NextTile(int64_t rows) const {
    constexpr int64_t kLongTile = 16 << 10;  // bytes
    return rows * std::abs(c_.w_out) * static_cast<int64_t>(sizeof(T)) > kLongTile ? 0 : rows * c_.w_out;
  }

  const Correlation& c_;
  const int64_t depth_, stride_;
  const bool across_;
  bool placed_ = false;  // a filter's outputs lie side by side
  A* columns_;           // gathered
  int64_t* offsets_;     // of each column's outputs
  const T *in_, *w_, *bias_ = nullptr;
  T* out_;
};

void ComputeDots(const DotsLayout& layout, const Correlation& c, const CorrelationData& data, int64_t task, void* scratch) {
  const int64_t columns = task % layout.column_blocks, rows = task / layout.column_blocks % layout.row_blocks;
  const int64_t group = task / layout.column_blocks / layout.row_blocks, begin = rows * layout.block_rows;
  const int64_t end = std::min(begin + layout.block_rows, c.outs), first = columns * layout.block_columns;
  const int64_t count = std::min(layout.block_columns, c.batch * c.length - first);
  if (layout.dtype == Dtype::f64) return DotsTask<double>(layout, c, data, group, scratch).Run(begin, end, first, count);
  if (layout.dtype == Dtype::f16) return DotsTask<f16>(layout, c, data, group, scratch).Run(begin, end, first, count);
  if (layout.dtype == Dtype::bf16) return DotsTask<bf16>(layout, c, data, group, scratch).Run(begin, end, first, count);
  DotsTask<float>(layout, c, data, group, scratch).Run(begin, end, first, count);
}

}  // namespace narrows::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace narrows::cpu {
namespace {

HWY_EXPORT(ComputeDots);
HWY_EXPORT(AcrossOutputs);

constexpr int64_t kFewestRows = 32;              // of a block: each gathers its columns
constexpr int64_t kMostBytes = 256 << 10;        // of a block's columns: they stay in a core's cache
constexpr int64_t kMostAcrossBytes = 512 << 10;  // of a block's rows of outputs, which are read in order
constexpr int64_t kMostAcrossOutputs = 16;
constexpr int64_t kAcrossWidth = 4;     // outputs of the widest vector
constexpr int64_t kAcrossPadding = 64;  // elements past those rows that are stored to
constexpr int64_t kFewestColumns = 24;  // of a block, since it reads its filters again
constexpr int64_t kWidestVector = 16;   // lanes

// Whether vectors go across a filter's outputs; else along the depth is faster, or what a filter meets does not stay in the cache.
bool goes_across(const Instance& instance, Dtype dtype, const Correlation& c) {
  static const bool measured = is_intel();
  const int64_t outputs = NARROWS_DISPATCH(instance, AcrossOutputs)(), columns = c.length, depth = c.ins * c.taps;
  if (!measured || outputs == 0 || size_of(dtype) < 4 || c.batch != 1 || columns > kMostAcrossOutputs) return false;
  const int64_t width = round_up(columns, outputs);
  if (depth > kMostAcrossBytes / (width * size_of(dtype))) return false;
  // By what was measured: a long sum makes up for lanes that are left empty, and for one vector, that needs a load for each
  // product.
  const int64_t parts = depth >= 2048 ? 5 : depth >= 1024 ? 6 : 7, few = depth >= 2048 ? 2 : outputs;
  return columns > 12 || (columns > few && parts * width <= 8 * columns);
}

}  // namespace

DotsLayout dots_layout(const Instance& instance, Dtype dtype, const Correlation& c) {
  DotsLayout l{};
  l.dtype = dtype;
  const int64_t columns = c.batch * c.length, depth = c.ins * c.taps;
  l.across = goes_across(instance, dtype, c);
  l.column_stride = l.across ? round_up(columns, kAcrossWidth) : round_up(depth, kWidestVector);
  const double cost = static_cast<double>(c.groups * c.outs) * static_cast<double>(columns) * static_cast<double>(depth);
  const int64_t wanted = cost < kWorthWaking ? 1 : ceil_div(2 * instance.num_threads(), c.groups);
  l.block_rows = round_up(ceil_div(c.outs, std::clamp<int64_t>(c.outs / kFewestRows, 1, wanted)), 4);
  l.row_blocks = ceil_div(c.outs, l.block_rows);
  const int64_t column_bytes = round_up(depth, kWidestVector) * size_of(accumulate_dtype(dtype));
  const int64_t most = std::min(kMostBytes / column_bytes, ceil_div(columns * l.row_blocks, wanted));
  l.block_columns = l.across ? columns : std::min(columns, std::max(most, kFewestColumns));
  l.column_blocks = ceil_div(columns, l.block_columns);
  l.tasks = c.groups * l.row_blocks * l.column_blocks;
  l.task_cost = static_cast<double>(l.block_rows) * static_cast<double>(l.block_columns) * static_cast<double>(depth);
  l.columns_bytes = aligned_bytes(static_cast<uint64_t>(
      l.across ? (round_up(depth, 4) * l.column_stride + kAcrossPadding) * size_of(dtype) : l.block_columns * column_bytes));
  l.slot_bytes = l.columns_bytes + aligned_bytes(static_cast<uint64_t>(l.block_columns) * sizeof(int64_t));
  l.workspace_size = l.slot_bytes * static_cast<uint64_t>(num_slots(instance, l.tasks, l.task_cost));
  return l;
}

void correlate_dots(const Instance& instance, const DotsLayout& l, void* workspace, const CorrelationData& data,
                    const Correlation& c) {
  run_tasks(instance, l.tasks, l.task_cost, [&](int64_t slot, int64_t begin, int64_t end) {
    char* scratch = static_cast<char*>(workspace) + static_cast<uint64_t>(slot) * l.slot_bytes;
    for (int64_t task = begin; task < end; ++task) NARROWS_DISPATCH(instance, ComputeDots)(l, c, data, task, scratch);
  });
}

}  // namespace narrows::cpu
#endif  // HWY_ONCE
