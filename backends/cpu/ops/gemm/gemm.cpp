// SPDX-License-Identifier: Apache-2.0
// gemm.cpp -- how a product is cut into tasks. A task (gemm_task-inl.h) is a block of rows by a group of column panels: it packs
// its rows of a and its panels of b, and multiplies. A panel whose rows lie side by side is packed by the first tile that is
// multiplied by it, for which loads and stores are free (4 to 10 % less time), and never where two tiles are all; for few rows b is
// read where it lies, since packing would cost as much as multiplying. Whole tiles of a small result are stored where it lies,
// others in the scratch first. Tasks share nothing, so no thread waits for another; what packing costs, that of what two tasks need
// included, benchmarks/gemm.cpp shows.
#include "gemm.h"

#include "targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/gemm/gemm.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first.
#include "gemm_task-inl.h"

HWY_BEFORE_NAMESPACE();
namespace narrows::cpu::HWY_NAMESPACE {

void GemmTask(const GemmLayout& layout, const GemmProblem& problem, int64_t row_block, int64_t panel_group, void* scratch) {
  WithTask(layout, problem, row_block, panel_group, scratch, [](auto& task) { task.Run(); });
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

bool MultipliesInPlace(Dtype accumulate) {
  return accumulate == Dtype::f64 ? kMultipliesInPlace<double> : kMultipliesInPlace<float>;
}

}  // namespace narrows::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace narrows::cpu {
namespace {

HWY_EXPORT(GemmTask);
HWY_EXPORT(TileOf);
HWY_EXPORT(MultipliesInPlace);

// b in place: not for so few rows that most of a vector of them would be zeros, nor for so many that packing b pays. Measured with
// LLTM F32 S128, f32 on AVX-512, one thread: 16 rows 25.1 us packed and 19.2 in place, 32 rows (F64 S256) 138 and 127 (one tile at
// a time), 4 rows 13.4 and 16.0.
bool few_rows(const GemmLayout& l, int64_t rows) { return 2 * rows >= l.tile.lanes && rows <= 2 * l.tile.lanes; }

// What a product's multiply-add costs, in those of other loops; of f64 a vector holds half as many. A second thread pays from 1.3
// million of f32 on: LLTM backward B16 F32 S128 has 1.8 for the inputs and as many for the weights, and takes 89 us instead of 111.
double cost_of(Dtype accumulate) { return accumulate == Dtype::f64 ? 1.5 : 0.75; }

// Halves blocks until every thread has some tasks, but not below what makes packing expensive: each block packs its own operands.
void cut(GemmLayout& l, int64_t rows, int64_t panels, int64_t threads) {
  l.block_rows = round_up(ceil_div(rows, ceil_div(rows, rows <= kMostRows ? kMostRows : kBlockRows)), l.tile.rows);
  l.group_panels = ceil_div(panels, ceil_div(panels, kGroupPanels));
  const auto tasks = [&] { return l.problems * ceil_div(rows, l.block_rows) * ceil_div(panels, l.group_panels); };
  while (threads > 1 && tasks() < 2 * threads) {
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
                       int64_t depth0, int64_t depth1, bool b_by_depth) {
  GemmLayout l{};
  l.accumulate = accumulate_dtype(dtype);
  if (dtype == Dtype::bf16) l.pairs = instance.bf16_products;
  l.tile = NARROWS_DISPATCH(instance, TileOf)(l.accumulate, l.pairs);
  l.problems = rows > 0 && columns > 0 ? problems : 0;
  if (l.problems == 0) return l;
  l.b_in_place =
      b_by_depth && dtype == l.accumulate && few_rows(l, rows) && NARROWS_DISPATCH(instance, MultipliesInPlace)(l.accumulate);
  if (l.b_in_place) l.tile.rows = l.tile.lanes;
  const int64_t panels = ceil_div(columns, interleaved ? l.tile.lanes : l.tile.columns);
  l.depth_block = l.pairs != Bf16Products::f32 ? kDepthBlockOfPairs : l.accumulate == Dtype::f64 ? kDepthBlockOfF64 : kDepthBlock;
  int64_t block = std::min(l.depth_block, std::max<int64_t>({depth0, depth1, 1})), size = size_of(l.accumulate);
  if (l.pairs != Bf16Products::f32) block = round_up(ceil_div(block, 2), l.tile.lanes);
  const double cost = cost_of(l.accumulate) * static_cast<double>(l.problems) *
                      static_cast<double>(rows * panels * l.tile.columns) * static_cast<double>(depth0 + depth1);
  cut(l, rows, panels, cost < kWorthWaking ? 1 : instance.num_threads());
  const int64_t tiles = l.block_rows * l.group_panels;
  l.a_bytes = aligned_bytes(static_cast<uint64_t>(l.block_rows * block * size));
  if (!l.b_in_place) l.b_bytes = aligned_bytes(static_cast<uint64_t>(l.group_panels * l.tile.columns * block * size));
  l.slot_bytes = l.a_bytes + l.b_bytes + aligned_bytes(static_cast<uint64_t>(tiles * l.tile.columns * size));
  l.task_cost = cost_of(l.accumulate) * static_cast<double>(l.block_rows * l.group_panels * l.tile.columns) *
                static_cast<double>(depth0 + depth1);
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
