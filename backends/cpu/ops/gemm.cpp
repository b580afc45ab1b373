// gemm.cpp -- how a product is cut into tasks, and what one task does. Step 5 of a tensor's path.
// A task is a block of rows by a group of column panels: it packs its rows of a and its panels of b, and multiplies. Tasks share
// nothing, so no thread waits for another; packing twice what two tasks need costs a few per cent.
#include "gemm.h"

#include "../targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/gemm.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first.
#include "gemm-inl.h"
#include "gemm_pairs-inl.h"

HWY_BEFORE_NAMESPACE();
namespace narrows::cpu::HWY_NAMESPACE {

// dst[i * stride] = row[i] + bias.
template <class T, class A = Accumulate<T>>
HWY_INLINE void StoreSums(const A* row, A bias, int64_t count, T* dst, int64_t stride) {
  const hn::ScalableTag<A> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  if (stride == 1)
    for (; i + lanes <= count; i += lanes) StoreAs(d, hn::Add(hn::LoadU(d, row + i), hn::Set(d, bias)), dst + i);
  for (; i < count; ++i) write(dst + i * stride, row[i] + bias);
}

template <class T>
void StoreTile(const GemmProblem& problem, const void* tile_data, int64_t row, int64_t rows, int64_t panel, int64_t ld) {
  using A = Accumulate<T>;
  const GemmOutput& out = problem.output;
  const auto* tile = static_cast<const A*>(tile_data);
  const int64_t column = panel * ld, columns = std::min(ld, problem.columns - column);
  for (int64_t j = 0, count; j < columns; j += count) {
    const int64_t outer = (column + j) / out.column_inner, inner = (column + j) % out.column_inner;
    count = std::min(columns - j, out.column_inner - inner);
    T* base = static_cast<T*>(out.base) + outer * out.column_outer_stride + inner * out.column_stride;
    for (int64_t r = 0; r < rows; ++r) {
      // Without a bias -0, not 0, is what leaves every sum as it is.
      const A bias = out.bias == nullptr ? A{-0.0} : read(static_cast<const T*>(out.bias) + (row + r) * out.bias_stride);
      StoreSums(tile + r * ld + j, bias, count, base + (row + r) * out.row_stride, out.column_stride);
    }
  }
}

// Operands packed in the dtype of the sums.
template <class A>
class WidePacking {
 public:
  using Packed = A;
  explicit WidePacking(const GemmLayout& layout) : ld_(layout.tile.columns) {}

  // What a packed row or column holds of a range of depths.
  static int64_t Units(int64_t depth) { return depth; }

  void PackRows(const GemmView& view, int64_t k, int64_t depth, int64_t row, int64_t rows, A* dst) {
    const int64_t whole = rows / kTileRows * kTileRows, height = Height(rows - whole);
    Pack(view, k, depth, row, whole, {dst, 0, kTileRows, kTileRows, kTileRows * depth});
    if (whole < rows) Pack(view, k, depth, row + whole, rows - whole, {dst + whole * depth, 0, height, height, 0});
  }
  // `width` columns of every panel.
  void PackPanels(const GemmView& view, int64_t k, int64_t depth, int64_t column, int64_t count, int64_t width, A* dst) {
    Pack(view, k, depth, column, count, {dst, 0, width, ld_, depth * ld_});
  }
  // All that was packed, once it is.
  void Inspect(const A*, int64_t, const A*, int64_t, int64_t) {}
  // For a tile of so many rows and vectors.
  MicroKernelFn<A> Kernel(int64_t, int64_t rows, int64_t, int64_t vectors) const {
    return ChooseMicroKernel<A>(Height(rows), vectors);
  }

 private:
  int64_t ld_;
};

#if HWY_TARGET == HWY_AVX3
// bf16 as pairs, with the exponents that say which tiles may be multiplied so.
class PairPacking {
 public:
  using Packed = Pair;
  explicit PairPacking(const GemmLayout& layout) : products_(layout.pairs), registers_(layout.pairs) {}

