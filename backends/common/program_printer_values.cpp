// SPDX-License-Identifier: Apache-2.0
// program_printer_values.cpp -- expressions of kernels: each is one expression of the text. What is simple is written as it is, the
// rest are functions of the dialect. See program_printer.h.
#include "core/program/dtype.h"
#include "core/program/expr.h"
#include "program_printer.h"

namespace narrows::common {

using Kind = ir::Expr::Kind;
using ir::DType;

std::string join(const std::vector<std::string>& parts, const char* between) {
  std::string out;
  for (const std::string& part : parts) out += (out.empty() ? "" : between) + part;
  return out;
}

// ---- types ----

bool is_half(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }

std::string type_of(DType dtype) {
  if (is_half(dtype)) return "f32";
  if (dtype == DType::index) return "ix";
  if (dtype == DType::boolean) return "bool";
  return ir::name_of(dtype);
}

std::string storage_of(DType dtype) {
  if (is_half(dtype)) return "u16";
  if (dtype == DType::boolean) return "u8";
  return type_of(dtype);
}

std::string KernelPrinter::literal(const ir::Expr& constant) {
  if (ir::is_float(constant.dtype)) return real_literal(constant.real, constant.dtype != DType::f64);
  if (constant.dtype == DType::boolean) return constant.integer != 0 ? "true" : "false";
  const auto bits = static_cast<uint64_t>(constant.integer);
  if (constant.dtype != DType::index) return type_of(constant.dtype) + "(" + wide_literal(bits, false) + ")";
  if (constant.integer == INT64_MIN) return "(-" + wide_literal(INT64_MAX, true) + " - 1)";
  const bool is_long = constant.integer > INT32_MAX || constant.integer < -INT32_MAX;
  const std::string size =
      is_long ? wide_literal(constant.integer < 0 ? -bits : bits, true) : std::to_string(std::abs(constant.integer));
  return constant.integer < 0 ? "(-" + size + ")" : size;
}

// ---- subscripts ----

std::string KernelPrinter::atom_text(const ir::ExprPtr& atom) {
  switch (atom->kind) {
    case Kind::name: {
      const auto loop = loops_.find(atom->name);
      return loop != loops_.end() ? loop->second : slot(Slot::Kind::size, atom->name);
    }
    case Kind::integer: return literal(*atom);
    case Kind::clamp: {
      const bool is_wide = atom->operands[0]->dtype == DType::u64;
      const std::string at = value(atom->operands[0]);
      return "ix(nw_clamp(" + (is_wide ? "nw_of_u64(" + at + ")" : as_i64(at)) + ", " + index_text(atom->operands[1]) + ", " +
             index_text(atom->operands[2]) + "))";
    }
    default: break;
  }
  const std::string a = index_text(atom->operands[0]), b = index_text(atom->operands[1]);
  if (atom->name == "mul") return "(" + a + ") * (" + b + ")";
  if (atom->name == "floor_div" || atom->name == "remainder")  // of what is not negative they are C's
    if (const auto divisor = ir::constant(atom->operands[1]); divisor.has_value() && *divisor > 0)
      if (const auto bounds = range(linear(atom->operands[0], extents_), extents_); bounds.has_value() && bounds->least >= 0)
        return "(" + a + ") " + (atom->name == "floor_div" ? "/ " : "% ") + b;
  return "nw_" + atom->name + "(ix(" + a + "), ix(" + b + "))";  // floor_div, remainder, minimum, maximum
}

std::string KernelPrinter::sum_text(const Linear& sum) {
  std::string out;
  for (const Term& term : sum.terms) {
    const std::string atom = atom_text(term.atom);
    out += out.empty() ? "" : " + ";
    out += term.factor == 1 ? "(" + atom + ")" : "(" + atom + ") * ix(" + literal(*ir::make_integer(term.factor)) + ")";
  }
  if (out.empty()) return literal(*ir::make_integer(sum.constant));
  if (sum.constant != 0) out += " + ix(" + literal(*ir::make_integer(sum.constant)) + ")";
  return out;
}

// ---- values ----

std::string KernelPrinter::rounded(const std::string& text, DType dtype) const {
  return is_half(dtype) ? std::string("nw_round_") + ir::name_of(dtype) + "(" + text + ")" : text;
}

// Integers wrap: on an unsigned type of at least 32 bits.
std::string KernelPrinter::arithmetic(const std::string& symbol, DType dtype, const std::string& a, const std::string& b) {
  if (ir::is_float(dtype)) return rounded(real_arithmetic(symbol, dtype, a, b), dtype);
  const std::string wide = ir::bits_of(dtype) == 64 ? "u64" : "u32";
  return type_of(dtype) + "(" + wide + "(" + a + ") " + symbol + " " + wide + "(" + b + "))";
}

namespace {

using Symbols = std::map<std::string, const char*>;
const Symbols kCompare = {{"lt", "<"}, {"le", "<="}, {"gt", ">"}, {"ge", ">="}, {"eq", "=="}, {"ne", "!="}};
const Symbols kArithmetic = {{"add", "+"}, {"sub", "-"}, {"mul", "*"}};
const Symbols kBits = {{"bitwise_and", "&"}, {"bitwise_or", "|"}, {"bitwise_xor", "^"}};
const Symbols kOfBools = {{"logical_and", "&&"}, {"logical_or", "||"}, {"logical_xor", "!="}, {"maximum", "||"}, {"minimum", "&&"}};

const char* find(const Symbols& symbols, const std::string& name) {
  const auto found = symbols.find(name);
  return found == symbols.end() ? nullptr : found->second;
}

}  // namespace

std::string KernelPrinter::call(const ir::Expr& expr) {
  if (expr.name == "where") return where(expr);
  if (expr.operands[0]->dtype == DType::index)  // a comparison
    return "(" + index_text(expr.operands[0]) + " " + kCompare.at(expr.name) + " " + index_text(expr.operands[1]) + ")";
  if (const auto product = fusible_product(expr, contract_); product.has_value()) {
    const ir::Expr& factors = *expr.operands[*product];
    const std::string fused = expr.dtype == DType::f64 ? "nw_fma64(" : "nw_fma32(";
    return fused + value(factors.operands[0]) + ", " + value(factors.operands[1]) + ", " + value(expr.operands[1 - *product]) + ")";
  }
  std::vector<std::string> operands;
  operands.reserve(expr.operands.size());
  for (const ir::ExprPtr& operand : expr.operands) operands.push_back(value(operand));
  std::string out = operation(expr, operands);
  if (out.empty()) out = function(expr.name, type_of(expr.dtype), expr.operands[0]->dtype, operands);
  if (!out.empty()) return out;
  refuse(NW_UNSUPPORTED, -1, "there is no function '%s' of %s", expr.name.c_str(), ir::name_of(expr.operands[0]->dtype));
}

// What has an operator, or a function of the prelude; "" for what has not.
std::string KernelPrinter::operation(const ir::Expr& expr, const std::vector<std::string>& operands) {
  const std::string &name = expr.name, &a = operands[0];
  const DType dtype = expr.operands[0]->dtype;
  const bool is_bool = dtype == DType::boolean, is_float = ir::is_float(dtype);
  if (operands.size() == 2) {
    const std::string& b = operands[1];
    if (const char* symbol = find(kArithmetic, name)) return arithmetic(symbol, dtype, a, b);
    if (name == "div" && is_float) return arithmetic("/", dtype, a, b);
    if (const char* symbol = find(kBits, name); symbol != nullptr && !is_bool)
      return type_of(dtype) + "(" + a + " " + symbol + " " + b + ")";
    if (const char* symbol = find(kBits, name)) return "bool(u32(" + a + ") " + symbol + " u32(" + b + "))";
    if (const char* symbol = find(kCompare, name)) {
      if (is_float) return real_compare(symbol, a, b);
      return is_bool ? "(u32(" + a + ") " + symbol + " u32(" + b + "))" : "(" + a + " " + symbol + " " + b + ")";
    }
    if (const char* symbol = find(kOfBools, name); symbol != nullptr && is_bool) return "(" + a + " " + symbol + " " + b + ")";
    if (name == "maximum" || name == "minimum") return "nw_" + name + "(" + a + ", " + b + ")";
    if (name == "copysign") return (dtype == DType::f64 ? "nw_copysign64(" : "nw_copysign32(") + a + ", " + b + ")";
  }
  if (operands.size() == 1) {
    if (is_bool && (name == "logical_not" || name == "bitwise_not")) return "(!" + a + ")";
    if (name == "neg" && is_float) return negated(a);
    if (name == "relu") return "nw_relu(" + a + ")";
    if (name == "square" && is_float) return rounded("nw_square(" + a + ")", dtype);
  }
  return "";
}

// Only what the condition chooses is read.
std::string KernelPrinter::where(const ir::Expr& expr) {
  const ir::ExprPtr& condition = expr.operands[0];
  if (condition->kind == Kind::present || condition->kind == Kind::boolean) {
    const bool chosen = condition->kind == Kind::boolean ? condition->integer != 0 : bound_.buffers.at(condition->name).present;
    return value(expr.operands[chosen ? 1 : 2]);
  }
  return "(" + value(condition) + " ? " + value(expr.operands[1]) + " : " + value(expr.operands[2]) + ")";
}

std::string KernelPrinter::cast(const ir::Expr& expr) {
  const ir::ExprPtr& operand = expr.operands[0];
  const DType from = operand->dtype, to = expr.dtype;
  std::string in = from == DType::index ? as_i64(index_text(operand)) : value(operand);
  if (from == to) return in;
  if (to == DType::boolean && !ir::is_float(from)) return "(" + in + " != 0)";
  if (from == DType::index && ir::is_integer(to)) return type_of(to) + "(" + in + ")";  // wraps
  if (from == DType::boolean) return is_half(to) ? "(" + in + " ? 1.0f : 0.0f)" : type_of(to) + "(" + in + ")";
  const bool widens = ir::is_integer(from) && ir::is_integer(to) && ir::bits_of(to) > ir::bits_of(from) &&
                      (ir::is_signed(to) || !ir::is_signed(from));
  if (widens) return to == DType::i64 ? as_i64(in) : type_of(to) + "(" + in + ")";
  return convert(in, from, to);
}

std::string KernelPrinter::value(const ir::ExprPtr& expr) {
  if (expr->dtype == DType::index && expr->kind != Kind::load) return "(" + index_text(expr) + ")";
  switch (expr->kind) {
    case Kind::integer:
    case Kind::real:
    case Kind::boolean: return literal(*expr);
    case Kind::present: return bound_.buffers.at(expr->name).present ? "true" : "false";
    case Kind::name: return slot(Slot::Kind::param, expr->name);
    case Kind::load: return load(*expr);
    case Kind::cast: return cast(*expr);
    default: return call(*expr);
  }
}

std::vector<ir::ExprPtr> KernelPrinter::open_conditions(const Node& node) const {
  std::vector<ir::ExprPtr> out;
  for (const ir::ExprPtr& condition : node.conditions) {
    if (const auto sum = as_inequality(condition, extents_); sum.has_value())
      if (const auto bounds = range(*sum, extents_); bounds.has_value() && bounds->least >= 0) continue;
    out.push_back(condition);
  }
  return out;
}

std::string KernelPrinter::condition_text(const std::vector<ir::ExprPtr>& conditions) {
  std::vector<std::string> parts;
  parts.reserve(conditions.size());
  for (const ir::ExprPtr& condition : conditions) parts.push_back(value(condition));
  return join(parts, " && ");
}

}  // namespace narrows::common
