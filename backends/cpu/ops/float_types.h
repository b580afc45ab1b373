// SPDX-License-Identifier: Apache-2.0
// float_types.h -- the four floating-point dtypes, and single elements at any address. convert-inl.h does the same for vectors.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "../backend.h"
#include "common/float_dtype.h"

namespace narrows::cpu {

// Storage only: arithmetic happens in Accumulate<T>.
struct f16 {
  uint16_t bits;
};
struct bf16 {
  uint16_t bits;
};

// The type that T is computed in, and sums are kept in: f32 for f16 and bf16, else T.
template <class T>
using Accumulate = std::conditional_t<std::is_same_v<T, f16> || std::is_same_v<T, bf16>, float, T>;

// visit(T{}) with the element type that `t` names.
template <class Visit>
decltype(auto) with_dtype(Dtype t, Visit&& visit) {
  switch (t) {
    case Dtype::f64: return visit(double{});
    case Dtype::f16: return visit(f16{});
    case Dtype::bf16: return visit(bf16{});
    default: return visit(float{});
  }
}

template <class T>
  requires std::is_arithmetic_v<T>
T widen(T x) {
  return x;
}
inline float widen(bf16 x) { return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16); }
inline float widen(f16 x) {
  const uint32_t magnitude = (x.bits & 0x7fffu) << 13, sign = (x.bits & 0x8000u) << 16;
  // Times 2^112 sets the exponent right, of subnormals too; infinity and NaN need theirs set by hand.
  const float scaled = std::bit_cast<float>(magnitude) * 0x1p112f;
  const uint32_t bits = magnitude >= 0x0f800000u ? magnitude | 0x7f800000u : std::bit_cast<uint32_t>(scaled);
  return std::bit_cast<float>(bits | sign);
}

// Rounds to nearest even.
template <class T>
  requires std::is_arithmetic_v<T>
void narrow(T x, T& out) {
  out = x;
}
inline void narrow(float x, bf16& out) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
  out.bits = static_cast<uint16_t>(nan ? (bits >> 16) | 0x40u : (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
inline void narrow(float x, f16& out) {
  const uint32_t bits = std::bit_cast<uint32_t>(x), magnitude = bits & 0x7fffffffu;
  uint32_t half;
  if (magnitude > 0x7f800000u) {
    half = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
  } else if (magnitude >= 0x47800000u) {  // 2^16 and more
    half = 0x7c00u;
  } else if (magnitude < 0x38800000u) {  // subnormal: one unit is the last place of a number in [0.5, 1)
    half = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  } else {
    half = (magnitude + 0xc8000fffu + ((magnitude >> 13) & 1u)) >> 13;
  }
  out.bits = static_cast<uint16_t>(half | ((bits >> 16) & 0x8000u));
}

// Element p[0], which may lie at any address.
template <class T>
Accumulate<T> read(const T* p) {
  T value;
  std::memcpy(&value, static_cast<const void*>(p), sizeof value);
  return widen(value);
}
template <class T>
void write(T* p, Accumulate<T> x) {
  T value;
  narrow(x, value);
  std::memcpy(static_cast<void*>(p), &value, sizeof value);
}

// True where p may be dereferenced.
template <class T>
bool is_aligned(const T* p) {
  return reinterpret_cast<uintptr_t>(p) % alignof(T) == 0;
}

// A byte address `elements` further on. Of a tensor without elements it may be any number, so it is not added to as a pointer.
inline void* advance(const void* p, int64_t elements, Dtype t) {
  return reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(p) + static_cast<uintptr_t>(elements * size_of(t)));
}

}  // namespace narrows::cpu
