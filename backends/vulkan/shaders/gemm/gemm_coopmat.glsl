// SPDX-License-Identifier: Apache-2.0
// gemm_coopmat.glsl -- what gemm.glsl does, by the device's matrix unit: a work group's tile of a product of matrices of f16, or of
// bf16, with sums in f32. Modules define what the operands are before they include it:
//
//   uvec4 left(int i, int row, int stage, int k)   the bits of eight neighbours, 0 outside; the thread's i-th load of a stage, whose row
//                                                  and k are the same in all stages
//   uvec4 left_eight(int i)                        LEFT_ARRIVES: what becomes of them when they have arrived
//   void right(int i, int column, int block, int k)   the same of the right operand, of kBlock columns if they lie along k, into
//                                                  right_held[i * kBlock + 0 ...] in any order
//   uvec4 right_eight(int i, int b)                eight elements of column b of these: called when they have arrived
//   int shift(int block, int turn)   TURNS: how many of the right operand's columns that turn leaves out at first, at most kMostShift
//   void write_eight(int row, int column, vec4 four, vec4 next)   WRITES_EIGHTS: where eight sums of a row belong; write_sums() calls it
//   kLeftAcross    ACROSS: eight neighbours of the right operand are elements of eight columns, and of the left one of eight rows if this is
//                  true, in place of elements along k
//   void start()   TURNS: what the sums begin with; all threads call it, and may use stage_memory
//
// A stage is kDepth products of every sum; k counts within it. A block is what the right operand has for as many stages, its turns, each of
// which may shift it: the taps of a filter. TURNS: there may be more than one; kTurnsAtOnce: as many of them lie in shared memory
// together, all or one. Loads are under way while the stage before is multiplied; where threads part ways about them, they are waited for
// where the ways meet. Rows and columns are those of multiply()'s tile; kRightAlongDepth: neighbouring threads share the right operand's
// columns. kAtLeast: what stage_memory has to hold for the module's own use.
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#ifdef DTYPE_BF16
#extension GL_EXT_bfloat16 : require
#define MATRIX_ELEMENT bfloat16_t
#else
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#define MATRIX_ELEMENT float16_t
#endif

// Constants from 1 on; 0 is gemm_elements.glsl's, modules' own follow. Subgroups: rows x columns of them, each with row x column matrices of sums.
layout(local_size_x_id = 1) in;
layout(constant_id = 2) const int kSubgroupThreads = 32;
layout(constant_id = 3) const int kM = 16;  // the unit's: m x k times k x n
layout(constant_id = 4) const int kN = 16;
layout(constant_id = 5) const int kK = 16;
layout(constant_id = 6) const int kSubgroupRows = 2;
layout(constant_id = 7) const int kSubgroupColumns = 4;
layout(constant_id = 8) const int kRowMatrices = 4;
layout(constant_id = 9) const int kColumnMatrices = 4;
layout(constant_id = 10) const int kMostShift = 0;
layout(constant_id = 11) const int kDepth = 32;
#ifdef TURNS
layout(constant_id = 12) const int kTurnsAtOnce = 1;
#else
const int kTurnsAtOnce = 1;
#endif

const int kSubgroups = kSubgroupRows * kSubgroupColumns, kThreads = kSubgroups * kSubgroupThreads;
const int kTileRows = kSubgroupRows * kRowMatrices * kM, kTileColumns = kSubgroupColumns * kColumnMatrices * kN;
const int kEights = kDepth / 8;  // of a row of a stage
const int kLeftLoads = kTileRows * kEights / kThreads;  // of a thread: whole
#ifdef ACROSS
const bool kRightAcross = true;
const int kBlock = 8;
#else
const bool kLeftAcross = false, kRightAcross = false;
#endif
const int kRightColumns = kTileColumns + kMostShift, kRightBlocks = kRightColumns / kBlock;
const int kRightLoads = (kRightBlocks * (kRightAcross ? kDepth : kEights) + kThreads - 1) / kThreads;

