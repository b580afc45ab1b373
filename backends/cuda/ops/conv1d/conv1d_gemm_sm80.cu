// SPDX-License-Identifier: Apache-2.0
// conv1d_gemm_sm80.cu -- correlations of f32 as products by plain multiply-adds whose operands arrive asynchronously (cp.async),
// stages ahead. Nothing but multiply-adds may take much of the issue slots, hence:
// - Taps that slide along the columns come in runs of `Taps`: one row of x in shared memory, and in registers, serves the run.
//   Batches follow each other in one line of columns, each with the `Taps - 1` columns more that its last outputs read.
// - A stage is kChannels channels of one run, so a thread's addresses of x change by a constant from stage to stage.
// Weights are packed by stages, with zeros up to whole tiles, into the workspace; elements of x are copied one by one, so that any
// strides will do.
#include "conv1d_native.h"
#include "conv1d_product.h"
#include "ops/copy_async_sm80.h"

namespace narrows::gpu {
namespace {

constexpr int kTileThreads = 256, kStages = 3;

// ThreadRows x (256 / ThreadRows) threads of 4 RowBlocks x Wide sums.
template <int Taps, int ThreadRows, int RowBlocks, int Wide>
struct RunTile {
  static constexpr int kTaps = Taps, kHalo = Taps - 1, kWide = Wide, kThreadRows = ThreadRows, kRowBlocks = RowBlocks;
  static constexpr int kRows = ThreadRows * RowBlocks * 4, kColumns = kTileThreads / ThreadRows * Wide;
  static constexpr int kPitch = kColumns + (kHalo + 3) / 4 * 4;
  static constexpr int kChannels = Taps == 1 ? 16 : Taps < 7 ? 8 : 4;  // of a stage
  static constexpr int kWeights = kChannels * Taps * kRows, kStageFloats = kWeights + kChannels * kPitch;
  static constexpr size_t kShared = kStages * kStageFloats * sizeof(float);
};
template <int Taps>
using SquareTile = RunTile<Taps, 16, 2, 8>;  // 128 x 128
template <int Taps>
using FlatTile = RunTile<Taps, 4, 5, 4>;  // 80 x 256

struct RunShape {
  Correlation c;
  int64_t pitch, columns;  // from batch to batch; of all
  int64_t row_tiles, column_tiles, blocks;
  int64_t packed_group;          // elements of a group's packed weights
  int rows, run_taps, channels;  // of a tile; channels of a stage
  int runs, chunks;              // chunks: stages of a run
  bool vectors;                  // four outputs of a row, from a multiple of four on, are 16 aligned bytes
};

using Four = detail::Group<float>;

// packed[group][row tile][run][channel][tap of the run][row]
__global__ void pack_rows(const RunShape s, const float* w, float* packed) {
  const int64_t total = s.c.groups * s.packed_group;
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < total; i += int64_t{gridDim.x} * blockDim.x) {
    const int row = static_cast<int>(i % s.rows), channels = s.chunks * s.channels;
    int64_t rest = i / s.rows;
    const int tap = static_cast<int>(rest % s.run_taps);
    rest /= s.run_taps;
    const int64_t channel = rest % channels;
    rest /= channels;
    const int64_t run = rest % s.runs, tile = rest / s.runs;
    const int64_t m = tile % s.row_tiles * s.rows + row, group = tile / s.row_tiles;
    const bool there = m < s.c.outs && channel < s.c.ins;
    packed[i] = there ? w[group * s.c.w_group + m * s.c.w_out + channel * s.c.w_in + (run * s.run_taps + tap) * s.c.w_tap] : 0.0f;
  }
}

// One column of x as a thread copies it: every Step-th channel from its first on.
template <class Tile>
struct Line {
  const float* batch;  // position 0 of the first channel
  int64_t position;    // what tap 0 of run 0 reads
  int ins;             // channels from the first on; 0: there is no such column
  const float* from;
  int left;  // channels from `from` on; 0: outside the signal

