// SPDX-License-Identifier: Apache-2.0
// conv1d_mma_grad_w_sm80.cu -- grad_w of f16 and bf16 as a product on NVIDIA's matrix units, any strides. A row for each output
// channel, 8 columns for each tap and 8 channels; the reduction runs over 8 positions of one batch, then of the next. It is cut
// into slices, by shape and device alone, whose results are added in order.
#include "conv1d_mma_sm80.h"
#include "conv1d_native.h"

namespace narrows::gpu {
namespace {

struct MmaGradWShape {
  ConvGeometry g;
  Strides3 to;
  FastDivide position_groups;  // of 8 positions, in a batch
  int channel_groups, column_groups;
  int64_t depth_groups, stages, row_tiles, column_tiles, slices, blocks;
  bool positions_together;  // 8 positions of grad_y lie in 16 aligned bytes
  bool channels_together;   // 8 channels of x do
};

// partial[slice][output channel][column]
template <class T>
__global__ void __launch_bounds__(kMmaThreads, 2) grad_w_mma(const MmaGradWShape s, const Operands p, float* partial) {
  constexpr int kStageBytes = kMmaRows * kMmaDepth * 2;
  __shared__ __align__(16) unsigned char memory[4 * kStageBytes];
  const uint32_t a = shared_address(memory), b = a + 2 * kStageBytes;
  const int tid = static_cast<int>(threadIdx.x), lane = tid % 32;
  const ConvGeometry& g = s.g;
  const int64_t row0 = blockIdx.x % s.row_tiles * kMmaRows, rest = blockIdx.x / s.row_tiles;
  const int64_t column_tile = rest % s.column_tiles, slice = rest / s.column_tiles % s.slices,
                group = rest / s.column_tiles / s.slices;
  const T* const grad_y = static_cast<const T*>(p.a) + group * g.outs() * g.y.channel;
  const T* const x = static_cast<const T*>(p.b) + group * g.ins() * g.x.channel;

  // Of grad_y a thread brings 8 positions of two rows; of x 8 channels of one position, for two groups of columns.
  uint4 va[2], vb[2];
  const auto fetch = [&](int64_t stage) {
    uint32_t n, t;
    int64_t index = stage * (kMmaDepth / 8) + tid % 4;
    s.position_groups.divide(static_cast<uint32_t>(index), &n, &t);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int64_t row = row0 + (i * kMmaThreads + tid) / 4, left = g.out_length - int64_t{t} * 8;
      va[i] = {0, 0, 0, 0};
      if (row >= g.outs() || index >= s.depth_groups) continue;
      const T* from = grad_y + row * g.y.channel + n * g.y.outer + int64_t{t} * 8 * g.y.position;
      va[i] = s.positions_together ? *reinterpret_cast<const uint4*>(from) : gather(from, g.y.position, left);
    }
    index = stage * (kMmaDepth / 8) + lane / 8;
    s.position_groups.divide(static_cast<uint32_t>(index), &n, &t);
    const int64_t at = int64_t{t} * 8 + lane % 8;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int column_group = static_cast<int>(column_tile) * (kMmaColumns / 8) + tid / 32 + i * 8;
      const int tap = column_group / s.channel_groups, channels = column_group % s.channel_groups * 8;
      vb[i] = {0, 0, 0, 0};
      if (column_group >= s.column_groups || index >= s.depth_groups || at >= g.out_length) continue;
      const int64_t position = at * g.stride + tap * g.dilation - g.pad_left;
      if (position < 0 || position >= g.length) continue;
      const T* from = x + n * g.x.outer + position * g.x.position + channels * g.x.channel;
      if (s.channels_together)
        vb[i] = *reinterpret_cast<const uint4*>(from);
      else if (channels + 8 <= g.ins())
        vb[i] = gather(from, g.x.channel, 8);
      else
        vb[i] = gather(from, g.x.channel, g.ins() - channels);
    }
  };
  const auto store = [&](int buffer) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      store_shared(a + buffer * kStageBytes + by_depth((i * kMmaThreads + tid) / 4, tid % 4), va[i]);
      store_shared(b + buffer * kStageBytes + by_column(lane, tid / 32 + i * 8), vb[i]);
    }
  };
  MmaSums sums;
  const int64_t begin = slice_begin(s.stages, s.slices, slice), end = slice_begin(s.stages, s.slices, slice + 1);
  fetch(begin);
  store(0);
  __syncthreads();
