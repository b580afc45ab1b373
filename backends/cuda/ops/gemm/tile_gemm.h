// SPDX-License-Identifier: Apache-2.0
// tile_gemm.h -- a block's tile of a matrix product: sums[row, column] = sum over k of a(row, k) * b(column, k), with plain
// multiply-adds, on any device. What an operand is, a loader says; what becomes of the sums, the kernel. conv1d and lltm make their
// kernels of it; tile_mma_sm80.h has the same interface on NVIDIA's matrix units.
//
// A kernel for a product of plain matrices, whole:
//
//   using Tile = GemmTile<float, 16, 16, 2, 2, 16>;  // 128 x 128 sums, 256 threads
//   __shared__ Tile::Shared shared;
//   Tile::Sums sums;                                 // this thread's, 0 at first
//   multiply<Tile>(a, b, row0, column0, 0, depth, shared, sums);
//   for_each_sum<Tile>(sums, row0, column0, [&](int64_t row, int64_t column, float sum) { ... });
//
// A loader is a value with
//   static constexpr bool kAlongDepth                          which way one load reaches: along k, or along the rows
//   __device__ void load(int64_t row, int64_t k, Acc (&out)[kGroup<Acc>]) const
//                                                              elements (row, k ...) or (row ..., k); 0 outside the operand
// Rows and k are those of multiply()'s ranges, rounded up to tiles, so a loader checks its own bounds.
#pragma once

#include "ops/dtype.h"

namespace narrows::gpu {

// Accumulators in 16 bytes: what is read of shared memory at once, and what a loader delivers at once.
template <class Acc>
inline constexpr int kGroup = static_cast<int>(16 / sizeof(Acc));

// A thread has RowGroups x ColumnGroups blocks of kGroup x kGroup sums; blocks of one thread lie rows() / RowGroups apart, so that
// neighbouring threads read neighbouring 16 bytes. `Depth`: k between two barriers.
template <class AccType, int ThreadRows, int ThreadColumns, int RowGroups, int ColumnGroups, int Depth>
struct GemmTile {
  using Acc = AccType;
  static constexpr int kUnit = kGroup<Acc>;
  static constexpr int kThreads = ThreadRows * ThreadColumns, kDepth = Depth;
  static constexpr int kRowGroups = RowGroups, kColumnGroups = ColumnGroups;
  static constexpr int kRowStep = ThreadRows * kUnit, kColumnStep = ThreadColumns * kUnit;
  static constexpr int kRows = kRowStep * RowGroups, kColumns = kColumnStep * ColumnGroups;

  // Two stages of both operands, k by k. With 4 more than a multiple of 8 elements in a row, a warp's transposing stores (see
  // Stager) touch every bank once.
  struct alignas(16) Shared {
    Acc a[2][Depth][kRows + 4];
    Acc b[2][Depth][kColumns + 4];
  };
  struct Sums {
    Acc at[RowGroups * kUnit][ColumnGroups * kUnit] = {};
  };

  // Threads of a warp form a rectangle of 8 x 4, which makes the fewest different addresses in the reads of both operands.
  static constexpr int kLaneRows = ThreadRows % 8 == 0 ? 8 : ThreadRows, kLaneColumns = ThreadColumns % 4 == 0 ? 4 : ThreadColumns;
  static __device__ int thread_row() {
    const int lane = static_cast<int>(threadIdx.x) % (kLaneRows * kLaneColumns);
    return static_cast<int>(threadIdx.x) / (kLaneRows * kLaneColumns) / (ThreadColumns / kLaneColumns) * kLaneRows +
           lane / kLaneColumns;
  }
  static __device__ int thread_column() {
    const int lane = static_cast<int>(threadIdx.x) % (kLaneRows * kLaneColumns);
    return static_cast<int>(threadIdx.x) / (kLaneRows * kLaneColumns) % (ThreadColumns / kLaneColumns) * kLaneColumns +
           lane % kLaneColumns;
  }
  // Where this thread's i-th row and j-th column lie in the tile.
  static __device__ int row_of(int i) { return i / kUnit * kRowStep + thread_row() * kUnit + i % kUnit; }
  static __device__ int column_of(int j) { return j / kUnit * kColumnStep + thread_column() * kUnit + j % kUnit; }
};

namespace detail {

// Carries one operand's stage from its loader to shared memory; between the two it waits in registers while the sums go on.
template <class Acc, int Width, int Depth, int Threads>
struct Stager {
  static constexpr int kUnit = kGroup<Acc>;
  static constexpr int kLoads = Width * Depth / kUnit, kPerThread = (kLoads + Threads - 1) / Threads;
  static_assert(Depth % (2 * kUnit) == 0 && Width % kUnit == 0);
  Acc held[kPerThread][kUnit];