  static int64_t Units(int64_t depth) { return PairsOf(depth); }

  void PackRows(const GemmView& view, int64_t k, int64_t depth, int64_t row, int64_t rows, Pair* dst) {
    for (int64_t i = 0; i < rows; i += kSquare, dst += kSquare * Units(depth))
      PackPairsOfA(view, k, depth, row + i, std::min(rows - i, kSquare), dst);
  }
  void PackPanels(const GemmView& view, int64_t k, int64_t depth, int64_t column, int64_t count, int64_t width, Pair* dst) {
    for (int64_t i = 0; i < count; i += width, dst += kPanel * Units(depth))
      PackPairsOfB(view, k, depth, column + i, std::min(count - i, width), width, dst);
  }
  void Inspect(const Pair* a, int64_t row_tiles, const Pair* b, int64_t panels, int64_t units) {
    for (int64_t i = 0; i < row_tiles; ++i) row_exponents_[i] = SmallestExponent(a + i * kSquare * units, kSquare * units);
    for (int64_t i = 0; i < panels; ++i) panel_exponents_[i] = SmallestExponent(b + i * kPanel * units, kPanel * units);
  }
  PairKernel Kernel(int64_t row_tile, int64_t, int64_t panel, int64_t) const {
    return ChoosePairKernel(products_, row_exponents_[row_tile], panel_exponents_[panel]);
  }

 private:
  Bf16Products products_;
  TileRegisters registers_;
  int row_exponents_[kBlockRows / kSquare], panel_exponents_[kGroupColumns / kPanel];
};
#endif

// One task's view of its scratch: packed rows of a, packed panels of b, and sums, tile after tile.
template <class A, class Packing>
class Task {
 public:
  Task(const GemmLayout& layout, const GemmProblem& problem, int64_t row_block, int64_t panel_group, void* scratch)
      : layout_(layout), problem_(problem), packing_(layout), a_(static_cast<Packed*>(scratch)),
        b_(a_ + layout.a_bytes / sizeof(Packed)), sums_(reinterpret_cast<A*>(b_ + layout.b_bytes / sizeof(Packed))) {
    row_begin_ = row_block * layout.block_rows;
    row_end_ = std::min(row_begin_ + layout.block_rows, problem.rows);
    const int64_t per_panel = problem.interleaved ? lanes() : ld();
    panel_begin_ = panel_group * layout.group_panels;
    panel_end_ = std::min(panel_begin_ + layout.group_panels, ceil_div(problem.columns, per_panel));
  }

  void Run() {
    if (row_begin_ >= row_end_ || panel_begin_ >= panel_end_) return;
    int64_t blocks = 0, done = 0;
    for (int s = 0; s < problem_.num_segments; ++s) blocks += Blocks(problem_.segments[s]);
    if (blocks == 0) return Multiply(problem_.segments[0], 0, 0, true, true);  // an empty sum
    for (int s = 0; s < problem_.num_segments; ++s) {
      const GemmSegment& segment = problem_.segments[s];
      const int64_t count = Blocks(segment), length = segment.end - segment.begin;
      for (int64_t i = 0; i < count; ++i, ++done) {
        const int64_t begin = length * i / count, end = length * (i + 1) / count;
        Multiply(segment, segment.begin + begin, end - begin, done == 0, done + 1 == blocks);
      }
    }
  }

 private:
  using Packed = typename Packing::Packed;

  int64_t lanes() const { return layout_.tile.lanes; }
  int64_t ld() const { return layout_.tile.columns; }
  static int64_t Blocks(const GemmSegment& segment) { return ceil_div(segment.end - segment.begin, kDepthBlock); }

