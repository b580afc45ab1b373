// SPDX-License-Identifier: Apache-2.0
// steps_reduction.cpp -- decompose_reduction and rfactor: a reduction in two blocks.
#include <algorithm>

#include "core/error.h"
#include "core/program/affine.h"
#include "core/program/expr.h"
#include "core/program/reduction.h"
#include "core/program/steps.h"
#include "core/program/text.h"
#include "core/program/walk.h"

namespace narrows::program {
namespace {

bool is_spatial(const Axis& axis) { return axis.kind == Axis::Kind::spatial; }

bool feeds(const Block& block, const std::string& loop, bool of_spatial) {
  return std::any_of(block.axes.begin(), block.axes.end(),
                     [&](const Axis& axis) { return is_spatial(axis) == of_spatial && mentions(axis.binding, loop); });
}

// The outermost loop that feeds a reduction or carried axis; the number of loops where none does.
size_t outermost_reducing(const Path& path) {
  size_t depth = 0;
  while (depth < path.loops.size() && !feeds(*path.block, path.loops[depth]->name, false)) ++depth;
  return depth;
}

// Does an expression depend on a loop that feeds a reduction or carried axis?
bool mentions_reducing(const Path& path, const ExprPtr& expr) {
  return std::any_of(path.loops.begin(), path.loops.end(),
                     [&](const ForPtr& loop) { return feeds(*path.block, loop->name, false) && mentions(expr, loop->name); });
}

// A nest over the spatial points that the loops from `from` on reach, to stand before or after them: copies of the loops that feed
// spatial axes, and the spatial axes bound to them.
struct SpatialNest {
  std::vector<For> loops;
  std::vector<Axis> axes;
  ExprPtr predicate;

  SpatialNest(const Program& program, const Path& path, size_t from, std::set<std::string>& used, const char* suffix) {
    std::vector<For> around;
    around.reserve(from);
    for (size_t d = 0; d < from; ++d) around.push_back(*path.loops[d]);
    Substitution renamed;
    for (size_t d = from; d < path.loops.size(); ++d) {
      const For& loop = *path.loops[d];
      if (!feeds(*path.block, loop.name, true)) continue;
      loops.push_back(make_loop(fresh_name(used, loop.name + suffix), substitute(loop.extent, renamed)));
      renamed[loop.name] = make_name(loops.back().name);
    }
    for (const Axis& axis : path.block->axes) {
      if (!is_spatial(axis)) continue;
      axes.push_back(axis);
      axes.back().binding = substitute(axis.binding, renamed);
    }
    around.insert(around.end(), loops.begin(), loops.end());
    for (const ExprPtr& condition : conditions_of(path.block->predicate))
      if (!mentions_reducing(path, condition)) predicate = both(predicate, substitute(condition, renamed));
    predicate = guard(program, around, predicate, axes);
  }
};

// The same with `stmts` before the loop at `depth`, or before the block itself.
std::vector<Stmt> insert_before(const Program& program, const Path& path, size_t depth, const Stmt& stmt) {
  const bool at_block = depth == path.loops.size();
  const Stmt target = at_block ? Stmt(path.block) : Stmt(path.loops[depth]);
  const std::vector<Stmt> both{stmt, target};
  return at_block ? replace_block(program.body, path.block->name, both) : replace_loop(program.body, path.loops[depth]->name, both);
}

void decompose(Program& program, const std::string& block, size_t depth, const std::string& init_name,
               std::vector<std::string>* made) {
  const std::vector<Path> all = paths(program);
  const Path path = need_block(all, block);
  std::set<std::string> used = used_names(program);
  used.insert(init_name);
  const SpatialNest spatial(program, path, depth, used, "_init");
  Block init;
  init.name = init_name;
  init.axes = spatial.axes;
  init.predicate = spatial.predicate;
  init.body = path.block->init;
  program.body = insert_before(program, path, depth, nest(spatial.loops, make_stmt(std::move(init))));
  Block update = *path.block;
  update.init.clear();
  program.body = replace_block(program.body, block, {make_stmt(std::move(update))});
  if (made != nullptr)
    for (const For& loop : spatial.loops) made->push_back(loop.name);
}

}  // namespace

void decompose_reduction(Draft& draft, const StepLine& line) {
  line.allow({"block", "loop"});
  const std::string& name = line.text("block");
  const std::vector<Path> all = paths(draft.current);
  const Path& path = need_block(all, name);
  if (path.block->init.empty()) throw_failure(NW_INVALID, -1, "block '%s' has no init", name.c_str());
  const ForPtr loop = need_loop(draft.current, line.text("loop"));
  const int depth = path.depth_of(loop->name);
  if (depth < 0) throw_failure(NW_INVALID, -1, "block '%s' is not within the loop '%s'", name.c_str(), loop->name.c_str());
  const size_t outermost = outermost_reducing(path);
  if (outermost < static_cast<size_t>(depth))
    throw_failure(
        NW_INVALID, -1,
        "loop '%s' is within the loop '%s', which feeds a reduction axis of block '%s': its init would run more than once",
        loop->name.c_str(), path.loops[outermost]->name.c_str(), name.c_str());
  std::set<std::string> used = used_names(draft.current);
  const std::string init = fresh_name(used, name + "_init");
  const std::vector<Path> original = paths(draft.reference);
  decompose(draft.reference, name, outermost_reducing(need_block(original, name)), init, nullptr);
  draft.changes_reference = true;
  draft.made = {init};
  decompose(draft.current, name, depth, init, nullptr);
}

namespace {

// What rfactor makes of a block: partial results over the loop, and a block that adds them up.
class Rfactor {
 public:
  Rfactor(Draft& draft, const StepLine& line) : draft_(draft) {
    line.allow({"loop", "axis"});
    loop_ = need_loop(draft.current, line.text("loop"));
    const std::vector<Path> below = paths_under(draft.current, loop_->name);
    if (below.size() != 1)
      throw_failure(NW_INVALID, -1, "loop '%s' holds %zu blocks; rfactor takes a loop of one", loop_->name.c_str(), below.size());
    path_ = below[0];
    require_form(line.number("axis", 0));
  }

