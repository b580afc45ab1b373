// SPDX-License-Identifier: Apache-2.0
// conv1d_wgmma_pack_sm90a.h -- weights by taps, as conv1d_wgmma_sm90a.cu writes them to the workspace before its products.
#pragma once

#include "conv1d_lines_sm90a.h"

namespace narrows::gpu {

// ---- weights: packed[group][tap][channel][output channel], output channels padded to a multiple of 8, taps line by line ----

struct PackShape {
  Correlation c;
  int64_t pitch;
  int lines;
  bool along_outs;  // output channels are nearer to each other in w than channels
};

template <class T>
__global__ void pack_for_wgmma(const PackShape s, const T* w, T* packed) {
  allow_next_kernel();
  __shared__ T tile[32][34];
  const Correlation& c = s.c;
  const int taps = static_cast<int>(c.taps), depth = static_cast<int>(c.ins) * taps, outs = static_cast<int>(c.outs);
  const int depth_tiles = (depth + 31) / 32, out_tiles = (static_cast<int>(s.pitch) + 31) / 32,
            block = static_cast<int>(blockIdx.x);
  const int k0 = block % depth_tiles * 32, m0 = block / depth_tiles % out_tiles * 32, group = block / depth_tiles / out_tiles;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32, warps = 8;
  w += group * c.w_group, packed += int64_t{group} * depth * s.pitch;
#pragma unroll
  for (int i = warp; i < 32; i += warps) {
    const int out = s.along_outs ? lane : i, at = s.along_outs ? i : lane;
    const int channel = (k0 + at) / taps, tap = tap_at(taps, s.lines, (k0 + at) % taps);
    tile[out][at] =
        m0 + out < outs && k0 + at < depth ? w[(m0 + out) * c.w_out + channel * c.w_in + tap * c.w_tap] : narrowed<T>(0.0f);
  }
  __syncthreads();
  for (int i = warp; i < 32; i += warps) {
    const int channel = (k0 + i) / taps;
    const int64_t place = k0 + i - channel * taps;
    if (k0 + i < depth && m0 + lane < s.pitch) packed[(place * c.ins + channel) * s.pitch + m0 + lane] = tile[lane][i];
  }
}

}  // namespace narrows::gpu
