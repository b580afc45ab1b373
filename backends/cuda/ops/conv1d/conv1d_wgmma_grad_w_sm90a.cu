// SPDX-License-Identifier: Apache-2.0
// conv1d_wgmma_grad_w_sm90a.cu -- grad_w of f16 and bf16 on Hopper's matrix units, stride 1, x and grad_y read where they lie.
//
// A block makes 128 output channels x 64 channels x a few taps; the reduction runs over blocks of 128 positions of one batch, then
// of the next, and is cut into slices, by shape and device alone, whose results are added in order. As in the forward pass
// (conv1d_wgmma_sm90a.cu) a tile of x comes once with a halo and is transposed, so that a tap is an address 16 bytes later. There
// the positions were the product's columns; here they are its depth:
//   grad_y      [2 boxes of 64 positions][128 output channels][64 positions], 128-byte swizzle: K-major; stride step 1024
//   x           [8 channels][144 positions, then 8 zeros][8 channels]: N-major ("transposed"), no swizzle; stride step (8 channels)
//               152 * 16, leading step (8 positions) 128
#include "conv1d_native.h"
#include "ops/gemm/tile_gemm.h"
#include "ops/hopper_sm90a.h"

namespace narrows::gpu {
namespace {

constexpr int kRows = 128, kDepth = 128, kMostTaps = 5;  // output channels, positions of a tile, taps of a block
constexpr int kBlockThreads = 384, kPositions = kDepth + kHalo, kTileBytes = kTileOf<kDepth>, kBox = kSlice * 128;
constexpr int kChunk = (kPositions + 8) * 16, kXBytes = kSlice / 8 * kChunk;  // of x transposed: 8 channels, all
constexpr int kGradBox = kRows * 128, kGradBytes = 2 * kGradBox;
constexpr int kRawTiles = 2, kTiles = 2, kGradTiles = 3, kBarriers = 2 * (kRawTiles + kTiles + kGradTiles);
constexpr int kSharedBytes = 1024 + kRawTiles * kTileBytes + kTiles * kXBytes + kGradTiles * kGradBytes + 8 * kBarriers;

// The taps of a block: the tile of x begins `start` after its first position of grad_y, the first tap `shift` later.
struct TapChunk {
  int start, shift;
};
constexpr int kMostChunks = 32;

struct GradWgmmaShape {
  CUtensorMap x, x_halo, grad_y;
  float* partial;  // [slice][output channel][tap][channel], channels padded to whole slices of 64
  int groups, outs, taps, channels, out_length;
  int tap_step, chunks;
  int row_tiles, channel_tiles, position_tiles, items, slices;
  TapChunk chunk[kMostChunks];
};

#define NARROWS_WGMMA(type)                                                                                                  \
  asm volatile(                                                                                                              \
      "{ .reg .pred p; setp.ne.b32 p, %34, 0;\n"                                                                             \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type                                                            \
      " {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30," \
      "%31}, %32, %33, p, 1, 1, 0, 1; }\n"                                                                                   \
      : NARROWS_SUMS8(0), NARROWS_SUMS8(8), NARROWS_SUMS8(16), NARROWS_SUMS8(24)                                             \
      : "l"(a), "l"(b), "r"(accumulate))
// 64 x 64 sums += 16 of the reduction; `accumulate` = 0: the sums start here.
template <class T>
__device__ __forceinline__ void wgmma(float (&sums)[32], uint64_t a, uint64_t b, int accumulate) {
  if constexpr (std::is_same_v<T, f16>)
    NARROWS_WGMMA("f16");
  else
    NARROWS_WGMMA("bf16");
}
#undef NARROWS_WGMMA

struct Memory {
  uint32_t raw, x, grad, raw_full, raw_empty, x_full, x_empty, grad_full, grad_empty;

