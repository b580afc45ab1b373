// SPDX-License-Identifier: Apache-2.0
// gemm_task-inl.h -- what one task of a product does: its block of rows by its group of column panels, packed, multiplied and
// stored. Compiled once per instruction set.
#if defined(NARROWS_CPU_GEMM_TASK_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef NARROWS_CPU_GEMM_TASK_INL_H
#undef NARROWS_CPU_GEMM_TASK_INL_H
#else
#define NARROWS_CPU_GEMM_TASK_INL_H
#endif

#include <hwy/cache_control.h>

#include "gemm_kernel-inl.h"
#include "gemm_pairs-inl.h"

HWY_BEFORE_NAMESPACE();
namespace narrows::cpu::HWY_NAMESPACE {

// A bias for each of some columns, from the first one on; or one for all of them, at a step of 0.
template <class T>
struct Biases {
  const T* first;
  int64_t step;
};

// dst[i * stride] = row[i] + bias of i. Streamed: past the caches, where dst is aligned to whole vectors and no sum is narrowed.
template <class T, class A = Accumulate<T>>
HWY_INLINE void StoreSums(const A* row, Biases<T> bias, int64_t count, T* dst, int64_t stride, bool streamed) {
  const hn::ScalableTag<A> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto of_all = hn::Set(d, read(bias.first));
  const auto sum = [&](int64_t i) HWY_ATTR {
    const auto added = bias.step == 0 ? of_all : LoadStrided(d, bias.first + i * bias.step, bias.step, lanes);
    return hn::Add(hn::LoadU(d, row + i), added);
  };
  int64_t i = 0;
  if (stride == 1) {
    if constexpr (std::is_same_v<T, A>)
      if (streamed && reinterpret_cast<uintptr_t>(dst) % (static_cast<uint64_t>(lanes) * sizeof(T)) == 0)
        for (; i + lanes <= count; i += lanes) hn::Stream(sum(i), d, dst + i);
    for (; i + lanes <= count; i += lanes) StoreAs(d, sum(i), dst + i);
  }
  for (; i < count; ++i) write(dst + i * stride, row[i] + read(bias.first + i * bias.step));
}

// The sums of a task, tile by tile: those of the same rows side by side. Rows of a tile are ld apart.
template <class A>
struct TaskSums {
  A* base;
  int64_t height, ld, panel_size, tile_row_size;

  A* tile(int64_t panel, int64_t tile_row) const { return base + tile_row * tile_row_size + panel * panel_size; }
};

// Rows from `row` on of the columns [begin, end), row by row, so that whole lines of the output are written. Divisions cost as much
// as a short row, so nothing is divided in it.
template <class T, class A>
void StoreRows(const GemmProblem& problem, const TaskSums<A>& from, int64_t row, int64_t rows, int64_t begin, int64_t end) {
  const GemmOutput& out = problem.output;
  const int64_t first_outer = begin / out.column_inner, first_inner = begin % out.column_inner;
  const A* row_sums = from.base;
  T none;
  write(&none, A{-0.0});  // -0, not 0, is what leaves every sum as it is
  for (int64_t r = 0, in_tile = 0; r < rows; ++r) {
    const auto* bias = out.bias == nullptr ? &none : static_cast<const T*>(out.bias);
    const int64_t step = out.bias != nullptr && out.bias_by_column ? out.bias_stride : 0;
    if (out.bias != nullptr && !out.bias_by_column) bias += (row + r) * out.bias_stride;
    T* base = static_cast<T*>(out.base) + (row + r) * out.row_stride;
    const A* sums = row_sums;  // of the panel at hand
    int64_t outer = first_outer, inner = first_inner, lane = 0;
    for (int64_t j = begin, count; j < end; j += count) {
      count = std::min({end - j, out.column_inner - inner, from.ld - lane});
      T* to = base + outer * out.column_outer_stride + inner * out.column_stride;
      StoreSums(sums + lane, Biases<T>{bias + j * step, step}, count, to, out.column_stride, out.streamed);
      if ((inner += count) == out.column_inner) inner = 0, ++outer;
      if ((lane += count) == from.ld) lane = 0, sums += from.panel_size;
    }
    row_sums += from.ld;
    if (++in_tile == from.height) in_tile = 0, row_sums += from.tile_row_size - from.panel_size;
  }
}

// Operands packed in the dtype of the sums.
template <class A>
class WidePacking {
 public:
  using Packed = A;
  static constexpr bool kSumsInOutput = true;  // a tile may lie anywhere
  static constexpr bool kTakesTwoTiles = kTileRows == 4;
  explicit WidePacking(const GemmLayout& layout) : ld_(layout.tile.columns) {}

