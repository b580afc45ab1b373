// SPDX-License-Identifier: Apache-2.0
// parse_expr.cpp -- see parse_expr.h.
#include "core/program/parse_expr.h"

#include <charconv>
#include <limits>
#include <optional>

#include "core/error.h"
#include "core/near.h"
#include "core/program/dtype.h"
#include "core/program/expr.h"
#include "core/program/operators.h"
#include "core/program/text.h"

namespace narrows::program {
namespace {

// What the builders refuse gets the place of `token`.
template <class Build>
ExprPtr at(const Token& token, const Build& build) {
  try {
    return build();
  } catch (const Failure& failure) {
    fail_at(token.line, token.column, failure.message);
  }
}

std::optional<uint64_t> magnitude(const Token& token) {
  uint64_t value = 0;
  for (const char c : token.text) {
    if (c < '0' || c > '9') return std::nullopt;
    if (__builtin_mul_overflow(value, uint64_t{10}, &value) ||
        __builtin_add_overflow(value, static_cast<uint64_t>(c - '0'), &value))
      fail_at(token.line, token.column, "the number " + std::string(token.text) + " does not fit in 64 bits");
  }
  return value;
}

double real_number(const Token& token) {
  const bool hex = token.text.substr(0, 2) == "0x";
  const std::string_view digits = token.text.substr(hex ? 2 : 0);
  double value = 0;
  const char* const begin = digits.data();
  const char* const end = begin + digits.size();
  const auto result = std::from_chars(begin, end, value, hex ? std::chars_format::hex : std::chars_format::general);
  if (result.ec == std::errc::result_out_of_range)
    fail_at(token.line, token.column, "the number " + std::string(token.text) + " is beyond the range of f64");
  if (result.ec != std::errc() || result.ptr != end)
    fail_at(token.line, token.column, "'" + std::string(token.text.substr(0, 40)) + "' is not a number");
  return value;
}

ExprPtr real_constant(Cursor& cursor, DType dtype, bool negative) {
  const Token token = cursor.next();
  const double value = token.text == "inf"   ? std::numeric_limits<double>::infinity()
                       : token.text == "nan" ? std::numeric_limits<double>::quiet_NaN()
                                             : real_number(token);
  return make_real(dtype, negative ? -value : value);
}

ExprPtr integer_constant(Cursor& cursor, DType dtype, bool negative) {
  const Token token = cursor.next();
  const std::optional<uint64_t> value = magnitude(token);
  if (!value.has_value())
    fail_at(token.line, token.column, "found " + std::string(token.text) + ", expected an integer for " + name_of(dtype));
  if (!holds(dtype, negative, *value))
    fail_at(token.line, token.column, (negative ? "-" : "") + std::string(token.text) + " is not a number of " + name_of(dtype));
  const auto bits = static_cast<int64_t>(negative ? -*value : *value);
  return dtype == DType::boolean ? make_boolean(bits != 0) : make_integer(bits, dtype);
}

class ExprParser {
 public:
  ExprParser(Cursor& cursor, const Scope& scope) : cursor_(cursor), scope_(scope) {}

  // An expression of operators that bind at least as strongly as `least`.
  ExprPtr parse(int least) {
    enter();
    ExprPtr left = unary(least);
    for (;;) {
      const Token token = cursor_.peek();
      const Operator* const found = find_infix(token.text);
      if (token.kind == Token::Kind::string || found == nullptr || found->strength < least) break;
      cursor_.next();
      count(token);
      const ExprPtr right = parse(found->strength + 1);
      left = at(token, [&] { return apply(*found, left, right); });
      if (found->strength == kComparison && compares(cursor_.peek())) refuse_chain();
    }
    --depth_;
    return left;
  }

 private:
  void enter() {
    if (++depth_ > kMaxNesting) fail_at(cursor_.peek().line, cursor_.peek().column, "the expression is nested too deeply");
  }

  void count(const Token& token) {
    if (++operations_ > kMaxOperations)
      fail_at(token.line, token.column, "the expression has more than " + std::to_string(kMaxOperations) + " operations");
  }

  static bool compares(const Token& token) {
    const Operator* const found = find_infix(token.text);
    return token.kind == Token::Kind::symbol && found != nullptr && found->strength == kComparison;
  }

  [[noreturn]] void refuse_chain() const {
    fail_at(cursor_.peek().line, cursor_.peek().column, "a chain of comparisons; write a < b and b < c");
  }

  ExprPtr unary(int least) {
    const Token token = cursor_.peek();
    if (cursor_.at("not")) {
      if (least > kNot) cursor_.bad("an operand; 'not' stands between brackets here");
      cursor_.next();
      count(token);
      const ExprPtr operand = parse(kNot);
      return at(token, [&] { return condition("logical_not", {operand}); });
    }
    if (!cursor_.at("-")) return primary();
    cursor_.next();
    count(token);
    if (cursor_.at(Token::Kind::number)) return integer_constant(cursor_, DType::index, true);
    const ExprPtr operand = parse(kMinus);
    return at(token, [&] { return operand->dtype == DType::index ? make_integer(0) - operand : make_call("neg", {operand}); });
  }

