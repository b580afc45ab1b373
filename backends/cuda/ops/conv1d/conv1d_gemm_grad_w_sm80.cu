// SPDX-License-Identifier: Apache-2.0
// conv1d_gemm_grad_w_sm80.cu -- grad_w of f32 as a product by plain multiply-adds whose operands arrive asynchronously (cp.async),
// stages ahead. Both operands lie in shared memory as they do in memory, along the positions, and are read four positions at once.
// Taps that slide along the positions come in runs of `Taps`: the same few elements of x, in registers, serve the run. The sum over
// batch and positions is cut into slices, by shape and device alone, whose results are added in order.
#include "conv1d_native.h"
#include "conv1d_product.h"
#include "ops/copy_async_sm80.h"

namespace narrows::gpu {
namespace {

constexpr int kTileThreads = 256, kRows = 128, kDepth = 16, kStages = 3;

// A thread has 8 output channels x `Ins` input channels x `Taps` sums; 16 x 16 threads. With pitches of an odd number of vectors,
// vectors of neighbouring rows lie in different banks.
template <int Taps, int Ins>
struct SlideTile {
  static constexpr int kTaps = Taps, kIns = Ins, kChannels = 16 * Ins, kHalo = Taps - 1;
  static constexpr int kWindow = (4 + kHalo + 3) / 4;  // vectors of x that four positions read
  static constexpr int kYPitch = kDepth + 4, kXPitch = kDepth + (kHalo > 4 ? 12 : 4);
  static constexpr int kYFloats = kRows * kYPitch, kStageFloats = kYFloats + kChannels * kXPitch;
  static constexpr int kStageBytes = kStageFloats * 4, kShared = kStages * kStageBytes;
  static constexpr int kBlocksAtOnce = Ins * Taps <= 6 ? 2 : 1;
  static_assert(kHalo * kChannels <= kTileThreads);
};

struct SlideShape {
  ConvGeometry g;
  int64_t row_tiles, channel_tiles, runs, slices, blocks;
  int chunks, stages;  // of kDepth positions: in a batch, in all
  bool vectors;        // four positions of grad_y, from a multiple of four on, are 16 aligned bytes
};

using Four = detail::Group<float>;

// One thread's part of the copies: of grad_y and of x one position (four of grad_y at once, if they lie so) of every so many
// channels. A stage is one chunk of one batch.
template <class Tile>
struct Copies {
  const SlideShape& s;
  int y_row, y_place, x_row, x_place, halo_row, halo_place;  // in the tiles
  int outs, ins, halo_ins;                                   // channels from the thread's first on
  int shift;                     // the position of x that position 0 meets with the first tap of the run
  const float *y0, *x0, *halo0;  // at batch 0 and position 0
  int n, chunk;
  const float *y, *x, *halo;  // what the next stage begins with
  int y_at, x_at, halo_at;    // its positions

  __device__ __forceinline__ Copies(const SlideShape& shape, const float* grad_y, const float* in, int64_t outs_left,
                                    int64_t ins_left, int64_t tap0)
      : s(shape) {
    const int thread = static_cast<int>(threadIdx.x);
    y_row = s.vectors ? thread / 4 : thread / 16, y_place = s.vectors ? thread % 4 * 4 : thread % 16;
    x_row = thread / 16, x_place = thread % 16;
    halo_row = thread % Tile::kChannels, halo_place = kDepth + thread / Tile::kChannels;
    outs = static_cast<int>(min(outs_left, int64_t{kRows})) - y_row;
    ins = static_cast<int>(min(ins_left, int64_t{Tile::kChannels})) - x_row;
    halo_ins = thread < Tile::kHalo * Tile::kChannels ? static_cast<int>(min(ins_left, int64_t{Tile::kChannels})) - halo_row : 0;
    shift = static_cast<int>(tap0 * s.g.dilation - s.g.pad_left);
    y0 = grad_y + y_row * s.g.y.channel;
    x0 = in + x_row * s.g.x.channel;
    halo0 = in + halo_row * s.g.x.channel;
  }
  __device__ __forceinline__ void start_at(int batch, int first) {
    const ConvGeometry& g = s.g;
    n = batch, chunk = first;
    y_at = chunk * kDepth + y_place;
    x_at = (chunk * kDepth + x_place) * static_cast<int>(g.stride) + shift;
    halo_at = (chunk * kDepth + halo_place) * static_cast<int>(g.stride) + shift;
    y = y0 + n * g.y.outer + y_at * g.y.position;
    x = x0 + n * g.x.outer + x_at * g.x.position;
    halo = halo0 + n * g.x.outer + halo_at * g.x.position;
  }
  __device__ __forceinline__ void next() {
    const int step = kDepth * static_cast<int>(s.g.stride);
    y_at += kDepth, y += kDepth * s.g.y.position;
    x_at += step, x += step * s.g.x.position;
    halo_at += step, halo += step * s.g.x.position;
    if (++chunk == s.chunks) start_at(n + 1, 0);
  }
  __device__ __forceinline__ bool inside(int at) const { return static_cast<uint32_t>(at) < static_cast<uint32_t>(s.g.length); }