  // What a packed row or column holds of a range of depths.
  static int64_t Units(int64_t depth) { return depth; }

  void PackRows(const GemmView& view, int64_t k, int64_t depth, int64_t row, int64_t rows, A* dst) {
    const int64_t whole = rows / kTileRows * kTileRows, height = Height(rows - whole);
    whole_tiles_ = whole > 0, packs_ = whole > 2 * kTileRows || whole < rows;
    Pack(view, k, depth, row, whole, {dst, 0, kTileRows, kTileRows, kTileRows * depth});
    if (whole < rows) Pack(view, k, depth, row + whole, rows - whole, {dst + whole * depth, 0, height, height, 0});
  }
  // Panels of ld columns: of as many from `column` on, or of ld / `ranges` from each range, the next one being `range` columns on.
  // Those whose rows lie side by side are packed by the first tile that is multiplied by them.
  void PackPanels(const GemmView& view, int64_t k, int64_t depth, int64_t column, int64_t count, int64_t ranges, int64_t range,
                  A* dst) {
    if (ranges == 1) return PackOrPlace(view, k, depth, column, count, dst);
    const int64_t width = ld_ / ranges;
    for (int64_t r = 0; r < ranges; ++r)
      Pack(view, k, depth, r * range + column, count, {dst + r * width, 0, width, ld_, depth * ld_});
    std::fill(placed_, placed_ + kGroupPanels, false);
  }
  // The row_tile-th tile of so many rows by so many vectors of a panel.
  void Multiply(int64_t, int64_t rows, const A* a, int64_t panel, int64_t vectors, A* b, int64_t depth, A* tile, int64_t ld,
                bool add) {
    if (!placed_[panel]) return ChooseMicroKernel<A>(Height(rows), vectors)(a, b, depth, tile, ld, add);
    placed_[panel] = !packs_;
    MultiplyPlaced(a, view_, k_, column_ + panel * ld_, depth, packs_ ? b : nullptr, tile, ld, add);
  }
  // Whether two whole tiles, one below the other, are multiplied together. A panel of one vector is none that is placed.
  static bool takes_two_tiles(int64_t vectors) { return vectors == 1; }
  void MultiplyTwo(const A* a, int64_t, int64_t, const A* b, int64_t depth, A* upper, A* lower, int64_t ld, bool add) const {
    MicroKernelOfTwo(a, b, depth, upper, lower, ld, add);
  }

 private:
  void PackOrPlace(const GemmView& view, int64_t k, int64_t depth, int64_t column, int64_t count, A* dst) {
    view_ = view, k_ = k, column_ = column;
    for (int64_t i = 0, n; i * ld_ < count; i += n) {  // panels of a kind
      const auto placed = [&](int64_t p) {
        return depth > 0 && whole_tiles_ && (p + 1) * ld_ <= count && IsPlaced(view, k, depth, column + p * ld_, ld_);
      };
      for (n = 1; (i + n) * ld_ < count && placed(i + n) == placed(i);) ++n;
      std::fill(placed_ + i, placed_ + i + n, placed(i));
      if (!placed(i))
        Pack(view, k, depth, column + i * ld_, std::min(n * ld_, count - i * ld_),
             {dst + i * depth * ld_, 0, ld_, ld_, depth * ld_});
    }
  }

  int64_t ld_;
  bool whole_tiles_ = false;  // the first one is
  bool packs_ = true;         // what is placed; not for two tiles, which read it where it lies
  bool placed_[kGroupPanels];
  GemmView view_;
  int64_t k_, column_;
};

// Vectors this long are as many sums as a micro-kernel needs at once, one for each column.
template <class A>
inline constexpr bool kMultipliesInPlace = hn::MaxLanes(hn::ScalableTag<A>()) >= 8;

#if HWY_TARGET != HWY_SCALAR
// Rows of a packed in the dtype of the sums, b left where it lies.
template <class A>
class PlacePacking {
 public:
  using Packed = A;
  static constexpr bool kSumsInOutput = false, kTakesTwoTiles = true;
  explicit PlacePacking(const GemmLayout& layout) : tile_(layout.tile) {}

  static int64_t Units(int64_t depth) { return depth; }

