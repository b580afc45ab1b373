// SPDX-License-Identifier: Apache-2.0
// program_range.cpp -- see program_range.h.
#include "program_range.h"

#include <algorithm>

#include "core/program/text.h"

namespace narrows::common {
namespace {

__extension__ typedef __int128 Wide;

struct Range {
  Wide least = 0, greatest = 0;
};

Range around(std::initializer_list<Wide> values) {
  const auto [least, greatest] = std::minmax_element(values.begin(), values.end());
  return {*least, *greatest};
}
Wide size_of(const Range& a) { return std::max(a.greatest, -a.least); }

Wide magnitude(int64_t x) { return x < 0 ? -static_cast<Wide>(x) : static_cast<Wide>(x); }

Range product(const Range& a, const Range& b) {
  return around({a.least * b.least, a.least * b.greatest, a.greatest * b.least, a.greatest * b.greatest});
}

// A divisor that may be 0 fails where it is evaluated.
Range quotient(const Range& a, const Range& b) {
  if (b.least <= 0 && b.greatest >= 0) return {-size_of(a) - 1, size_of(a) + 1};
  const auto divide = [](Wide x, Wide y) { return x / y - (x % y != 0 && (x % y < 0) != (y < 0) ? 1 : 0); };
  return around(
      {divide(a.least, b.least), divide(a.least, b.greatest), divide(a.greatest, b.least), divide(a.greatest, b.greatest)});
}

class Checker {
 public:
  Checker(const Bound& bound, const nw_sig& sig) : bound_(bound), sig_(sig) {
    for (const auto& [name, number] : bound.numbers) ranges_[name] = {number, number};
  }

  Wide largest() const { return largest_; }

  void body(const std::vector<Node>& nodes) {
    for (const Node& node : nodes) {
      if (node.kind == Node::Kind::loop) {
        ranges_[node.name] = {0, std::max<Wide>(range(node.extent).greatest - 1, 0)};
        body(node.body);
        continue;
      }
      for (const ir::ExprPtr& condition : node.conditions) value(condition);
      for (const ir::Store& store : node.stores) {
        for (const ir::ExprPtr& subscript : store.indices) range(subscript);
        place(store.buffer, store.indices);
        value(store.value);
      }
    }
  }

 private:
  // The indices in a value.
  void value(const ir::ExprPtr& expr) {
    if (expr->kind == ir::Expr::Kind::load) place(expr->name, expr->operands);
    for (const ir::ExprPtr& operand : expr->operands)
      if (operand->dtype == ir::DType::index)
        range(operand);
      else
        value(operand);
  }

  // Of an element in its buffer.
  void place(const std::string& buffer, const std::vector<ir::ExprPtr>& indices) {
    const BoundBuffer& bound = bound_.buffers.at(buffer);
    if (!bound.present) return;
    Wide sum = 0;
    for (size_t d = 0; d < indices.size(); ++d) {
      Wide most = 0;
      const Linear subscript = linear(indices[d]);
      for (const Term& term : subscript.terms) most += size_of(range(term.atom)) * magnitude(term.factor);
      sum += (most + magnitude(subscript.constant)) * magnitude(bound.strides[d]);
      if (sum > Wide{1} << 64) sum = Wide{1} << 64;  // more than any limit
    }
    largest_ = std::max(largest_, sum);
  }

  Range range(const ir::ExprPtr& expr) {
    const Range out = part(*expr);
    largest_ = std::max(largest_, size_of(out));
    constexpr Wide kLimit = Wide{1} << 62;
    if (out.least < -kLimit || out.greatest > kLimit)
      refuse(NW_INVALID, -1, "%s: '%s' may leave the numbers from -2^62 to 2^62; expected smaller tensors", sig_.op,
             ir::print(expr).c_str());
    return out;
  }

  Range part(const ir::Expr& expr) {
    using Kind = ir::Expr::Kind;
    if (expr.kind == Kind::integer) return {expr.integer, expr.integer};
    if (expr.kind == Kind::name) return ranges_.at(expr.name);
    if (expr.kind == Kind::clamp) {
      value(expr.operands[0]);
      const Range low = range(expr.operands[1]), high = range(expr.operands[2]);
      return {std::min(low.least, high.least), std::max(low.greatest, high.greatest)};
    }
    const Range a = range(expr.operands[0]), b = range(expr.operands[1]);
    if (expr.name == "add") return {a.least + b.least, a.greatest + b.greatest};
    if (expr.name == "sub") return {a.least - b.greatest, a.greatest - b.least};
    if (expr.name == "mul") return product(a, b);
    if (expr.name == "floor_div") return quotient(a, b);
    if (expr.name == "remainder") return {std::min<Wide>(0, -size_of(b)), size_of(b)};
    if (expr.name == "minimum") return {std::min(a.least, b.least), std::min(a.greatest, b.greatest)};
    return {std::max(a.least, b.least), std::max(a.greatest, b.greatest)};  // maximum
  }

  const Bound& bound_;
  const nw_sig& sig_;
  std::map<std::string, Range> ranges_;
  Wide largest_ = 0;
};

}  // namespace

bool fits_32_bits(const Bound& bound, const nw_sig& sig) {
  Checker checker(bound, sig);
  checker.body(bound.lowered->body);
  return checker.largest() <= INT32_MAX;
}

void check_ranges(const Bound& bound, const nw_sig& sig) { Checker(bound, sig).body(bound.lowered->body); }

}  // namespace narrows::common
