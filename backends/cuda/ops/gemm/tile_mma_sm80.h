// SPDX-License-Identifier: Apache-2.0
// tile_mma_sm80.h -- a block's tile of a matrix product on NVIDIA's matrix units (mma.sync): sums[row, column] = sum over k of
// a(row, k) * b(column, k). f16 and bf16 from sm_80 on, summed in f32. f32 and f64 on sm_90, summed in f64: there the f64 units are
// as fast as plain f32 multiply-adds and need far fewer instructions; products of f32 are exact in f64.
//
//   using Tile = MmaTile<f16, 4, 4, 2, 4>;       // 2 x 4 warps, each 4 * 16 rows x 4 * 8 columns: 128 x 128 sums
//   extern __shared__ uint4 shared[];            // Stages * Tile::kStageUnits
//   Tile::Sums sums;                             // this thread's, 0 at first
//   multiply_mma<Tile, Stages>(fetch, begin, end, shared, sums);
//   for_each_mma_sum<Tile>(sums, row0, column0, [&](int64_t row, int64_t column, auto sum) { ... });
//
// fetch(chunk, stage) issues the asynchronous copies of one chunk, kDepth elements of k from chunk * kDepth on, of kRows rows of a
// and then kColumns rows of b, each row kUnits units of 16 bytes, to the places that Tile::place() says. The order of k within 64
// bytes is no matter, as long as it is the same in a and b: each thread reads 16 bytes of its row, whatever the dtype, and these
// are the operands of one or two instructions.
#pragma once

#include "ops/copy_async_sm80.h"
#include "ops/dtype.h"

namespace narrows::gpu {

// ---- the instructions ----

template <class T>
using MmaSum = std::conditional_t<sizeof(T) == 2, float, double>;

// 16 rows of a by 64 bytes of k, of which a thread has 16 bytes of two rows; 8 rows of b, of which it has 16 bytes of one. f32 is
// widened once, when it is read.
template <class T>
struct MmaOperands {
  using Element = std::conditional_t<sizeof(T) == 2, uint32_t, double>;  // pairs of 16-bit elements
  static constexpr int kElements = sizeof(T) == 8 ? 2 : 4;
  using A = Element[2][kElements];
  using B = Element[kElements];

  static __device__ __forceinline__ void read(const uint4* from, Element (&to)[kElements]) {
    const uint4 unit = *from;
    if constexpr (sizeof(T) == 2) {
      to[0] = unit.x, to[1] = unit.y, to[2] = unit.z, to[3] = unit.w;
    } else if constexpr (sizeof(T) == 4) {
      to[0] = __uint_as_float(unit.x), to[1] = __uint_as_float(unit.y);
      to[2] = __uint_as_float(unit.z), to[3] = __uint_as_float(unit.w);
    } else {
      to[0] = __hiloint2double(static_cast<int>(unit.y), static_cast<int>(unit.x));
      to[1] = __hiloint2double(static_cast<int>(unit.w), static_cast<int>(unit.z));
    }
  }
};

__device__ __forceinline__ void mma(f16, float (&c)[4], const uint32_t (&a)[2][4], const uint32_t (&b)[4], int half) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0][half]), "r"(a[1][half]), "r"(a[0][half + 1]), "r"(a[1][half + 1]), "r"(b[half]), "r"(b[half + 1]));
}
__device__ __forceinline__ void mma(bf16, float (&c)[4], const uint32_t (&a)[2][4], const uint32_t (&b)[4], int half) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0][half]), "r"(a[1][half]), "r"(a[0][half + 1]), "r"(a[1][half + 1]), "r"(b[half]), "r"(b[half + 1]));
}
__device__ __forceinline__ void multiply_units(double (&c)[4], const double (&a)[2][4], const double (&b)[4]) {
#if __CUDA_ARCH__ >= 900
  asm("mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64 {%0,%1,%2,%3}, {%4,%5,%6,%7,%8,%9,%10,%11}, {%12,%13,%14,%15}, "
      "{%0,%1,%2,%3};"
      : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3])
      : "d"(a[0][0]), "d"(a[1][0]), "d"(a[0][1]), "d"(a[1][1]), "d"(a[0][2]), "d"(a[1][2]), "d"(a[0][3]), "d"(a[1][3]), "d"(b[0]),
        "d"(b[1]), "d"(b[2]), "d"(b[3]));
#endif
}
__device__ __forceinline__ void multiply_units(double (&c)[4], const double (&a)[2][2], const double (&b)[2]) {
#if __CUDA_ARCH__ >= 900
  asm("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3])
      : "d"(a[0][0]), "d"(a[1][0]), "d"(a[0][1]), "d"(a[1][1]), "d"(b[0]), "d"(b[1]));
#endif
}

// ---- a tile ----

