// SPDX-License-Identifier: Apache-2.0
// copies.cpp -- see copies.h.
#include "program/copies.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>

#include "core/program/expr.h"
#include "core/program/walk.h"

namespace narrows::cpu {
namespace {

using namespace common;
using Kind = ir::Expr::Kind;

constexpr int64_t kMostElements = 32 * 1024;  // of 128 x 128 a copy takes longer than it saves, of 256 x 256 it does not

// copy[name, name, …] = input[…], of the names of loops.
struct Copy {
  std::string buffer;
  std::vector<std::string> names;
  ir::ExprPtr load;
};

void for_each_store(const std::vector<Node>& body, const std::function<void(const ir::Store&)>& visit) {
  for (const Node& node : body) {
    for (const ir::Store& store : node.stores) visit(store);
    for_each_store(node.body, visit);
  }
}

// The input of a store's value, if the value is an element of one whose shape a call decides.
bool is_of_input(const Lowered& lowered, const ir::ExprPtr& value) {
  if (value->kind != Kind::load) return false;
  const ir::Buffer* const found = ir::find_buffer(lowered.program, value->name);
  return found != nullptr && found->role == ir::Buffer::Role::input && !found->optional &&
         std::any_of(found->shape.begin(), found->shape.end(),
                     [](const auto& extent) { return !ir::constant(extent).has_value(); });
}

bool lives_through_the_call(const Lowered& lowered, const std::string& buffer) {
  return std::any_of(lowered.outermost.begin(), lowered.outermost.end(),
                     [&](size_t number) { return lowered.allocations[number].name == buffer; });
}

std::optional<Copy> find_copy(const Lowered& lowered, const Node& nest, const Extents& extents) {
  const Node* at = &nest;
  Names loops;
  for (; at->kind == Node::Kind::loop && at->body.size() == 1 && at->allocations.empty(); at = &at->body[0]) loops.insert(at->name);
  if (at->kind != Node::Kind::stores || at->stores.size() != 1 || loops.empty()) return std::nullopt;
  const ir::Store& store = at->stores[0];
  if (!is_of_input(lowered, store.value) || !lives_through_the_call(lowered, store.buffer)) return std::nullopt;
  Copy out{store.buffer, {}, store.value};
  for (const ir::ExprPtr& index : store.indices) {
    const Linear sum = linear(index, extents);
    if (sum.constant != 0 || sum.terms.size() != 1 || sum.terms[0].factor != 1 || !sum.terms[0].is_name()) return std::nullopt;
    const std::string& name = sum.terms[0].atom->name;
    if (loops.erase(name) == 0) return std::nullopt;  // no loop, or that of another index
    out.names.push_back(name);
  }
  const auto& subscripts = store.value->operands;
  for (const ir::ExprPtr& subscript : subscripts) {
    Names used;
    collect_names(subscript, &used);
    if (std::any_of(used.begin(), used.end(), [&](const std::string& name) { return loops.count(name) != 0; })) return std::nullopt;
  }
  if (linear(subscripts.back(), extents).factor_of(out.names.back()) != 1) return std::nullopt;
  int64_t writers = 0;
  for_each_store(lowered.body, [&](const ir::Store& one) { writers += one.buffer == out.buffer ? 1 : 0; });
  return writers == 1 ? std::optional(out) : std::nullopt;
}

ir::ExprPtr read_directly(const ir::ExprPtr& expr, const Copy& copy, const Extents& extents) {
  ir::Expr out = *expr;
  for (ir::ExprPtr& operand : out.operands) operand = read_directly(operand, copy, extents);
  if (expr->kind != Kind::load || expr->name != copy.buffer) return std::make_shared<const ir::Expr>(std::move(out));
  ir::Substitution values;
  for (size_t d = 0; d < copy.names.size(); ++d) values[copy.names[d]] = expression(linear(out.operands[d], extents));
  return ir::substitute(copy.load, values);
}

void read_directly(std::vector<Node>* body, const Copy& copy, const Extents& extents) {
  for (Node& node : *body) {
    for (ir::ExprPtr& condition : node.conditions) condition = read_directly(condition, copy, extents);
    for (ir::Store& store : node.stores) {
      for (ir::ExprPtr& index : store.indices) index = read_directly(index, copy, extents);
      store.value = read_directly(store.value, copy, extents);
    }
    read_directly(&node.body, copy, extents);
  }
}

}  // namespace

std::optional<WithoutCopies> without_copies(const Lowered& lowered) {
  Extents extents;
  collect_extents(lowered.body, &extents);
  WithoutCopies out{lowered, {}};
  for (size_t i = 0; i < out.lowered.body.size();) {
    const std::optional<Copy> copy = find_copy(out.lowered, out.lowered.body[i], extents);
    if (!copy.has_value()) {
      ++i;
      continue;
    }
    out.lowered.body.erase(out.lowered.body.begin() + static_cast<std::ptrdiff_t>(i));
    std::erase_if(out.lowered.outermost, [&](size_t number) { return out.lowered.allocations[number].name == copy->buffer; });
    read_directly(&out.lowered.body, *copy, extents);
    out.inputs.push_back(copy->load->name);
  }
  return out.inputs.empty() ? std::nullopt : std::optional(std::move(out));
}

bool is_small_without_copies(const WithoutCopies& direct, const Bound& bound) {
  return std::all_of(direct.inputs.begin(), direct.inputs.end(), [&](const std::string& input) {
    const BoundBuffer& buffer = bound.buffers.at(input);
    return buffer.elements() < kMostElements && buffer.strides.back() == 1;
  });
}

}  // namespace narrows::cpu
