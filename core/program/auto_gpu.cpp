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

// The axis whose value the block's innermost loop is; nullptr: none.
const Axis* innermost_axis(const Path& path) {
  const auto found = std::find_if(path.block->axes.begin(), path.block->axes.end(),
                                  [&](const Axis& axis) { return axis.binding->name == path.loops.back()->name; });
  return found == path.block->axes.end() ? nullptr : &*found;
}

// Elements side by side along the innermost loop that are 16 bytes of the widest buffer, if whole runs of them are shared out to a
// block's threads; else 1.
int64_t run_of(const Path& path) {
  const Axis* const along = innermost_axis(path);
  if (along == nullptr || path.block->body.size() != 1) return 1;
  const Store& store = path.block->body[0];
  int64_t bytes = 1;
  const auto moves = [&](const std::vector<ExprPtr>& indices, DType dtype) {
    const bool is_moved = std::any_of(indices.begin(), indices.end(), [&](const ExprPtr& e) { return mentions(e, along->name); });
    if (is_moved) bytes = std::max<int64_t>(bytes, bits_of(dtype) / 8);
  };
  moves(store.indices, store.value->dtype);
  for_each_load(store.value, [&](const Expr& load) { moves(load.operands, load.dtype); });
  const auto extent = constant(along->extent);
  return bytes <= 8 && extent.has_value() && *extent % (kThreads * (16 / bytes)) == 0 ? 16 / bytes : 1;
}

// A loop's iterations go round the threads of a block, in runs.
bool over_threads(Steps* steps, const std::string& loop, int64_t run) {
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
bool reduce_row(Steps* steps, const std::string& block, int64_t run) {
  const std::string along = axis_of_rows(*steps->path(block).block);
  if (along.empty() || steps->loops(block).empty()) return false;
  const std::string first = partial_results(steps, block, steps->loops(block).back(), kThreads, run);
  if (first.empty()) return false;
  const std::string lane = partial_loop(*steps, first);
  if (lane.empty() || !move_out(steps, first, lane, run > 1 ? 2 : 1)) return false;
  if (!steps->take("bind", {{"loop", quoted(lane)}, {"thread", quoted("thread.x")}})) return false;
  if (run > 1 && !steps->take("unroll", {{"loop", quoted(steps->loops(first).back())}})) return false;
  const std::string second = partial_results(steps, block, steps->loops(block).back(), kLanes);
  if (second.empty()) return true;  // one thread adds up all of them
  const std::string few = partial_loop(*steps, second);
  return !few.empty() && move_out(steps, second, few, 1) && over_threads(steps, few, 1);
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

// Tensors of which several blocks read the same row: each thread keeps its part of the row in registers.
void keep_rows(Steps* steps, const std::string& loop) {
  constexpr int64_t kMostBytes = 256;                       // of a thread
  std::map<std::string, std::vector<std::string>> readers;  // blocks, by tensor and row
  for (const std::string& name : blocks_in(*steps, loop)) {
    const Path path = steps->path(name);
    if (path.loops.size() != 2 || path.block->body.size() != 1) continue;
    const Axis* const along = innermost_axis(path);
    if (along == nullptr || !constant(along->extent).has_value()) continue;
    for_each_load(path.block->body[0].value, [&](const Expr& load) {
      const bool is_row = load.operands.size() == 2 && load.operands[1]->kind == Expr::Kind::name &&
                          load.operands[1]->name == along->name && load.operands[0]->kind == Expr::Kind::name;
      const Buffer& buffer = *find_buffer(steps->schedule().program(), load.name);
      const int64_t bytes = *constant(along->extent) / kThreads * (bits_of(load.dtype) / 8);
      if (!is_row || buffer.role != Buffer::Role::input || buffer.optional || bytes > kMostBytes) return;
      std::vector<std::string>& all = readers[load.name];
      if (all.empty() || all.back() != name) all.push_back(name);
    });
  }
  for (const auto& [buffer, blocks] : readers) {
    if (blocks.size() < 2) continue;
    const Schedule before = steps->schedule();
    std::string others;
    for (size_t i = 1; i < blocks.size(); ++i) others += (i > 1 ? ", " : "[") + quoted(blocks[i]);
    const auto copy = steps->attempt(
        "cache_read",
        {{"block", quoted(blocks[0])}, {"buffer", quoted(buffer)}, {"scope", quoted("local")}, {"consumers", others + "]"}});
    if (copy.empty() || !steps->take("compute_at", {{"block", quoted(copy[0])}, {"loop", quoted(loop)}})) steps->restore(before);
  }
}

// A nest over rows of which one or more are reduced: a block of threads for each row.
bool rows_for_blocks(Steps* steps, const std::string& loop) {
  int64_t run = 16;  // the same for all, so that a thread has the same part of each row
  for (const std::string& name : blocks_in(*steps, loop))
    if (const Path path = steps->path(name); path.loops.size() > 1) run = std::min(run, run_of(path));
  if (run > 1) keep_rows(steps, loop);
  const std::vector<std::string> blocks = blocks_in(*steps, loop);
  for (const std::string& name : blocks) {
    if (reduces_rows(*steps, name)) {
      if (!reduce_row(steps, name, run)) return false;
      continue;
    }
    if (!is_elementwise(*steps->path(name).block)) return false;
    if (steps->loops(name).size() > 1 && !over_threads(steps, steps->loops(name).back(), run)) return false;
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
