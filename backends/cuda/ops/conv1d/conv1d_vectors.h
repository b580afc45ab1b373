// SPDX-License-Identifier: Apache-2.0
// conv1d_vectors.h -- rows of 16-byte vectors, and windows that start anywhere in them: what the kernels for short filters share.
#pragma once

#include "conv1d.h"
#include "ops/dtype.h"

namespace narrows::gpu {

template <class T>
struct alignas(16) Vector {
  static constexpr int kSize = 16 / sizeof(T);
  T e[kSize];
};

inline constexpr int kMostTaps = 8;  // that one pass of these kernels has

// Places of a row that a tile may touch: those from `begin` on before `end`.
struct Range {
  int begin, end;
};
__device__ __forceinline__ Range range_in_tile(int64_t origin, int64_t extent) {
  constexpr int64_t kFar = 1 << 30;
  const int64_t begin = -origin, end = extent - origin;
  return {static_cast<int>(begin < -kFar  ? -kFar
                           : begin > kFar ? kFar
                                          : begin),
          static_cast<int>(end < -kFar  ? -kFar
                           : end > kFar ? kFar
                                        : end)};
}

// 16 bytes at `place`, with zeros outside of the range.
template <class T>
__device__ __forceinline__ void load_vector(const T* tile, Range range, int place, uint32_t* words) {
  constexpr int kSize = Vector<T>::kSize;
  uint4 bits = {0, 0, 0, 0};
  if (place >= range.begin && place + kSize <= range.end) {
    bits = load_16_bytes(tile + place);
  } else if (place + kSize > range.begin && place < range.end) {
    Vector<T> v;
#pragma unroll
    for (int e = 0; e < kSize; ++e)
      v.e[e] = place + e >= range.begin && place + e < range.end ? tile[place + e] : narrowed<T>(Accumulate<T>{0});
    memcpy(&bits, &v, 16);
  }
  words[0] = bits.x, words[1] = bits.y, words[2] = bits.z, words[3] = bits.w;
}

template <class T>
__device__ __forceinline__ void store_vector(T* to, const Accumulate<T> (&values)[Vector<T>::kSize]) {
  uint4 bits;
  if constexpr (sizeof(T) == 2)
    bits = {narrow_pair(values[0], values[1], T{}), narrow_pair(values[2], values[3], T{}), narrow_pair(values[4], values[5], T{}),
            narrow_pair(values[6], values[7], T{})};
  else
    memcpy(&bits, values, 16);
  store_16_bytes(to, bits);
}

// Moves the words down by `bytes` < 16, which are the same for all threads: uniform branches around moves.
template <int kCount>
__device__ __forceinline__ void shift_down(uint32_t (&words)[kCount], int bytes) {
  if (bytes & 8) {
#pragma unroll
    for (int i = 0; i + 2 < kCount; ++i) words[i] = words[i + 2];
  }
  if (bytes & 4) {
#pragma unroll
    for (int i = 0; i + 1 < kCount; ++i) words[i] = words[i + 1];
  }
  if (bytes & 2) {
#pragma unroll
    for (int i = 0; i + 1 < kCount; ++i) words[i] = __funnelshift_r(words[i], words[i + 1], 16);
  }
}

// Whether rows start on 16 bytes.
inline bool rows_are_aligned(Dtype dtype, int64_t align, std::initializer_list<RowStride> rows) {
  return align >= 16 && rows_start_on(16 / size_of(dtype), rows);
}

inline int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

}  // namespace narrows::gpu