  __device__ __forceinline__ void start_stage(uint32_t stage) {
    const uint32_t y_to = stage + (y_row * Tile::kYPitch + y_place) * 4;
    const uint32_t x_to = stage + (Tile::kYFloats + x_row * Tile::kXPitch + x_place) * 4;
    const int rows = y_at < static_cast<int>(s.g.out_length) ? outs : 0, channels = inside(x_at) ? ins : 0;
    if (s.vectors) {
#pragma unroll
      for (int i = 0; i < kRows; i += 64) copy_16_bytes(y_to + i * (Tile::kYPitch * 4), y + i * s.g.y.channel, i < rows);
    } else {
#pragma unroll
      for (int i = 0; i < kRows; i += 16) copy_4_bytes(y_to + i * (Tile::kYPitch * 4), y + i * s.g.y.channel, i < rows);
    }
#pragma unroll
    for (int i = 0; i < Tile::kChannels; i += 16) copy_4_bytes(x_to + i * (Tile::kXPitch * 4), x + i * s.g.x.channel, i < channels);
    if (Tile::kHalo > 0 && static_cast<int>(threadIdx.x) < Tile::kHalo * Tile::kChannels)
      copy_4_bytes(stage + (Tile::kYFloats + halo_row * Tile::kXPitch + halo_place) * 4, halo, inside(halo_at) && halo_ins > 0);
    next();
  }
};

template <class Tile>
struct SlideSums {
  float at[8][Tile::kIns][Tile::kTaps] = {};
  // Threads of a warp form a rectangle of 8 x 4, warps one of 2 x 4; rows and channels of a thread are 16 apart.
  static __device__ int row() { return static_cast<int>(threadIdx.x) / 128 * 8 + static_cast<int>(threadIdx.x) % 32 / 4; }
  static __device__ int channel() { return static_cast<int>(threadIdx.x) / 32 % 4 * 4 + static_cast<int>(threadIdx.x) % 4; }