  void Multiply(const GemmSegment& segment, int64_t k, int64_t depth, bool first, bool last) {
    packing_.PackRows(segment.a, k, depth, row_begin_, row_end_ - row_begin_, a_);
    const int64_t width = problem_.interleaved ? lanes() : ld(), column = panel_begin_ * width;
    const int64_t count = std::min(panel_end_ * width, problem_.columns) - column;
    for (int64_t range = 0; range < (problem_.interleaved ? 3 : 1); ++range)
      packing_.PackPanels(segment.b, k, depth, range * problem_.columns + column, count, width, b_ + range * lanes());
    const int64_t row_tiles = ceil_div(row_end_ - row_begin_, layout_.tile.rows);
    packing_.Inspect(a_, row_tiles, b_, panel_end_ - panel_begin_, Packing::Units(depth));
    for (int64_t panel = panel_begin_; panel < panel_end_; ++panel) MultiplyPanel(panel, depth, first, last);
  }

  void MultiplyPanel(int64_t panel, int64_t depth, bool first, bool last) {
    const int64_t index = panel - panel_begin_;
    const int64_t vectors = problem_.interleaved ? 3 : std::min<int64_t>(3, ceil_div(problem_.columns - panel * ld(), lanes()));
    const int64_t height = layout_.tile.rows, units = Packing::Units(depth);
    for (int64_t row = row_begin_; row < row_end_; row += height) {
      const int64_t rows = std::min(height, row_end_ - row), at = (row - row_begin_) / height;
      A* tile = sums_;
      if (layout_.split_depth) tile += (index * layout_.block_rows + row - row_begin_) * ld();
      const Packed *a = a_ + at * height * units, *b = b_ + index * units * ld();
      packing_.Kernel(at, rows, index, vectors)(a, b, units, tile, !first);
      if (last) Store(tile, row, rows, panel);
    }
  }

  void Store(A* tile, int64_t row, int64_t rows, int64_t panel) {
    if (problem_.store != nullptr) return problem_.store(problem_, tile, row, rows, panel);
    if constexpr (std::is_same_v<A, double>) return StoreTile<double>(problem_, tile, row, rows, panel, ld());
    if (problem_.output.dtype == Dtype::f16) return StoreTile<f16>(problem_, tile, row, rows, panel, ld());
    if (problem_.output.dtype == Dtype::bf16) return StoreTile<bf16>(problem_, tile, row, rows, panel, ld());
    StoreTile<float>(problem_, tile, row, rows, panel, ld());
  }

  const GemmLayout& layout_;
  const GemmProblem& problem_;
  Packing packing_;
  Packed *a_, *b_;
  A* sums_;
  int64_t row_begin_, row_end_, panel_begin_, panel_end_;
};

void GemmTask(const GemmLayout& layout, const GemmProblem& problem, int64_t row_block, int64_t panel_group, void* scratch) {
  const auto run = [&]<class A, class Packing>(A, Packing*) {
    Task<A, Packing>(layout, problem, row_block, panel_group, scratch).Run();
  };
#if HWY_TARGET == HWY_AVX3
  if (layout.pairs != Bf16Products::f32) return run(float{}, static_cast<PairPacking*>(nullptr));
#endif
  layout.accumulate == Dtype::f64 ? run(double{}, static_cast<WidePacking<double>*>(nullptr))
                                  : run(float{}, static_cast<WidePacking<float>*>(nullptr));
}

GemmTile TileOf(Dtype accumulate, Bf16Products pairs) {
#if HWY_TARGET == HWY_AVX3
  if (pairs != Bf16Products::f32) return {kSquare, kSquare, kPanel};
#endif
  (void)pairs;
  const auto lanes =
      static_cast<int64_t>(accumulate == Dtype::f64 ? hn::Lanes(hn::ScalableTag<double>()) : hn::Lanes(hn::ScalableTag<float>()));
  return {kTileRows, lanes, 3 * lanes};
}

}  // namespace narrows::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace narrows::cpu {
namespace {

HWY_EXPORT(GemmTask);
HWY_EXPORT(TileOf);

constexpr int64_t kGroupBytes = 512 * 1024;  // of a task's packed columns and sums, which then stay in a second-level cache

// Halves blocks until every thread has some tasks, but not below what makes packing expensive.
void cut(GemmLayout& l, int64_t rows, int64_t panels, int64_t depth, int64_t threads) {
  l.block_rows = round_up(ceil_div(rows, ceil_div(rows, kBlockRows)), l.tile.rows);
  const int64_t column_bytes = (depth + (l.split_depth ? l.block_rows : 0)) * size_of(l.accumulate);
  l.group_panels = std::max<int64_t>(1, std::min(kGroupColumns, kGroupBytes / column_bytes) / l.tile.columns);
  l.group_panels = ceil_div(panels, ceil_div(panels, l.group_panels));
  const auto tasks = [&] { return l.problems * ceil_div(rows, l.block_rows) * ceil_div(panels, l.group_panels); };
  while (threads > 1 && tasks() < 3 * threads) {
    const bool rows_longer = l.block_rows > l.group_panels * l.tile.columns;
    if ((rows_longer || l.group_panels == 1) && l.block_rows > 4 * l.tile.rows) {
      l.block_rows = round_up(l.block_rows / 2, l.tile.rows);
    } else if (l.group_panels > 1) {
      l.group_panels = ceil_div(l.group_panels, 2);
    } else {
      break;
    }
  }
  l.row_blocks = ceil_div(rows, l.block_rows);
  l.panel_groups = ceil_div(panels, l.group_panels);
}

}  // namespace