  void run() {
    used_ = used_names(draft_.current);
    used_.merge(used_names(draft_.reference));
    make_buffer();
    make_partial();
    make_total();
    change_current();
    change_reference();
    draft_.changes_reference = true;
    draft_.made = {partial_.name};
  }

 private:
  void require_form(int64_t axis) {
    const Block& block = *path_.block;
    const char* const name = block.name.c_str();
    if (!feeds(block, loop_->name, false) || feeds(block, loop_->name, true))
      throw_failure(NW_INVALID, -1, "loop '%s' has to feed reduction axes of block '%s', and no other", loop_->name.c_str(), name);
    const auto is_carried = [](const Axis& it) { return it.kind == Axis::Kind::carried; };
    if (block.body.size() != 1 || !reduction_of(block.body[0]) || std::any_of(block.axes.begin(), block.axes.end(), is_carried))
      throw_failure(NW_INVALID, -1, "block '%s' is no reduction by one store", name);
    form_ = *reduction_of(block.body[0]);
    const int64_t rank = static_cast<int64_t>(block.body[0].indices.size());
    if (axis < -rank - 1 || axis > rank)
      throw_failure(NW_INVALID, -1, "axis %lld is no dimension of the partial results; expected %lld to %lld",
                    static_cast<long long>(axis), static_cast<long long>(-rank - 1), static_cast<long long>(rank));
    axis_ = static_cast<size_t>(axis < 0 ? axis + rank + 1 : axis);
    for (const ForPtr& other : path_.loops) {
      const std::set<std::string> names = names_in(loop_->extent);
      if (names.count(other->name) > 0)
        throw_failure(NW_INVALID, -1, "the extent of loop '%s' depends on the loop '%s'", loop_->name.c_str(), other->name.c_str());
    }
  }

  const Store& store() const { return path_.block->body[0]; }

  void make_buffer() {
    buffer_ = *find_buffer(draft_.current, store().buffer);
    buffer_.name = fresh_name(used_, store().buffer + "_rf");
    buffer_.role = Buffer::Role::allocated;
    buffer_.optional = false;
    buffer_.padding.clear();
    buffer_.shape.insert(buffer_.shape.begin() + static_cast<std::ptrdiff_t>(axis_), loop_->extent);
    draft_.current.allocations.push_back(buffer_);
    draft_.reference.allocations.push_back(buffer_);
  }

  std::vector<ExprPtr> partial_place(const std::string& axis) const {
    std::vector<ExprPtr> out = store().indices;
    out.insert(out.begin() + static_cast<std::ptrdiff_t>(axis_), make_name(axis));
    return out;
  }

