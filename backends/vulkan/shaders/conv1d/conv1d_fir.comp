// SPDX-License-Identifier: Apache-2.0
// conv1d_fir.comp -- a correlation whose taps and outputs lie side by side (step and tap step are 1), for few channels to a group:
// signal filters and depthwise ones. A work group brings a stretch of x and some taps into shared memory; a thread slides windows
// over it in registers. Elements are aligned.
#version 460
#define ALIGNED
#include "common.glsl"
#include "gemm/gemm_elements.glsl"
#include "conv1d_correlation.glsl"

layout(constant_id = 1) const int kOuts = 1;             // output channels of a work group
layout(constant_id = 2) const bool kInTogether = false;  // rows of x start where load4() may read, and are contiguous
layout(constant_id = 3) const bool kOutTogether = false;  // likewise rows of y, for store4()
layout(constant_id = 4) const int kLead = 0;   // elements of the stretch before the first that is used; kInTogether: up to an aligned four
layout(constant_id = 5) const int kRest = 0;   // taps beyond whole fours
layout(constant_id = 6) const int kTiles = 1;  // of a row, that a work group makes one after the other
layout(constant_id = 7) const bool kWhole = false;  // kInTogether, and rows of x are whole fours
const int kThreads = 64, kTaps = 192;  // of a work group; at a time
// Of positions, for a thread: what it computes, and what it brings of a stretch, which has one more than that for each tap. An odd
// number meets every bank of shared memory; no constant of the pipeline, since arrays of such a length stay in memory. Of 64 threads many
// work groups are under way, some of which read while others compute.
const int kFours = 3;
const int kPositions = kThreads * kFours * 4;  // of a tile
const int kBeyond = (kTaps + 5) / 4;  // fours that a stretch reaches beyond a tile at most, of which a thread brings one

layout(local_size_x = 64) in;
shared ACC4 stretch[kPositions / 4 + kBeyond];
shared ACC4 taps[kOuts * kTaps / 4];
const int kMostOuts = 4;
ACC4 sums[kMostOuts * kFours], held[kFours + 1];

const int kNowhere = -(1 << 29);  // a position that is outside of every row, with all that is read from there on

// Four positions of a row of x.
ACC4 fetch_four(uint64_t row, int position, int extent) {
  // Always loads, from somewhere: a branch would wait for it.
  if (kWhole) return load4(row + bytes(clamp(position, 0, extent - 4)));
  if (kInTogether && position >= 0 && position + 4 <= extent) return load4(row + bytes(position));
  ACC4 values = ACC4(0);
  if (kInTogether && (position + 4 <= 0 || position >= extent)) return values;
  const uint64_t step = bytes(p.shape.in_position), at = row + uint64_t(int64_t(position)) * step;
  [[unroll]] for (int i = 0; i < 4; ++i)
    if (uint(position + i) < uint(extent)) values[i] = load(at + i * step);
  return values;
}

// Positions of a row of x, kLead before `first` and as many as are needed for `count` taps behind it: all on their way at once.
void fetch_stretch(uint64_t row, int first, int count) {
  const int fours = (kPositions + count + 2 + kLead) / 4, thread = int(gl_LocalInvocationID.x), extent = int(p.shape.extent);
  [[unroll]] for (int i = 0; i <= kFours; ++i) {
    const int four = i * kThreads + thread;
    if (i < kFours || kWhole || four < fours) held[i] = fetch_four(row, first - kLead + four * 4, extent);
  }
}
void put_stretch(int first, int count) {
  const int fours = (kPositions + count + 2 + kLead) / 4, thread = int(gl_LocalInvocationID.x), extent = int(p.shape.extent);
  [[unroll]] for (int i = 0; i <= kFours; ++i) {
    const int four = i * kThreads + thread, position = first - kLead + four * 4;
    const bool is_there = !kWhole || (position >= 0 && position < extent);
    if (i < kFours || four < fours) stretch[four] = is_there ? held[i] : ACC4(0);
  }
}

void put_taps(uint64_t w, int first, int count, int outs) {
  for (int i = int(gl_LocalInvocationID.x); i < count; i += kThreads)
    [[unroll]] for (int m = 0; m < kOuts; ++m)
      if (m < outs) taps[(m * kTaps + i) / 4][i % 4] = load(w + bytes(m * p.shape.w_out + (first + i) * p.shape.w_tap));
}

