// SPDX-License-Identifier: Apache-2.0
// lltm_pipelined_sm80.cu -- lltm in f32 on NVIDIA GPUs: copies to shared memory run ahead of the sums, and a reduction can be split
// over the warps of a block and, from sm_90 on, over the blocks of a cluster, so that few cells still fill the device. Rows of
// [old_h, input] and of weights are both contiguous along the reduction. They are kept so: a thread reads 16 bytes, 4 k, of each of
// its rows and multiplies all pairs. Rows lie an odd number of 16-byte units apart, so 8 neighbours touch every bank.
#include "lltm_cell.h"
#include "lltm_cluster_sm80.h"
#include "lltm_native.h"
#include "ops/gemm/tile_mma_sm80.h"

namespace narrows::gpu {
namespace {

// Lanes of a warp: 8 along the batch, 4 along the states. A thread has Rows x States cells, that is 3 * Rows * States sums.
template <int Rows, int States, int RowWarps, int StateWarps, int DepthWarps, int Cluster, int Depth, int Stages>
struct Shape {
  static constexpr int kRows = Rows, kStates = States, kRowWarps = RowWarps, kStateWarps = StateWarps, kDepthWarps = DepthWarps;
  static constexpr int kCluster = Cluster, kDepth = Depth, kStages = Stages;
  static constexpr int kThreads = 32 * RowWarps * StateWarps * DepthWarps;
  static constexpr int kTileRows = 8 * Rows * RowWarps, kTileStates = 4 * States * StateWarps;
  static constexpr int kUnits = Depth / 4, kPitch = kUnits | 1;  // of a row in a stage, in 16 bytes
  static constexpr int kStageUnits = (kTileRows + 3 * kTileStates) * kPitch;
  static constexpr bool kSplit = DepthWarps * Cluster > 1;
  // Partial sums of a split reduction take the stages' place: [depth warp][gate][row][state]. 8 rows x 4 states hit 32 banks.
  static constexpr int kSumsPitch = kTileStates % 8 == 4 ? kTileStates : kTileStates + 4;
  static constexpr int kSums = kSplit ? DepthWarps * 3 * kTileRows * kSumsPitch : 0;
  static constexpr int kShared = std::max(Stages * kStageUnits * 16, kSums * 4);
  static_assert(kUnits % DepthWarps == 0 && Stages >= 2 && kThreads % kUnits == 0 && (kTileRows * kTileStates) % Cluster == 0);
};

// The copies of one block. A thread copies the same unit of rows that lie kRowStep apart.
template <class Z>
struct Copier {
  static constexpr int kRowStep = Z::kThreads / Z::kUnits;
  const LltmForward& p;
  int64_t row0, state0;
  uint32_t stages;  // in shared memory
  int row, unit;

  __device__ Copier(const LltmForward& tensors, int64_t first_row, int64_t first_state, const void* shared)
      : p(tensors), row0(first_row), state0(first_state), stages(shared_address(shared)),
        row(static_cast<int>(threadIdx.x) / Z::kUnits), unit(static_cast<int>(threadIdx.x) % Z::kUnits) {}