  __device__ explicit Memory(uint32_t base) {
    raw = (base + 1023) & ~1023u;
    x = raw + kRawTiles * kTileBytes, grad = x + kTiles * kXBytes;
    raw_full = grad + kGradTiles * kGradBytes, raw_empty = raw_full + 8 * kRawTiles;
    x_full = raw_empty + 8 * kRawTiles, x_empty = x_full + 8 * kTiles;
    grad_full = x_empty + 8 * kTiles, grad_empty = grad_full + 8 * kGradTiles;
  }
  __device__ void init_barriers() const {
    for (int i = 0; i < kRawTiles; ++i) init_barrier(raw_full + 8 * i, 1), init_barrier(raw_empty + 8 * i, 3);
    for (int i = 0; i < kTiles; ++i) init_barrier(x_full + 8 * i, 3), init_barrier(x_empty + 8 * i, 2);
    for (int i = 0; i < kGradTiles; ++i) init_barrier(grad_full + 8 * i, 1), init_barrier(grad_empty + 8 * i, 2);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  // The zeros behind each 8 channels of x; nothing writes there again.
  __device__ void write_zeros() const {
    const int thread = static_cast<int>(threadIdx.x), chunk = thread / 8;
    if (chunk < kTiles * kSlice / 8)
      asm volatile("st.shared.v4.u32 [%0], {%1, %1, %1, %1};" ::"r"(x + chunk * kChunk + (kPositions + thread % 8) * 16), "r"(0)
                   : "memory");
    fence_proxy();
  }
};

// What this block makes: the tiles of one slice run side by side and share x and grad_y in the cache.
struct Place {
  int row, channel, chunk, group, slice, begin, end;
  __device__ explicit Place(const GradWgmmaShape& s) {
    int block = static_cast<int>(blockIdx.x);
    row = block % s.row_tiles * kRows, block /= s.row_tiles;
    channel = block % s.channel_tiles * kSlice, block /= s.channel_tiles;
    chunk = block % s.chunks, block /= s.chunks;
    group = block % s.groups, slice = block / s.groups;
    begin = static_cast<int>(slice_begin(s.items, s.slices, slice)),
    end = static_cast<int>(slice_begin(s.items, s.slices, slice + 1));
  }
};

__device__ void load(const GradWgmmaShape& s, const Memory& m, const Place& at) {
  Ring<kRawTiles> raw(kFill);
  Ring<kGradTiles> grad(kFill);
  for (int item = at.begin; item < at.end; ++item, raw.advance(), grad.advance()) {
    const int batch = item / s.position_tiles, t = item % s.position_tiles * kDepth, first = t + s.chunk[at.chunk].start;
    wait(m.raw_empty + 8 * raw.slot, raw.phase);
    uint32_t barrier = m.raw_full + 8 * raw.slot, to = m.raw + raw.slot * kTileBytes;
    expect_bytes(barrier, kTileBytes);
    for (int i = 0; i < kDepth / 64; ++i) copy_in(to + i * kBox, &s.x, barrier, first + i * 64, at.channel, at.group, batch, 0);
    copy_in(to + kDepth / 64 * kBox, &s.x_halo, barrier, first + kDepth, at.channel, at.group, batch, 0);
    wait(m.grad_empty + 8 * grad.slot, grad.phase);
    barrier = m.grad_full + 8 * grad.slot, to = m.grad + grad.slot * kGradBytes;
    expect_bytes(barrier, kGradBytes);
    for (int i = 0; i < kDepth / 64; ++i) copy_in(to + i * kGradBox, &s.grad_y, barrier, t + i * 64, at.row, at.group, batch, 0);
  }
}

__device__ void transpose(const Memory& m, const Place& at, int worker) {
  Ring<kRawTiles> raw(kDrain);
  Ring<kTiles> x(kFill);
  for (int item = at.begin; item < at.end; ++item, raw.advance(), x.advance()) {
    wait(m.raw_full + 8 * raw.slot, raw.phase);
    wait(m.x_empty + 8 * x.slot, x.phase);
    for (int half = 0; half < 2; ++half)
      transpose_32_channels<kDepth, kChunk>(m.raw + raw.slot * kTileBytes, m.x + x.slot * kXBytes, half, worker);
    fence_proxy();
    __syncwarp();
    if (threadIdx.x % 32 == 0) arrive(m.x_full + 8 * x.slot), arrive(m.raw_empty + 8 * raw.slot);
  }
}

// 16 positions of x from `first` on, in a row of which there are `outputs` from there: 8, none, or all. The others are 0 in grad_y;
// in x, which may hold an infinity there, the zeros behind its channels stand for them.
__device__ __forceinline__ uint64_t step_of_x(uint32_t first, uint32_t zeros, int outputs) {
  if (outputs <= 0) first = zeros;
  return descriptor(first, outputs < 16 ? static_cast<int>(zeros - first) : 128, kChunk, 0);
}

// kWhole: rows are whole tiles.
template <class T, int kTaps, bool kWhole>
__device__ void multiply(const GradWgmmaShape& s, const Memory& m, const Place& at, int group) {
  const bool leader = threadIdx.x % 128 == 0;
  Ring<kTiles> x(kDrain);
  Ring<kGradTiles> grad(kDrain);
  float sums[kTaps][32];
  const auto release = [&] {
    if (leader) arrive(m.x_empty + 8 * x.before()), arrive(m.grad_empty + 8 * grad.before());
  };
  for (int item = at.begin; item < at.end; ++item) {
    wait(m.x_full + 8 * x.slot, x.phase);
    wait(m.grad_full + 8 * grad.slot, grad.phase);
    const uint64_t a = descriptor(m.grad + grad.slot * kGradBytes + group * 64 * 128, 16, 1024, 1);
    const uint32_t tile = m.x + x.slot * kXBytes, first = tile + s.chunk[at.chunk].shift * 16;
    const uint64_t b = descriptor(first, 128, kChunk, 0);
    const int outputs = kWhole ? kDepth : s.out_length - item % s.position_tiles * kDepth;
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int k = 0; k < kDepth / 16; ++k)
#pragma unroll
      for (int tap = 0; tap < kTaps; ++tap) {
        const int step = k * 16 + tap * s.tap_step;
        wgmma<T>(sums[tap], a + (k / 4 * kGradBox + k % 4 * 32) / 16,
                 kWhole ? b + step : step_of_x(first + step * 16, tile + kPositions * 16, outputs - k * 16),
                 k > 0 ? 1 : item - at.begin);
      }
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");  // the item before this one has been read
    if (item > at.begin) release();
    x.advance(), grad.advance();
  }
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
  for (int tap = 0; tap < kTaps; ++tap)
#pragma unroll
    for (int i = 0; i < 32; ++i) asm volatile("" : "+f"(sums[tap][i])::"memory");

