// SPDX-License-Identifier: Apache-2.0
// lltm_mma_sm80.cu -- lltm on NVIDIA's matrix units (tile_mma_sm80.h), fused: a thread has the three gates of its cells. A
// reduction may be split over two warps and over the blocks of a cluster.
#include "lltm_cell.h"
#include "lltm_cluster_sm80.h"
#include "lltm_native.h"
#include "ops/gemm/tile_mma_sm80.h"

namespace narrows::gpu {
namespace {

// RowTiles x (3 * StateTiles) instruction tiles a warp.
template <class Element, int RowTiles, int StateTiles, int RowWarps, int StateWarps, int DepthWarps, int Cluster, int Stages>
struct MmaShape {
  using T = Element;
  using Tile = MmaTile<T, RowTiles, 3 * StateTiles, RowWarps, StateWarps, 3, DepthWarps>;
  static constexpr int kCluster = Cluster, kStages = Stages;
  static constexpr int kTileRows = Tile::kRows, kTileStates = Tile::kGroupColumns, kThreads = Tile::kThreads;
  static constexpr bool kSplit = DepthWarps * Cluster > 1;
  // Partial sums take the stages' place: [depth warp][gate][row][state].
  static constexpr int kSumsPitch = kTileStates + 8;
  static constexpr int kSums = kSplit ? DepthWarps * 3 * kTileRows * kSumsPitch : 0;
  static constexpr int kShared = std::max<int>(Stages * Tile::kStageUnits * 16, kSums* static_cast<int>(sizeof(Accumulate<T>)));
  static_assert(kTileRows * kTileStates % Cluster == 0);
};

// The copies of one block. A thread copies the same unit of rows that lie kRowStep apart.
template <class Z>
struct CellCopier {
  using T = typename Z::T;
  using Tile = typename Z::Tile;
  static constexpr int kRowStep = Z::kThreads / Tile::kUnits;
  static_assert(kRowStep % 2 == 0);  // so that its places lie at equal distances too
  const LltmForward& p;
  int64_t row0, state0;
  int row, unit;

  __device__ CellCopier(const LltmForward& tensors, int64_t first_row, int64_t first_state)
      : p(tensors), row0(first_row), state0(first_state), row(static_cast<int>(threadIdx.x) / Tile::kUnits),
        unit(static_cast<int>(threadIdx.x) % Tile::kUnits) {}

