// SPDX-License-Identifier: Apache-2.0
// tree.cpp -- see tree.h.
#include "core/program/tree.h"

#include <algorithm>
#include <utility>

#include "core/program/walk.h"

namespace narrows::program {
namespace {

const ForPtr* as_loop(const Stmt& stmt) { return std::get_if<ForPtr>(&stmt); }

void collect(const std::vector<Stmt>& body, Path& path, std::vector<Path>& out) {
  for (int i = 0; i < static_cast<int>(body.size()); ++i) {
    path.at.push_back(i);
    if (const ForPtr* const loop = as_loop(body[i])) {
      path.loops.push_back(*loop);
      collect((*loop)->body, path, out);
      path.loops.pop_back();
    } else {
      path.block = std::get<BlockPtr>(body[i]);
      out.push_back(path);
    }
    path.at.pop_back();
  }
}

void collect_names(const std::vector<Stmt>& body, std::set<std::string>& out) {
  for (const Stmt& stmt : body) {
    if (const ForPtr* const loop = as_loop(stmt)) {
      out.insert((*loop)->name);
      collect_names((*loop)->body, out);
      continue;
    }
    const Block& block = *std::get<BlockPtr>(stmt);
    out.insert(block.name);
    for (const Axis& axis : block.axes) out.insert(axis.name);
  }
}

}  // namespace

int Path::depth_of(const std::string& loop) const {
  const auto found = std::find_if(loops.begin(), loops.end(), [&](const ForPtr& it) { return it->name == loop; });
  return found == loops.end() ? -1 : static_cast<int>(found - loops.begin());
}

std::vector<Path> paths(const Program& program) {
  std::vector<Path> out;
  Path path;
  collect(program.body, path, out);
  return out;
}

std::vector<std::string> block_names(const std::vector<Stmt>& body) {
  std::vector<std::string> out;
  for (const Stmt& stmt : body) {
    if (const ForPtr* const loop = as_loop(stmt)) {
      const std::vector<std::string> inner = block_names((*loop)->body);
      out.insert(out.end(), inner.begin(), inner.end());
    } else {
      out.push_back(std::get<BlockPtr>(stmt)->name);
    }
  }
  return out;
}

ForPtr find_loop(const std::vector<Stmt>& body, const std::string& name) {
  for (const Stmt& stmt : body) {
    const ForPtr* const loop = as_loop(stmt);
    if (loop == nullptr) continue;
    if ((*loop)->name == name) return *loop;
    if (ForPtr inner = find_loop((*loop)->body, name)) return inner;
  }
  return nullptr;
}

int common_loops(const Path& a, const Path& b) {
  const size_t most = std::min(a.loops.size(), b.loops.size());
  size_t depth = 0;
  while (depth < most && a.loops[depth] == b.loops[depth] && a.at[depth] == b.at[depth]) ++depth;
  return static_cast<int>(depth);
}

std::vector<Stmt> edit(const std::vector<Stmt>& body, const Change& change) {
  std::vector<Stmt> out;
  out.reserve(body.size());
  for (const Stmt& stmt : body) {
    if (const auto changed = change(stmt)) {
      out.insert(out.end(), changed->begin(), changed->end());
      continue;
    }
    const ForPtr* const loop = as_loop(stmt);
    if (loop == nullptr) {
      out.push_back(stmt);
      continue;
    }
    std::vector<Stmt> inner = edit((*loop)->body, change);
    if (inner == (*loop)->body) {
      out.push_back(stmt);
    } else if (!inner.empty()) {
      For copy = **loop;
      copy.body = std::move(inner);
      out.push_back(make_stmt(std::move(copy)));
    }
  }
  return out;
}

std::vector<Stmt> replace_loop(const std::vector<Stmt>& body, const std::string& loop, const std::vector<Stmt>& with) {
  return edit(body, [&](const Stmt& stmt) -> std::optional<std::vector<Stmt>> {
    const ForPtr* const found = as_loop(stmt);
    return found != nullptr && (*found)->name == loop ? std::optional(with) : std::nullopt;
  });
}

std::vector<Stmt> replace_block(const std::vector<Stmt>& body, const std::string& block, const std::vector<Stmt>& with) {
  return edit(body, [&](const Stmt& stmt) -> std::optional<std::vector<Stmt>> {
    return as_loop(stmt) == nullptr && std::get<BlockPtr>(stmt)->name == block ? std::optional(with) : std::nullopt;
  });
}

std::vector<Stmt> edit_blocks(const std::vector<Stmt>& body, const std::function<void(Block&)>& change) {
  return edit(body, [&](const Stmt& stmt) -> std::optional<std::vector<Stmt>> {
    if (as_loop(stmt) != nullptr) return std::nullopt;
    Block copy = *std::get<BlockPtr>(stmt);
    change(copy);
    return std::vector<Stmt>{make_stmt(std::move(copy))};
  });
}

Stmt make_stmt(For loop) { return std::make_shared<const For>(std::move(loop)); }
Stmt make_stmt(Block block) { return std::make_shared<const Block>(std::move(block)); }

std::set<std::string> used_names(const Program& program) {
  std::set<std::string> out;
  for (const auto* list : {&program.tensors, &program.allocations}) {
    for (const Buffer& buffer : *list) {
      out.insert(buffer.name);
      for (const ExprPtr& dim : buffer.shape) out.merge(names_in(dim));
    }
  }
  for (const Param& param : program.params) out.insert(param.name);
  collect_names(program.body, out);
  return out;
}

std::string fresh_name(std::set<std::string>& used, const std::string& wanted) {
  std::string name = wanted;
  for (int i = 1; !used.insert(name).second; ++i) name = wanted + "_" + std::to_string(i);
  return name;
}

std::string fresh_block(const Program& program, const Program& other, const std::string& wanted) {
  std::set<std::string> used;
  collect_names(program.body, used);
  collect_names(other.body, used);
  return fresh_name(used, wanted);
}

bool mentions(const ExprPtr& expr, const std::string& name) {
  if (expr == nullptr) return false;
  if (expr->kind == Expr::Kind::name && expr->name == name) return true;
  return std::any_of(expr->operands.begin(), expr->operands.end(), [&](const ExprPtr& e) { return mentions(e, name); });
}

ExprPtr rewrite(const ExprPtr& expr, const std::function<ExprPtr(const ExprPtr&)>& change) {
  if (expr == nullptr) return nullptr;
  if (ExprPtr changed = change(expr)) return changed;
  std::vector<ExprPtr> operands;
  operands.reserve(expr->operands.size());
  for (const ExprPtr& operand : expr->operands) operands.push_back(rewrite(operand, change));
  if (operands == expr->operands) return expr;
  Expr copy = *expr;
  copy.operands = std::move(operands);
  return std::make_shared<const Expr>(std::move(copy));
}

}  // namespace narrows::program
