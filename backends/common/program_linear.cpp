// SPDX-License-Identifier: Apache-2.0
// program_linear.cpp -- see program_linear.h.
#include "program_linear.h"

#include <algorithm>
#include <utility>

#include "core/program/expr.h"
#include "core/program/text.h"

namespace narrows::common {
namespace {

using Kind = ir::Expr::Kind;

Linear atom(const ir::ExprPtr& expr) {
  Linear out;
  out.terms.push_back({expr, expr->kind == Kind::name ? expr->name : ir::print(expr), 1});
  return out;
}

int64_t floor_quotient(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0); }

// The part of a sum whose factors are multiples of `divisor`, divided by it, and the rest, whose constant is 0 to divisor - 1.
std::pair<Linear, Linear> divide(const Linear& sum, int64_t divisor) {
  std::pair<Linear, Linear> out;
  out.first.constant = floor_quotient(sum.constant, divisor);
  out.second.constant = sum.constant - out.first.constant * divisor;
  for (Term term : sum.terms) {
    const bool whole = term.factor % divisor == 0;
    if (whole) term.factor /= divisor;
    (whole ? out.first : out.second).terms.push_back(std::move(term));
  }
  return out;
}

// floor_div and remainder by a positive constant.
Linear quotient(const ir::ExprPtr& expr, const Linear& sum, int64_t divisor, const Extents& extents) {
  const auto [whole, rest] = divide(sum, divisor);
  const std::optional<Range> bounds = range(rest, extents);
  const bool wants_rest = expr->name == "remainder";
  if (bounds.has_value() && bounds->least >= 0 && bounds->greatest < divisor) return wants_rest ? rest : whole;
  if (wants_rest) return atom(ir::remainder(expression(rest), ir::make_integer(divisor)));
  return whole + atom(ir::floor_div(expression(rest), ir::make_integer(divisor)));
}

Linear call(const ir::ExprPtr& expr, const Extents& extents) {
  const std::string& name = expr->name;
  const Linear a = linear(expr->operands[0], extents), b = linear(expr->operands[1], extents);
  if (name == "add") return a + b;
  if (name == "sub") return a + b * -1;
  if (name == "mul" && b.is_constant()) return a * b.constant;
  if (name == "mul" && a.is_constant()) return b * a.constant;
  if ((name == "floor_div" || name == "remainder") && b.is_constant() && b.constant > 0)
    return quotient(expr, a, b.constant, extents);
  return atom(expr);
}

std::optional<Range> range_of(const Term& term, const Extents& extents) {
  if (term.is_name()) {
    const auto found = extents.find(term.key);
    if (found == extents.end() || found->second < 1) return std::nullopt;
    return Range{0, found->second - 1};
  }
  if (term.atom->kind != Kind::call || (term.atom->name != "remainder" && term.atom->name != "floor_div")) return std::nullopt;
  const auto divisor = ir::constant(term.atom->operands[1]);
  if (!divisor.has_value() || *divisor < 1) return std::nullopt;
  if (term.atom->name == "remainder") return Range{0, *divisor - 1};
  const std::optional<Range> whole = range(linear(term.atom->operands[0], extents), extents);
  if (!whole.has_value()) return std::nullopt;
  return Range{floor_quotient(whole->least, *divisor), floor_quotient(whole->greatest, *divisor)};
}

}  // namespace

int64_t Linear::factor_of(const std::string& name) const {
  for (const Term& term : terms)
    if (term.key == name) return term.factor;
  return 0;
}

Linear Linear::without(const std::string& name) const {
  Linear out = *this;
  std::erase_if(out.terms, [&](const Term& term) { return term.key == name; });
  return out;
}

bool Linear::operator==(const Linear& other) const {
  return constant == other.constant &&
         std::equal(terms.begin(), terms.end(), other.terms.begin(), other.terms.end(),
                    [](const Term& a, const Term& b) { return a.key == b.key && a.factor == b.factor; });
}

// Overflow wraps, as it does in the expression itself: sums are of 64 bits and modulo 2^64 everywhere.
Linear operator+(const Linear& a, const Linear& b) {
  Linear out;
  out.constant = static_cast<int64_t>(static_cast<uint64_t>(a.constant) + static_cast<uint64_t>(b.constant));
  auto left = a.terms.begin(), right = b.terms.begin();
  while (left != a.terms.end() || right != b.terms.end()) {
    if (right == b.terms.end() || (left != a.terms.end() && left->key < right->key)) {
      out.terms.push_back(*left++);
    } else if (left == a.terms.end() || right->key < left->key) {
      out.terms.push_back(*right++);
    } else {
      Term both = *left++;
      both.factor = static_cast<int64_t>(static_cast<uint64_t>(both.factor) + static_cast<uint64_t>((right++)->factor));
      if (both.factor != 0) out.terms.push_back(std::move(both));
    }
  }
  return out;
}

