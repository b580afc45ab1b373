// SPDX-License-Identifier: Apache-2.0
/// @file float16.hpp
/// @brief f16 and bf16: 16-bit floating-point numbers that compute in float.
///
/// Header only, C++17, on the CPU and in CUDA's and HIP's kernels.
///
/// @code{.cpp}
/// const narrows::f16* x = call.input<narrows::f16>(0);
/// narrows::f16* y = call.output<narrows::f16>(0);
/// y[i] = std::exp(x[i]) * 2; // in float; rounded once, by the assignment
/// @endcode
#ifndef NARROWS_FLOAT16_HPP
#define NARROWS_FLOAT16_HPP

#include <cstdint>
#include <cstring>

/// @cond
// Of functions that kernels of a GPU may call, too.
#if defined(__CUDACC__) || defined(__HIPCC__)
#define NARROWS_ANYWHERE __host__ __device__
#else
#define NARROWS_ANYWHERE
#endif
/// @endcond

namespace narrows {

/// @defgroup cpp_float16 C++: 16-bit floating point
/// @{

/// @cond
namespace detail {

template <class To, class From>
NARROWS_ANYWHERE To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

// IEEE 754 binary16. No step leaves the normal numbers of float, so it holds where subnormal ones
// are flushed to 0.
struct Binary16 {
  NARROWS_ANYWHERE static float widen(uint16_t bits) {
    const uint32_t sign = (bits & 0x8000U) << 16, rest = bits & 0x7FFFU;
    if (rest >= 0x7C00U) return bits_as<float>(sign | 0x7F800000U | (rest & 0x3FFU) << 13);
    if (rest >= 0x400U) return bits_as<float>(sign | ((rest << 13) + 0x38000000U));
    const float value = bits_as<float>(0x38800000U + (rest << 13)) - bits_as<float>(0x38800000U);
    return bits_as<float>(sign | bits_as<uint32_t>(value));
  }
  NARROWS_ANYWHERE static uint16_t round(float value) {
    const uint32_t bits = bits_as<uint32_t>(value), sign = bits >> 16 & 0x8000U;
    const uint32_t rest = bits & 0x7FFFFFFFU;
    uint32_t out = 0;
    if (rest > 0x7F800000U)
      out = 0x7E00U | (rest >> 13 & 0x3FFU);  // a quiet NaN
    else if (rest >= 0x477FF000U)
      out = 0x7C00U;  // from 65520: infinity
    else if (rest < 0x38800000U)
      // Below 2^-14. The spacing of float at 0.5 is that of binary16 here: the sum is rounded as
      // wanted.
      out = bits_as<uint32_t>(bits_as<float>(rest) + 0.5F) - 0x3F000000U;
    else
      out = (rest + 0xFFFU + (rest >> 13 & 1U) - 0x38000000U) >> 13;
    return static_cast<uint16_t>(sign | out);
  }
};

// The upper half of IEEE 754 binary32.
struct Bfloat16 {
  NARROWS_ANYWHERE static float widen(uint16_t bits) {
    return bits_as<float>(static_cast<uint32_t>(bits) << 16);
  }
  NARROWS_ANYWHERE static uint16_t round(float value) {
    const uint32_t bits = bits_as<uint32_t>(value);
    if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return static_cast<uint16_t>(bits >> 16 | 0x40U);
    return static_cast<uint16_t>((bits + 0x7FFFU + (bits >> 16 & 1U)) >> 16);
  }
};

}  // namespace detail
/// @endcond

/// A floating-point number of 16 bits, f16 or bf16. It turns into a float by itself. A float is
/// rounded to the nearest, ties to even, where it is assigned or `f16(value)` is written. A double
/// is rounded to float first. A NaN stays a NaN, and becomes quiet.
template <class Format>
struct Float16 {
  /// The bits of the number.
  uint16_t bits;

  Float16() = default;
  /// Rounds.
  NARROWS_ANYWHERE explicit Float16(float value) : bits(Format::round(value)) {}
  /// Rounds.
  NARROWS_ANYWHERE Float16& operator=(float value) {
    bits = Format::round(value);
    return *this;
  }
  /// The value, exactly.
  NARROWS_ANYWHERE operator float() const { return Format::widen(bits); }
  /// Adds in float, and rounds.
  NARROWS_ANYWHERE Float16& operator+=(float value) { return *this = *this + value; }
  /// Subtracts in float, and rounds.
  NARROWS_ANYWHERE Float16& operator-=(float value) { return *this = *this - value; }
  /// Multiplies in float, and rounds.
  NARROWS_ANYWHERE Float16& operator*=(float value) { return *this = *this * value; }
  /// Divides in float, and rounds.
  NARROWS_ANYWHERE Float16& operator/=(float value) { return *this = *this / value; }
};

/// IEEE 754 binary16: 5 bits of exponent, 11 of precision. DLPack's {kDLFloat, 16, 1}.
using f16 = Float16<detail::Binary16>;
/// bfloat16: 8 bits of exponent, 8 of precision. DLPack's {kDLBfloat, 16, 1}.
using bf16 = Float16<detail::Bfloat16>;

/// @}

}  // namespace narrows

#endif