  // Y_rf[v, s] = Y_rf[v, s] ⊕ e, where the loop is a spatial axis v, and each other loop that fed a reduction axis with it is one
  // of its own.
  void make_partial() {
    partial_.name = fresh_block(draft_.current, draft_.reference, path_.block->name + "_rf");
    used_.insert(partial_.name);
    partial_.notes = path_.block->notes;
    factor_ = fresh_name(used_, "v" + loop_->name);
    partial_.axes.push_back({factor_, Axis::Kind::spatial, loop_->extent, make_name(loop_->name)});
    Substitution of_body, of_loops;
    of_loops[loop_->name] = make_name(factor_);
    ExprPtr inside;
    for (const Axis& axis : path_.block->axes) {
      if (!mentions(axis.binding, loop_->name)) {
        partial_.axes.push_back(axis);
        continue;
      }
      for (const ForPtr& other : path_.loops) add_axis(axis, *other, of_loops);
      of_body[axis.name] = substitute(axis.binding, of_loops);
    }
    for (const ExprPtr& condition : conditions_of(path_.block->predicate)) inside = both(inside, of_reduction(condition, of_loops));
    for (const Axis& axis : path_.block->axes) {
      if (of_body.count(axis.name) > 0 && !is_within(draft_.current, domain(), inside, of_body[axis.name], axis.extent))
        inside = both(inside, make_call("lt", {of_body[axis.name], axis.extent}));
    }
    require_once(of_body, inside);
    const ExprPtr identity = identity_of(form_.combine, buffer_.dtype);
    ExprPtr element = substitute(form_.element, of_body);
    if (inside != nullptr) element = make_call("where", {inside, element, identity});
    const std::vector<ExprPtr> place = partial_place(factor_);
    const bool reduces =
        std::any_of(partial_.axes.begin(), partial_.axes.end(), [](const Axis& axis) { return !is_spatial(axis); });
    if (reduces) {
      partial_.init = {{buffer_.name, place, identity}};
      element = make_call(form_.combine, {make_load(buffer_.name, buffer_.dtype, place), element});
    }
    partial_.body = {{buffer_.name, place, element}};
  }

  // The part of the predicate that speaks of the new axes alone; NULL where it speaks of none. One that mixes both is not taken
  // apart.
  ExprPtr of_reduction(const ExprPtr& condition, const Substitution& of_loops) const {
    bool of_new = false, of_others = false;
    for (const ForPtr& loop : path_.loops)
      if (mentions(condition, loop->name)) (of_loops.count(loop->name) > 0 ? of_new : of_others) = true;
    if (of_new && of_others)
      throw_failure(NW_INVALID, -1,
                    "the condition %s of block '%s' depends on the loop '%s' and on others that it does not reduce over",
                    print(condition).c_str(), path_.block->name.c_str(), loop_->name.c_str());
    return of_new ? substitute(condition, of_loops) : nullptr;
  }

  // No two points of the new axes are one point of the reduction. None is left out: each runs (V1), so some values of the loops,
  // which are the new axes, give it.
  void require_once(const Substitution& of_body, const ExprPtr& inside) const {
    const auto place = [&](Affine& affine) {
      Values out;
      for (const Axis& axis : partial_.axes) out.set(axis.name, affine.variable(axis.name, axis.extent, out));
      affine.assume(inside, true, out);
      return out;
    };
    const auto meets = [&](const Axis& differs, Choices& choices) {
      Affine affine(draft_.current, choices);
      const Values one = place(affine);
      const Values other = place(affine);
      affine.system.less(*one.find(differs.name), *other.find(differs.name));
      for (const Axis& axis : partial_.axes)
        if (!is_new(axis)) affine.system.equal(*one.find(axis.name), *other.find(axis.name));
      for (const Axis& axis : path_.block->axes) {
        const auto found = of_body.find(axis.name);
        if (found != of_body.end()) affine.system.equal(affine.index(found->second, one), affine.index(found->second, other));
      }
      return !affine.system.is_empty();
    };
    try {
      for (const Axis& differs : partial_.axes) {
        if (is_new(differs) && explore([&](Choices& choices) { return meets(differs, choices); }))
          throw_failure(NW_INVALID, -1, "block '%s' would reduce a point twice", path_.block->name.c_str());
      }
    } catch (const Unproven& reason) {
      throw_failure(NW_INVALID, -1, "that each point is reduced once could not be proven: %s", reason.why.c_str());
    }
  }

  // Another loop of the same axis becomes an axis.
  void add_axis(const Axis& axis, const For& other, Substitution& of_loops) {
    if (other.name == loop_->name || !mentions(axis.binding, other.name) || of_loops.count(other.name) > 0) return;
    if (feeds(*path_.block, other.name, true))
      throw_failure(NW_INVALID, -1, "loop '%s' feeds a spatial axis and a reduction axis of block '%s'", other.name.c_str(),
                    path_.block->name.c_str());
    for (const ForPtr& around : path_.loops) {
      if (mentions(other.extent, around->name))
        throw_failure(NW_INVALID, -1, "the extent of loop '%s' depends on the loop '%s'", other.name.c_str(), around->name.c_str());
    }
    const std::string name = fresh_name(used_, "v" + other.name);
    partial_.axes.push_back({name, Axis::Kind::reduction, other.extent, make_name(other.name)});
    of_loops[other.name] = make_name(name);
  }

