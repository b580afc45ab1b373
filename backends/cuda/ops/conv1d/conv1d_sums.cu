// SPDX-License-Identifier: Apache-2.0
// conv1d_sums.cu -- the gradients that are sums over batch and positions: grad_w for few channels, and grad_bias. A row (an output
// and an input channel; for the bias an output) is cut into splits by shape alone; a block sums one split for some taps at once,
// and a second kernel adds the splits in order.
#include "conv1d.h"
#include "conv1d_product.h"
#include "ops/dtype.h"

namespace narrows::gpu {
namespace {

constexpr int kSumThreads = 128;

// What a kernel needs beside the geometry.
struct SumShape {
  int64_t splits, split_length;  // positions of all of the batch, counted on
  int64_t tap_blocks, blocks;
};

// The sums of kSums accumulators over the block, in a fixed order; thread i < kSums gets sum i.
template <int kSums, class A>
__device__ A add_threads(const A (&mine)[kSums]) {
  __shared__ A values[kSums][kSumThreads];
  __syncthreads();
#pragma unroll
  for (int s = 0; s < kSums; ++s) values[s][threadIdx.x] = mine[s];
  for (int half = kSumThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    for (int i = threadIdx.x; i < kSums * half; i += kSumThreads) values[i / half][i % half] += values[i / half][i % half + half];
  }
  __syncthreads();
  return threadIdx.x < kSums ? values[threadIdx.x][0] : A{0};
}

// Adds to sums[i] for taps [tap, tap + kTaps) what positions [begin, end) of all of the batch give. kTaps = 0: grad_y alone.
template <class T, int kTaps, class A, int kSums>
__device__ void thread_sums(const ConvGeometry& g, const T* grad_y, const T* x, int64_t tap, int64_t begin, int64_t end,
                            A (&sums)[kSums]) {
  int64_t n = begin / g.out_length, t = begin % g.out_length + threadIdx.x;
  for (int64_t left = end - begin - threadIdx.x; left > 0; left -= kSumThreads, t += kSumThreads) {
    while (t >= g.out_length) t -= g.out_length, ++n;
    const A factor = widen(grad_y[n * g.y.outer + t * g.y.position]);
    if constexpr (kTaps == 0) {
      sums[0] += factor;
    } else {
      const T* row = x + n * g.x.outer;
      const int64_t first = t * g.stride - g.pad_left;
#pragma unroll
      for (int i = 0; i < kTaps; ++i) {
        if (tap + i >= g.taps) break;
        const int64_t position = first + (tap + i) * g.dilation;
        if (position >= 0 && position < g.length) sums[i] += factor * widen(row[position * g.x.position]);
      }
    }
  }
}

// partial[split][row][tap]; where there is one split that is the gradient itself.
template <class T, int kTaps>
__global__ void __launch_bounds__(kSumThreads)
    sum_splits(const ConvGeometry g, const SumShape s, const Strides3 to, const Operands p, Accumulate<T>* partial) {
  using A = Accumulate<T>;
  constexpr int kSums = kTaps == 0 ? 1 : kTaps;
  const int64_t ins = kTaps == 0 ? 1 : g.ins(), taps = kTaps == 0 ? 1 : g.taps;
  for (int64_t block = blockIdx.x; block < s.blocks; block += gridDim.x) {
    const int64_t tap = block % s.tap_blocks * kSums, split = block / s.tap_blocks % s.splits;
    const int64_t row = block / s.tap_blocks / s.splits, out = row / ins, channel = row % ins;
    const int64_t total = g.batch * g.out_length, begin = split * s.split_length;
    const int64_t end = total - begin < s.split_length ? total : begin + s.split_length;
    const T* x = static_cast<const T*>(p.b) + (out / g.outs() * g.ins() + channel) * g.x.channel;
    A sums[kSums] = {};
    thread_sums<T, kTaps>(g, static_cast<const T*>(p.a) + out * g.y.channel, x, tap, begin, end, sums);
    const A sum = add_threads<kSums>(sums);
    const int64_t mine = tap + threadIdx.x;
    if (threadIdx.x >= kSums || mine >= taps) continue;
    if (s.splits > 1)
      partial[(split * g.out_channels * ins + row) * taps + mine] = sum;
    else
      static_cast<T*>(p.out)[out * to.outer + channel * to.channel + mine * to.position] = narrowed<T>(sum);
  }
}

template <class T>
__global__ void add_slices(const SliceSum s, const void* partial, void* out) {
  const Tensor3& to = s.to;
  const int64_t total = to.size(), taps = to.positions;
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < total; i += int64_t{gridDim.x} * blockDim.x) {
    const auto sum = sum_slices(static_cast<const Accumulate<T>*>(partial) + i, total, s.slices);
    static_cast<T*>(out)[i / taps / to.channels * to.strides.outer + i / taps % to.channels * to.strides.channel +
                         i % taps * to.strides.position] = narrowed<T>(sum);
  }
}

template <class T, int kTaps>
class SumPart final : public Part {
 public:
  explicit SumPart(const SumProblem& problem) : g_(problem.g), slices_{g_.dtype, 1, problem.to} {
    constexpr int64_t kLeastPositions = 2048;  // of a split
    const Tensor3& to = problem.to;
    const int64_t tap_blocks = ceil_div(to.positions, std::max(kTaps, 1));
    const SumSlices splits = slices_of_sums(g_, to, tap_blocks, kLeastPositions);
    shape_ = {splits.count, splits.length, tap_blocks, to.outer * to.channels * tap_blocks * splits.count};
    slices_.slices = splits.count;
    if (shape_.splits > 1) workspace_size = slices_.bytes();
    load_kernel(sum_splits<T, kTaps>);
    slices_.load();
  }
  void launch(const Operands& p, void* workspace, gpuStream_t stream) const override {
    auto* partial = static_cast<Accumulate<T>*>(workspace);
    launch_kernel(sum_splits<T, kTaps>, std::min(shape_.blocks, kMaxBlocks), kSumThreads, 0, stream, g_, shape_, slices_.to.strides,
                  p, partial);
    if (shape_.splits > 1) slices_.launch(workspace, p.out, stream);
  }

 private:
  ConvGeometry g_;
  SumShape shape_;
  SliceSum slices_;
};

}  // namespace

void SliceSum::load() const {
  with_dtype(dtype, []<class T>(T) { load_kernel(add_slices<T>); });
}
void SliceSum::launch(const void* partial, void* out, gpuStream_t stream) const {
  with_dtype(dtype,
             [&]<class T>(T) { launch_kernel(add_slices<T>, grid_of(to.size()), kThreads, 0, stream, *this, partial, out); });
}

std::unique_ptr<Part> plan_grad_w_direct(const SumProblem& problem) {
  if (!problem.aligned()) return nullptr;
  if (std::unique_ptr<Part> part = plan_grad_w_vectors(problem)) return part;
  return with_dtype(problem.g.dtype, [&]<class T>(T) -> std::unique_ptr<Part> {
    if (problem.g.taps <= 4) return std::make_unique<SumPart<T, 4>>(problem);
    return std::make_unique<SumPart<T, 16>>(problem);
  });
}

std::unique_ptr<Part> plan_grad_bias_direct(const SumProblem& problem) {
  if (!problem.aligned()) return nullptr;
  return with_dtype(problem.g.dtype, [&]<class T>(T) -> std::unique_ptr<Part> { return std::make_unique<SumPart<T, 0>>(problem); });
}

}  // namespace narrows::gpu
