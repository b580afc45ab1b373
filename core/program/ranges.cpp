// SPDX-License-Identifier: Apache-2.0
// ranges.cpp -- see ranges.h.
#include "core/program/ranges.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/program/expr.h"
#include "core/program/index.h"

namespace narrows::program {
namespace {

// These throw Failure where 64 bits do not hold the result.
int64_t add(int64_t a, int64_t b) { return index_function("add", a, b); }
int64_t multiply(int64_t a, int64_t b) { return index_function("mul", a, b); }

// A sum of terms with factors. A term is a name or what is not a sum.
struct Sum {
  std::vector<std::pair<ExprPtr, int64_t>> terms;
  int64_t constant = 0;

  void include(const ExprPtr& term, int64_t factor) {
    const auto found = std::find_if(terms.begin(), terms.end(), [&](const auto& known) { return same(known.first, term); });
    if (found == terms.end()) {
      terms.emplace_back(term, factor);
    } else {
      found->second = add(found->second, factor);
    }
  }
};

void collect(const ExprPtr& expr, int64_t factor, Sum& sum) {
  if (const auto value = constant(expr)) {
    sum.constant = add(sum.constant, multiply(*value, factor));
    return;
  }
  const bool is_call = expr->kind == Expr::Kind::call;
  if (is_call && (expr->name == "add" || expr->name == "sub")) {
    collect(expr->operands[0], factor, sum);
    return collect(expr->operands[1], expr->name == "add" ? factor : multiply(factor, -1), sum);
  }
  if (is_call && expr->name == "mul") {
    const auto left = constant(expr->operands[0]);
    const auto right = constant(expr->operands[1]);
    if (left) return collect(expr->operands[1], multiply(factor, *left), sum);
    if (right) return collect(expr->operands[0], multiply(factor, *right), sum);
  }
  sum.include(expr, factor);
}

// A sum that has a factor of `divisor` in each term but the constant: divided without a rest where the constant is small.
ExprPtr divide(const ExprPtr& expr, int64_t divisor) {
  Sum sum;
  collect(expr, 1, sum);
  const bool is_multiple =
      std::all_of(sum.terms.begin(), sum.terms.end(), [&](const auto& term) { return term.second % divisor == 0; });
  if (divisor < 1 || !is_multiple) return floor_div(expr, make_integer(divisor));
  ExprPtr out = make_integer(*constant(floor_div(make_integer(sum.constant), make_integer(divisor))));
  for (const auto& [term, factor] : sum.terms) out = term * (factor / divisor) + out;
  return simplify(out);
}

std::optional<Range> product(const Range& a, const ExprPtr& factor) {
  const auto value = constant(factor);
  if (!value) return same(a.low, a.high) ? std::optional<Range>({a.low * factor, a.low * factor}) : std::nullopt;
  Range out{a.low * *value, a.high * *value};
  if (*value < 0) std::swap(out.low, out.high);
  return out;
}

std::optional<Range> range_of_call(const Expr& expr, const Range& a, const Range& b) {
  if (expr.name == "add") return Range{simplify(a.low + b.low), simplify(a.high + b.high)};
  if (expr.name == "sub") return Range{simplify(a.low - b.high), simplify(a.high - b.low)};
  if (expr.name == "minimum" || expr.name == "maximum")
    return Range{make_call(expr.name, {a.low, b.low}), make_call(expr.name, {a.high, b.high})};
  if (expr.name == "mul" && same(b.low, b.high)) return product(a, b.low);
  if (expr.name == "mul" && same(a.low, a.high)) return product(b, a.low);
  const auto divisor = constant(b.low);
  if (!same(b.low, b.high) || !divisor || *divisor < 1) return std::nullopt;
  if (expr.name == "floor_div") return Range{divide(a.low, *divisor), divide(a.high, *divisor)};
  if (expr.name != "remainder") return std::nullopt;
  if (same(a.low, a.high)) return Range{remainder(a.low, b.low), remainder(a.low, b.low)};
  const auto low = constant(a.low);
  const auto high = constant(a.high);
  if (low && high && *low >= 0 && *high < *divisor) return a;
  return Range{make_integer(0), make_integer(*divisor - 1)};
}

}  // namespace

ExprPtr simplify(const ExprPtr& expr) {
  Sum sum;
  collect(expr, 1, sum);
  ExprPtr out;
  for (const auto& [term, factor] : sum.terms) {
    if (factor == 0) continue;
    const bool is_first = out == nullptr;
    if (is_first) {
      out = term * factor;
    } else {
      out = factor < 0 ? out - term * multiply(factor, -1) : out + term * factor;
    }
  }
  if (out == nullptr) return make_integer(sum.constant);
  return sum.constant < 0 ? out - multiply(sum.constant, -1) : out + sum.constant;
}

std::optional<Range> range_of(const ExprPtr& expr, const Ranges& inner) {
  switch (expr->kind) {
    case Expr::Kind::integer: return Range{expr, expr};
    case Expr::Kind::name: {
      const auto found = inner.find(expr->name);
      return found == inner.end() ? Range{expr, expr} : found->second;
    }
    case Expr::Kind::clamp: {
      const auto low = range_of(expr->operands[1], inner);
      const auto high = range_of(expr->operands[2], inner);
      return low && high ? std::optional<Range>({low->low, high->high}) : std::nullopt;
    }
    case Expr::Kind::call: {
      const auto a = range_of(expr->operands[0], inner);
      const auto b = range_of(expr->operands[1], inner);
      return a && b ? range_of_call(*expr, *a, *b) : std::nullopt;
    }
    default: return std::nullopt;
  }
}

Range join(const Range& a, const Range& b) {
  const auto pick = [](const ExprPtr& one, const ExprPtr& other, bool least) {
    const auto difference = constant(simplify(one - other));
    if (difference) return (*difference < 0) == least ? one : other;
    return make_call(least ? "minimum" : "maximum", {one, other});
  };
  return {pick(a.low, b.low, true), pick(a.high, b.high, false)};
}

}  // namespace narrows::program
