// SPDX-License-Identifier: Apache-2.0
// conv1d_direct.cu -- correlations with few channels to a group: sliding windows in registers. Three kernels: `vectors` for short
// filters on contiguous rows, which is bound by memory; plan_fir()'s for long ones, bound by arithmetic; `windows` for everything
// else.
#include "conv1d.h"
#include "conv1d_fir.h"
#include "conv1d_vectors.h"

namespace narrows::gpu {
namespace {

// ---- vectors: one input channel, taps side by side, rows of 16-byte vectors ----

// What is uniform over the grid.
struct VectorShape {
  int64_t length, extent;
  int64_t in_batch, in_group, out_batch, out_group, out_channel, w_group, w_out, w_tap, bias_stride;
  int64_t first;  // position of x, a multiple of a vector, from which the first output's window starts `shift` later
  int shift;
  uint32_t groups, outs, tiles;
};

// Each thread makes kVectors vectors of one row of y; all of their loads are on their way before the first is used.
template <class T, int kTaps, int kVectors>
__global__ void vectors(const VectorShape s, const T* x, const T* w, const T* bias, T* y) {
  using A = Accumulate<T>;
  constexpr int kSize = Vector<T>::kSize, kLoads = (2 * kSize + kTaps - 2 + kSize - 1) / kSize, kWindow = kSize + kTaps - 1;
  const uint32_t row = blockIdx.x / s.tiles, tile = blockIdx.x - row * s.tiles;
  uint32_t m = 0, group = row, n = 0;
  if (s.outs > 1) group = row / s.outs, m = row - group * s.outs;
  if (s.groups <= group) n = group / s.groups, group -= n * s.groups;
  const int64_t q0 = int64_t{tile} * kVectors * blockDim.x * kSize;
  x += n * s.in_batch + group * s.in_group + q0 + s.first;
  y += n * s.out_batch + group * s.out_group + m * s.out_channel + q0;
  w += group * s.w_group + m * s.w_out;
  const Range there = range_in_tile(q0 + s.first, s.extent), wanted = range_in_tile(q0, s.length);

  uint32_t in[kVectors][kLoads * 4];
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int place = static_cast<int>(threadIdx.x + v * blockDim.x) * kSize;
#pragma unroll
    for (int i = 0; i < kLoads; ++i)
      if (i * kSize < s.shift + kWindow && place < wanted.end) load_vector(x, there, place + i * kSize, in[v] + i * 4);
  }
  A taps[kTaps];
#pragma unroll
  for (int j = 0; j < kTaps; ++j) taps[j] = widen(w[j * s.w_tap]);
  const A add = bias == nullptr ? A{0} : widen(bias[(group * s.outs + m) * s.bias_stride]);

#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    shift_down(in[v], s.shift * static_cast<int>(sizeof(T)));
    T elements[kLoads * kSize];
    memcpy(elements, in[v], sizeof(elements));
    A window[kWindow];
#pragma unroll
    for (int i = 0; i < kWindow; ++i) window[i] = widen(elements[i]);
    A sums[kSize];
#pragma unroll
    for (int e = 0; e < kSize; ++e) {
      sums[e] = window[e] * taps[0];
#pragma unroll
      for (int j = 1; j < kTaps; ++j) sums[e] += window[e + j] * taps[j];
      sums[e] += add;
    }
    const int place = static_cast<int>(threadIdx.x + v * blockDim.x) * kSize;
    if (place + kSize <= wanted.end) {
      store_vector(y + place, sums);
    } else {
#pragma unroll
      for (int e = 0; e < kSize; ++e)
        if (place + e < wanted.end) y[place + e] = narrowed<T>(sums[e]);
    }
  }
}

template <class T>
using VectorKernel = void (*)(VectorShape, const T*, const T*, const T*, T*);

// The kernel for a number of taps, from 1 to kMostTaps.
template <class T, int kTaps = kMostTaps>
VectorKernel<T> vector_kernel(int64_t taps) {
  if constexpr (kTaps > 1)
    if (taps < kTaps) return vector_kernel<T, kTaps - 1>(taps);
  return vectors<T, kTaps, 2>;
}