  __device__ __forceinline__ void add(const float* stage) {
    const float *y = stage + row() * Tile::kYPitch, *x = stage + Tile::kYFloats + channel() * Tile::kXPitch;
#pragma unroll
    for (int k = 0; k < kDepth; k += 4) {
      Four window[Tile::kIns][Tile::kWindow];
#pragma unroll
      for (int c = 0; c < Tile::kIns; ++c)
#pragma unroll
        for (int v = 0; v < Tile::kWindow; ++v)
          window[c][v] = *reinterpret_cast<const Four*>(x + c * (16 * Tile::kXPitch) + k + v * 4);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const Four gradient = *reinterpret_cast<const Four*>(y + i * (16 * Tile::kYPitch) + k);
#pragma unroll
        for (int e = 0; e < 4; ++e)
#pragma unroll
          for (int c = 0; c < Tile::kIns; ++c)
#pragma unroll
            for (int tap = 0; tap < Tile::kTaps; ++tap)
              at[i][c][tap] = fmaf(gradient.at[e], window[c][(e + tap) / 4].at[(e + tap) % 4], at[i][c][tap]);
      }
    }
  }
  // The first `count` positions. What lies behind them is of x, and zeros of grad_y would make NaN of an infinity.
  __device__ __forceinline__ void add_some(const float* stage, int count) {
    const float *y = stage + row() * Tile::kYPitch, *x = stage + Tile::kYFloats + channel() * Tile::kXPitch;
#pragma unroll 1
    for (int k = 0; k < count; ++k)
#pragma unroll
      for (int i = 0; i < 8; ++i)
#pragma unroll
        for (int c = 0; c < Tile::kIns; ++c)
#pragma unroll
          for (int tap = 0; tap < Tile::kTaps; ++tap)
            at[i][c][tap] = fmaf(y[i * (16 * Tile::kYPitch) + k], x[c * (16 * Tile::kXPitch) + k + tap], at[i][c][tap]);
  }
};

// Where the stage behind one begins, in a ring.
template <class Tile>
__device__ __forceinline__ int next_stage(int at) {
  return at == (kStages - 1) * Tile::kStageBytes ? 0 : at + Tile::kStageBytes;
}

template <class Tile>
__global__ void __launch_bounds__(kTileThreads, Tile::kBlocksAtOnce)
    grad_w_slides(const SlideShape s, const Strides3 to, const Operands p, float* partial) {
  extern __shared__ Four memory[];
  float* const stages = memory[0].at;
  const ConvGeometry& g = s.g;
  int64_t rest = blockIdx.x;
  const int64_t row0 = rest % s.row_tiles * kRows;
  rest /= s.row_tiles;
  const int64_t channel0 = rest % s.channel_tiles * Tile::kChannels;
  rest /= s.channel_tiles;
  const int64_t tap0 = rest % s.runs * Tile::kTaps;
  rest /= s.runs;
  const int64_t slice = rest % s.slices, group = rest / s.slices;
  const int begin = static_cast<int>(slice_begin(s.stages, s.slices, slice));
  const int end = static_cast<int>(slice_begin(s.stages, s.slices, slice + 1));

  Copies<Tile> copies(s, static_cast<const float*>(p.a) + (group * g.outs() + row0) * g.y.channel,
                      static_cast<const float*>(p.b) + (group * g.ins() + channel0) * g.x.channel, g.outs() - row0,
                      g.ins() - channel0, tap0);
  copies.start_at(begin / s.chunks, begin % s.chunks);
  const uint32_t first_stage = shared_address(stages);
  for (int i = 0; i < kStages - 1; ++i) {
    if (begin + i < end) copies.start_stage(first_stage + i * Tile::kStageBytes);
    end_stage();
  }
  SlideSums<Tile> sums;
  const int tail = static_cast<int>(g.out_length % kDepth);  // positions in the last chunk of a batch, if it isn't whole
  int until_tail = tail == 0 ? s.stages : s.chunks - 1 - begin % s.chunks;
  int read = 0, write = (kStages - 1) * Tile::kStageBytes;  // bytes from the first stage on
#pragma unroll 1
  for (int stage = begin; stage < end; ++stage) {
    wait_for_stage<kStages - 2>();
    __syncthreads();  // this stage is there for all, and nobody reads the one before any more
    if (stage + kStages - 1 < end) copies.start_stage(first_stage + write);
    end_stage();
    const float* const here = stages + read / 4;
    if (until_tail-- != 0) {
      sums.add(here);
    } else {
      sums.add_some(here, tail);
      until_tail = s.chunks - 1;
    }
    read = next_stage<Tile>(read), write = next_stage<Tile>(write);
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int64_t m = row0 + SlideSums<Tile>::row() + i * 16, out = group * g.outs() + m;
    if (m >= g.outs()) continue;
#pragma unroll
    for (int c = 0; c < Tile::kIns; ++c) {
      const int64_t channel = channel0 + SlideSums<Tile>::channel() + c * 16;
      if (channel >= g.ins()) continue;
#pragma unroll
      for (int tap = 0; tap < Tile::kTaps; ++tap)
        if (s.slices > 1)
          partial[((slice * g.out_channels + out) * g.ins() + channel) * g.taps + tap0 + tap] = sums.at[i][c][tap];
        else
          static_cast<float*>(p.out)[out * to.outer + channel * to.channel + (tap0 + tap) * to.position] = sums.at[i][c][tap];
    }
  }
}

// Positions, also those before and behind the signal that a stage may name, and stages.
bool counts_in_32_bits(const ConvGeometry& g) {
  constexpr double kLimit = 1 << 30;
  const auto last = static_cast<double>(g.out_length + 2 * kDepth);
  return static_cast<double>(g.length) < kLimit && static_cast<double>(g.batch) * last < kLimit &&
         last * static_cast<double>(g.stride) + static_cast<double>(g.taps) * static_cast<double>(g.dilation) +
                 std::abs(static_cast<double>(g.pad_left)) <
             kLimit;
}

// The fewest slices that leave the least of `slots` blocks at once idle, within a hundredth; none is shorter than 4 stages.
int64_t slices_that_fill(int64_t slots, int64_t tiles, int64_t stages) {
  const int64_t most = std::min(stages / 4, 4 * slots / tiles);
  int64_t best = 1;
  double best_filled = 0;
  for (int64_t slices = 1; slices <= most; ++slices) {
    const int64_t blocks = tiles * slices;
    const double filled = static_cast<double>(blocks) / static_cast<double>(ceil_div(blocks, slots) * slots);
    if (filled > 1.01 * best_filled) best = slices, best_filled = filled;
  }
  return best;
}

template <class Tile>
class SlidesPart final : public Part {
 public:
  explicit SlidesPart(const SumProblem& problem) : to_(problem.to.strides) {
    const ConvGeometry& g = s_.g = problem.g;
    if (!counts_in_32_bits(g)) return;
    s_.vectors = problem.y_align >= 16 && g.y.position == 1 && g.out_length % 4 == 0 && g.y.channel % 4 == 0 && g.y.outer % 4 == 0;
    s_.row_tiles = ceil_div(g.outs(), kRows), s_.channel_tiles = ceil_div(g.ins(), Tile::kChannels);
    s_.runs = g.taps / Tile::kTaps;
    s_.chunks = static_cast<int>(ceil_div(g.out_length, kDepth)), s_.stages = static_cast<int>(g.batch * s_.chunks);
    const int64_t tiles = g.groups * s_.row_tiles * s_.channel_tiles * s_.runs;
    s_.slices = slices_that_fill(problem.device->multiprocessors * Tile::kBlocksAtOnce, tiles, s_.stages);
    s_.blocks = tiles * s_.slices;
    if (!fits()) return;
    load_kernel(grad_w_slides<Tile>, Tile::kShared);
    sum_ = {g.dtype, s_.slices, problem.to};
    if (s_.slices == 1) return;
    sum_.load();
    workspace_size = sum_.bytes();
  }
  bool fits() const { return s_.blocks > 0 && s_.blocks <= kMaxBlocks; }
  void launch(const Operands& p, void* workspace, gpuStream_t stream) const override {
    launch_kernel(grad_w_slides<Tile>, s_.blocks, kTileThreads, Tile::kShared, stream, s_, to_, p, static_cast<float*>(workspace));
    if (s_.slices > 1) sum_.launch(workspace, p.out, stream);
  }

