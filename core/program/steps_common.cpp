// SPDX-License-Identifier: Apache-2.0
// steps_common.cpp -- see steps.h.
#include <algorithm>

#include "core/error.h"
#include "core/near.h"
#include "core/program/affine.h"
#include "core/program/expr.h"
#include "core/program/steps.h"
#include "core/program/walk.h"

namespace narrows::program {
namespace {

// Loops and their values; false where a loop's extent is not understood.
Values place(Affine& affine, const std::vector<For>& loops) {
  Values values;
  for (const For& loop : loops) values.set(loop.name, affine.variable(loop.name, loop.extent, values));
  return values;
}

void collect_loops(const std::vector<Stmt>& body, std::vector<std::string>& out) {
  for (const Stmt& stmt : body) {
    if (const ForPtr* const loop = std::get_if<ForPtr>(&stmt)) {
      out.push_back((*loop)->name);
      collect_loops((*loop)->body, out);
    }
  }
}

// "; it became 'j_0', 'j_1'" of a loop that was split; "" where no loop has such a name.
std::string parts_of(const std::string& name, const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& part : names)
    if (part.size() > name.size() + 1 && part.rfind(name + "_", 0) == 0 && part[name.size() + 1] >= '0' &&
        part[name.size() + 1] <= '9')
      out += (out.empty() ? "; it became '" : ", '") + part + "'";
  return out;
}

}  // namespace

std::string instead_of(const std::string& name, const std::vector<std::string>& names) {
  constexpr size_t kShown = 16;
  const std::string near = did_you_mean(name, names);
  std::string out = near.empty() ? "; there " : near + " there ";
  if (names.empty()) return out + "is none";
  out += "are: ";
  for (size_t i = 0; i < std::min(names.size(), kShown); ++i) out += (i == 0 ? "" : ", ") + names[i];
  return out + (names.size() > kShown ? ", ..." : "");
}

const Path& need_block(const std::vector<Path>& all, const std::string& name) {
  for (const Path& path : all)
    if (path.block->name == name) return path;
  std::vector<std::string> names;
  names.reserve(all.size());
  for (const Path& path : all) names.push_back(path.block->name);
  throw_failure(NW_INVALID, -1, "there is no block '%s'%s", name.c_str(), instead_of(name, names).c_str());
}

ForPtr need_loop(const Program& program, const std::string& name) {
  if (ForPtr found = find_loop(program.body, name)) return found;
  std::vector<std::string> names;
  collect_loops(program.body, names);
  const std::string parts = parts_of(name, names);
  throw_failure(NW_INVALID, -1, "there is no loop '%s'%s", name.c_str(),
                parts.empty() ? instead_of(name, names).c_str() : parts.c_str());
}

void require_unbound(const For& loop) {
  if (loop.kind == For::Kind::bind)
    throw_failure(NW_INVALID, -1, "loop '%s' is bound to %s; expected a loop without a thread", loop.name.c_str(),
                  loop.thread.c_str());
}

std::vector<Path> paths_under(const Program& program, const std::string& loop) {
  std::vector<Path> out;
  for (Path& path : paths(program))
    if (path.depth_of(loop) >= 0) out.push_back(std::move(path));
  return out;
}

Buffer& need_allocation(Program& program, const std::string& name) {
  for (Buffer& buffer : program.allocations)
    if (buffer.name == name) return buffer;
  if (find_buffer(program, name) != nullptr)
    throw_failure(NW_INVALID, -1, "'%s' is a tensor of the caller's, not an allocated buffer", name.c_str());
  std::vector<std::string> names;
  names.reserve(program.allocations.size());
  for (const Buffer& buffer : program.allocations) names.push_back(buffer.name);
  throw_failure(NW_INVALID, -1, "there is no allocated buffer '%s'%s", name.c_str(), instead_of(name, names).c_str());
}

Buffer::Scope parse_scope(const std::string& name) {
  if (name == "global") return Buffer::Scope::global;
  if (name == "shared") return Buffer::Scope::shared;
  if (name == "local") return Buffer::Scope::local;
  throw_failure(NW_INVALID, -1, "scope '%s' is none of global, shared and local", name.c_str());
}

Stmt nest(const std::vector<For>& loops, Stmt inner) {
  for (size_t i = loops.size(); i-- > 0;) {
    For loop = loops[i];
    loop.body = {std::move(inner)};
    inner = make_stmt(std::move(loop));
  }
  return inner;
}

For make_loop(std::string name, ExprPtr extent) {
  For out;
  out.name = std::move(name);
  out.extent = std::move(extent);
  return out;
}

bool is_within(const Program& program, const std::vector<For>& loops, const ExprPtr& predicate, const ExprPtr& value,
               const ExprPtr& extent) {
  try {
    return !explore([&](Choices& choices) {
      Affine affine(program, choices);
      const Values values = place(affine, loops);
      affine.assume(predicate, true, values);
      affine.system.not_negative(affine.index(value, values) - affine.index(extent, values));
      return !affine.system.is_empty();
    });
  } catch (const Unproven&) {
    return false;
  }
}

bool is_never_negative(const Program& program, const std::vector<For>& loops, const ExprPtr& predicate, const ExprPtr& value) {
  try {
    return !explore([&](Choices& choices) {
      Affine affine(program, choices);
      const Values values = place(affine, loops);
      affine.assume(predicate, true, values);
      affine.system.less(affine.index(value, values), number(0));
      return !affine.system.is_empty();
    });
  } catch (const Unproven&) {
    return false;
  }
}

ExprPtr both(const ExprPtr& a, const ExprPtr& b) {
  if (a == nullptr || b == nullptr) return a == nullptr ? b : a;
  return make_call("logical_and", {a, b});
}

ExprPtr guard(const Program& program, const std::vector<For>& loops, const ExprPtr& predicate, const std::vector<Axis>& axes) {
  ExprPtr out = predicate;
  for (const Axis& axis : axes) {
    if (!is_never_negative(program, loops, out, axis.binding)) out = both(out, make_call("ge", {axis.binding, make_integer(0)}));
    if (!is_within(program, loops, out, axis.binding, axis.extent)) out = both(out, make_call("lt", {axis.binding, axis.extent}));
  }
  return out;
}

std::vector<ExprPtr> conditions_of(const ExprPtr& predicate) {
  if (predicate == nullptr) return {};
  if (predicate->kind != Expr::Kind::call || predicate->name != "logical_and") return {predicate};
  std::vector<ExprPtr> out = conditions_of(predicate->operands[0]);
  for (ExprPtr& condition : conditions_of(predicate->operands[1])) out.push_back(std::move(condition));
  return out;
}

bool loads(const Block& block, const std::string& buffer) {
  bool out = false;
  for_each_load(block, [&](const Expr& load) { out = out || load.name == buffer; });
  return out;
}

bool stores(const Block& block, const std::string& buffer) {
  const auto is_it = [&](const Store& store) { return store.buffer == buffer; };
  return std::any_of(block.body.begin(), block.body.end(), is_it) || std::any_of(block.init.begin(), block.init.end(), is_it);
}

}  // namespace narrows::program
