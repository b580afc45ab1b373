// SPDX-License-Identifier: Apache-2.0
// walk.cpp -- see walk.h.
#include "core/program/walk.h"

#include <algorithm>

#include "core/program/expr.h"

namespace narrows::program {
namespace {

void walk(const std::vector<Stmt>& body, Loops& loops, const std::function<void(const Block&, const Loops&)>& visit) {
  for (const Stmt& stmt : body) {
    if (const auto* block = std::get_if<std::shared_ptr<const Block>>(&stmt)) {
      visit(**block, loops);
      continue;
    }
    loops.push_back(std::get<std::shared_ptr<const For>>(stmt));
    walk(loops.back()->body, loops, visit);
    loops.pop_back();
  }
}

template <class T>
const T* find_named(const std::vector<T>& list, const std::string& name) {
  const auto found = std::find_if(list.begin(), list.end(), [&](const T& item) { return item.name == name; });
  return found == list.end() ? nullptr : &*found;
}

bool alike(const Buffer& a, const Buffer& b);
bool alike(const Param& a, const Param& b);
bool alike(const Axis& a, const Axis& b);
bool alike(const Store& a, const Store& b);
bool alike(const Stmt& a, const Stmt& b);

bool same_all(const auto& a, const auto& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) { return alike(x, y); });
}

bool alike(const Buffer& a, const Buffer& b) {
  return a.name == b.name && a.dtype == b.dtype && a.role == b.role && a.scope == b.scope && a.optional == b.optional &&
         a.padding == b.padding && same(a.shape, b.shape);
}
bool alike(const Param& a, const Param& b) { return a.name == b.name && a.dtype == b.dtype && same(a.value, b.value); }
bool alike(const Axis& a, const Axis& b) {
  return a.name == b.name && a.kind == b.kind && same(a.extent, b.extent) && same(a.binding, b.binding);
}
bool alike(const Store& a, const Store& b) { return a.buffer == b.buffer && same(a.indices, b.indices) && same(a.value, b.value); }
bool alike(const Block& a, const Block& b) {
  return a.name == b.name && same(a.predicate, b.predicate) && a.notes == b.notes && same_all(a.axes, b.axes) &&
         same_all(a.init, b.init) && same_all(a.body, b.body);
}
bool alike(const Stmt& a, const Stmt& b) {
  if (a.index() != b.index()) return false;
  if (a.index() == 1) return alike(*std::get<1>(a), *std::get<1>(b));
  const For& x = *std::get<0>(a);
  const For& y = *std::get<0>(b);
  return x.name == y.name && x.kind == y.kind && x.thread == y.thread && x.stages == y.stages && x.intrinsic == y.intrinsic &&
         x.notes == y.notes && same(x.extent, y.extent) && same_all(x.body, y.body);
}

}  // namespace

void for_each_block(const Program& program, const std::function<void(const Block&, const Loops&)>& visit) {
  Loops loops;
  walk(program.body, loops, visit);
}

void for_each_part(const ExprPtr& expr, const std::function<void(const Expr&)>& visit) {
  if (expr == nullptr) return;
  visit(*expr);
  for (const ExprPtr& operand : expr->operands) for_each_part(operand, visit);
}

void for_each_load(const ExprPtr& expr, const std::function<void(const Expr&)>& visit) {
  for_each_part(expr, [&](const Expr& part) {
    if (part.kind == Expr::Kind::load) visit(part);
  });
}

void for_each_load(const Block& block, const std::function<void(const Expr&)>& visit) {
  for (const std::vector<Store>* stores : {&block.init, &block.body}) {
    for (const Store& store : *stores) {
      for (const ExprPtr& index : store.indices) for_each_load(index, visit);
      for_each_load(store.value, visit);
    }
  }
}

std::set<std::string> names_in(const ExprPtr& expr) {
  std::set<std::string> out;
  for_each_part(expr, [&](const Expr& part) {
    if (part.kind == Expr::Kind::name) out.insert(part.name);
  });
  return out;
}

const Buffer* find_buffer(const Program& program, const std::string& name) {
  const Buffer* const tensor = find_named(program.tensors, name);
  return tensor != nullptr ? tensor : find_named(program.allocations, name);
}

const Param* find_param(const Program& program, const std::string& name) { return find_named(program.params, name); }

bool same(const Program& a, const Program& b) {
  return a.name == b.name && same_all(a.tensors, b.tensors) && same_all(a.params, b.params) &&
         same_all(a.allocations, b.allocations) && same_all(a.body, b.body);
}

}  // namespace narrows::program