  void PackRows(const GemmView& view, int64_t k, int64_t depth, int64_t row, int64_t rows, A* dst) {
    Pack(view, k, depth, row, rows, {dst, 0, tile_.lanes, tile_.lanes, tile_.lanes * depth});
  }
  void PackPanels(const GemmView& view, int64_t k, int64_t, int64_t column, int64_t count, int64_t ranges, int64_t range, A*) {
    stride_ = view.width_step, count_ = count;
    panel_step_ = tile_.columns / ranges, within_step_ = ranges == 1 ? tile_.lanes : 0, range_ = ranges == 1 ? tile_.lanes : range;
    first_ = static_cast<const A*>(view.base) + k + column * stride_;
  }
  void Multiply(int64_t, int64_t, const A* a, int64_t panel, int64_t vectors, const A*, int64_t depth, A* tile, int64_t ld,
                bool add) const {
    for (int64_t v = 0; v < vectors; ++v)
      MultiplyInPlace(a, Vector(panel, v), stride_, Columns(panel, v), depth, tile + v * tile_.lanes, ld, add);
  }
  static bool takes_two_tiles(int64_t) { return true; }
  void MultiplyTwo(const A* a, int64_t panel, int64_t vectors, const A*, int64_t depth, A* upper, A* lower, int64_t ld,
                   bool add) const {
    for (int64_t v = 0; v < vectors; ++v)
      MultiplyTwoInPlace(a, Vector(panel, v), stride_, Columns(panel, v), depth, upper + v * tile_.lanes, lower + v * tile_.lanes,
                         ld, add);
  }

 private:
  // Of a panel the first column of a vector, and how many it has.
  const A* Vector(int64_t panel, int64_t v) const { return first_ + (panel * panel_step_ + v * range_) * stride_; }
  int64_t Columns(int64_t panel, int64_t v) const { return std::min(count_ - panel * panel_step_ - v * within_step_, tile_.lanes); }

  GemmTile tile_;
  const A* first_;
  // Columns: how far apart, how many; to the next panel; to a panel's next vector, within the range and in all.
  int64_t stride_, count_, panel_step_, within_step_, range_;
};
#endif

#if HWY_TARGET == HWY_AVX3
// bf16 as pairs, with what says which tiles may be multiplied so.
class PairPacking {
 public:
  using Packed = Pair;
  static constexpr bool kSumsInOutput = false, kTakesTwoTiles = false;
  explicit PairPacking(const GemmLayout& layout) : products_(layout.pairs), registers_(layout.pairs) {}

  static int64_t Units(int64_t depth) { return PairsOf(depth); }

  void PackRows(const GemmView& view, int64_t k, int64_t depth, int64_t row, int64_t rows, Pair* dst) {
    const int64_t size = kSquare * Units(depth);
    for (int64_t i = 0; i * kSquare < rows; ++i, dst += size) {
      PackPairsOfA(view, k, depth, row + i * kSquare, std::min(rows - i * kSquare, kSquare), dst);
      row_exponent_[i] = SmallestExponent(dst, size);
    }
  }
  void PackPanels(const GemmView& view, int64_t k, int64_t depth, int64_t column, int64_t count, int64_t ranges, int64_t range,
                  Pair* dst) {
    const int64_t size = kPanel * Units(depth), width = kPanel / ranges;
    for (int64_t i = 0; i * width < count; ++i, dst += size) {
      const int64_t first = column + i * width, columns = std::min(count - i * width, width);
      for (int64_t r = 0; r < ranges; ++r) PackPairsOfB(view, k, depth, r * range + first, columns, width, dst + r * width);
      panel_exponent_[i] = SmallestExponent(dst, size);
    }
  }
  // A tile whose sums may hold subnormal numbers is never again given to what takes them for 0.
  void Multiply(int64_t row_tile, int64_t rows, const Pair* a, int64_t panel, int64_t vectors, const Pair* b, int64_t depth,
                float* tile, int64_t, bool add) {
    bool& widened = widened_[row_tile][panel];
    widened = Flushes(row_exponent_[row_tile], panel_exponent_[panel]) || (add && widened);
    const int64_t pairs = ceil_div(depth, 2);
    if (widened) return MultiplyWidened(a, b, pairs, tile, add);
    if (vectors == 1) return MultiplyVectors<1>(rows, a, b, pairs, tile, add);
    if (vectors == 2) return MultiplyVectors<2>(rows, a, b, pairs, tile, add);
    MultiplyVectors<3>(rows, a, b, pairs, tile, add);
  }

