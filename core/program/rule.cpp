// SPDX-License-Identifier: Apache-2.0
// rule.cpp -- see rule.h. A rule has + - * // min and max; what it lacks (a sign, %) is written by those.
#include "core/program/rule.h"

#include "core/error.h"
#include "core/program/text.h"
#include "core/program/walk.h"

namespace narrows::program {
namespace {

constexpr size_t kMaxRule = 1 << 14;  // bytes; a % has its left side twice, so those in each other double it

std::string show(const ExprPtr& expr);

void require_short(size_t size) {
  if (size > kMaxRule) throw_failure(NW_INVALID, -1, "a dimension is too long for a shape rule; expected fewer %% in each other");
}

std::string show_call(const Expr& call) {
  const std::string a = show(call.operands[0]), b = show(call.operands[1]);
  require_short(2 * (a.size() + b.size()));
  if (call.name == "add") return "(" + a + "+" + b + ")";
  if (call.name == "sub") return "(" + a + "-" + b + ")";
  if (call.name == "mul") return "(" + a + "*" + b + ")";
  if (call.name == "floor_div") return "(" + a + "//" + b + ")";
  if (call.name == "remainder") return "(" + a + "-" + a + "//" + b + "*" + b + ")";
  return (call.name == "minimum" ? "min(" : "max(") + a + "," + b + ")";
}

std::string show(const ExprPtr& expr) {
  switch (expr->kind) {
    case Expr::Kind::integer:
      return expr->integer < 0 ? "(0-" + std::to_string(expr->integer).substr(1) + ")" : std::to_string(expr->integer);
    case Expr::Kind::name: return expr->name;
    case Expr::Kind::call: return show_call(*expr);
    default: throw_failure(NW_INVALID, -1, "%s is no dimension", print(expr).c_str());
  }
}

std::string dims(const Buffer& tensor) {
  std::string out;
  for (const ExprPtr& extent : tensor.shape) out += (out.empty() ? "" : ",") + show(extent);
  if (tensor.shape.empty()) return "()";
  // An output of one dimension of this name is a rule of its own.
  return out == "broadcast" && tensor.role == Buffer::Role::output ? "(broadcast)" : out;
}

}  // namespace

std::string shape_rule_of(const Program& program) {
  std::string inputs, outputs;
  for (const Buffer& tensor : program.tensors) {
    if (tensor.role != Buffer::Role::output) inputs += (inputs.empty() ? "" : ";") + dims(tensor) + (tensor.optional ? "?" : "");
    if (tensor.role != Buffer::Role::input) outputs += (outputs.empty() ? "" : ";") + dims(tensor);
  }
  std::string out = inputs.empty() ? outputs : inputs + "->" + outputs;
  require_short(out.size());
  return out;
}

bool uses_tensor(const Program& program, const std::string& name) {
  bool found = false;
  const auto look = [&](const Expr& part) {
    const bool names_tensor = part.kind == Expr::Kind::load || part.kind == Expr::Kind::present;
    found = found || (names_tensor && part.name == name);
  };
  for_each_block(program, [&](const Block& block, const Loops&) {
    for (const std::vector<Store>* stores : {&block.init, &block.body})
      for (const Store& store : *stores) for_each_part(store.value, look);
  });
  return found;
}

}  // namespace narrows::program
