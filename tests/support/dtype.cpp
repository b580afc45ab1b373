// SPDX-License-Identifier: Apache-2.0
// dtype.cpp -- see dtype.h. Slow, plain conversions through frexp and rint: the measure for a backend's fast ones.
#include "dtype.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>

namespace narrows::test {
namespace {

struct Info {
  const char* name;
  uint8_t code;
  uint8_t bits;
};

const Info& info(DType dtype) {
  static const Info table[] = {{"f32", kDLFloat, 32}, {"f64", kDLFloat, 64}, {"f16", kDLFloat, 16}, {"bf16", kDLBfloat, 16},
                               {"i8", kDLInt, 8},     {"i16", kDLInt, 16},   {"i32", kDLInt, 32},   {"i64", kDLInt, 64},
                               {"u8", kDLUInt, 8},    {"u16", kDLUInt, 16},  {"u32", kDLUInt, 32},  {"u64", kDLUInt, 64},
                               {"bool", kDLBool, 8}};
  return table[static_cast<int>(dtype) - 1];
}

// Sign, biased exponent and fraction of a value that is already rounded to a 16-bit format.
uint16_t encode16(FloatFormat f, Exact value) {
  const int fraction_bits = f.precision - 1;
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const uint16_t infinity = static_cast<uint16_t>(0x7FFF & ~((1u << fraction_bits) - 1));
  if (std::isnan(value)) return static_cast<uint16_t>(sign | infinity | (1u << (fraction_bits - 1)));
  const Exact magnitude = std::fabs(value);
  if (std::isinf(magnitude)) return sign | infinity;
  if (magnitude < std::ldexp(Exact(1), f.min_exponent))  // subnormal: the fraction counts units
    return static_cast<uint16_t>(sign | static_cast<unsigned>(std::ldexp(magnitude, fraction_bits - f.min_exponent)));
  int exponent;
  const Exact significand = std::frexp(magnitude, &exponent);  // [0.5, 1)
  const auto fraction = static_cast<unsigned>(std::ldexp(significand, f.precision)) - (1u << fraction_bits);
  return static_cast<uint16_t>(sign | (static_cast<unsigned>(exponent - f.min_exponent) << fraction_bits) | fraction);
}

Exact decode16(FloatFormat f, uint16_t bits) {
  const int fraction_bits = f.precision - 1;
  const int exponent = (bits & 0x7FFF) >> fraction_bits;
  const int fraction = bits & ((1 << fraction_bits) - 1);
  const int top = 0x7FFF >> fraction_bits;
  Exact magnitude;
  if (exponent == top)
    magnitude = fraction != 0 ? std::numeric_limits<Exact>::quiet_NaN() : std::numeric_limits<Exact>::infinity();
  else if (exponent == 0)
    magnitude = std::ldexp(Exact(fraction), f.min_exponent - fraction_bits);
  else
    magnitude = std::ldexp(Exact(fraction + (1 << fraction_bits)), exponent - 1 + f.min_exponent - fraction_bits);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

template <class T>
void put(T value, unsigned char* to) {
  std::memcpy(to, &value, sizeof(T));
}
template <class T>
Exact get(const unsigned char* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return static_cast<Exact>(value);
}

void check_representable(DType dtype, Exact value) {
  const Exact most = dtype == DType::boolean ? 255 : largest(dtype);  // any byte is a bool
  if (value >= lowest(dtype) && value <= most && value == std::trunc(value)) return;
  throw std::logic_error("a test stores " + std::to_string(value) + " in " + name(dtype));
}

}  // namespace

const char* name(DType dtype) { return info(dtype).name; }
DLDataType dl_dtype(DType dtype) { return {info(dtype).code, info(dtype).bits, 1}; }
int64_t item_size(DType dtype) { return info(dtype).bits / 8; }
bool is_float(DType dtype) { return info(dtype).code == kDLFloat || info(dtype).code == kDLBfloat; }
bool is_signed_int(DType dtype) { return info(dtype).code == kDLInt; }
bool is_int(DType dtype) { return info(dtype).code == kDLInt || info(dtype).code == kDLUInt; }

FloatFormat float_format(DType dtype) {
  switch (dtype) {
    case DType::f16: return {11, -14, 15};
    case DType::bf16: return {8, -126, 127};
    case DType::f32: return {24, -126, 127};
    default: return {53, -1022, 1023};
  }
}

Exact largest(DType dtype) {
  if (dtype == DType::boolean) return 1;
  if (!is_float(dtype)) return std::ldexp(Exact(1), info(dtype).bits - (is_signed_int(dtype) ? 1 : 0)) - 1;
  const FloatFormat f = float_format(dtype);
  return std::ldexp(2 - std::ldexp(Exact(1), 1 - f.precision), f.max_exponent);
}

Exact lowest(DType dtype) {
  if (is_float(dtype)) return -largest(dtype);
  return is_signed_int(dtype) ? -largest(dtype) - 1 : 0;
}

Exact smallest_subnormal(DType dtype) {
  const FloatFormat f = float_format(dtype);
  return std::ldexp(Exact(1), f.min_exponent - f.precision + 1);
}

Exact epsilon(DType dtype) { return is_float(dtype) ? std::ldexp(Exact(1), 1 - float_format(dtype).precision) : 0; }

Exact ulp(DType dtype, Exact value) {
  if (!is_float(dtype)) return 1;
  const FloatFormat f = float_format(dtype);
  if (!std::isfinite(value)) return 0;
  int exponent = f.min_exponent;
  if (value != 0) exponent = std::max(std::ilogb(value), f.min_exponent);
  exponent = std::min(exponent, f.max_exponent);
  return std::ldexp(Exact(1), exponent - f.precision + 1);
}

Exact rounded(DType dtype, Exact value) {
  if (!std::isfinite(value) || value == 0) return value;
  const FloatFormat f = float_format(dtype);
  const Exact unit = std::ldexp(Exact(1), std::max(std::ilogb(value), f.min_exponent) - f.precision + 1);
  const Exact result = std::rint(value / unit) * unit;  // value / unit is exact, below 2^53
  if (std::fabs(result) > largest(dtype)) return std::copysign(std::numeric_limits<Exact>::infinity(), value);
  return result == 0 ? std::copysign(Exact(0), value) : result;
}

void store(DType dtype, Exact value, unsigned char* to) {
  if (!is_float(dtype)) check_representable(dtype, value);
  switch (dtype) {
    case DType::f32: return put(static_cast<float>(value), to);
    case DType::f64: return put(static_cast<double>(value), to);
    case DType::f16:
    case DType::bf16: return put(encode16(float_format(dtype), rounded(dtype, value)), to);
    case DType::i8: return put(static_cast<int8_t>(value), to);
    case DType::i16: return put(static_cast<int16_t>(value), to);
    case DType::i32: return put(static_cast<int32_t>(value), to);
    case DType::i64: return put(static_cast<int64_t>(value), to);
    case DType::u16: return put(static_cast<uint16_t>(value), to);
    case DType::u32: return put(static_cast<uint32_t>(value), to);
    case DType::u64: return put(static_cast<uint64_t>(value), to);
    case DType::u8:
    case DType::boolean: return put(static_cast<uint8_t>(value), to);
  }
}

Exact load(DType dtype, const unsigned char* from) {
  switch (dtype) {
    case DType::f32: return get<float>(from);
    case DType::f64: return get<double>(from);
    case DType::f16:
    case DType::bf16: return decode16(float_format(dtype), static_cast<uint16_t>(from[0] | from[1] << 8));
    case DType::i8: return get<int8_t>(from);
    case DType::i16: return get<int16_t>(from);
    case DType::i32: return get<int32_t>(from);
    case DType::i64: return get<int64_t>(from);
    case DType::u16: return get<uint16_t>(from);
    case DType::u32: return get<uint32_t>(from);
    case DType::u64: return get<uint64_t>(from);
    case DType::u8:
    case DType::boolean: return get<uint8_t>(from);
  }
  return 0;
}

}  // namespace narrows::test