  ExprPtr primary() {
    const Token token = cursor_.peek();
    if (token.kind == Token::Kind::number) return bare_number();
    if (cursor_.take("(")) {
      const ExprPtr inner = parse(0);
      cursor_.expect(")", "after an expression in brackets");
      return inner;
    }
    if (token.kind != Token::Kind::name) cursor_.bad("an expression");
    if (Cursor::is(cursor_.peek(1), "(")) return call();
    if (Cursor::is(cursor_.peek(1), "[")) return load();
    return name();
  }

  ExprPtr bare_number() {
    const Token& token = cursor_.peek();
    if (token.text.find_first_not_of("0123456789") != std::string_view::npos)
      fail_at(token.line, token.column,
              "found " + std::string(token.text.substr(0, 40)) +
                  ", expected an integer; a value of floating point is written with its type, as in f32(" +
                  std::string(token.text.substr(0, 40)) + ")");
    return integer_constant(cursor_, DType::index, false);
  }

  ExprPtr name() {
    const Token token = cursor_.peek();
    const std::string text = cursor_.name("an expression");
    const auto found = scope_.values.find(text);
    if (found != scope_.values.end()) return make_name(text, found->second);
    if (scope_.declares_sizes) return make_name(text);
    if (scope_.buffers.count(text) != 0)
      fail_at(token.line, token.column, "'" + text + "' is a buffer; expected its subscripts, as in " + text + "[i]");
    fail_at(token.line, token.column, "there is no size, param, loop or axis '" + text + "' here" + nearest(text, scope_.values));
  }

  static std::string nearest(std::string_view name, const std::map<std::string, DType, std::less<>>& names) {
    std::vector<std::string> known;
    known.reserve(names.size());
    for (const auto& [other, dtype] : names) known.push_back(other);
    return did_you_mean(name, known);
  }

  ExprPtr load() {
    const Token token = cursor_.peek();
    const std::string buffer = cursor_.name("a buffer");
    const DType dtype = buffer_type(token);
    cursor_.next();
    count(token);
    std::vector<ExprPtr> indices = list("]");
    return at(token, [&] { return make_load(buffer, dtype, std::move(indices)); });
  }

  DType buffer_type(const Token& token) const {
    const auto found = scope_.buffers.find(token.text);
    if (found != scope_.buffers.end()) return found->second;
    fail_at(token.line, token.column, "there is no buffer '" + std::string(token.text) + "'" + nearest(token.text, scope_.buffers));
  }

  // Up to the closing bracket; none is "".
  std::vector<ExprPtr> list(const char* closing) {
    std::vector<ExprPtr> out;
    if (cursor_.take(closing)) return out;
    do out.push_back(parse(0));
    while (cursor_.take(","));
    cursor_.expect(closing, "or ','");
    return out;
  }

  ExprPtr call() {
    const Token token = cursor_.next();
    cursor_.next();
    count(token);
    const std::string name(token.text);
    if (const std::optional<DType> dtype = find_dtype(name)) return cast(token, *dtype);
    if (name == "present") return present();
    const std::vector<ExprPtr> operands = list(")");
    return at(token, [&] { return call_of(name, operands); });
  }

  ExprPtr cast(const Token& token, DType dtype) {
    if (ExprPtr constant = parse_constant(cursor_, dtype)) {
      cursor_.expect(")", "after the constant");
      return constant;
    }
    const ExprPtr value = parse(0);
    cursor_.expect(")", "after what is cast");
    return at(token, [&] { return make_cast(dtype, value); });
  }

  ExprPtr present() {
    const Token token = cursor_.peek();
    const std::string tensor = cursor_.name("an optional tensor");
    buffer_type(token);
    cursor_.expect(")", "after the tensor's name");
    return make_present(tensor);
  }

  Cursor& cursor_;
  const Scope& scope_;
  int depth_ = 0, operations_ = 0;
};

}  // namespace

ExprPtr parse_expression(Cursor& cursor, const Scope& scope) { return ExprParser(cursor, scope).parse(0); }

ExprPtr parse_index(Cursor& cursor, const Scope& scope, const std::string& what) {
  const Token token = cursor.peek();
  ExprPtr expr = parse_expression(cursor, scope);
  if (expr->dtype != DType::index)
    fail_at(token.line, token.column, what + " is of index, but this is " + name_of(expr->dtype) + ": " + print(expr));
  return expr;
}

ExprPtr parse_constant(Cursor& cursor, DType dtype) {
  const size_t sign = cursor.at("-") ? 1 : 0;
  const Token& token = cursor.peek(sign);
  const bool special = Cursor::is(token, "inf") || Cursor::is(token, "nan");
  const bool whole = Cursor::is(cursor.peek(sign + 1), ")") || Cursor::is(cursor.peek(sign + 1), ",");
  if ((token.kind != Token::Kind::number && !special) || !whole) return nullptr;
  if (sign == 1) cursor.next();
  return is_float(dtype) ? real_constant(cursor, dtype, sign == 1) : integer_constant(cursor, dtype, sign == 1);
}

}  // namespace narrows::program