template <class T>
class VectorPart final : public Part {
 public:
  VectorPart(const Correlation& c, int64_t blocks, VectorShape shape)
      : w_offset_(c.w_offset), out_offset_(c.out_offset), blocks_(blocks), shape_(shape), kernel_(vector_kernel<T>(c.taps)) {
    load_kernel(kernel_);
  }
  static constexpr int threads() { return sizeof(T) == 2 ? 64 : 128; }
  static constexpr int64_t tile() { return int64_t{2} * threads() * Vector<T>::kSize; }

  void launch(const Operands& p, void*, gpuStream_t stream) const override {
    launch_kernel(kernel_, blocks_, threads(), 0, stream, shape_, static_cast<const T*>(p.a),
                  static_cast<const T*>(p.b) + w_offset_, static_cast<const T*>(p.bias), static_cast<T*>(p.out) + out_offset_);
  }

 private:
  int64_t w_offset_, out_offset_, blocks_;
  VectorShape shape_;
  VectorKernel<T> kernel_;
};

template <class T>
std::unique_ptr<Part> plan_vectors(const CorrelationProblem& problem) {
  const Correlation& c = problem.c;
  constexpr int64_t kSize = Vector<T>::kSize, kTile = VectorPart<T>::tile();
  if (c.ins != 1 || c.taps > kMostTaps || c.step != 1 || (c.taps > 1 && c.tap_step != 1)) return nullptr;
  if (c.in_position != 1 || c.out_position != 1 || c.out_offset % kSize != 0) return nullptr;
  if (!rows_are_aligned(problem.dtype, problem.in_align, {{c.batch, c.in_batch}, {c.groups, c.in_group}})) return nullptr;
  if (!rows_are_aligned(problem.dtype, problem.out_align,
                        {{c.batch, c.out_batch}, {c.groups, c.out_group}, {c.outs, c.out_channel}}))
    return nullptr;
  const int64_t tiles = ceil_div(c.length, kTile), rows = c.batch * c.groups * c.outs;
  if (tiles > kMaxBlocks / rows) return nullptr;
  const int64_t first = floor_div(c.origin, kSize);
  return std::make_unique<VectorPart<T>>(
      c, rows * tiles,
      VectorShape{c.length, c.extent, c.in_batch, c.in_group, c.out_batch, c.out_group, c.out_channel, c.w_group, c.w_out, c.w_tap,
                  c.bias_stride, first * kSize, static_cast<int>(c.origin - first * kSize), static_cast<uint32_t>(c.groups),
                  static_cast<uint32_t>(c.outs), static_cast<uint32_t>(tiles)});
}

// ---- windows: any correlation of aligned elements ----

constexpr int kWindowThreads = 128, kPositions = 4;  // positions of a thread, a block apart
constexpr int kTerms = 128;                          // (channel, tap) pairs whose weights a block holds at once

