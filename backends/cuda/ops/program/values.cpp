// SPDX-License-Identifier: Apache-2.0
// values.cpp -- expressions of kernels: each is one expression of the text. What is simple is written as it is, the rest are the
// functions of elementwise. See printer.h.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string_view>

#include "common/plugin.h"
#include "core/program/dtype.h"
#include "core/program/expr.h"
#include "ops/program/printer.h"

namespace narrows::gpu {
namespace {

using Kind = ir::Expr::Kind;
using ir::DType;

std::string join(const std::vector<std::string>& parts, const char* between) {
  std::string out;
  for (const std::string& part : parts) out += (out.empty() ? "" : between) + part;
  return out;
}

std::string real_literal(double value, bool single) {
  char text[40];
  if (std::isnan(value)) return single ? "nw_float(0x7fc00000u)" : "nw_double(0x7ff8000000000000ULL)";
  if (std::isinf(value)) {
    const std::string bits = single ? "nw_float(0x7f800000u)" : "nw_double(0x7ff0000000000000ULL)";
    return value < 0 ? "(-" + bits + ")" : bits;
  }
  std::snprintf(text, sizeof(text), "(%a%s)", value, single ? "f" : "");
  return text;
}

std::string literal(const ir::Expr& constant) {
  if (ir::is_float(constant.dtype)) return real_literal(constant.real, constant.dtype != DType::f64);
  if (constant.dtype == DType::boolean) return constant.integer != 0 ? "true" : "false";
  if (constant.dtype == DType::index) {
    if (constant.integer == INT64_MIN) return "(-9223372036854775807LL - 1)";
    const bool is_long = constant.integer > INT32_MAX || constant.integer < -INT32_MAX;
    const std::string text = std::to_string(constant.integer) + (is_long ? "LL" : "");
    return constant.integer < 0 ? "(" + text + ")" : text;
  }
  return "((" + type_of(constant.dtype) + ")" + std::to_string(static_cast<uint64_t>(constant.integer)) + "ULL)";
}

// The function of elementwise_functions.h that computes what docs/ops.md says. "" for none.
std::string_view struct_of(std::string_view name, DType dtype) {
  struct Row {
    std::string_view name, real, integer;
  };
  static constexpr Row kRows[] = {
      {"neg", "Neg", "Neg"},
      {"abs", "Abs", "Abs"},
      {"sign", "Sign", "Sign"},
      {"square", "Square", "Square"},
      {"sqrt", "Sqrt", ""},
      {"rsqrt", "Rsqrt", ""},
      {"cbrt", "Cbrt", ""},
      {"exp", "Exp", ""},
      {"exp2", "Exp2", ""},
      {"expm1", "Expm1", ""},
      {"log", "Log", ""},
      {"log2", "Log2", ""},
      {"log10", "Log10", ""},
      {"log1p", "Log1p", ""},
      {"sin", "Sin", ""},
      {"cos", "Cos", ""},
      {"tan", "Tan", ""},
      {"asin", "Asin", ""},
      {"acos", "Acos", ""},
      {"atan", "Atan", ""},
      {"sinh", "Sinh", ""},
      {"cosh", "Cosh", ""},
      {"tanh", "Tanh", ""},
      {"asinh", "Asinh", ""},
      {"acosh", "Acosh", ""},
      {"atanh", "Atanh", ""},
      {"sigmoid", "Sigmoid", ""},
      {"relu", "Relu", "Relu"},
      {"elu", "Elu", ""},
      {"gelu", "Gelu", ""},
      {"gelu_tanh", "GeluTanh", ""},
      {"silu", "Silu", ""},
      {"softplus", "Softplus", ""},
      {"erf", "Erf", ""},
      {"erfc", "Erfc", ""},
      {"floor", "Floor", "Identity"},
      {"ceil", "Ceil", "Identity"},
      {"round", "Round", "Identity"},
      {"trunc", "Trunc", "Identity"},
      {"reciprocal", "Reciprocal", ""},
      {"logical_not", "LogicalNot", "LogicalNot"},
      {"bitwise_not", "", "BitwiseNot"},
      {"isnan", "IsNan", "Never"},
      {"isinf", "IsInf", "Never"},
      {"isfinite", "IsFinite", "Always"},
      {"div", "Div", "IntDiv"},
      {"pow", "Pow", "IntPow"},
      {"atan2", "Atan2", ""},
      {"hypot", "Hypot", ""},
      {"maximum", "Maximum", "Maximum"},
      {"minimum", "Minimum", "Minimum"},
      {"fmod", "Fmod", "IntFmod"},
      {"remainder", "Remainder", "IntRemainder"},
      {"logaddexp", "Logaddexp", ""},
      {"logical_and", "LogicalAnd", "LogicalAnd"},
      {"logical_or", "LogicalOr", "LogicalOr"},
      {"logical_xor", "LogicalXor", "LogicalXor"},
      {"bitwise_left_shift", "", "LeftShift"},
      {"bitwise_right_shift", "", "RightShift"},
      {"fma", "Fma", "Fma"},
      {"clamp", "Clamp", "Clamp"},
      {"sinc", "Sinc", ""},
  };
  const auto found = std::find_if(std::begin(kRows), std::end(kRows), [&](const Row& row) { return row.name == name; });
  if (found == std::end(kRows)) return "";
  return ir::is_float(dtype) ? found->real : found->integer;
}

}  // namespace

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

// ---- subscripts ----

std::string Printer::atom_text(const ir::ExprPtr& atom) {
  switch (atom->kind) {
    case Kind::name: {
      const auto loop = c_names_.find(atom->name);
      return loop != c_names_.end() ? loop->second : slot(Slot::Kind::size, atom->name);
    }
    case Kind::integer: return literal(*atom);
    case Kind::clamp: {
      const bool is_wide = atom->operands[0]->dtype == DType::u64;
      return "(ix)nw_clamp(" + std::string(is_wide ? "nw_of_u64(" : "(i64)(") + value(atom->operands[0]) + "), " +
             index_text(atom->operands[1]) + ", " + index_text(atom->operands[2]) + ")";
    }
    default: break;
  }
  const std::string a = index_text(atom->operands[0]), b = index_text(atom->operands[1]);
  if (atom->name == "mul") return "(" + a + ") * (" + b + ")";
  if (atom->name == "floor_div" || atom->name == "remainder")  // of what is not negative they are C's
    if (const auto divisor = ir::constant(atom->operands[1]); divisor.has_value() && *divisor > 0)
      if (const auto bounds = common::range(common::linear(atom->operands[0], extents_), extents_);
          bounds.has_value() && bounds->least >= 0)
        return "(" + a + ") " + (atom->name == "floor_div" ? "/ " : "% ") + b;
  return "nw_" + atom->name + "((ix)(" + a + "), (ix)(" + b + "))";  // floor_div, remainder, minimum, maximum
}

std::string Printer::sum_text(const Linear& sum) {
  std::string out;
  for (const common::Term& term : sum.terms) {
    const std::string atom = atom_text(term.atom);
    out += out.empty() ? "" : " + ";
    out += term.factor == 1 ? "(" + atom + ")" : "(" + atom + ") * (ix)" + literal(*ir::make_integer(term.factor));
  }
  if (out.empty()) return literal(*ir::make_integer(sum.constant));
  if (sum.constant != 0) out += " + (ix)" + literal(*ir::make_integer(sum.constant));
  return out;
}

// ---- values ----

std::string Printer::rounded(const std::string& text, DType dtype) const {
  return is_half(dtype) ? std::string("nw_round_") + ir::name_of(dtype) + "(" + text + ")" : text;
}

// Integers wrap: on an unsigned type of at least 32 bits.
std::string Printer::arithmetic(const std::string& symbol, DType dtype, const std::string& a, const std::string& b) {
  if (ir::is_float(dtype)) return rounded("(" + a + " " + symbol + " " + b + ")", dtype);
  const std::string wide = ir::bits_of(dtype) == 64 ? "(u64)" : "(u32)";
  return "((" + type_of(dtype) + ")(" + wide + "(" + a + ") " + symbol + " " + wide + "(" + b + ")))";
}

std::string Printer::function(const std::string& name, const std::string& type, DType dtype,
                              const std::vector<std::string>& operands) {
  const std::string_view found = struct_of(name, dtype);
  if (found.empty()) common::refuse(NW_UNSUPPORTED, -1, "there is no function '%s' of %s", name.c_str(), ir::name_of(dtype));
  with_functions_ = true;
  const std::string tag = is_half(dtype) ? std::string("nw::") + ir::name_of(dtype) : type_of(dtype);
  return "nw::call<nw::" + std::string(found) + ", " + type + ", " + tag + ">(" + join(operands, ", ") + ")";
}

std::string Printer::call(const ir::Expr& expr) {
  const std::string& name = expr.name;
  if (name == "where") return where(expr);
  if (expr.operands[0]->dtype == DType::index) {  // a comparison
    static const std::map<std::string, const char*> kSymbols = {{"lt", "<"},  {"le", "<="}, {"gt", ">"},
                                                                {"ge", ">="}, {"eq", "=="}, {"ne", "!="}};
    return "(" + index_text(expr.operands[0]) + " " + kSymbols.at(name) + " " + index_text(expr.operands[1]) + ")";
  }
  if (const auto product = common::fusible_product(expr, contract_); product.has_value()) {
    const ir::Expr& factors = *expr.operands[*product];
    const std::string fused = expr.dtype == DType::f64 ? "nw_fma64(" : "nw_fma32(";
    return fused + value(factors.operands[0]) + ", " + value(factors.operands[1]) + ", " + value(expr.operands[1 - *product]) + ")";
  }
  std::vector<std::string> operands;
  operands.reserve(expr.operands.size());
  for (const ir::ExprPtr& operand : expr.operands) operands.push_back(value(operand));
  const DType dtype = expr.operands[0]->dtype;
  const bool is_bool = dtype == DType::boolean, is_float = ir::is_float(dtype);
  if (operands.size() == 2) {
    const std::string &a = operands[0], &b = operands[1];
    static const std::map<std::string, const char*> kArithmetic = {{"add", "+"}, {"sub", "-"}, {"mul", "*"}};
    if (const auto found = kArithmetic.find(name); found != kArithmetic.end()) return arithmetic(found->second, dtype, a, b);
    if (name == "div" && is_float) return arithmetic("/", dtype, a, b);
    static const std::map<std::string, const char*> kBits = {{"bitwise_and", "&"}, {"bitwise_or", "|"}, {"bitwise_xor", "^"}};
    if (const auto found = kBits.find(name); found != kBits.end())
      return "((" + type_of(dtype) + ")(" + a + " " + found->second + " " + b + "))";
    static const std::map<std::string, const char*> kCompare = {{"lt", "<"},  {"le", "<="}, {"gt", ">"},
                                                                {"ge", ">="}, {"eq", "=="}, {"ne", "!="}};
    if (const auto found = kCompare.find(name); found != kCompare.end()) return "(" + a + " " + found->second + " " + b + ")";
    if (is_bool && name == "logical_and") return "(" + a + " && " + b + ")";
    if (is_bool && name == "logical_or") return "(" + a + " || " + b + ")";
    if (is_bool && name == "logical_xor") return "(" + a + " != " + b + ")";
    if (name == "maximum" || name == "minimum") {
      if (is_bool) return "(" + a + (name == "maximum" ? " || " : " && ") + b + ")";
      return "nw_" + name + "(" + a + ", " + b + ")";
    }
    if (name == "copysign") return (dtype == DType::f64 ? "nw_copysign64(" : "nw_copysign32(") + a + ", " + b + ")";
  }
  if (operands.size() == 1) {
    const std::string& a = operands[0];
    if (is_bool && (name == "logical_not" || name == "bitwise_not")) return "(!" + a + ")";
    if (name == "neg" && is_float) return "(-" + a + ")";
    if (name == "relu") return "nw_relu(" + a + ")";
    if (name == "square" && is_float) return rounded("nw_square(" + a + ")", dtype);
  }
  return function(name, type_of(expr.dtype), dtype, operands);
}

// Only what the condition chooses is read.
std::string Printer::where(const ir::Expr& expr) {
  const ir::ExprPtr& condition = expr.operands[0];
  if (condition->kind == Kind::present || condition->kind == Kind::boolean) {
    const bool chosen = condition->kind == Kind::boolean ? condition->integer != 0 : bound_.buffers.at(condition->name).present;
    return value(expr.operands[chosen ? 1 : 2]);
  }
  return "(" + value(condition) + " ? " + value(expr.operands[1]) + " : " + value(expr.operands[2]) + ")";
}

std::string Printer::cast(const ir::Expr& expr) {
  const ir::ExprPtr& operand = expr.operands[0];
  const DType from = operand->dtype, to = expr.dtype;
  const std::string in = from == DType::index ? "(i64)(" + index_text(operand) + ")" : value(operand);
  if (from == to) return in;
  if (to == DType::boolean) return "((" + in + ") != 0)";
  if (from == DType::index && ir::is_integer(to)) return "((" + type_of(to) + ")(" + in + "))";  // wraps
  if (from == DType::boolean) return is_half(to) ? "((" + in + ") ? 1.0f : 0.0f)" : "((" + type_of(to) + ")(" + in + "))";
  const bool widens = ir::is_integer(from) && ir::is_integer(to) && ir::bits_of(to) > ir::bits_of(from) &&
                      (ir::is_signed(to) || !ir::is_signed(from));
  if (widens || (ir::is_float(to) && !is_half(to))) return "((" + type_of(to) + ")(" + in + "))";
  if (is_half(to) && (from == DType::f32 || is_half(from))) return rounded(in, to);
  with_functions_ = true;
  const std::string source = from == DType::index ? "i64" : type_of(from);
  if (is_half(to)) return rounded("nw::to_float((" + source + ")(" + in + "))", to);
  return "nw::Cast<" + type_of(to) + ">::apply((" + source + ")(" + in + "))";
}

std::string Printer::value(const ir::ExprPtr& expr) {
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

std::vector<ir::ExprPtr> Printer::open_conditions(const Node& node) const {
  std::vector<ir::ExprPtr> out;
  for (const ir::ExprPtr& condition : node.conditions) {
    if (const auto sum = common::as_inequality(condition, extents_); sum.has_value())
      if (const auto bounds = common::range(*sum, extents_); bounds.has_value() && bounds->least >= 0) continue;
    out.push_back(condition);
  }
  return out;
}

std::string Printer::condition_text(const std::vector<ir::ExprPtr>& conditions) {
  std::vector<std::string> parts;
  parts.reserve(conditions.size());
  for (const ir::ExprPtr& condition : conditions) parts.push_back(value(condition));
  return join(parts, " && ");
}

}  // namespace narrows::gpu