  // sums[][4g], [4g + 1]: row warp * 16 + lane / 4, columns 8g + lane % 4 * 2 and the next; [4g + 2], [4g + 3]: 8 rows below.
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32 % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = at.row + group * 64 + warp * 16 + lane / 4 + half * 8;
    if (row >= s.outs) continue;
#pragma unroll
    for (int tap = 0; tap < kTaps; ++tap) {
      const int t = at.chunk * kTaps + tap;
      if (t >= s.taps) continue;
      const int64_t out = (int64_t{at.slice} * s.groups + at.group) * s.outs + row;
      float* const to = s.partial + (out * s.taps + t) * s.channels + at.channel + lane % 4 * 2;
#pragma unroll
      for (int g = 0; g < 8; ++g)
        *reinterpret_cast<float2*>(to + g * 8) = {sums[tap][g * 4 + half * 2], sums[tap][g * 4 + half * 2 + 1]};
    }
  }
}

template <class T, int kTaps>
__global__ void __launch_bounds__(kBlockThreads, 1) grad_w_wgmma(const __grid_constant__ GradWgmmaShape s) {
  extern __shared__ uint8_t bytes[];
  const Memory m(shared_address(bytes));
  if (threadIdx.x == 0) m.init_barriers();
  m.write_zeros();
  __syncthreads();
  const Place at(s);
  const int warpgroup = static_cast<int>(threadIdx.x) / 128, warp = static_cast<int>(threadIdx.x) / 32;
  if (warpgroup == 0) {  // with fewer registers the transposition keeps addresses in memory
    asm volatile("setmaxnreg.dec.sync.aligned.u32 72;");
    if (threadIdx.x == 0) load(s, m, at);
    if (warp > 0) transpose(m, at, warp - 1);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 216;");
    s.out_length % kDepth == 0 ? multiply<T, kTaps, true>(s, m, at, warpgroup - 1)
                               : multiply<T, kTaps, false>(s, m, at, warpgroup - 1);
  }
}

struct AddShape {
  Strides3 to;
  int64_t total;  // of a slice's partial results
  int slices, taps, ins, channels;
};
template <class T>
__global__ void add_partials(const AddShape s, const float* partial, T* grad_w) {
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < s.total; i += int64_t{gridDim.x} * blockDim.x) {
    const int64_t row = i / s.channels, channel = i - row * s.channels, out = row / s.taps, tap = row - out * s.taps;
    if (channel >= s.ins) continue;
    grad_w[out * s.to.outer + channel * s.to.channel + tap * s.to.position] =
        narrowed<T>(sum_slices(partial + i, s.total, s.slices));
  }
}