  // Of a thread's i-th load. Along the depth two neighbouring threads share a row: their 32 bytes are one sector of memory.
  template <bool AlongDepth>
  static __device__ bool place(int i, int* row, int* k) {
    const int load = i * Threads + static_cast<int>(threadIdx.x);
    if (AlongDepth) {
      *row = load / 2 % Width;
      *k = (load % 2 + load / (2 * Width) * 2) * kUnit;
    } else {
      *row = load % (Width / kUnit) * kUnit;
      *k = load / (Width / kUnit);
    }
    return kLoads % Threads == 0 || load < kLoads;
  }

  template <class Loader>
  __device__ void fetch(const Loader& loader, int64_t row0, int64_t k0) {
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) {
      int row, k;
      if (place<Loader::kAlongDepth>(i, &row, &k)) loader.load(row0 + row, k0 + k, held[i]);
    }
  }

  template <bool AlongDepth>
  __device__ void store(Acc (&stage)[Depth][Width + 4]) const {
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) {
      int row, k;
      if (!place<AlongDepth>(i, &row, &k)) continue;
#pragma unroll
      for (int j = 0; j < kUnit; ++j)
        if (AlongDepth)
          stage[k + j][row] = held[i][j];
        else
          stage[k][row + j] = held[i][j];
    }
  }
};

template <class Acc>
struct alignas(16) Group {
  Acc at[kGroup<Acc>];
};

template <class Tile>
__device__ __forceinline__ void accumulate(const typename Tile::Shared& shared, int stage, typename Tile::Sums& sums) {
  using Acc = typename Tile::Acc;
  constexpr int kUnit = Tile::kUnit;
  const int row = Tile::thread_row() * kUnit, column = Tile::thread_column() * kUnit;
#pragma unroll
  for (int k = 0; k < Tile::kDepth; ++k) {
    Group<Acc> a[Tile::kRowGroups], b[Tile::kColumnGroups];
#pragma unroll
    for (int g = 0; g < Tile::kRowGroups; ++g)
      a[g] = *reinterpret_cast<const Group<Acc>*>(&shared.a[stage][k][g * Tile::kRowStep + row]);
#pragma unroll
    for (int g = 0; g < Tile::kColumnGroups; ++g)
      b[g] = *reinterpret_cast<const Group<Acc>*>(&shared.b[stage][k][g * Tile::kColumnStep + column]);
#pragma unroll
    for (int i = 0; i < Tile::kRowGroups * kUnit; ++i)
#pragma unroll
      for (int j = 0; j < Tile::kColumnGroups * kUnit; ++j)
        sums.at[i][j] = fma(a[i / kUnit].at[i % kUnit], b[j / kUnit].at[j % kUnit], sums.at[i][j]);
  }
}

}  // namespace detail

// Adds the products of k in [k_begin, k_end) to `sums`. k_end is rounded up to a whole number of stages. All threads of the block
// call it; it may be called again, with the same `shared`, after a barrier.
template <class Tile, class LoadA, class LoadB>
__device__ __forceinline__ void multiply(const LoadA& a, const LoadB& b, int64_t row0, int64_t column0, int64_t k_begin,
                                         int64_t k_end, typename Tile::Shared& shared, typename Tile::Sums& sums) {
  using Acc = typename Tile::Acc;
  if (k_begin >= k_end) return;
  detail::Stager<Acc, Tile::kRows, Tile::kDepth, Tile::kThreads> stager_a;
  detail::Stager<Acc, Tile::kColumns, Tile::kDepth, Tile::kThreads> stager_b;
  stager_a.fetch(a, row0, k_begin);
  stager_b.fetch(b, column0, k_begin);
  stager_a.template store<LoadA::kAlongDepth>(shared.a[0]);
  stager_b.template store<LoadB::kAlongDepth>(shared.b[0]);
  __syncthreads();
  int stage = 0;
#pragma unroll 1
  for (int64_t k = k_begin; k < k_end; k += Tile::kDepth, stage ^= 1) {
    const bool more = k + Tile::kDepth < k_end;
    if (more) {
      stager_a.fetch(a, row0, k + Tile::kDepth);
      stager_b.fetch(b, column0, k + Tile::kDepth);
    }
    detail::accumulate<Tile>(shared, stage, sums);
    if (more) {
      stager_a.template store<LoadA::kAlongDepth>(shared.a[stage ^ 1]);
      stager_b.template store<LoadB::kAlongDepth>(shared.b[stage ^ 1]);
    }
    __syncthreads();
  }
}

