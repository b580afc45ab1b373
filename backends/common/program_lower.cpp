// SPDX-License-Identifier: Apache-2.0
// program_lower.cpp -- see program_lower.h. program_place.cpp places and shrinks the allocations, program_lanes.cpp moves vectors
// inwards.
#include "program_lower.h"

#include <algorithm>
#include <utility>

#include "core/program/expr.h"
#include "core/program/intrinsics.h"
#include "program_lanes.h"
#include "program_place.h"

namespace narrows::common {
namespace {

using Axis = ir::Axis;
using Path = std::vector<const ir::For*>;  // the loops around a statement, the outermost first

std::optional<UnitProduct> product_of(const ir::For& loop) {
  if (loop.kind != ir::For::Kind::tensorize) return std::nullopt;
  const ir::Product found = ir::require_product(loop);
  const auto name = [](const ir::For* role) { return role == nullptr ? "" : role->name; };
  return UnitProduct{loop.intrinsic, name(found.m), name(found.n), name(found.k)};
}

bool may_contract(const ir::Block& block) {
  return std::any_of(block.notes.begin(), block.notes.end(),
                     [](const auto& note) { return note.first == "contract" && note.second == "true"; });
}

// A loop that is pipelined or a matrix unit's runs in order: those are promises about it.
ir::For::Kind kind_of(const ir::For& loop) {
  const bool is_marked = loop.kind == ir::For::Kind::pipeline || loop.kind == ir::For::Kind::tensorize;
  return is_marked ? ir::For::Kind::serial : loop.kind;
}

// ---- blocks ----

ir::Substitution bindings(const ir::Block& block) {
  ir::Substitution out;
  for (const Axis& axis : block.axes) out[axis.name] = axis.binding;
  return out;
}

std::vector<ir::Store> replaced(const std::vector<ir::Store>& stores, const ir::Substitution& values) {
  std::vector<ir::Store> out = stores;
  for (ir::Store& store : out) {
    for (ir::ExprPtr& index : store.indices) index = ir::substitute(index, values);
    store.value = ir::substitute(store.value, values);
  }
  return out;
}

Node updates(const ir::Block& block) {
  Node out;
  out.name = block.name;
  const ir::Substitution values = bindings(block);
  split_conjunction(ir::substitute(block.predicate, values), &out.conditions);
  out.stores = replaced(block.body, values);
  out.contract = may_contract(block);
  return out;
}

// The loops of `path` that lead to the block's spatial axes, or to its other ones. Sizes stand in bindings, too.
Names loops_bound(const ir::Block& block, const Path& path, bool spatial) {
  Names names, out;
  for (const Axis& axis : block.axes)
    if ((axis.kind == Axis::Kind::spatial) == spatial) collect_names(axis.binding, &names);
  for (const ir::For* loop : path)
    if (names.count(loop->name) != 0) out.insert(loop->name);
  return out;
}

bool runs_once(const ir::For& loop) { return ir::constant(loop.extent) == 1; }

// The place in `path` of the loop before which the block's init happens; its length where that is beside the updates.
size_t init_depth(const ir::Block& block, const Path& path) {
  const Names feeding = loops_bound(block, path, false);
  const auto found = std::find_if(path.begin(), path.end(),
                                  [&](const ir::For* loop) { return feeding.count(loop->name) != 0 && !runs_once(*loop); });
  return static_cast<size_t>(found - path.begin());
}

// ---- inits ----

// Whether there are sizes at which the block's reduction has no points.
bool may_be_empty(const ir::Block& block) {
  return std::any_of(block.axes.begin(), block.axes.end(), [](const Axis& axis) {
    return axis.kind != Axis::Kind::spatial && ir::constant(axis.extent).value_or(0) < 1;
  });
}

// Whether the axis is a loop of its own extent, and so never outside of it.
bool is_loop(const Axis& axis, const Path& path) {
  return axis.binding->kind == ir::Expr::Kind::name && std::any_of(path.begin(), path.end(), [&](const ir::For* loop) {
           return loop->name == axis.binding->name && ir::same(loop->extent, axis.extent);
         });
}

// The conditions under which a point is initialised. First, those of the updates that no reduction decides. Second, that the point
// is one of the domain: where a loop leads to both kinds of axes, or is in a condition or an extent with a loop of the reduction;
// and where the reduction may have no points, since the verifier proves the domain for updates only.
std::vector<ir::ExprPtr> init_conditions(const ir::Block& block, const Path& path) {
  const Names reducing = loops_bound(block, path, false);
  const ir::Substitution values = bindings(block);
  std::vector<ir::ExprPtr> all, out;
  split_conjunction(ir::substitute(block.predicate, values), &all);
  std::copy_if(all.begin(), all.end(), std::back_inserter(out), [&](const ir::ExprPtr& c) { return !mentions(c, reducing); });
  Names doubtful = reducing;  // loops that a condition may hold back which the init has not
  for (const ir::ExprPtr& c : all)
    if (mentions(c, reducing)) collect_names(c, &doubtful);
  for (const ir::For* loop : path)
    if (reducing.count(loop->name) != 0) collect_names(loop->extent, &doubtful);
  for (const Axis& axis : block.axes) {
    if (axis.kind != Axis::Kind::spatial) continue;
    if (!mentions(axis.binding, doubtful) && (!may_be_empty(block) || is_loop(axis, path))) continue;
    out.push_back(ir::make_call("ge", {axis.binding, ir::make_integer(0)}));
    out.push_back(ir::make_call("lt", {axis.binding, axis.extent}));
  }
  return out;
}

// A block's init under copies of the loops of path[from…] that lead to its spatial axes.
Node init_nest(const ir::Block& block, const Path& path, size_t from) {
  const Names spatial = loops_bound(block, path, true);
  Node out;
  out.name = block.name;
  out.is_init = true;
  ir::Substitution renamed;
  for (size_t i = from; i < path.size(); ++i)  // a loop that is left out is at its first iteration
    renamed[path[i]->name] = spatial.count(path[i]->name) != 0 ? ir::make_name(path[i]->name + ".init") : ir::make_integer(0);
  for (const ir::ExprPtr& condition : init_conditions(block, path))
    split_conjunction(ir::substitute(condition, renamed), &out.conditions);
  out.stores = replaced(replaced(block.init, bindings(block)), renamed);
  for (size_t i = path.size(); i-- > from;) {
    if (spatial.count(path[i]->name) == 0) continue;
    Node loop;
    loop.kind = Node::Kind::loop;
    loop.name = path[i]->name + ".init";
    loop.extent = ir::substitute(path[i]->extent, renamed);
    loop.loop_kind = kind_of(*path[i]);
    loop.thread = path[i]->thread;
    loop.body.push_back(std::move(out));
    out = std::move(loop);
  }
  return out;
}

// ---- the walk ----

class Walk {
 public:
  // The nodes of a statement. Inits that belong before a loop further out wait in `waiting_`.
  std::vector<Node> statement(const ir::Stmt& stmt) {
    if (const auto* loop = std::get_if<std::shared_ptr<const ir::For>>(&stmt)) return nest(**loop);
    const ir::Block& block = *std::get<std::shared_ptr<const ir::Block>>(stmt);
    std::vector<Node> out;
    if (!block.init.empty()) {
      const size_t depth = init_depth(block, path_);
      Node init = init_nest(block, path_, depth);
      if (depth == path_.size())
        out.push_back(std::move(init));
      else
        waiting_.emplace_back(depth, std::move(init));
    }
    out.push_back(updates(block));
    return out;
  }

