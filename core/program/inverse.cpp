// SPDX-License-Identifier: Apache-2.0
// inverse.cpp -- see inverse.h.
#include "core/program/inverse.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>
#include <utility>

#include "core/program/index.h"
#include "core/program/text.h"
#include "core/program/walk.h"

namespace narrows::program {
namespace {

// An index as a sum of multiples: of names, and of divisions and the like as a whole. Each by its text.
struct Sum {
  std::map<std::string, std::pair<ExprPtr, int64_t>> terms;
  int64_t constant = 0;

  void add(const ExprPtr& expr, int64_t times) {
    if (expr->kind == Expr::Kind::integer) {
      constant = index_function("add", constant, index_function("mul", expr->integer, times));
      return;
    }
    const auto& operands = expr->operands;
    const bool call = expr->kind == Expr::Kind::call;
    if (call && (expr->name == "add" || expr->name == "sub")) {
      add(operands[0], times);
      add(operands[1], expr->name == "add" ? times : -times);
      return;
    }
    for (size_t i = 0; i < 2 && call && expr->name == "mul"; ++i) {
      if (const auto factor = program::constant(operands[i])) return add(operands[1 - i], index_function("mul", times, *factor));
    }
    const std::string key = print(expr);
    const auto term = terms.try_emplace(key, expr, 0).first;
    term->second.second = index_function("add", term->second.second, times);
    if (term->second.second == 0) terms.erase(key);
  }
  void add(const Sum& other, int64_t times) {
    for (const auto& [key, term] : other.terms) add(term.first, index_function("mul", term.second, times));
    constant = index_function("add", constant, index_function("mul", other.constant, times));
  }
  int64_t factor(const std::string& name) const {
    const auto found = terms.find(name);
    return found == terms.end() ? 0 : found->second.second;
  }
  ExprPtr expr() const {
    ExprPtr out;
    for (const bool positive : {true, false}) {
      for (const auto& [key, term] : terms) {
        if ((term.second > 0) != positive) continue;
        const ExprPtr part = term.first * std::abs(term.second);
        out = out == nullptr ? (positive ? part : term.first * term.second) : positive ? out + part : out - part;
      }
    }
    if (out == nullptr) return make_integer(constant);
    return constant < 0 ? out - -constant : out + constant;
  }
};

Sum sum_of(const ExprPtr& expr) {
  Sum out;
  out.add(expr, 1);
  return out;
}

// a - b + offset
Sum difference(const ExprPtr& a, const ExprPtr& b, int64_t offset) {
  Sum out = sum_of(a);
  out.add(b, -1);
  out.constant += offset;
  return out;
}

ExprPtr compared(const char* name, const ExprPtr& a, const ExprPtr& b) { return make_call(name, {a, b}); }

// Sums that are at least 0 where the condition is `holds`; what is no comparison of index says nothing.
void collect(const ExprPtr& condition, bool holds, std::vector<Sum>* out) {
  if (condition->kind != Expr::Kind::call) return;
  const auto& [a, b] = std::pair(condition->operands[0], condition->operands.back());
  std::string name = condition->name;
  if (name == "logical_not") return collect(a, !holds, out);
  if (name == (holds ? "logical_and" : "logical_or")) {
    collect(a, holds, out);
    collect(b, holds, out);
  }
  if (a->dtype != DType::index) return;
  static const std::map<std::string, std::string> opposite = {{"lt", "ge"}, {"ge", "lt"}, {"gt", "le"},
                                                              {"le", "gt"}, {"eq", "ne"}, {"ne", "eq"}};
  if (!holds && opposite.count(name) != 0) name = opposite.at(name);
  if (name == "lt" || name == "le" || name == "eq") out->push_back(difference(b, a, name == "lt" ? -1 : 0));
  if (name == "gt" || name == "ge" || name == "eq") out->push_back(difference(a, b, name == "gt" ? -1 : 0));
}

// Two of them add up to a negative number: no point fulfils all.
bool contradict(const std::vector<Sum>& bounds) {
  for (size_t i = 0; i < bounds.size(); ++i) {
    for (size_t j = i; j < bounds.size(); ++j) {
      Sum sum = bounds[i];
      sum.add(bounds[j], 1);
      if (sum.terms.empty() && sum.constant < 0) return true;
    }
  }
  return false;
}

class Inverter {
 public:
  Inverter(const Reading& access, const std::vector<ExprPtr>& places, const std::vector<ExprPtr>& shape,
           const std::function<std::string()>& fresh)
      : access_(access), places_(places), shape_(shape), fresh_(fresh), axes_(access.axes) {}