// `count` <= 32 of the taps j, j + 1, ..., known when it is compiled: no more, because what lies beside a window may be infinite.
// j is a multiple of 4.
void slide(int j, const int count) {
  const int kWindow = (kLead + kFours * 4 + count + 2) / 4, at = int(gl_LocalInvocationID.x) * kFours + j / 4;
  ACC4 window[kFours + 9];
  [[unroll]] for (int i = 0; i < kWindow; ++i) window[i] = stretch[at + i];
  [[unroll]] for (int m = 0; m < kOuts; ++m) {
    ACC4 tap[8];
    [[unroll]] for (int i = 0; i < (count + 3) / 4; ++i) tap[i] = taps[(m * kTaps + j) / 4 + i];
    [[unroll]] for (int i = 0; i < count; ++i)
      [[unroll]] for (int f = 0; f < kFours; ++f) {
        const int e = kLead + f * 4 + i;
        sums[m * kFours + f] += ACC4(window[e / 4][e % 4], window[(e + 1) / 4][(e + 1) % 4], window[(e + 2) / 4][(e + 2) % 4],
                                     window[(e + 3) / 4][(e + 3) % 4]) * tap[i / 4][i % 4];
      }
  }
}

void write_four(uint64_t row, int q, ACC4 values) {
  if (kOutTogether && q + 4 <= p.outputs) {
    store4(row + bytes(q), values);
  } else {
    [[unroll]] for (int i = 0; i < 4; ++i)
      if (q + i < p.outputs) store(row + bytes((q + i) * p.shape.out_position), values[i]);
  }
}

// Output channel m of a tile, by way of shared memory: so neighbouring threads write neighbouring fours.
void write_tile(uint64_t row, int q, int m, ACC bias) {
  const int thread = int(gl_LocalInvocationID.x);
  barrier();  // what was in shared memory has been used
  [[unroll]] for (int f = 0; f < kFours; ++f) stretch[thread * kFours + f] = sums[m * kFours + f] + bias;
  barrier();
  [[unroll]] for (int i = 0; i < kFours; ++i) {
    const int four = i * kThreads + thread;
    write_four(row, q + four * 4, stretch[four]);
  }
}

void main() {
  Shape s = p.shape;
  const uint block = flat_group();
  if (block >= p.blocks) return;
  // All of these count rows at most: 32 bits.
  const uint out_blocks = (uint(s.outs) + kOuts - 1) / kOuts, row = block / p.tiles, batch_group = row / out_blocks;
  const int64_t m0 = (row - batch_group * out_blocks) * kOuts;
  const int64_t n = batch_group / uint(s.groups), group = batch_group - uint(n) * uint(s.groups);
  const int q0 = int(block - row * p.tiles) * (kPositions * kTiles), outs = int(min(s.outs - m0, kOuts));
  const uint64_t x = p.x + bytes(n * s.in_batch + group * s.in_group), w = p.w + bytes(group * s.w_group + m0 * s.w_out);
  const uint64_t y = p.y + bytes(n * s.out_batch + group * s.out_group + m0 * s.out_channel);
  const int all = int(p.taps), channels = int(s.ins), end = min(q0 + kPositions * kTiles, int(p.outputs));
  const bool once = channels == 1 && all <= kTaps;  // the taps stay
  // Of the tile, the channel and the taps that come next the stretch is on its way while these are computed.
  int channel = 0, first = 0, count = min(all, kTaps), q = q0;
  [[unroll]] for (int i = 0; i < kOuts * kFours; ++i) sums[i] = ACC4(0);
  fetch_stretch(x, q + int(p.origin), count);
  while (q < end) {
    const int now = q, start = now + int(p.origin) + first, many = count;
    barrier();  // what was in shared memory has been used
    if (!once || q == q0) put_taps(w + bytes(channel * s.w_in), first, count, outs);
    put_stretch(start, count);
    barrier();
    first += kTaps;
    if (first >= all) {
      first = 0;
      if (++channel == channels) channel = 0, q += kPositions;
    }
    count = min(all - first, kTaps);
    fetch_stretch(x + bytes(channel * s.in_channel), q < end ? q + int(p.origin) + first : kNowhere, count);
    int j = 0;
    for (; j + 32 <= many; j += 32) slide(j, 32);
    if (j + 16 <= many) slide(j, 16), j += 16;
    if (j + 8 <= many) slide(j, 8), j += 8;
    if (j + 4 <= many) slide(j, 4), j += 4;
    if (kRest != 0 && j < many) slide(j, kRest);
    if (q == now) continue;
    [[unroll]] for (int m = 0; m < kOuts; ++m)
      if (m < outs) write_tile(y + bytes(m * s.out_channel), now, m, bias_of(group, m0 + m));
    [[unroll]] for (int i = 0; i < kOuts * kFours; ++i) sums[i] = ACC4(0);
  }
}