template <class T, int kTaps = kMostTaps>
auto kernel_for(int taps) {
  using Kernel = void (*)(GradWgmmaShape);
  if constexpr (kTaps > 1)
    if (taps < kTaps) return static_cast<Kernel>(kernel_for<T, kTaps - 1>(taps));
  return static_cast<Kernel>(grad_w_wgmma<T, kTaps>);
}

class GradWgmmaPart final : public Part {
 public:
  explicit GradWgmmaPart(const SumProblem& problem) : g_(problem.g) {
    if (!PlanChunks()) return;
    GradWgmmaShape& s = s_;
    s.groups = static_cast<int>(g_.groups), s.outs = static_cast<int>(g_.outs()), s.taps = static_cast<int>(g_.taps);
    s.row_tiles = static_cast<int>(ceil_div(g_.outs(), kRows)), s.channel_tiles = static_cast<int>(ceil_div(g_.ins(), kSlice));
    s.channels = s.channel_tiles * kSlice, s.out_length = static_cast<int>(g_.out_length);
    s.position_tiles = static_cast<int>(ceil_div(g_.out_length, kDepth));
    s.items = static_cast<int>(s.position_tiles * g_.batch);
    const int64_t tiles = int64_t{s.row_tiles} * s.channel_tiles * s.chunks * s.groups;
    s.slices = static_cast<int>(std::clamp<int64_t>(problem.device->multiprocessors / tiles, 1, std::max(s.items / 4, 1)));
    blocks_ = tiles * s.slices;
    add_ = {problem.to.strides, g_.out_channels * g_.taps * s.channels, s.slices, s.taps, static_cast<int>(g_.ins()), s.channels};
    workspace_size = static_cast<uint64_t>(add_.total * s.slices) * sizeof(float);
    ForDtype([&]<class T>(T) {
      kernel_ = kernel_for<T>(taps_);
      load_kernel(add_partials<T>);
    });
    load_kernel(kernel_, kSharedBytes);
  }
  bool fits() const { return blocks_ > 0 && blocks_ <= kMaxBlocks; }