  // Nothing: no point reads what the access reads.
  std::optional<Inverse> run() {
    for (const ExprPtr& condition : access_.conditions) collect(condition, true, &bounds_);
    std::vector<Sum> all = bounds_;
    for (const Axis& axis : axes_) {
      all.push_back(sum_of(make_name(axis.name)));
      all.push_back(difference(axis.extent, make_name(axis.name), -1));
    }
    if (contradict(all)) return std::nullopt;
    for (size_t d = 0; d < shape_.size(); ++d)
      pending_.push_back({access_.indices[d], constant(shape_[d]) == 1 ? make_integer(0) : places_[d]});
    while (!pending_.empty()) {
      if (!solve_one() && !open_division()) close_one();
    }
    return finish();
  }

 private:
  struct Equation {
    ExprPtr left, right;
  };
  struct Choice {
    size_t equation, axis;
    int cost;
  };

  bool is_solved(const std::string& axis) const { return solved_.count(axis) != 0; }

  // The axes of an index that are still unknown.
  size_t unknowns(const ExprPtr& expr) const {
    const std::set<std::string> names = names_in(expr);
    return std::count_if(axes_.begin(), axes_.end(),
                         [&](const Axis& axis) { return names.count(axis.name) != 0 && !is_solved(axis.name); });
  }

  // Can the axis be taken out of the sum? Only where it stands in no division.
  static bool stands_alone(const Sum& sum, const std::string& axis) {
    return std::all_of(sum.terms.begin(), sum.terms.end(),
                       [&](const auto& item) { return item.first == axis || names_in(item.second.first).count(axis) == 0; });
  }

  // The axis whose solution leaves the least: few others, spatial ones, and no divisions.
  std::optional<Choice> best() const {
    std::optional<Choice> out;
    for (size_t e = 0; e < pending_.size(); ++e) {
      const Sum sum = sum_of(pending_[e].left);
      for (size_t a = 0; a < axes_.size(); ++a) {
        const int64_t factor = sum.factor(axes_[a].name);
        if (factor == 0 || is_solved(axes_[a].name) || !stands_alone(sum, axes_[a].name)) continue;
        const int cost = static_cast<int>(unknowns(pending_[e].left)) * 4 + (axes_[a].kind == Axis::Kind::spatial ? 0 : 2) +
                         (std::abs(factor) == 1 ? 0 : 1);
        if (!out.has_value() || cost < out->cost) out = {e, a, cost};
      }
    }
    return out;
  }

  bool solve_one() {
    const auto choice = best();
    if (!choice.has_value()) return false;
    const Equation equation = take(choice->equation);
    const std::string& axis = axes_[choice->axis].name;
    Sum rest = sum_of(equation.right);
    const Sum left = sum_of(equation.left);
    const int64_t factor = left.factor(axis), sign = factor < 0 ? -1 : 1, divisor = std::abs(factor);
    rest.add(left, -1);
    rest.add(make_name(axis), factor);
    Sum value;
    value.add(rest, sign);
    if (divisor != 1) require(compared("eq", remainder(value.expr(), make_integer(divisor)), make_integer(0)));
    define(axis, floor_div(value.expr(), make_integer(divisor)));
    return true;
  }

  Equation take(size_t number) {
    const Equation out = pending_[number];
    pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(number));
    return out;
  }

  void define(const std::string& axis, const ExprPtr& value) {
    const Substitution one = {{axis, value}};
    for (auto& [name, known] : solved_) known = substitute(known, one);
    for (Equation& equation : pending_)
      equation.left = substitute(equation.left, one), equation.right = substitute(equation.right, one);
    for (ExprPtr& guard : guards_) guard = substitute(guard, one);
    solved_[axis] = value;
  }

  // left // n = right is left = right * n + rest; the rest is another subscript, left % n, or a new axis.
  bool open_division() {
    for (size_t e = 0; e < pending_.size(); ++e) {
      const ExprPtr left = pending_[e].left;
      if (left->kind != Expr::Kind::call || left->name != "floor_div" || unknowns(left) == 0) continue;
      const auto divisor = constant(left->operands[1]);
      if (!divisor.has_value() || *divisor <= 0) continue;
      const ExprPtr right = take(e).right;
      pending_.push_back({left->operands[0], right * *divisor + rest_of(left, *divisor)});
      return true;
    }
    return false;
  }

  ExprPtr rest_of(const ExprPtr& division, int64_t divisor) {
    const ExprPtr rest = remainder(division->operands[0], division->operands[1]);
    for (size_t e = 0; e < pending_.size(); ++e) {
      if (!same(pending_[e].left, rest)) continue;
      const ExprPtr right = take(e).right;
      require(compared("lt", right, make_integer(divisor)));
      require(compared("ge", right, make_integer(0)));
      return right;
    }
    axes_.push_back({fresh_(), Axis::Kind::reduction, make_integer(divisor), nullptr});
    return make_name(axes_.back().name);
  }

  // No axis is left that could be solved: the subscript is compared.
  void close_one() {
    const Equation equation = take(0);
    require(compared("eq", equation.left, equation.right));
  }

  void require(const ExprPtr& guard) { guards_.push_back(guard); }

  bool is_whole_dimension(const Axis& axis, const ExprPtr& value) const {
    for (size_t d = 0; d < shape_.size(); ++d)
      if (same(value, places_[d]) && same(axis.extent, shape_[d])) return true;
    return false;
  }

