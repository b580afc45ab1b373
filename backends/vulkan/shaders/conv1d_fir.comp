// conv1d_fir.comp -- a correlation whose taps and outputs lie side by side (step and tap step are 1), for few channels to a group:
// signal filters and depthwise ones. A work group brings a stretch of x and some taps into shared memory; a thread slides windows
// over it in registers. Elements are aligned.
#version 460
#define ALIGNED
#include "common.glsl"
#include "gemm_elements.glsl"
#include "conv1d_correlation.glsl"

layout(constant_id = 1) const int kOuts = 1;             // output channels of a work group
layout(constant_id = 2) const bool kInTogether = false;  // rows of x start where load4() may read, and are contiguous
layout(constant_id = 3) const bool kOutTogether = false;  // likewise rows of y, for store4()
layout(constant_id = 4) const int kRuns = 1;   // of a thread, a work group apart
layout(constant_id = 5) const int kFours = 3;  // fours of positions of a run: an odd number meets every bank of shared memory
layout(constant_id = 6) const int kLead = 0;   // elements of the stretch before the first that is used; kInTogether: up to an aligned four
layout(constant_id = 7) const int kRest = 0;   // taps beyond whole fours
const int kThreads = 128, kPositions = kThreads * kRuns * kFours * 4, kTaps = 256;  // of a work group; at a time
const int kHeld = kRuns * kFours;  // fours of a stretch that a thread brings, and then one of those that the taps reach beyond

layout(local_size_x = 128) in;
shared ACC4 stretch[(kPositions + kTaps) / 4 + 1];
shared ACC4 taps[kOuts * kTaps / 4];
const int kMostFours = 5, kMostHeld = 5, kMostSums = 8;  // arrays of a length that is specialized might stay in memory
ACC4 sums[kMostSums], held[kMostHeld + 1];

// Four positions of a row of x.
ACC4 fetch_four(uint64_t row, int position, int extent) {
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
  [[unroll]] for (int i = 0; i <= kHeld; ++i) {
    const int four = i * kThreads + thread;
    if (i < kHeld || four < fours) held[i] = fetch_four(row, first - kLead + four * 4, extent);
  }
}
void put_stretch(int count) {
  const int fours = (kPositions + count + 2 + kLead) / 4, thread = int(gl_LocalInvocationID.x);
  [[unroll]] for (int i = 0; i <= kHeld; ++i)
    if (i < kHeld || i * kThreads + thread < fours) stretch[i * kThreads + thread] = held[i];
}

void put_taps(uint64_t w, int first, int count, int outs) {
  for (int i = int(gl_LocalInvocationID.x); i < count; i += kThreads)
    [[unroll]] for (int m = 0; m < kOuts; ++m)
      if (m < outs) taps[(m * kTaps + i) / 4][i % 4] = load(w + bytes(m * p.shape.w_out + (first + i) * p.shape.w_tap));
}

// `count` <= 16 of the taps j, j + 1, ..., known when it is compiled: no more, because what lies beside a window may be infinite.
// j is a multiple of 4.
void slide(int j, const int count) {
  const int kWindow = (kLead + kFours * 4 + count + 2) / 4;
  [[unroll]] for (int r = 0; r < kRuns; ++r) {
    ACC4 window[kMostFours + 5];
    const int at = (r * kThreads + int(gl_LocalInvocationID.x)) * kFours + j / 4;
    [[unroll]] for (int i = 0; i < kWindow; ++i) window[i] = stretch[at + i];
    [[unroll]] for (int m = 0; m < kOuts; ++m) {
      ACC4 tap[4];
      [[unroll]] for (int i = 0; i < (count + 3) / 4; ++i) tap[i] = taps[(m * kTaps + j) / 4 + i];
      [[unroll]] for (int i = 0; i < count; ++i)
        [[unroll]] for (int f = 0; f < kFours; ++f) {
          const int e = kLead + f * 4 + i, sum = (m * kRuns + r) * kFours + f;
          sums[sum] += ACC4(window[e / 4][e % 4], window[(e + 1) / 4][(e + 1) % 4], window[(e + 2) / 4][(e + 2) % 4],
                            window[(e + 3) / 4][(e + 3) % 4]) * tap[i / 4][i % 4];
        }
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

// A run of output channel m, counted from the work group's first.
void write_run(uint64_t row, int q, int m, int r, ACC bias) {
  const int first = (m * kRuns + r) * kFours;
  [[unroll]] for (int f = 0; f < kFours; ++f) write_four(row, q + f * 4, sums[first + f] + bias);
}

void main() {
  Shape s = p.shape;
  const uint block = flat_group();
  if (block >= p.blocks) return;
  // All of these count rows at most: 32 bits.
  const uint out_blocks = (uint(s.outs) + kOuts - 1) / kOuts, row = block / p.tiles, batch_group = row / out_blocks;
  const int64_t m0 = (row - batch_group * out_blocks) * kOuts;
  const int64_t n = batch_group / uint(s.groups), group = batch_group - uint(n) * uint(s.groups);
  const int q0 = int(block - row * p.tiles) * kPositions, outs = int(min(s.outs - m0, kOuts));
  const uint64_t x = p.x + bytes(n * s.in_batch + group * s.in_group), w = p.w + bytes(group * s.w_group + m0 * s.w_out);
  const int all = int(p.taps), channels = int(s.ins);
  [[unroll]] for (int i = 0; i < kOuts * kRuns * kFours; ++i) sums[i] = ACC4(0);
  for (int channel = 0; channel < channels; ++channel)
    for (int first = 0; first < all; first += kTaps) {
      const int count = min(all - first, kTaps);
      fetch_stretch(x + bytes(channel * s.in_channel), q0 + int(p.origin) + first, count);
      barrier();  // the taps before have been used
      put_taps(w + bytes(channel * s.w_in), first, count, outs);
      put_stretch(count);
      barrier();
      int j = 0;
      for (; j + 16 <= count; j += 16) slide(j, 16);
      for (; j + 4 <= count; j += 4) slide(j, 4);
      if (kRest != 0 && j < count) slide(j, kRest);
    }
  [[unroll]] for (int m = 0; m < kOuts; ++m) {
    if (m >= outs) continue;
    const ACC bias = bias_of(group, m0 + m);
    const uint64_t y = p.y + bytes(n * s.out_batch + group * s.out_group + (m0 + m) * s.out_channel);
    [[unroll]] for (int r = 0; r < kRuns; ++r)
      write_run(y, q0 + (r * kThreads + int(gl_LocalInvocationID.x)) * (kFours * 4), m, r, bias);
  }
}