  void launch(const Operands& p, void* workspace, gpuStream_t stream) const override {
    GradWgmmaShape s = s_;
    s.partial = static_cast<float*>(workspace);
    MapShape x{
        g_.dtype, {g_.length, g_.ins(), g_.groups, g_.batch, 1}, {g_.x.channel, g_.ins() * g_.x.channel, g_.x.outer, 0}, 64, kSlice,
        128};
    s.x = encode_map(x, p.b, "conv1d_backward");
    x.columns = kHalo, x.swizzle = 0;
    s.x_halo = encode_map(x, p.b, "conv1d_backward");
    s.grad_y = encode_map({g_.dtype,
                           {g_.out_length, g_.outs(), g_.groups, g_.batch, 1},
                           {g_.y.channel, g_.outs() * g_.y.channel, g_.y.outer, 0},
                           64,
                           kRows,
                           128},
                          p.a, "conv1d_backward");
    launch_kernel(kernel_, blocks_, kBlockThreads, kSharedBytes, stream, s);
    ForDtype([&]<class T>(T) {
      launch_kernel(add_partials<T>, grid_of(add_.total), kThreads, 0, stream, add_, static_cast<const float*>(workspace),
                    static_cast<T*>(p.out));
    });
  }

 private:
  // As many taps to a block as its registers and the halo have room for, the same number in each.
  bool PlanChunks() {
    const int64_t span = kHalo - 7;  // whatever the shift
    const int64_t room = g_.taps == 1 ? 1 : std::min<int64_t>(kMostTaps, span / g_.dilation + 1);
    const int64_t chunks = ceil_div(g_.taps, room);
    if (chunks > kMostChunks) return false;
    taps_ = static_cast<int>(ceil_div(g_.taps, chunks)), s_.chunks = static_cast<int>(chunks);
    s_.tap_step = static_cast<int>(taps_ > 1 ? g_.dilation : 0);
    for (int64_t i = 0; i < chunks; ++i) {
      const int64_t first = i * taps_ * g_.dilation - g_.pad_left, shift = (first % 8 + 8) % 8;
      s_.chunk[i] = {static_cast<int>(first - shift), static_cast<int>(shift)};
    }
    return true;
  }
  template <class Visit>
  void ForDtype(Visit&& visit) const {
    g_.dtype == Dtype::f16 ? visit(f16{}) : visit(bf16{});
  }
  ConvGeometry g_;
  GradWgmmaShape s_{};
  AddShape add_{};
  int taps_ = 0;
  int64_t blocks_ = 0;
  void (*kernel_)(GradWgmmaShape) = nullptr;
};

}  // namespace

std::unique_ptr<Part> plan_grad_w_wgmma(const SumProblem& problem) {
  const ConvGeometry& g = problem.g;
  if (problem.device->compute_capability != 90 || problem.device->shared_memory < kSharedBytes || find_encode() == nullptr)
    return nullptr;
  if (size_of(g.dtype) != 2 || g.stride != 1 || problem.x_align < 16 || problem.y_align < 16) return nullptr;
  if (g.x.position != 1 || g.y.position != 1 || g.length % 8 != 0 || g.out_length % 8 != 0 || g.length == 0) return nullptr;
  if (!steps_well(g.in_channels, g.x.channel) || !steps_well(g.batch, g.x.outer) || !steps_well(g.out_channels, g.y.channel) ||
      !steps_well(g.batch, g.y.outer))
    return nullptr;
  constexpr int64_t kMost = int64_t{1} << 28;
  for (const int64_t v : {g.length, g.out_length, g.batch, g.in_channels, g.out_channels, g.taps, g.dilation, g.pad_left})
    if (v > kMost) return nullptr;
  if (g.taps * g.dilation > kMost || g.batch * ceil_div(g.out_length, kDepth) > kMost || g.out_channels * g.taps > kMost)
    return nullptr;
  auto part = std::make_unique<GradWgmmaPart>(problem);
  return part->fits() ? std::move(part) : nullptr;
}

}  // namespace narrows::gpu
