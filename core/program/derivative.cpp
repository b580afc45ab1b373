// SPDX-License-Identifier: Apache-2.0
// derivative.cpp -- see derivative.h.
#include "core/program/derivative.h"

#include <map>
#include <string>

#include "core/error.h"
#include "core/program/dtype.h"
#include "core/program/expr.h"

namespace narrows::program {
namespace {

// A call, the gradient of its value, and arithmetic that reads like the formulas.
struct Call {
  ExprPtr a, b, c;  // the operands
  ExprPtr out, g;

  ExprPtr number(double value) const { return make_real(g->dtype, value); }
};
using Gradients = std::vector<ExprPtr>;

ExprPtr f(const char* name, const ExprPtr& a) { return make_call(name, {a}); }
ExprPtr f(const char* name, const ExprPtr& a, const ExprPtr& b) { return make_call(name, {a, b}); }
ExprPtr where(const ExprPtr& condition, const ExprPtr& a, const ExprPtr& b) { return make_call("where", {condition, a, b}); }
ExprPtr operator/(const ExprPtr& a, const ExprPtr& b) { return f("div", a, b); }
ExprPtr operator-(const ExprPtr& a) { return f("neg", a); }
ExprPtr both(const ExprPtr& a, const ExprPtr& b) { return f("logical_and", a, b); }
ExprPtr either(const ExprPtr& a, const ExprPtr& b) { return f("logical_or", a, b); }

using Rule = Gradients (*)(const Call&);

const std::map<std::string_view, Rule>& rules() {
  static const std::map<std::string_view, Rule> made = {
#include "core/program/derivative_rules.inc"
  };
  return made;
}

}  // namespace

bool has_derivative(std::string_view function) { return rules().count(function) != 0; }

std::vector<ExprPtr> derivatives(const ExprPtr& call, const ExprPtr& gradient) {
  const auto found = rules().find(call->name);
  if (found == rules().end()) throw_failure(NW_UNSUPPORTED, -1, "'%s' has no gradient", call->name.c_str());
  const auto operand = [&](size_t i) { return i < call->operands.size() ? call->operands[i] : nullptr; };
  return found->second({operand(0), operand(1), operand(2), call, gradient});
}

}  // namespace narrows::program