  Line() = default;
  __device__ __forceinline__ Line(const RunShape& s, const float* in, int64_t column, int first_channel) {
    const int64_t n = column / s.pitch;
    const bool there = column < s.columns;
    batch = in + (there ? n * s.c.in_batch : 0) + (first_channel < s.c.ins ? first_channel * s.c.in_channel : 0);
    position = there ? (column - n * s.pitch) * s.c.step + s.c.origin : 0;
    ins = there ? static_cast<int>(s.c.ins) - first_channel : 0;
  }
  __device__ __forceinline__ void start_run(const RunShape& s, int run) {
    const int64_t at = position + run * (Tile::kTaps * s.c.tap_step);
    const bool there = at >= 0 && at < s.c.extent;
    from = there ? batch + at * s.c.in_position : batch;
    left = there ? ins : 0;
  }
  template <int Copies, int Step>
  __device__ __forceinline__ void copy(const RunShape& s, uint32_t to) {
#pragma unroll
    for (int i = 0; i < Copies; ++i)
      copy_4_bytes(to + i * (Step * Tile::kPitch * 4), from + i * (Step * s.c.in_channel), i * Step < left);
    from += Tile::kChannels * s.c.in_channel;
    left -= Tile::kChannels;
  }
};

// One thread's part of the copies.
template <class Tile>
struct Copies {
  static constexpr int kColumns = Tile::kColumns < kTileThreads ? Tile::kColumns : kTileThreads;  // that the threads copy at once
  static constexpr int kLines = Tile::kColumns / kColumns, kStep = kTileThreads / kColumns;       // kStep: channels at once
  const float* packed;
  Line<Tile> line[kLines], halo;
  int run = 0, chunk = 0;

  __device__ __forceinline__ static int channel() { return static_cast<int>(threadIdx.x) / kColumns; }
  __device__ __forceinline__ static int place() { return static_cast<int>(threadIdx.x) % kColumns; }
  __device__ __forceinline__ static bool has_halo() { return static_cast<int>(threadIdx.x) < Tile::kChannels * Tile::kHalo; }
  __device__ __forceinline__ static int halo_channel() { return static_cast<int>(threadIdx.x) % Tile::kChannels; }
  __device__ __forceinline__ static int halo_place() { return Tile::kColumns + static_cast<int>(threadIdx.x) / Tile::kChannels; }

  __device__ __forceinline__ Copies(const RunShape& s, const float* in, const float* weights, int64_t column0)
      : packed(weights + threadIdx.x * 4) {
#pragma unroll
    for (int i = 0; i < kLines; ++i) line[i] = Line<Tile>(s, in, column0 + i * kColumns + place(), channel());
    halo = Line<Tile>(s, in, has_halo() ? column0 + halo_place() : s.columns, halo_channel());
  }

  __device__ __forceinline__ void start_stage(const RunShape& s, float* stage) {
    if (chunk == 0) {
#pragma unroll
      for (int i = 0; i < kLines; ++i) line[i].start_run(s, run);
      if (Tile::kHalo > 0) halo.start_run(s, run);
      ++run;
    }
    if (++chunk == s.chunks) chunk = 0;
    constexpr int kAtOnce = kTileThreads * 4;  // floats
    const uint32_t to = shared_address(stage), x = to + Tile::kWeights * 4;
#pragma unroll
    for (int i = 0; i < Tile::kWeights; i += kAtOnce)
      if (i + kAtOnce <= Tile::kWeights || i + static_cast<int>(threadIdx.x) * 4 < Tile::kWeights)
        copy_16_bytes(to + threadIdx.x * 16 + i * 4, packed + i);
    packed += Tile::kWeights;
#pragma unroll
    for (int i = 0; i < kLines; ++i)
      line[i].template copy<Tile::kChannels / kStep, kStep>(s, x + (channel() * Tile::kPitch + i * kColumns + place()) * 4);
    if (Tile::kHalo > 0 && has_halo()) halo.template copy<1, 1>(s, x + (halo_channel() * Tile::kPitch + halo_place()) * 4);
  }
};

template <class Tile>
struct RunSums {
  static constexpr int kWindow = (Tile::kWide + Tile::kHalo + 3) / 4;                   // vectors
  static constexpr int kRows = Tile::kRowBlocks * 4, kRowStep = Tile::kThreadRows * 4;  // from block to block
  float at[kRows][Tile::kWide] = {};
  // Threads of a warp form a rectangle, of 8 x 4 if there are rows enough, and warps one.
  static constexpr int kLaneRows = Tile::kThreadRows < 8 ? Tile::kThreadRows : 8, kLaneColumns = 32 / kLaneRows;
  static constexpr int kWarpColumns = kTileThreads / 32 / (Tile::kThreadRows / kLaneRows);
  static __device__ int row() {
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    return (warp / kWarpColumns * kLaneRows + lane / kLaneColumns) * 4;
  }
  static __device__ int column() {
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    return (warp % kWarpColumns * kLaneColumns + lane % kLaneColumns) * Tile::kWide;
  }

