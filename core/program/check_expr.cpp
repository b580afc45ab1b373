// SPDX-License-Identifier: Apache-2.0
// check_expr.cpp -- see check_expr.h.
#include "core/program/check_expr.h"

#include <algorithm>

#include "core/error.h"
#include "core/program/dtype.h"
#include "core/program/expr.h"
#include "core/program/infer.h"
#include "core/program/text.h"
#include "core/program/types.h"

namespace narrows::program {
namespace {

class ExprChecker {
 public:
  ExprChecker(const Place& place, Names& names) : place_(place), names_(names) {}

  // Does the expression's value change while the program runs?
  bool visit(const ExprPtr& expr) {
    if (expr == nullptr) bad("an expression is missing");
    if (++names_.parts > kMaxParts) bad("the program's expressions have more than " + std::to_string(kMaxParts) + " parts");
    if (++depth_ > kMaxDepth) bad("the expression is nested too deeply");
    const bool varies = visit_kind(expr);
    --depth_;
    return varies;
  }

  [[noreturn]] void bad(const std::string& message) const {
    throw_failure(NW_INVALID, -1, "%s: %s", place_.what.c_str(), message.c_str());
  }

 private:
  bool visit_kind(const ExprPtr& expr) {
    switch (expr->kind) {
      case Expr::Kind::integer:
      case Expr::Kind::real:
      case Expr::Kind::boolean: return constant(*expr);
      case Expr::Kind::name: return name(*expr);
      case Expr::Kind::load: return load(*expr);
      case Expr::Kind::present: return present(*expr);
      case Expr::Kind::call: return call(expr);
      case Expr::Kind::cast:
        operands(*expr, 1);
        if (!place_.data) bad("a value cannot stand here: " + print(expr));
        return rethrow([&] { require_cast(expr->dtype, expr->operands[0]); }), true;
      default: return clamp(expr);
    }
  }

  // What the rules of types refuse, with the place.
  template <class Rule>
  void rethrow(const Rule& rule) const {
    try {
      rule();
    } catch (const Failure& failure) {
      bad(failure.message);
    }
  }

  bool operands(const Expr& expr, size_t count) {
    if (expr.operands.size() != count)
      bad("'" + expr.name + "' has " + std::to_string(expr.operands.size()) + " operands, not " + std::to_string(count));
    bool varies = false;
    for (const ExprPtr& operand : expr.operands) varies = visit(operand) || varies;
    return varies;
  }

  bool constant(const Expr& expr) const {
    const bool real = expr.kind == Expr::Kind::real;
    const bool fits =
        expr.kind == Expr::Kind::boolean ? expr.dtype == DType::boolean && (expr.integer == 0 || expr.integer == 1)
        : real ? is_float(expr.dtype) && same(make_real(expr.dtype, expr.real), std::make_shared<const Expr>(expr))
               : expr.dtype == DType::index || (is_integer(expr.dtype) && wrap_integer(expr.dtype, expr.integer) == expr.integer);
    if (!fits) bad("a constant is not a number of " + std::string(name_of(expr.dtype)));
    if (expr.dtype != DType::index && expr.dtype != DType::boolean && !place_.data)
      bad("a value cannot stand here: " + print(std::make_shared<const Expr>(expr)));
    return false;
  }

  bool name(const Expr& expr) const {
    const auto in = [&](const std::set<std::string>* set) { return set != nullptr && set->count(expr.name) != 0; };
    if (names_.sizes.count(expr.name) != 0) return require_type(expr, DType::index), false;
    if (in(place_.loops) || in(place_.axes)) return require_type(expr, DType::index), true;
    const auto param = names_.params.find(expr.name);
    if (param != names_.params.end()) {
      if (!place_.data) bad("param '" + expr.name + "' is " + name_of(param->second) + "; only integer params may stand here");
      return require_type(expr, param->second), true;
    }
    bad("'" + expr.name + "' cannot stand here; " + allowed() + " can");
  }

  std::string allowed() const {
    if (place_.axes != nullptr) return "the block's axes, sizes and params";
    return place_.loops != nullptr ? "the loops around, sizes and integer params"
                                   : "sizes (each alone a dimension of an input that must be there) and integer params";
  }

  void require_type(const Expr& expr, DType dtype) const {
    if (expr.dtype != dtype) bad("'" + expr.name + "' is " + name_of(dtype) + ", not " + name_of(expr.dtype));
  }

