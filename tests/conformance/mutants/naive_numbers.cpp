// SPDX-License-Identifier: Apache-2.0
// naive_numbers.cpp -- the thirteen dtypes: one element from memory and to memory. See naive.h.
#include <cmath>
#include <cstring>
#include <limits>

#include "naive.h"

namespace naive {
namespace {

template <class T>
T read(const void* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

template <class T>
void write(void* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

struct Facts {
  DLDataType dl;
  bool is_float;
  int precision, min_exponent, max_exponent;  // of a 16-bit float: IEEE's p, emin, emax
};
constexpr Facts kFacts[] = {{},
                            {{kDLFloat, 32, 1}, true, 24, -126, 127},
                            {{kDLFloat, 64, 1}, true, 53, -1022, 1023},
                            {{kDLFloat, 16, 1}, true, 11, -14, 15},
                            {{kDLBfloat, 16, 1}, true, 8, -126, 127},
                            {{kDLInt, 8, 1}, false, 0, 0, 0},
                            {{kDLInt, 16, 1}, false, 0, 0, 0},
                            {{kDLInt, 32, 1}, false, 0, 0, 0},
                            {{kDLInt, 64, 1}, false, 0, 0, 0},
                            {{kDLUInt, 8, 1}, false, 0, 0, 0},
                            {{kDLUInt, 16, 1}, false, 0, 0, 0},
                            {{kDLUInt, 32, 1}, false, 0, 0, 0},
                            {{kDLUInt, 64, 1}, false, 0, 0, 0},
                            {{kDLBool, 8, 1}, false, 0, 0, 0}};
const Facts& facts(DType t) { return kFacts[static_cast<int>(t)]; }

// To a multiple of the last place that a 16-bit float has there. Whoever rounds a number that was rounded before rounds twice.
Real round16(DType t, Real value) {
  if (!std::isfinite(value) || value == 0) return value;
  if (fault(Fault::cast_twice)) value = static_cast<float>(value);
  const Facts& f = facts(t);
  int exponent = 0;
  std::frexp(value, &exponent);  // value = [0.5, 1) * 2^exponent
  const int step = std::max(exponent - 1, f.min_exponent) - (f.precision - 1);
  const Real scaled = std::ldexp(value, -step);
  Real rounded = std::nearbyint(scaled);
  if (fault(Fault::half_away)) rounded = std::round(scaled);
  if (fault(Fault::truncates_f16)) rounded = std::trunc(scaled);
  rounded = std::ldexp(rounded, step);
  if (fault(Fault::flushes_f16) && std::fabs(rounded) < std::ldexp(Real(1), f.min_exponent)) return std::copysign(Real(0), value);
  if (std::fabs(rounded) < std::ldexp(Real(1), f.max_exponent + 1)) return rounded;
  if (fault(Fault::f16_saturates))
    return std::copysign(std::ldexp(2 - std::ldexp(Real(1), 1 - f.precision), f.max_exponent), value);
  return std::copysign(std::numeric_limits<Real>::infinity(), value);
}

// `value` is representable.
uint16_t f16_bits(float value) {
  const auto bits = read<uint32_t>(&value);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  if (std::isnan(value)) return fault(Fault::nan_unsigned) ? 0x7E00 : sign | 0x7E00;
  if (std::isinf(value)) return sign | 0x7C00;
  const float magnitude = std::fabs(value);
  if (magnitude < 0x1p-14F) return sign | static_cast<uint16_t>(magnitude * 0x1p24F);
  return static_cast<uint16_t>(sign | ((bits & 0x7FFFFFFF) - (112U << 23)) >> 13);
}
uint16_t bf16_bits(float value) { return static_cast<uint16_t>(read<uint32_t>(&value) >> 16); }

// Truncates, saturates, and takes NaN for 0.
template <class T>
T to_integer(Real value) {
  if (std::isnan(value)) return fault(Fault::cast_nan) ? std::numeric_limits<T>::min() : 0;
  if (fault(Fault::cast_wraps) && std::fabs(value) < 0x1p63L) return static_cast<T>(static_cast<int64_t>(value));
  if (value <= static_cast<Real>(std::numeric_limits<T>::min())) return std::numeric_limits<T>::min();
  if (value >= static_cast<Real>(std::numeric_limits<T>::max())) return std::numeric_limits<T>::max();
  return static_cast<T>(value);
}

}  // namespace

DType dtype_of(DLDataType t) {
  for (int i = 1; i <= static_cast<int>(DType::boolean); ++i)
    if (kFacts[i].dl.code == t.code && kFacts[i].dl.bits == t.bits && t.lanes == 1) return static_cast<DType>(i);
  return DType::none;
}
DLDataType dl_dtype(DType t) { return facts(t).dl; }
bool is_float(DType t) { return facts(t).is_float; }
int64_t item_size(DType t) { return facts(t).dl.bits / 8; }

float load_bf16(const void* from) {
  const uint32_t bits = static_cast<uint32_t>(read<uint16_t>(from)) << 16;
  return read<float>(&bits);
}

float load_f16(const void* from) {
  const auto half = read<uint16_t>(from);
  if (fault(Fault::f16_inputs_flushed) && (half & 0x7C00) == 0) return 0;
  const bool special = (half & 0x7C00) == 0x7C00;
  const uint32_t bits = (half & 0x8000U) << 16 | (half & 0x7FFFU) << 13 | (special ? 0x7F800000U : 0);
  return special ? read<float>(&bits) : read<float>(&bits) * 0x1p112F;
}

Real load_real(DType t, const void* from) {
  switch (t) {
    case DType::f32: return read<float>(from);
    case DType::f64: return read<double>(from);
    case DType::f16: return load_f16(from);
    case DType::bf16: return load_bf16(from);
    case DType::u64:
      return fault(Fault::u64_as_i64) ? static_cast<Real>(read<int64_t>(from)) : static_cast<Real>(read<uint64_t>(from));
    case DType::boolean: return fault(Fault::bool_copied) ? read<uint8_t>(from) : static_cast<Real>(load_integer(t, from) != 0);
    default: return static_cast<Real>(load_integer(t, from));
  }
}

int64_t load_integer(DType t, const void* from) {
  switch (t) {
    case DType::i8: return read<int8_t>(from);
    case DType::i16: return read<int16_t>(from);
    case DType::i32: return read<int32_t>(from);
    case DType::u8: return read<uint8_t>(from);
    case DType::u16: return read<uint16_t>(from);
    case DType::u32: return read<uint32_t>(from);
    case DType::boolean: return fault(Fault::bool_low_bit) ? read<uint8_t>(from) & 1 : read<uint8_t>(from);
    default: return read<int64_t>(from);
  }
}

void store_integer(DType t, void* to, int64_t value) {
  if (fault(Fault::bool_of_255) && t == DType::boolean && value != 0) value = 255;
  switch (item_size(t)) {
    case 1: return write(to, static_cast<uint8_t>(value));
    case 2: return write(to, static_cast<uint16_t>(value));
    case 4: return write(to, static_cast<uint32_t>(value));
    default: return write(to, value);
  }
}

void store_real(DType t, void* to, Real value) {
  switch (t) {
    case DType::f32: return write(to, static_cast<float>(round_to(t, value)));
    case DType::f64: return write(to, static_cast<double>(round_to(t, value)));
    case DType::f16: return write(to, f16_bits(static_cast<float>(round16(t, value))));
    case DType::bf16: return write(to, bf16_bits(static_cast<float>(round16(t, value))));
    case DType::i8: return write(to, to_integer<int8_t>(value));
    case DType::i16: return write(to, to_integer<int16_t>(value));
    case DType::i32: return write(to, to_integer<int32_t>(value));
    case DType::i64: return write(to, to_integer<int64_t>(value));
    case DType::u8: return write(to, to_integer<uint8_t>(value));
    case DType::u16: return write(to, to_integer<uint16_t>(value));
    case DType::u32: return write(to, to_integer<uint32_t>(value));
    case DType::u64: return write(to, to_integer<uint64_t>(value));
    default: return write(to, static_cast<uint8_t>(value != 0));
  }
}

double in_parts(double value) {
  constexpr double kOverflow = 0x1.ffp127, kLeast = 0x1p-133;  // bf16's: from here on infinite; the least step
  if (fault(Fault::parts_overflow) && std::fabs(value) >= kOverflow) return std::numeric_limits<double>::quiet_NaN();
  if (fault(Fault::parts_underflow) && std::isfinite(value)) return std::nearbyint(value / kLeast) * kLeast;
  if (!fault(Fault::two_parts) || value == 0 || !std::isfinite(value)) return value;
  const double step = std::ldexp(1.0, std::ilogb(value) - 15);
  return std::nearbyint(value / step) * step;
}

double cut_off(double sum) {
  const auto nearest = static_cast<float>(sum);
  return std::fabs(nearest) > std::fabs(sum) ? std::nextafter(nearest, 0.0f) : nearest;
}

Real round_to(DType t, Real value) {
  if (fault(Fault::flushes_f32) && t == DType::f32 && std::fabs(value) < 0x1p-126L) return std::copysign(Real(0), value);
  if (fault(Fault::f64_through_f32)) return static_cast<float>(value);
  if (t == DType::f32) return static_cast<float>(value);
  if (t == DType::f64) return static_cast<double>(value);
  return round16(t, value);
}

double View::real(const unsigned char* p) const {
  switch (dtype) {
    case DType::f32: return read<float>(p);
    case DType::f64: return read<double>(p);
    case DType::f16: return load_f16(p);
    default: return load_bf16(p);
  }
}

}  // namespace naive
