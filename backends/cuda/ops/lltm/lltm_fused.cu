// SPDX-License-Identifier: Apache-2.0
// lltm_fused.cu -- lltm as one tiled product: a tile holds the three gates of the same states side by side, so the thread that has
// summed a cell's gates also updates the cell. For any device, dtype and strides.
#include "lltm_cell.h"
#include "ops/gemm/tile_gemm.h"

namespace narrows::gpu {
namespace {

// [old_h, input] by rows. k counts the states, rounded up to whole stages, and then the features.
template <class T, bool Together>
struct InputsLoader {
  static constexpr bool kAlongDepth = true;
  MatrixLoader<T, true, Together> states, features;
  int64_t turn;
  __device__ __forceinline__ void load(int64_t row, int64_t k, Accumulate<T> (&out)[kGroup<Accumulate<T>>]) const {
    if (k < turn)
      states.load(row, k, out);
    else
      features.load(row, k - turn, out);
  }
};

// The rows of weights that make a tile: `States` of each gate, from first_state on.
template <class T, int States, bool Together>
struct GatesLoader {
  static constexpr bool kAlongDepth = true;
  InputsLoader<T, Together> weights;
  int64_t first_state, num_states;
  __device__ __forceinline__ void load(int64_t column, int64_t k, Accumulate<T> (&out)[kGroup<Accumulate<T>>]) const {
    const int64_t state = first_state + column % States;
    weights.load(state < num_states ? column / States * num_states + state : 3 * num_states, k, out);
  }
};

template <class T, class Tile, bool Together>
__global__ void __launch_bounds__(Tile::kThreads) lltm_fused_kernel(LltmForward p) {
  constexpr int kStates = Tile::kColumns / 3, kUnit = Tile::kUnit;
  static_assert(Tile::kColumnGroups == 3);  // one for each gate, so that a thread has all three of its cells
  __shared__ typename Tile::Shared shared;
  typename Tile::Sums sums;
  const int64_t state_tiles = (p.state + kStates - 1) / kStates;
  const int64_t row0 = blockIdx.x / state_tiles * Tile::kRows, state0 = blockIdx.x % state_tiles * kStates;
  const int64_t turn = (p.state + Tile::kDepth - 1) / Tile::kDepth * Tile::kDepth;
  const InputsLoader<T, Together> inputs = {{at<const T>(p.old_h, 0, 0), p.old_h.row, p.old_h.column, p.batch, p.state},
                                            {at<const T>(p.input, 0, 0), p.input.row, p.input.column, p.batch, p.features},
                                            turn};
  const Matrix& w = p.weights;
  const GatesLoader<T, kStates, Together> gates = {{{at<const T>(w, 0, 0), w.row, w.column, 3 * p.state, p.state},
                                                    {at<const T>(w, 0, p.state), w.row, w.column, 3 * p.state, p.features},
                                                    turn},
                                                   state0,
                                                   p.state};
  multiply<Tile>(inputs, gates, row0, 0, 0, turn + p.features, shared, sums);
#pragma unroll
  for (int i = 0; i < Tile::kRowGroups * kUnit; ++i)
#pragma unroll
    for (int j = 0; j < kUnit; ++j) {
      const int64_t b = row0 + Tile::row_of(i), s = state0 + Tile::column_of(j);
      if (b < p.batch && s < p.state)
        update_cell<T, true>(p, b, s, {sums.at[i][j], sums.at[i][kUnit + j], sums.at[i][2 * kUnit + j]});
    }
}

template <class Acc>
using LargeTile = GemmTile<Acc, 16, 16, 2, 3, 16>;  // f32: 128 rows x 64 states
template <class Acc>
using SmallTile = GemmTile<Acc, 8, 8, 1, 3, 16>;  // f32: 32 rows x 32 states

template <class Tile>
int64_t num_tiles(const LltmSizes& sizes) {
  return ceil_div(sizes.batch, Tile::kRows) * ceil_div(sizes.state, Tile::kColumns / 3);
}

template <class T, class Tile>
LltmChoice choice(const LltmSizes& sizes, bool together) {
  return {kernel_address(together ? lltm_fused_kernel<T, Tile, true> : lltm_fused_kernel<T, Tile, false>), num_tiles<Tile>(sizes),
          Tile::kThreads};
}

// Whether both operands can be read 16 bytes at a time along the reduction.
template <class T>
bool reads_together(const nw_sig& sig, int64_t state) {
  const auto along_rows = [&](uint32_t i, int64_t first) {
    const Strides2 strides = strides2(input(sig, i));
    return loads_together<T>(input(sig, i), first, strides.column, strides.row);
  };
  return along_rows(lltm_forward::kInput, 0) && along_rows(lltm_forward::kOldH, 0) && along_rows(lltm_forward::kWeights, state);
}

}  // namespace

LltmChoice lltm_fused(const LltmRequest& request) {
  if (!request.aligned) return {};
  return with_dtype(request.sizes.dtype, [&]<class T>(T) {
    using Large = LargeTile<Accumulate<T>>;
    const bool together = reads_together<T>(request.sig, request.sizes.state);
    const bool fills = request.sizes.state != 0 && num_tiles<Large>(request.sizes) >= request.device.multiprocessors;
    return fills ? choice<T, Large>(request.sizes, together) : choice<T, SmallTile<Accumulate<T>>>(request.sizes, together);
  });
}

}  // namespace narrows::gpu
