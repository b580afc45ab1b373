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
layout(constant_id = 4) const int kRuns = 2;   // of a thread, a work group apart: short ones suit memory, long ones the products
layout(constant_id = 5) const int kFours = 1;  // fours of positions of a run
layout(constant_id = 6) const int kLead = 0;   // elements of the stretch before the first that is used; kInTogether: up to an aligned four
layout(constant_id = 7) const int kRest = 0;   // taps beyond whole fours
const int kThreads = 128, kPositions = kThreads * kRuns * kFours * 4, kTaps = 256;  // of a work group; at a time
const int kStretch = (kPositions + kTaps) / 4 + 1;

layout(local_size_x = 128) in;
shared ACC4 stretch[kStretch + kStretch / 8];
shared ACC4 taps[kOuts * kTaps / 4];
const int kMostFours = 4, kMostSums = 8;  // arrays of a length that is specialized might stay in memory
ACC4 sums[kMostSums];

// Where a four of the stretch lies: neighbouring threads' runs begin in different banks.
int place(int four) { return kFours == 1 ? four : four + four / 8; }

// Positions of a row of x, kLead before `first` and as many as are needed for `count` taps behind it.
void fetch_stretch(uint64_t row, int first, int count) {
  const int fours = (kPositions + count + 2 + kLead) / 4, extent = int(p.shape.extent);
  for (int four = int(gl_LocalInvocationID.x); four < fours; four += kThreads) {
    const int position = first - kLead + four * 4;
    ACC4 values = ACC4(0);
    if (kInTogether && position >= 0 && position + 4 <= extent) {
      values = load4(row + bytes(position));
    } else {
      const uint64_t step = bytes(p.shape.in_position), at = row + uint64_t(int64_t(position)) * step;
      [[unroll]] for (int i = 0; i < 4; ++i)
        if (uint(position + i) < uint(extent)) values[i] = load(at + i * step);
    }
    stretch[place(four)] = values;
  }
}

void fetch_taps(uint64_t w, int first, int count, int outs) {
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
    [[unroll]] for (int i = 0; i < kWindow; ++i) window[i] = stretch[place(at + i)];
    [[unroll]] for (int m = 0; m < kOuts; ++m)
      [[unroll]] for (int i = 0; i < count; ++i) {
        const ACC tap = taps[(m * kTaps + j) / 4 + i / 4][i % 4];
        [[unroll]] for (int f = 0; f < kFours; ++f) {
          const int e = kLead + f * 4 + i;
          sums[(m * kRuns + r) * kFours + f] += ACC4(window[e / 4][e % 4], window[(e + 1) / 4][(e + 1) % 4],
                                                     window[(e + 2) / 4][(e + 2) % 4], window[(e + 3) / 4][(e + 3) % 4]) *
                                                tap;
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
#ifdef TWO_BYTES
  if (kOutTogether && kFours % 2 == 0 && q + kFours * 4 <= p.outputs && (row & 15) == 0) {
    [[unroll]] for (int f = 0; f < kFours; f += 2) store8(row + bytes(q + f * 4), sums[first + f] + bias, sums[first + f + 1] + bias);
    return;
  }
#endif
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
      barrier();  // the taps before have been used
      fetch_stretch(x + bytes(channel * s.in_channel), q0 + int(p.origin) + first, count);
      fetch_taps(w + bytes(channel * s.w_in), first, count, outs);
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
