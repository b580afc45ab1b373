// SPDX-License-Identifier: Apache-2.0
// gemm.h -- the matrix product under conv1d and lltm: out[m, n] = sum over k of a[m, k] * b[k, n], for operands that are never
// copied as a whole. A view says where an element lies (any strides, or a sliding window over a signal); gemm.cpp gathers views
// into packed panels and multiplies those.
#pragma once

#include <cstdint>

#include "backend.h"
#include "ops/float_types.h"
#include "ops/tasks.h"

namespace narrows::cpu {

inline constexpr int64_t kUnbounded = -1;

// Longest range of k that is packed at once, so that most of a panel stays in a first-level cache; longer sums are cut evenly. A
// panel of b, three vectors wide, is then 36 KB in f32 with AVX-512's vectors (192 * 48 * 4), and 24 KB in f64 (128 * 24 * 8) and
// of pairs of bf16 (128 * 48 * 4), of 48 KB; with AVX2's it is half of that.
inline constexpr int64_t kDepthBlock = 192, kDepthBlockOfF64 = 128, kDepthBlockOfPairs = 256;
// A task's block of the result: packing costs little beside multiplying then, and the sums, with what is packed for one range of k,
// stay in a second-level cache of 2 MB: in f32 with AVX-512's vectors sums of 256 * 16 * 48 * 4 = 768 KB, b's panels of
// 16 * 48 * 192 * 4 = 576 KB and a's rows of 256 * 192 * 4 = 192 KB. Up to kMostRows are taken whole, though fewer would stay: else
// panels are packed twice.
inline constexpr int64_t kBlockRows = 256, kMostRows = 512, kGroupPanels = 16;
// Up to so many bytes of an output are stored by the tiles themselves.
inline constexpr int64_t kBytesStoredOnce = 512 << 10;

// A matrix operand, `depth` being the summed index k and `width` the other one. Both split in two, outer and inner:
// k = ko * depth_inner + ki, j = jo * width_inner + ji. The element lies at
//   base + ko * depth_outer + jo * width_outer + position * stride,  position = ki * depth_step + ji * width_step + origin
// and is 0 where position is outside [0, extent), unless that is kUnbounded. Strides count elements.
struct GemmView {
  const void* base = nullptr;
  Dtype dtype = Dtype::f32;
  int64_t depth_inner = INT64_MAX, depth_outer = 0, depth_step = 0;
  int64_t width_inner = INT64_MAX, width_outer = 0, width_step = 0;
  int64_t origin = 0, extent = kUnbounded, stride = 1;
};

// A plain matrix by its two strides.
inline GemmView matrix_view(const void* base, Dtype dtype, int64_t depth_stride, int64_t width_stride) {
  GemmView view;
  view.base = base, view.dtype = dtype;
  view.depth_step = depth_stride, view.width_step = width_stride;
  return view;
}

// Drops the split of the depth where the strides continue over it: long contiguous runs pack faster.
inline GemmView merged(GemmView view) {
  if (view.extent == kUnbounded && view.depth_outer == view.depth_inner * view.depth_step * view.stride)
    view.depth_inner = INT64_MAX;
  return view;
}

// One summand of the product: k in [begin, end). a's width is m, b's is n.
struct GemmSegment {
  GemmView a, b;
  int64_t begin = 0, end = 0;
};

// Where element (m, n), n = no * column_inner + ni, is stored, after bias[m] is added, or bias[n].
struct GemmOutput {
  void* base = nullptr;
  Dtype dtype = Dtype::f32;
  int64_t row_stride = 0;
  int64_t column_inner = INT64_MAX, column_outer_stride = 0, column_stride = 0;
  const void* bias = nullptr;  // of the output's dtype; NULL: none
  int64_t bias_stride = 0;
  bool bias_by_column = false;
  bool streamed = false;  // past the caches, which it would leave before anybody reads it; not in 16 bits
};

// The same for a result: long contiguous runs are stored faster.
inline GemmOutput merged(GemmOutput output) {
  if (output.column_outer_stride == output.column_inner * output.column_stride) output.column_inner = INT64_MAX;
  return output;
}

struct GemmProblem;
// Takes a finished tile: `rows` rows from `row` on by the columns of `panel`, row-major, GemmTile::columns apart.
using GemmStore = void (*)(const GemmProblem& problem, void* tile, int64_t row, int64_t rows, int64_t panel);

struct GemmProblem {
  int64_t rows = 0, columns = 0;
  // False: panel p holds columns p * 3 * lanes and on. True: b has three ranges of `columns` columns, and the v-th vector of panel
  // p (v = 0, 1, 2) holds those from p * lanes on of the v-th range, so that a tile has all three side by side.
  bool interleaved = false;
  int num_segments = 1;
  GemmSegment segments[2];
  GemmOutput output;
  GemmStore store = nullptr;  // NULL: to `output`
  const void* store_arg = nullptr;
};

// What a task does, for each range of k in turn, and at its end.
enum class Stage { pack_a, pack_b, multiply, store };

// The micro-kernel's tile: `rows`, and `columns` = 3 vectors of `lanes`.
struct GemmTile {
  int64_t rows, lanes, columns;
};

// How a number of problems of one size is cut into tasks. Depends on the thread count, but no sum's order does.
struct GemmLayout {
  Dtype accumulate;
  int64_t depth_block;
  Bf16Products pairs;  // not f32: both operands are bf16, and packed as gemm_pairs-inl.h says
  bool b_in_place;     // b is not packed, but read where it lies
  GemmTile tile;
  int64_t problems, row_blocks, block_rows, panel_groups, group_panels;
  double task_cost;
  uint64_t a_bytes, b_bytes, slot_bytes, workspace_size;
};

// dtype: of both operands; where they differ, that of the sums. Sizes are upper bounds over all problems; `depths` are the lengths
// of the segments. b_by_depth: b is a plain matrix of `dtype` in which depths are contiguous; few rows are then multiplied by it in
// place.
GemmLayout gemm_layout(const Instance& instance, Dtype dtype, int64_t problems, int64_t rows, int64_t columns, bool interleaved,
                       int64_t depth0, int64_t depth1 = 0, bool b_by_depth = false);

// Computes every problem; describe(arg, i) makes the i-th one.
void gemm(const Instance& instance, const GemmLayout& layout, void* workspace, GemmProblem (*describe)(const void* arg, int64_t i),
          const void* arg);
template <class Describe>
void gemm(const Instance& instance, const GemmLayout& layout, void* workspace, const Describe& describe) {
  gemm(instance, layout, workspace, [](const void* arg, int64_t i) { return (*static_cast<const Describe*>(arg))(i); }, &describe);
}

}  // namespace narrows::cpu
