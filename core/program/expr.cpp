// SPDX-License-Identifier: Apache-2.0
// expr.cpp -- see expr.h.
#include "core/program/expr.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "core/error.h"
#include "core/program/dtype.h"
#include "core/program/index.h"
#include "core/program/infer.h"
#include "core/program/text.h"

namespace narrows::program {
namespace {

ExprPtr make(Expr expr) { return std::make_shared<const Expr>(std::move(expr)); }

bool is_integer_constant(const ExprPtr& expr, int64_t value) {
  return expr->kind == Expr::Kind::integer && expr->dtype == DType::index && expr->integer == value;
}

// What is known of a call on `index` before its names are: constants, and neutral operands. NULL: nothing.
ExprPtr fold_index(const std::string& name, const ExprPtr& a, const ExprPtr& b) {
  if (a->kind == Expr::Kind::integer && b->kind == Expr::Kind::integer) {
    const int64_t value = index_function(name, a->integer, b->integer);
    return gives_boolean(name) ? make_boolean(value != 0) : make_integer(value);
  }
  if (name == "add" && is_integer_constant(a, 0)) return b;
  if ((name == "add" || name == "sub") && is_integer_constant(b, 0)) return a;
  if (name == "mul" && is_integer_constant(a, 1)) return b;
  if ((name == "mul" || name == "floor_div") && is_integer_constant(b, 1)) return a;
  if (name == "mul" && (is_integer_constant(a, 0) || is_integer_constant(b, 0))) return make_integer(0);
  return name == "remainder" && is_integer_constant(b, 1) ? make_integer(0) : nullptr;
}

// Conditions of bool constants. NULL: nothing is known.
ExprPtr fold_condition(const std::string& name, const std::vector<ExprPtr>& operands) {
  const auto known = [](const ExprPtr& expr) { return expr->kind == Expr::Kind::boolean; };
  if (name == "logical_not" && known(operands[0])) return make_boolean(operands[0]->integer == 0);
  if (name != "logical_and" && name != "logical_or") return nullptr;
  for (size_t i = 0; i < 2; ++i) {
    if (!known(operands[i]) || operands[1 - i]->dtype != DType::boolean) continue;
    const bool decides = (operands[i]->integer != 0) == (name == "logical_or");
    return decides ? operands[i] : operands[1 - i];
  }
  return nullptr;
}

// The cast of a constant of `index`.
ExprPtr cast_constant(DType dtype, int64_t value) {
  if (is_float(dtype)) return make_real(dtype, static_cast<double>(value));
  return dtype == DType::boolean ? make_boolean(value != 0) : make_integer(wrap_integer(dtype, value), dtype);
}

// The same expression on other operands.
ExprPtr rebuild(const Expr& expr, std::vector<ExprPtr> operands) {
  switch (expr.kind) {
    case Expr::Kind::call: return make_call(expr.name, std::move(operands));
    case Expr::Kind::cast: return make_cast(expr.dtype, operands[0]);
    case Expr::Kind::clamp: return make_clamp(operands[0], operands[1], operands[2]);
    default: return make_load(expr.name, expr.dtype, std::move(operands));
  }
}

}  // namespace

ExprPtr make_integer(int64_t value, DType dtype) { return make({Expr::Kind::integer, dtype, value, 0, "", {}}); }
ExprPtr make_real(DType dtype, double value) { return make({Expr::Kind::real, dtype, 0, round_real(dtype, value), "", {}}); }
ExprPtr make_boolean(bool value) { return make({Expr::Kind::boolean, DType::boolean, value ? 1 : 0, 0, "", {}}); }
ExprPtr make_name(const std::string& name, DType dtype) { return make({Expr::Kind::name, dtype, 0, 0, name, {}}); }
ExprPtr make_present(const std::string& tensor) { return make({Expr::Kind::present, DType::boolean, 0, 0, tensor, {}}); }

ExprPtr make_load(const std::string& buffer, DType dtype, std::vector<ExprPtr> indices) {
  require_subscripts(buffer, indices);
  return make({Expr::Kind::load, dtype, 0, 0, buffer, std::move(indices)});
}

ExprPtr make_call(const std::string& name, std::vector<ExprPtr> operands) {
  const DType dtype = call_type(name, operands);
  ExprPtr folded = operands[0]->dtype == DType::index ? fold_index(name, operands[0], operands[1]) : fold_condition(name, operands);
  return folded != nullptr ? folded : make({Expr::Kind::call, dtype, 0, 0, name, std::move(operands)});
}

ExprPtr make_cast(DType dtype, ExprPtr value) {
  require_cast(dtype, value);
  if (value->dtype == dtype) return value;
  if (value->kind == Expr::Kind::integer && value->dtype == DType::index) return cast_constant(dtype, value->integer);
  return make({Expr::Kind::cast, dtype, 0, 0, "", {std::move(value)}});
}

ExprPtr make_clamp(ExprPtr value, ExprPtr low, ExprPtr high) {
  if (value->dtype == DType::index) return make_call("minimum", {make_call("maximum", {value, low}), high});
  require_clamp(value, low, high);
  return make({Expr::Kind::clamp, DType::index, 0, 0, "", {std::move(value), std::move(low), std::move(high)}});
}

ExprPtr operator+(const ExprPtr& a, const ExprPtr& b) { return make_call("add", {a, b}); }
ExprPtr operator-(const ExprPtr& a, const ExprPtr& b) { return make_call("sub", {a, b}); }
ExprPtr operator*(const ExprPtr& a, const ExprPtr& b) { return make_call("mul", {a, b}); }
ExprPtr operator+(const ExprPtr& a, int64_t b) { return a + make_integer(b); }
ExprPtr operator-(const ExprPtr& a, int64_t b) { return a - make_integer(b); }
ExprPtr operator*(const ExprPtr& a, int64_t b) { return a * make_integer(b); }
ExprPtr floor_div(const ExprPtr& a, const ExprPtr& b) { return make_call("floor_div", {a, b}); }
ExprPtr remainder(const ExprPtr& a, const ExprPtr& b) { return make_call("remainder", {a, b}); }

std::optional<int64_t> constant(const ExprPtr& expr) {
  if (expr == nullptr || expr->kind != Expr::Kind::integer || expr->dtype != DType::index) return std::nullopt;
  return expr->integer;
}

bool same(const ExprPtr& a, const ExprPtr& b) {
  if (a == b) return true;
  if (a == nullptr || b == nullptr) return false;
  return a->kind == b->kind && a->dtype == b->dtype && a->integer == b->integer && a->name == b->name &&
         std::bit_cast<uint64_t>(a->real) == std::bit_cast<uint64_t>(b->real) && same(a->operands, b->operands);
}

bool same(const std::vector<ExprPtr>& a, const std::vector<ExprPtr>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const ExprPtr& x, const ExprPtr& y) { return same(x, y); });
}

