// SPDX-License-Identifier: Apache-2.0
// auto_gpu.cpp -- the default schedule for GPUs: see auto.h. auto_contraction.cpp has the products.
#include <algorithm>

#include "core/program/auto_steps.h"
#include "core/program/dtype.h"
#include "core/program/expr.h"
#include "core/program/reduction.h"
#include "core/program/walk.h"

namespace narrows::program {
namespace {

constexpr int64_t kThreads = 256;  // of a block
constexpr int64_t kLanes = 16;     // partial results of the second step of a row's reduction

std::string factors(std::initializer_list<int64_t> inner) {
  std::string out = "[None";
  for (const int64_t factor : inner) out += ", " + std::to_string(factor);
  return out + "]";
}

bool is_elementwise(const Block& block) {
  return block.init.empty() && block.body.size() == 1 &&
         std::all_of(block.axes.begin(), block.axes.end(), [](const Axis& axis) { return axis.kind == Axis::Kind::spatial; });
}

// Elements side by side that are 16 bytes of the widest buffer, if whole runs of them make up the loop for `threads`; else 1.
int64_t run_of(const Path& path, const ExprPtr& extent, int64_t threads) {
  int64_t bytes = path.block->body[0].indices.empty() ? 1 : std::max(1, bits_of(path.block->body[0].value->dtype) / 8);
  if (reduction_of(path.block->body[0]).has_value()) bytes = 1;  // what is written is no run
  for_each_load(path.block->body[0].value, [&](const Expr& load) {
    if (load.name != path.block->body[0].buffer) bytes = std::max<int64_t>(bytes, bits_of(load.dtype) / 8);
  });
  const auto number = constant(extent);
  return bytes <= 8 && number.has_value() && *number % (threads * (16 / bytes)) == 0 ? 16 / bytes : 1;
}

// A loop's iterations go round the threads of a block, in runs where whole ones fit.
bool over_threads(Steps* steps, const std::string& block, const std::string& loop) {
  const Path path = steps->path(block);
  const int64_t run = path.loops.back()->name == loop ? run_of(path, path.loops.back()->extent, kThreads) : 1;
  const auto parts =
      steps->attempt("split", {{"loop", quoted(loop)}, {"factors", run > 1 ? factors({kThreads, run}) : factors({kThreads})}});
  return parts.size() >= 2 && steps->take("bind", {{"loop", quoted(parts[1])}, {"thread", quoted("thread.x")}}) &&
         (run == 1 || steps->take("vectorize", {{"loop", quoted(parts[2])}}));
}

// The loop of a partial result's last dimension.
std::string partial_loop(const Steps& steps, const std::string& block) {
  const Block& it = *steps.path(block).block;
  const ExprPtr last = it.body[0].indices.back();
  for (const Axis& axis : it.axes)
    if (last->kind == Expr::Kind::name && axis.name == last->name && axis.binding->kind == Expr::Kind::name)
      return axis.binding->name;
  return "";
}

// A reduction's loop becomes `lanes` partial results side by side, each of runs of `run` elements. Gives their block; "": it could
// not.
std::string partial_results(Steps* steps, const std::string& block, const std::string& loop, int64_t lanes, int64_t run = 1) {
  const auto parts =
      steps->attempt("split", {{"loop", quoted(loop)}, {"factors", run > 1 ? factors({lanes, run}) : factors({lanes})}});
  if (parts.size() < 2) return "";
  const size_t rank = steps->path(block).block->body[0].indices.size();
  const auto made = steps->attempt("rfactor", {{"loop", quoted(parts[1])}, {"axis", std::to_string(rank)}});
  return made.empty() ? "" : made[0];
}

// A loop among a block's innermost ones goes around the other `inside` of them.
bool move_out(Steps* steps, const std::string& block, const std::string& loop, size_t inside) {
  std::vector<std::string> order = steps->loops(block);
  if (order.size() <= inside) return true;
  order.erase(order.begin(), order.end() - static_cast<std::ptrdiff_t>(inside) - 1);
  if (order[0] == loop) return true;
  std::string names = "[" + quoted(loop);
  for (const std::string& other : order)
    if (other != loop) names += ", " + quoted(other);
  return steps->take("reorder", {{"loops", names + "]"}});
}

// A row is reduced by all threads to 256 numbers, those by some to 16, and those by one.
bool reduce_row(Steps* steps, const std::string& block) {
  const std::string along = axis_of_rows(*steps->path(block).block);
  if (along.empty() || steps->loops(block).empty()) return false;
  const Path path = steps->path(block);
  const int64_t run = run_of(path, path.loops.back()->extent, kThreads);
  const std::string first = partial_results(steps, block, path.loops.back()->name, kThreads, run);
  if (first.empty()) return false;
  const std::string lane = partial_loop(*steps, first);
  if (lane.empty() || !move_out(steps, first, lane, run > 1 ? 2 : 1)) return false;
  if (!steps->take("bind", {{"loop", quoted(lane)}, {"thread", quoted("thread.x")}})) return false;
  if (run > 1 && !steps->take("unroll", {{"loop", quoted(steps->loops(first).back())}})) return false;
  const std::string second = partial_results(steps, block, steps->loops(block).back(), kLanes);
  if (second.empty()) return true;  // one thread adds up all of them
  const std::string few = partial_loop(*steps, second);
  return !few.empty() && move_out(steps, second, few, 1) && over_threads(steps, second, few);
}

bool reduces_rows(const Steps& steps, const std::string& block) {
  const Path path = steps.path(block);
  if (path.block->body.size() != 1 || !reduction_of(path.block->body[0]).has_value() || path.loops.size() < 2) return false;
  const std::string along = axis_of_rows(*path.block);
  if (along.empty()) return false;
  const Axis& axis =
      *std::find_if(path.block->axes.begin(), path.block->axes.end(), [&](const Axis& a) { return a.name == along; });
  const auto extent = constant(axis.extent);
  return path.loops.back()->name == axis.binding->name && (!extent.has_value() || *extent >= kThreads);
}

std::vector<std::string> blocks_in(const Steps& steps, const std::string& loop) {
  std::vector<std::string> out;
  for (const std::string& name : steps.schedule().blocks()) {
    const std::vector<std::string> around = steps.loops(name);
    if (!around.empty() && around[0] == loop) out.push_back(name);
  }
  return out;
}

// A nest over rows of which one or more are reduced: a block of threads for each row.
bool rows_for_blocks(Steps* steps, const std::string& loop) {
  const std::vector<std::string> blocks = blocks_in(*steps, loop);
  for (const std::string& name : blocks) {
    if (reduces_rows(*steps, name)) {
      if (!reduce_row(steps, name)) return false;
      continue;
    }
    if (!is_elementwise(*steps->path(name).block)) return false;
    if (steps->loops(name).size() > 1 && !over_threads(steps, name, steps->loops(name).back())) return false;
  }
  return steps->take("bind", {{"loop", quoted(loop)}, {"thread", quoted("block.x")}});
}

// An element-wise block whose rows have whole runs of 16 bytes.
bool runs_for_threads(Steps* steps, const std::string& block) {
  const Path path = steps->path(block);
  const auto extent = constant(path.loops.back()->extent);
  const int64_t run = 16 / std::max(1, bits_of(path.block->body[0].value->dtype) / 8);
  if (!extent.has_value() || *extent % run != 0 || *extent < 4 * kThreads || path.loops.size() > 3) return false;
  const auto parts = steps->attempt("split", {{"loop", quoted(path.loops.back()->name)}, {"factors", factors({kThreads, run})}});
  if (parts.size() != 3) return false;
  static constexpr const char* kBlocks[] = {"block.z", "block.y"};
  for (size_t i = 0; i + 1 < path.loops.size(); ++i)
    if (!steps->take("bind", {{"loop", quoted(path.loops[i]->name)}, {"thread", quoted(kBlocks[2 - (path.loops.size() - 1) + i])}}))
      return false;
  return steps->take("bind", {{"loop", quoted(parts[0])}, {"thread", quoted("block.x")}}) &&
         steps->take("bind", {{"loop", quoted(parts[1])}, {"thread", quoted("thread.x")}}) &&
         steps->take("vectorize", {{"loop", quoted(parts[2])}});
}

}  // namespace

void schedule_for_gpu(Schedule* schedule, bool has_unit) {
  Steps steps(schedule);
  inline_chains(&steps);
  for (const std::string& name : schedule->blocks()) tile_for_gpu(&steps, name, has_unit);
  share_rows(&steps);
  std::set<std::string> seen;
  for (const std::string& name : schedule->blocks()) {
    const std::vector<std::string> around = steps.loops(name);
    if (steps.is_tiled(name) || around.empty() || !seen.insert(around[0]).second) continue;
    const std::vector<std::string> nest = blocks_in(steps, around[0]);
    const bool reduces =
        std::any_of(nest.begin(), nest.end(), [&](const std::string& block) { return reduces_rows(steps, block); });
    const bool is_alone = nest.size() == 1 && is_elementwise(*steps.path(name).block);
    const Schedule before = steps.schedule();
    const bool done = reduces ? rows_for_blocks(&steps, around[0]) : is_alone && runs_for_threads(&steps, name);
    if (!done) steps.restore(before);
  }
}

}  // namespace narrows::program
