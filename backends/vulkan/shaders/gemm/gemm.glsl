// SPDX-License-Identifier: Apache-2.0
// gemm.glsl -- a work group's tile of a matrix product: sums[row, column] = sum over k of left(row, k) * right(column, k). conv1d,
// lltm and their gradients make their modules of it: they define what the operands are before they include it, and write the
// sums where they belong.
//
//   ACC4 left(int row, int k), right(int column, int k)   four elements, along k if kLeftAlongDepth (kRightAlongDepth), else along
//                                                         the rows (columns); 0 outside the operand
//
// Rows, columns and k are those of multiply()'s ranges, rounded up to tiles. Of a matrix unit: gemm_coopmat.glsl.

// Constants from 1 on; 0 is gemm_elements.glsl's. Threads: rows * columns, each of which has row groups x column groups blocks of
// 4 x 4 sums; a thread's blocks lie a tile's rows / row groups apart, so that neighbours read neighbouring 16 bytes.
layout(local_size_x_id = 1) in;
layout(constant_id = 2) const int kThreadRows = 16;
layout(constant_id = 3) const int kThreadColumns = 16;
layout(constant_id = 4) const int kRowGroups = 2;
layout(constant_id = 5) const int kColumnGroups = 2;
layout(constant_id = 6) const int kDepth = 16;  // k of a stage, between two barriers: a multiple of 8

const int kThreads = kThreadRows * kThreadColumns;
const int kTileRows = 4 * kThreadRows * kRowGroups, kTileColumns = 4 * kThreadColumns * kColumnGroups;
const int kLeftLoads = kTileRows * kDepth / 4 / kThreads, kRightLoads = kTileColumns * kDepth / 4 / kThreads;  // of a thread

// A stage of both operands, k by k, in fours. With one four more than the tile has, the stores of `put` touch every bank once.
const int kLeftPitch = kTileRows / 4 + 1, kRightPitch = kTileColumns / 4 + 1;
shared ACC4 left_stage[kDepth * kLeftPitch];
shared ACC4 right_stage[kDepth * kRightPitch];

ACC4 left_held[kLeftLoads], right_held[kRightLoads];  // the next stage on its way
ACC4 sums[4 * kRowGroups * kColumnGroups];            // of row i and column group g: [i * kColumnGroups + g]

// 32 neighbours form a rectangle of 8 x 4, which makes the fewest different addresses in their reads of both operands.
const int kLaneColumns = 4, kLaneRows = 8;
int thread_row() {
  const int thread = int(gl_LocalInvocationID.x), lane = thread % (kLaneRows * kLaneColumns);
  return thread / (kLaneRows * kLaneColumns) / (kThreadColumns / kLaneColumns) * kLaneRows + lane / kLaneColumns;
}
int thread_column() {
  const int thread = int(gl_LocalInvocationID.x), lane = thread % (kLaneRows * kLaneColumns);
  return thread / (kLaneRows * kLaneColumns) % (kThreadColumns / kLaneColumns) * kLaneColumns + lane % kLaneColumns;
}
// Where this thread's row i and column group g begin in the tile.
int row_of(int i) { return i / 4 * (4 * kThreadRows) + thread_row() * 4 + i % 4; }
int column_of(int g) { return (g * kThreadColumns + thread_column()) * 4; }

// Row and k of a thread's i-th load. Along the depth two neighbours share a row: their 32 bytes are one sector of memory.
ivec2 place(int i, int width, bool along_depth) {
  const int load = i * kThreads + int(gl_LocalInvocationID.x);
  if (along_depth) return ivec2(load / 2 % width, (load % 2 + load / (2 * width) * 2) * 4);
  return ivec2(load % (width / 4) * 4, load / (width / 4));
}

void fetch(int row0, int column0, int k0) {
  [[unroll]] for (int i = 0; i < kLeftLoads; ++i) {
    const ivec2 at = place(i, kTileRows, kLeftAlongDepth);
    left_held[i] = left(row0 + at.x, k0 + at.y);
  }
  [[unroll]] for (int i = 0; i < kRightLoads; ++i) {
    const ivec2 at = place(i, kTileColumns, kRightAlongDepth);
    right_held[i] = right(column0 + at.x, k0 + at.y);
  }
}

void put() {
  [[unroll]] for (int i = 0; i < kLeftLoads; ++i) {
    const ivec2 at = place(i, kTileRows, kLeftAlongDepth);
    if (kLeftAlongDepth) {
      [[unroll]] for (int j = 0; j < 4; ++j) left_stage[(at.y + j) * kLeftPitch + at.x / 4][at.x % 4] = left_held[i][j];
    } else {
      left_stage[at.y * kLeftPitch + at.x / 4] = left_held[i];
    }
  }
  [[unroll]] for (int i = 0; i < kRightLoads; ++i) {
    const ivec2 at = place(i, kTileColumns, kRightAlongDepth);
    if (kRightAlongDepth) {
      [[unroll]] for (int j = 0; j < 4; ++j) right_stage[(at.y + j) * kRightPitch + at.x / 4][at.x % 4] = right_held[i][j];
    } else {
      right_stage[at.y * kRightPitch + at.x / 4] = right_held[i];
    }
  }
}

void accumulate() {
  for (int k = 0; k < kDepth; ++k) {
    ACC4 a[kRowGroups], b[kColumnGroups];
    [[unroll]] for (int g = 0; g < kRowGroups; ++g) a[g] = left_stage[k * kLeftPitch + g * kThreadRows + thread_row()];
    [[unroll]] for (int g = 0; g < kColumnGroups; ++g) b[g] = right_stage[k * kRightPitch + g * kThreadColumns + thread_column()];
    [[unroll]] for (int i = 0; i < 4 * kRowGroups; ++i)
      [[unroll]] for (int g = 0; g < kColumnGroups; ++g) sums[i * kColumnGroups + g] += a[i / 4][i % 4] * b[g];
  }
}

// The sums of k in [k_begin, k_end), whose end is rounded up to a whole stage. All threads of the work group call it.
void multiply(int row0, int column0, int k_begin, int k_end) {
  [[unroll]] for (int i = 0; i < 4 * kRowGroups * kColumnGroups; ++i) sums[i] = ACC4(0);
  for (int k = k_begin - kDepth; k < k_end; k += kDepth) {  // the first time round there is nothing to add yet
    const bool more = k + kDepth < k_end;
    if (more) fetch(row0, column0, k + kDepth);
    if (k >= k_begin) accumulate();
    barrier();
    if (more) put();
    barrier();
  }
}
