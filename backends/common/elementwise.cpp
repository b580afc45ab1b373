// SPDX-License-Identifier: Apache-2.0
// elementwise.cpp -- the functions and dtypes of elementwise by number.
#include "elementwise.h"

#include <cmath>
#include <iterator>

#include "core/ops/elementwise_cost.h"

namespace narrows::common {

// ---- the functions ----

namespace {

constexpr unsigned F = kFloat, N = kFloat | kInt, B = kInt | kBool, I = kInt, A = kFloat | kInt | kBool;
enum class Result : uint8_t { operands_dtype, bool_dtype, cast_dtype };
constexpr Function kFunctions[] = {
#define NARROWS_FUNCTION(number, name, operands, dtypes, result, differentiable, cost) \
  {#name, number, operands, dtypes, Result::result##_dtype == Result::bool_dtype, differentiable, cost >= kCostly},
#include "core/ops/elementwise_functions.inc"
#undef NARROWS_FUNCTION
};
constexpr int kNumFunctions = static_cast<int>(std::size(kFunctions));

constexpr bool numbered_in_order() {
  for (int i = 0; i < kNumFunctions; ++i)
    if (kFunctions[i].number != i + 1) return false;
  return true;
}
static_assert(numbered_in_order());

struct DataType {
  const char* name;
  uint8_t code, bits;
  unsigned kind;
};
constexpr DataType kDataTypes[] = {
    // by number (NW_DTYPE_*), from 1
    {"float32", kDLFloat, 32, kFloat},   {"float64", kDLFloat, 64, kFloat}, {"float16", kDLFloat, 16, kFloat},
    {"bfloat16", kDLBfloat, 16, kFloat}, {"int8", kDLInt, 8, kInt},         {"int16", kDLInt, 16, kInt},
    {"int32", kDLInt, 32, kInt},         {"int64", kDLInt, 64, kInt},       {"uint8", kDLUInt, 8, kInt},
    {"uint16", kDLUInt, 16, kInt},       {"uint32", kDLUInt, 32, kInt},     {"uint64", kDLUInt, 64, kInt},
    {"bool", kDLBool, 8, kBool},
};
constexpr int kNumDataTypes = static_cast<int>(std::size(kDataTypes));

}  // namespace

const Function& find_function(const nw_sig& sig, int number) {
  if (number < 1 || number > kNumFunctions)
    refuse(NW_UNSUPPORTED, -1, "%s: function is %d; this backend knows 1 to %d", sig.op, number, kNumFunctions);
  return kFunctions[number - 1];
}

int without_mirrors(int function) { return function == NW_EW_GT ? NW_EW_LT : function == NW_EW_GE ? NW_EW_LE : function; }

int dtype_of(const nw_sig& sig, uint32_t tensor) {
  const DLDataType t = sig.tensors[tensor].dtype;
  for (int i = 0; i < kNumDataTypes; ++i)
    if (is(t, kDataTypes[i].code, kDataTypes[i].bits)) return i + 1;
  refuse(NW_UNSUPPORTED, static_cast<int32_t>(tensor),
         "%s: tensor %u has dtype code %d with %d bits, which this backend does not have", sig.op, tensor, t.code, t.bits);
}

int64_t size_of(int dtype) { return kDataTypes[dtype - 1].bits / 8; }
unsigned kind_of(int dtype) { return kDataTypes[dtype - 1].kind; }

int compute_dtype(int dtype) { return dtype == NW_DTYPE_FLOAT16 || dtype == NW_DTYPE_BFLOAT16 ? NW_DTYPE_FLOAT32 : dtype; }
bool is_aligned(const nw_tensor_sig& tensor, int64_t size) { return alignment(tensor) >= size; }

const char* name_of(int dtype) { return kDataTypes[dtype - 1].name; }

int bits_dtype(int dtype) {
  if (dtype == NW_DTYPE_BOOL) return dtype;
  const int64_t size = size_of(dtype);
  return size == 1 ? NW_DTYPE_UINT8 : size == 2 ? NW_DTYPE_UINT16 : size == 4 ? NW_DTYPE_UINT32 : NW_DTYPE_UINT64;
}

bool moves_bits(int function) { return function == NW_EW_WHERE || function == NW_EW_COPYSIGN; }

// ---- numbers ----

namespace {

// x rounded to nearest even in a format of that many bits of significand.
double rounded(double x, int precision, int least_exponent, double largest) {
  if (!std::isfinite(x) || x == 0) return x;
  const int exponent = std::max(std::ilogb(x), least_exponent) - (precision - 1);
  const double nearest = std::ldexp(std::nearbyint(std::ldexp(x, -exponent)), exponent);
  return std::fabs(nearest) > largest ? std::copysign(HUGE_VAL, x) : nearest;
}

template <class T>
uint64_t bits_of(T x) {
  uint64_t bits = 0;
  std::memcpy(&bits, &x, sizeof(x));
  return bits;
}

}  // namespace

uint64_t number_of(int dtype, double real, int64_t integer) {
  switch (dtype) {
    case NW_DTYPE_FLOAT64: return bits_of(real);
    case NW_DTYPE_FLOAT32: return bits_of(static_cast<float>(real));
    case NW_DTYPE_FLOAT16: return bits_of(static_cast<float>(rounded(real, 11, -14, 65504)));
    case NW_DTYPE_BFLOAT16: return bits_of(static_cast<float>(rounded(real, 8, -126, 0x1.fep127)));
    case NW_DTYPE_BOOL: return integer != 0;
    default: return bits_of(integer);  // little-endian: the low bytes are the number modulo two to the width
  }
}

uint64_t stored_number_of(int dtype, double real, int64_t integer) {
  const uint64_t bits = number_of(dtype, real, integer);
  if (dtype == NW_DTYPE_BFLOAT16) return bits >> 16;
  if (dtype != NW_DTYPE_FLOAT16) return bits;
  const double x = std::fabs(rounded(real, 11, -14, 65504));
  const uint64_t sign = std::signbit(real) ? 0x8000 : 0;
  if (x != x) return sign | 0x7E00;
  if (x > 65504) return sign | 0x7C00;
  const int exponent = x == 0 ? -14 : std::max(std::ilogb(x), -14);
  const auto digits = static_cast<uint64_t>(std::ldexp(x, 10 - exponent));  // 1024 and more, but for a subnormal
  return sign | ((static_cast<uint64_t>(exponent + 14) << 10) + digits);
}

// ---- a call ----

ElementwiseRequest read_elementwise(const nw_sig& sig) {
  const auto params = read_params<nw_elementwise_params>(sig);
  const Function& function = find_function(sig, params.function);
  if (!has_input(sig, 0) || !has_output(sig, 0)) refuse(NW_INVALID, 0, "%s: a or out is absent; expected both", sig.op);
  const bool where = function.number == NW_EW_WHERE, cast = function.number == NW_EW_CAST;
  const uint32_t typed = !where ? 0 : has_input(sig, 1) ? 1 : 2;
  if (!has_input(sig, typed)) refuse(NW_INVALID, 1, "%s: where: b and c are absent; expected one of them at least", sig.op);
  const int dtype = dtype_of(sig, typed), out = dtype_of(sig, sig.num_inputs);
  if (!(function.kinds & kind_of(dtype)))
    refuse(NW_UNSUPPORTED, static_cast<int32_t>(typed), "%s: %s of %s is not defined", sig.op, function.name, name_of(dtype));
  const int expected = function.to_bool ? NW_DTYPE_BOOL : dtype;
  if (!cast && out != expected)
    refuse(NW_INVALID, static_cast<int32_t>(sig.num_inputs), "%s: %s: out has dtype %s; expected %s", sig.op, function.name,
           name_of(out), name_of(expected));
  for (uint32_t k = 0; k < static_cast<uint32_t>(function.arity); ++k)
    if (const int wanted = where && k == 0 ? NW_DTYPE_BOOL : dtype; has_input(sig, k) && dtype_of(sig, k) != wanted)
      refuse(NW_INVALID, static_cast<int32_t>(k), "%s: %s: input %u has dtype %s; expected %s", sig.op, function.name, k,
             name_of(dtype_of(sig, k)), name_of(wanted));
  return {sig, params, function, dtype, where ? bits_dtype(dtype) : cast ? dtype : compute_dtype(dtype)};
}

ElementwiseGradRequest read_elementwise_backward(const nw_sig& sig) {
  const auto params = read_params<nw_elementwise_params>(sig);
  const Function& function = find_function(sig, params.function);
  if (!has_input(sig, 1)) refuse(NW_INVALID, 1, "%s: a is absent; expected a tensor", sig.op);
  int compute = NW_DTYPE_FLOAT32;
  for (uint32_t i = 0; i < 4; ++i) {
    if (!has_input(sig, i) || (function.number == NW_EW_WHERE && i == 1)) continue;
    const int dtype = dtype_of(sig, i);
    if (kind_of(dtype) != kFloat)
      refuse(NW_UNSUPPORTED, static_cast<int32_t>(i), "%s: input %u has dtype %s; expected floating point", sig.op, i,
             name_of(dtype));
    if (dtype == NW_DTYPE_FLOAT64) compute = dtype;
  }
  for (uint32_t k = 0; k < 3; ++k)
    if (has_output(sig, k) && output(sig, k).alias_of >= 0)
      refuse(NW_UNSUPPORTED, static_cast<int32_t>(sig.num_inputs + k), "%s: gradients are not written in place", sig.op);
  return {sig, params, function, compute};
}

int ElementwiseGradRequest::scalar_dtype() const {
  return dtype_of(sig, function.number != NW_EW_WHERE ? 1 : has_input(sig, 2) ? 2 : 3);
}

namespace {

bool has_zero_gradient(int function, uint32_t operand) {
  switch (function) {
    case NW_EW_SIGN:
    case NW_EW_FLOOR:
    case NW_EW_CEIL:
    case NW_EW_ROUND:
    case NW_EW_TRUNC: return true;
    case NW_EW_COPYSIGN: return operand == 1;
    default: return false;
  }
}

}  // namespace

GradientKind gradient_kind(const ElementwiseGradRequest& r, uint32_t k) {
  const Function& f = r.function;
  if (!f.has_gradient || k >= static_cast<uint32_t>(f.arity) || (f.number == NW_EW_WHERE && k == 0))
    refuse(NW_INVALID, static_cast<int32_t>(r.sig.num_inputs + k), "%s: %s has no gradient by operand %u", r.sig.op, f.name, k);
  if (has_zero_gradient(f.number, k) || !has_input(r.sig, 0) || is_empty(input(r.sig, 0))) return GradientKind::zero;
  if (f.number == NW_EW_CAST) return GradientKind::copy;
  return is_broadcast(input(r.sig, 0), output(r.sig, k)) ? GradientKind::sum : GradientKind::map;
}

bool is_broadcast(const nw_tensor_sig& shape, const nw_tensor_sig& tensor) {
  for (int d = 0; d < shape.ndim; ++d) {
    const int own = d - (shape.ndim - tensor.ndim);
    if (shape.shape[d] != 1 && (own < 0 || tensor.shape[own] == 1)) return true;
  }
  return false;
}

bool is_empty(const nw_tensor_sig& tensor) { return std::count(tensor.shape, tensor.shape + tensor.ndim, 0) != 0; }

}  // namespace narrows::common
