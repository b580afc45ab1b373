// SPDX-License-Identifier: Apache-2.0
// conv1d_lines_sm90a.h -- x as the copy engine walks it: which taps one load of x serves, and x by lines in the workspace where the
// engine cannot walk it in place.
#pragma once

#include <algorithm>

#include "conv1d_vectors.h"
#include "ops/hopper_sm90a.h"

namespace narrows::gpu {

inline constexpr int kMostLines = 16, kMostChunks = 32;

// ---- taps: i, i + lines, ... read line i, the positions residue + j * step ----

// Taps that one load of x serves: the tile begins `start` after its first output, the first tap `shift` later.
struct Chunk {
  int start, shift, line, taps;
  int first;  // of its taps, in the order of the chunks
};

struct TapChunks {
  int chunks, tap_step, lines;  // tap_step: places from a tap of a chunk to the next
  Chunk chunk[kMostChunks];
  int64_t residue[kMostLines];
};

inline int64_t floor_mod(int64_t a, int64_t b) { return (a % b + b) % b; }

// Taps by the line that they read, and within it as many as a tile has room for: `slack` positions more than its outputs. Loads
// start at multiples of `unit` positions. False: there are too many.
inline bool plan_chunks(const Correlation& c, int64_t slack, int64_t unit, TapChunks* out) {
  const int64_t lines = c.tap_cycle();
  if (lines > kMostLines) return false;
  *out = {0, static_cast<int>(c.taps > lines ? c.cycle_step() : 0), static_cast<int>(lines), {}, {}};
  int placed = 0;
  for (int64_t line = 0; line < lines; ++line) {
    out->residue[line] = floor_mod(c.origin + line * c.tap_step, c.step);
    for (int64_t tap = line; tap < c.taps;) {
      const int64_t first = (c.origin + tap * c.tap_step - out->residue[line]) / c.step, shift = floor_mod(first, unit);
      const int64_t room = out->tap_step == 0 ? 1 : (slack - shift) / out->tap_step + 1;
      const int64_t taps = std::min(room, ceil_div(c.taps - tap, lines));
      if (out->chunks == kMostChunks) return false;
      out->chunk[out->chunks++] = {static_cast<int>(first - shift), static_cast<int>(shift), static_cast<int>(line),
                                   static_cast<int>(taps), placed};
      tap += taps * lines, placed += static_cast<int>(taps);
    }
  }
  return true;
}

// The tap that comes i-th in the order of the chunks.
__device__ __forceinline__ int tap_at(int taps, int lines, int i) {
  if (lines == 1) return i;
  int line = 0;
  for (int count; i >= (count = (taps - line + lines - 1) / lines); ++line) i -= count;
  return line + i * lines;
}

// Whether the engine walks x where it lies.
inline bool is_walkable(const CorrelationProblem& problem) {
  const Correlation& c = problem.c;
  const int64_t unit = 16 / size_of(problem.dtype);
  return c.step == 1 && problem.in_align >= 16 && (c.extent == 1 || c.in_position == 1) && steps_well(c.ins, c.in_channel, unit) &&
         steps_well(c.groups, c.in_group, unit) && steps_well(c.batch, c.in_batch, unit);
}
// The same of channels that lie side by side.
inline bool is_walkable_by_channels(const CorrelationProblem& problem) {
  const Correlation& c = problem.c;
  const int64_t unit = 16 / size_of(problem.dtype);
  return c.step == 1 && problem.in_align >= 16 && c.ins > 1 && c.in_channel == 1 && steps_well(c.extent, c.in_position, unit) &&
         steps_well(c.groups, c.in_group, unit) && steps_well(c.batch, c.in_batch, unit);
}
// Whether it counts the extents and coordinates in 32 bits.
inline bool is_countable(const Correlation& c) {
  constexpr int64_t kMost = int64_t{1} << 28;
  for (const int64_t v : {c.length, c.extent, c.outs, c.ins, c.groups, c.batch, c.taps, c.step, c.tap_step, std::abs(c.origin)})
    if (v > kMost) return false;
  return c.tap_step * c.taps <= kMost && c.taps * c.ins <= kMost && c.groups * c.ins <= kMost;
}

// ---- x by lines: copied[batch][line][channel][position], zeros up to the pitch ----
// Begins while the weights are packed, and ends after that, so that who waits for this one has both.

struct LineShape {
  Correlation c;
  int64_t pitch, blocks;
  int lines;
  int64_t residue[kMostLines];
  bool along_channels;  // channels are nearer to each other in x than positions
};

// Positions nearer to each other than channels: a thread makes 16 bytes of a row, from place i0 on.
template <class T>
struct RowPart {
  const T* from;  // place 0 of the row
  int64_t row, step;
  int i0, left;  // left: places that x has

