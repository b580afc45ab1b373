// SPDX-License-Identifier: Apache-2.0
// reduction.cpp -- see reduction.h.
#include "core/program/reduction.h"

#include <algorithm>
#include <array>
#include <limits>

#include "core/error.h"
#include "core/program/dtype.h"
#include "core/program/expr.h"

namespace narrows::program {
namespace {

bool is_target(const ExprPtr& expr, const Store& store) {
  return expr->kind == Expr::Kind::load && expr->name == store.buffer && same(expr->operands, store.indices);
}

// The lowest or the highest number of a type; an infinity where there is one.
ExprPtr extreme(DType dtype, bool highest) {
  if (is_float(dtype))
    return make_real(dtype, highest ? std::numeric_limits<double>::infinity() : -std::numeric_limits<double>::infinity());
  const int bits = bits_of(dtype) - (is_signed(dtype) ? 1 : 0);
  const uint64_t top = bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
  if (highest) return make_integer(static_cast<int64_t>(top), dtype);
  return make_integer(is_signed(dtype) ? -static_cast<int64_t>(top) - 1 : 0, dtype);
}

}  // namespace

bool reads(const ExprPtr& expr, const std::string& buffer) {
  if (expr->kind == Expr::Kind::load && expr->name == buffer) return true;
  return std::any_of(expr->operands.begin(), expr->operands.end(), [&](const ExprPtr& operand) { return reads(operand, buffer); });
}

std::optional<Reduction> reduction_of(const Store& store) {
  constexpr std::array<const char*, 6> kCombine = {"add", "mul", "maximum", "minimum", "logical_and", "logical_or"};
  const Expr& value = *store.value;
  const bool combines = std::find(kCombine.begin(), kCombine.end(), value.name) != kCombine.end();
  if (value.kind != Expr::Kind::call || !combines) return std::nullopt;
  for (size_t i = 0; i < 2; ++i) {
    if (is_target(value.operands[i], store) && !reads(value.operands[1 - i], store.buffer))
      return Reduction{value.name, value.operands[1 - i]};
  }
  return std::nullopt;
}

ExprPtr identity_of(const std::string& combine, DType dtype) {
  if (combine == "logical_and" || combine == "logical_or") return make_cast(dtype, make_integer(combine == "logical_and" ? 1 : 0));
  if (combine == "maximum" || combine == "minimum") return extreme(dtype, combine == "minimum");
  if (combine != "add" && combine != "mul")
    throw_failure(NW_INVALID, -1, "internal error: '%s' is no combining function of a reduction", combine.c_str());
  return make_cast(dtype, make_integer(combine == "mul" ? 1 : 0));
}

}  // namespace narrows::program
