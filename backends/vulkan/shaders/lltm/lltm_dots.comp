// SPDX-License-Identifier: Apache-2.0
// lltm_dots.comp -- lltm of few cells, where the time goes by in waiting: 32 threads share the dot products of a few batches and
// states, each with every 32nd four of their elements, so that all of the device reads at once. The thread that updates a cell gets the
// sums of its three gates through shared memory. Elements are aligned.
#version 460
#define ALIGNED
#include "common.glsl"
#include "gemm/gemm_elements.glsl"
#include "lltm_forward.glsl"

layout(constant_id = 1) const bool kTogether = false;  // both operands are read four elements at a time
layout(constant_id = 2) const int kRows = 4;           // batches of a team
layout(constant_id = 3) const int kStates = 1;
const int kThreads = 128, kTeam = 32, kTeams = kThreads / kTeam;
const int kSums = kRows * kStates * 3;  // of a team

layout(local_size_x = 128) in;
shared ACC partial[kSums * kThreads];
shared ACC gates[kTeams * kSums];

// Four elements of a row of which `left` are there.
ACC4 load_four(uint64_t at, int64_t step, int left) {
  if (kTogether && left >= 4) return load4(at);
  ACC4 four = ACC4(0);
  [[unroll]] for (int i = 0; i < 4; ++i)
    if (i < left) four[i] = load(at + uint64_t(i * step * kSize));
  return four;
}

void main() {
  Shape shape = p.shape;
  const int thread = int(gl_LocalInvocationID.x), team = thread / kTeam, lane = thread % kTeam;
  const int batches = int(shape.batch), states = int(shape.state);
  // Past the last team, batch or state the last one is computed again.
  const int tiles = p.state_tiles * ((batches + kRows - 1) / kRows), tile = min(int(flat_group()) * kTeams + team, tiles - 1);
  const int row0 = tile / p.state_tiles * kRows, state0 = tile % p.state_tiles * kStates;
  ACC sums[kSums];
  [[unroll]] for (int i = 0; i < kSums; ++i) sums[i] = ACC(0);
  [[unroll]] for (int part = 0; part < 2; ++part) {  // the states, the features
    const int extent = int(part == 0 ? shape.state : shape.features);
    const int64_t row_stride = part == 0 ? shape.old_h.row : shape.inputs.row;
    const int64_t stride = part == 0 ? shape.old_h.column : shape.inputs.column;
    uint64_t left[kRows], right[kStates * 3];
    [[unroll]] for (int r = 0; r < kRows; ++r)
      left[r] = (part == 0 ? p.old_h : p.inputs) + uint64_t((min(row0 + r, batches - 1) * row_stride + 4 * lane * stride) * kSize);
    [[unroll]] for (int s = 0; s < kStates; ++s)
      [[unroll]] for (int gate = 0; gate < 3; ++gate)
        right[s * 3 + gate] = at(p.weights, shape.weights, gate * states + min(state0 + s, states - 1),
                                 (part == 0 ? 0 : states) + 4 * lane, kSize);
    const uint64_t left_step = uint64_t(4 * kTeam * stride * kSize);
    const uint64_t right_step = uint64_t(4 * kTeam * shape.weights.column * kSize);
    for (int k = 4 * lane; k < extent; k += 4 * kTeam) {
      ACC4 a[kRows], b[kStates * 3];
      [[unroll]] for (int r = 0; r < kRows; ++r) {
        a[r] = load_four(left[r], stride, extent - k);
        left[r] += left_step;
      }
      [[unroll]] for (int c = 0; c < kStates * 3; ++c) {
        b[c] = load_four(right[c], shape.weights.column, extent - k);
        right[c] += right_step;
      }
      [[unroll]] for (int c = 0; c < kStates * 3; ++c)
        [[unroll]] for (int r = 0; r < kRows; ++r)
          [[unroll]] for (int i = 0; i < 4; ++i) sums[r * kStates * 3 + c] += a[r][i] * b[c][i];
    }
  }
  [[unroll]] for (int i = 0; i < kSums; ++i) partial[i * kThreads + thread] = sums[i];
  barrier();
  // Each sum by a thread, which begins at a bank of its own.
  for (int i = thread; i < kTeams * kSums; i += kThreads) {
    const int first = i % kSums * kThreads + i / kSums * kTeam;
    ACC sum = ACC(0);
    [[unroll]] for (int j = 0; j < kTeam; ++j) sum += partial[first + (i + j) % kTeam];
    gates[i] = sum;
  }
  barrier();
  const int cell = thread % (kRows * kStates), of_team = thread / (kRows * kStates);
  if (of_team >= kTeams) return;
  const int my_tile = int(flat_group()) * kTeams + of_team;
  const int b = my_tile / p.state_tiles * kRows + cell / kStates, s = my_tile % p.state_tiles * kStates + cell % kStates;
  if (my_tile >= tiles || b >= batches || s >= states) return;
  const int mine = of_team * kSums + cell * 3;
  update_cell(b, s, ACC[3](gates[mine], gates[mine + 1], gates[mine + 2]));
}
