// SPDX-License-Identifier: Apache-2.0
// affine.cpp -- see affine.h.
#include "core/program/affine.h"

#include <set>

#include "core/program/walk.h"

namespace narrows::program {

const Linear* Values::find(std::string_view name) const {
  for (auto item = items_.rbegin(); item != items_.rend(); ++item)
    if (item->first == name) return &item->second;
  return nullptr;
}

std::vector<std::string> size_names(const Program& program) {
  std::set<std::string> out;
  for (const Buffer& tensor : program.tensors)
    for (const ExprPtr& dim : tensor.shape) out.merge(names_in(dim));
  for (const Param& param : program.params)
    if (param.value->kind == Expr::Kind::integer) out.insert(param.name);
  return {out.begin(), out.end()};
}

// A size is the extent of a tensor, so it is not negative; an integer param may be.
Linear Affine::size(const std::string& name) {
  for (const auto& [known, value] : sizes_)
    if (known == name) return value;
  Linear value = system.unknown(name);
  if (find_param(program_, name) == nullptr) system.not_negative(value);
  sizes_.emplace_back(name, value);
  return value;
}

Linear Affine::variable(const std::string& name, const ExprPtr& extent, const Values& values) {
  const Linear end = index(extent, values);
  Linear out = system.unknown(name);
  system.not_negative(out);
  system.less(out, end);
  return out;
}

Linear Affine::index(const ExprPtr& expr, const Values& values) {
  switch (expr->kind) {
    case Expr::Kind::integer: return number(expr->integer);
    case Expr::Kind::name: {
      const Linear* const known = values.find(expr->name);
      return known != nullptr ? *known : size(expr->name);
    }
    case Expr::Kind::call: return call(*expr, values);
    case Expr::Kind::clamp: return clamped(*expr, values);
    default: exact = false; return system.unknown("");
  }
}

Linear Affine::call(const Expr& expr, const Values& values) {
  Linear a = index(expr.operands[0], values);
  Linear b = index(expr.operands[1], values);
  if (expr.name == "add") return a + b;
  if (expr.name == "sub") return a - b;
  if (expr.name == "floor_div") return divide(a, b, false);
  if (expr.name == "remainder") return divide(a, b, true);
  if (expr.name == "mul") {
    if (b.is_constant()) return a * b.constant;
    return a.is_constant() ? b * a.constant : opaque("mul", a, b);
  }
  if (expr.name != "minimum" && expr.name != "maximum") throw Unproven{"'" + expr.name + "' of index is not understood"};
  const Linear& lower = expr.name == "minimum" ? a : b;
  const Linear& other = expr.name == "minimum" ? b : a;
  if (a.is_constant() && b.is_constant()) return lower.constant <= other.constant ? a : b;
  if (pick(2) == 0) {  // `a` is taken
    system.not_negative(other - lower);
    return a;
  }
  system.less(other, lower);
  return b;
}

Linear Affine::divide(const Linear& a, const Linear& b, bool is_remainder) {
  if (!b.is_constant() || b.constant == 0) return opaque(is_remainder ? "remainder" : "floor_div", a, b);
  const Linear quotient = b.constant > 0 ? system.floor_div(a, b.constant) : system.floor_div(a * -1, (b * -1).constant);
  return is_remainder ? a - quotient * b.constant : quotient;
}

// What is not linear is an unknown of its own, the same for the same operands.
Linear Affine::opaque(const std::string& what, const Linear& a, const Linear& b) {
  for (const auto& [name, left, right, value] : opaques_)
    if (name == what && ((left == a && right == b) || (what == "mul" && left == b && right == a))) return value;
  exact = false;
  Linear value = system.unknown("");
  opaques_.emplace_back(what, a, b, value);
  return value;
}

void Affine::define_quotient(const Linear& value, const Linear& divisor, const Linear& quotient, const Linear& rest) {
  opaques_.emplace_back("floor_div", value, divisor, quotient);
  opaques_.emplace_back("remainder", value, divisor, rest);
}

// minimum(maximum(value, low), high) of a value that nothing is known of.
Linear Affine::clamped(const Expr& expr, const Values& values) {
  exact = false;
  const Linear low = index(expr.operands[1], values);
  Linear high = index(expr.operands[2], values);
  if (pick(2) == 1) {
    system.less(high, low);
    return high;
  }
  Linear out = system.unknown("");
  system.not_negative(out - low);
  system.not_negative(high - out);
  return out;
}

void Affine::compare(const std::string& name, const Linear& a, const Linear& b, bool holds) {
  const bool is_equal = name == "eq" || name == "ne";
  if (is_equal && (name == "eq") == holds) return system.equal(a, b);
  if (is_equal) return pick(2) == 0 ? system.less(a, b) : system.less(b, a);
  const bool is_less = name == "lt" || name == "le";  // else gt or ge
  const Linear& low = is_less == holds ? a : b;
  const Linear& high = is_less == holds ? b : a;
  const bool is_strict = (name == "lt" || name == "gt") == holds;
  if (is_strict) return system.less(low, high);
  system.not_negative(high - low);
}

void Affine::assume(const ExprPtr& condition, bool holds, const Values& values) {
  if (condition == nullptr) return;
  if (condition->kind == Expr::Kind::boolean) {
    if ((condition->integer != 0) != holds) system.zero(number(1));
    return;
  }
  const std::string& name = condition->name;
  const bool is_call = condition->kind == Expr::Kind::call;
  if (is_call && name == "logical_not") return assume(condition->operands[0], !holds, values);
  if (is_call && (name == "logical_and" || name == "logical_or")) {
    const bool both = (name == "logical_and") == holds;
    if (!both && pick(2) == 1) {  // the first does not decide it, the second does
      assume(condition->operands[0], !holds, values);
      return assume(condition->operands[1], holds, values);
    }
    assume(condition->operands[0], holds, values);
    if (both) assume(condition->operands[1], holds, values);
    return;
  }
  if (is_call && condition->operands[0]->dtype == DType::index)
    return compare(name, index(condition->operands[0], values), index(condition->operands[1], values), holds);
  exact = false;
}

}  // namespace narrows::program