  __device__ __forceinline__ void add(const float* stage) {
    constexpr int kUnroll = Tile::kTaps == 1 ? 8 : Tile::kTaps == 2 ? 4 : 2;  // within the cache of instructions
    const Four* a = reinterpret_cast<const Four*>(stage + row());
    const Four* b = reinterpret_cast<const Four*>(stage + Tile::kWeights + column());
#pragma unroll kUnroll
    for (int channel = 0; channel < Tile::kChannels; ++channel, a += Tile::kTaps * (Tile::kRows / 4), b += Tile::kPitch / 4) {
      Four x[kWindow];
#pragma unroll
      for (int i = 0; i < kWindow; ++i) x[i] = b[i];
#pragma unroll
      for (int tap = 0; tap < Tile::kTaps; ++tap) {
        Four w[Tile::kRowBlocks];
#pragma unroll
        for (int i = 0; i < Tile::kRowBlocks; ++i) w[i] = a[tap * (Tile::kRows / 4) + i * (kRowStep / 4)];
#pragma unroll
        for (int i = 0; i < kRows; ++i)
#pragma unroll
          for (int j = 0; j < Tile::kWide; ++j) at[i][j] = fmaf(w[i / 4].at[i % 4], x[(j + tap) / 4].at[(j + tap) % 4], at[i][j]);
      }
    }
  }
};

template <class Tile>
__global__ void __launch_bounds__(kTileThreads, 2) correlate_runs(const RunShape s, const Operands p, const float* packed) {
  extern __shared__ Four memory[];
  float* const stages = memory[0].at;
  const Correlation& c = s.c;
  const int64_t row_tile = blockIdx.x % s.row_tiles, rest = blockIdx.x / s.row_tiles;
  const int64_t column0 = rest % s.column_tiles * Tile::kColumns, group = rest / s.column_tiles, m0 = row_tile * Tile::kRows;
  const int total = s.runs * s.chunks;
  Copies<Tile> copies(s, static_cast<const float*>(p.a) + group * c.in_group,
                      packed + group * s.packed_group + row_tile * total * Tile::kWeights, column0);
  for (int i = 0; i < kStages - 1; ++i) {
    if (i < total) copies.start_stage(s, stages + i * Tile::kStageFloats);
    end_stage();
  }
  RunSums<Tile> sums;
  int read = 0, write = kStages - 1;
#pragma unroll 1
  for (int stage = 0; stage < total; ++stage) {
    wait_for_stage<kStages - 2>();
    __syncthreads();  // this stage is there for all, and nobody reads the one before any more
    if (stage + kStages - 1 < total) copies.start_stage(s, stages + write * Tile::kStageFloats);
    end_stage();
    sums.add(stages + read * Tile::kStageFloats);
    read = read == kStages - 1 ? 0 : read + 1, write = write == kStages - 1 ? 0 : write + 1;
  }
  float* const out = static_cast<float*>(p.out) + c.out_offset + group * c.out_group;
#pragma unroll
  for (int j = 0; j < Tile::kWide; j += 4) {
    const int64_t column = column0 + RunSums<Tile>::column() + j;
#pragma unroll
    for (int i = 0; i < RunSums<Tile>::kRows; ++i) {
      const int64_t m = m0 + RunSums<Tile>::row() + i / 4 * RunSums<Tile>::kRowStep + i % 4;
      if (m >= c.outs) continue;
      const float add = p.bias == nullptr ? 0.0f : static_cast<const float*>(p.bias)[(group * c.outs + m) * c.bias_stride];
      float* const to = out + m * c.out_channel;
      int64_t n = column / s.pitch, q = column - n * s.pitch;
      if (s.vectors) {
        const float4 four{sums.at[i][j] + add, sums.at[i][j + 1] + add, sums.at[i][j + 2] + add, sums.at[i][j + 3] + add};
        if (column < s.columns && q < c.length) *reinterpret_cast<float4*>(to + n * c.out_batch + q) = four;
        continue;
      }
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        if (column + e < s.columns && q < c.length) to[n * c.out_batch + q * c.out_position] = sums.at[i][j + e] + add;
        if (++q == s.pitch) q = 0, ++n;
      }
    }
  }
}