// visit(row, column, sum) for each of this thread's sums, those past the matrix's edge among them.
template <class Tile, class Visit>
__device__ __forceinline__ void for_each_sum(const typename Tile::Sums& sums, int64_t row0, int64_t column0, const Visit& visit) {
#pragma unroll
  for (int i = 0; i < Tile::kRowGroups * Tile::kUnit; ++i)
#pragma unroll
    for (int j = 0; j < Tile::kColumnGroups * Tile::kUnit; ++j)
      visit(row0 + Tile::row_of(i), column0 + Tile::column_of(j), sums.at[i][j]);
}

// ---- loaders ----

// Count elements at an address that is a multiple of their size together, as one access.
template <class T, int Count>
__device__ __forceinline__ void load_together(const T* from, Accumulate<T> (&out)[Count]) {
  constexpr int kBytes = Count * static_cast<int>(sizeof(T));
  static_assert(kBytes == 16 || kBytes == 8);
  using Word = std::conditional_t<kBytes == 16, uint4, uint2>;
  const Word word = *reinterpret_cast<const Word*>(from);
  T elements[Count];
  memcpy(elements, &word, kBytes);
#pragma unroll
  for (int i = 0; i < Count; ++i) out[i] = widen(elements[i]);
}

// A matrix of rows x depth elements of T, any strides. Together: along the way of its loads the stride is 1, the base and the
// other stride are multiples of kGroup elements, and so the groups are read as one access; the last one may be cut.
template <class T, bool AlongDepth, bool Together>
struct MatrixLoader {
  using Acc = Accumulate<T>;
  static constexpr bool kAlongDepth = AlongDepth;
  const T* base;
  int64_t row_stride, depth_stride;
  int64_t rows, depth;

  __device__ __forceinline__ void load(int64_t row, int64_t k, Acc (&out)[kGroup<Acc>]) const {
    constexpr int kUnit = kGroup<Acc>;
    const int64_t left = AlongDepth ? (row < rows ? depth - k : 0) : (k < depth ? rows - row : 0);
    const int64_t step = AlongDepth ? depth_stride : row_stride;
    const T* from = base + (row * row_stride + k * depth_stride);
    if (Together && left >= kUnit) return load_together<T, kUnit>(from, out);
#pragma unroll
    for (int i = 0; i < kUnit; ++i) out[i] = i < left ? widen(from[i * (Together ? 1 : step)]) : Acc{0};
  }
};

// Whether a MatrixLoader may load together: `along` and `across` are its two strides.
template <class T>
bool loads_together(const nw_tensor_sig& tensor, int64_t first_element, int64_t along, int64_t across) {
  constexpr int kUnit = kGroup<Accumulate<T>>;
  const int64_t bytes = kUnit * static_cast<int64_t>(sizeof(T));
  return along == 1 && across % kUnit == 0 && first_element % kUnit == 0 && int64_t{1} << tensor.align_log2 >= bytes;
}

// ---- a reduction cut into slices, for small results of long reductions ----

// Slice `i` of `slices` in whole stages.
__host__ __device__ inline int64_t slice_begin(int64_t stages, int64_t slices, int64_t i) {
  return stages / slices * i + (i < stages % slices ? i : stages % slices);
}

// Sums `slices` partial results that lie `size` elements apart, in their order.
template <class Acc>
__device__ __forceinline__ Acc sum_slices(const Acc* partial, int64_t size, int64_t slices) {
  Acc sum = partial[0];
  for (int64_t i = 1; i < slices; ++i) sum += partial[i * size];
  return sum;
}

}  // namespace narrows::gpu
