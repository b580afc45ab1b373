// SPDX-License-Identifier: Apache-2.0
// auto.cpp -- see auto.h. auto_contraction.cpp has the contractions.
#include "core/program/auto.h"

#include <algorithm>
#include <iterator>

#include "core/error.h"
#include "core/program/auto_steps.h"
#include "core/program/expr.h"
#include "core/program/functions.h"
#include "core/program/reduction.h"
#include "core/program/walk.h"

namespace narrows::program {
namespace {

// ---- chains ----

bool is_elementwise(const Block& block) {
  return block.init.empty() && block.body.size() == 1 &&
         std::all_of(block.axes.begin(), block.axes.end(), [](const Axis& axis) { return axis.kind == Axis::Kind::spatial; });
}

bool is_costly(const Block& block) {
  bool out = false;
  for_each_part(block.body[0].value, [&](const Expr& part) {
    const Function* const function =
        part.kind == Expr::Kind::call && part.dtype != DType::index ? find_function(part.name) : nullptr;
    out = out || (function != nullptr && function->is_costly());
  });
  return out;
}

int count_loads(const Program& program, const std::string& buffer) {
  int out = 0;
  for (const Path& path : paths(program)) for_each_load(*path.block, [&](const Expr& load) { out += load.name == buffer ? 1 : 0; });
  return out;
}

// Of an expression; a load, a constant and a name are none.
int count_operations(const ExprPtr& value) {
  int out = 0;
  for_each_part(value, [&](const Expr& part) {
    out += (part.kind == Expr::Kind::call || part.kind == Expr::Kind::cast) && part.dtype != DType::index ? 1 : 0;
  });
  return out;
}

bool reduces(const Program& program, const std::string& buffer) {  // does a reduction read it?
  for (const Path& path : paths(program)) {
    bool found = false;
    for_each_load(*path.block, [&](const Expr& load) { found = found || load.name == buffer; });
    if (found && !is_elementwise(*path.block)) return true;
  }
  return false;
}

constexpr int kMaxRepeated = 8;  // operations that are cheaper again than a load of their result

}  // namespace

// What an element-wise block computes is computed where it is read: it saves a pass through memory, unless something costly would
// then be computed more than once. In a chain whose blocks read each other twice, the operations would double with each.
void inline_chains(Steps* steps) {
  for (const std::string& name : steps->schedule().blocks()) {
    const Block block = *steps->path(name).block;
    if (!is_elementwise(block)) continue;
    const Program& program = steps->schedule().program();
    const std::string buffer = block.body[0].buffer;
    if (find_buffer(program, buffer)->role != Buffer::Role::allocated) continue;
    const bool is_repeated = count_loads(program, buffer) > 1;
    if (is_repeated && count_operations(block.body[0].value) > kMaxRepeated) continue;
    if (is_costly(block) && (is_repeated || reduces(program, buffer))) continue;
    steps->attempt("compute_inline", {{"block", quoted(name)}});
  }
}

// ---- rows ----

namespace {

constexpr int64_t kLanes = 64;  // of a row that are reduced side by side: four vectors of f32, which hide the addition's latency

bool moves_along(const Expr& load, const std::string& axis) {
  return !load.operands.empty() && load.operands.back()->kind == Expr::Kind::name && load.operands.back()->name == axis;
}

}  // namespace

std::string axis_of_rows(const Block& block) {
  for (const Axis& axis : block.axes) {
    if (axis.kind != Axis::Kind::reduction || axis.binding->kind != Expr::Kind::name) continue;
    bool found = false;
    for_each_load(block.body[0].value, [&](const Expr& load) { found = found || moves_along(load, axis.name); });
    if (found) return axis.name;
  }
  return "";
}

namespace {

// Of a reduction along rows that may be long: its axis there, else nothing.
const Axis* long_row(const Block& block) {
  if (block.body.size() != 1 || !reduction_of(block.body[0]).has_value()) return nullptr;
  const std::string along = axis_of_rows(block);
  const auto found = std::find_if(block.axes.begin(), block.axes.end(), [&](const Axis& a) { return a.name == along; });
  if (found == block.axes.end()) return nullptr;
  const auto extent = constant(found->extent);
  return extent.has_value() && *extent < 2 * kLanes ? nullptr : &*found;
}

// A reduction's loop becomes partial results side by side. Gives their block; empty: it could not.
std::string reduce_side_by_side(Steps* steps, const std::string& block, const std::string& loop, int64_t lanes) {
  const Schedule before = steps->schedule();
  const auto parts = steps->attempt("split", {{"loop", quoted(loop)}, {"factors", "[None, " + std::to_string(lanes) + "]"}});
  if (parts.size() != 2) return "";
  const size_t rank = steps->path(block).block->body[0].indices.size();
  const auto made = steps->attempt("rfactor", {{"loop", quoted(parts[1])}, {"axis", std::to_string(rank)}});
  if (made.empty()) steps->restore(before);
  return made.empty() ? "" : made[0];
}

// A row's elements are reduced to 64 side by side, these to 16, and those at the end. Gives the blocks of the partial results.
std::vector<std::string> reduce_by_vectors(Steps* steps) {
  std::vector<std::string> partials;
  for (const std::string& name : steps->schedule().blocks()) {
    const Path path = steps->path(name);
    const Axis* const axis = long_row(*path.block);
    if (axis == nullptr || path.loops.empty() || steps->is_tiled(name) || path.loops.back()->name != axis->binding->name) continue;
    std::string loop = axis->binding->name;
    for (const int64_t lanes : {kLanes, kLanes / 4}) {
      const std::string partial = reduce_side_by_side(steps, name, loop, lanes);
      if (partial.empty()) break;
      partials.push_back(partial);
      loop = steps->loops(name).back();
    }
  }
  return partials;
}

// ---- loops that are shared, and threads ----

}  // namespace

void share_rows(Steps* steps) {
  std::vector<std::string> names = steps->schedule().blocks();
  for (size_t last = names.size(); last-- > 0;) {
    const std::vector<std::string> around = steps->loops(names[last]);
    if (around.empty()) continue;
    for (size_t i = last; i-- > 0;) {
      const std::vector<std::string> old = steps->loops(names[i]);
      if (old.empty() || old[0] == around[0] || steps->is_tiled(names[i])) continue;
      // A reader of one element for each row, as the logarithm of its sum, loses its vectors: only a long row is worth that.
      if (around.size() == 1 && long_row(*steps->path(names[i]).block) == nullptr) continue;
      const Schedule before = steps->schedule();
      if (!steps->take("compute_at", {{"block", quoted(names[i])}, {"loop", quoted(around[0])}})) continue;
      if (steps->loops(names[i]).size() > old.size() || !has_lost_a_loop(*steps, names[i], around[0], old.size()))
        steps->restore(before);
    }
  }
}

namespace {

void run_in_parallel(Steps* steps) {
  std::set<std::string> seen;
  for (const std::string& name : steps->schedule().blocks()) {
    const std::vector<std::string> around = steps->loops(name);
    if (around.empty() || !seen.insert(around[0]).second) continue;
    const ForPtr loop = find_loop(steps->schedule().program().body, around[0]);
    if (loop->kind != For::Kind::serial) continue;
    const auto extent = constant(loop->extent);
    if (around.size() == 1 && (!extent.has_value() || *extent > 8192)) {
      const auto parts = steps->attempt("split", {{"loop", quoted(around[0])}, {"factors", "[None, 4096]"}});
      if (parts.size() == 2) steps->attempt("parallel", {{"loop", quoted(parts[0])}});
    } else {
      steps->attempt("parallel", {{"loop", quoted(around[0])}});
    }
  }
}

}  // namespace

Machine this_machine() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return {64, 32};
  return __builtin_cpu_supports("avx2") ? Machine{32, 16} : Machine{16, 16};
#else
  return {16, 32};
#endif
}

void schedule_for_cpu(Schedule* schedule, const Machine& machine) {
  Steps steps(schedule);
  inline_chains(&steps);
  for (const std::string& name : schedule->blocks()) tile_contraction(&steps, name, machine);
  share_rows(&steps);
  const std::vector<std::string> partials = reduce_by_vectors(&steps);
  for (const std::string& name : partials) steps.attempt("vectorize", {{"loop", quoted(steps.loops(name).back())}});
  run_in_parallel(&steps);
}

bool schedule_by_default(Schedule* schedule, std::string_view backend) {
  if (std::find(std::begin(kScheduledBackends), std::end(kScheduledBackends), backend) == std::end(kScheduledBackends))
    return false;
  if (backend == "cpu")
    schedule_for_cpu(schedule, this_machine());
  else
    schedule_for_gpu(schedule, backend == "cuda");
  return true;
}

}  // namespace narrows::program
