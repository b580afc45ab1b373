// SPDX-License-Identifier: Apache-2.0
// steps_move.cpp -- compute_at and reverse_compute_at: a block moves into a loop and computes there what that iteration needs. One
// that reads what no block writes has nothing that tells a part of it from another: in reverse, each iteration computes it all.
#include <algorithm>

#include "core/error.h"
#include "core/program/expr.h"
#include "core/program/ranges.h"
#include "core/program/steps.h"
#include "core/program/walk.h"

namespace narrows::program {
namespace {

// The loops of a path within the one at `depth`, as ranges of the loops outside of them.
Ranges inner_ranges(const Path& path, int depth) {
  Ranges out;
  for (size_t d = depth + 1; d < path.loops.size(); ++d) {
    const auto extent = range_of(path.loops[d]->extent, out);
    const ExprPtr most = extent ? extent->high : path.loops[d]->extent;
    out[path.loops[d]->name] = {make_integer(0), simplify(most - 1)};
  }
  return out;
}

Substitution bindings_of(const Block& block) {
  Substitution out;
  for (const Axis& axis : block.axes) out[axis.name] = axis.binding;
  return out;
}

// The subscripts by which a block reads or writes a buffer, in terms of its loops.
std::vector<std::vector<ExprPtr>> subscripts(const Block& block, const std::string& buffer, bool of_writes) {
  std::vector<std::vector<ExprPtr>> out;
  const Substitution bindings = bindings_of(block);
  const auto add = [&](const std::vector<ExprPtr>& indices) {
    out.emplace_back();
    for (const ExprPtr& index : indices) out.back().push_back(substitute(index, bindings));
  };
  if (!of_writes) {
    for_each_load(block, [&](const Expr& load) {
      if (load.name == buffer) add(load.operands);
    });
    return out;
  }
  for (const Store& store : block.body)
    if (store.buffer == buffer) add(store.indices);
  return out;
}

// A part of an axis: from `low`, as many as `extent`.
struct Slice {
  ExprPtr low, extent;
};

class Move {
 public:
  Move(Draft& draft, const StepLine& line, bool is_reverse) : draft_(draft), is_reverse_(is_reverse) {
    line.allow({"block", "loop"});
    loop_ = line.text("loop");
    all_ = paths(draft.current);
    moved_ = need_block(all_, line.text("block"));
    need_loop(draft.current, loop_);
    if (moved_.depth_of(loop_) >= 0)
      throw_failure(NW_INVALID, -1, "block '%s' is within the loop '%s' already", moved_.block->name.c_str(), loop_.c_str());
    for (const Path& path : all_)
      if (path.depth_of(loop_) >= 0) below_.push_back(path);
  }

  void run() {
    find_partners();
    std::vector<For> loops = around();
    std::set<std::string> used = used_names(draft_.current);
    Block copy = *moved_.block;
    std::vector<For> fresh;
    for (size_t i = 0; i < copy.axes.size(); ++i) {
      const Slice part = part_of(copy.axes[i]);
      copy.axes[i].binding = part.low;
      if (constant(part.extent) == 1) continue;
      fresh.push_back(make_loop(fresh_name(used, "ax" + std::to_string(i)), part.extent));
      copy.axes[i].binding = simplify(part.low + make_name(fresh.back().name));
      draft_.made.push_back(fresh.back().name);
    }
    loops.insert(loops.end(), fresh.begin(), fresh.end());
    copy.predicate = guard(draft_.current, loops, nullptr, copy.axes);
    place(nest(fresh, make_stmt(std::move(copy))));
  }

 private:
  // The blocks below the loop that read what this one writes; in reverse: that write what it reads.
  void find_partners() {
    const Block& block = *moved_.block;
    for (const Path& path : below_) {
      const Block& writer = is_reverse_ ? *path.block : block;
      const Block& reader = is_reverse_ ? block : *path.block;
      const bool is_partner =
          std::any_of(writer.body.begin(), writer.body.end(), [&](const Store& store) { return loads(reader, store.buffer); });
      if (is_partner) partners_.push_back(path);
    }
    if (partners_.empty() && !(is_reverse_ && reads_no_block()))
      throw_failure(NW_INVALID, -1,
                    is_reverse_ ? "no block within the loop '%s' writes what block '%s' reads"
                                : "no block within the loop '%s' reads what block '%s' writes",
                    loop_.c_str(), block.name.c_str());
    if (is_reverse_) return;
    for (const Store& store : block.body) {
      if (find_buffer(draft_.current, store.buffer)->role != Buffer::Role::allocated)
        throw_failure(NW_INVALID, -1, "block '%s' writes '%s', an output; only a block of allocated buffers moves to its readers",
                      block.name.c_str(), store.buffer.c_str());
    }
  }

