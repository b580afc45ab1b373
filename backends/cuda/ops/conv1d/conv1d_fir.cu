// SPDX-License-Identifier: Apache-2.0
// conv1d_fir.cu -- long filters on any device and any strides; see conv1d_fir.h.
#include "conv1d_fir.h"

namespace narrows::gpu {
namespace {

constexpr int kFirThreads = 128, kTapsAtOnce = 256, kShortest = 9;
template <class A>
inline constexpr int kOutputs = std::is_same_v<A, double> ? 6 : 12;  // of a thread

// One block makes one tile of one row, channel after channel and some taps after others.
template <class T>
__global__ void __launch_bounds__(kFirThreads) fir(const FirShape s, const T* x, const T* w, const T* bias, T* y) {
  using A = Accumulate<T>;
  constexpr int R = kOutputs<A>, kTile = R * kFirThreads, G = kGroup<A>;
  __shared__ detail::Group<A> tile[fir_groups<A, R, kFirThreads, 0>(kTapsAtOnce)], taps[kTapsAtOnce / G];
  A *const tile_elements = tile[0].at, *const tap_elements = taps[0].at;
  const Correlation& c = s.c;
  const int64_t row = blockIdx.x / s.tiles, q0 = blockIdx.x % s.tiles * kTile;
  const int64_t m = row % c.outs, group = row / c.outs % c.groups, n = row / c.outs / c.groups;
  x += n * c.in_batch + group * c.in_group;
  w += c.w_offset + group * c.w_group + m * c.w_out;
  y += c.out_offset + n * c.out_batch + group * c.out_group + m * c.out_channel;

  FirSums<A, R, 0> sums;
  for (int64_t channel = 0; channel < c.ins; ++channel)
    for (int64_t tap = 0; tap < c.taps; tap += kTapsAtOnce) {
      const int count = static_cast<int>(c.taps - tap < kTapsAtOnce ? c.taps - tap : kTapsAtOnce);
      __syncthreads();
#pragma unroll 4
      for (int i = threadIdx.x; i < kTile + count - 1; i += kFirThreads) {
        const int64_t position = q0 + i + tap + c.origin;
        tile_elements[i] =
            position >= 0 && position < c.extent ? widen(x[channel * c.in_channel + position * c.in_position]) : A{0};
      }
      for (int j = threadIdx.x; j < count; j += kFirThreads) tap_elements[j] = widen(w[channel * c.w_in + (tap + j) * c.w_tap]);
      __syncthreads();
      sums.add(tile, taps, count);
    }
  __syncthreads();
  sums.store(tile);
  __syncthreads();
  const A add = bias == nullptr ? A{0} : widen(bias[(group * c.outs + m) * c.bias_stride]);
#pragma unroll
  for (int i = 0; i < R; ++i) {
    const int64_t q = q0 + i * kFirThreads + threadIdx.x;
    if (q < c.length) y[q * c.out_position] = narrowed<T>(tile_elements[i * kFirThreads + threadIdx.x] + add);
  }
}

template <class T>
class FirPart final : public Part {
 public:
  explicit FirPart(const CorrelationProblem& problem) {
    s_.c = problem.c;
    s_.tiles = ceil_div(s_.c.length, kOutputs<Accumulate<T>> * kFirThreads);
    s_.blocks = s_.c.batch * s_.c.groups * s_.c.outs * s_.tiles;
    load_kernel(fir<T>);
  }
  bool fits() const { return s_.blocks <= kMaxBlocks; }
  void launch(const Operands& p, void*, gpuStream_t stream) const override {
    launch_kernel(fir<T>, s_.blocks, kFirThreads, 0, stream, s_, static_cast<const T*>(p.a), static_cast<const T*>(p.b),
                  static_cast<const T*>(p.bias), static_cast<T*>(p.out));
  }

 private:
  FirShape s_;
};

}  // namespace

std::unique_ptr<Part> plan_fir(const CorrelationProblem& problem) {
  const Correlation& c = problem.c;
  if (c.step != 1 || c.tap_step != 1 || c.taps < kShortest || c.length < 512) return nullptr;
  if (conv1d_native().fir != nullptr)
    if (std::unique_ptr<Part> part = conv1d_native().fir(problem)) return part;
  return with_dtype(problem.dtype, [&]<class T>(T) -> std::unique_ptr<Part> {
    auto part = std::make_unique<FirPart<T>>(problem);
    return part->fits() ? std::move(part) : nullptr;
  });
}

}  // namespace narrows::gpu
