// conv1d_gemm_sm80.cu -- correlations of f32 as products by plain multiply-adds whose operands arrive asynchronously (cp.async),
// several stages ahead. Step 5 of a tensor's path. Weights are packed by stages, with zeros up to whole tiles, into the workspace;
// elements of x are copied one by one, so that any strides will do.
#include "conv1d_native.h"
#include "conv1d_product.h"

namespace narrows::gpu {
namespace {

constexpr int kRows = 128, kColumns = 128, kDepth = 16, kStages = 4, kTileThreads = 256;
constexpr int kStageFloats = kDepth * (kRows + kColumns);
constexpr size_t kShared = kStages * kStageFloats * sizeof(float);

struct PipelineShape {
  Correlation c;
  int64_t columns, row_tiles, column_tiles, blocks;
  int stages, taps, depth;
  int64_t packed_group;  // elements of a group's packed weights
};

using Four = detail::Group<float>;

__device__ __forceinline__ uint32_t address_of(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }
__device__ __forceinline__ void copy_16_bytes(uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
// Zero where `there` is false.
__device__ __forceinline__ void copy_4_bytes(uint32_t to, const void* from, bool there) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(there ? 4 : 0) : "memory");
}
__device__ __forceinline__ void end_stage() { asm volatile("cp.async.commit_group;" ::: "memory"); }
__device__ __forceinline__ void wait_for_stage() { asm volatile("cp.async.wait_group %0;" ::"n"(kStages - 2) : "memory"); }

// packed[group][row tile][k][row]
__global__ void pack_rows(const PipelineShape s, const float* w, float* packed) {
  const int64_t total = s.c.groups * s.packed_group;
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < total; i += int64_t{gridDim.x} * blockDim.x) {
    const int row = static_cast<int>(i % kRows), depth = s.stages * kDepth;
    const int64_t rest = i / kRows, tile = rest / depth;
    const int k = static_cast<int>(rest - tile * depth), channel = k / s.taps, tap = k - channel * s.taps;
    const int64_t m = tile % s.row_tiles * kRows + row, group = tile / s.row_tiles;
    const bool there = m < s.c.outs && k < s.depth;
    packed[i] = there ? w[group * s.c.w_group + m * s.c.w_out + channel * s.c.w_in + tap * s.c.w_tap] : 0.0f;
  }
}

// One thread's part of the copies: of x every second k of one column.
struct Copies {
  const float *packed, *row;  // row: position 0 of the column's batch
  int64_t first;              // what tap 0 reads; far outside if there is no such column
  int channel, tap;

  __device__ __forceinline__ void start_stage(const PipelineShape& s, float* stage) {
    const int tid = static_cast<int>(threadIdx.x);
    const uint32_t weights = address_of(stage), x = address_of(stage + kDepth * kRows);
#pragma unroll
    for (int i = 0; i < kDepth * kRows / 4 / kTileThreads; ++i)
      copy_16_bytes(weights + (i * kTileThreads + tid) * 16, packed + (i * kTileThreads + tid) * 4);
    packed += kDepth * kRows;
#pragma unroll
    for (int i = 0; i < kDepth / 2; ++i) {
      const int64_t position = first + tap * s.c.tap_step;
      const bool there = channel < s.c.ins && position >= 0 && position < s.c.extent;
      const float* from = there ? row + channel * s.c.in_channel + position * s.c.in_position : row;
      copy_4_bytes(x + ((i * 2 + tid / kColumns) * kColumns + tid % kColumns) * 4, from, there);
      for (tap += 2; tap >= s.taps; tap -= s.taps) ++channel;
    }
  }
};

struct Sums {
  float at[8][8] = {};
  // Threads of a warp form a rectangle of 8 x 4, warps one of 2 x 4; a thread has 2 x 2 blocks of 4 x 4.
  static __device__ int row() { return static_cast<int>(threadIdx.x) / 128 * 32 + static_cast<int>(threadIdx.x) % 32 / 4 * 4; }
  static __device__ int column() { return static_cast<int>(threadIdx.x) / 32 % 4 * 16 + static_cast<int>(threadIdx.x) % 4 * 4; }

  __device__ __forceinline__ void add(const float* stage) {
    const Four* a = reinterpret_cast<const Four*>(stage + row());
    const Four* b = reinterpret_cast<const Four*>(stage + kDepth * kRows + column());
#pragma unroll
    for (int k = 0; k < kDepth; ++k) {
      const Four a0 = a[k * kRows / 4], a1 = a[k * kRows / 4 + 16], b0 = b[k * kColumns / 4], b1 = b[k * kColumns / 4 + 16];
#pragma unroll
      for (int i = 0; i < 8; ++i)
#pragma unroll
        for (int j = 0; j < 8; ++j) at[i][j] = fmaf(i < 4 ? a0.at[i] : a1.at[i - 4], j < 4 ? b0.at[j] : b1.at[j - 4], at[i][j]);
    }
  }
};

