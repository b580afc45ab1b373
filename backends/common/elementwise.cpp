// elementwise.cpp -- the functions and dtypes of elementwise by number. Step 5 of a tensor's path.
#include "elementwise.h"

#include <cmath>
#include <iterator>

namespace narrows::common {

// ---- the functions ----

namespace {

constexpr unsigned kNumber = kFloat | kInt, kAny = kFloat | kInt | kBool, kBits = kInt | kBool;
constexpr Function kFunctions[] = {
    // by number, from 1
    {"neg", NW_EW_NEG, 1, kNumber, false, false},
    {"abs", NW_EW_ABS, 1, kNumber, false, false},
    {"sign", NW_EW_SIGN, 1, kNumber, false, false},
    {"square", NW_EW_SQUARE, 1, kNumber, false, false},
    {"sqrt", NW_EW_SQRT, 1, kFloat, false, false},
    {"rsqrt", NW_EW_RSQRT, 1, kFloat, false, false},
    {"cbrt", NW_EW_CBRT, 1, kFloat, false, true},
    {"exp", NW_EW_EXP, 1, kFloat, false, true},
    {"exp2", NW_EW_EXP2, 1, kFloat, false, true},
    {"expm1", NW_EW_EXPM1, 1, kFloat, false, true},
    {"log", NW_EW_LOG, 1, kFloat, false, true},
    {"log2", NW_EW_LOG2, 1, kFloat, false, true},
    {"log10", NW_EW_LOG10, 1, kFloat, false, true},
    {"log1p", NW_EW_LOG1P, 1, kFloat, false, true},
    {"sin", NW_EW_SIN, 1, kFloat, false, true},
    {"cos", NW_EW_COS, 1, kFloat, false, true},
    {"tan", NW_EW_TAN, 1, kFloat, false, true},
    {"asin", NW_EW_ASIN, 1, kFloat, false, true},
    {"acos", NW_EW_ACOS, 1, kFloat, false, true},
    {"atan", NW_EW_ATAN, 1, kFloat, false, true},
    {"sinh", NW_EW_SINH, 1, kFloat, false, true},
    {"cosh", NW_EW_COSH, 1, kFloat, false, true},
    {"tanh", NW_EW_TANH, 1, kFloat, false, true},
    {"asinh", NW_EW_ASINH, 1, kFloat, false, true},
    {"acosh", NW_EW_ACOSH, 1, kFloat, false, true},
    {"atanh", NW_EW_ATANH, 1, kFloat, false, true},
    {"sigmoid", NW_EW_SIGMOID, 1, kFloat, false, true},
    {"relu", NW_EW_RELU, 1, kNumber, false, false},
    {"elu", NW_EW_ELU, 1, kFloat, false, true},
    {"gelu", NW_EW_GELU, 1, kFloat, false, true},
    {"gelu_tanh", NW_EW_GELU_TANH, 1, kFloat, false, true},
    {"silu", NW_EW_SILU, 1, kFloat, false, true},
    {"softplus", NW_EW_SOFTPLUS, 1, kFloat, false, true},
    {"erf", NW_EW_ERF, 1, kFloat, false, true},
    {"erfc", NW_EW_ERFC, 1, kFloat, false, true},
    {"floor", NW_EW_FLOOR, 1, kNumber, false, false},
    {"ceil", NW_EW_CEIL, 1, kNumber, false, false},
    {"round", NW_EW_ROUND, 1, kNumber, false, false},
    {"trunc", NW_EW_TRUNC, 1, kNumber, false, false},
    {"reciprocal", NW_EW_RECIPROCAL, 1, kFloat, false, false},
    {"logical_not", NW_EW_LOGICAL_NOT, 1, kAny, true, false},
    {"bitwise_not", NW_EW_BITWISE_NOT, 1, kBits, false, false},
    {"isnan", NW_EW_ISNAN, 1, kNumber, true, false},
    {"isinf", NW_EW_ISINF, 1, kNumber, true, false},
    {"isfinite", NW_EW_ISFINITE, 1, kNumber, true, false},
    {"cast", NW_EW_CAST, 1, kAny, false, false},
    {"add", NW_EW_ADD, 2, kNumber, false, false},
    {"sub", NW_EW_SUB, 2, kNumber, false, false},
    {"mul", NW_EW_MUL, 2, kNumber, false, false},
    {"div", NW_EW_DIV, 2, kNumber, false, false},
    {"pow", NW_EW_POW, 2, kNumber, false, true},
    {"atan2", NW_EW_ATAN2, 2, kFloat, false, true},
    {"hypot", NW_EW_HYPOT, 2, kFloat, false, true},
    {"maximum", NW_EW_MAXIMUM, 2, kNumber, false, false},
    {"minimum", NW_EW_MINIMUM, 2, kNumber, false, false},
    {"fmod", NW_EW_FMOD, 2, kNumber, false, true},
    {"remainder", NW_EW_REMAINDER, 2, kNumber, false, true},
    {"copysign", NW_EW_COPYSIGN, 2, kFloat, false, false},
    {"logaddexp", NW_EW_LOGADDEXP, 2, kFloat, false, true},
    {"eq", NW_EW_EQ, 2, kAny, true, false},
    {"ne", NW_EW_NE, 2, kAny, true, false},
    {"lt", NW_EW_LT, 2, kNumber, true, false},
    {"le", NW_EW_LE, 2, kNumber, true, false},
    {"gt", NW_EW_GT, 2, kNumber, true, false},
    {"ge", NW_EW_GE, 2, kNumber, true, false},
    {"logical_and", NW_EW_LOGICAL_AND, 2, kAny, true, false},
    {"logical_or", NW_EW_LOGICAL_OR, 2, kAny, true, false},
    {"logical_xor", NW_EW_LOGICAL_XOR, 2, kAny, true, false},
    {"bitwise_and", NW_EW_BITWISE_AND, 2, kBits, false, false},
    {"bitwise_or", NW_EW_BITWISE_OR, 2, kBits, false, false},
    {"bitwise_xor", NW_EW_BITWISE_XOR, 2, kBits, false, false},
    {"bitwise_left_shift", NW_EW_BITWISE_LEFT_SHIFT, 2, kInt, false, false},
    {"bitwise_right_shift", NW_EW_BITWISE_RIGHT_SHIFT, 2, kInt, false, false},
    {"fma", NW_EW_FMA, 3, kNumber, false, false},
    {"where", NW_EW_WHERE, 3, kAny, false, false},
    {"clamp", NW_EW_CLAMP, 3, kNumber, false, false},
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