  bool reads_no_block() const {
    bool found = false;
    for_each_load(*moved_.block, [&](const Expr& load) {
      found = found || std::any_of(all_.begin(), all_.end(),
                                   [&](const Path& path) { return path.block != moved_.block && stores(*path.block, load.name); });
    });
    return !found;
  }

  bool is_read_by(const Block& block) const {
    return std::any_of(moved_.block->body.begin(), moved_.block->body.end(),
                       [&](const Store& store) { return loads(block, store.buffer); });
  }

  std::vector<For> around() const {
    std::vector<For> out;
    const Path& path = below_[0];
    for (int d = 0; d <= path.depth_of(loop_); ++d) out.push_back(*path.loops[d]);
    return out;
  }

  Slice whole(const Axis& axis) const { return {make_integer(0), axis.extent}; }

  // What the loop's iteration needs of an axis: the subscripts of the partners, where a subscript of this block is that axis alone.
  Slice part_of(const Axis& axis) const {
    if (axis.kind != Axis::Kind::spatial) return whole(axis);
    std::optional<Range> needed;
    for (const Path& partner : partners_) {
      const Ranges inner = inner_ranges(partner, partner.depth_of(loop_));
      for (const auto& [buffer, dim] : places_of(axis)) {
        for (const std::vector<ExprPtr>& indices : subscripts(*partner.block, buffer, is_reverse_)) {
          const auto range = range_of(indices[dim], inner);
          if (!range) return whole(axis);
          needed = needed ? join(*needed, *range) : *range;
        }
      }
    }
    if (!needed) return whole(axis);
    const Slice out{simplify(needed->low), simplify(needed->high - needed->low + 1)};
    return depends_on_loops(out.extent) ? whole(axis) : out;
  }

  // Buffers and their dimensions that the block's axis chooses alone.
  std::vector<std::pair<std::string, size_t>> places_of(const Axis& axis) const {
    std::vector<std::pair<std::string, size_t>> out;
    const auto add = [&](const std::string& buffer, const std::vector<ExprPtr>& indices) {
      for (size_t dim = 0; dim < indices.size(); ++dim)
        if (indices[dim]->kind == Expr::Kind::name && indices[dim]->name == axis.name) out.emplace_back(buffer, dim);
    };
    if (is_reverse_) {
      for_each_load(*moved_.block, [&](const Expr& load) { add(load.name, load.operands); });
    } else {
      for (const Store& store : moved_.block->body) add(store.buffer, store.indices);
    }
    return out;
  }

  bool depends_on_loops(const ExprPtr& expr) const {
    const std::set<std::string> names = names_in(expr);
    const std::vector<For> loops = around();
    return std::any_of(loops.begin(), loops.end(), [&](const For& loop) { return names.count(loop.name) > 0; });
  }

  // Right before the first of its readers; in reverse: right after the last of its writers, if it has any.
  void place(const Stmt& stmt) {
    draft_.current.body = replace_block(draft_.current.body, moved_.block->name, {});
    For copy = *need_loop(draft_.current, loop_);
    const bool goes_behind = !partners_.empty() && is_reverse_;
    std::vector<Path> beside = partners_;
    if (partners_.empty())
      std::copy_if(below_.begin(), below_.end(), std::back_inserter(beside),
                   [&](const Path& path) { return is_read_by(*path.block); });
    const auto is_beside = [&](const Stmt& child) {
      const std::vector<std::string> names = block_names({child});
      return std::any_of(beside.begin(), beside.end(),
                         [&](const Path& path) { return std::count(names.begin(), names.end(), path.block->name) > 0; });
    };
    auto at = std::find_if(copy.body.begin(), copy.body.end(), is_beside);
    if (goes_behind) at = std::find_if(copy.body.rbegin(), copy.body.rend(), is_beside).base();
    copy.body.insert(at, stmt);
    draft_.current.body = replace_loop(draft_.current.body, loop_, {make_stmt(std::move(copy))});
  }

  Draft& draft_;
  std::string loop_;
  bool is_reverse_;
  std::vector<Path> all_, below_, partners_;
  Path moved_;
};

}  // namespace

void compute_at(Draft& draft, const StepLine& line) { Move(draft, line, false).run(); }
void reverse_compute_at(Draft& draft, const StepLine& line) { Move(draft, line, true).run(); }

}  // namespace narrows::program
