// SPDX-License-Identifier: Apache-2.0
// program_values.cpp -- see program_values.h. Functions come from the table of elementwise.h.
#include "program_values.h"

#include <cmath>
#include <stdexcept>

#include "elementwise.h"

namespace narrows::reference {
namespace {

using program::Expr;

const Function& function_of(const std::string& name) {
  static const auto kTable = [] {
    std::unordered_map<std::string, const Function*> table;
    for (const Function& f : functions()) table[f.name] = &f;
    return table;
  }();
  const auto found = kTable.find(name);
  if (found == kTable.end()) throw std::invalid_argument("the reference has no function '" + name + "'");
  return *found->second;
}

bool is_floating(program::DType dtype) { return dtype != program::DType::index && test::is_float(element_dtype(dtype)); }

// Two's complement, of an integer dtype's width.
Exact wrapped(DType dtype, Exact value) {
  return apply(function_of("add"), dtype, {value, 0, 0});  // which wraps its sum
}

Exact cast_of(const Expr& e, Exact value) {
  const program::DType from = e.operands[0]->dtype;
  if (from != program::DType::index) return cast(element_dtype(from), element_dtype(e.dtype), value);
  if (e.dtype == program::DType::index) return value;
  const DType to = element_dtype(e.dtype);
  if (to == DType::boolean) return value != 0;
  return test::is_float(to) ? test::rounded(to, value) : wrapped(to, value);
}

// Subscripts stay small, so that long double holds every one of them.
Exact floor_divided(Exact a, Exact b) {
  if (b == 0) throw std::invalid_argument("the reference divides a subscript by 0");
  return std::floor(a / b);
}

Exact called(const Expr& e, Surroundings& around) {
  if (e.name == "where") return value_of(*e.operands.at(value_of(*e.operands.at(0), around) != 0 ? 1 : 2), around);
  Exact operands[3] = {};
  for (size_t i = 0; i < e.operands.size(); ++i) operands[i] = value_of(*e.operands[i], around);
  const program::DType dtype = e.operands.at(0)->dtype;
  if (dtype == program::DType::index && e.name == "floor_div") return floor_divided(operands[0], operands[1]);
  // elu's second operand is its param in docs/ops.md.
  const Reals reals{operands[0], operands[1], operands[2], operands[1]};
  const Exact result = apply(function_of(e.name), element_dtype(dtype), reals);
  return stored(e.dtype, result, around.rounding);
}

Exact clamped(const Expr& e, Surroundings& around) {
  const Exact low = value_of(*e.operands.at(1), around), high = value_of(*e.operands.at(2), around);
  return std::fmin(std::fmax(value_of(*e.operands.at(0), around), low), high);
}

Exact loaded(const Expr& e, Surroundings& around) {
  std::vector<int64_t> indices;
  for (const program::ExprPtr& index : e.operands) indices.push_back(index_of(*index, around));
  return around.read(e.name, indices);
}

Exact named(const Expr& e, const Surroundings& around) {
  const auto found = around.names.find(e.name);
  if (found == around.names.end()) throw std::invalid_argument("the reference knows no size, param, loop or axis '" + e.name + "'");
  return found->second;
}

}  // namespace

DType element_dtype(program::DType dtype) {
  using P = program::DType;
  switch (dtype) {
    case P::index:
    case P::i64: return DType::i64;
    case P::boolean: return DType::boolean;
    case P::i8: return DType::i8;
    case P::i16: return DType::i16;
    case P::i32: return DType::i32;
    case P::u8: return DType::u8;
    case P::u16: return DType::u16;
    case P::u32: return DType::u32;
    case P::u64: return DType::u64;
    case P::f16: return DType::f16;
    case P::bf16: return DType::bf16;
    case P::f32: return DType::f32;
    case P::f64: return DType::f64;
  }
  throw std::invalid_argument("the reference knows no such dtype");
}

Exact stored(program::DType dtype, Exact value, Rounding rounding) {
  return rounding == Rounding::each && is_floating(dtype) ? test::rounded(element_dtype(dtype), value) : value;
}

Exact value_of(const Expr& e, Surroundings& around) {
  switch (e.kind) {
    case Expr::Kind::integer:
      return e.dtype == program::DType::u64 ? static_cast<Exact>(static_cast<uint64_t>(e.integer)) : e.integer;
    case Expr::Kind::real: return e.real;
    case Expr::Kind::boolean: return e.integer != 0;
    case Expr::Kind::name: return named(e, around);
    case Expr::Kind::load: return loaded(e, around);
    case Expr::Kind::present: return around.is_present(e.name);
    case Expr::Kind::call: return called(e, around);
    case Expr::Kind::cast: return cast_of(e, value_of(*e.operands.at(0), around));
    case Expr::Kind::clamp: return clamped(e, around);
  }
  throw std::invalid_argument("the reference knows no such expression");
}

std::string shown(const std::vector<int64_t>& point) {
  std::string text;
  for (const int64_t value : point) text += (text.empty() ? "" : ", ") + std::to_string(value);
  return "[" + text + "]";
}

int64_t index_of(const Expr& e, Surroundings& around) { return static_cast<int64_t>(value_of(e, around)); }

}  // namespace narrows::reference
