// elementwise.cpp -- the functions and dtypes of elementwise by number. Step 5 of a tensor's path.
#include "elementwise.h"

#include <iterator>

namespace narrows::common {

// ---- the functions ----

namespace {

constexpr unsigned kNumber = kFloat | kInt, kAny = kFloat | kInt | kBool, kBits = kInt | kBool;
constexpr Function kFunctions[] = {
    // by number, from 1
    {NW_EW_NEG, "neg", 1, kNumber, false, false},
    {NW_EW_ABS, "abs", 1, kNumber, false, false},
    {NW_EW_SIGN, "sign", 1, kNumber, false, false},
    {NW_EW_SQUARE, "square", 1, kNumber, false, false},
    {NW_EW_SQRT, "sqrt", 1, kFloat, false, false},
    {NW_EW_RSQRT, "rsqrt", 1, kFloat, false, false},
    {NW_EW_CBRT, "cbrt", 1, kFloat, false, true},
    {NW_EW_EXP, "exp", 1, kFloat, false, true},
    {NW_EW_EXP2, "exp2", 1, kFloat, false, true},
    {NW_EW_EXPM1, "expm1", 1, kFloat, false, true},
    {NW_EW_LOG, "log", 1, kFloat, false, true},
    {NW_EW_LOG2, "log2", 1, kFloat, false, true},
    {NW_EW_LOG10, "log10", 1, kFloat, false, true},
    {NW_EW_LOG1P, "log1p", 1, kFloat, false, true},
    {NW_EW_SIN, "sin", 1, kFloat, false, true},
    {NW_EW_COS, "cos", 1, kFloat, false, true},
    {NW_EW_TAN, "tan", 1, kFloat, false, true},
    {NW_EW_ASIN, "asin", 1, kFloat, false, true},
    {NW_EW_ACOS, "acos", 1, kFloat, false, true},
    {NW_EW_ATAN, "atan", 1, kFloat, false, true},
    {NW_EW_SINH, "sinh", 1, kFloat, false, true},
    {NW_EW_COSH, "cosh", 1, kFloat, false, true},
    {NW_EW_TANH, "tanh", 1, kFloat, false, true},
    {NW_EW_ASINH, "asinh", 1, kFloat, false, true},
    {NW_EW_ACOSH, "acosh", 1, kFloat, false, true},
    {NW_EW_ATANH, "atanh", 1, kFloat, false, true},
    {NW_EW_SIGMOID, "sigmoid", 1, kFloat, false, true},
    {NW_EW_RELU, "relu", 1, kNumber, false, false},
    {NW_EW_ELU, "elu", 1, kFloat, false, true},
    {NW_EW_GELU, "gelu", 1, kFloat, false, true},
    {NW_EW_GELU_TANH, "gelu_tanh", 1, kFloat, false, true},
    {NW_EW_SILU, "silu", 1, kFloat, false, true},
    {NW_EW_SOFTPLUS, "softplus", 1, kFloat, false, true},
    {NW_EW_ERF, "erf", 1, kFloat, false, true},
    {NW_EW_ERFC, "erfc", 1, kFloat, false, true},
    {NW_EW_FLOOR, "floor", 1, kNumber, false, false},
    {NW_EW_CEIL, "ceil", 1, kNumber, false, false},
    {NW_EW_ROUND, "round", 1, kNumber, false, false},
    {NW_EW_TRUNC, "trunc", 1, kNumber, false, false},
    {NW_EW_RECIPROCAL, "reciprocal", 1, kFloat, false, false},
    {NW_EW_LOGICAL_NOT, "logical_not", 1, kAny, true, false},
    {NW_EW_BITWISE_NOT, "bitwise_not", 1, kBits, false, false},
    {NW_EW_ISNAN, "isnan", 1, kNumber, true, false},
    {NW_EW_ISINF, "isinf", 1, kNumber, true, false},
    {NW_EW_ISFINITE, "isfinite", 1, kNumber, true, false},
    {NW_EW_CAST, "cast", 1, kAny, false, false},
    {NW_EW_ADD, "add", 2, kNumber, false, false},
    {NW_EW_SUB, "sub", 2, kNumber, false, false},
    {NW_EW_MUL, "mul", 2, kNumber, false, false},
    {NW_EW_DIV, "div", 2, kNumber, false, false},
    {NW_EW_POW, "pow", 2, kNumber, false, true},
    {NW_EW_ATAN2, "atan2", 2, kFloat, false, true},
    {NW_EW_HYPOT, "hypot", 2, kFloat, false, true},
    {NW_EW_MAXIMUM, "maximum", 2, kNumber, false, false},
    {NW_EW_MINIMUM, "minimum", 2, kNumber, false, false},
    {NW_EW_FMOD, "fmod", 2, kNumber, false, true},
    {NW_EW_REMAINDER, "remainder", 2, kNumber, false, true},
    {NW_EW_COPYSIGN, "copysign", 2, kFloat, false, false},
    {NW_EW_LOGADDEXP, "logaddexp", 2, kFloat, false, true},
    {NW_EW_EQ, "eq", 2, kAny, true, false},
    {NW_EW_NE, "ne", 2, kAny, true, false},
    {NW_EW_LT, "lt", 2, kNumber, true, false},
    {NW_EW_LE, "le", 2, kNumber, true, false},
    {NW_EW_GT, "gt", 2, kNumber, true, false},
    {NW_EW_GE, "ge", 2, kNumber, true, false},
    {NW_EW_LOGICAL_AND, "logical_and", 2, kAny, true, false},
    {NW_EW_LOGICAL_OR, "logical_or", 2, kAny, true, false},
    {NW_EW_LOGICAL_XOR, "logical_xor", 2, kAny, true, false},
    {NW_EW_BITWISE_AND, "bitwise_and", 2, kBits, false, false},
    {NW_EW_BITWISE_OR, "bitwise_or", 2, kBits, false, false},
    {NW_EW_BITWISE_XOR, "bitwise_xor", 2, kBits, false, false},
    {NW_EW_BITWISE_LEFT_SHIFT, "bitwise_left_shift", 2, kInt, false, false},
    {NW_EW_BITWISE_RIGHT_SHIFT, "bitwise_right_shift", 2, kInt, false, false},
    {NW_EW_FMA, "fma", 3, kNumber, false, false},
    {NW_EW_WHERE, "where", 3, kAny, false, false},
    {NW_EW_CLAMP, "clamp", 3, kNumber, false, false},
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
bool is_aligned(const nw_tensor_sig& tensor, int64_t size) { return (int64_t{1} << tensor.align_log2) >= size; }

const char* name_of(int dtype) { return kDataTypes[dtype - 1].name; }

int bits_dtype(int dtype) {
  const int64_t size = size_of(dtype);
  return size == 1 ? NW_DTYPE_UINT8 : size == 2 ? NW_DTYPE_UINT16 : size == 4 ? NW_DTYPE_UINT32 : NW_DTYPE_UINT64;
}

// ---- a call ----

ElementwiseRequest read_elementwise(const nw_sig& sig) {
  const auto params = read_params<nw_elementwise_params>(sig);
  const Function& function = find_function(sig, params.function);
  if (!has_input(sig, 0) || !has_output(sig, 0)) refuse(NW_INVALID, 0, "%s: a and out must be there", sig.op);
  const bool where = function.number == NW_EW_WHERE, cast = function.number == NW_EW_CAST;
  const uint32_t typed = !where ? 0 : has_input(sig, 1) ? 1 : 2;
  if (!has_input(sig, typed)) refuse(NW_INVALID, 1, "%s: where has neither b nor c", sig.op);
  const int dtype = dtype_of(sig, typed), out = dtype_of(sig, sig.num_inputs);
  if (!(function.kinds & kind_of(dtype)))
    refuse(NW_UNSUPPORTED, static_cast<int32_t>(typed), "%s: %s of %s is not defined", sig.op, function.name, name_of(dtype));
  const int expected = function.to_bool ? NW_DTYPE_BOOL : dtype;
  if (!cast && out != expected)
    refuse(NW_INVALID, static_cast<int32_t>(sig.num_inputs), "%s: out of %s has dtype %s, not %s", sig.op, function.name,
           name_of(out), name_of(expected));
  for (uint32_t k = 0; k < static_cast<uint32_t>(function.arity); ++k)
    if (const int wanted = where && k == 0 ? NW_DTYPE_BOOL : dtype; has_input(sig, k) && dtype_of(sig, k) != wanted)
      refuse(NW_INVALID, static_cast<int32_t>(k), "%s: input %u of %s is not %s", sig.op, k, function.name, name_of(wanted));
  return {sig, params, function, dtype, where ? bits_dtype(dtype) : cast ? dtype : compute_dtype(dtype)};
}

ElementwiseGradRequest read_elementwise_backward(const nw_sig& sig) {
  const auto params = read_params<nw_elementwise_params>(sig);
  const Function& function = find_function(sig, params.function);
  if (!has_input(sig, 1)) refuse(NW_INVALID, 1, "%s: a must be there", sig.op);
  int compute = NW_DTYPE_FLOAT32;
  for (uint32_t i = 0; i < 4; ++i) {
    if (!has_input(sig, i) || (function.number == NW_EW_WHERE && i == 1)) continue;
    const int dtype = dtype_of(sig, i);
    if (kind_of(dtype) != kFloat) refuse(NW_UNSUPPORTED, static_cast<int32_t>(i), "%s: input %u is not floating point", sig.op, i);
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

bool is_broadcast(const nw_tensor_sig& shape, const nw_tensor_sig& tensor) {
  for (int d = 0; d < shape.ndim; ++d) {
    const int own = d - (shape.ndim - tensor.ndim);
    if (shape.shape[d] != 1 && (own < 0 || tensor.shape[own] == 1)) return true;
  }
  return false;
}

bool is_empty(const nw_tensor_sig& tensor) { return std::count(tensor.shape, tensor.shape + tensor.ndim, 0) != 0; }

}  // namespace narrows::common