// A stage of both operands, row by row and column by column, in eights; k by k where these lie across. With one more than is used,
// neighbours lie in other banks. Later the sums, on their way from the matrix unit to the threads: a patch for each subgroup, of kSlots
// matrices side by side, padded too unless there are more than eight subgroups, whose patches would not fit.
// MatrixTile::shared_memory(), across shared_memory_across(), counts all that.
const int kLeftPitch = (kLeftAcross ? kTileRows / 8 : kEights) + 1, kLeftSize = (kLeftAcross ? kDepth : kTileRows) * kLeftPitch;
const int kRightPitch = (kRightAcross ? kRightColumns / 8 : kEights) + 1;
const int kRightSize = (kRightAcross ? kDepth : kRightColumns) * kRightPitch, kRightBegin = kTurnsAtOnce * kLeftSize;
const int kPatchPitch = kSlots * kN / 4 + (kSubgroups > 8 ? 0 : 2), kPatch = kM * kPatchPitch;
const int kStageSize = kRightBegin + kRightSize, kPatchesSize = kSubgroups * kPatch;
const int kGemmSize = kStageSize > kPatchesSize ? kStageSize : kPatchesSize;
shared uvec4 stage_memory[kGemmSize > kAtLeast ? kGemmSize : kAtLeast];

uvec4 left_held[kTurnsAtOnce * kLeftLoads], right_held[kRightLoads * (kRightAcross ? 1 : kBlock)];  // the next stage on its way
coopmat<float, gl_ScopeSubgroup, kM, kN, gl_MatrixUseAccumulator> sums[kRowMatrices * kColumnMatrices];

// Where this subgroup's rows and columns begin in the tile.
int subgroup_row() { return int(gl_SubgroupID) / kSubgroupColumns * kRowMatrices * kM; }
int subgroup_column() { return int(gl_SubgroupID) % kSubgroupColumns * kColumnMatrices * kN; }

// Row, and which eight of it, of a thread's i-th load. Along the depth neighbours share a row, else an eight.
ivec2 place(int i, int rows, bool along_depth) {
  const int load = i * kThreads + int(gl_LocalInvocationID.x);
  return along_depth ? ivec2(load / kEights, load % kEights) : ivec2(load % rows, load / rows);
}
#ifndef LEFT_ARRIVES
#define left_eight(i) left_held[i]
#endif
#ifdef ACROSS
// Which eight rows, and k, of a load across: neighbours share a k.
ivec2 place_across(int i, int eights) {
  const int load = i * kThreads + int(gl_LocalInvocationID.x);
  return ivec2(load % eights, load / eights);
}
void fetch_left(int stage) {
  [[unroll]] for (int i = 0; i < kLeftLoads; ++i) {
    const ivec2 at = kLeftAcross ? place_across(i, kTileRows / 8) * ivec2(8, 1) : place(i, kTileRows, true) * ivec2(1, 8);
    left_held[i] = left(i, at.x, stage, at.y);
  }
}
void fetch_right(int stage) {
  [[unroll]] for (int i = 0; i < kRightLoads; ++i) {
    const ivec2 at = place_across(i, kRightBlocks);
    if (at.y < kDepth) right(i, at.x * 8, stage, at.y);
  }
}
void put_left() {
  [[unroll]] for (int i = 0; i < kLeftLoads; ++i) {
    const ivec2 at = kLeftAcross ? place_across(i, kTileRows / 8).yx : place(i, kTileRows, true);
    stage_memory[at.x * kLeftPitch + at.y] = left_eight(i);
  }
}
void put_right() {
  [[unroll]] for (int i = 0; i < kRightLoads; ++i) {
    const ivec2 at = place_across(i, kRightBlocks);
    if (at.y < kDepth) stage_memory[kRightBegin + at.y * kRightPitch + at.x] = right_eight(i, 0);
  }
}
#else
// Of as many stages as lie in shared memory together.
void fetch_left(int stage) {
  [[unroll]] for (int t = 0; t < kTurnsAtOnce; ++t)
    [[unroll]] for (int i = 0; i < kLeftLoads; ++i) {
      const ivec2 at = place(i, kTileRows, true);
      left_held[t * kLeftLoads + i] = left(i, at.x, stage + t, at.y * 8);
    }
}
void fetch_right(int block) {
  [[unroll]] for (int i = 0; i < kRightLoads; ++i) {
    const ivec2 at = place(i, kRightBlocks, kRightAlongDepth);
    if (at.x < kRightBlocks && at.y < kEights) right(i, at.x * kBlock, block, at.y * 8);
  }
}
void put_left() {
  [[unroll]] for (int t = 0; t < kTurnsAtOnce; ++t)
    [[unroll]] for (int i = 0; i < kLeftLoads; ++i) {
      const ivec2 at = place(i, kTileRows, true);
      stage_memory[t * kLeftSize + at.x * kLeftPitch + at.y] = left_eight(t * kLeftLoads + i);
    }
}
void put_right() {
  [[unroll]] for (int i = 0; i < kRightLoads; ++i) {
    const ivec2 at = place(i, kRightBlocks, kRightAlongDepth);
    if (at.x < kRightBlocks && at.y < kEights)
      [[unroll]] for (int b = 0; b < kBlock; ++b)
        stage_memory[kRightBegin + (at.x * kBlock + b) * kRightPitch + at.y] = right_eight(i, b);
  }
}
#endif

