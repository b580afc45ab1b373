// SPDX-License-Identifier: Apache-2.0
// lltm_wgmma_sm90a.cu -- lltm in f16 and bf16 on Hopper's matrix units (wgmma), fused.
//
// A block makes 64 * kWarpgroups * kRowTiles rows x kStates states: of every weight tile the three gates of the same states, one
// below the other, so that a thread has all three of its cells. Warpgroup 0 feeds the copy engine (TMA), the others multiply. The
// two blocks of a cluster have the same rows and neighbouring states: each fetches half of the rows of [old_h, input] for both.
//
// A stage: rows of [old_h, input], then of weights, 64 elements of k each: 128 bytes, with the 128-byte swizzle that the copy
// engine writes and wgmma reads. The states' part of k is rounded up to whole stages; what lies past an operand's edge comes as 0.
#include "lltm_cell.h"
#include "lltm_cluster_sm80.h"
#include "lltm_native.h"
#include "ops/hopper_sm90a.h"

namespace narrows::gpu {
namespace {

constexpr int kWarpgroup = 128, kDepth = 64, kRowBytes = 128;

template <class Element, int Warpgroups, int RowTiles, int States, int Cluster, int Stages>
struct Shape {
  using T = Element;
  static constexpr int kWarpgroups = Warpgroups, kRowTiles = RowTiles, kStates = States, kCluster = Cluster, kStages = Stages;
  static constexpr int kRows = 64 * RowTiles * Warpgroups, kColumns = 3 * States;
  static constexpr int kThreads = kWarpgroup * (Warpgroups + 1);
  static constexpr int kStageBytes = (kRows + kColumns) * kRowBytes;
  static constexpr int kShared = 1024 + Stages * kStageBytes + 2 * Stages * 8;  // 1024: the swizzle repeats, so stages start there
  static constexpr bool kMovesRegisters = Warpgroups * RowTiles == 4;           // 192 sums a thread
};

struct WgmmaTensors {
  CUtensorMap old_h, input, state_weights, feature_weights;
  LltmForward p;
};

// ---- instructions ----

__device__ __forceinline__ void copy_tile(uint32_t to, const CUtensorMap* map, uint32_t barrier, int k, int row) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(to),
               "l"(map), "r"(barrier), "r"(k), "r"(row)
               : "memory");
}
template <int Cluster>
__device__ __forceinline__ void copy_tile_to_all(uint32_t to, const CUtensorMap* map, uint32_t barrier, int k, int row) {
  if constexpr (Cluster == 1) return copy_tile(to, map, barrier, k, row);
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%3, %4}], [%2], "
      "%5;" ::"r"(to),
      "l"(map), "r"(barrier), "r"(k), "r"(row), "h"(static_cast<uint16_t>((1 << Cluster) - 1))
      : "memory");
}

// Of rows of 128 swizzled bytes along k.
__device__ __forceinline__ uint64_t rows_descriptor(uint32_t address) { return descriptor(address, 16, 1024, 1); }

// Accumulate: adds to the sums; else they start here.
#define NARROWS_SUMS48(i) \
  NARROWS_SUMS8(i), NARROWS_SUMS8(i + 8), NARROWS_SUMS8(i + 16), NARROWS_SUMS8(i + 24), NARROWS_SUMS8(i + 32), NARROWS_SUMS8(i + 40)
#define NARROWS_WGMMA192(type)                                                                                   \
  asm volatile(                                                                                                  \
      "{ .reg .pred p; setp.ne.b32 p, %98, 0;\n"                                                                 \
      "wgmma.mma_async.sync.aligned.m64n192k16.f32." type "." type                                               \
      " {"                                                                                                       \
      "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,"           \
      "%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51," \
      "%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77," \
      "%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"                                  \
      "}, %96, %97, p, 1, 1, 0, 0; }\n"                                                                          \
      : NARROWS_SUMS48(0), NARROWS_SUMS48(48)                                                                    \
      : "l"(a), "l"(b), "n"(Accumulate ? 1 : 0))
