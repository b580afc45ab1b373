// SPDX-License-Identifier: Apache-2.0
// conv1d_mma_sm80.cu -- correlations of f16 and bf16 as products on NVIDIA's matrix units, any strides. The reduction runs over
// groups of 8 channels of one tap, then of the next. Weights are packed in that order, with zeros up to whole tiles, into the
// workspace. A thread gathers 8 channels of one position: neighbouring threads read neighbouring positions.
#include "conv1d_mma_sm80.h"
#include "conv1d_native.h"

namespace narrows::gpu {
namespace {

struct MmaShape {
  Correlation c;
  int64_t columns, row_tiles, column_tiles, blocks;
  int channel_groups, groups_of_depth, stages;  // of 8 channels; of 8 along the reduction; of kMmaDepth
  int64_t packed_group;                         // elements of a group's packed weights
  bool channels_together;                       // 8 channels of a position lie in 16 aligned bytes
  bool rows_together;                           // 8 outputs of a row do
};

// packed[group][row tile][stage][row][kMmaDepth], zeros where there is no weight.
template <class T>
__global__ void pack_weights(const MmaShape s, const T* w, T* packed) {
  const int64_t total = s.c.groups * s.packed_group;
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < total; i += int64_t{gridDim.x} * blockDim.x) {
    const int64_t k = i % kMmaDepth, row = i / kMmaDepth % kMmaRows, stage = i / (kMmaDepth * kMmaRows) % s.stages;
    const int64_t rest = i / (kMmaDepth * kMmaRows) / s.stages, m = rest % s.row_tiles * kMmaRows + row, group = rest / s.row_tiles;
    const int64_t depth = stage * kMmaDepth + k, tap = depth / 8 / s.channel_groups;
    const int64_t channel = depth / 8 % s.channel_groups * 8 + depth % 8;
    const bool there = m < s.c.outs && tap < s.c.taps && channel < s.c.ins;
    packed[i] = there ? w[group * s.c.w_group + m * s.c.w_out + channel * s.c.w_in + tap * s.c.w_tap] : narrowed<T>(0.0f);
  }
}

// What a thread gathers in a stage: groups of 8 along the reduction, at one column.
template <class T>
struct WindowGather {
  const T* row;    // position 0 of the column's batch
  int64_t first;   // what tap 0 reads; far outside if there is no such column
  int tap, group;  // of the next 8

  __device__ __forceinline__ WindowGather(const MmaShape& s, const T* in, int64_t column, int start) {
    const int64_t n = column / s.c.length, q = column % s.c.length;
    row = in + n * s.c.in_batch;
    first = q * s.c.step + s.c.origin;
    tap = column < s.columns ? start / s.channel_groups : static_cast<int>(s.c.taps);
    group = start % s.channel_groups;
  }
  // Gathers, and goes on by `step` groups.
  __device__ __forceinline__ uint4 next(const MmaShape& s, int step) {
    uint4 out = {0, 0, 0, 0};
    if (tap < s.c.taps) {
      const int64_t position = first + tap * s.c.tap_step;
      if (position >= 0 && position < s.c.extent) {
        const T* from = row + position * s.c.in_position + group * 8 * s.c.in_channel;
        if (s.channels_together)
          out = *reinterpret_cast<const uint4*>(from);
        else if (group * 8 + 8 <= s.c.ins)
          out = gather(from, s.c.in_channel, 8);
        else
          out = gather(from, s.c.in_channel, s.c.ins - group * 8);
      }
      for (group += step; group >= s.channel_groups; group -= s.channel_groups) ++tap;
    }
    return out;
  }
};

constexpr int kStageBytes = kMmaRows * kMmaDepth * 2, kPitch = kMmaColumns + 8;  // of an operand; elements of a staged row of sums

// Sums to shared memory, then whole rows to the output.
template <class T>
__device__ __forceinline__ void store_tile(const MmaShape& s, const Operands& p, const MmaSums& sums, T* staged, int64_t group,
                                           int64_t m0, int64_t column0) {
  const Correlation& c = s.c;
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = MmaSums::row(i, half * 2);
      float add = 0;
      if (p.bias != nullptr && m0 + row < c.outs)
        add = widen(static_cast<const T*>(p.bias)[(group * c.outs + m0 + row) * c.bias_stride]);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const uint32_t pair = narrow_pair(sums.at[i][j][half * 2] + add, sums.at[i][j][half * 2 + 1] + add, T{});
        memcpy(staged + row * kPitch + MmaSums::column(j, 0), &pair, 4);
      }
    }
  __syncthreads();
  T* const out = static_cast<T*>(p.out) + c.out_offset + group * c.out_group + m0 * c.out_channel;
  const int rows = static_cast<int>(c.outs - m0 < kMmaRows ? c.outs - m0 : kMmaRows);
  if (s.rows_together) {  // a batch's length is a multiple of 8, so no 8 outputs belong to two
    const int64_t column = column0 + threadIdx.x % 16 * 8, n = column / c.length, q = column % c.length;
    if (column >= s.columns) return;
    for (int row = threadIdx.x / 16; row < rows; row += kMmaThreads / 16)
      *reinterpret_cast<uint4*>(out + n * c.out_batch + q + row * c.out_channel) =
          *reinterpret_cast<const uint4*>(staged + row * kPitch + threadIdx.x % 16 * 8);
  } else {
    const int64_t column = column0 + threadIdx.x % kMmaColumns, n = column / c.length, q = column % c.length;
    if (column >= s.columns) return;
    T* const to = out + n * c.out_batch + q * c.out_position;
    for (int row = threadIdx.x / kMmaColumns; row < rows; row += kMmaThreads / kMmaColumns)
      to[row * c.out_channel] = staged[row * kPitch + threadIdx.x % kMmaColumns];
  }
}

