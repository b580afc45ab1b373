// SPDX-License-Identifier: Apache-2.0
// lltm_split.h -- an f32 gradient as a sum of two elements of 16 bits, which matrix units take. A host compiler reads it too, for
// its test.
#pragma once

#include <cstdint>
#include <cstring>

#include "ops/dtype.h"

namespace narrows::gpu {

// A power of 2 and its inverse, both normal numbers.
struct Scale {
  float up, down;
};

// By which `largest`, finite and not negative, becomes 2^14 to 2^15: f16 ends at 65504, and its second parts then keep what is
// 2^39 times smaller than the largest. What lies below 2^-112 becomes less.
__device__ __forceinline__ Scale scale_for(float largest) {
  uint32_t bits;
  memcpy(&bits, &largest, 4);
  const int exponent = static_cast<int>(bits >> 23);  // biased by 127, as those below
  const int up = exponent < 15 ? 253 : 127 + 14 + 127 - exponent;
  const uint32_t up_bits = static_cast<uint32_t>(up) << 23, down_bits = static_cast<uint32_t>(254 - up) << 23;
  Scale scale;
  memcpy(&scale.up, &up_bits, 4);
  memcpy(&scale.down, &down_bits, 4);
  return scale;
}

__device__ __forceinline__ bool is_finite(float x) { return x - x == 0; }

template <class T>
struct Halves {
  T first, second;
};

// x = first + second, to 2^-23 |x| and 2^-25 in f16, to 2^-17 |x| in bf16. An infinity or NaN is the first part alone, so that the
// second one cannot change what it makes of a sum.
template <class T>
__device__ __forceinline__ Halves<T> split(float x) {
  Halves<T> out;
  narrow(x, out.first);
  const float rest = x - widen(out.first);
  narrow(is_finite(rest) ? rest : 0, out.second);
  return out;
}

// The sums over first and over second parts, added. Where an operand was infinite the first one shows it, and the second, of any
// sign, is left out.
__device__ __forceinline__ float add_second(float first, float second) { return is_finite(first) ? first + second : first; }

}  // namespace narrows::gpu