Linear operator*(const Linear& a, int64_t factor) {
  Linear out;
  if (factor == 0) return out;
  const auto times = [&](int64_t x) { return static_cast<int64_t>(static_cast<uint64_t>(x) * static_cast<uint64_t>(factor)); };
  out.constant = times(a.constant);
  for (Term term : a.terms) {
    term.factor = times(term.factor);
    if (term.factor != 0) out.terms.push_back(std::move(term));
  }
  return out;
}

Linear linear(const ir::ExprPtr& index, const Extents& extents) {
  if (index->kind == Kind::integer) {
    Linear out;
    out.constant = index->integer;
    return out;
  }
  if (index->kind == Kind::call && index->operands.size() == 2) return call(index, extents);
  if (index->kind == Kind::name && extents.count(index->name) != 0 && extents.at(index->name) == 1) return {};
  return atom(index);
}

ir::ExprPtr expression(const Linear& sum) {
  ir::ExprPtr out;
  for (const Term& term : sum.terms) {
    const ir::ExprPtr part = term.factor == 1 ? term.atom : term.atom * term.factor;
    out = out == nullptr ? part : out + part;
  }
  if (out == nullptr) return ir::make_integer(sum.constant);
  return sum.constant == 0 ? out : out + sum.constant;
}

std::optional<Range> range(const Linear& sum, const Extents& extents) {
  Range out{sum.constant, sum.constant};
  for (const Term& term : sum.terms) {
    const std::optional<Range> one = range_of(term, extents);
    if (!one.has_value()) return std::nullopt;
    int64_t low = 0, high = 0;
    if (__builtin_mul_overflow(one->least, term.factor, &low) || __builtin_mul_overflow(one->greatest, term.factor, &high))
      return std::nullopt;
    if (low > high) std::swap(low, high);
    if (__builtin_add_overflow(out.least, low, &out.least) || __builtin_add_overflow(out.greatest, high, &out.greatest))
      return std::nullopt;
  }
  return out;
}

bool is_never_empty(const ir::ExprPtr& extent, const Extents& extents) {
  const std::optional<Range> bounds = range(linear(extent, extents), extents);
  return bounds.has_value() && bounds->least >= 1;
}

void collect_names(const ir::ExprPtr& expr, Names* names) {
  if (expr == nullptr) return;
  if (expr->kind == Kind::name) names->insert(expr->name);
  for (const ir::ExprPtr& operand : expr->operands) collect_names(operand, names);
}

bool mentions(const ir::ExprPtr& expr, const Names& names) {
  if (expr == nullptr) return false;
  if (expr->kind == Kind::name && names.count(expr->name) != 0) return true;
  return std::any_of(expr->operands.begin(), expr->operands.end(), [&](const ir::ExprPtr& o) { return mentions(o, names); });
}

bool mentions(const ir::ExprPtr& expr, const std::string& name) {
  if (expr == nullptr) return false;
  if (expr->kind == Kind::name && expr->name == name) return true;
  return std::any_of(expr->operands.begin(), expr->operands.end(), [&](const ir::ExprPtr& o) { return mentions(o, name); });
}

void split_conjunction(const ir::ExprPtr& condition, std::vector<ir::ExprPtr>* parts) {
  if (condition == nullptr) return;
  if (condition->kind == Kind::call && condition->name == "logical_and") {
    for (const ir::ExprPtr& operand : condition->operands) split_conjunction(operand, parts);
  } else if (condition->kind != Kind::boolean || condition->integer == 0) {
    parts->push_back(condition);
  }
}

std::optional<Linear> as_inequality(const ir::ExprPtr& condition, const Extents& extents) {
  if (condition->kind != Kind::call || condition->operands.size() != 2) return std::nullopt;
  if (condition->operands[0]->dtype != ir::DType::index) return std::nullopt;
  const std::string& name = condition->name;
  if (name != "lt" && name != "le" && name != "gt" && name != "ge") return std::nullopt;
  const bool less = name == "lt" || name == "le", strict = name == "lt" || name == "gt";
  const Linear a = linear(condition->operands[0], extents), b = linear(condition->operands[1], extents);
  Linear difference = less ? b + a * -1 : a + b * -1;
  if (strict) difference.constant -= 1;
  return difference;
}

}  // namespace narrows::common