 private:
  std::vector<Node> nest(const ir::For& loop) {
    Node node;
    node.kind = Node::Kind::loop;
    node.name = loop.name;
    node.extent = loop.extent;
    node.loop_kind = kind_of(loop);
    node.thread = loop.thread;
    node.product = product_of(loop);
    node.stages = loop.stages;
    path_.push_back(&loop);
    for (const ir::Stmt& stmt : loop.body)
      for (Node& child : statement(stmt)) node.body.push_back(std::move(child));
    path_.pop_back();
    std::vector<Node> out;
    for (auto& [depth, init] : waiting_)
      if (depth == path_.size()) out.push_back(std::move(init));
    std::erase_if(waiting_, [&](const auto& entry) { return entry.first == path_.size(); });
    out.push_back(std::move(node));
    return out;
  }

  Path path_;
  std::vector<std::pair<size_t, Node>> waiting_;  // the depth of the loop before which it happens
};

}  // namespace

std::optional<size_t> fusible_product(const ir::Expr& expr, bool contract) {
  const bool sum = contract && expr.kind == ir::Expr::Kind::call && expr.name == "add" &&
                   (expr.dtype == ir::DType::f32 || expr.dtype == ir::DType::f64);
  for (size_t i = 2; sum && i-- > 0;)
    if (expr.operands[i]->kind == ir::Expr::Kind::call && expr.operands[i]->name == "mul") return i;
  return std::nullopt;
}

void collect_extents(const std::vector<Node>& body, Extents* extents) {
  for (const Node& node : body) {
    if (node.kind != Node::Kind::loop) continue;
    if (const auto extent = ir::constant(node.extent); extent.has_value()) (*extents)[node.name] = *extent;
    collect_extents(node.body, extents);
  }
}

Lowered lower_loops(const ir::Program& program) {
  Lowered out;
  out.program = program;
  out.allocations = program.allocations;
  Walk walk;
  for (const ir::Stmt& stmt : program.body)
    for (Node& node : walk.statement(stmt)) out.body.push_back(std::move(node));
  out.program.body.clear();
  return out;
}

Lowered lower(const ir::Program& program) {
  Lowered out = lower_loops(program);
  place_allocations(&out);
  move_lanes_inwards(&out);
  return out;
}

}  // namespace narrows::common