 private:
  SlideShape s_{};
  Strides3 to_;
  SliceSum sum_{};
};

template <int Taps, int Ins>
std::unique_ptr<Part> plan_slides(const SumProblem& problem) {
  using Tile = SlideTile<Taps, Ins>;
  if (ceil_div(problem.g.ins(), Tile::kChannels) * Tile::kChannels * 2 > problem.g.ins() * 3) return nullptr;
  auto part = std::make_unique<SlidesPart<Tile>>(problem);
  return part->fits() ? std::move(part) : nullptr;
}

// The wider tile, unless that leaves more of itself empty than it gains.
template <int Taps, int Wide, int Narrow>
std::unique_ptr<Part> plan_slides(const SumProblem& problem) {
  const auto padded = [&](int ins) { return ceil_div(problem.g.ins(), 16 * ins) * ins; };
  return padded(Narrow) * 17 < padded(Wide) * 16 ? plan_slides<Taps, Narrow>(problem) : plan_slides<Taps, Wide>(problem);
}

}  // namespace

std::unique_ptr<Part> plan_grad_w_gemm_pipelined(const SumProblem& problem) {
  const ConvGeometry& g = problem.g;
  if (problem.device->generation < 80 || g.dtype != Dtype::f32 || g.ins() == 0 || g.outs() <= kRows / 2) return nullptr;
  if (g.dilation == g.stride || g.taps == 1) {
    if (g.taps % 5 == 0) return plan_slides<5, 3, 2>(problem);
    if (g.taps % 4 == 0) return plan_slides<4, 4, 2>(problem);
    if (g.taps % 7 == 0) return plan_slides<7, 2, 1>(problem);
    if (g.taps % 3 == 0) return plan_slides<3, 5, 4>(problem);
    if (g.taps % 2 == 0) return plan_slides<2, 8, 4>(problem);
  }
  return plan_slides<1, 16, 5>(problem);
}

}  // namespace narrows::gpu
