// SPDX-License-Identifier: Apache-2.0
// conv1d_fir_sm80.cu -- long filters over one f32 channel in contiguous rows: persistent blocks with two tiles, of which one
// arrives (cp.async) while the other is computed. See conv1d_fir.h.
#include "conv1d_fir.h"
#include "conv1d_native.h"
#include "ops/copy_async_sm80.h"
#include "overlap.h"

namespace narrows::gpu {
namespace {

using Group4 = detail::Group<float>;

// Starts the copies of positions [first, first + 4 * groups) of a row, zeros outside [0, extent). `first` is a multiple of 4.
template <int Threads>
__device__ __forceinline__ void fetch(const float* row, int64_t extent, int64_t first, int groups, Group4* tile) {
  if (first >= 0 && first + 4 * groups <= extent) {
    for (int i = threadIdx.x; i < groups; i += Threads) copy_16_bytes(shared_address(tile + i), row + first + 4 * i);
  } else {
    for (int i = threadIdx.x; i < groups; i += Threads) {
      const int64_t position = first + 4 * i, left = extent - position;
      const int bytes = position < 0 || left <= 0 ? 0 : left < 4 ? static_cast<int>(left) * 4 : 16;
      copy_part_of_16_bytes(shared_address(tile + i), bytes > 0 ? row + position : row, bytes);
    }
  }
}

struct TilePlace {
  int64_t n, group, m, q0;
};
template <int Tile>
__device__ __forceinline__ TilePlace place_of(const FirShape& s, int index) {
  if (s.tiles == s.blocks) return {0, 0, 0, int64_t{index} * Tile};
  const int tiles = static_cast<int>(s.tiles), outs = static_cast<int>(s.c.outs), groups = static_cast<int>(s.c.groups);
  const int row = index / tiles;
  return {row / outs / groups, row / outs % groups, row % outs, int64_t{index % tiles} * Tile};
}

template <int R, int Threads, int Blocks, int Shift>
__global__ void __launch_bounds__(Threads, Blocks)
    fir_async(const FirShape s, const float* x, const float* w, const float* bias, float* y) {
  take_over();
  constexpr int kTile = R * Threads;
  const Correlation& c = s.c;
  const int count = static_cast<int>(c.taps), groups = fir_groups<float, R, Threads, Shift>(count);
  extern __shared__ Group4 memory[];  // two tiles, then the taps
  float* const taps = memory[2 * groups].at;
  const int blocks = static_cast<int>(s.blocks), step = static_cast<int>(gridDim.x);
  const auto start = [&](int index, Group4* tile) {
    const TilePlace at = place_of<kTile>(s, index);
    fetch<Threads>(x + at.n * c.in_batch + at.group * c.in_group, c.extent, at.q0 + c.origin - Shift, groups, tile);
  };
  start(blockIdx.x, memory);
  int64_t taps_of = -1;
  int buffer = 0;
  for (int index = blockIdx.x; index < blocks; index += step, buffer ^= 1) {
    Group4* const tile = memory + buffer * groups;
    const TilePlace at = place_of<kTile>(s, index);
    if (const int64_t filter = at.group * c.outs + at.m; filter != taps_of) {
      if (taps_of >= 0) __syncthreads();  // nobody reads the taps of the row before
      for (int j = threadIdx.x; j < count; j += Threads) taps[j] = w[at.group * c.w_group + at.m * c.w_out + j * c.w_tap];
      taps_of = filter;
    }
    wait_for_copies();
    __syncthreads();  // this tile is there for all, and nobody reads the other any more
    if (index + step < blocks) start(index + step, memory + (buffer ^ 1) * groups);
    FirSums<float, R, Shift> sums;
    sums.add(tile, reinterpret_cast<const Group4*>(taps), count);
    __syncthreads();
    sums.store(tile);  // so that whole lines go to memory
    __syncthreads();
    const float add = bias == nullptr ? 0.0f : bias[(at.group * c.outs + at.m) * c.bias_stride];
    float* const row = y + at.n * c.out_batch + at.group * c.out_group + at.m * c.out_channel + at.q0;
    if (at.q0 + kTile <= c.length) {
#pragma unroll
      for (int i = 0; i < R / 4; ++i) {
        Group4 out = tile[i * Threads + threadIdx.x];
#pragma unroll
        for (int e = 0; e < 4; ++e) out.at[e] += add;
        reinterpret_cast<Group4*>(row)[i * Threads + threadIdx.x] = out;
      }
    } else {
      for (int64_t i = threadIdx.x; i < c.length - at.q0; i += Threads) row[i] = tile[i / 4].at[i % 4] + add;
    }
  }
}

using FirKernel = void (*)(FirShape, const float*, const float*, const float*, float*);

template <int R, int Threads, int Blocks>
FirKernel kernel_of(int shift) {
  switch (shift) {
    case 0: return fir_async<R, Threads, Blocks, 0>;
    case 1: return fir_async<R, Threads, Blocks, 1>;
    case 2: return fir_async<R, Threads, Blocks, 2>;
    default: return fir_async<R, Threads, Blocks, 3>;
  }
}

class FirAsyncPart final : public Part {
 public:
  FirAsyncPart(const CorrelationProblem& problem, int shift) {
    const Correlation& c = s_.c = problem.c;
    // Few taps: memory decides, so many tiles are on their way at once. Many: registers do.
    const bool many = c.taps > 64;
    const int outputs = many ? 20 : 12, blocks = many ? 10 : 6;
    generation_ = problem.device->generation, threads_ = many ? 64 : 128;
    const int count = static_cast<int>(c.taps);
    const int groups = many ? fir_groups<float, 20, 64, 3>(count) : fir_groups<float, 12, 128, 3>(count);
    shared_ = static_cast<size_t>(2 * groups + ceil_div(count, 4)) * sizeof(Group4);
    s_.tiles = ceil_div(c.length, outputs * threads_), s_.blocks = c.batch * c.groups * c.outs * s_.tiles;
    grid_ = std::min<int64_t>(s_.blocks, int64_t{blocks} * problem.device->multiprocessors);
    kernel_ = load_kernel(many ? kernel_of<20, 64, 10>(shift) : kernel_of<12, 128, 6>(shift), shared_);
    check(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel_.symbol), cudaFuncAttributePreferredSharedMemoryCarveout,
                               cudaSharedmemCarveoutMaxShared),
          "asking for shared memory");
  }
  bool fits() const { return s_.blocks < (1 << 30); }
  void launch(const Operands& p, void*, gpuStream_t stream) const override {
    launch_overlapping(generation_, kernel_, grid_, threads_, shared_, stream, s_, static_cast<const float*>(p.a),
                       static_cast<const float*>(p.b) + s_.c.w_offset, static_cast<const float*>(p.bias),
                       static_cast<float*>(p.out) + s_.c.out_offset);
  }

 private:
  FirShape s_{};
  int generation_, threads_;
  size_t shared_;
  int64_t grid_;
  LoadedKernel<FirShape, const float*, const float*, const float*, float*> kernel_;
};

}  // namespace

std::unique_ptr<Part> plan_fir_async(const CorrelationProblem& problem) {
  const Correlation& c = problem.c;
  constexpr int64_t kMostTaps = 512;  // more would leave a multiprocessor too few blocks
  if (problem.device->generation < 80 || problem.dtype != Dtype::f32 || c.ins != 1 || c.taps > kMostTaps) return nullptr;
  if (c.in_position != 1 || c.out_position != 1 || c.out_offset % 4 != 0 || problem.in_align < 16 || problem.out_align < 16)
    return nullptr;
  if (!rows_start_on(4, {{c.batch, c.in_batch}, {c.groups, c.in_group}}) ||
      !rows_start_on(4, {{c.batch, c.out_batch}, {c.groups, c.out_group}, {c.outs, c.out_channel}}))
    return nullptr;
  auto part = std::make_unique<FirAsyncPart>(problem, static_cast<int>((c.origin % 4 + 4) % 4));
  return part->fits() ? std::move(part) : nullptr;
}

}  // namespace narrows::gpu
