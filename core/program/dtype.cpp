// SPDX-License-Identifier: Apache-2.0
// dtype.cpp -- see dtype.h.
#include "core/program/dtype.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

namespace narrows::program {
namespace {

struct Row {
  const char* name;
  int bits;
  char family;  // x: index, b: bool, i: signed, u: unsigned, f: floating point
};

constexpr Row kRows[] = {{"index", 64, 'x'}, {"bool", 8, 'b'},  {"i8", 8, 'i'},   {"i16", 16, 'i'}, {"i32", 32, 'i'},
                         {"i64", 64, 'i'},   {"u8", 8, 'u'},    {"u16", 16, 'u'}, {"u32", 32, 'u'}, {"u64", 64, 'u'},
                         {"f16", 16, 'f'},   {"bf16", 16, 'f'}, {"f32", 32, 'f'}, {"f64", 64, 'f'}};

const Row& row(DType dtype) { return kRows[static_cast<size_t>(dtype)]; }

// `digits` of precision, the least subnormal number 2^`least`, the first number past the range 2^`past`.
double round_to(double value, int digits, int least, int past) {
  int exponent = 0;
  std::frexp(value, &exponent);
  const int unit = std::max(exponent - digits, least);
  const double rounded = std::ldexp(std::nearbyint(std::ldexp(value, -unit)), unit);
  return std::fabs(rounded) >= std::ldexp(1.0, past) ? std::copysign(std::numeric_limits<double>::infinity(), value) : rounded;
}

}  // namespace

const char* name_of(DType dtype) { return row(dtype).name; }
int bits_of(DType dtype) { return row(dtype).bits; }
bool is_float(DType dtype) { return row(dtype).family == 'f'; }
bool is_integer(DType dtype) { return row(dtype).family == 'i' || row(dtype).family == 'u'; }
bool is_signed(DType dtype) { return row(dtype).family == 'i'; }

DLDataType dlpack_of(DType dtype) {
  const auto bits = static_cast<uint8_t>(bits_of(dtype));
  if (dtype == DType::boolean) return {kDLBool, bits, 1};
  if (dtype == DType::bf16) return {kDLBfloat, bits, 1};
  if (is_float(dtype)) return {kDLFloat, bits, 1};
  return {static_cast<uint8_t>(is_signed(dtype) ? kDLInt : kDLUInt), bits, 1};
}

std::optional<DType> find_dtype(std::string_view name) {
  for (size_t i = 1; i < std::size(kRows); ++i)
    if (name == kRows[i].name) return static_cast<DType>(i);
  return std::nullopt;
}

double round_real(DType dtype, double value) {
  if (std::isnan(value)) return std::numeric_limits<double>::quiet_NaN();
  if (value == 0 || std::isinf(value)) return value;
  if (dtype == DType::f16) return round_to(value, 11, -24, 16);
  if (dtype == DType::bf16) return round_to(value, 8, -133, 128);
  return dtype == DType::f32 ? round_to(value, 24, -149, 128) : value;
}

int64_t wrap_integer(DType dtype, int64_t value) {
  switch (dtype) {
    case DType::i8: return static_cast<int8_t>(value);
    case DType::i16: return static_cast<int16_t>(value);
    case DType::i32: return static_cast<int32_t>(value);
    case DType::u8: return static_cast<uint8_t>(value);
    case DType::u16: return static_cast<uint16_t>(value);
    case DType::u32: return static_cast<uint32_t>(value);
    default: return value;
  }
}

bool holds(DType dtype, bool negative, uint64_t magnitude) {
  if (magnitude == 0) return true;
  if (dtype == DType::boolean) return !negative && magnitude == 1;
  if (row(dtype).family == 'u') return !negative && (bits_of(dtype) == 64 || magnitude >> bits_of(dtype) == 0);
  const uint64_t half = uint64_t{1} << (bits_of(dtype) - 1);
  return negative ? magnitude <= half : magnitude < half;
}

}  // namespace narrows::program
