// SPDX-License-Identifier: Apache-2.0
// elementwise.cpp -- the contract of elementwise and elementwise_backward: elementwise_functions.toml, the table of the
// functions, drives the names that bindings see, what is accepted, and the output's dtype. docs/ops.md has the formulas.
#include "core/contract.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

namespace narrows {
namespace {

enum Kinds : uint8_t { kFloat = 1, kInt = 2, kBool = 4 };  // of the operands
constexpr uint8_t kNumeric = kFloat | kInt, kBits = kInt | kBool, kAny = kFloat | kInt | kBool;
enum class Result : uint8_t { operands_dtype, bool_dtype, cast_dtype };  // the dtype of the result

struct Function {
  const char* name;
  int32_t number;
  uint8_t operands;
  uint8_t kinds;
  Result result;
  bool differentiable;
};

// In the order of NW_EW_*, from 1.
constexpr uint8_t F = kFloat, N = kNumeric, B = kBits, I = kInt, A = kAny;
constexpr Function kFunctions[] = {
#define NARROWS_FUNCTION(number, name, operands, dtypes, result, differentiable, cost) \
  {#name, number, operands, dtypes, Result::result##_dtype, differentiable},
#include "core/ops/elementwise_functions.inc"
#undef NARROWS_FUNCTION
};
constexpr int32_t kCount = static_cast<int32_t>(std::size(kFunctions));
static_assert(kFunctions[0].number == 1 &&
              std::adjacent_find(std::begin(kFunctions), std::end(kFunctions), [](const Function& a, const Function& b) {
                return b.number != a.number + 1;
              }) == std::end(kFunctions));

// clang-format off: a table
constexpr DLDataType kDtypes[] = {{},
                                  {kDLFloat, 32, 1}, {kDLFloat, 64, 1}, {kDLFloat, 16, 1}, {kDLBfloat, 16, 1}, {kDLInt, 8, 1},
                                  {kDLInt, 16, 1},   {kDLInt, 32, 1},   {kDLInt, 64, 1},   {kDLUInt, 8, 1},    {kDLUInt, 16, 1},
                                  {kDLUInt, 32, 1},  {kDLUInt, 64, 1},  {kDLBool, 8, 1}};
// clang-format on
const char* const kDtypeNames[] = {"",      "float32", "float64", "float16", "bfloat16", "int8", "int16", "int32",
                                   "int64", "uint8",   "uint16",  "uint32",  "uint64",   "bool", nullptr};

const char* const* function_names() {
  static const char* names[kCount + 2] = {""};
  for (int32_t i = 0; i < kCount; ++i) names[i + 1] = kFunctions[i].name;
  return names;
}

constexpr DLDataType kInt32Field{kDLInt, 32, 1}, kFloat64Field{kDLFloat, 64, 1};
const nw_param kFunction = {"function", kInt32Field, offsetof(nw_elementwise_params, function), function_names(), 0};
const nw_param kOutDtype = {"out_dtype", kInt32Field, offsetof(nw_elementwise_params, out_dtype), kDtypeNames, 0};
const nw_param kAlpha = {"alpha", kFloat64Field, offsetof(nw_elementwise_params, alpha), nullptr, 1};
const nw_param kBReal = {"b_real", kFloat64Field, offsetof(nw_elementwise_params, b_real), nullptr, 0};
const nw_param kBInt = {"b_int", kInt64Field, offsetof(nw_elementwise_params, b_int), nullptr, 0};
const nw_param kCReal = {"c_real", kFloat64Field, offsetof(nw_elementwise_params, c_real), nullptr, 0};
const nw_param kCInt = {"c_int", kInt64Field, offsetof(nw_elementwise_params, c_int), nullptr, 0};
const nw_param* const kFields[] = {&kFunction, &kOutDtype, &kAlpha, &kBReal, &kBInt, &kCReal, &kCInt, nullptr};

const char* const kInputs[] = {"a", "b?", "c?", nullptr};
const char* const kOutputs[] = {"out", nullptr};
const char* const kBackwardInputs[] = {"grad_out?", "a", "b?", "c?", "out?", nullptr};
const char* const kBackwardOutputs[] = {"grad_a?", "grad_b?", "grad_c?", nullptr};

uint8_t kind(DLDataType t) {
  if (is_float(t)) return kFloat;
  if (t.code == kDLBool && t.bits == 8) return kBool;
  const bool width = t.bits == 8 || t.bits == 16 || t.bits == 32 || t.bits == 64;
  return (t.code == kDLInt || t.code == kDLUInt) && width ? kInt : 0;
}

// "float16, bfloat16, float32, float64 or bool"
std::string show_kinds(uint8_t kinds) {
  std::string out;
  const std::pair<uint8_t, const char*> all[] = {
      {kFloat, "float16, bfloat16, float32, float64"}, {kInt, "an integer of 8 to 64 bits"}, {kBool, "bool"}};
  for (const auto& [bit, dtypes] : all) {
    if (!(kinds & bit)) continue;
    kinds = static_cast<uint8_t>(kinds & ~bit);
    out += (out.empty() ? "" : kinds == 0 ? " or " : ", ") + std::string(dtypes);
  }
  return out;
}

// One call, forward or backward, as the rules below see it.
struct Call {
  const nw_op& op;
  const nw_sig& sig;
  uint32_t first;  // index of operand a among the inputs
  nw_elementwise_params params;
  const Function* function;

  Call(const nw_op& op, const nw_sig& sig, uint32_t first)
      : op(op), sig(sig), first(first), params(read_params<nw_elementwise_params>(sig)) {
    if (params.function == 0) throw_failure(NW_INVALID, -1, "%s: function = 0; expected one of NW_EW_*, 1 to %d", op.name, kCount);
    if (params.function < 0 || params.function > kCount)
      throw_failure(NW_UNSUPPORTED, -1, "%s: function = %d; this host knows 1 to %d", op.name, params.function, kCount);
    function = &kFunctions[params.function - 1];
  }
  bool has(uint32_t operand) const { return has_input(sig, first + operand); }
  const nw_tensor_sig& operand(uint32_t i) const { return sig.tensors[first + i]; }
  bool is_where() const { return params.function == NW_EW_WHERE; }
  // The dtype that the operands share; of where's, that of b and c.
  DLDataType dtype() const { return !is_where() ? operand(0).dtype : has(1) ? operand(1).dtype : operand(2).dtype; }
  DLDataType result() const {
    if (function->result == Result::bool_dtype) return {kDLBool, 8, 1};
    return function->result == Result::cast_dtype ? kDtypes[params.out_dtype] : dtype();
  }
  std::string where_am_i() const { return std::string(op.name) + ": " + function->name; }
};

void check_operand_dtype(const Call& call, uint32_t i) {
  const nw_tensor_sig& t = call.operand(i);
  const auto argument = static_cast<int32_t>(call.first + i);
  const char* const name = i == 0 ? "a" : i == 1 ? "b" : "c";
  if (call.is_where() && i == 0) {
    if (kind(t.dtype) != kBool)
      throw_failure(NW_INVALID, argument, "%s: a has dtype %s; expected bool", call.where_am_i().c_str(),
                    show_dtype(t.dtype).c_str());
    return;
  }
  if (!(kind(t.dtype) & call.function->kinds))
    throw_failure(NW_INVALID, argument, "%s: %s has dtype %s; expected %s", call.where_am_i().c_str(), name,
                  show_dtype(t.dtype).c_str(), show_kinds(call.function->kinds).c_str());
  if (!same(t.dtype, call.dtype()))
    throw_failure(NW_INVALID, argument, "%s: %s has dtype %s; expected %s as %s has", call.where_am_i().c_str(), name,
                  show_dtype(t.dtype).c_str(), show_dtype(call.dtype()).c_str(), call.is_where() ? "b" : "a");
}

void check_integer_fits(const Call& call, const char* field, int64_t value, DLDataType t) {
  const bool fits = t.code == kDLBool ? value == 0 || value == 1
                    : t.code == kDLUInt
                        ? value >= 0 && (t.bits == 64 || value < int64_t{1} << t.bits)
                        : t.bits == 64 || (value >= -(int64_t{1} << (t.bits - 1)) && value < int64_t{1} << (t.bits - 1));
  if (!fits)
    throw_failure(NW_INVALID, -1, "%s: %s = %lld does not fit %s", call.where_am_i().c_str(), field, static_cast<long long>(value),
                  show_dtype(t).c_str());
}

// The numbers that may stand for operand i: the one that is read is checked, the other must be 0, for it would be ignored.
void check_scalar(const Call& call, uint32_t i, const char* operand, double real, int64_t integer) {
  const bool used = i < call.function->operands && !call.has(i);
  const std::string at = call.where_am_i();
  if (!used) {
    const char* const why = i < call.function->operands ? "is given as a tensor" : "is no operand of this function";
    if (real != 0 || integer != 0)
      throw_failure(NW_INVALID, -1, "%s: %s_real = %g and %s_int = %lld, but %s %s; expected 0", at.c_str(), operand, real, operand,
                    static_cast<long long>(integer), operand, why);
    return;
  }
  const DLDataType t = call.dtype();
  if (kind(t) == kFloat) {
    if (integer != 0)
      throw_failure(NW_INVALID, -1, "%s: %s_int = %lld, but %s stands for a %s: use %s_real", at.c_str(), operand,
                    static_cast<long long>(integer), operand, show_dtype(t).c_str(), operand);
    return;
  }
  if (real != 0)
    throw_failure(NW_INVALID, -1, "%s: %s_real = %g, but %s stands for a %s: use %s_int", at.c_str(), operand, real, operand,
                  show_dtype(t).c_str(), operand);
  check_integer_fits(call, (std::string(operand) + "_int").c_str(), integer, t);
}

void check_operands(const Call& call) {
  for (uint32_t i = call.function->operands; i < 3; ++i)
    if (call.has(i))
      throw_failure(NW_INVALID, static_cast<int32_t>(call.first + i), "%s: takes %d operand%s, but %s is given too",
                    call.where_am_i().c_str(), call.function->operands, call.function->operands == 1 ? "" : "s",
                    i == 1 ? "b" : "c");
  if (call.is_where() && !call.has(1) && !call.has(2))
    throw_failure(NW_INVALID, static_cast<int32_t>(call.first + 1),
                  "%s: b and c are both absent; expected one tensor at least, to give the dtype", call.where_am_i().c_str());
  for (uint32_t i = 0; i < call.function->operands; ++i)
    if (call.has(i)) check_operand_dtype(call, i);
  const bool cast = call.function->result == Result::cast_dtype;
  if (cast ? call.params.out_dtype == 0 : call.params.out_dtype != 0)
    throw_failure(NW_INVALID, -1, "%s: out_dtype = %d; expected %s", call.where_am_i().c_str(), call.params.out_dtype,
                  cast ? "one of NW_DTYPE_*" : "0, which only cast does not take");
  if (call.params.out_dtype < 0 || call.params.out_dtype >= static_cast<int32_t>(std::size(kDtypes)))
    throw_failure(NW_UNSUPPORTED, -1, "%s: out_dtype = %d; this host knows 1 to %zu", call.where_am_i().c_str(),
                  call.params.out_dtype, std::size(kDtypes) - 1);
  check_scalar(call, 1, "b", call.params.b_real, call.params.b_int);
  check_scalar(call, 2, "c", call.params.c_real, call.params.c_int);
}

void check_forward(const nw_sig& sig) { check_operands(Call(elementwise_contract().op, sig, 0)); }

// grad_out has the shape and dtype of what the forward call gave, and so has `out` where it is given.
void check_result(const Call& call, uint32_t index, const Shape& expected) {
  if (!has_input(call.sig, index)) return;
  const nw_tensor_sig& t = call.sig.tensors[index];
  const std::string name = input_name(call.op, index);
  if (!same(t.dtype, call.result()))
    throw_failure(NW_INVALID, static_cast<int32_t>(index), "%s: %s has dtype %s; expected %s", call.where_am_i().c_str(),
                  name.c_str(), show_dtype(t.dtype).c_str(), show_dtype(call.result()).c_str());
  if (!std::equal(t.shape, t.shape + t.ndim, expected.extents.begin(), expected.extents.end()))
    throw_failure(NW_INVALID, static_cast<int32_t>(index), "%s: %s has shape %s; expected %s", call.where_am_i().c_str(),
                  name.c_str(), show_shape(t.shape, t.ndim).c_str(),
                  show_shape(expected.extents.data(), static_cast<int32_t>(expected.extents.size())).c_str());
}

void check_backward(const nw_sig& sig) {
  const Call call(elementwise_backward_contract().op, sig, 1);
  if (!call.function->differentiable) throw_failure(NW_INVALID, -1, "%s: has no gradient", call.where_am_i().c_str());
  check_operands(call);
  if (kind(call.dtype()) != kFloat)
    throw_failure(NW_INVALID, 1, "%s: the operands have dtype %s; a gradient needs floating point", call.where_am_i().c_str(),
                  show_dtype(call.dtype()).c_str());
  if (kind(call.result()) != kFloat)
    throw_failure(NW_INVALID, -1, "%s: a cast to %s has no gradient", call.where_am_i().c_str(), show_dtype(call.result()).c_str());
  if (call.is_where() && find_output(sig, 0) != nullptr)
    throw_failure(NW_INVALID, output_argument(0), "%s: grad_a is wanted, but a is bool and has no gradient; expected NULL",
                  call.where_am_i().c_str());
  std::vector<Shape> operands(4);
  for (uint32_t i = 1; i < 4; ++i)
    if (has_input(sig, i)) operands[i] = {true, {sig.tensors[i].shape, sig.tensors[i].shape + sig.tensors[i].ndim}};
  const Shape expected = broadcast(call.op, operands);
  check_result(call, 0, expected);
  check_result(call, 4, expected);
}

}  // namespace

const Contract& elementwise_contract() {
  static const Contract& contract = *new Contract([] {
    nw_op op = declare("elementwise", 1, kInputs, kOutputs, "broadcast");
    op.flags = NW_OP_BATCHABLE | NW_OP_INPLACE;
    op.batch = "*";
    op.params_size = sizeof(nw_elementwise_params);
    op.params = kFields;
    op.backward = "elementwise_backward";
    op.saved = 0b111;  // a, b, c
    Contract out(op);
    out.check = check_forward;
    out.output_dtype = [](const nw_sig& sig, uint32_t) { return Call(elementwise_contract().op, sig, 0).result(); };
    return out;
  }());
  return contract;
}

const Contract& elementwise_backward_contract() {
  static const Contract& contract = *new Contract([] {
    nw_op op = declare("elementwise_backward", 2, kBackwardInputs, kBackwardOutputs, "like 1 ; like 2 ; like 3");
    op.flags = NW_OP_BATCHABLE;
    op.batch = "*";
    op.params_size = sizeof(nw_elementwise_params);
    op.params = kFields;
    Contract out(op);
    out.check = check_backward;
    out.output_dtype = [](const nw_sig& sig, uint32_t i) {
      return has_input(sig, i + 1) ? sig.tensors[i + 1].dtype : DLDataType{};
    };
    return out;
  }());
  return contract;
}

}  // namespace narrows
