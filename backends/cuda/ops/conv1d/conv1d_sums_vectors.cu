// SPDX-License-Identifier: Apache-2.0
// conv1d_sums_vectors.cu -- grad_w of short filters on contiguous rows: a window in registers, 16 bytes of grad_y at a time. A row
// (an output and an input channel) is cut into splits of its tiles by shape alone; a second kernel adds them.
#include "conv1d_product.h"
#include "conv1d_vectors.h"

namespace narrows::gpu {
namespace {

constexpr int kSumThreads = 128;

struct VectorSumShape {
  ConvGeometry g;
  int64_t first;  // position of x, a multiple of a vector, from which the first output's window starts `shift` later
  int shift;
  int64_t tiles, splits, blocks;  // tiles: of a row of grad_y, in all of the batch
  int64_t tiles_per_batch;
};

// partial[split][row][tap]
template <class T, int kTaps>
__global__ void __launch_bounds__(kSumThreads)
    sum_vectors(const VectorSumShape s, const T* grad_y, const T* x, Accumulate<T>* partial) {
  using A = Accumulate<T>;
  constexpr int kSize = Vector<T>::kSize, kLoads = (2 * kSize + kTaps - 2 + kSize - 1) / kSize, kWindow = kSize + kTaps - 1;
  constexpr int kTile = kSumThreads * kSize;
  const ConvGeometry& g = s.g;
  const int64_t row = blockIdx.x / s.splits, split = blockIdx.x % s.splits;
  const int64_t out = row / g.ins(), channel = out / g.outs() * g.ins() + row % g.ins();
  grad_y += out * g.y.channel, x += channel * g.x.channel + s.first;
  const int place = static_cast<int>(threadIdx.x) * kSize;
  A sums[kTaps] = {};
#pragma unroll 2
  for (int64_t tile = split; tile < s.tiles; tile += s.splits) {
    const int64_t n = tile / s.tiles_per_batch, t0 = (tile - n * s.tiles_per_batch) * kTile;
    uint32_t words[4], in[kLoads * 4];
    load_vector(grad_y + n * g.y.outer + t0, range_in_tile(t0, g.out_length), place, words);
#pragma unroll
    for (int i = 0; i < kLoads; ++i)
      if (i * kSize < s.shift + kWindow)
        load_vector(x + n * g.x.outer + t0, range_in_tile(t0 + s.first, g.length), place + i * kSize, in + i * 4);
    shift_down(in, s.shift * static_cast<int>(sizeof(T)));
    T factors[kSize], elements[kLoads * kSize];
    memcpy(factors, words, sizeof(factors));
    memcpy(elements, in, sizeof(elements));
    A window[kWindow];
#pragma unroll
    for (int i = 0; i < kWindow; ++i) window[i] = widen(elements[i]);
#pragma unroll
    for (int e = 0; e < kSize; ++e)
#pragma unroll
      for (int j = 0; j < kTaps; ++j)
        if (place + e < g.out_length - t0) sums[j] += widen(factors[e]) * window[e + j];
  }
  __shared__ A values[kTaps][kSumThreads];
#pragma unroll
  for (int j = 0; j < kTaps; ++j) values[j][threadIdx.x] = sums[j];
  for (int half = kSumThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    for (int i = threadIdx.x; i < kTaps * half; i += kSumThreads) values[i / half][i % half] += values[i / half][i % half + half];
  }
  __syncthreads();
  if (threadIdx.x < kTaps) partial[(split * g.out_channels * g.ins() + row) * kTaps + threadIdx.x] = values[threadIdx.x][0];
}

template <class T>
using SumKernel = void (*)(VectorSumShape, const T*, const T*, Accumulate<T>*);
template <class T, int kTaps = kMostTaps>
SumKernel<T> sum_kernel(int64_t taps) {
  if constexpr (kTaps > 1)
    if (taps < kTaps) return sum_kernel<T, kTaps - 1>(taps);
  return sum_vectors<T, kTaps>;
}

template <class T>
class VectorSumPart final : public Part {
 public:
  explicit VectorSumPart(const SumProblem& problem) : kernel_(sum_kernel<T>(problem.g.taps)) {
    constexpr int64_t kSize = Vector<T>::kSize, kTile = kSumThreads * kSize, kBlocks = 4096;
    const ConvGeometry& g = s_.g = problem.g;
    const int64_t rows = g.out_channels * g.ins(), first = floor_div(-g.pad_left, kSize);
    s_.first = first * kSize, s_.shift = static_cast<int>(-g.pad_left - s_.first);
    s_.tiles_per_batch = ceil_div(g.out_length, kTile), s_.tiles = s_.tiles_per_batch * g.batch;
    s_.splits = std::clamp<int64_t>(ceil_div(kBlocks, rows), 1, std::max<int64_t>(s_.tiles / 4, 1));
    s_.blocks = rows * s_.splits;
    sum_ = {g.dtype, s_.splits, problem.to};
    workspace_size = sum_.bytes();
    load_kernel(kernel_);
    sum_.load();
  }
  bool fits() const { return s_.blocks <= kMaxBlocks; }
  void launch(const Operands& p, void* workspace, gpuStream_t stream) const override {
    launch_kernel(kernel_, s_.blocks, kSumThreads, 0, stream, s_, static_cast<const T*>(p.a), static_cast<const T*>(p.b),
                  static_cast<Accumulate<T>*>(workspace));
    sum_.launch(workspace, p.out, stream);
  }

 private:
  VectorSumShape s_{};
  SliceSum sum_{};
  SumKernel<T> kernel_;
};

}  // namespace

std::unique_ptr<Part> plan_grad_w_vectors(const SumProblem& problem) {
  const ConvGeometry& g = problem.g;
  if (g.taps > kMostTaps || g.stride != 1 || (g.taps > 1 && g.dilation != 1) || g.length == 0) return nullptr;
  if (g.y.position != 1 || g.x.position != 1) return nullptr;
  if (!rows_are_aligned(g.dtype, problem.y_align, {{g.batch, g.y.outer}, {g.out_channels, g.y.channel}}) ||
      !rows_are_aligned(g.dtype, problem.x_align, {{g.batch, g.x.outer}, {g.in_channels, g.x.channel}}))
    return nullptr;
  return with_dtype(g.dtype, [&]<class T>(T) -> std::unique_ptr<Part> {
    auto part = std::make_unique<VectorSumPart<T>>(problem);
    return part->fits() ? std::move(part) : nullptr;
  });
}

}  // namespace narrows::gpu