  bool load(const Expr& expr) {
    const auto found = names_.buffers.find(expr.name);
    if (found == names_.buffers.end()) bad("there is no buffer '" + expr.name + "'");
    if (!place_.data) bad("'" + expr.name + "' is read here; only numbers that data do not change can stand here");
    const Buffer& buffer = *found->second;
    require_type(expr, buffer.dtype);
    if (expr.operands.size() != buffer.shape.size())
      bad("'" + expr.name + "' has " + std::to_string(buffer.shape.size()) + " dimensions, but is read by " +
          std::to_string(expr.operands.size()) + " subscripts");
    if (buffer.optional && present_.count(expr.name) == 0)
      bad("'" + expr.name + "' may be absent; it is read under where(present(" + expr.name + "), …)");
    operands(expr, expr.operands.size());
    rethrow([&] { require_subscripts(expr.name, expr.operands); });
    return true;
  }

  bool present(const Expr& expr) const {
    const auto found = names_.buffers.find(expr.name);
    if (found == names_.buffers.end() || !found->second->optional) bad("present(" + expr.name + ") asks for no optional tensor");
    if (expr.dtype != DType::boolean) bad("present(" + expr.name + ") is bool");
    if (!place_.data) bad("present(" + expr.name + ") cannot stand here; it can in the value of a store");
    return true;
  }

  bool clamp(const ExprPtr& expr) {
    if (!place_.gather)
      bad("a place that depends on data cannot stand here: " + print(expr) + "; data may only choose what is read");
    operands(*expr, 3);
    if (expr->dtype != DType::index) bad("clamp is of index");
    rethrow([&] { require_clamp(expr->operands[0], expr->operands[1], expr->operands[2]); });
    return true;
  }

  bool call(const ExprPtr& expr) {
    std::vector<bool> varies;
    const std::set<std::string> outside = present_;
    for (size_t i = 0; i < expr->operands.size(); ++i) {
      if (expr->name == "where" && i > 0) assume(*expr->operands[0], i == 1);
      varies.push_back(visit(expr->operands[i]));
      present_ = outside;
    }
    rethrow([&] {
      const DType dtype = call_type(expr->name, expr->operands);
      if (dtype != expr->dtype)
        throw_failure(NW_INVALID, -1, "'%s' gives %s, not %s", expr->name.c_str(), name_of(dtype), name_of(expr->dtype));
    });
    if (expr->dtype != DType::index && !place_.data) require_condition(*expr);
    if (expr->dtype == DType::index) require_affine(expr, varies[0], varies[1]);
    return std::find(varies.begin(), varies.end(), true) != varies.end();
  }

  // The optional tensors that are there where the condition is `holds`.
  void assume(const Expr& condition, bool holds) {
    if (condition.kind == Expr::Kind::present && holds) present_.insert(condition.name);
    if (condition.kind != Expr::Kind::call) return;
    if (condition.name == "logical_not") assume(*condition.operands[0], !holds);
    if (condition.name == (holds ? "logical_and" : "logical_or")) {
      for (const ExprPtr& operand : condition.operands) assume(*operand, holds);
    }
  }

  // Without data: comparisons of index, joined by and, or, not.
  void require_condition(const Expr& expr) const {
    const bool joins = expr.name == "logical_and" || expr.name == "logical_or" || expr.name == "logical_not";
    if (expr.dtype != DType::boolean || (expr.operands[0]->dtype != DType::index && !joins))
      bad("only comparisons of index, joined by and, or and not, can stand here: " + print(std::make_shared<const Expr>(expr)));
  }

  void require_affine(const ExprPtr& expr, bool left, bool right) const {
    const auto& operands = expr->operands;
    const bool divides = expr->name == "floor_div" || expr->name == "remainder";
    if (divides && program::constant(operands[1]) == 0) bad("a division by 0: " + print(expr));
    const bool of_fused = left && !right && place_.loops != nullptr;  // a binding takes a loop apart that was fused of two sizes
    if (divides && (left || right) && !of_fused && !program::constant(operands[1]).has_value())
      bad("'" + print(expr) + "' divides a loop, an axis or by one; the divisor of such is a constant");
    const bool scaled = (!left || !right) && (!(left || right) || program::constant(operands[left ? 1 : 0]).has_value());
    if (expr->name == "mul" && !scaled)
      bad("'" + print(expr) + "' multiplies a loop or an axis by what is no constant; an index is a sum of constant multiples");
  }

  const Place& place_;
  Names& names_;
  std::set<std::string> present_;
  int depth_ = 0;
};

}  // namespace

void check_expr(const ExprPtr& expr, DType dtype, const Place& place, Names& names) {
  ExprChecker checker(place, names);
  checker.visit(expr);
  if (expr->dtype != dtype)
    checker.bad(std::string("expected ") + name_of(dtype) + ", not " + name_of(expr->dtype) + ": " + print(expr));
}

}  // namespace narrows::program