  __device__ __forceinline__ RowPart(const LineShape& s, const T* x) {
    constexpr int kUnit = 16 / sizeof(T);
    const Correlation& c = s.c;
    const int ins = static_cast<int>(c.ins), channels = static_cast<int>(c.groups) * ins, pitch = static_cast<int>(s.pitch);
    const int row_blocks = (pitch / kUnit + kThreads - 1) / kThreads, at = static_cast<int>(blockIdx.x) / row_blocks;
    const int channel = at % channels, line = at / channels % s.lines, n = at / channels / s.lines;
    const int group = c.groups == 1 ? 0 : channel / ins;
    row = at, step = c.step * c.in_position;
    i0 = (static_cast<int>(blockIdx.x) % row_blocks * kThreads + static_cast<int>(threadIdx.x)) * kUnit;
    from = x + n * c.in_batch + group * c.in_group + (channel - group * ins) * c.in_channel + s.residue[line] * c.in_position;
    left = static_cast<int>(c.extent > s.residue[line] ? (c.extent - s.residue[line] + c.step - 1) / c.step : 0);
  }
};
template <class T>
__global__ void copy_rows(const LineShape s, const T* x, T* copied) {
  allow_next_kernel();
  const RowPart<T> part(s, x);
  if (part.i0 >= s.pitch) return;
  const int i0 = part.i0, left = part.left;
  const int64_t step = part.step;
  x = part.from, copied += part.row * s.pitch;
  if (step == 1) {  // by vectors, whose elements are then moved to where they belong
    const int misplaced = static_cast<int>(reinterpret_cast<uintptr_t>(x) / 2 % 8);
    uint32_t words[8] = {};
    load_vector(x - misplaced, {misplaced, misplaced + left}, i0, words);
    if (misplaced != 0) load_vector(x - misplaced, {misplaced, misplaced + left}, i0 + 8, words + 4);
    shift_down(words, misplaced * 2);
    wait_for_kernel_ahead();
    return store_16_bytes(copied + i0, {words[0], words[1], words[2], words[3]});
  }
  const auto* bits = reinterpret_cast<const uint16_t*>(x);
  uint32_t e[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) e[i] = i0 + i < left ? bits[(i0 + i) * step] : 0;
  wait_for_kernel_ahead();
  store_16_bytes(copied + i0, {e[0] | e[1] << 16, e[2] | e[3] << 16, e[4] | e[5] << 16, e[6] | e[7] << 16});
}

inline __global__ void copy_rows(const LineShape s, const float* x, float* copied) {
  allow_next_kernel();
  const RowPart<float> part(s, x);
  if (part.i0 >= s.pitch) return;
  uint32_t e[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) e[i] = part.i0 + i < part.left ? __float_as_uint(part.from[(part.i0 + i) * part.step]) : 0;
  wait_for_kernel_ahead();
  store_16_bytes(copied + part.row * s.pitch + part.i0, {e[0], e[1], e[2], e[3]});
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

// ---- on the host ----

// blocks = 0: there would be too many.
inline LineShape plan_lines(const Correlation& c, const TapChunks& taps, Dtype dtype) {
  const int64_t unit = 16 / size_of(dtype), channels = c.groups * c.ins;
  LineShape s{.c = c, .pitch = ceil_div(ceil_div(c.extent, c.step), unit) * unit, .lines = taps.lines};
  std::copy_n(taps.residue, taps.lines, s.residue);
  s.along_channels = std::abs(c.in_channel) < std::abs(c.in_position * c.step);
  s.blocks = s.lines * c.batch *
             (s.along_channels ? ceil_div(s.pitch, 64) * ceil_div(channels, 32) : ceil_div(s.pitch / unit, kThreads) * channels);
  if (s.blocks > kMaxBlocks) s.blocks = 0;
  return s;
}
inline uint64_t bytes_of(const LineShape& s, Dtype dtype) {
  return static_cast<uint64_t>(s.c.batch * s.lines * s.c.groups * s.c.ins * s.pitch * size_of(dtype));
}
// x by its lines, or where it lies.
inline MapShape map_of_lines(const LineShape& s, Dtype dtype, int columns, int rows, int swizzle) {
  const int64_t group = s.pitch * s.c.ins, line = group * s.c.groups;
  return {dtype,  {s.pitch, s.c.ins, s.c.groups, s.lines, s.c.batch}, {s.pitch, group, line, line * s.lines}, columns, rows,
          swizzle};
}
inline MapShape map_in_place(const Correlation& c, Dtype dtype, int columns, int rows, int swizzle) {
  return {dtype, {c.extent, c.ins, c.groups, 1, c.batch}, {c.in_channel, c.in_group, 0, c.in_batch}, columns, rows, swizzle};
}

inline MapShape map_by_channels(const Correlation& c, Dtype dtype, int channels, int positions, int swizzle) {
  return {dtype, {c.ins, c.extent, c.groups, 1, c.batch}, {c.in_position, c.in_group, 0, c.in_batch}, channels, positions, swizzle};
}

// Begins while the kernel ahead still runs, and ends after that.
template <class T>
void launch_copy(const LineShape& s, const void* x, void* copied, gpuStream_t stream) {
  void (*kernel)(LineShape, const T*, T*) = copy_lines<T>;
  if (!s.along_channels) kernel = copy_rows;
  launch_overlapping(90, kernel, s.blocks, kThreads, 0, stream, s, static_cast<const T*>(x), static_cast<T*>(copied));
}
template <class T>
void load_copies() {
  void (*rows)(LineShape, const T*, T*) = copy_rows;
  load_kernel(copy_lines<T>);
  load_kernel(rows);
}

}  // namespace narrows::gpu
