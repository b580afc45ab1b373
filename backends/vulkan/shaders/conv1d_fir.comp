// conv1d_fir.comp -- a correlation whose taps and outputs lie side by side (step and tap step are 1), for few channels to a group:
// signal filters and depthwise ones. A work group brings a stretch of x and some taps into shared memory; a thread slides a window
// over it in registers: 16 products for every four elements that it reads. Elements are aligned.
#version 460
#define ALIGNED
#include "common.glsl"
#include "gemm_elements.glsl"
#include "conv1d_correlation.glsl"

layout(constant_id = 1) const int kOuts = 1;             // output channels of a work group
layout(constant_id = 2) const bool kInTogether = false;  // rows of x start where load4() may read, and are contiguous
layout(constant_id = 3) const bool kOutTogether = false;  // likewise rows of y, for store4()
const int kThreads = 128, kFours = 2;                    // fours of positions of a thread
const int kPositions = kThreads * kFours * 4, kTaps = 256;  // of a work group; at a time

layout(local_size_x = 128) in;
shared ACC4 stretch[(kPositions + kTaps) / 4 + 1];
shared ACC4 taps[kOuts * kTaps / 4];
ACC4 sums[kOuts * kFours];

// Positions from `first` on of a row of x, as many as are needed for `count` taps.
void fetch_stretch(uint64_t row, int first, int count) {
  const int shift = kInTogether ? first & 3 : 0, fours = (kPositions + count + 3 + shift) / 4, extent = int(p.shape.extent);
  for (int four = int(gl_LocalInvocationID.x); four < fours; four += kThreads) {
    const int position = first - shift + four * 4, e = four * 4 - shift;
    ACC4 values = ACC4(0);
    if (kInTogether && position >= 0 && position + 4 <= extent) {
      values = load4(row + bytes(position));
    } else {
      [[unroll]] for (int i = 0; i < 4; ++i)
        if (is_inside(position + i)) values[i] = load(row + bytes((position + i) * p.shape.in_position));
    }
    if (shift == 0) {
      stretch[e / 4] = values;
    } else {
      [[unroll]] for (int i = 0; i < 4; ++i)
        if (e + i >= 0) stretch[(e + i) / 4][(e + i) % 4] = values[i];
    }
  }
}

void fetch_taps(uint64_t w, int first, int count, int outs) {
  for (int i = int(gl_LocalInvocationID.x); i < kOuts * count; i += kThreads) {
    const int m = i / count, j = i % count;
    if (m < outs) taps[(m * kTaps + j) / 4][j % 4] = load(w + bytes(m * p.shape.w_out + (first + j) * p.shape.w_tap));
  }
}

// `count` of the taps j, j + 1, ...: no more, because what lies beside a window may be infinite.
void slide(int j, int count) {
  ACC4 low[kFours], high[kFours];
  [[unroll]] for (int f = 0; f < kFours; ++f) {
    const int at = f * kThreads + int(gl_LocalInvocationID.x) + j / 4;
    low[f] = stretch[at];
    high[f] = stretch[at + 1];
  }
  [[unroll]] for (int m = 0; m < kOuts; ++m) {
    const ACC4 t = taps[(m * kTaps + j) / 4];
    [[unroll]] for (int f = 0; f < kFours; ++f) {
      ACC4 sum = sums[m * kFours + f] + low[f] * t.x;
      if (count > 1) sum += ACC4(low[f].yzw, high[f].x) * t.y;
      if (count > 2) sum += ACC4(low[f].zw, high[f].xy) * t.z;
      if (count > 3) sum += ACC4(low[f].w, high[f].xyz) * t.w;
      sums[m * kFours + f] = sum;
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

void main() {
  Shape s = p.shape;
  const uint block = flat_group();
  if (block >= p.blocks) return;
  const int64_t out_blocks = (s.outs + kOuts - 1) / kOuts, row = block / p.tiles;
  const int64_t m0 = row % out_blocks * kOuts, group = row / out_blocks % s.groups, n = row / out_blocks / s.groups;
  const int q0 = int(block % p.tiles) * kPositions, outs = int(min(s.outs - m0, kOuts));
  const uint64_t x = p.x + bytes(n * s.in_batch + group * s.in_group), w = p.w + bytes(group * s.w_group + m0 * s.w_out);
  [[unroll]] for (int i = 0; i < kOuts * kFours; ++i) sums[i] = ACC4(0);
  for (int channel = 0; channel < s.ins; ++channel)
    for (int first = 0; first < p.taps; first += kTaps) {
      const int count = min(int(p.taps) - first, kTaps);
      barrier();  // the taps before have been used
      fetch_stretch(x + bytes(channel * s.in_channel), q0 + int(p.origin) + first, count);
      fetch_taps(w + bytes(channel * s.w_in), first, count, outs);
      barrier();
      for (int j = 0; j + 4 <= count; j += 4) slide(j, 4);
      if ((count & 3) != 0) slide(count & ~3, count & 3);
    }
  [[unroll]] for (int m = 0; m < kOuts; ++m) {
    if (m >= outs) continue;
    const ACC bias = bias_of(group, m0 + m);
    const uint64_t y = p.y + bytes(n * s.out_batch + group * s.out_group + (m0 + m) * s.out_channel);
    [[unroll]] for (int f = 0; f < kFours; ++f)
      write_four(y, q0 + (f * kThreads + int(gl_LocalInvocationID.x)) * 4, sums[m * kFours + f] + bias);
  }
}