// A warp has RowTiles tiles of 16 rows and ColumnTiles tiles of 8 columns. The columns are in ColumnGroups groups of equal width,
// of which each warp has its part: a thread that has a column of one group has the same of the others. DepthWarps: warps that share
// sums, each with its part of k, to be added up by the kernel.
template <class Element, int RowTiles, int ColumnTiles, int RowWarps, int ColumnWarps, int ColumnGroups = 1, int DepthWarps = 1>
struct MmaTile {
  using T = Element;
  using Sum = MmaSum<T>;
  static constexpr int kRowTiles = RowTiles, kColumnTiles = ColumnTiles;
  static constexpr int kRowWarps = RowWarps, kColumnWarps = ColumnWarps, kDepthWarps = DepthWarps;
  static constexpr int kThreads = 32 * RowWarps * ColumnWarps * DepthWarps;
  static constexpr int kRows = 16 * RowTiles * RowWarps, kColumns = 8 * ColumnTiles * ColumnWarps;
  static constexpr int kGroupTiles = ColumnTiles / ColumnGroups, kGroupColumns = kColumns / ColumnGroups;
  static constexpr int kUnits = 8, kDepth = kUnits * 16 / static_cast<int>(sizeof(T));
  static constexpr int kStageUnits = (kRows + kColumns) * kUnits;
  static_assert(ColumnTiles % ColumnGroups == 0 && (DepthWarps == 1 || DepthWarps == 2));

  struct Sums {
    Sum at[RowTiles][ColumnTiles][4] = {};
  };

  // Where unit `unit` of row `row` lies in a stage, in units; b's rows come after a's. A quarter of a warp reads 4 units of two
  // neighbouring rows: the halves of odd rows change places, so that these are in different banks.
  static __device__ __forceinline__ int place(int row, int unit) { return row * kUnits + (unit ^ (row & 1) * 4); }

  static __device__ int lane() { return static_cast<int>(threadIdx.x) % 32; }
  static __device__ int warp() { return static_cast<int>(threadIdx.x) / 32; }
  static __device__ int row_warp() { return warp() / ColumnWarps % RowWarps; }
  static __device__ int column_warp() { return warp() % ColumnWarps; }
  static __device__ int depth_warp() { return warp() / (ColumnWarps * RowWarps); }
  static __device__ int first_row(int row_tile) { return (row_warp() * RowTiles + row_tile) * 16; }
  static __device__ int first_column(int column_tile) {
    return column_tile / kGroupTiles * kGroupColumns + (column_warp() * kGroupTiles + column_tile % kGroupTiles) * 8;
  }
  // Of this thread's sum `i` of its row tile or column tile.
  static __device__ int row_of(int row_tile, int i) { return first_row(row_tile) + lane() / 4 + i / 2 * 8; }
  static __device__ int column_of(int column_tile, int i) { return first_column(column_tile) + lane() % 4 * 2 + i % 2; }
};

template <class Tile>
__device__ __forceinline__ void accumulate_mma(const uint4* stage, typename Tile::Sums& sums) {
  using T = typename Tile::T;
  using Operands = MmaOperands<T>;
  const int group = Tile::lane() / 4, unit0 = Tile::lane() % 4;
#pragma unroll
  for (int i = 0; i < 2 / Tile::kDepthWarps; ++i) {
    const int unit = unit0 + (Tile::kDepthWarps == 1 ? i : Tile::depth_warp()) * 4;
    typename Operands::A a[Tile::kRowTiles];
#pragma unroll
    for (int row = 0; row < Tile::kRowTiles; ++row)
#pragma unroll
      for (int j = 0; j < 2; ++j) Operands::read(stage + Tile::place(Tile::first_row(row) + group + j * 8, unit), a[row][j]);
#pragma unroll
    for (int column = 0; column < Tile::kColumnTiles; ++column) {
      typename Operands::B b;
      Operands::read(stage + Tile::place(Tile::kRows + Tile::first_column(column) + group, unit), b);
#pragma unroll
      for (int row = 0; row < Tile::kRowTiles; ++row)
        if constexpr (sizeof(T) == 2) {
          mma(T(), sums.at[row][column], a[row], b, 0);
          mma(T(), sums.at[row][column], a[row], b, 2);
        } else {
          multiply_units(sums.at[row][column], a[row], b);
        }
    }
  }
}

// Adds the products of chunks [begin, end). Afterwards `shared` is free.
template <class Tile, int Stages, class Fetch>
__device__ __forceinline__ void multiply_mma(const Fetch& fetch, int64_t begin, int64_t end, uint4* shared,
                                             typename Tile::Sums& sums) {
  static_assert(Stages >= 2);
#pragma unroll
  for (int i = 0; i < Stages - 1; ++i) {
    if (begin + i < end) fetch(begin + i, shared + i * Tile::kStageUnits);
    end_stage();
  }
  int stage = 0, next = Stages - 1;
#pragma unroll 1
  for (int64_t chunk = begin; chunk < end; ++chunk) {
    wait_for_stage<Stages - 2>();
    __syncthreads();  // the chunk is there for all, and all are done with the stage that the next fetch overwrites
    if (chunk + Stages - 1 < end) fetch(chunk + Stages - 1, shared + next * Tile::kStageUnits);
    end_stage();
    accumulate_mma<Tile>(shared + stage * Tile::kStageUnits, sums);
    stage = stage + 1 == Stages ? 0 : stage + 1;
    next = next + 1 == Stages ? 0 : next + 1;
  }
  wait_for_stage<0>();
  __syncthreads();
}

template <class Tile, class Visit>
__device__ __forceinline__ void for_each_mma_sum(const typename Tile::Sums& sums, int64_t row0, int64_t column0,
                                                 const Visit& visit) {
#pragma unroll
  for (int row = 0; row < Tile::kRowTiles; ++row)
#pragma unroll
    for (int column = 0; column < Tile::kColumnTiles; ++column)
#pragma unroll
      for (int i = 0; i < 4; ++i) visit(row0 + Tile::row_of(row, i), column0 + Tile::column_of(column, i), sums.at[row][column][i]);
}

}  // namespace narrows::gpu