// Matrices of a stage: of rows, from step k of the depth on, and of columns.
#define MATRIX_A coopmat<MATRIX_ELEMENT, gl_ScopeSubgroup, kM, kK, gl_MatrixUseA>
#define MATRIX_B coopmat<MATRIX_ELEMENT, gl_ScopeSubgroup, kK, kN, gl_MatrixUseB>
#ifdef ACROSS
#define LOAD_A(a, turn, row, k)                                                                                         \
  if (kLeftAcross)                                                                                                      \
    coopMatLoad(a, stage_memory, (k) * kLeftPitch + (row) / 8, kLeftPitch, gl_CooperativeMatrixLayoutColumnMajor);       \
  else                                                                                                                  \
    coopMatLoad(a, stage_memory, (row) * kLeftPitch + (k) / 8, kLeftPitch, gl_CooperativeMatrixLayoutRowMajor)
#define LOAD_B(b, column, k) \
  coopMatLoad(b, stage_memory, kRightBegin + (k) * kRightPitch + (column) / 8, kRightPitch, gl_CooperativeMatrixLayoutRowMajor)
#else
#define LOAD_A(a, turn, row, k) \
  coopMatLoad(a, stage_memory, (turn) * kLeftSize + (row) * kLeftPitch + (k) / 8, kLeftPitch, gl_CooperativeMatrixLayoutRowMajor)
#define LOAD_B(b, column, k) \
  coopMatLoad(b, stage_memory, kRightBegin + (column) * kRightPitch + (k) / 8, kRightPitch, gl_CooperativeMatrixLayoutColumnMajor)
#endif

// `turn`: of those that lie in shared memory.
void accumulate(int turn, int shift) {
  const int row = subgroup_row(), column = subgroup_column() + shift;
  [[unroll]] for (int k = 0; k < kDepth; k += kK) {
    MATRIX_A a[kRowMatrices];
    [[unroll]] for (int i = 0; i < kRowMatrices; ++i) LOAD_A(a[i], turn, row + i * kM, k);
    [[unroll]] for (int j = 0; j < kColumnMatrices; ++j) {
      MATRIX_B b;
      LOAD_B(b, column + j * kN, k);
      [[unroll]] for (int i = 0; i < kRowMatrices; ++i)
        sums[i * kColumnMatrices + j] = coopMatMulAdd(a[i], b, sums[i * kColumnMatrices + j]);
    }
  }
}

