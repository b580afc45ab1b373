// SPDX-License-Identifier: Apache-2.0
// bytes.h -- elements at addresses that are no multiple of their size, in kernels.
#pragma once

#include <cstdint>
#include <cstring>

#include "gpu.h"

namespace narrows::gpu {

template <class T>
__device__ __forceinline__ T load_bytes(const void* from) {
  uint64_t bits = 0;
#pragma unroll 1
  for (unsigned i = 0; i < sizeof(T); ++i) bits |= uint64_t{static_cast<const unsigned char*>(from)[i]} << (8 * i);
  T element;
  memcpy(static_cast<void*>(&element), &bits, sizeof(T));
  return element;
}

// By permutes, which say nothing of a number: ptxas (12.9, 13.0) takes the low byte that is stored of a 16-bit float for a
// conversion of its value to an integer.
template <class T>
__device__ __forceinline__ void store_bytes(void* to, T element) {
  uint32_t words[(sizeof(T) + 3) / 4] = {};
  memcpy(words, &element, sizeof(T));
#pragma unroll
  for (uint32_t i = 0; i < sizeof(T); ++i)
    static_cast<unsigned char*>(to)[i] = static_cast<unsigned char>(__byte_perm(words[i / 4], 0, 0x4440 + i % 4));
}

}  // namespace narrows::gpu
