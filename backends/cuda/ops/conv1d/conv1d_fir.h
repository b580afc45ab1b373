// SPDX-License-Identifier: Apache-2.0
// conv1d_fir.h -- long filters: a tile of one channel in shared memory, a window of it that moves through registers. For every G
// taps (16 bytes) a thread reads 16 bytes of the tile and of the taps and does G * R multiply-adds. The sums are shared by the
// portable kernel (conv1d_fir.cu) and the one whose tiles arrive asynchronously (conv1d_fir_sm80.cu).
#pragma once

#include "conv1d_product.h"

namespace narrows::gpu {

std::unique_ptr<Part> plan_fir(const CorrelationProblem& problem);

// One channel, taps and outputs side by side; everything uniform over the grid.
struct FirShape {
  Correlation c;
  int64_t tiles, blocks;  // tiles of a row of the output; blocks of the grid, or all tiles of a persistent one
};

// R consecutive outputs of a thread. R / G is odd: threads then read shared memory 16 * odd bytes apart, which meets every bank.
// Shift: elements of the tile before the first that output 0 reads; known when compiling, it only names other registers.
template <class A, int R, int Shift>
struct FirSums {
  static constexpr int G = kGroup<A>, kWindow = (R + 2 * (G - 1) + Shift) / G;
  static_assert(R % G == 0 && R / G % 2 == 1);

  // Even and odd taps apart: two chains of additions, and smaller rounding errors.
  A sums[2][R] = {};
  detail::Group<A> window[kWindow];  // a ring: a step overwrites the one group that left

  // Taps from `taps` of which `count` are used; `u` is where the ring starts.
  __device__ __forceinline__ void step(const detail::Group<A>* tile, const detail::Group<A>* taps, int u, int count) {
    window[(u + kWindow - 1) % kWindow] = tile[kWindow - 1];
    const detail::Group<A> w = *taps;
#pragma unroll
    for (int j = 0; j < G; ++j) {
      if (j >= count) break;
#pragma unroll
      for (int r = 0; r < R; ++r) {
        const int p = r + j + Shift;
        sums[j % 2][r] = fma(w.at[j], window[(u + p / G) % kWindow].at[p % G], sums[j % 2][r]);
      }
    }
  }

  // Adds `count` taps. The last few go one by one: taps padded with zeros would make NaN of an infinity outside the window.
  __device__ __forceinline__ void add(const detail::Group<A>* tile, const detail::Group<A>* taps, int count) {
    const detail::Group<A>* mine = tile + threadIdx.x * (R / G);
#pragma unroll
    for (int i = 0; i < kWindow - 1; ++i) window[i] = mine[i];
    const int full = count / G, rest = count % G;
    int g = 0;
#pragma unroll 1
    for (; g + kWindow <= full; g += kWindow)
#pragma unroll
      for (int u = 0; u < kWindow; ++u) step(mine + g + u, taps + g + u, u, G);
#pragma unroll
    for (int u = 0; u < kWindow; ++u) {
      if (g + u < full)
        step(mine + g + u, taps + g + u, u, G);
      else if (g + u == full && rest > 0)
        step(mine + g + u, taps + g + u, u, rest);
    }
  }

  // Sum of both chains, for 16-byte stores to the tile's own memory.
  __device__ __forceinline__ void store(detail::Group<A>* tile) const {
#pragma unroll
    for (int i = 0; i < R / G; ++i) {
      detail::Group<A> out;
#pragma unroll
      for (int e = 0; e < G; ++e) out.at[e] = sums[0][i * G + e] + sums[1][i * G + e];
      tile[threadIdx.x * (R / G) + i] = out;
    }
  }
};

// Groups of a tile for `count` taps: what the last thread's last step reads is inside.
template <class A, int R, int Threads, int Shift>
constexpr int fir_groups(int count) {
  constexpr int G = kGroup<A>;
  return (R * Threads + count - 1 + Shift + G - 1) / G + 1;
}

}  // namespace narrows::gpu
