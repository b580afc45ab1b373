// SPDX-License-Identifier: Apache-2.0
// numbers.h -- elements of tensors as doubles, and back: those of 16 bits by their bits, the same on every backend.
#pragma once

#include <narrows/narrows.h>
#include <narrows/ops.h>

#include <cmath>
#include <cstdint>
#include <cstring>

namespace narrows::bench {

struct Dtype {
  const char* name;
  DLDataType type;
  int32_t number;    // NW_DTYPE_*
  double tolerance;  // of distance()
  size_t size() const { return type.bits / 8u; }
};
constexpr Dtype kF32{"f32", {kDLFloat, 32, 1}, NW_DTYPE_FLOAT32, 2e-5},  // sums of a gradient have 65536 terms
    kF64{"f64", {kDLFloat, 64, 1}, NW_DTYPE_FLOAT64, 1e-13}, kF16{"f16", {kDLFloat, 16, 1}, NW_DTYPE_FLOAT16, 2e-3},
    kBf16{"bf16", {kDLBfloat, 16, 1}, NW_DTYPE_BFLOAT16, 2e-2}, kI32{"i32", {kDLInt, 32, 1}, NW_DTYPE_INT32, 0},
    kU8{"u8", {kDLUInt, 8, 1}, NW_DTYPE_UINT8, 0};

inline uint32_t bits_of(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  return bits;
}
inline float float_of(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, 4);
  return x;
}
inline uint16_t half(float x) {  // of size 2^-14 to 2^15, truncated: these are inputs
  const uint32_t bits = bits_of(x);
  const int exponent = static_cast<int>(bits >> 23 & 255) - 112;
  if (exponent <= 0) return static_cast<uint16_t>(bits >> 16 & 0x8000);
  return static_cast<uint16_t>((bits >> 16 & 0x8000) | static_cast<uint32_t>(exponent) << 10 | (bits >> 13 & 0x3ff));
}
inline double number(uint16_t h) {
  const int exponent = h >> 10 & 31, fraction = h & 0x3ff;
  if (exponent == 31) return fraction == 0 ? HUGE_VAL : std::nan("");
  const double size = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return (h & 0x8000) != 0 ? -size : size;
}

template <class T>
void put(char* to, T value) {
  std::memcpy(to, &value, sizeof value);
}
template <class T>
T get(const char* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
inline void store(char* to, const DLDataType& type, double x) {
  const auto single = static_cast<float>(x);
  if (type.code == kDLInt) return put(to, static_cast<int32_t>(x));
  if (type.code == kDLUInt) return put(to, static_cast<uint8_t>(std::abs(x)));
  if (type.code == kDLBfloat) return put(to, static_cast<uint16_t>(bits_of(single) >> 16));
  if (type.bits == 16) return put(to, half(single));
  if (type.bits == 64) return put(to, x);
  put(to, single);
}
inline double load(const char* from, const DLDataType& type) {
  if (type.code == kDLInt) return get<int32_t>(from);
  if (type.code == kDLUInt) return get<uint8_t>(from);
  if (type.code == kDLBfloat) return float_of(uint32_t{get<uint16_t>(from)} << 16);
  if (type.bits == 16) return number(get<uint16_t>(from));
  if (type.bits == 64) return get<double>(from);
  return get<float>(from);
}

}  // namespace narrows::bench