#define NARROWS_WGMMA96(type)                                                                          \
  asm volatile(                                                                                        \
      "{ .reg .pred p; setp.ne.b32 p, %50, 0;\n"                                                       \
      "wgmma.mma_async.sync.aligned.m64n96k16.f32." type "." type                                      \
      " {"                                                                                             \
      "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25," \
      "%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"        \
      "}, %48, %49, p, 1, 1, 0, 0; }\n"                                                                \
      : NARROWS_SUMS48(0)                                                                              \
      : "l"(a), "l"(b), "n"(Accumulate ? 1 : 0))
template <class T, bool Accumulate>
__device__ __forceinline__ void wgmma(float (&sums)[96], uint64_t a, uint64_t b) {
  if constexpr (std::is_same_v<T, f16>)
    NARROWS_WGMMA192("f16");
  else
    NARROWS_WGMMA192("bf16");
}
template <class T, bool Accumulate>
__device__ __forceinline__ void wgmma(float (&sums)[48], uint64_t a, uint64_t b) {
  if constexpr (std::is_same_v<T, f16>)
    NARROWS_WGMMA96("f16");
  else
    NARROWS_WGMMA96("bf16");
}
#undef NARROWS_WGMMA96
#undef NARROWS_WGMMA192
#undef NARROWS_SUMS48

// ---- a block ----

template <class Z>
struct Memory {
  uint32_t stages, barriers;
  __device__ explicit Memory(const void* shared)
      : stages((shared_address(shared) + 1023) / 1024 * 1024), barriers(stages + Z::kStages * Z::kStageBytes) {}
  __device__ uint32_t rows(int stage) const { return stages + static_cast<uint32_t>(stage * Z::kStageBytes); }
  __device__ uint32_t weights(int stage) const { return rows(stage) + Z::kRows * kRowBytes; }
  __device__ uint32_t full(int stage) const { return barriers + static_cast<uint32_t>(8 * stage); }
  __device__ uint32_t empty(int stage) const { return barriers + static_cast<uint32_t>(8 * (Z::kStages + stage)); }
};

struct Work {
  int row0, state0, state_chunks, chunks, rank;
};
template <class Z>
__device__ __forceinline__ Work work_of_block(const LltmForward& p) {
  Work work;
  const int cluster = static_cast<int>(blockIdx.x) / Z::kCluster, row_tiles = static_cast<int>((p.batch + Z::kRows - 1) / Z::kRows);
  work.rank = static_cast<int>(blockIdx.x) % Z::kCluster;
  work.row0 = cluster % row_tiles * Z::kRows;
  work.state0 = (cluster / row_tiles * Z::kCluster + work.rank) * Z::kStates;
  work.state_chunks = static_cast<int>((p.state + kDepth - 1) / kDepth);
  work.chunks = work.state_chunks + static_cast<int>((p.features + kDepth - 1) / kDepth);
  return work;
}

// One thread. `empty` counts the multiplying warpgroups of both blocks, into whose stages this one's copies go.
template <class Z>
__device__ __forceinline__ void feed(const WgmmaTensors& t, const Memory<Z>& memory, const Work& work) {
  constexpr int kPart = Z::kRows / Z::kCluster;
  int stage = 0;
  uint32_t phase = 1;  // the first wait finds all stages empty
  for (int chunk = 0; chunk < work.chunks; ++chunk) {
    const bool of_states = chunk < work.state_chunks;
    const int k = (of_states ? chunk : chunk - work.state_chunks) * kDepth;
    const CUtensorMap* weights = of_states ? &t.state_weights : &t.feature_weights;
    wait(memory.empty(stage), phase);
    expect_bytes(memory.full(stage), Z::kStageBytes);
    copy_tile_to_all<Z::kCluster>(memory.rows(stage) + static_cast<uint32_t>(work.rank * kPart * kRowBytes),
                                  of_states ? &t.old_h : &t.input, memory.full(stage), k, work.row0 + work.rank * kPart);
#pragma unroll
    for (int gate = 0; gate < 3; ++gate)
      copy_tile(memory.weights(stage) + static_cast<uint32_t>(gate * Z::kStates * kRowBytes), weights, memory.full(stage), k,
                gate * static_cast<int>(t.p.state) + work.state0);
    if (++stage == Z::kStages) stage = 0, phase ^= 1;
  }
}