  __device__ __forceinline__ void fetch(int64_t chunk, int stage) const {
    const int64_t k = chunk * Z::kDepth + 4 * unit;
    const bool of_states = k < p.state, inside = k < p.state + p.features;
    const Matrix& source = of_states ? p.old_h : p.input;
    const float* x = reinterpret_cast<const float*>(source.base) + ((row0 + row) * source.row + (of_states ? k : k - p.state));
    const uint32_t to = stages + static_cast<uint32_t>((stage * Z::kStageUnits + row * Z::kPitch + unit) * 16);
#pragma unroll
    for (int r = 0; r < Z::kTileRows; r += kRowStep)
      if (Z::kTileRows % kRowStep == 0 || r + row < Z::kTileRows)
        copy_16_bytes(to + static_cast<uint32_t>(r * Z::kPitch * 16), x + r * source.row, inside && row0 + r + row < p.batch);
#pragma unroll
    for (int gate = 0; gate < 3; ++gate) {
      const float* w = reinterpret_cast<const float*>(p.weights.base) + ((gate * p.state + state0 + row) * p.weights.row + k);
      const uint32_t gate_to = to + static_cast<uint32_t>((Z::kTileRows + gate * Z::kTileStates) * Z::kPitch * 16);
#pragma unroll
      for (int r = 0; r < Z::kTileStates; r += kRowStep)
        if (Z::kTileStates % kRowStep == 0 || r + row < Z::kTileStates)
          copy_16_bytes(gate_to + static_cast<uint32_t>(r * Z::kPitch * 16), w + r * p.weights.row,
                        inside && state0 + r + row < p.state);
    }
  }
};

struct Place {  // of a thread in its block
  int lane_row, lane_state, row_warp, state_warp, depth_warp;
};

template <class Z>
__device__ __forceinline__ void accumulate(const float4* stage, const Place& place, float (&sums)[3][Z::kRows][Z::kStates]) {
  constexpr int kUnits = Z::kUnits / Z::kDepthWarps;
  const float4* xs = stage + (place.row_warp * 8 * Z::kRows + place.lane_row) * Z::kPitch + place.depth_warp * kUnits;
  const float4* ws =
      stage + (Z::kTileRows + place.state_warp * 4 * Z::kStates + place.lane_state) * Z::kPitch + place.depth_warp * kUnits;
#pragma unroll(Z::kThreads >= 512 ? 1 : kUnits)
  for (int unit = 0; unit < kUnits; ++unit) {
    float4 x[Z::kRows], w[3][Z::kStates];
#pragma unroll
    for (int gate = 0; gate < 3; ++gate)
#pragma unroll
      for (int j = 0; j < Z::kStates; ++j) w[gate][j] = ws[(gate * Z::kTileStates + 4 * j) * Z::kPitch + unit];
#pragma unroll
    for (int i = 0; i < Z::kRows; ++i) x[i] = xs[8 * i * Z::kPitch + unit];
#pragma unroll
    for (int i = 0; i < Z::kRows; ++i) {
      const auto add = [&](float xk, float float4::* member) {
#pragma unroll
        for (int gate = 0; gate < 3; ++gate)
#pragma unroll
          for (int j = 0; j < Z::kStates; ++j) sums[gate][i][j] = fmaf(xk, w[gate][j].*member, sums[gate][i][j]);
      };
      add(x[i].x, &float4::x), add(x[i].y, &float4::y), add(x[i].z, &float4::z), add(x[i].w, &float4::w);
    }
  }
}

// What update_cell() reads of memory. In a small problem a load at the end is a whole latency more, so it is issued first.
struct CellInputs {
  float bias[3], old_cell;
};
__device__ __forceinline__ CellInputs read_cell(const LltmForward& p, int64_t b, int64_t s) {
  if (b >= p.batch || s >= p.state) return {};
  return {
      {read<float, true>(p.bias, 0, s), read<float, true>(p.bias, 0, p.state + s), read<float, true>(p.bias, 0, 2 * p.state + s)},
      read<float, true>(p.old_cell, b, s)};
}

template <class Z>
__device__ __forceinline__ void store_sums(float* partial, const Place& place, const float (&sums)[3][Z::kRows][Z::kStates]) {
#pragma unroll
  for (int gate = 0; gate < 3; ++gate)
#pragma unroll
    for (int i = 0; i < Z::kRows; ++i)
#pragma unroll
      for (int j = 0; j < Z::kStates; ++j) {
        const int row = place.row_warp * 8 * Z::kRows + place.lane_row + 8 * i;
        const int state = place.state_warp * 4 * Z::kStates + place.lane_state + 4 * j;
        partial[((place.depth_warp * 3 + gate) * Z::kTileRows + row) * Z::kSumsPitch + state] = sums[gate][i][j];
      }
}

template <class Z>
__device__ __forceinline__ float total(const float* partial, int gate, int row, int state) {
  float sum = 0;
#pragma unroll
  for (int rank = 0; rank < Z::kCluster; ++rank)
#pragma unroll
    for (int warp = 0; warp < Z::kDepthWarps; ++warp)
      sum += read_block<Z::kCluster>(partial + ((warp * 3 + gate) * Z::kTileRows + row) * Z::kSumsPitch + state, rank);
  return sum;
}

template <class Z>
__global__ void NARROWS_CLUSTER(Z::kCluster) __launch_bounds__(Z::kThreads, 1) lltm_pipelined_kernel(LltmForward p) {
  extern __shared__ float4 shared[];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const Place place = {lane / 4, lane % 4, warp / Z::kStateWarps % Z::kRowWarps, warp % Z::kStateWarps,
                       warp / (Z::kStateWarps * Z::kRowWarps)};
  const int rank = static_cast<int>(blockIdx.x) % Z::kCluster, tile = static_cast<int>(blockIdx.x) / Z::kCluster;
  const int row_tiles = static_cast<int>((p.batch + Z::kTileRows - 1) / Z::kTileRows);
  const int64_t row0 = static_cast<int64_t>(tile % row_tiles) * Z::kTileRows;
  const int64_t state0 = static_cast<int64_t>(tile / row_tiles) * Z::kTileStates;
  const int64_t chunks = (p.state + p.features + Z::kDepth - 1) / Z::kDepth;
  const int64_t begin = chunks * rank / Z::kCluster, end = chunks * (rank + 1) / Z::kCluster;

  const Copier<Z> copier(p, row0, state0, shared);
#pragma unroll
  for (int i = 0; i < Z::kStages - 1; ++i) {
    if (begin + i < end) copier.fetch(begin + i, i);
    end_stage();
  }
  // This thread's share of the cells, once the sums are split no more.
  constexpr int kShare = Z::kTileRows * Z::kTileStates / Z::kCluster, kCells = (kShare + Z::kThreads - 1) / Z::kThreads;
  constexpr bool kEarly = Z::kSplit && kCells <= 2;
  const auto cell_row = [&](int i) { return (rank * kShare + i * Z::kThreads + thread) / Z::kTileStates; };
  const auto cell_state = [&](int i) { return (rank * kShare + i * Z::kThreads + thread) % Z::kTileStates; };
  const auto has_cell = [&](int i) { return kShare % Z::kThreads == 0 || i * Z::kThreads + thread < kShare; };
  CellInputs early[kEarly ? kCells : 1];
  if constexpr (kEarly)
#pragma unroll
    for (int i = 0; i < kCells; ++i)
      if (has_cell(i)) early[i] = read_cell(p, row0 + cell_row(i), state0 + cell_state(i));

  float sums[3][Z::kRows][Z::kStates] = {};
  int stage = 0, next = Z::kStages - 1;
#pragma unroll 1
  for (int64_t chunk = begin; chunk < end; ++chunk) {
    wait_for_stage<Z::kStages - 2>();
    __syncthreads();  // the chunk is there for all, and all are done with the stage that the next fetch overwrites
    if (chunk + Z::kStages - 1 < end) copier.fetch(chunk + Z::kStages - 1, next);
    end_stage();
    accumulate<Z>(shared + stage * Z::kStageUnits, place, sums);
    stage = stage + 1 == Z::kStages ? 0 : stage + 1;
    next = next + 1 == Z::kStages ? 0 : next + 1;
  }

  if constexpr (!Z::kSplit) {
#pragma unroll
    for (int i = 0; i < Z::kRows; ++i)
#pragma unroll
      for (int j = 0; j < Z::kStates; ++j) {
        const int64_t b = row0 + place.row_warp * 8 * Z::kRows + place.lane_row + 8 * i;
        const int64_t s = state0 + place.state_warp * 4 * Z::kStates + place.lane_state + 4 * j;
        if (b < p.batch && s < p.state) update_cell<float, true>(p, b, s, {sums[0][i][j], sums[1][i][j], sums[2][i][j]});
      }
  } else {
    wait_for_stage<0>();
    __syncthreads();
    float* partial = reinterpret_cast<float*>(shared);
    store_sums<Z>(partial, place, sums);
    sync_blocks<Z::kCluster>();
#pragma unroll
    for (int i = 0; i < kCells; ++i) {
      const int64_t b = row0 + cell_row(i), s = state0 + cell_state(i);
      if (!has_cell(i) || b >= p.batch || s >= p.state) continue;
      const CellInputs cell = kEarly ? early[i] : read_cell(p, b, s);
      float totals[3];
#pragma unroll
      for (int gate = 0; gate < 3; ++gate) totals[gate] = total<Z>(partial, gate, cell_row(i), cell_state(i));
      update_cell<float, true>(p, b, s, totals, cell.bias, cell.old_cell);
    }
    if constexpr (Z::kCluster > 1) sync_blocks<Z::kCluster>();  // nobody leaves while another still reads its shared memory
  }
}

// ---- the choice of a shape ----

template <class Z>
int64_t num_blocks(const LltmSizes& sizes) {
  return ceil_div(sizes.batch, Z::kTileRows) * ceil_div(sizes.state, Z::kTileStates) * Z::kCluster;
}

template <class Z>
LltmChoice choice(const LltmSizes& sizes) {
  return {kernel_address(lltm_pipelined_kernel<Z>), num_blocks<Z>(sizes), Z::kThreads, Z::kShared};
}

// rows, states of a thread; warps along rows, states, depth; blocks of a cluster; k of a stage; stages
using Latency = Shape<1, 1, 1, 1, 4, 1, 64, 3>;
using Small = Shape<2, 2, 1, 1, 4, 1, 64, 6>;
using Middle = Shape<4, 4, 2, 1, 4, 2, 64, 3>;
using Wide = Shape<8, 4, 2, 2, 2, 2, 32, 4>;
using Large = Shape<16, 2, 1, 8, 1, 1, 32, 4>;

// Whether rows can be copied 16 bytes at a time.
bool has_copyable_rows(const LltmRequest& request) {
  const auto copyable = [&](uint32_t i) {
    const nw_tensor_sig& tensor = input(request.sig, i);
    const Strides2 strides = strides2(tensor);
    return strides.column == 1 && strides.row % 4 == 0 && tensor.align_log2 >= 4;
  };
  return request.sizes.state % 4 == 0 && request.sizes.features % 4 == 0 && copyable(lltm_forward::kInput) &&
         copyable(lltm_forward::kWeights) && copyable(lltm_forward::kOldH);
}

}  // namespace

LltmChoice lltm_pipelined(const LltmRequest& request) {
  const LltmSizes& sizes = request.sizes;
  const Device& device = request.device;
  if (sizes.dtype != Dtype::f32 || device.generation < 80 || !request.aligned || !has_copyable_rows(request)) return {};
  if (sizes.batch == 0 || sizes.state == 0) return choice<Latency>(sizes);
  const auto fills = [&]<class Z>(Z) {
    return num_blocks<Z>(sizes) >= device.multiprocessors * 9 / 10 && Z::kShared <= device.shared_memory &&
           (Z::kCluster == 1 || device.generation >= 90);
  };
  if (fills(Large())) return choice<Large>(sizes);
  if (fills(Wide())) return choice<Wide>(sizes);
  if (fills(Middle())) return choice<Middle>(sizes);
  if (fills(Small())) return choice<Small>(sizes);
  return choice<Latency>(sizes);
}

}  // namespace narrows::gpu