 private:
  template <int kVectors>
  void MultiplyVectors(int64_t rows, const Pair* a, const Pair* b, int64_t pairs, float* tile, bool add) const {
    if (products_ == Bf16Products::tiles) return MultiplyTiles<kVectors>(a, b, pairs, tile, add);
    MultiplyDots<kVectors>(rows, a, b, pairs, tile, add);
  }

  Bf16Products products_;
  TileRegisters registers_;
  int row_exponent_[kMostRows / kSquare], panel_exponent_[kGroupPanels];
  bool widened_[kMostRows / kSquare][kGroupPanels];
};
#endif

// One task's view of its scratch: packed rows of a, packed panels of b, and sums, tile after tile.
template <class A, class Packing>
class Task {
 public:
  Task(const GemmLayout& layout, const GemmProblem& problem, int64_t row_block, int64_t panel_group, void* scratch)
      : layout_(layout), problem_(problem), packing_(layout), a_(static_cast<Packed*>(scratch)),
        b_(a_ + layout.a_bytes / sizeof(Packed)) {
    row_begin_ = row_block * layout.block_rows;
    row_end_ = std::min(row_begin_ + layout.block_rows, problem.rows);
    const int64_t per_panel = problem.interleaved ? lanes() : ld();
    panel_begin_ = panel_group * layout.group_panels;
    panel_end_ = std::min(panel_begin_ + layout.group_panels, ceil_div(problem.columns, per_panel));
    const int64_t height = layout.tile.rows, size = height * ld();
    sums_ = {reinterpret_cast<A*>(b_ + layout.b_bytes / sizeof(Packed)), height, ld(), size, layout.group_panels * size};
    if (in_output_ = SumsInOutput(); in_output_) {
      const int64_t row_stride = problem.output.row_stride;
      A* const first = static_cast<A*>(problem.output.base) + row_begin_ * row_stride + panel_begin_ * ld();
      sums_ = {first, height, row_stride, ld(), height * row_stride};
    }
  }

  void Run() {
    Run([](Stage, const auto& stage) HWY_ATTR { stage(); });
  }

  // Every stage through perform(stage, its body), so that benchmarks/gemm.cpp can look at the clock between them.
  template <class Perform>
  void Run(const Perform& perform) {
    if (row_begin_ >= row_end_ || panel_begin_ >= panel_end_) return;
    int64_t blocks = 0, done = 0;
    for (int s = 0; s < problem_.num_segments; ++s) blocks += Blocks(problem_.segments[s]);
    if (blocks == 0) Add(problem_.segments[0], 0, 0, true, perform);  // an empty sum
    for (int s = 0; s < problem_.num_segments; ++s) {
      const GemmSegment& segment = problem_.segments[s];
      const int64_t count = Blocks(segment), length = segment.end - segment.begin;
      for (int64_t i = 0; i < count; ++i, ++done) {
        const int64_t begin = length * i / count, end = length * (i + 1) / count;
        Add(segment, segment.begin + begin, end - begin, done == 0, perform);
      }
    }
    if (!in_output_) perform(Stage::store, [&]() HWY_ATTR { Store(); });
  }

 private:
  using Packed = typename Packing::Packed;

  int64_t lanes() const { return layout_.tile.lanes; }
  int64_t ld() const { return layout_.tile.columns; }
  int64_t Blocks(const GemmSegment& segment) const { return ceil_div(segment.end - segment.begin, layout_.depth_block); }

  // Whether tiles are stored where the output is: it has whole ones, at whole vectors, and they are stored once. Not where it is
  // larger than a second-level cache keeps: rows of tiles are far apart there, and whole rows reach memory faster.
  bool SumsInOutput() const {
    const GemmOutput& out = problem_.output;
    if (!Packing::kSumsInOutput || problem_.store != nullptr || out.dtype != layout_.accumulate || out.bias != nullptr ||
        out.streamed)
      return false;
    const auto whole = [&](int64_t elements) { return elements % lanes() == 0; };
    const auto bytes = static_cast<uint64_t>(lanes()) * sizeof(A);
    return problem_.num_segments == 1 && Blocks(problem_.segments[0]) == 1 && out.column_stride == 1 &&
           out.column_inner >= problem_.columns && (row_end_ - row_begin_) % layout_.tile.rows == 0 && whole(problem_.columns) &&
           whole(out.row_stride) && reinterpret_cast<uintptr_t>(out.base) % bytes == 0 &&
           problem_.rows * out.row_stride * static_cast<int64_t>(sizeof(A)) <= kBytesStoredOnce;
  }