template <class T>
__global__ void __launch_bounds__(kMmaThreads, 2) correlate_mma(const MmaShape s, const Operands p, const T* packed) {
  // Two stages of both operands; afterwards the staged sums.
  __shared__ __align__(16) T memory[kMmaRows * kPitch > 4 * kStageBytes / 2 ? kMmaRows * kPitch : 4 * kStageBytes / 2];
  const uint32_t a = shared_address(memory), b = a + 2 * kStageBytes;
  const int tid = static_cast<int>(threadIdx.x);
  const int64_t row_tile = blockIdx.x % s.row_tiles, rest = blockIdx.x / s.row_tiles;
  const int64_t column0 = rest % s.column_tiles * kMmaColumns, group = rest / s.column_tiles;
  packed += group * s.packed_group + row_tile * s.stages * (kMmaRows * kMmaDepth);
  const T* const in = static_cast<const T*>(p.a) + group * s.c.in_group;
  const int column = tid % kMmaColumns, half = tid / kMmaColumns;  // this thread gathers groups `half` and `half` + 2 of a stage
  WindowGather<T> first(s, in, column0 + column, half), second(s, in, column0 + column, half + 2);

  const auto load_weights = [&](int stage, int buffer) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int unit = i * kMmaThreads + tid;
      copy_16_bytes(a + buffer * kStageBytes + by_depth(unit / 4, unit % 4),
                    packed + int64_t{stage} * (kMmaRows * kMmaDepth) + unit * 8);
    }
  };
  const auto store_windows = [&](int buffer, const uint4& v0, const uint4& v1) {
    store_shared(b + buffer * kStageBytes + by_depth(column, half), v0);
    store_shared(b + buffer * kStageBytes + by_depth(column, half + 2), v1);
  };
  load_weights(0, 0);
  uint4 v0 = first.next(s, 4), v1 = second.next(s, 4);
  store_windows(0, v0, v1);
  wait_for_copies();
  __syncthreads();
  MmaSums sums;
#pragma unroll 1
  for (int stage = 0; stage < s.stages; ++stage) {
    const int buffer = stage % 2;
    const bool more = stage + 1 < s.stages;
    if (more) {
      load_weights(stage + 1, buffer ^ 1);
      v0 = first.next(s, 4), v1 = second.next(s, 4);
    }
    multiply_stage<T, false>(a + buffer * kStageBytes, b + buffer * kStageBytes, sums);
    if (more) {
      store_windows(buffer ^ 1, v0, v1);
      wait_for_copies();
    }
    __syncthreads();
  }
  store_tile<T>(s, p, sums, memory, group, row_tile * kMmaRows, column0);
}

class MmaPart final : public Part {
 public:
  explicit MmaPart(const CorrelationProblem& problem) : dtype_(problem.dtype) {
    const Correlation& c = s_.c = problem.c;
    s_.columns = c.batch * c.length;
    s_.row_tiles = ceil_div(c.outs, kMmaRows), s_.column_tiles = ceil_div(s_.columns, kMmaColumns);
    s_.blocks = c.groups * s_.row_tiles * s_.column_tiles;
    const int64_t channel_groups = ceil_div(c.ins, 8), depth = c.taps * channel_groups;
    fits_ = s_.blocks <= kMaxBlocks && channel_groups < kFastDivideLimit / 8 && depth < kFastDivideLimit / 2;
    if (!fits_) return;
    s_.channel_groups = static_cast<int>(channel_groups), s_.groups_of_depth = static_cast<int>(depth);
    s_.stages = static_cast<int>(ceil_div(depth, kMmaDepth / 8));
    s_.packed_group = s_.row_tiles * s_.stages * kMmaRows * kMmaDepth;
    s_.channels_together = c.in_channel == 1 && c.ins % 8 == 0 && problem.in_align >= 16 &&
                           rows_start_on(8, {{c.extent, c.in_position}, {c.batch, c.in_batch}, {c.groups, c.in_group}});
    s_.rows_together = c.out_position == 1 && c.length % 8 == 0 && problem.out_align >= 16 && c.out_offset % 8 == 0 &&
                       rows_start_on(8, {{c.batch, c.out_batch}, {c.groups, c.out_group}, {c.outs, c.out_channel}});
    workspace_size = static_cast<uint64_t>(c.groups * s_.packed_group) * 2;
    ForDtype([&]<class T>(T) {
      load_kernel(pack_weights<T>);
      load_kernel(correlate_mma<T>);
    });
  }
  bool fits() const { return fits_; }
  void launch(const Operands& p, void* workspace, gpuStream_t stream) const override {
    ForDtype([&]<class T>(T) {
      auto* packed = static_cast<T*>(workspace);
      launch_kernel(pack_weights<T>, grid_of(s_.c.groups * s_.packed_group), kThreads, 0, stream, s_,
                    static_cast<const T*>(p.b) + s_.c.w_offset, packed);
      launch_kernel(correlate_mma<T>, s_.blocks, kMmaThreads, 0, stream, s_, p, static_cast<const T*>(packed));
    });
  }

 private:
  template <class Visit>
  void ForDtype(Visit&& visit) const {
    dtype_ == Dtype::f16 ? visit(f16{}) : visit(bf16{});
  }
  Dtype dtype_;
  MmaShape s_{};
  bool fits_;
};

}  // namespace

std::unique_ptr<Part> plan_mma(const CorrelationProblem& problem) {
  if (problem.device->generation < 80 || size_of(problem.dtype) != 2 || !problem.aligned() || problem.c.ins == 0) return nullptr;
  auto part = std::make_unique<MmaPart>(problem);
  return part->fits() ? std::move(part) : nullptr;
}

}  // namespace narrows::gpu