template <class Z>
__device__ __forceinline__ void release(const Memory<Z>& memory, int stage) {
  if (threadIdx.x % kWarpgroup < Z::kCluster) arrive_at(memory.empty(stage), static_cast<int>(threadIdx.x) % kWarpgroup);
}

// Issues the products of one stage.
template <class Z, bool First>
__device__ __forceinline__ void multiply_stage(const Memory<Z>& memory, int stage, int warpgroup,
                                               float (&sums)[Z::kRowTiles][Z::kColumns / 2]) {
  const uint64_t a = rows_descriptor(memory.rows(stage) + static_cast<uint32_t>(warpgroup * Z::kRowTiles * 64 * kRowBytes));
  const uint64_t b = rows_descriptor(memory.weights(stage));
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  const auto step = [&]<bool Accumulate>(int k, std::bool_constant<Accumulate>) {  // 16 k are 32 bytes, two units of an address
#pragma unroll
    for (int row = 0; row < Z::kRowTiles; ++row)
      wgmma<typename Z::T, Accumulate>(sums[row], a + static_cast<uint64_t>(row * 64 * kRowBytes / 16 + 2 * k),
                                       b + static_cast<uint64_t>(2 * k));
  };
  step(0, std::bool_constant<!First>());
#pragma unroll
  for (int k = 1; k < kDepth / 16; ++k) step(k, std::true_type());
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// The first stage stands apart: nothing but wgmma may define sums while products run, so nothing sets them to 0.
template <class Z>
__device__ __forceinline__ void multiply(const Memory<Z>& memory, const Work& work, int warpgroup,
                                         float (&sums)[Z::kRowTiles][Z::kColumns / 2]) {
  wait(memory.full(0), 0);
  multiply_stage<Z, true>(memory, 0, warpgroup, sums);
  int before = 0, stage = 1;
  uint32_t phase = 0;
#pragma unroll 1
  for (int chunk = 1; chunk < work.chunks; ++chunk) {
    wait(memory.full(stage), phase);
    multiply_stage<Z, false>(memory, stage, warpgroup, sums);
    asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");  // the products before these are done
    release<Z>(memory, before);
    before = stage;
    if (++stage == Z::kStages) stage = 0, phase ^= 1;
  }
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}

template <class T>
__device__ __forceinline__ float2 read_pair(const Matrix& m, int64_t row, int64_t column) {
  const uint32_t bits = *at<const uint32_t>({m.base + (row * m.row + column) * 2}, 0, 0);
  T pair[2];
  memcpy(pair, &bits, 4);
  return {widen(pair[0]), widen(pair[1])};
}
template <class T>
__device__ __forceinline__ void write_pair(const Matrix& m, int64_t row, int64_t column, float first, float second) {
  const T pair[2] = {narrowed<T>(first), narrowed<T>(second)};
  uint32_t bits;
  memcpy(&bits, pair, 4);
  *at<uint32_t>({m.base + (row * m.row + column) * 2}, 0, 0) = bits;
}

// What the cells of two neighbouring states need of memory, for each of a thread's rows.
template <class Z>
struct PairInputs {
  float bias[3][2];
  float2 old_cell[2 * Z::kRowTiles];
  __device__ __forceinline__ PairInputs(const LltmForward& p, int64_t row0, int64_t s) {
    using T = typename Z::T;
#pragma unroll
    for (int gate = 0; gate < 3; ++gate)
#pragma unroll
      for (int i = 0; i < 2; ++i) bias[gate][i] = s < p.state ? read<T, true>(p.bias, 0, gate * p.state + s + i) : 0;
#pragma unroll
    for (int row = 0; row < 2 * Z::kRowTiles; ++row) {
      const int64_t b = row0 + row / 2 * 64 + row % 2 * 8;
      old_cell[row] = b < p.batch && s < p.state ? read_pair<T>(p.old_cell, b, s) : float2{};
    }
  }
};

template <class Z>
__device__ __forceinline__ void update_cells(const LltmForward& p, const Work& work, int warpgroup,
                                             const float (&sums)[Z::kRowTiles][Z::kColumns / 2]) {
  using T = typename Z::T;
  constexpr int kTiles = Z::kStates / 8, kGate = Z::kStates / 2;  // sums of a gate
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) % kWarpgroup / 32;
  const int64_t row0 = work.row0 + warpgroup * Z::kRowTiles * 64 + warp * 16 + lane / 4, s0 = work.state0 + lane % 4 * 2;
  PairInputs<Z> next(p, row0, s0);
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    const PairInputs<Z> in = next;
    const int64_t s = s0 + tile * 8;
    if (tile + 1 < kTiles) next = PairInputs<Z>(p, row0, s + 8);
    if (s >= p.state) continue;
#pragma unroll
    for (int row = 0; row < 2 * Z::kRowTiles; ++row) {
      const int64_t b = row0 + row / 2 * 64 + row % 2 * 8;
      if (b >= p.batch) continue;
      float z[2][3];
#pragma unroll
      for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int gate = 0; gate < 3; ++gate)
          z[i][gate] = sums[row / 2][gate * kGate + tile * 4 + row % 2 * 2 + i] + in.bias[gate][i];
      if (p.gates.base != nullptr)
#pragma unroll
        for (int gate = 0; gate < 3; ++gate)
          *reinterpret_cast<float2*>(at<float>(p.gates, b, gate * p.state + s)) = {z[0][gate], z[1][gate]};
      const Cell<float> first = next_cell<T>(z[0], in.old_cell[row].x), second = next_cell<T>(z[1], in.old_cell[row].y);
      write_pair<T>(p.new_cell, b, s, first.cell, second.cell);
      write_pair<T>(p.new_h, b, s, first.h, second.h);
    }
  }
}