// Each thread makes kPositions positions of kOuts output channels: an element of x is loaded once for kOuts products, and weights
// lie in shared memory, where all threads read the same ones at a time.
template <class T, int kOuts>
__global__ void __launch_bounds__(kWindowThreads)
    windows(const Correlation c, const int64_t tiles, const int64_t blocks, const Operands p) {
  using A = Accumulate<T>;
  struct alignas(kOuts > 1 ? 16 : sizeof(A)) Term {
    A factor[kOuts];
  };
  __shared__ Term weights[kTerms];
  const int64_t out_blocks = (c.outs + kOuts - 1) / kOuts, terms = c.ins * c.taps;
  // What leads to the next term. Elements of positions outside x are not read, and may lie nowhere: their offsets wrap around.
  const auto offset_of = [&](uint64_t position) { return static_cast<int64_t>(position * static_cast<uint64_t>(c.in_position)); };
  const int64_t first_tap = (1 - c.taps) * c.tap_step, next_tap = offset_of(c.tap_step);
  const auto next_channel = static_cast<int64_t>(static_cast<uint64_t>(c.in_channel) + static_cast<uint64_t>(offset_of(first_tap)));
  for (int64_t block = blockIdx.x; block < blocks; block += gridDim.x) {
    const int64_t row = block / tiles, q0 = block % tiles * (kWindowThreads * kPositions) + threadIdx.x;
    const int64_t m0 = row % out_blocks * kOuts, group = row / out_blocks % c.groups, n = row / out_blocks / c.groups;
    const T* in = static_cast<const T*>(p.a) + n * c.in_batch + group * c.in_group;
    const T* w = static_cast<const T*>(p.b) + c.w_offset + group * c.w_group + m0 * c.w_out;
    const int outs = static_cast<int>(c.outs - m0 < kOuts ? c.outs - m0 : kOuts);
    // What the next term reads, modulo 2^64. An output that does not exist begins half way around: nearly all of its terms are
    // outside x, and its sums nobody wants.
    uint64_t position[kPositions];
    const T* from[kPositions];  // there
    A sum[kOuts][kPositions] = {};
#pragma unroll
    for (int i = 0; i < kPositions; ++i) {
      const int64_t q = q0 + i * kWindowThreads;
      position[i] = q < c.length ? static_cast<uint64_t>(q * c.step + c.origin) : uint64_t{1} << 63;
      from[i] = in + offset_of(position[i]);
    }
    int64_t tap = 0;
    for (int64_t first = 0; first < terms; first += kTerms) {
      const int count = static_cast<int>(terms - first < kTerms ? terms - first : kTerms);
      __syncthreads();
      for (int i = threadIdx.x; i < count * kOuts; i += kWindowThreads) {
        const int64_t from_channel = (first + i / kOuts) / c.taps, from_tap = first + i / kOuts - from_channel * c.taps;
        const int m = i % kOuts;
        weights[i / kOuts].factor[m] = m < outs ? widen(w[m * c.w_out + from_channel * c.w_in + from_tap * c.w_tap]) : A{0};
      }
      __syncthreads();
      for (int i = 0; i < count; ++i) {
        const Term term = weights[i];
#pragma unroll
        for (int j = 0; j < kPositions; ++j) {
          if (position[j] >= static_cast<uint64_t>(c.extent)) continue;
          const A value = widen(*from[j]);
#pragma unroll
          for (int m = 0; m < kOuts; ++m) sum[m][j] += value * term.factor[m];
        }
        const bool last = ++tap == c.taps;
        if (last) tap = 0;
#pragma unroll
        for (int j = 0; j < kPositions; ++j) {
          position[j] += last ? first_tap : c.tap_step;
          from[j] += last ? next_channel : next_tap;
        }
      }
    }
    T* out = static_cast<T*>(p.out) + c.out_offset + n * c.out_batch + group * c.out_group + m0 * c.out_channel;
#pragma unroll
    for (int m = 0; m < kOuts; ++m) {
      if (m >= outs) continue;  // not break: a loop with two exits is not unrolled by every compiler, and its sums go to memory
      const A add = p.bias == nullptr ? A{0} : widen(static_cast<const T*>(p.bias)[(group * c.outs + m0 + m) * c.bias_stride]);
#pragma unroll
      for (int i = 0; i < kPositions; ++i) {
        const int64_t q = q0 + i * kWindowThreads;
        if (q < c.length) out[m * c.out_channel + q * c.out_position] = narrowed<T>(sum[m][i] + add);
      }
    }
  }
}

class WindowPart final : public Part {
 public:
  explicit WindowPart(const CorrelationProblem& problem) : c_(problem.c) {
    constexpr int kManyOuts = 8;
    const bool many = c_.outs > 1;
    with_dtype(problem.dtype, [&]<class T>(T) { kernel_ = many ? windows<T, kManyOuts> : windows<T, 1>; });
    load_kernel(kernel_);
    tiles_ = ceil_div(c_.length, kWindowThreads * kPositions);
    blocks_ = c_.batch * c_.groups * ceil_div(c_.outs, many ? kManyOuts : 1) * tiles_;
  }
  void launch(const Operands& p, void*, gpuStream_t stream) const override {
    launch_kernel(kernel_, std::min(blocks_, kMaxBlocks), kWindowThreads, 0, stream, c_, tiles_, blocks_, p);
  }

 private:
  Correlation c_;
  int64_t tiles_, blocks_;
  void (*kernel_)(Correlation, int64_t, int64_t, Operands) = nullptr;
};

}  // namespace

std::unique_ptr<Part> plan_direct(const CorrelationProblem& problem) {
  if (!problem.aligned()) return nullptr;
  std::unique_ptr<Part> part = with_dtype(problem.dtype, [&]<class T>(T) { return plan_vectors<T>(problem); });
  if (part == nullptr) part = plan_fir(problem);
  if (part == nullptr) part = std::make_unique<WindowPart>(problem);
  return part;
}

}  // namespace narrows::gpu
