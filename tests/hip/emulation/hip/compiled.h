// SPDX-License-Identifier: Apache-2.0
// compiled.h -- stands before each text that the emulation's hiprtc compiles. See ../compiler.cpp.
#pragma once

#include "hip_runtime.h"

namespace hip_emulation {
// The threads' positions and the barrier are those of the process that loads the object.
struct Bindings {
  Position *thread, *block, *block_size, *grid_size;
  void (*barrier)();
};
static Bindings bindings;
inline void barrier() { bindings.barrier(); }
}  // namespace hip_emulation
extern "C" __attribute__((visibility("default"))) void hip_emulation_bind(const hip_emulation::Bindings* bindings) {
  hip_emulation::bindings = *bindings;
}

#undef threadIdx
#undef blockIdx
#undef blockDim
#undef gridDim
#define threadIdx (*::hip_emulation::bindings.thread)
#define blockIdx (*::hip_emulation::bindings.block)
#define blockDim (*::hip_emulation::bindings.block_size)
#define gridDim (*::hip_emulation::bindings.grid_size)

// A matrix unit, as NVIDIA's PTX describes that of sm_80: all threads of a block ask it at once. Lane l of a warp has g = l / 4 and
// t = l % 4. Half h of a's part r is of row g + 8 (r % 2) and column 2t + 8 (r / 2) + h, of b's of row 2t + 8 r + h and column g.
#define nw_lane ix(threadIdx.x & 31)
#define nw_warp_barrier() ::hip_emulation::barrier()
namespace hip_emulation {
inline unsigned short half_of(unsigned pair, int half) { return static_cast<unsigned short>(pair >> 16 * half); }
inline float from_f16(unsigned short bits) { return static_cast<float>(__builtin_bit_cast(_Float16, bits)); }
inline float from_bf16(unsigned short bits) { return __builtin_bit_cast(float, static_cast<unsigned>(bits) << 16); }

struct Factors {
  unsigned a[4], b[2];
};
static Factors factors[1024];
template <class Convert>
inline void multiply(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2], Convert convert) {
  const unsigned self = threadIdx.x, lane = self % 32;
  const Factors* const warp = factors + (self - lane);
  for (int i = 0; i < 4; ++i) factors[self].a[i] = a[i];
  for (int i = 0; i < 2; ++i) factors[self].b[i] = b[i];
  barrier();
  for (unsigned e = 0; e < 4; ++e) {
    const unsigned m = lane / 4 + e / 2 * 8, n = lane % 4 * 2 + e % 2;
    for (unsigned k = 0; k < 16; ++k) {
      const unsigned of_a = warp[m % 8 * 4 + k % 8 / 2].a[m / 8 + k / 8 * 2], of_b = warp[n * 4 + k % 8 / 2].b[k / 8];
      c[e] += convert(half_of(of_a, k % 2)) * convert(half_of(of_b, k % 2));
    }
  }
  barrier();
}

// Lane l names row l % 8 of tile l / 8, of 8 elements side by side.
static const unsigned short* rows[1024];
template <int N>
inline void read_tiles(unsigned (&to)[N], const unsigned short* from, bool across) {
  const unsigned self = threadIdx.x, lane = self % 32;
  rows[self] = from;
  barrier();
  const auto element = [&](unsigned tile, unsigned row, unsigned column) -> unsigned {
    return rows[self - lane + tile * 8 + row][column];
  };
  for (unsigned i = 0; i < N; ++i) {
    const unsigned g = lane / 4, t = lane % 4 * 2;
    to[i] = across ? element(i, t, g) | element(i, t + 1, g) << 16 : element(i, g, t) | element(i, g, t + 1) << 16;
  }
  barrier();
}
}  // namespace hip_emulation
inline unsigned nw_pair(unsigned short low, unsigned short high) { return low | static_cast<unsigned>(high) << 16; }
inline unsigned nw_read_pair(const unsigned short* from) {
  if (reinterpret_cast<unsigned long>(from) % 4 != 0) __builtin_trap();
  return nw_pair(from[0], from[1]);
}
template <int N>
void nw_read_tiles(unsigned (&to)[N], const unsigned short* from) {
  if (reinterpret_cast<unsigned long>(from) % 16 != 0) __builtin_trap();
  ::hip_emulation::read_tiles(to, from, false);
}
template <int N>
void nw_read_tiles_across(unsigned (&to)[N], const unsigned short* from) {
  if (reinterpret_cast<unsigned long>(from) % 16 != 0) __builtin_trap();
  ::hip_emulation::read_tiles(to, from, true);
}
inline void nw_mma_f16(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  ::hip_emulation::multiply(c, a, b, ::hip_emulation::from_f16);
}
inline void nw_mma_bf16(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  ::hip_emulation::multiply(c, a, b, ::hip_emulation::from_bf16);
}

// A kernel finds its arguments by the list of their addresses.
#define NW_KERNEL(name, Args, threads)                                             \
  static void name##_of(const Args& A);                                            \
  extern "C" __attribute__((visibility("default"))) void name(void** parameters) { \
    name##_of(*static_cast<const Args*>(parameters[0]));                           \
  }                                                                                \
  static void name##_of(const Args& A)