#pragma unroll 1
  for (int64_t stage = begin; stage < end; ++stage) {
    const int buffer = static_cast<int>(stage - begin) % 2;
    const bool more = stage + 1 < end;
    if (more) fetch(stage + 1);
    multiply_stage<T, true>(a + buffer * kStageBytes, b + buffer * kStageBytes, sums);
    if (more) store(buffer ^ 1);
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int64_t row = row0 + MmaSums::row(i, half * 2), columns = int64_t{s.column_groups} * 8;
      if (row >= g.outs()) continue;
      float* const to = partial + (slice * g.out_channels + group * g.outs() + row) * columns;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int64_t column = column_tile * kMmaColumns + MmaSums::column(j, 0);
        if (column < columns) *reinterpret_cast<float2*>(to + column) = {sums.at[i][j][half * 2], sums.at[i][j][half * 2 + 1]};
      }
    }
}

template <class T>
__global__ void add_grad_w(const MmaGradWShape s, const float* partial, T* grad_w) {
  const int64_t columns = int64_t{s.column_groups} * 8, total = s.g.out_channels * columns;
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < total; i += int64_t{gridDim.x} * blockDim.x) {
    const int64_t out = i / columns, column = i % columns, tap = column / 8 / s.channel_groups;
    const int64_t channel = column - tap * s.channel_groups * 8;
    if (channel >= s.g.ins()) continue;
    grad_w[out * s.to.outer + channel * s.to.channel + tap * s.to.position] = narrowed<T>(sum_slices(partial + i, total, s.slices));
  }
}

class MmaGradWPart final : public Part {
 public:
  explicit MmaGradWPart(const SumProblem& problem) {
    const ConvGeometry& g = s_.g = problem.g;
    s_.to = problem.to.strides;
    const int64_t channel_groups = ceil_div(g.ins(), 8), column_groups = channel_groups * g.taps;
    const int64_t position_groups = ceil_div(g.out_length, 8);
    s_.depth_groups = g.batch * position_groups;
    if (column_groups >= kFastDivideLimit / 16 || s_.depth_groups >= kFastDivideLimit / 2) return;
    s_.channel_groups = static_cast<int>(channel_groups), s_.column_groups = static_cast<int>(column_groups);
    s_.position_groups = FastDivide(position_groups);
    s_.stages = ceil_div(s_.depth_groups, kMmaDepth / 8);
    s_.row_tiles = ceil_div(g.outs(), kMmaRows), s_.column_tiles = ceil_div(column_groups, kMmaColumns / 8);
    const int64_t tiles = g.groups * s_.row_tiles * s_.column_tiles;
    s_.slices = std::clamp<int64_t>(2 * problem.device->multiprocessors / tiles, 1, std::max<int64_t>(s_.stages / 8, 1));
    s_.blocks = tiles * s_.slices;
    s_.positions_together = g.y.position == 1 && g.out_length % 8 == 0 && problem.y_align >= 16 &&
                            rows_start_on(8, {{g.batch, g.y.outer}, {g.out_channels, g.y.channel}});
    s_.channels_together = g.x.channel == 1 && g.ins() % 8 == 0 && problem.x_align >= 16 &&
                           rows_start_on(8, {{g.batch, g.x.outer}, {g.length, g.x.position}});
    fits_ = s_.blocks <= kMaxBlocks;
    workspace_size = static_cast<uint64_t>(s_.slices * g.out_channels * column_groups * 8) * sizeof(float);
    if (!fits_) return;
    ForDtype([&]<class T>(T) {
      load_kernel(grad_w_mma<T>);
      load_kernel(add_grad_w<T>);
    });
  }
  bool fits() const { return fits_; }
  void launch(const Operands& p, void* workspace, gpuStream_t stream) const override {
    ForDtype([&]<class T>(T) {
      auto* partial = static_cast<float*>(workspace);
      launch_kernel(grad_w_mma<T>, s_.blocks, kMmaThreads, 0, stream, s_, p, partial);
      launch_kernel(add_grad_w<T>, grid_of(s_.g.out_channels * s_.column_groups * 8), kThreads, 0, stream, s_,
                    static_cast<const float*>(partial), static_cast<T*>(p.out));
    });
  }

 private:
  template <class Visit>
  void ForDtype(Visit&& visit) const {
    s_.g.dtype == Dtype::f16 ? visit(f16{}) : visit(bf16{});
  }
  MmaGradWShape s_{};
  bool fits_ = false;
};

}  // namespace

std::unique_ptr<Part> plan_grad_w_mma(const SumProblem& problem) {
  if (problem.device->generation < 80 || size_of(problem.g.dtype) != 2 || !problem.aligned()) return nullptr;
  auto part = std::make_unique<MmaGradWPart>(problem);
  return part->fits() ? std::move(part) : nullptr;
}

}  // namespace narrows::gpu