__global__ void __launch_bounds__(kTileThreads, 2)
    correlate_pipelined(const PipelineShape s, const Operands p, const float* packed) {
  extern __shared__ Four memory[];
  float* const stages = memory[0].at;
  const Correlation& c = s.c;
  const int64_t row_tile = blockIdx.x % s.row_tiles, rest = blockIdx.x / s.row_tiles;
  const int64_t column0 = rest % s.column_tiles * kColumns, group = rest / s.column_tiles, m0 = row_tile * kRows;
  const int64_t mine = column0 + threadIdx.x % kColumns, n = mine / c.length;
  Copies copies{packed + group * s.packed_group + row_tile * s.stages * (kDepth * kRows),
                static_cast<const float*>(p.a) + group * c.in_group + (mine < s.columns ? n * c.in_batch : 0),
                mine < s.columns ? (mine - n * c.length) * c.step + c.origin : 0, mine < s.columns ? 0 : static_cast<int>(c.ins),
                static_cast<int>(threadIdx.x) / kColumns};
  for (; copies.tap >= s.taps; copies.tap -= s.taps) ++copies.channel;
  for (int i = 0; i < kStages - 1; ++i) {
    if (i < s.stages) copies.start_stage(s, stages + i * kStageFloats);
    end_stage();
  }
  Sums sums;
#pragma unroll 1
  for (int stage = 0; stage < s.stages; ++stage) {
    wait_for_stage();
    __syncthreads();  // this stage is there for all, and nobody reads the one before any more
    if (stage + kStages - 1 < s.stages) copies.start_stage(s, stages + (stage + kStages - 1) % kStages * kStageFloats);
    end_stage();
    sums.add(stages + stage % kStages * kStageFloats);
  }
  float* const out = static_cast<float*>(p.out) + c.out_offset + group * c.out_group;
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const int64_t column = column0 + Sums::column() + j / 4 * 64 + j % 4;
    if (column >= s.columns) continue;
    const int64_t batch = column / c.length;
    float* const to = out + batch * c.out_batch + (column - batch * c.length) * c.out_position;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int64_t m = m0 + Sums::row() + i / 4 * 64 + i % 4;
      if (m >= c.outs) continue;
      const float add = p.bias == nullptr ? 0.0f : static_cast<const float*>(p.bias)[(group * c.outs + m) * c.bias_stride];
      to[m * c.out_channel] = sums.at[i][j] + add;
    }
  }
}

class PipelinedPart final : public Part {
 public:
  explicit PipelinedPart(const CorrelationProblem& problem) {
    const Correlation& c = s_.c = problem.c;
    s_.columns = c.batch * c.length;
    s_.row_tiles = ceil_div(c.outs, kRows), s_.column_tiles = ceil_div(s_.columns, kColumns);
    s_.blocks = c.groups * s_.row_tiles * s_.column_tiles;
    if (!fits()) return;
    s_.taps = static_cast<int>(c.taps), s_.depth = static_cast<int>(c.ins * c.taps);
    s_.stages = static_cast<int>(ceil_div(s_.depth, kDepth));
    s_.packed_group = s_.row_tiles * s_.stages * kDepth * kRows;
    workspace_size = static_cast<uint64_t>(c.groups * s_.packed_group) * sizeof(float);
    load_kernel(pack_rows);
    load_kernel(correlate_pipelined, kShared);
  }
  bool fits() const { return s_.blocks <= kMaxBlocks; }
  void launch(const Operands& p, void* workspace, gpuStream_t stream) const override {
    auto* packed = static_cast<float*>(workspace);
    launch_kernel(pack_rows, grid_of(s_.c.groups * s_.packed_group), kThreads, 0, stream, s_,
                  static_cast<const float*>(p.b) + s_.c.w_offset, packed);
    launch_kernel(correlate_pipelined, s_.blocks, kTileThreads, kShared, stream, s_, p, static_cast<const float*>(packed));
  }

 private:
  PipelineShape s_{};
};

}  // namespace

std::unique_ptr<Part> plan_gemm_pipelined(const CorrelationProblem& problem) {
  const Correlation& c = problem.c;
  if (problem.device->compute_capability < 80 || problem.dtype != Dtype::f32 || c.ins == 0) return nullptr;
  if (c.taps > (1 << 20) || c.ins > (1 << 20) || c.ins * c.taps > (1 << 28) || c.outs <= kRows / 2) return nullptr;
  auto part = std::make_unique<PipelinedPart>(problem);
  return part->fits() ? std::move(part) : nullptr;
}

}  // namespace narrows::gpu