void clear() {
  [[unroll]] for (int i = 0; i < kRowMatrices * kColumnMatrices; ++i)
    sums[i] = coopmat<float, gl_ScopeSubgroup, kM, kN, gl_MatrixUseAccumulator>(0.0);
}

#ifdef TURNS
// The sums of all blocks, each of `turns` stages, at least one. All threads of the work group call it.
void multiply(int blocks, int turns) {
  if (blocks > 0) {
    fetch_left(0);
    fetch_right(0);
  }
  start();
  for (int block = 0, stage = 0; block < blocks; ++block) {
    put_left();
    put_right();
    barrier();
    const bool more = block + 1 < blocks;
    stage += kTurnsAtOnce;
    if (more || turns > kTurnsAtOnce) fetch_left(stage);
    if (more) fetch_right(block + 1);
    [[unroll]] for (int turn = 0; turn < kTurnsAtOnce; ++turn) accumulate(turn, shift(block, turn));
    barrier();
    for (int turn = kTurnsAtOnce; turn < turns; ++turn) {
      put_left();
      barrier();
      ++stage;
      if (more || turn + 1 < turns) fetch_left(stage);
      accumulate(0, shift(block, turn));
      barrier();
    }
  }
}
#else
// The sums of stages [0, stages): blocks of one turn. All threads of the work group call it.
void multiply(int stages) {
  clear();
  if (stages > 0) {
    fetch_left(0);
    fetch_right(0);
  }
  for (int stage = 0; stage < stages; ++stage) {
    put_left();
    put_right();
    barrier();
    if (stage + 1 < stages) {
      fetch_left(stage + 1);
      fetch_right(stage + 1);
    }
    accumulate(0, 0);
    barrier();
  }
}
#endif

// Matrix i, j of the subgroup's sums goes to `slot` of its patch, from where any of its threads reads it after subgroupBarrier().
void lay_out(int slot, int i, int j) {
  coopMatStore(sums[i * kColumnMatrices + j], stage_memory, int(gl_SubgroupID) * kPatch + slot * (kN / 4), kPatchPitch,
               gl_CooperativeMatrixLayoutRowMajor);
}
// Four sums of a row of the patch, from a column on that is a multiple of 4.
vec4 four_laid_out(int row, int column) {
  return uintBitsToFloat(stage_memory[int(gl_SubgroupID) * kPatch + row * kPatchPitch + column / 4]);
}
float laid_out(int row, int column) { return four_laid_out(row, column)[column % 4]; }

#ifdef WRITES_EIGHTS
void write_eight(int row, int column, vec4 four, vec4 next);
// The first `rows` rows of the subgroup's matrices, kSlots matrices at a time.
void write_sums(int rows) {
  const int kEightsOfPatch = kM * kSlots * kN / 8, kWrites = (kEightsOfPatch + kSubgroupThreads - 1) / kSubgroupThreads;
  [[unroll]] for (int i = 0; i < kRowMatrices; ++i) {
    if (i >= rows) break;
    [[unroll]] for (int j = 0; j < kColumnMatrices; j += kSlots) {
      [[unroll]] for (int slot = 0; slot < kSlots; ++slot) lay_out(slot, i, j + slot);
      subgroupBarrier();
      [[unroll]] for (int t = 0; t < kWrites; ++t) {
        const int e = t * kSubgroupThreads + int(gl_SubgroupInvocationID);
        const int row = e / (kSlots * kN / 8), column = e % (kSlots * kN / 8) * 8;
        if (row < kM)
          write_eight(subgroup_row() + i * kM + row, subgroup_column() + j * kN + column, four_laid_out(row, column),
                      four_laid_out(row, column + 4));
      }
      subgroupBarrier();
    }
  }
}
#endif
