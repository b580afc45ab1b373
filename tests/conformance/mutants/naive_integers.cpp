// SPDX-License-Identifier: Apache-2.0
// naive_integers.cpp -- functions of elementwise on integers and bool. Arithmetic is modulo 2^64 and keeps the low bits, so that
// it wraps by itself in every width; comparisons and divisions are made in the dtype. See naive.h and docs/ops.md.
#include <limits>

#include "naive.h"

namespace naive {
namespace {

uint64_t power(uint64_t base, uint64_t exponent) {
  uint64_t result = 1;
  for (; exponent != 0; exponent /= 2, base *= base)
    if (exponent % 2 == 1) result *= base;
  return result;
}

template <class T>
T integer_power(T a, T b) {
  if (b >= 0) return static_cast<T>(power(static_cast<uint64_t>(a), static_cast<uint64_t>(b)));
  if (fault(Fault::negative_exponent)) return 0;
  if (a == 1) return 1;
  return a == static_cast<T>(-1) ? (b % 2 == 0 ? T(1) : a) : T(0);  // below 1 everything is truncated to 0
}

template <class T>
T divide(T a, T b) {
  if (b == 0) return fault(Fault::divides_by_zero) ? static_cast<T>(-1) : T(0);
  if (std::numeric_limits<T>::is_signed && b == static_cast<T>(-1)) return static_cast<T>(0 - static_cast<uint64_t>(a));
  return static_cast<T>(a / b);
}

template <class T>
T modulo(T a, T b, bool sign_of_b) {
  if (b == 0 || (std::numeric_limits<T>::is_signed && b == static_cast<T>(-1))) return 0;
  const T r = static_cast<T>(a % b);
  return sign_of_b && r != 0 && (r < 0) != (b < 0) ? static_cast<T>(r + b) : r;
}

template <class T>
T left_shift(T a, T b) {
  constexpr auto width = static_cast<int>(sizeof(T) * 8);
  if (fault(Fault::shift_wraps)) return static_cast<T>(static_cast<uint64_t>(a) << (static_cast<uint64_t>(b) % width));
  return b < 0 || b >= static_cast<T>(width) ? T(0) : static_cast<T>(static_cast<uint64_t>(a) << static_cast<int>(b));
}

template <class T>
T right_shift(T a, T b) {
  constexpr auto width = static_cast<int>(sizeof(T) * 8);
  if (b < 0 || b >= static_cast<T>(width)) return a < 0 && !fault(Fault::logical_shift) ? static_cast<T>(-1) : T(0);
  return static_cast<T>(a >> static_cast<int>(b));
}

template <class T>
T add(T a, T b) {
  T sum;
  if (fault(Fault::saturates) && __builtin_add_overflow(a, b, &sum))
    return b < 0 ? std::numeric_limits<T>::min() : std::numeric_limits<T>::max();
  if (fault(Fault::i64_through_f64)) return static_cast<T>(static_cast<double>(a) + static_cast<double>(b));
  return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}

// Functions whose result is true or false; -1: it is another one.
template <class T>
int predicate(int32_t function, T a, T b) {
  switch (function) {
    case NW_EW_LOGICAL_NOT: return a == 0;
    case NW_EW_ISNAN:
    case NW_EW_ISINF: return 0;
    case NW_EW_ISFINITE: return 1;
    case NW_EW_EQ: return a == b;
    case NW_EW_NE: return a != b;
    case NW_EW_LT: return fault(Fault::signed_compare) ? static_cast<int64_t>(a) < static_cast<int64_t>(b) : a < b;
    case NW_EW_LE: return a <= b;
    case NW_EW_GT: return a > b;
    case NW_EW_GE: return a >= b;
    case NW_EW_LOGICAL_AND: return a != 0 && b != 0;
    case NW_EW_LOGICAL_OR: return a != 0 || b != 0;
    case NW_EW_LOGICAL_XOR: return (a != 0) != (b != 0);
    default: return -1;
  }
}

template <class T>
T arithmetic(int32_t function, T a, T b, T c) {
  const auto ua = static_cast<uint64_t>(a), ub = static_cast<uint64_t>(b), uc = static_cast<uint64_t>(c);
  switch (function) {
    case NW_EW_NEG: return static_cast<T>(0 - ua);
    case NW_EW_ABS: return static_cast<T>(a < 0 ? 0 - ua : ua);
    case NW_EW_SIGN: return static_cast<T>((a > 0) - (a < 0));
    case NW_EW_SQUARE: return static_cast<T>(ua * ua);
    case NW_EW_RELU: return a > 0 ? a : T(0);
    case NW_EW_FLOOR:
    case NW_EW_CEIL:
    case NW_EW_ROUND:
    case NW_EW_TRUNC: return a;
    case NW_EW_BITWISE_NOT: return static_cast<T>(~ua);
    case NW_EW_ADD: return add(a, b);
    case NW_EW_SUB: return static_cast<T>(ua - ub);
    case NW_EW_MUL: return static_cast<T>(ua * ub);
    case NW_EW_DIV: return divide(a, b);
    case NW_EW_POW: return integer_power(a, b);
    case NW_EW_MAXIMUM: return a > b ? a : b;
    case NW_EW_MINIMUM: return a < b ? a : b;
    case NW_EW_FMOD: return modulo(a, b, false);
    case NW_EW_REMAINDER: return modulo(a, b, true);
    case NW_EW_BITWISE_AND: return static_cast<T>(ua & ub);
    case NW_EW_BITWISE_OR: return static_cast<T>(ua | ub);
    case NW_EW_BITWISE_XOR: return static_cast<T>(ua ^ ub);
    case NW_EW_BITWISE_LEFT_SHIFT: return left_shift(a, b);
    case NW_EW_BITWISE_RIGHT_SHIFT: return right_shift(a, b);
    case NW_EW_FMA: return static_cast<T>(ua * ub + uc);
    case NW_EW_CLAMP: return (a > b ? a : b) < c ? (a > b ? a : b) : c;
    default: return 0;
  }
}

template <class T>
int64_t integer_as(int32_t function, int64_t a64, int64_t b64, int64_t c64) {
  const auto a = static_cast<T>(a64), b = static_cast<T>(b64), c = static_cast<T>(c64);
  if (function == NW_EW_WHERE) return static_cast<int64_t>(a64 != 0 ? b : c);
  const int truth = predicate(function, a, b);
  return truth >= 0 ? truth : static_cast<int64_t>(arithmetic(function, a, b, c));
}

// Of bytes: any but 0 is true.
int64_t boolean_function(int32_t function, int64_t a, int64_t b, int64_t c) {
  const bool compares = function == NW_EW_EQ || function == NW_EW_NE;
  const bool is_raw = (fault(Fault::bool_bytes_compared) && compares) ||
                      (fault(Fault::bool_bytes_xored) && function == NW_EW_BITWISE_XOR) ||
                      (fault(Fault::bool_bytes_chosen) && function == NW_EW_WHERE);
  if (!is_raw) a = a != 0, b = b != 0, c = c != 0;
  if (function == NW_EW_BITWISE_NOT && !fault(Fault::bool_not)) return a == 0;
  return integer_as<uint8_t>(function, a, b, c);
}

}  // namespace

int64_t integer_function(int32_t function, DType dtype, int64_t a, int64_t b, int64_t c) {
  switch (dtype) {
    case DType::i8: return integer_as<int8_t>(function, a, b, c);
    case DType::i16: return integer_as<int16_t>(function, a, b, c);
    case DType::i32: return integer_as<int32_t>(function, a, b, c);
    case DType::i64: return integer_as<int64_t>(function, a, b, c);
    case DType::u8: return integer_as<uint8_t>(function, a, b, c);
    case DType::u16: return integer_as<uint16_t>(function, a, b, c);
    case DType::u32: return integer_as<uint32_t>(function, a, b, c);
    case DType::u64: return integer_as<uint64_t>(function, a, b, c);
    default: return boolean_function(function, a, b, c);
  }
}

}  // namespace naive