  // A range of depths to the sums.
  template <class Perform>
  void Add(const GemmSegment& segment, int64_t k, int64_t depth, bool first, const Perform& perform) {
    perform(Stage::pack_a, [&]() HWY_ATTR { packing_.PackRows(segment.a, k, depth, row_begin_, row_end_ - row_begin_, a_); });
    perform(Stage::pack_b, [&]() HWY_ATTR {
      const int64_t width = problem_.interleaved ? lanes() : ld(), column = panel_begin_ * width;
      const int64_t count = std::min(panel_end_ * width, problem_.columns) - column;
      packing_.PackPanels(segment.b, k, depth, column, count, problem_.interleaved ? 3 : 1, problem_.columns, b_);
    });
    perform(Stage::multiply, [&]() HWY_ATTR {
      for (int64_t panel = panel_begin_; panel < panel_end_; ++panel) MultiplyPanel(panel, depth, first);
    });
  }

  void MultiplyPanel(int64_t panel, int64_t depth, bool first) {
    const int64_t index = panel - panel_begin_, height = layout_.tile.rows, units = Packing::Units(depth);
    const int64_t vectors = problem_.interleaved ? 3 : std::min<int64_t>(3, ceil_div(problem_.columns - panel * ld(), lanes()));
    Packed* const b = b_ + index * units * ld();
    const Packed* a = a_;
    int64_t tile = 0, left = row_end_ - row_begin_;
    if constexpr (Packing::kTakesTwoTiles)
      for (; packing_.takes_two_tiles(vectors) && left >= 2 * height; tile += 2, left -= 2 * height, a += 2 * height * units)
        packing_.MultiplyTwo(a, index, vectors, b, depth, sums_.tile(index, tile), sums_.tile(index, tile + 1), sums_.ld, !first);
    for (; left > 0; ++tile, left -= height, a += height * units)
      packing_.Multiply(tile, std::min(height, left), a, index, vectors, b, depth, sums_.tile(index, tile), sums_.ld, !first);
  }

  void Store() {
    if (problem_.store == nullptr) return StoreOutput();
    const int64_t height = layout_.tile.rows;
    for (int64_t row = row_begin_; row < row_end_; row += height)
      for (int64_t panel = panel_begin_; panel < panel_end_; ++panel)
        problem_.store(problem_, sums_.tile(panel - panel_begin_, (row - row_begin_) / height), row,
                       std::min(height, row_end_ - row), panel);
  }
  void StoreOutput() {
    const int64_t begin = panel_begin_ * ld(), end = std::min(panel_end_ * ld(), problem_.columns), rows = row_end_ - row_begin_;
    const auto store = [&]<class T>(T) { StoreRows<T>(problem_, sums_, row_begin_, rows, begin, end); };
    if constexpr (std::is_same_v<A, double>) {
      store(double{});
    } else if (problem_.output.dtype == Dtype::f16) {
      store(f16{});
    } else if (problem_.output.dtype == Dtype::bf16) {
      store(bf16{});
    } else {
      store(float{});
    }
    if (problem_.output.streamed) hwy::FlushStream();
  }

  const GemmLayout& layout_;
  const GemmProblem& problem_;
  Packing packing_;
  Packed *a_, *b_;
  TaskSums<A> sums_;  // in the scratch, or
  bool in_output_;
  int64_t row_begin_, row_end_, panel_begin_, panel_end_;
};

// Runs `use(task)` on the task of that block and group.
template <class Use>
void WithTask(const GemmLayout& layout, const GemmProblem& problem, int64_t row_block, int64_t panel_group, void* scratch,
              const Use& use) {
  const auto with = [&]<class A, class Packing>(A, Packing*) {
    Task<A, Packing> task(layout, problem, row_block, panel_group, scratch);
    use(task);
  };
#if HWY_TARGET == HWY_AVX3
  if (layout.pairs != Bf16Products::f32) return with(float{}, static_cast<PairPacking*>(nullptr));
#endif
  const auto with_wide = [&]<class A>(A) {
#if HWY_TARGET != HWY_SCALAR
    if constexpr (kMultipliesInPlace<A>)
      if (layout.b_in_place) return with(A{}, static_cast<PlacePacking<A>*>(nullptr));
#endif
    with(A{}, static_cast<WidePacking<A>*>(nullptr));
  };
  layout.accumulate == Dtype::f64 ? with_wide(double{}) : with_wide(float{});
}

}  // namespace narrows::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
