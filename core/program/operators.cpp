// SPDX-License-Identifier: Apache-2.0
// operators.cpp -- see operators.h.
#include "core/program/operators.h"

#include <algorithm>
#include <iterator>

#include "core/error.h"
#include "core/program/dtype.h"
#include "core/program/expr.h"
#include "core/program/text.h"

namespace narrows::program {
namespace {

constexpr Operator kOperators[] = {{"or", "logical_or", kOr},
                                   {"and", "logical_and", kAnd},
                                   {"<", "lt", kComparison},
                                   {"<=", "le", kComparison},
                                   {">", "gt", kComparison},
                                   {">=", "ge", kComparison},
                                   {"==", "eq", kComparison},
                                   {"!=", "ne", kComparison},
                                   {"+", "add", kSum},
                                   {"-", "sub", kSum},
                                   {"*", "mul", kProduct},
                                   {"/", "div", kProduct},
                                   {"//", "floor_div", kProduct},
                                   {"%", "remainder", kProduct}};

bool all_of(DType dtype, const std::vector<ExprPtr>& operands) {
  return std::all_of(operands.begin(), operands.end(), [&](const ExprPtr& operand) { return operand->dtype == dtype; });
}

}  // namespace

const Operator* find_infix(std::string_view sign) {
  const Operator* const found =
      std::find_if(std::begin(kOperators), std::end(kOperators), [&](const Operator& row) { return sign == row.sign; });
  return found == std::end(kOperators) ? nullptr : found;
}

const Operator* infix_of(const Expr& call) {
  if (call.kind != Expr::Kind::call || call.operands.size() != 2) return nullptr;
  const Operator* const found =
      std::find_if(std::begin(kOperators), std::end(kOperators), [&](const Operator& row) { return call.name == row.function; });
  if (found == std::end(kOperators)) return nullptr;
  if (found->strength <= kAnd && !all_of(DType::boolean, call.operands)) return nullptr;
  return call.name == "div" && !is_float(call.dtype) ? nullptr : found;
}

ExprPtr condition(const std::string& function, std::vector<ExprPtr> operands) {
  for (const ExprPtr& operand : operands) {
    if (operand->dtype == DType::boolean) continue;
    const char* const word = function == "logical_and" ? "and" : function == "logical_or" ? "or" : "not";
    throw_failure(NW_INVALID, -1, "'%s': %s is %s; expected bool", word, print(operand).c_str(), name_of(operand->dtype));
  }
  return make_call(function, std::move(operands));
}

ExprPtr apply(const Operator& found, const ExprPtr& left, const ExprPtr& right) {
  const bool of_index = left->dtype == DType::index && right->dtype == DType::index;
  if (found.strength <= kAnd) return condition(found.function, {left, right});
  if (found.sign == std::string_view("//") && !of_index)
    throw_failure(NW_INVALID, -1,
                  "'//': expected operands of index; write floor(a / b) for floating point, div(a, b) for integers");
  if (found.sign == std::string_view("/") && (of_index || is_integer(left->dtype)))
    throw_failure(NW_INVALID, -1, "'/': expected floating point; write a // b for index, div(a, b), which truncates, for integers");
  return make_call(found.function, {left, right});
}

ExprPtr call_of(const std::string& written, const std::vector<ExprPtr>& operands) {
  const bool of_index = !operands.empty() && all_of(DType::index, operands);
  if (written == "clamp" && operands.size() == 3 && operands[1]->dtype == DType::index && operands[2]->dtype == DType::index)
    return make_clamp(operands[0], operands[1], operands[2]);
  if (written == "min" || written == "max") {
    const char* const name = written == "min" ? "minimum" : "maximum";
    if (!of_index)
      throw_failure(NW_INVALID, -1, "'%s': expected operands of index; write %s(a, b) for others", written.c_str(), name);
    return make_call(name, operands);
  }
  if (written == "floor_div") throw_failure(NW_INVALID, -1, "floor_div is written a // b");
  return make_call(written, operands);
}

std::string written_name(const Expr& call) {
  if (call.dtype != DType::index) return call.name;
  return call.name == "minimum" ? "min" : call.name == "maximum" ? "max" : call.name;
}

}  // namespace narrows::program