template <class Z>
__global__ void __cluster_dims__(Z::kCluster, 1, 1) __launch_bounds__(Z::kThreads, 1)
    lltm_wgmma_kernel(const __grid_constant__ WgmmaTensors t) {
  extern __shared__ char shared[];
  const Memory<Z> memory(shared);
  const Work work = work_of_block<Z>(t.p);
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < Z::kStages; ++stage) {
      init_barrier(memory.full(stage), 1);
      init_barrier(memory.empty(stage), Z::kWarpgroups * Z::kCluster);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  sync_blocks<Z::kCluster>();  // nobody copies or arrives before the other's barriers are there
  if (threadIdx.x < kWarpgroup) {
    if constexpr (Z::kMovesRegisters) asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if (threadIdx.x == 0) feed<Z>(t, memory, work);
  } else {
    if constexpr (Z::kMovesRegisters) asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
    const int warpgroup = static_cast<int>(threadIdx.x) / kWarpgroup - 1;
    float sums[Z::kRowTiles][Z::kColumns / 2];
    multiply<Z>(memory, work, warpgroup, sums);
    update_cells<Z>(t.p, work, warpgroup, sums);
  }
  sync_blocks<Z::kCluster>();  // nobody leaves while the other still copies to it or arrives at its barriers
}

// ---- the choice of a shape, and the launch ----