  bool is_new(const Axis& axis) const {
    const std::vector<Axis>& old = path_.block->axes;
    return std::none_of(old.begin(), old.end(), [&](const Axis& it) { return it.name == axis.name; });
  }

  bool mentions_new(const ExprPtr& condition) const {
    return std::any_of(partial_.axes.begin(), partial_.axes.end(),
                       [&](const Axis& axis) { return is_new(axis) && mentions(condition, axis.binding->name); });
  }

  std::vector<For> domain() const {
    std::vector<For> out;
    out.reserve(partial_.axes.size());
    for (const Axis& axis : partial_.axes) out.push_back(make_loop(axis.name, axis.extent));
    return out;
  }

  // Y[s] = Y[s] ⊕ Y_rf[v, s], with the block's own name and init.
  void make_total() {
    total_.name = path_.block->name;
    total_.init = path_.block->init;
    const ExprPtr partial = make_load(buffer_.name, buffer_.dtype, partial_place(factor_));
    const ExprPtr target = make_load(store().buffer, buffer_.dtype, store().indices);
    total_.body = {{store().buffer, store().indices, make_call(form_.combine, {target, partial})}};
  }

  // The total's nest: the spatial points that the loops from `depth` on reach, and the partial results of each.
  Stmt total_nest(const Program& program, const Path& path, size_t depth) {
    SpatialNest spatial(program, path, depth, used_, "");
    spatial.loops.push_back(make_loop(fresh_name(used_, loop_->name), loop_->extent));
    Block block = total_;
    block.predicate = spatial.predicate;
    block.axes = spatial.axes;
    block.axes.push_back({factor_, Axis::Kind::reduction, loop_->extent, make_name(spatial.loops.back().name)});
    return nest(spatial.loops, make_stmt(std::move(block)));
  }

  void change_current() {
    const size_t depth = outermost_reducing(path_);
    const Stmt total = total_nest(draft_.current, path_, depth);
    Block partial = partial_;
    std::vector<For> around;
    around.reserve(path_.loops.size());
    for (const ForPtr& loop : path_.loops) around.push_back(*loop);
    for (const ExprPtr& condition : conditions_of(path_.block->predicate))
      if (!mentions(condition, loop_->name) && !mentions_new(condition)) partial.predicate = both(partial.predicate, condition);
    partial.predicate = guard(draft_.current, around, partial.predicate, partial.axes);
    const std::vector<Stmt> inner = replace_block({path_.loops[depth]}, path_.block->name, {make_stmt(std::move(partial))});
    draft_.current.body = replace_loop(draft_.current.body, path_.loops[depth]->name, {inner[0], total});
  }

  // In the reference each reduction axis of the partial block is a loop of its own.
  void change_reference() {
    const std::vector<Path> all = paths(draft_.reference);
    const Path path = need_block(all, path_.block->name);
    const size_t depth = outermost_reducing(path);
    if (depth == path.loops.size())
      throw_failure(NW_INVALID, -1, "no loop feeds a reduction axis of block '%s'", path.block->name.c_str());
    if (paths_under(draft_.reference, path.loops[depth]->name).size() != 1)
      throw_failure(NW_INVALID, -1, "in the unscheduled program the loop '%s' holds other blocks than '%s'",
                    path.loops[depth]->name.c_str(), path.block->name.c_str());
    const Stmt total = total_nest(draft_.reference, path, depth);
    SpatialNest spatial(draft_.reference, path, depth, used_, "");
    Block partial = partial_;
    partial.predicate = spatial.predicate;
    for (Axis& axis : partial.axes) {
      const auto old = std::find_if(spatial.axes.begin(), spatial.axes.end(), [&](const Axis& it) { return it.name == axis.name; });
      if (old != spatial.axes.end()) {
        axis.binding = old->binding;
        continue;
      }
      spatial.loops.push_back(make_loop(fresh_name(used_, axis.name.substr(1)), axis.extent));
      axis.binding = make_name(spatial.loops.back().name);
    }
    draft_.reference.body =
        replace_loop(draft_.reference.body, path.loops[depth]->name, {nest(spatial.loops, make_stmt(std::move(partial))), total});
  }

  Draft& draft_;
  ForPtr loop_;
  Path path_;
  Reduction form_;
  size_t axis_ = 0;
  Buffer buffer_;
  Block partial_, total_;
  std::string factor_;
  std::set<std::string> used_;
};

}  // namespace

void rfactor(Draft& draft, const StepLine& line) { Rfactor(draft, line).run(); }

}  // namespace narrows::program
