// SPDX-License-Identifier: Apache-2.0
// conv1d_dots.comp -- a correlation with few outputs to a filter, as dot products: a work group makes all outputs of some filters. Its
// threads stride over the products of an output, (channel, tap), so that each weight is read once, and those of neighbours lie side
// by side. The sums of the threads are then added in a fixed order, through shared memory. Any strides; elements are aligned.
#version 460
#define ALIGNED
#include "common.glsl"
#include "gemm/gemm_elements.glsl"
#include "conv1d_correlation.glsl"
#include "conv1d_divide.glsl"

layout(constant_id = 1) const int kRows = 1;  // filters of a work group; a power of two, as kColumns
layout(constant_id = 2) const int kColumns = 1;
const int kThreads = 128, kSums = kRows * kColumns;
// Sums that shared memory has room for at once, in 16 KiB; threads that share in adding one of them, and what each adds first.
const int kMostAtOnce = 128 / kAccSize, kAtOnce = kSums < kMostAtOnce ? kSums : kMostAtOnce;
const int kParts = kThreads / kAtOnce, kPart = kThreads / kParts;

layout(local_size_x = 128) in;
shared ACC partial[kAtOnce * kThreads];

void main() {
  Shape s = p.shape;
  const uint block = flat_group();
  if (block >= p.blocks) return;
  const int thread = int(gl_LocalInvocationID.x);
  const int64_t group = block / p.tiles, row0 = int64_t(block % p.tiles) * kRows;
  const uint64_t x = p.x + bytes(group * s.in_group);
  uint64_t w[kRows];  // past the last filter the last one is read again
  [[unroll]] for (int r = 0; r < kRows; ++r) w[r] = p.w + bytes(group * s.w_group + min(row0 + r, s.outs - 1) * s.w_out);
  int64_t start[kColumns];  // what tap 0 reads
  uint64_t from[kColumns];
  [[unroll]] for (int j = 0; j < kColumns; ++j) {
    const int n = divide(j, p.outputs_multiplier, p.outputs_shift), q = j - n * int(p.outputs);
    start[j] = q * s.step + p.origin;
    from[j] = x + bytes(n * s.in_batch + start[j] * s.in_position);
  }
  ACC sums[kSums];
  [[unroll]] for (int i = 0; i < kSums; ++i) sums[i] = ACC(0);
  // Read once: in the loop each would be read again, since nothing says that no store changes them.
  const int64_t tap_step = s.tap_step;
  const uint64_t extent = uint64_t(s.extent), x_channel = bytes(s.in_channel), x_tap = bytes(s.tap_step * s.in_position),
                 w_channel = bytes(s.w_in), w_tap = bytes(s.w_tap);
  for (int k = thread; k < p.depth; k += kThreads) {
    const int channel = divide(k, p.taps_multiplier, p.taps_shift), tap = k - channel * int(p.taps);
    const uint64_t weight = channel * w_channel + tap * w_tap, shift = channel * x_channel + tap * x_tap;
    const int64_t reach = tap * tap_step;
    ACC factors[kRows];
    [[unroll]] for (int r = 0; r < kRows; ++r) factors[r] = load(w[r] + weight);
    ACC values[kColumns];
    [[unroll]] for (int j = 0; j < kColumns; ++j) {
      values[j] = ACC(0);
      if (j < p.columns && uint64_t(start[j] + reach) < extent) values[j] = load(from[j] + shift);
    }
    [[unroll]] for (int j = 0; j < kColumns; ++j)
      [[unroll]] for (int r = 0; r < kRows; ++r) sums[r * kColumns + j] += factors[r] * values[j];
  }

  [[unroll]] for (int first = 0; first < kSums; first += kAtOnce) {
    if (first > 0) barrier();
    [[unroll]] for (int i = 0; i < kAtOnce; ++i) partial[i * kThreads + thread] = sums[first + i];
    barrier();
    // Each part of a sum by a thread, which begins at a bank of its own.
    const int sum = thread % kAtOnce, part = thread / kAtOnce;
    ACC mine = ACC(0);
    for (int i = 0; i < kPart; ++i) mine += partial[sum * kThreads + part * kPart + (i + thread) % kPart];
    barrier();
    partial[sum * kParts + part] = mine;
    barrier();
    if (thread >= kAtOnce) continue;
    ACC total = ACC(0);
    for (int i = 0; i < kParts; ++i) total += partial[thread * kParts + i];
    const int column = (first + thread) % kColumns;
    const int64_t m = row0 + (first + thread) / kColumns;
    const int n = divide(column, p.outputs_multiplier, p.outputs_shift), q = column - n * int(p.outputs);
    if (m < s.outs && column < p.columns)
      store(p.y + bytes(n * s.out_batch + group * s.out_group + m * s.out_channel + q * s.out_position), total + bias_of(group, m));
  }
}
