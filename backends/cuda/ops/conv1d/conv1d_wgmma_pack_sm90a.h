// SPDX-License-Identifier: Apache-2.0
// conv1d_wgmma_pack_sm90a.h -- what conv1d_wgmma_sm90a.cu writes to the workspace before its products: weights by taps, and x by
// lines where the copy engine cannot walk it. Step 5 of a tensor's path.
#pragma once

#include "conv1d_vectors.h"
#include "ops/hopper_sm90a.h"

namespace narrows::gpu {

inline constexpr int kMostLines = 16;

// ---- weights: packed[group][tap][channel][output channel], output channels padded to a multiple of 8, taps line by line ----

struct PackShape {
  Correlation c;
  int64_t pitch;
  int lines;        // taps i, i + lines, ... read line i
  bool along_outs;  // output channels are nearer to each other in w than channels
};

// The tap that is packed at place i.
__device__ __forceinline__ int tap_at(const PackShape& s, int i) {
  if (s.lines == 1) return i;
  const int taps = static_cast<int>(s.c.taps);
  int line = 0;
  for (int count; i >= (count = (taps - line + s.lines - 1) / s.lines); ++line) i -= count;
  return line + i * s.lines;
}

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
    const int channel = (k0 + at) / taps, tap = tap_at(s, (k0 + at) % taps);
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

// ---- x by lines: copied[batch][line][channel][position], zeros up to the pitch ----
// Begins while the weights are packed, and ends after that, so that who waits for this one has both.

struct LineShape {
  Correlation c;
  int64_t pitch;
  int lines;
  int64_t residue[kMostLines];  // line i has the positions residue + j * step
  bool along_channels;          // channels are nearer to each other in x than positions
};

// Positions nearer to each other than channels: a thread makes 16 bytes of a row.
template <class T>
__global__ void copy_rows(const LineShape s, const T* x, T* copied) {
  allow_next_kernel();
  const Correlation& c = s.c;
  const int ins = static_cast<int>(c.ins), channels = static_cast<int>(c.groups) * ins, pitch = static_cast<int>(s.pitch);
  const int row_blocks = (pitch / 8 + kThreads - 1) / kThreads, row = static_cast<int>(blockIdx.x) / row_blocks;
  const int i0 = (static_cast<int>(blockIdx.x) % row_blocks * kThreads + static_cast<int>(threadIdx.x)) * 8;
  const int channel = row % channels, line = row / channels % s.lines, n = row / channels / s.lines;
  const int group = c.groups == 1 ? 0 : channel / ins;
  if (i0 >= pitch) return;
  x += n * c.in_batch + group * c.in_group + (channel - group * ins) * c.in_channel + s.residue[line] * c.in_position;
  const int left = static_cast<int>(c.extent > s.residue[line] ? (c.extent - s.residue[line] + c.step - 1) / c.step : 0);
  const int64_t step = c.step * c.in_position;
  if (step == 1) {  // by vectors, whose elements are then moved to where they belong
    const int misplaced = static_cast<int>(reinterpret_cast<uintptr_t>(x) / 2 % 8);
    uint32_t words[8] = {};
    load_vector(x - misplaced, {misplaced, misplaced + left}, i0, words);
    if (misplaced != 0) load_vector(x - misplaced, {misplaced, misplaced + left}, i0 + 8, words + 4);
    shift_down(words, misplaced * 2);
    wait_for_kernel_ahead();
    return store_16_bytes(copied + int64_t{row} * pitch + i0, {words[0], words[1], words[2], words[3]});
  }
  const auto* bits = reinterpret_cast<const uint16_t*>(x);
  uint32_t e[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) e[i] = i0 + i < left ? bits[(i0 + i) * step] : 0;
  wait_for_kernel_ahead();
  store_16_bytes(copied + int64_t{row} * pitch + i0, {e[0] | e[1] << 16, e[2] | e[3] << 16, e[4] | e[5] << 16, e[6] | e[7] << 16});
}

// Channels nearer: 32 of them and 64 positions by way of shared memory.
template <class T>
__global__ void copy_lines(const LineShape s, const T* x, T* copied) {
  allow_next_kernel();
  __shared__ T tile[32][65];
  const Correlation& c = s.c;
  const int ins = static_cast<int>(c.ins), channels = static_cast<int>(c.groups) * ins, pitch = static_cast<int>(s.pitch);
  const int channel_tiles = (channels + 31) / 32, position_tiles = (pitch + 63) / 64;
  const int block = static_cast<int>(blockIdx.x), i0 = block % position_tiles * 64, rest = block / position_tiles;
  const int c0 = rest % channel_tiles * 32, line = rest / channel_tiles % s.lines, n = rest / channel_tiles / s.lines;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  x += n * c.in_batch + s.residue[line] * c.in_position;
  const int left = static_cast<int>(c.extent > s.residue[line] ? (c.extent - s.residue[line] + c.step - 1) / c.step : 0);
  const int64_t step = c.step * c.in_position;
#pragma unroll
  for (int i = 0; i < 8; ++i) {  // of 32 channels and 64 positions
    const int at = i * 8 + warp, channel = c0 + lane, group = c.groups == 1 ? 0 : channel / ins;
    tile[lane][at] = channel < channels && i0 + at < left
                         ? x[group * c.in_group + (channel - group * ins) * c.in_channel + (i0 + at) * step]
                         : narrowed<T>(0.0f);
  }
  wait_for_kernel_ahead();
  __syncthreads();
  copied += (int64_t{n * s.lines + line} * channels + c0) * pitch + i0;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int at = i % 2 * 32 + lane, row = i / 2 * 8 + warp;
    if (c0 + row < channels && i0 + at < pitch) copied[int64_t{row} * pitch + at] = tile[row][at];
  }
}

}  // namespace narrows::gpu