// Of `rows` rows of `columns` elements from column `first` on, in boxes of 64 columns and `box_rows` rows.
template <class T>
CUtensorMap map_of(const Matrix& m, int64_t rows, int64_t first, int64_t columns, int box_rows) {
  const cuuint64_t extents[2] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[1] = {static_cast<cuuint64_t>(m.row) * 2};
  const cuuint32_t box[2] = {kDepth, static_cast<cuuint32_t>(box_rows)}, steps[2] = {1, 1};
  CUtensorMap map;
  const CUresult result =
      find_encode()(&map, std::is_same_v<T, f16> ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2,
                    at<T>(m, 0, first), extents, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                    CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  check_encoded(result, "lltm");
  return map;
}

template <class Z>
void launch(const LltmChoice& choice, const LltmForward& p, gpuStream_t stream) {
  using T = typename Z::T;
  WgmmaTensors t;
  t.p = p;
  t.old_h = map_of<T>(p.old_h, p.batch, 0, p.state, Z::kRows / Z::kCluster);
  t.state_weights = map_of<T>(p.weights, 3 * p.state, 0, p.state, Z::kStates);
  t.input = t.old_h, t.feature_weights = t.state_weights;
  if (p.features != 0) {
    t.input = map_of<T>(p.input, p.batch, 0, p.features, Z::kRows / Z::kCluster);
    t.feature_weights = map_of<T>(p.weights, 3 * p.state, p.state, p.features, Z::kStates);
  }
  launch_kernel(lltm_wgmma_kernel<Z>, choice.blocks, choice.threads, choice.shared, stream, t);
}

template <class Z>
int64_t num_blocks(const LltmSizes& sizes) {
  return ceil_div(sizes.batch, Z::kRows) * ceil_div(sizes.state, Z::kStates * Z::kCluster) * Z::kCluster;
}
template <class Z>
LltmChoice choice(const LltmSizes& sizes) {
  return {reinterpret_cast<const void*>(lltm_wgmma_kernel<Z>), num_blocks<Z>(sizes), Z::kThreads, Z::kShared, launch<Z>};
}

// multiplying warpgroups, tiles of 64 rows of each, states; blocks of a cluster; stages
template <class T>
using Large = Shape<T, 2, 2, 64, 2, 4>;
template <class T>
using Middle = Shape<T, 2, 1, 64, 2, 5>;
template <class T>
using Small = Shape<T, 1, 1, 32, 2, 8>;

// What the copy engine can walk.
bool has_copyable_rows(const LltmRequest& request) {
  const auto copyable = [&](uint32_t i) {
    const Strides2 strides = strides2(input(request.sig, i));
    return strides.column == 1 && strides.row > 0 && strides.row % 8 == 0 && strides.row < int64_t{1} << 38 &&
           input(request.sig, i).align_log2 >= 4;
  };
  const LltmSizes& sizes = request.sizes;
  constexpr int64_t kMost = int64_t{1} << 28;  // coordinates and blocks are counted in 32 bits
  return sizes.batch < kMost && sizes.features < kMost && sizes.state < kMost && sizes.state % 8 == 0 &&
         (sizes.features == 0 || copyable(lltm_forward::kInput)) && copyable(lltm_forward::kWeights) &&
         copyable(lltm_forward::kOldH);
}

// Whether the cells of two neighbouring states lie together.
bool has_pairs(const LltmRequest& request) {
  const auto paired = [](const nw_tensor_sig& tensor) {
    const Strides2 strides = strides2(tensor);
    return strides.column == 1 && strides.row % 2 == 0 && 1 << tensor.align_log2 >= 2 * tensor.dtype.bits / 8;
  };
  for (uint32_t i = 0; i < request.sig.num_outputs; ++i)
    if (has_output(request.sig, i) && !paired(output(request.sig, i))) return false;
  return paired(input(request.sig, lltm_forward::kOldCell));
}

template <class T>
LltmChoice choose(const LltmRequest& request) {
  const int64_t enough = request.device.multiprocessors * 9 / 10;
  const LltmSizes& sizes = request.sizes;
  if (num_blocks<Large<T>>(sizes) >= enough) return choice<Large<T>>(sizes);
  if (num_blocks<Middle<T>>(sizes) >= enough) return choice<Middle<T>>(sizes);
  if (num_blocks<Small<T>>(sizes) >= enough || request.forced) return choice<Small<T>>(sizes);
  return {};
}

}  // namespace

LltmChoice lltm_wgmma(const LltmRequest& request) {
  if (request.device.compute_capability != 90 || request.device.shared_memory < Large<f16>::kShared || find_encode() == nullptr ||
      !request.aligned || request.sizes.batch == 0 || request.sizes.state == 0 || !has_copyable_rows(request) ||
      !has_pairs(request))
    return {};
  switch (request.sizes.dtype) {
    case Dtype::f16: return choose<f16>(request);
    case Dtype::bf16: return choose<bf16>(request);
    default: return {};
  }
}

}  // namespace narrows::gpu