  __device__ __forceinline__ void operator()(int64_t chunk, uint4* stage) const {
    const int64_t k = chunk * Tile::kDepth + unit * (16 / static_cast<int>(sizeof(T)));
    const bool of_states = k < p.state, inside = k < p.state + p.features;
    const Matrix& source = of_states ? p.old_h : p.input;
    const T* x = at<const T>(source, row0 + row, 0) + (of_states ? k : k - p.state);
    const uint32_t to = shared_address(stage + Tile::place(row, unit));
#pragma unroll
    for (int r = 0; r < Z::kTileRows; r += kRowStep)
      if (Z::kTileRows % kRowStep == 0 || r + row < Z::kTileRows)
        copy_16_bytes(to + static_cast<uint32_t>(r * Tile::kUnits * 16), x + r * source.row, inside && row0 + r + row < p.batch);
#pragma unroll
    for (int gate = 0; gate < 3; ++gate) {
      const T* w = at<const T>(p.weights, gate * p.state + state0 + row, 0) + k;
      const uint32_t gate_to = to + static_cast<uint32_t>((Z::kTileRows + gate * Z::kTileStates) * Tile::kUnits * 16);
#pragma unroll
      for (int r = 0; r < Z::kTileStates; r += kRowStep)
        if (Z::kTileStates % kRowStep == 0 || r + row < Z::kTileStates)
          copy_16_bytes(gate_to + static_cast<uint32_t>(r * Tile::kUnits * 16), w + r * p.weights.row,
                        inside && state0 + r + row < p.state);
    }
  }
};

template <class Z>
__device__ __forceinline__ void update_own_cells(const LltmForward& p, int64_t row0, int64_t state0,
                                                 const typename Z::Tile::Sums& sums) {
  using Tile = typename Z::Tile;
  using A = Accumulate<typename Z::T>;
#pragma unroll
  for (int row = 0; row < Tile::kRowTiles; ++row)
#pragma unroll
    for (int tile = 0; tile < Tile::kGroupTiles; ++tile)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int64_t b = row0 + Tile::row_of(row, i), s = state0 + Tile::column_of(tile, i);
        if (b >= p.batch || s >= p.state) continue;
        update_cell<typename Z::T, true>(
            p, b, s,
            {static_cast<A>(sums.at[row][tile][i]), static_cast<A>(sums.at[row][Tile::kGroupTiles + tile][i]),
             static_cast<A>(sums.at[row][2 * Tile::kGroupTiles + tile][i])});
      }
}

// Every block of a cluster adds up its share of the cells.
template <class Z>
__device__ __forceinline__ void update_shared_cells(const LltmForward& p, int64_t row0, int64_t state0, int rank, void* shared,
                                                    const typename Z::Tile::Sums& sums) {
  using Tile = typename Z::Tile;
  using A = Accumulate<typename Z::T>;
  A* partial = static_cast<A*>(shared);
  for_each_mma_sum<Tile>(sums, 0, 0, [&](int64_t row, int64_t column, auto sum) {
    const int64_t gate = column / Z::kTileStates, state = column % Z::kTileStates;
    partial[((Tile::depth_warp() * 3 + gate) * Z::kTileRows + row) * Z::kSumsPitch + state] = static_cast<A>(sum);
  });
  sync_blocks<Z::kCluster>();
  constexpr int kShare = Z::kTileRows * Z::kTileStates / Z::kCluster;
  for (int i = static_cast<int>(threadIdx.x); i < kShare; i += Z::kThreads) {
    const int row = (rank * kShare + i) / Z::kTileStates, state = (rank * kShare + i) % Z::kTileStates;
    const int64_t b = row0 + row, s = state0 + state;
    if (b >= p.batch || s >= p.state) continue;
    A totals[3] = {};
#pragma unroll
    for (int block = 0; block < Z::kCluster; ++block)
#pragma unroll
      for (int warp = 0; warp < Tile::kDepthWarps; ++warp)
#pragma unroll
        for (int gate = 0; gate < 3; ++gate)
          totals[gate] +=
              read_block<Z::kCluster>(partial + ((warp * 3 + gate) * Z::kTileRows + row) * Z::kSumsPitch + state, block);
    update_cell<typename Z::T, true>(p, b, s, totals);
  }
  if constexpr (Z::kCluster > 1) sync_blocks<Z::kCluster>();  // nobody leaves while another still reads its shared memory
}

template <class Z>
__global__ void NARROWS_CLUSTER(Z::kCluster) __launch_bounds__(Z::kThreads, 1) lltm_mma_kernel(LltmForward p) {
  using Tile = typename Z::Tile;
  extern __shared__ uint4 shared[];
  const int rank = static_cast<int>(blockIdx.x) % Z::kCluster, tile = static_cast<int>(blockIdx.x) / Z::kCluster;
  const int row_tiles = static_cast<int>((p.batch + Z::kTileRows - 1) / Z::kTileRows);
  const int64_t row0 = static_cast<int64_t>(tile % row_tiles) * Z::kTileRows;
  const int64_t state0 = static_cast<int64_t>(tile / row_tiles) * Z::kTileStates;
  const int64_t chunks = (p.state + p.features + Tile::kDepth - 1) / Tile::kDepth;
  typename Tile::Sums sums;
  multiply_mma<Tile, Z::kStages>(CellCopier<Z>(p, row0, state0), chunks * rank / Z::kCluster, chunks * (rank + 1) / Z::kCluster,
                                 shared, sums);
  if constexpr (Z::kSplit)
    update_shared_cells<Z>(p, row0, state0, rank, shared, sums);
  else
    update_own_cells<Z>(p, row0, state0, sums);
}

// ---- the choice of a shape ----

template <class Z>
int64_t num_blocks(const LltmSizes& sizes) {
  return ceil_div(sizes.batch, Z::kTileRows) * ceil_div(sizes.state, Z::kTileStates) * Z::kCluster;
}
template <class Z>
LltmChoice choice(const LltmSizes& sizes) {
  return {kernel_address(lltm_mma_kernel<Z>), num_blocks<Z>(sizes), Z::kThreads, Z::kShared};
}

// row tiles, state tiles of a warp; warps along rows, states, depth; blocks of a cluster; stages
template <class T>
using Large = std::conditional_t<sizeof(T) == 2, MmaShape<T, 4, 2, 2, 4, 1, 1, 4>, MmaShape<T, 4, 1, 2, 4, 1, 1, 4>>;
template <class T>
using Wide =
    std::conditional_t<sizeof(T) == 2, MmaShape<T, 2, 2, 4, 1, 2, 2, 4>, MmaShape<T, 2, 2, 4, 2, 1, 2, 4>>;  // 128 rows x 32 states
template <class T>
using Middle = MmaShape<T, 2, 1, 2, 2, 2, 2, 4>;  // 64 x 16
template <class T>
using Small = MmaShape<T, 1, 1, 2, 2, 2, 1, 4>;  // 32 x 16

// Whether rows can be copied 16 bytes at a time, and none of these straddles the end of one.
template <class T>
bool has_whole_units(const LltmRequest& request) {
  constexpr int64_t kUnit = 16 / static_cast<int64_t>(sizeof(T));
  const auto copyable = [&](uint32_t i) {
    const Strides2 strides = strides2(input(request.sig, i));
    return strides.column == 1 && strides.row % kUnit == 0 && input(request.sig, i).align_log2 >= 4;
  };
  return request.sizes.state % kUnit == 0 && request.sizes.features % kUnit == 0 && copyable(lltm_forward::kInput) &&
         copyable(lltm_forward::kWeights) && copyable(lltm_forward::kOldH);
}

template <class T>
LltmChoice choose(const LltmRequest& request) {
  const LltmSizes& sizes = request.sizes;
  if (!has_whole_units<T>(request)) return {};
  if (sizes.batch == 0 || sizes.state == 0) return choice<Small<T>>(sizes);
  const auto fills = [&]<class Z>(Z) {
    return num_blocks<Z>(sizes) >= request.device.multiprocessors * 9 / 10 && Z::kShared <= request.device.shared_memory &&
           (Z::kCluster == 1 || request.device.generation >= 90);
  };
  if (fills(Large<T>())) return choice<Large<T>>(sizes);
  if (fills(Wide<T>())) return choice<Wide<T>>(sizes);
  if (fills(Middle<T>())) return choice<Middle<T>>(sizes);
  if (sizeof(T) == 4 && !request.forced) return {};
  return choice<Small<T>>(sizes);
}

}  // namespace

LltmChoice lltm_mma(const LltmRequest& request) {
  const bool is_sm80 = request.device.generation >= 80;
  const bool is_sm90 = request.device.generation == 90 && request.device.compute_capability == 90;
  if (!request.aligned) return {};
  switch (request.sizes.dtype) {
    case Dtype::f16: return is_sm80 ? choose<f16>(request) : LltmChoice{};
    case Dtype::bf16: return is_sm80 ? choose<bf16>(request) : LltmChoice{};
    // Elsewhere than on sm_90 the f64 units are slower than plain multiply-adds of f32, or lack these instructions; and a few cells
    // are made sooner by lltm_pipelined.
    case Dtype::f32: return is_sm90 ? choose<float>(request) : LltmChoice{};
    default: return is_sm90 ? choose<double>(request) : LltmChoice{};
  }
}

}  // namespace narrows::gpu
