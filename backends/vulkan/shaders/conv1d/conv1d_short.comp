// SPDX-License-Identifier: Apache-2.0
// conv1d_short.comp -- a correlation of few taps over one channel, with one output channel to it: short signal filters and depthwise ones,
// where memory is what limits. A thread has a run of outputs, and keeps in registers what they need of x; what its neighbour needs too
// comes from the cache. Rows of x and y are contiguous, start where the widest load may read, and lie equally far apart.
#version 460
#define ALIGNED
#include "common.glsl"
#include "gemm/gemm_elements.glsl"

#ifdef TWO_BYTES
const int kRun = 8;  // outputs side by side, and elements of a load
#else
const int kRun = 4;
#endif
layout(local_size_x_id = 1) in;
layout(constant_id = 2) const int kTaps = 4;        // at most 8
layout(constant_id = 3) const int kLead = 0;        // elements of the first load before the first that is used: below kRun
layout(constant_id = 4) const int kRuns = 1;        // runs of a thread, a work group apart
layout(constant_id = 5) const bool kRagged = true;  // rows of x may end within a load
const int kLoads = (kLead + kRun + kTaps - 1 + kRun - 1) / kRun;  // of a run
const int kMostTaps = 8, kMostLoads = 4, kMostRuns = 4;  // arrays of a length that is specialized might stay in memory

layout(push_constant) uniform Push {
  uint64_t x, w, bias, y;               // bias: 0 if there is none
  int64_t x_row, y_row;                 // bytes from one row to the next
  int64_t w_row, w_tap, bias_step;
  int extent, outputs, origin;          // of a row
  uint tiles, blocks, filters;          // of a row of outputs; of all rows; rows of w
} p;

// kRun elements, as words.
#ifdef DTYPE_F64
#define WORDS dvec4
WORDS load_words(uint64_t at) { return load4(at); }
ACC element(WORDS words, int i) { return words[i]; }
WORDS with(WORDS words, int i, uint64_t at) {
  words[i] = load(at);
  return words;
}
#else
#define WORDS uvec4
WORDS load_words(uint64_t at) { return FourWords(at).v; }
#ifdef TWO_BYTES
ACC element(WORDS words, int i) { return widened(i % 2 == 0 ? words[i / 2] & 0xffffu : words[i / 2] >> 16); }
WORDS with(WORDS words, int i, uint64_t at) {
  words[i / 2] |= bits_16(at) << (i % 2 * 16);
  return words;
}
#else
ACC element(WORDS words, int i) { return uintBitsToFloat(words[i]); }
WORDS with(WORDS words, int i, uint64_t at) {
  words[i] = bits_32(at);
  return words;
}
#endif
#endif

// Positions of a row of x from a multiple of kRun on: zeros where there are none.
WORDS fetch(uint64_t row, int position) {
  WORDS words = WORDS(0);
  const uint64_t at = row + uint64_t(int64_t(position) * kSize);
  if (position >= 0 && position + (kRagged ? kRun : 1) <= p.extent) {
    words = load_words(at);
  } else if (kRagged && position >= 0) {
    [[unroll]] for (int i = 0; i < kRun; ++i)
      if (position + i < p.extent) words = with(words, i, at + i * kSize);
  }
  return words;
}

void put(uint64_t row, int q, ACC sums[kRun]) {
  const uint64_t at = row + uint64_t(int64_t(q) * kSize);
  if (q + kRun <= p.outputs) {
    const ACC4 first = ACC4(sums[0], sums[1], sums[2], sums[3]);
#ifdef TWO_BYTES
    store8(at, first, ACC4(sums[4], sums[5], sums[6], sums[7]));
#else
    store4(at, first);
#endif
  } else {
    [[unroll]] for (int i = 0; i < kRun; ++i)
      if (q + i < p.outputs) store(at + i * kSize, sums[i]);
  }
}

void main() {
  const uint block = flat_group();
  if (block >= p.blocks) return;
  const uint row = block / p.tiles, of_w = p.filters == 1 ? 0 : row % p.filters;
  const int width = int(gl_WorkGroupSize.x) * kRun;
  const int q0 = int(block - row * p.tiles) * (width * kRuns) + int(gl_LocalInvocationID.x) * kRun;
  const uint64_t x = p.x + uint64_t(row * p.x_row), y = p.y + uint64_t(row * p.y_row), w = p.w + uint64_t(of_w * p.w_row);
  WORDS words[kMostRuns][kMostLoads];
  [[unroll]] for (int r = 0; r < kRuns; ++r)
    [[unroll]] for (int i = 0; i < kLoads; ++i) words[r][i] = fetch(x, q0 + r * width + p.origin - kLead + i * kRun);
  ACC taps[kMostTaps];
  [[unroll]] for (int j = 0; j < kTaps; ++j) taps[j] = load(w + uint64_t(j * p.w_tap));
  const ACC bias = p.bias == 0 ? ACC(0) : load(p.bias + uint64_t(of_w * p.bias_step));
  [[unroll]] for (int r = 0; r < kRuns; ++r) {
    ACC sums[kRun];
    [[unroll]] for (int i = 0; i < kRun; ++i) {
      sums[i] = ACC(0);
      [[unroll]] for (int j = 0; j < kTaps; ++j) {
        const int e = kLead + i + j;
        sums[i] += element(words[r][e / kRun], e % kRun) * taps[j];
      }
      sums[i] += bias;
    }
    put(y, q0 + r * width, sums);
  }
}
