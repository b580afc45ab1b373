// SPDX-License-Identifier: Apache-2.0
// conv1d_product.h -- correlations and grad_w as matrix products whose operands loaders fetch where they lie: no matrix of the
// input's windows is ever made. tile_gemm.h has what a loader is; the tiles of plain multiply-adds and of matrix units share these.
#pragma once

#include "conv1d.h"
#include "ops/fast_divide.h"
#include "ops/gemm/tile_gemm.h"

namespace narrows::gpu {

// ---- a correlation: a row for each output channel, a column for each (n, q), a depth of (channel, tap) ----

struct ProductShape {
  Correlation c;
  FastDivide taps;
  int64_t columns, depth;
  int64_t row_tiles, column_tiles, blocks;
  bool w_rows;  // a filter's elements lie side by side, and filters start on 16 bytes
};

template <class T>
struct WeightLoader {
  using Acc = Accumulate<T>;
  static constexpr bool kAlongDepth = true;
  const ProductShape& s;
  const T* w;

  __device__ __forceinline__ void load(int64_t row, int64_t k, Acc (&out)[kGroup<Acc>]) const {
    constexpr int kUnit = kGroup<Acc>;
    const int64_t left = row < s.c.outs ? s.depth - k : 0;
    const T* from = w + row * s.c.w_out;
    if (s.w_rows && left >= kUnit) return load_together<T, kUnit>(from + k, out);
    uint32_t channel, tap;
    s.taps.divide(static_cast<uint32_t>(k), &channel, &tap);
#pragma unroll
    for (int i = 0; i < kUnit; ++i) {
      out[i] = widen(load_where(i < left, from, [&] { return channel * s.c.w_in + tap * s.c.w_tap; }));
      if (++tap == s.taps.divisor) tap = 0, ++channel;
    }
  }
};

template <class T>
struct WindowLoader {
  using Acc = Accumulate<T>;
  static constexpr bool kAlongDepth = false;
  const ProductShape& s;
  const T* in;

  __device__ __forceinline__ void load(int64_t column, int64_t k, Acc (&out)[kGroup<Acc>]) const {
    int64_t n = column / s.c.length, q = column - n * s.c.length;
    uint32_t channel, tap;
    s.taps.divide(static_cast<uint32_t>(k), &channel, &tap);
    const T* row = in + n * s.c.in_batch + channel * s.c.in_channel;
    const int64_t shift = tap * s.c.tap_step + s.c.origin;
    const bool inside = k < s.depth;
#pragma unroll
    for (int i = 0; i < kGroup<Acc>; ++i) {
      const int64_t position = q * s.c.step + shift;
      const bool valid = inside && column + i < s.columns && position >= 0 && position < s.c.extent;
      out[i] = widen(load_where(valid, row, [&] { return position * s.c.in_position; }));
      if (++q == s.c.length) q = 0, row += s.c.in_batch;
    }
  }
};

// ---- grad_w: a row for each output channel, a column for each (channel, tap), a depth of (n, t) ----

struct GradWShape {
  ConvGeometry g;
  FastDivide taps, out_length;
  int64_t columns, depth;
  int64_t row_tiles, column_tiles, slices, stages, blocks;
};

template <class T>
struct GradYLoader {
  using Acc = Accumulate<T>;
  static constexpr bool kAlongDepth = true;
  const GradWShape& s;
  const T* grad_y;

  __device__ __forceinline__ void load(int64_t row, int64_t k, Acc (&out)[kGroup<Acc>]) const {
    uint32_t n, t;
    s.out_length.divide(static_cast<uint32_t>(k), &n, &t);
    const T* from = grad_y + row * s.g.y.channel;
#pragma unroll
    for (int i = 0; i < kGroup<Acc>; ++i) {
      const bool valid = row < s.g.outs() && k + i < s.depth;
      out[i] = widen(load_where(valid, from, [&] { return n * s.g.y.outer + t * s.g.y.position; }));
      if (++t == s.out_length.divisor) t = 0, ++n;
    }
  }
};

template <class T>
struct SlidingLoader {
  using Acc = Accumulate<T>;
  static constexpr bool kAlongDepth = true;
  const GradWShape& s;
  const T* x;

  __device__ __forceinline__ void load(int64_t column, int64_t k, Acc (&out)[kGroup<Acc>]) const {
    uint32_t n, t, channel, tap;
    s.out_length.divide(static_cast<uint32_t>(k), &n, &t);
    s.taps.divide(static_cast<uint32_t>(column), &channel, &tap);
    const T* from = x + channel * s.g.x.channel;
    const int64_t shift = tap * s.g.dilation - s.g.pad_left;
#pragma unroll
    for (int i = 0; i < kGroup<Acc>; ++i) {
      const int64_t position = t * s.g.stride + shift;
      const bool valid = column < s.columns && k + i < s.depth && position >= 0 && position < s.g.length;
      out[i] = widen(load_where(valid, from, [&] { return n * s.g.x.outer + position * s.g.x.position; }));
      if (++t == s.out_length.divisor) t = 0, ++n;
    }
  }
};

// ---- sums in slices ----

// Adds partial[slice][out][channel][tap] over the slices, in their order, into grad_w (or grad_bias). In conv1d_sums.cu.
struct SliceSum {
  Dtype dtype;
  int64_t slices;
  Tensor3 to;

  uint64_t bytes() const { return static_cast<uint64_t>(slices * to.size() * size_of(accumulate_dtype(dtype))); }
  void load() const;
  void launch(const void* partial, void* out, gpuStream_t stream) const;
};

}  // namespace narrows::gpu