template <class Tile>
class RunsPart final : public Part {
 public:
  explicit RunsPart(const CorrelationProblem& problem) {
    const Correlation& c = s_.c = problem.c;
    s_.vectors = problem.out_align >= 16 && c.out_position == 1 && c.length % 4 == 0 && c.out_offset % 4 == 0 &&
                 c.out_batch % 4 == 0 && c.out_channel % 4 == 0 && c.out_group % 4 == 0;
    s_.pitch = c.length + Tile::kHalo;
    if (s_.vectors) s_.pitch = ceil_div(s_.pitch, 4) * 4;
    s_.columns = c.batch * s_.pitch;
    s_.row_tiles = ceil_div(c.outs, Tile::kRows), s_.column_tiles = ceil_div(s_.columns, Tile::kColumns);
    s_.blocks = c.groups * s_.row_tiles * s_.column_tiles;
    s_.rows = Tile::kRows, s_.run_taps = Tile::kTaps, s_.channels = Tile::kChannels;
    s_.runs = static_cast<int>(c.taps / Tile::kTaps), s_.chunks = static_cast<int>(ceil_div(c.ins, Tile::kChannels));
    if (!fits()) return;
    s_.packed_group = s_.row_tiles * s_.runs * s_.chunks * Tile::kWeights;
    workspace_size = static_cast<uint64_t>(c.groups * s_.packed_group) * sizeof(float);
    load_kernel(pack_rows);
    load_kernel(correlate_runs<Tile>, Tile::kShared);
  }
  // Channels that are not there, and columns between batches, may cost a half more.
  bool fits() const {
    const double useful = static_cast<double>(s_.c.ins) * static_cast<double>(s_.c.batch * s_.c.length);
    return s_.blocks <= kMaxBlocks && static_cast<double>(s_.columns) * s_.chunks * Tile::kChannels <= 1.5 * useful;
  }
  void launch(const Operands& p, void* workspace, gpuStream_t stream) const override {
    auto* packed = static_cast<float*>(workspace);
    launch_kernel(pack_rows, grid_of(s_.c.groups * s_.packed_group), kThreads, 0, stream, s_,
                  static_cast<const float*>(p.b) + s_.c.w_offset, packed);
    launch_kernel(correlate_runs<Tile>, s_.blocks, kTileThreads, Tile::kShared, stream, s_, p, static_cast<const float*>(packed));
  }

 private:
  RunShape s_{};
};

template <class Tile>
std::unique_ptr<Part> plan_tile(const CorrelationProblem& problem) {
  auto part = std::make_unique<RunsPart<Tile>>(problem);
  return part->fits() ? std::move(part) : nullptr;
}

template <int Taps>
std::unique_ptr<Part> plan_runs(const CorrelationProblem& problem) {
  const auto rows = [&](int of_tile) { return ceil_div(problem.c.outs, of_tile) * of_tile; };
  const bool flat = rows(FlatTile<Taps>::kRows) < rows(SquareTile<Taps>::kRows);
  return flat ? plan_tile<FlatTile<Taps>>(problem) : plan_tile<SquareTile<Taps>>(problem);
}

}  // namespace

std::unique_ptr<Part> plan_gemm_pipelined(const CorrelationProblem& problem) {
  const Correlation& c = problem.c;
  if (problem.device->generation < 80 || problem.dtype != Dtype::f32 || c.ins == 0) return nullptr;
  if (c.taps > (1 << 20) || c.ins > (1 << 20) || c.ins * c.taps > (1 << 28) || c.outs <= 64) return nullptr;
  if (c.tap_step == c.step || c.taps == 1) {
    if (c.taps % 5 == 0) return plan_runs<5>(problem);
    if (c.taps % 4 == 0) return plan_runs<4>(problem);
    if (c.taps % 7 == 0) return plan_runs<7>(problem);
    if (c.taps % 3 == 0) return plan_runs<3>(problem);
    if (c.taps % 2 == 0) return plan_runs<2>(problem);
  }
  return plan_runs<1>(problem);
}

}  // namespace narrows::gpu
