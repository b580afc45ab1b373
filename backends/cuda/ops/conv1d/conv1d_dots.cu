// SPDX-License-Identifier: Apache-2.0
// conv1d_dots.cu -- correlations with few outputs to a filter: dot products. A block makes all outputs of some filters. Its threads
// stride over the products of an output, (channel, tap), so that each weight is read once, and those of neighbours lie side by
// side. The sums of the threads are then added in a fixed order. Any strides; elements are aligned.
#include "conv1d.h"
#include "ops/dtype.h"
#include "ops/fast_divide.h"

namespace narrows::gpu {
namespace {

constexpr int kWarp = 32, kMostThreads = 256, kMostRows = 4, kMostColumns = kMostOutputsOfDots;

// A row for each filter of a group, a column for each (n, q), a depth of (channel, tap).
struct DotsShape {
  Correlation c;
  FastDivide taps;
  uint32_t depth, columns, row_tiles;
};

// What of a column its products read: at tap 0 the position, and the element of channel 0, modulo 2^64.
struct Column {
  int64_t position;
  uint64_t element;
};

// The sums of a warp's lanes, in place: each step adds two lanes, and of two sums a lane keeps one. With 32 sums or more, lane i
// ends with those from i * kSums / 32 on; with fewer, lanes that are 32 / kSums side by side end with the same one.
template <int kSums, int kApart = kWarp / 2, class A, int kAll>
__device__ __forceinline__ void add_lanes(A (&sums)[kAll]) {
  if constexpr (kSums > 1) {
    const bool upper = (threadIdx.x & kApart) != 0;
#pragma unroll
    for (int i = 0; i < kSums / 2; ++i) {
      const A low = sums[i], high = sums[i + kSums / 2];
      sums[i] = (upper ? high : low) + shuffle_xor(upper ? low : high, kApart);
    }
  } else {
    sums[0] += shuffle_xor(sums[0], kApart);
  }
  if constexpr (kApart > 1) add_lanes<(kSums > 1 ? kSums / 2 : 1), kApart / 2>(sums);
}

template <class T, int kRows, int kColumns>
__global__ void __launch_bounds__(kMostThreads) dots(const DotsShape s, const Operands p) {
  using A = Accumulate<T>;
  constexpr int kSums = kRows * kColumns;
  [[maybe_unused]] constexpr int kUnroll = kSums * sizeof(A) > 256 ? 1 : kSums >= 16 ? 2 : 4;  // products under way
  constexpr int kKept = kSums > kWarp ? kSums / kWarp : 1, kSpread = kSums > kWarp ? 1 : kWarp / kSums;
  __shared__ Column columns[kColumns];
  __shared__ A partial[kMostThreads / kWarp][kSums];
  const Correlation& c = s.c;
  const uint32_t thread = threadIdx.x, group = blockIdx.x / s.row_tiles;
  const int64_t row0 = int64_t{blockIdx.x - group * s.row_tiles} * kRows;
  const auto length = static_cast<uint32_t>(c.length);
  const auto product = [](int64_t a, int64_t b) { return static_cast<uint64_t>(a) * static_cast<uint64_t>(b); };
  if (thread < kColumns) {
    const uint32_t of = thread < s.columns ? thread : 0, n = of / length;
    const int64_t position = (of - n * length) * c.step + c.origin;
    columns[thread] = {position, product(n, c.in_batch) + product(position, c.in_position)};
  }
  __syncthreads();

  const T* in = static_cast<const T*>(p.a) + group * c.in_group;
  const T* w[kRows];  // past the last filter the last one is read again
#pragma unroll
  for (int r = 0; r < kRows; ++r)
    w[r] = static_cast<const T*>(p.b) + c.w_offset + group * c.w_group + (row0 + r < c.outs ? row0 + r : c.outs - 1) * c.w_out;
  A sums[kSums] = {};
#pragma unroll kUnroll
  for (uint32_t k = thread; k < s.depth; k += blockDim.x) {
    uint32_t channel, tap;
    s.taps.divide(k, &channel, &tap);
    const int64_t weight = channel * c.w_in + tap * c.w_tap, reach = tap * c.tap_step;
    const uint64_t element = product(channel, c.in_channel) + product(reach, c.in_position);
    A factors[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) factors[r] = widen(w[r][weight]);
    // All loads are on their way before the first is used.
    A values[kColumns];
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      const Column column = columns[j];
      const auto position = static_cast<uint64_t>(column.position + reach);
      const bool inside = j < static_cast<int>(s.columns) && position < static_cast<uint64_t>(c.extent);
      values[j] = widen(load_where(inside, in, [&] { return static_cast<int64_t>(column.element + element); }));
    }
#pragma unroll
    for (int j = 0; j < kColumns; ++j)
#pragma unroll
      for (int r = 0; r < kRows; ++r) sums[r * kColumns + j] += factors[r] * values[j];
  }

