// SPDX-License-Identifier: Apache-2.0
// c_values.cpp -- expressions in C: each becomes a constant of its own, a scalar or a vector, and the compiler joins them again.
// See c_printer.h.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "core/program/dtype.h"
#include "core/program/text.h"
#include "program/c_printer.h"

namespace narrows::cpu {
namespace {

using Kind = ir::Expr::Kind;
using ir::DType;

bool has_load(const ir::ExprPtr& expr) {
  bool found = false;
  for_each_load(expr, [&](const ir::Expr&) { found = true; });
  return found;
}

bool has_index_load(const ir::ExprPtr& expr) {  // a gather
  bool found = false;
  for_each_load(expr, [&](const ir::Expr& load) {
    for (const ir::ExprPtr& index : load.operands) found = found || has_load(index);
  });
  return found;
}

bool compares_index(const ir::ExprPtr& expr) {
  if (expr->kind == Kind::load) return false;  // whatever its subscripts are
  if (expr->kind == Kind::call && !expr->operands.empty() && expr->operands[0]->dtype == DType::index) return true;
  return std::any_of(expr->operands.begin(), expr->operands.end(), [](const ir::ExprPtr& o) { return compares_index(o); });
}

std::string hex(double value, bool single) {
  char text[40];
  std::snprintf(text, sizeof(text), "%a%s", value, single ? "f" : "");
  return text;
}

}  // namespace

// ---- types and constants ----

std::string join(const std::vector<std::string>& parts, const char* between) {
  std::string out;
  for (const std::string& part : parts) out += (out.empty() ? "" : between) + part;
  return out;
}

bool is_half(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }

namespace {
std::string with_lanes(const std::string& type, int lanes) { return lanes == 1 ? type : type + "x" + std::to_string(lanes); }
}  // namespace

std::string c_type(DType dtype, int lanes) {
  if (is_half(dtype)) return with_lanes("f32", lanes);
  if (dtype == DType::index) return with_lanes("i64", lanes);
  if (dtype == DType::boolean) return "i32";  // a scalar: a vector is a mask
  return with_lanes(ir::name_of(dtype), lanes);
}

std::string c_storage(DType dtype, int lanes) {
  if (is_half(dtype)) return with_lanes("u16", lanes);
  if (dtype == DType::boolean) return with_lanes("u8", lanes);
  return c_type(dtype, lanes);
}

std::string c_mask(int bytes, int lanes) { return with_lanes("i" + std::to_string(8 * bytes), lanes); }

std::string c_literal(const ir::Expr& constant) {
  if (ir::is_float(constant.dtype)) {
    const bool single = constant.dtype != DType::f64;
    if (std::isnan(constant.real)) return single ? "__builtin_nanf(\"\")" : "__builtin_nan(\"\")";
    if (std::isinf(constant.real))
      return std::string(constant.real < 0 ? "-" : "") + (single ? "__builtin_inff()" : "__builtin_inf()");
    return "(" + hex(constant.real, single) + ")";
  }
  if (constant.dtype == DType::boolean) return constant.integer != 0 ? "1" : "0";
  if (constant.dtype == DType::index) {
    if (constant.integer == INT64_MIN) return "(-9223372036854775807LL - 1)";
    return constant.integer < 0 ? "(" + std::to_string(constant.integer) + "LL)" : std::to_string(constant.integer);
  }
  return "(" + c_type(constant.dtype) + ")" + std::to_string(static_cast<uint64_t>(constant.integer)) + "ULL";
}

std::string Printer::keep(const std::string& type, const std::string& text) {
  const std::string name = fresh("t");
  line("const " + type + " " + name + " = " + text + ";");
  return name;
}

void Printer::need_type(DType dtype, int lanes) {
  if (lanes > 1) types_.insert({dtype, lanes});
}

std::string Printer::helper(const std::string& name, int lanes) {
  helpers_.insert({name, lanes});
  for (const DType dtype : {DType::f32, DType::u32, DType::i32, DType::u16}) need_type(dtype, lanes);
  return with_lanes(name, lanes);
}

// ---- subscripts ----

std::string Printer::atom_text(const ir::ExprPtr& atom) {
  switch (atom->kind) {
    case Kind::name: {
      const auto loop = c_names_.find(atom->name);
      return loop != c_names_.end() ? loop->second : number(CNumber::Kind::size, atom->name);
    }
    case Kind::integer: return c_literal(*atom);
    case Kind::clamp: {
      const Value inner = value(atom->operands[0]);
      return "nw_clamp(" + std::string(inner.dtype == DType::u64 ? "nw_of_u64(" : "(i64)(") + inner.text + "), " +
             index_text(atom->operands[1]) + ", " + index_text(atom->operands[2]) + ")";
    }
    default: break;
  }
  const std::string a = index_text(atom->operands[0]), b = index_text(atom->operands[1]);
  if (atom->name == "mul") return "(" + a + ") * (" + b + ")";
  return "nw_" + atom->name + "(" + a + ", " + b + ")";  // floor_div, remainder, minimum, maximum
}

std::string Printer::sum_text(const Linear& sum) {
  std::string out;
  for (const Term& term : sum.terms) {
    const std::string atom = atom_text(term.atom);
    out += out.empty() ? "" : " + ";
    out += term.factor == 1
               ? atom
               : "(" + atom + ") * " + (term.factor < 0 ? "(" + std::to_string(term.factor) + "LL)" : std::to_string(term.factor));
  }
  if (out.empty()) return std::to_string(sum.constant);
  if (sum.constant > 0) out += " + " + std::to_string(sum.constant);
  if (sum.constant < 0) out += " - " + std::to_string(0 - static_cast<uint64_t>(sum.constant));
  return out;
}

std::string Printer::index_text(const ir::ExprPtr& expr) { return sum_text(linear(expr, extents_)); }

// A number of `index` as a value: a vector where it differs from lane to lane.
Value Printer::index_value(const ir::ExprPtr& expr) {
  const Linear sum = linear(expr, extents_);
  const Linear rest = sum.without(kLane);
  if (lanes_ == 1 || !mentions(expr, kLane)) return {keep("i64", sum_text(sum)), DType::index};
  need_type(DType::i64, lanes_);
  std::vector<std::string> each;
  if (mentions(expression(rest), kLane)) {  // by a quotient or the like
    for (int lane = 0; lane < lanes_; ++lane) each.push_back(index_text(ir::substitute(expr, {{kLane, ir::make_integer(lane)}})));
  } else {
    const std::string first = keep("i64", sum_text(rest));
    for (int lane = 0; lane < lanes_; ++lane) each.push_back(first + " + " + std::to_string(lane * sum.factor_of(kLane)) + "LL");
  }
  const std::string type = c_type(DType::i64, lanes_);
  return {keep(type, "(" + type + "){" + join(each, ", ") + "}"), DType::index, lanes_};
}

// ---- parts ----

Value Printer::widen(const Value& value, int lanes) {
  if (value.lanes == lanes) return value;
  if (value.dtype == DType::boolean) return {mask(value, 4, lanes), DType::boolean, lanes, 4};
  need_type(value.dtype == DType::index ? DType::i64 : is_half(value.dtype) ? DType::f32 : value.dtype, lanes);
  const std::string type = c_type(value.dtype, lanes);
  std::vector<std::string> each(static_cast<size_t>(lanes), value.text);
  return {keep(type, "(" + type + "){" + join(each, ", ") + "}"), value.dtype, lanes};
}

std::string Printer::mask(const Value& value, int bytes, int lanes) {
  const DType integers[] = {DType::i8,  DType::i8,  DType::i16, DType::i16, DType::i32,
                            DType::i32, DType::i32, DType::i32, DType::i64};
  need_type(integers[bytes], lanes);
  const std::string type = c_mask(bytes, lanes);
  if (value.lanes == 1) {
    std::vector<std::string> each(static_cast<size_t>(lanes), "-(" + value.text + ")");
    return keep(type, "(" + type + "){" + join(each, ", ") + "}");
  }
  if (value.mask == bytes) return value.text;
  return keep(type, "__builtin_convertvector(" + value.text + ", " + type + ")");
}

Value Printer::rounded(Value value) {
  if (!is_half(value.dtype)) return value;
  const std::string name = ir::name_of(value.dtype);
  const std::string narrow = helper("nw_to_" + name, value.lanes), wide = helper("nw_from_" + name, value.lanes);
  value.text = keep(c_type(value.dtype, value.lanes), wide + "(" + narrow + "(" + value.text + "))");
  return value;
}

Value Printer::arithmetic(const std::string& symbol, const Value& a, const Value& b) {
  const int lanes = std::max(a.lanes, b.lanes);
  const std::string type = c_type(a.dtype, lanes);
  const Value left = widen(a, lanes), right = widen(b, lanes);
  Value out{keep(type, "(" + type + ")(" + left.text + " " + symbol + " " + right.text + ")"), a.dtype, lanes};
  if (symbol == "*" && source_.contracts && ir::is_float(a.dtype)) {  // or a compiler that may fuse would, into any sum
    const std::string pinned = fresh("t");
    // Half a register is none: clang cannot pin it there.
    const bool is_part = lanes > 1 && lanes * (a.dtype == DType::f64 ? 8 : 4) < 16;
    line(type + " " + pinned + " = " + out.text + (is_part ? "; NW_PIN_PART(" : "; NW_PIN(") + pinned + ");");
    out.text = pinned;
  }
  return rounded(out);
}

Value Printer::compare(const std::string& symbol, const Value& a, const Value& b) {
  const int lanes = std::max(a.lanes, b.lanes);
  if (lanes == 1) return {keep("i32", a.text + " " + symbol + " " + b.text), DType::boolean};
  const int bytes = is_half(a.dtype) ? 4 : static_cast<int>(bytes_of(a.dtype));
  const Value left = widen(a, lanes), right = widen(b, lanes);
  Value out{"", DType::boolean, lanes, bytes};
  const DType integers[] = {DType::i8,  DType::i8,  DType::i16, DType::i16, DType::i32,
                            DType::i32, DType::i32, DType::i32, DType::i64};
  need_type(integers[bytes], lanes);
  out.text = keep(c_mask(bytes, lanes), "(" + c_mask(bytes, lanes) + ")(" + left.text + " " + symbol + " " + right.text + ")");
  return out;
}

// a ≠ 0, NaN included.
Value Printer::truth(const Value& value) {
  if (value.dtype == DType::boolean) return value;
  ir::Expr zero{ir::is_float(value.dtype) ? Kind::real : Kind::integer, value.dtype, 0, 0, "", {}};
  return compare("!=", value, {c_literal(zero), value.dtype});
}

Value Printer::logic(const std::string& name, const std::vector<Value>& operands) {
  std::vector<Value> parts;
  int lanes = 1, bytes = 0;
  for (const Value& operand : operands) {
    parts.push_back(truth(operand));
    lanes = std::max(lanes, parts.back().lanes);
    bytes = std::max(bytes, parts.back().mask);
  }
  const char* symbol = name.ends_with("and") ? " & " : name.ends_with("xor") ? " ^ " : " | ";
  std::vector<std::string> texts;
  texts.reserve(parts.size());
  for (const Value& part : parts) texts.push_back(lanes == 1 ? part.text : mask(part, bytes, lanes));
  std::string text = join(texts, symbol);
  if (parts.size() == 1) text = (lanes == 1 ? "!" : "~") + text;
  return {keep(lanes == 1 ? "i32" : c_mask(bytes, lanes), text), DType::boolean, lanes, lanes == 1 ? 0 : bytes};
}

Value Printer::select(const Value& condition, const Value& a, const Value& b) {
  const int lanes = std::max({condition.lanes, a.lanes, b.lanes});
  if (a.dtype == DType::boolean && lanes > 1) {
    const std::string m = mask(condition, 4, lanes);
    const std::string text = "(" + m + " & " + mask(a, 4, lanes) + ") | (~" + m + " & " + mask(b, 4, lanes) + ")";
    return {keep(c_mask(4, lanes), text), DType::boolean, lanes, 4};
  }
  const std::string type = c_type(a.dtype, lanes);
  const Value left = widen(a, lanes), right = widen(b, lanes);
  if (condition.lanes == 1) {
    const std::string name = fresh("t");
    line(type + " " + name + "; if (" + condition.text + ") " + name + " = " + left.text + "; else " + name + " = " + right.text +
         ";");
    return {name, a.dtype, lanes};
  }
  const int bytes = is_half(a.dtype) ? 4 : static_cast<int>(bytes_of(a.dtype));
  const std::string m = mask(condition, bytes, lanes), bits = "(" + c_mask(bytes, lanes) + ")";
  return {keep(type, "(" + type + ")((" + bits + left.text + " & " + m + ") | (" + bits + right.text + " & ~" + m + "))"), a.dtype,
          lanes};
}

// maximum (>) and minimum (<): NaN where either is.
Value Printer::extreme(const std::string& symbol, const Value& a, const Value& b) {
  const int lanes = std::max(a.lanes, b.lanes);
  const Value left = widen(a, lanes), right = widen(b, lanes);
  Value first = compare(symbol, left, right);
  if (ir::is_float(a.dtype)) first = logic("or", {first, compare("!=", left, left)});
  return select(first, left, right);
}

// ---- functions ----

ir::ExprPtr elu_by_expm1(const ir::Expr& elu, const std::function<ir::ExprPtr(const ir::ExprPtr&)>& expm1) {
  const DType dtype = is_half(elu.dtype) ? DType::f32 : elu.dtype;  // that it is computed in
  const ir::ExprPtr x = ir::make_cast(dtype, elu.operands[0]), alpha = ir::make_cast(dtype, elu.operands[1]);
  const ir::ExprPtr negative = ir::make_call("mul", {alpha, expm1(ir::make_call("expm1", {x}))});
  return ir::make_cast(elu.dtype, ir::make_call("where", {ir::make_call("gt", {x, ir::make_real(dtype, 0)}), x, negative}));
}

// A function of C for each lane: written so, all lanes become one instruction.
Value Printer::by_c_function(const std::string& name, const std::vector<Value>& operands) {
  const DType dtype = operands[0].dtype;
  int lanes = 1;
  for (const Value& operand : operands) lanes = std::max(lanes, operand.lanes);
  std::vector<Value> all;
  for (const Value& operand : operands) all.push_back(widen(operand, lanes));
  std::vector<std::string> each;
  for (int lane = 0; lane < lanes; ++lane) {
    std::vector<std::string> texts;
    for (const Value& one : all) texts.push_back(lanes == 1 ? one.text : one.text + "[" + std::to_string(lane) + "]");
    each.push_back("__builtin_" + name + (dtype == DType::f64 ? "(" : "f(") + join(texts, ", ") + ")");
  }
  const std::string type = c_type(dtype, lanes);
  return {keep(type, lanes == 1 ? each[0] : "(" + type + "){" + join(each, ", ") + "}"), dtype, lanes};
}

// Of the functions that C has, whether they are an instruction: else a kernel's loop is faster than C's function, which the text
// is not linked with, either.
bool Printer::is_instruction(const std::string& name, DType dtype) const {
  if (name == "fma") return target_.fuses && !is_half(dtype);  // of 16 bits it would be rounded twice
  return target_.rounds;
}

namespace {
constexpr std::pair<const char*, const char*> kRoundings[] = {
    {"floor", "floor"}, {"ceil", "ceil"}, {"trunc", "trunc"}, {"round", "rint"}};
}  // namespace

std::optional<Value> Printer::unary(const std::string& name, const Value& a) {
  const bool is_float = ir::is_float(a.dtype);
  const std::string type = c_type(a.dtype, a.lanes);
  const Value zero{c_literal({is_float ? Kind::real : Kind::integer, a.dtype, 0, 0, "", {}}), a.dtype};
  if (name == "neg") return Value{keep(type, "(" + type + ")(-" + a.text + ")"), a.dtype, a.lanes};
  if (name == "square") return arithmetic("*", a, a);
  if (name == "relu") return select(compare("<=", a, zero), zero, a);
  if (name == "reciprocal" && is_float) return arithmetic("/", {"1.0f", a.dtype}, a);
  if (name == "isnan") return is_float ? compare("!=", a, a) : Value{"0", DType::boolean};
  if (name == "isinf" || name == "isfinite") {
    if (!is_float) return Value{name == "isinf" ? "0" : "1", DType::boolean};
    const Value infinity{a.dtype == DType::f64 ? "__builtin_inf()" : "__builtin_inff()", a.dtype};
    return compare(name == "isinf" ? "==" : "<", *unary("abs", a), infinity);
  }
  if (name == "sign") {
    const Value one{is_float ? "1.0f" : "1", a.dtype}, minus_one{is_float ? "-1.0f" : "-1", a.dtype};
    const Value negative = ir::is_signed(a.dtype) || is_float ? select(compare("<", a, zero), minus_one, zero) : zero;
    const Value sign = select(compare(">", a, zero), one, negative);
    return is_float ? select(compare("!=", a, a), a, sign) : sign;
  }
  if (name == "bitwise_not") return Value{keep(type, "(" + type + ")~" + a.text), a.dtype, a.lanes};
  for (const auto& [function, of_c] : kRoundings) {
    if (name != function) continue;
    if (!is_float) return a;
    return is_instruction(name, a.dtype) ? std::optional(by_c_function(of_c, {a})) : std::nullopt;
  }
  if (name == "abs" && !is_float)
    return ir::is_signed(a.dtype)
               ? select(compare("<", a, zero), {keep(type, "(" + type + ")(-" + a.text + ")"), a.dtype, a.lanes}, a)
               : a;
  if (name == "abs" && a.lanes > 1) {
    const int bytes = a.dtype == DType::f64 ? 8 : 4;
    const std::string bits = c_mask(bytes, a.lanes);
    need_type(bytes == 8 ? DType::i64 : DType::i32, a.lanes);
    return Value{
        keep(type, "(" + type + ")((" + bits + ")" + a.text + " & " + (bytes == 8 ? "0x7fffffffffffffffLL" : "0x7fffffff") + ")"),
        a.dtype, a.lanes};
  }
  if (name == "abs")
    return Value{keep(type, std::string(a.dtype == DType::f64 ? "__builtin_fabs(" : "__builtin_fabsf(") + a.text + ")"), a.dtype};
  return std::nullopt;
}

// What a line of C says as docs/ops.md does; nothing where a kernel has to.
std::optional<Value> Printer::simple(const std::string& name, std::vector<Value>& operands) {
  const Value& a = operands[0];
  const bool is_bool = a.dtype == DType::boolean, is_float = ir::is_float(a.dtype);
  if (name.rfind("logical_", 0) == 0 || (is_bool && name.rfind("bitwise_", 0) == 0)) return logic(name, operands);
  if (is_bool && (name == "eq" || name == "ne")) {
    const Value differs = logic("xor", operands);
    return name == "ne" ? differs : logic("not", {differs});
  }
  if (operands.size() == 1) return unary(name, a);
  const Value& b = operands[1];
  if (name == "add") return arithmetic("+", a, b);
  if (name == "sub") return arithmetic("-", a, b);
  if (name == "mul") return arithmetic("*", a, b);
  if (name == "div" && is_float) return arithmetic("/", a, b);
  if (name == "bitwise_and") return arithmetic("&", a, b);
  if (name == "bitwise_or") return arithmetic("|", a, b);
  if (name == "bitwise_xor") return arithmetic("^", a, b);
  if (name == "maximum") return extreme(">", a, b);
  if (name == "minimum") return extreme("<", a, b);
  if (name == "copysign") return by_c_function(name, operands);
  if (name == "fma" && !is_float) return arithmetic("+", arithmetic("*", a, b), operands[2]);
  if (name == "fma" && is_instruction(name, a.dtype)) return by_c_function(name, operands);
  if (name == "clamp") return extreme("<", extreme(">", a, b), operands[2]);
  const std::pair<const char*, const char*> comparisons[] = {{"lt", "<"},  {"le", "<="}, {"gt", ">"},
                                                             {"ge", ">="}, {"eq", "=="}, {"ne", "!="}};
  for (const auto& [function, symbol] : comparisons)
    if (name == function) return compare(symbol, a, b);
  return std::nullopt;
}

size_t Printer::function_number(const CFunction& function) {
  const auto found = std::find(source_.functions.begin(), source_.functions.end(), function);
  const auto number = static_cast<size_t>(found - source_.functions.begin());
  if (found == source_.functions.end()) source_.functions.push_back(function);
  return number;
}

// A kernel of elementwise, on as many elements as the vector has.
Value Printer::by_function(const CFunction& function, const std::vector<Value>& operands, DType result) {
  int lanes = 1;
  for (const Value& operand : operands) lanes = std::max(lanes, operand.lanes);
  const size_t number = function_number(function);
  std::vector<std::string> pointers;
  const bool has_alpha = function.function == "elu";
  for (size_t i = 0; i < operands.size() - (has_alpha ? 1 : 0); ++i) {
    const Value operand = widen(operands[i], lanes);
    const std::string name = fresh("m");
    need_type(operand.dtype, lanes);
    line("NW_ALIGNED " + c_storage(operand.dtype, lanes) + " " + name + " = " + to_storage(operand) + ";");
    pointers.push_back("&" + name);
  }
  pointers.resize(3, "0");
  const std::string out = fresh("m");
  if (result == DType::boolean) need_type(DType::u8, lanes);
  need_type(is_half(result) ? DType::u16 : result, lanes);
  line("NW_ALIGNED " + c_storage(result, lanes) + " " + out + ";");
  const std::string alpha = has_alpha ? operands.back().text : "0";
  line("H->call(H->functions[" + std::to_string(number) + "], " + join(pointers, ", ") + ", &" + out + ", " +
       std::to_string(lanes) + ", " + alpha + ");");
  return from_storage(out, result, lanes);
}

// a * b + c, which the compiler may fuse.
Value Printer::sum_of_product(const ir::Expr& expr, size_t product) {
  const ir::Expr& factors = *expr.operands[product];
  const Value a = value(factors.operands[0]), b = value(factors.operands[1]), c = value(expr.operands[1 - product]);
  const int lanes = std::max({a.lanes, b.lanes, c.lanes});
  const std::string text = widen(a, lanes).text + " * " + widen(b, lanes).text + " + " + widen(c, lanes).text;
  return {keep(c_type(a.dtype, lanes), text), a.dtype, lanes};
}

Value Printer::call(const ir::Expr& expr) {
  if (expr.name == "where") return where(expr);
  if (expr.name == "elu" && mentions(expr.operands[1], kLane))
    return value(elu_by_expm1(expr, [](const ir::ExprPtr& expm1) { return expm1; }));
  if (const auto product = fusible_product(expr, contract_); product.has_value()) return sum_of_product(expr, *product);
  std::vector<Value> operands;
  operands.reserve(expr.operands.size());
  for (const ir::ExprPtr& operand : expr.operands) operands.push_back(value(operand));
  if (const std::optional<Value> out = simple(expr.name, operands); out.has_value()) return *out;
  return by_function({expr.name, operands[0].dtype, operands[0].dtype}, operands, expr.dtype);
}

// ---- where ----

// The expression for one lane after the other, as scalars.
Value Printer::each_lane(const ir::ExprPtr& expr) {
  if (part_.has_value()) part_->failed = true;  // it would read lanes that are not there
  const int lanes = lanes_;
  const std::string array = fresh("m"), lane = fresh("q");
  need_type(expr->dtype, lanes);
  if (expr->dtype == DType::boolean) need_type(DType::u8, lanes);
  line("NW_ALIGNED " + c_storage(expr->dtype) + " " + array + "[" + std::to_string(lanes) + "];");
  open("for (i64 " + lane + " = 0; " + lane + " < " + std::to_string(lanes) + "; ++" + lane + ") {");
  c_names_["#" + lane] = lane;
  set_lanes(1);
  const Value one = value(ir::substitute(expr, {{kLane, ir::make_name("#" + lane)}}));
  line(array + "[" + lane + "] = " + to_storage(one) + ";");
  set_lanes(lanes);
  close();
  if (is_half(expr->dtype)) need_type(DType::u16, lanes);
  return from_storage("*(const " + c_storage(expr->dtype, lanes) + "u*)" + array, expr->dtype, lanes);
}

// Loads that the test guards are made where it holds for all lanes; elsewhere lane by lane.
Value Printer::guarded(const ir::Expr& expr, const std::string& test) {
  const std::string out = fresh("t");
  const bool is_bool = expr.dtype == DType::boolean;
  const int mask_bytes = 4;
  const auto as_text = [&](const Value& v) {
    return is_bool && lanes_ > 1 ? mask(v, mask_bytes, lanes_) : lanes_ == 1 ? v.text : widen(v, lanes_).text;
  };
  if (is_bool && lanes_ > 1) need_type(DType::i32, lanes_);
  const std::string type = is_bool && lanes_ > 1 ? c_mask(mask_bytes, lanes_) : c_type(expr.dtype, lanes_);
  need_type(is_half(expr.dtype) ? DType::f32 : expr.dtype, lanes_);
  line(type + " " + out + ";");
  open("if (" + test + ") {");
  line(out + " = " + as_text(value(expr.operands[1])) + ";");
  close();
  open("else {");
  const bool by_lane = lanes_ > 1 && mentions(expr.operands[0], kLane);
  const Value other = by_lane ? each_lane(std::make_shared<const ir::Expr>(expr)) : value(expr.operands[2]);
  line(out + " = " + as_text(other) + ";");
  close();
  return {out, expr.dtype, lanes_, is_bool && lanes_ > 1 ? mask_bytes : 0};
}

Value Printer::where(const ir::Expr& expr) {
  const ir::ExprPtr& condition = expr.operands[0];
  if (condition->kind == Kind::present || condition->kind == Kind::boolean) {
    const bool chosen = condition->kind == Kind::boolean ? condition->integer != 0 : bound_.buffers.at(condition->name).present;
    return value(expr.operands[chosen ? 1 : 2]);
  }
  const bool loads = has_load(expr.operands[1]) || has_load(expr.operands[2]);
  const bool by_data = !compares_index(condition);  // it keeps no subscript within bounds: data cannot
  if (!loads || (by_data && mentions(condition, kLane)))
    return select(value(condition), value(expr.operands[1]), value(expr.operands[2]));
  if (lanes_ == 1 || !mentions(condition, kLane)) return guarded(expr, value(condition).text);
  if (has_index_load(expr.operands[1]) || has_index_load(expr.operands[2]) || has_load(expr.operands[2]))
    return each_lane(std::make_shared<const ir::Expr>(expr));
  std::vector<ir::ExprPtr> parts;
  split_conjunction(condition, &parts);
  std::vector<std::string> tests;
  for (const ir::ExprPtr& part : parts) {
    if (has_load(part) || !ends_decide(part)) return each_lane(std::make_shared<const ir::Expr>(expr));
    tests.push_back(at_lane(part, 0));
    tests.push_back(at_lane(part, lanes_ - 1));
  }
  return guarded(expr, join(tests, " && "));
}

// ---- casts ----

bool casts_by_c(DType from, DType to) {
  if (from == to || from == DType::boolean || to == DType::boolean) return true;
  const bool from_float = ir::is_float(from), to_float = ir::is_float(to);
  const bool wraps = from == DType::index && !to_float;
  const bool widens =
      !from_float && !to_float && ir::bits_of(to) > ir::bits_of(from) && (ir::is_signed(to) || !ir::is_signed(from));
  const bool by_f32 = is_half(to) && (from == DType::f32 || is_half(from) || ir::bits_of(from) <= 16);
  return wraps || widens || (to_float && !is_half(to)) || by_f32;
}

Value Printer::cast(const ir::Expr& expr) {
  const ir::ExprPtr& operand = expr.operands[0];
  const DType from = operand->dtype, to = expr.dtype;
  Value in = from == DType::index ? index_value(operand) : value(operand);
  if (from == to) return in;
  if (to == DType::boolean) return truth(in);
  const int lanes = in.lanes;
  need_type(is_half(to) ? DType::f32 : to, lanes);
  if (from == DType::boolean) {
    if (lanes > 1) in = {keep(c_mask(in.mask, lanes), in.text + " & 1"), DType::i32, lanes};
  } else if (!casts_by_c(from, to)) {
    return by_function({"", from, to}, {in}, to);
  }
  const std::string type = c_type(to, lanes);
  const std::string text =
      lanes == 1 ? "(" + type + ")(" + in.text + ")" : "__builtin_convertvector(" + in.text + ", " + type + ")";
  return rounded({keep(type, text), to, lanes});
}

Value Printer::value(const ir::ExprPtr& expr) {
  if (expr->dtype == DType::index && expr->kind != Kind::load) return index_value(expr);
  switch (expr->kind) {
    case Kind::integer:
    case Kind::real:
    case Kind::boolean: return {c_literal(*expr), expr->dtype};
    case Kind::present: return {bound_.buffers.at(expr->name).present ? "1" : "0", DType::boolean};
    case Kind::name: return {number(CNumber::Kind::param, expr->name), expr->dtype};
    case Kind::load: return load(*expr);
    case Kind::cast: return cast(*expr);
    default: return call(*expr);
  }
}

std::vector<ir::ExprPtr> Printer::resolved(const std::vector<ir::ExprPtr>& indices) const {
  std::vector<ir::ExprPtr> out;
  out.reserve(indices.size());
  for (const ir::ExprPtr& index : indices) out.push_back(resolved(index));
  return out;
}

std::string Printer::condition_text(const std::vector<ir::ExprPtr>& conditions) {
  std::vector<std::string> parts;
  parts.reserve(conditions.size());
  for (const ir::ExprPtr& condition : conditions) parts.push_back(value(resolved(condition)).text);
  return join(parts, " && ");
}

}  // namespace narrows::cpu