GemmLayout gemm_layout(const Instance& instance, Dtype dtype, int64_t problems, int64_t rows, int64_t columns, bool interleaved,
                       int64_t depth0, int64_t depth1) {
  GemmLayout l{};
  l.accumulate = accumulate_dtype(dtype);
  if (dtype == Dtype::bf16) l.pairs = instance.bf16_products;
  l.tile = NARROWS_DISPATCH(instance, TileOf)(l.accumulate, l.pairs);
  l.problems = rows > 0 && columns > 0 ? problems : 0;
  if (l.problems == 0) return l;
  const int64_t panels = ceil_div(columns, interleaved ? l.tile.lanes : l.tile.columns);
  l.split_depth = ceil_div(depth0, kDepthBlock) + ceil_div(depth1, kDepthBlock) > 1;
  int64_t block = std::min(kDepthBlock, std::max<int64_t>({depth0, depth1, 1})), size = size_of(l.accumulate);
  if (l.pairs != Bf16Products::f32) block = round_up(ceil_div(block, 2), l.tile.lanes);
  cut(l, rows, panels, block, instance.num_threads());
  const int64_t tiles = l.split_depth ? l.block_rows * l.group_panels : l.tile.rows;
  l.a_bytes = aligned_bytes(static_cast<uint64_t>(l.block_rows * block * size));
  l.b_bytes = aligned_bytes(static_cast<uint64_t>(l.group_panels * l.tile.columns * block * size));
  l.slot_bytes = l.a_bytes + l.b_bytes + aligned_bytes(static_cast<uint64_t>(tiles * l.tile.columns * size));
  l.task_cost = static_cast<double>(l.block_rows * l.group_panels * l.tile.columns) * static_cast<double>(depth0 + depth1);
  l.workspace_size =
      l.slot_bytes * static_cast<uint64_t>(num_slots(instance, l.problems * l.row_blocks * l.panel_groups, l.task_cost));
  return l;
}

void gemm(const Instance& instance, const GemmLayout& l, void* workspace, GemmProblem (*describe)(const void* arg, int64_t i),
          const void* arg) {
  const int64_t per_problem = l.row_blocks * l.panel_groups;
  run_tasks(instance, l.problems * per_problem, l.task_cost, [&](int64_t slot, int64_t begin, int64_t end) {
    char* scratch = static_cast<char*>(workspace) + static_cast<uint64_t>(slot) * l.slot_bytes;
    for (int64_t task = begin; task < end; ++task) {
      const GemmProblem problem = describe(arg, task / per_problem);
      const int64_t within = task % per_problem;
      NARROWS_DISPATCH(instance, GemmTask)(l, problem, within / l.panel_groups, within % l.panel_groups, scratch);
    }
  });
}

}  // namespace narrows::cpu
#endif  // HWY_ONCE
