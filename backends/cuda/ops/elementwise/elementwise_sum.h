// SPDX-License-Identifier: Apache-2.0
// elementwise_sum.h -- the kernels that sum what a function gives, over the axes along which an operand was broadcast. The order
// is a matter of shapes alone, and every sum carries what rounding took from it.
#pragma once

#include "elementwise_loops.h"

namespace narrows::gpu {

// A sum and its rounding errors.
template <class C>
struct Sum {
  C high, low;

  __device__ __forceinline__ void add(C x) {
    const C after = high + x, back = after - high;
    low += (high - (after - back)) + (x - back);
    high = after;
  }
  __device__ __forceinline__ void add(Sum other) {
    add(other.high);
    low += other.low;
  }
  __device__ __forceinline__ C total() const { return low - low == 0 ? high + low : high; }  // infinite sums have no error
};

// Adds up the sums of the block's threads that belong together; the first thread of each gets the result.
template <class C>
static __device__ __forceinline__ Sum<C> sum_of_threads(Sum<C> sum, int lane, int row, const SumArgs& args) {
  __shared__ Sum<C> shared[kSumThreads];
  Sum<C>* const own = shared + row * args.lanes + lane;
  *own = sum;
  for (int half = args.rows / 2; half > 0; half /= 2) {
    __syncthreads();
    if (row >= half) continue;
    sum.add(own[half * args.lanes]);
    *own = sum;
  }
  return sum;
}

// The digit of dimension d of an index over the dimensions d to last.
__device__ __forceinline__ int64_t next_digit(int64_t* left, const SumArgs& args, int d, int last) {
  int64_t next, digit;
  if (d == last) return *left;
  if (args.wide) {
    next = *left / args.extent[d];
    digit = *left - next * args.extent[d];
  } else {
    const uint32_t small = static_cast<uint32_t>(*left), q = quotient(small, args.divider[d]);
    next = q;
    digit = small - q * args.divider[d].divisor;
  }
  *left = next;
  return digit;
}

struct SumPlace {
  int lane, row;
  int64_t kept, slice;

  __device__ __forceinline__ explicit SumPlace(const SumArgs& args) {
    const int t = static_cast<int>(threadIdx.x);
    lane = args.lanes_first ? t % args.lanes : t / args.rows;
    row = args.lanes_first ? t / args.lanes : t % args.rows;
    const int64_t groups = (args.kept + args.lanes - 1) / args.lanes;
    slice = blockIdx.x / groups;
    kept = (blockIdx.x - slice * groups) * args.lanes + lane;
  }
};

// Stores a gradient, or a slice's part of it.
template <class T, class C>
__device__ __forceinline__ void store_sum(const SumArgs& args, Sum<C> sum, const SumPlace& at, int64_t offset) {
  if (at.row != 0 || at.kept >= args.kept) return;
  if (args.partial != nullptr) {
    reinterpret_cast<Sum<C>*>(args.partial)[at.slice * args.kept + at.kept] = sum;
  } else if (args.bytewise) {
    store_bytes(args.out + offset, closed<T>(sum.total()));
  } else {
    *reinterpret_cast<T*>(args.out + offset) = closed<T>(sum.total());
  }
}

template <class S, int E>
__device__ __forceinline__ void gather_at(S (&v)[E], const char* base, const int64_t (&offset)[E], const bool (&valid)[E],
                                          bool bytewise) {
#pragma unroll
  for (int e = 0; e < E; ++e)
    v[e] = !valid[e] ? S{} : bytewise ? load_bytes<S>(base + offset[e]) : *reinterpret_cast<const S*>(base + offset[e]);
}

template <class F, class A, class T>
__global__ __launch_bounds__(kSumThreads) void sum_kernel(const SumArgs args) {
  constexpr int E = F::kHeavy ? 1 : 4;
  const SumPlace at(args);
  int64_t base[kMaxSlots + 1] = {};
  int64_t left = at.kept < args.kept ? at.kept : 0;
#pragma unroll 1
  for (int d = 0; d < args.kept_dims; ++d) {
    const int64_t digit = next_digit(&left, args, d, args.kept_dims - 1);
#pragma unroll
    for (int k = 0; k <= kMaxSlots; ++k)
      if (k < F::kArity || k == kOut) base[k] += digit * args.stride[k][d];
  }
  const int64_t per_slice = (args.summed + args.slices - 1) / args.slices, begin = at.slice * per_slice;
  const int64_t end = at.kept >= args.kept ? 0 : begin + per_slice < args.summed ? begin + per_slice : args.summed;
  Sum<Compute<T>> sum{0, 0};
  for (int64_t first = begin + at.row; first < end; first += E * args.rows) {
    int64_t offset[kMaxSlots][E], index[E];
    bool valid[E];
#pragma unroll
    for (int e = 0; e < E; ++e) {
      index[e] = first + e * args.rows;
      valid[e] = index[e] < end;
      if (!valid[e]) index[e] = first;
#pragma unroll
      for (int k = 0; k < F::kArity; ++k) offset[k][e] = base[k];
    }
#pragma unroll 1
    for (int d = args.kept_dims; d < args.dims; ++d) {
#pragma unroll
      for (int e = 0; e < E; ++e) {
        const int64_t digit = next_digit(&index[e], args, d, args.dims - 1);
#pragma unroll
        for (int k = 0; k < F::kArity; ++k) offset[k][e] += digit * args.stride[k][d];
      }
    }
    A raw_a[E];
    T raw_b[E], raw_c[E], raw_d[E];
    const auto load = [&](int k, auto& raw) {
      if (!(args.numbers >> k & 1)) gather_at(raw, args.in[k], offset[k], valid, args.bytewise);
    };
    load(0, raw_a);
    if constexpr (F::kArity > 1) load(1, raw_b);
    if constexpr (F::kArity > 2) load(2, raw_c);
    if constexpr (F::kArity > 3) load(3, raw_d);
    Compute<A> a[E];
    Compute<T> b[E], c[E], d[E];
    open_all(a, raw_a, args.numbers & 1, args.number[0]);
    if constexpr (F::kArity > 1) open_all(b, raw_b, args.numbers >> 1 & 1, args.number[1]);
    if constexpr (F::kArity > 2) open_all(c, raw_c, args.numbers >> 2 & 1, args.number[2]);
    if constexpr (F::kArity > 3) open_all(d, raw_d, args.numbers >> 3 & 1, args.number[3]);
    Compute<T> terms[E];
    apply<F>(terms, a, b, c, d);
#pragma unroll
    for (int e = 0; e < E; ++e)
      if (valid[e]) sum.add(terms[e]);
  }
  store_sum<T>(args, sum_of_threads(sum, at.lane, at.row, args), at, base[kOut]);
}

// Adds up what the slices of each sum made.
template <class T>
__global__ __launch_bounds__(kSumThreads) void finish_kernel(const SumArgs args) {
  using C = Compute<T>;
  const SumPlace at(args);
  int64_t offset = 0, left = at.kept < args.kept ? at.kept : 0;
  for (int d = 0; d < args.kept_dims; ++d) offset += next_digit(&left, args, d, args.kept_dims - 1) * args.stride[kOut][d];
  Sum<C> sum{0, 0};
  if (at.kept < args.kept)
    for (int64_t slice = at.row; slice < args.summed; slice += args.rows)
      sum.add(reinterpret_cast<const Sum<C>*>(args.in[0])[slice * args.kept + at.kept]);
  store_sum<T>(args, sum_of_threads(sum, at.lane, at.row, args), at, offset);
}

}  // namespace narrows::gpu