  // Where the conditions leave the axis a constant number of values, only these are gone through.
  void narrow(Axis* axis) {
    const Sum self = sum_of(make_name(axis->name));
    Sum low, high = sum_of(axis->extent);  // low <= axis < high
    for (const Sum& bound : bounds_) {
      const int64_t factor = bound.factor(axis->name);
      Sum rest = bound;
      rest.add(self, -factor);
      const std::set<std::string> names = names_in(rest.expr());
      const bool varies =
          std::any_of(access_.axes.begin(), access_.axes.end(), [&](const Axis& other) { return names.count(other.name) != 0; });
      if (std::abs(factor) != 1 || varies) continue;
      Sum begin = low, end = high;
      if (factor == 1) begin = Sum{}, begin.add(rest, -1);
      if (factor == -1) end = rest, end.constant += 1;
      Sum count = end;
      count.add(begin, -1);
      if (count.terms.empty()) low = begin, high = end;
    }
    Sum count = high;
    count.add(low, -1);
    if (low.terms.empty() && low.constant == 0 && same(count.expr(), axis->extent)) return;
    require(compared("ge", make_name(axis->name), make_integer(0)));
    require(compared("lt", make_name(axis->name), axis->extent));
    if (count.terms.empty() && count.constant == 1) return define(axis->name, low.expr());
    const std::string offset = fresh_();
    define(axis->name, low.expr() + make_name(offset));
    *axis = {offset, Axis::Kind::reduction, count.expr(), nullptr};
  }

  Inverse finish() {
    const size_t given = axes_.size();
    for (const Axis& axis : access_.axes) {
      if (!is_solved(axis.name)) continue;
      const ExprPtr value = solved_.at(axis.name);
      if (is_whole_dimension(axis, value)) continue;
      require(compared("ge", value, make_integer(0)));
      require(compared("lt", value, axis.extent));
    }
    for (size_t a = 0; a < given; ++a)
      if (!is_solved(axes_[a].name)) narrow(&axes_[a]);
    Inverse out{{}, solved_, make_boolean(true), access_.conditions};
    for (Axis axis : axes_) {
      if (is_solved(axis.name)) continue;
      axis.kind = Axis::Kind::reduction;
      out.free.push_back(axis);
    }
    for (const ExprPtr& guard : guards_) out.guard = make_call("logical_and", {out.guard, guard});
    return out;
  }

  const Reading& access_;
  const std::vector<ExprPtr>& places_;
  const std::vector<ExprPtr>& shape_;
  const std::function<std::string()>& fresh_;
  std::vector<Axis> axes_;  // the access's, and those that divisions needed
  std::vector<Sum> bounds_;
  std::vector<Equation> pending_;
  Substitution solved_;
  std::vector<ExprPtr> guards_;
};

// The first min or max in an index that axes reach. NULL: none.
ExprPtr find_choice(const ExprPtr& expr) {
  if (expr->kind == Expr::Kind::call && (expr->name == "minimum" || expr->name == "maximum")) return expr;
  for (const ExprPtr& operand : expr->operands) {
    if (ExprPtr found = find_choice(operand)) return found;
  }
  return nullptr;
}

ExprPtr replaced(const ExprPtr& expr, const ExprPtr& old, const ExprPtr& with) {
  if (same(expr, old)) return with;
  if (expr->kind != Expr::Kind::call) return expr;
  std::vector<ExprPtr> operands;
  for (const ExprPtr& operand : expr->operands) operands.push_back(replaced(operand, old, with));
  return make_call(expr->name, operands);
}

// The access with each min and max as two accesses, each where its operand is the one.
std::vector<Reading> alternatives(const Reading& access) {
  for (const ExprPtr& index : access.indices) {
    const ExprPtr choice = find_choice(index);
    if (choice == nullptr) continue;
    std::vector<Reading> out;
    for (size_t i = 0; i < 2; ++i) {
      Reading one = access;
      for (ExprPtr& other : one.indices) other = replaced(other, choice, choice->operands[i]);
      const bool takes_smaller = choice->name == "minimum";
      const char* const rule = i == 0 ? (takes_smaller ? "le" : "ge") : (takes_smaller ? "gt" : "lt");
      one.conditions.push_back(compared(rule, choice->operands[0], choice->operands[1]));
      for (Reading& part : alternatives(one)) out.push_back(std::move(part));
    }
    return out;
  }
  return {access};
}

}  // namespace

std::vector<Inverse> invert(const Reading& access, const std::vector<ExprPtr>& places, const std::vector<ExprPtr>& shape,
                            const std::function<std::string()>& fresh) {
  std::vector<Inverse> out;
  for (const Reading& one : alternatives(access)) {
    if (auto inverse = Inverter(one, places, shape, fresh).run()) out.push_back(std::move(*inverse));
  }
  return out;
}

}  // namespace narrows::program