  add_lanes<kSums>(sums);
  const uint32_t lane = thread % kWarp, warp = thread / kWarp;
  if (lane % kSpread == 0)
#pragma unroll
    for (int i = 0; i < kKept; ++i) partial[warp][lane / kSpread * kKept + i] = sums[i];
  __syncthreads();
  for (uint32_t i = thread; i < kSums; i += blockDim.x) {
    const int64_t row = row0 + i / kColumns;
    const uint32_t column = i % kColumns, n = column / length;
    if (row >= c.outs || column >= s.columns) continue;
    A sum = partial[0][i];
    for (uint32_t other = 1; other < blockDim.x / kWarp; ++other) sum += partial[other][i];
    if (p.bias != nullptr) sum += widen(static_cast<const T*>(p.bias)[(group * c.outs + row) * c.bias_stride]);
    const int64_t at = n * c.out_batch + group * c.out_group + row * c.out_channel + (column - n * length) * c.out_position;
    static_cast<T*>(p.out)[c.out_offset + at] = narrowed<T>(sum);
  }
}

using DotsKernel = void (*)(DotsShape, Operands);

template <class T, int kRows>
DotsKernel dots_kernel(int64_t columns) {
  return columns == 1 ? dots<T, kRows, 1> : columns <= 4 ? dots<T, kRows, 4> : dots<T, kRows, kMostColumns>;
}

class DotsPart final : public Part {
 public:
  explicit DotsPart(const CorrelationProblem& problem) {
    const Correlation& c = s_.c = problem.c;
    const int64_t columns = c.batch * c.length, depth = c.ins * c.taps;
    // An element of x is loaded once for the filters of a block; but first of all there are enough blocks.
    const bool many = c.groups * ceil_div(c.outs, kMostRows) >= problem.device->multiprocessors / 2;
    const int64_t row_tiles = ceil_div(c.outs, many ? kMostRows : 1);
    blocks_ = row_tiles > kMaxBlocks / c.groups ? 0 : c.groups * row_tiles;
    s_.taps = FastDivide(c.taps), s_.depth = static_cast<uint32_t>(depth), s_.columns = static_cast<uint32_t>(columns);
    s_.row_tiles = static_cast<uint32_t>(row_tiles);
    threads_ = static_cast<int>(std::clamp<int64_t>(ceil_div(depth, kWarp) * kWarp, kWarp, kMostThreads));
    with_dtype(problem.dtype,
               [&]<class T>(T) { kernel_ = many ? dots_kernel<T, kMostRows>(columns) : dots_kernel<T, 1>(columns); });
    if (fits()) load_kernel(kernel_);
  }
  bool fits() const { return blocks_ > 0; }
  void launch(const Operands& p, void*, gpuStream_t stream) const override {
    launch_kernel(kernel_, blocks_, threads_, 0, stream, s_, p);
  }

 private:
  DotsShape s_;
  int64_t blocks_ = 0;
  int threads_ = 0;
  DotsKernel kernel_ = nullptr;
};

}  // namespace

std::unique_ptr<Part> plan_dots(const CorrelationProblem& problem) {
  const Correlation& c = problem.c;
  if (!problem.aligned() || !has_few_outputs(c.batch, c.length)) return nullptr;
  if (c.ins * c.taps >= kFastDivideLimit / 2) return nullptr;
  auto part = std::make_unique<DotsPart>(problem);
  return part->fits() ? std::move(part) : nullptr;
}

}  // namespace narrows::gpu