ExprPtr substitute(const ExprPtr& expr, const Substitution& values) {
  if (expr == nullptr) return nullptr;
  if (expr->kind == Expr::Kind::name) {
    const auto found = values.find(expr->name);
    return found == values.end() ? expr : found->second;
  }
  std::vector<ExprPtr> operands;
  operands.reserve(expr->operands.size());
  for (const ExprPtr& operand : expr->operands) operands.push_back(substitute(operand, values));
  return operands == expr->operands ? expr : rebuild(*expr, std::move(operands));
}

int64_t evaluate(const ExprPtr& expr, const std::map<std::string, int64_t>& values) {
  const auto operand = [&](size_t i) { return evaluate(expr->operands[i], values); };
  switch (expr->kind) {
    case Expr::Kind::integer:
    case Expr::Kind::boolean: return expr->integer;
    case Expr::Kind::name: {
      const auto found = values.find(expr->name);
      if (found == values.end()) throw_failure(NW_INVALID, -1, "the value of '%s' is not known", expr->name.c_str());
      return found->second;
    }
    case Expr::Kind::call:
      if (expr->name == "logical_not") return operand(0) == 0 ? 1 : 0;
      if (expr->name == "logical_and") return operand(0) != 0 && operand(1) != 0 ? 1 : 0;
      if (expr->name == "logical_or") return operand(0) != 0 || operand(1) != 0 ? 1 : 0;
      if (expr->operands[0]->dtype == DType::index) return index_function(expr->name, operand(0), operand(1));
      [[fallthrough]];
    default: throw_failure(NW_INVALID, -1, "%s depends on data", print(expr).c_str());
  }
}

}  // namespace narrows::program
