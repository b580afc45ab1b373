// SPDX-License-Identifier: Apache-2.0
// conv1d_split_grad_w_sm90a.cu -- grad_w of f32 on Hopper's matrix units, as accurate as f32's own arithmetic.
// ops/gemm/split_sm90a.h says how.
//
// grad_w[o, c, tap] = sum over n and t of grad_y[n, o, t] * x[n, c, t + shift(tap)]. A tile is of one tap, and of some of the
// positions, whose partial sums the last kernel adds. The larger of grad_y and x is a: it comes raw and is read from another start
// for each tap. The other one is b and split into the workspace first.
#include "conv1d_native.h"
#include "conv1d_product.h"
#include "ops/gemm/split_sm90a.h"

namespace narrows::gpu {
namespace {

// One of grad_y and x: [batch][group][channel][position].
struct Side {
  const float* base;
  int64_t outer, channel, position;  // strides in elements
  int64_t channels, length;          // channels: of a group
};

struct GradSplitShape {
  CUtensorMap a_map, b_map;
  Side a, b;
  int64_t batch, groups, taps, dilation, pad;
  int64_t a_out, b_out;  // from a row, a column to the next in a partial sum
  int64_t sums;          // elements of one partial sum
  bool a_is_x;
  int columns, row_tiles, column_tiles, tiles;
  int boxes_of_n;  // of the positions of b
  int parts, boxes_of_part;
  // Of a call.
  float* partials;
  SplitRecord* records;  // of all tiles; then that of b

  // Parts are the slowest: blocks that read the same positions run side by side.
  struct Place {
    int column, row, tap, group, part, first, boxes, wide_boxes;
    int shift;  // from a position of b to that of a
    __device__ Place(const GradSplitShape& s, int tile) {
      column = tile % s.column_tiles * s.columns, tile /= s.column_tiles;
      row = tile % s.row_tiles * kSplitRows, tile /= s.row_tiles;
      tap = tile % static_cast<int>(s.taps), tile /= static_cast<int>(s.taps);
      group = tile % static_cast<int>(s.groups), part = tile / static_cast<int>(s.groups);
      first = part * s.boxes_of_part;
      const int all = static_cast<int>(s.batch) * s.boxes_of_n;
      boxes = wide_boxes = min(all - first, s.boxes_of_part);
      const int to_x = static_cast<int>(tap * s.dilation - s.pad);
      shift = s.a_is_x ? to_x : -to_x;
    }
  };
  struct Box {
    int n, position;
    __device__ Box(const GradSplitShape& s, const Place& at)
        : n(at.first / s.boxes_of_n), position(at.first % s.boxes_of_n * kSplitDepth) {}
    __device__ __forceinline__ void advance(const GradSplitShape& s) {
      position += kSplitDepth;
      if (position == s.boxes_of_n * kSplitDepth) position = 0, ++n;
    }
    __device__ __forceinline__ int steps(const GradSplitShape&) const { return 1; }
    __device__ __forceinline__ int shift(const GradSplitShape&, const Place& at, int) const { return at.shift & 3; }
  };
  __device__ __forceinline__ void load_a(const Place& at, const Box& box, uint32_t to, uint32_t barrier) const {
    copy_in(to, &a_map, barrier, box.position + (at.shift & ~3), at.row, at.group, box.n, 0);
  }
  __device__ __forceinline__ void load_b(const Place& at, const Box& box, int, int part, uint32_t to, uint32_t barrier) const {
    copy_in(to, &b_map, barrier, box.position, at.column, at.group, box.n, part);
  }
  __device__ __forceinline__ float* partial(const Place& at) const {
    const int64_t group_sums = sums / groups;
    return partials + at.part * sums + at.group * group_sums + at.row * a_out + at.column * b_out + at.tap;
  }
  template <int kColumns>
  __device__ __forceinline__ void store(const Place& at, const SplitSums<kColumns>& sums, int group, SplitRecord* record) const {
    sums.store({partial(at), a_out, b_out}, group, static_cast<int>(a.channels) - at.row, static_cast<int>(b.channels) - at.column,
               record, [](int, float sum) { return sum; });
  }
};

// ---- b: planes[part][n][group][channel][position], rows padded to `pitch` ----

struct SidePack {
  Side b;
  int64_t batch, groups, pitch, plane;  // plane: pairs
};

__global__ void clear_records(SplitRecord* records, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) records[i].clear();
}

// A block for each row; a thread makes pairs.
__global__ void __launch_bounds__(kThreads) split_side(const SidePack s, uint32_t* planes, SplitRecord* record) {
  const int row = static_cast<int>(blockIdx.x), channels = static_cast<int>(s.groups * s.b.channels), n = row / channels;
  const int pairs = static_cast<int>(s.pitch / 2), length = static_cast<int>(s.b.length);
  const float* const from = s.b.base + n * s.b.outer + (row - n * channels) * s.b.channel;
  planes += int64_t{row} * pairs;
  SplitRange range;
#pragma unroll 4
  for (int pair = static_cast<int>(threadIdx.x); pair < pairs; pair += kThreads) {
    float x[2];
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int position = pair / 8 * 16 + depth_at(BoxOrder::slid, pair % 8 * 2 + e);
      x[e] = position < length ? from[position * s.b.position] : 0.0f;
      range.see(__float_as_uint(x[e]));
    }
    uint32_t parts[kParts];
    split(x[0], x[1], parts);
#pragma unroll
    for (int part = 0; part < kParts; ++part) planes[part * s.plane + pair] = parts[part];
  }
  range.gather_in(record);
}

template <int kColumns>
__global__ void __launch_bounds__(kSplitThreads, 1) grad_w_split(const __grid_constant__ GradSplitShape s) {
  extern __shared__ uint8_t bytes[];
  multiply_split<GradSplitShape, kColumns, BoxOrder::slid>(s, bytes);
}

// ---- tiles that lost bits ----

using PlainTile = GemmTile<float, 16, 16, 2, 2, 16>;  // 128 rows x 128 columns

// Rows of one side; the depth is that of the boxes. Zero wherever either side has no such position.
struct SideLoader {
  using Acc = float;
  static constexpr bool kAlongDepth = true;
  const Side& side;
  const Side& b;
  int64_t group, batch, depth_of_n, a_length;
  int to_side, to_a;  // from a position of b

  __device__ __forceinline__ void load(int64_t row, int64_t k, Acc (&out)[kGroup<Acc>]) const {
    const int64_t n = k / depth_of_n;
#pragma unroll
    for (int i = 0; i < kGroup<Acc>; ++i) {
      const int64_t position = k % depth_of_n + i, in_a = position + to_a;
      const bool valid = row < side.channels && n < batch && position < b.length && in_a >= 0 && in_a < a_length;
      out[i] = valid
                   ? side.base[n * side.outer + (group * side.channels + row) * side.channel + (position + to_side) * side.position]
                   : 0.0f;
    }
  }
};

__device__ void compute_lost(const GradSplitShape& s, const GradSplitShape::Place& at, PlainTile::Shared& shared) {
  const int64_t depth_of_n = int64_t{s.boxes_of_n} * kSplitDepth;
  typename PlainTile::Sums sums;
  multiply<PlainTile>(SideLoader{s.a, s.b, at.group, s.batch, depth_of_n, s.a.length, at.shift, at.shift},
                      SideLoader{s.b, s.b, at.group, s.batch, depth_of_n, s.a.length, 0, at.shift}, at.row, at.column,
                      int64_t{at.first} * kSplitDepth, int64_t{at.first + at.boxes} * kSplitDepth, shared, sums);
  float* const to = s.partial(at);
  for (int j = 0; j < PlainTile::kColumnGroups * PlainTile::kUnit; ++j) {
    const int column = PlainTile::column_of(j);
    if (column >= s.columns || at.column + column >= s.b.channels) continue;
#pragma unroll
    for (int i = 0; i < PlainTile::kRowGroups * PlainTile::kUnit; ++i)
      if (at.row + PlainTile::row_of(i) < s.a.channels) to[PlainTile::row_of(i) * s.a_out + column * s.b_out] = sums.at[i][j];
  }
}

__global__ void __launch_bounds__(PlainTile::kThreads) grad_w_lost(const __grid_constant__ GradSplitShape s) {
  wait_for_kernel_ahead();
  __shared__ typename PlainTile::Shared shared;
  const SplitRecord of_b = s.records[s.tiles];
  for_each_lost(
      s.tiles,
      [&](int tile) {
        const GradSplitShape::Place at(s, tile);
        return s.records[tile].is_lost(int64_t{at.boxes} * kSplitDepth, of_b.least_in, of_b.most_in);
      },
      [&](int tile) { compute_lost(s, GradSplitShape::Place(s, tile), shared); });
}

// ---- the part ----

bool is_walkable(const Side& side, int64_t align, int64_t groups, int64_t batch) {
  return align >= 16 && (side.length == 1 || side.position == 1) && steps_well(side.channels * groups, side.channel, 4) &&
         steps_well(batch, side.outer, 4);
}

class GradSplitPart final : public Part {
 public:
  explicit GradSplitPart(const SumProblem& problem) {
    const ConvGeometry& g = problem.g;
    const Side y{nullptr, g.y.outer, g.y.channel, g.y.position, g.outs(), g.out_length},
        x{nullptr, g.x.outer, g.x.channel, g.x.position, g.ins(), g.length};
    const bool can_be_x = is_walkable(x, problem.x_align, g.groups, g.batch),
               can_be_y = is_walkable(y, problem.y_align, g.groups, g.batch);
    if (!can_be_x && !can_be_y) return;
    GradSplitShape& s = s_;
    s.a_is_x = !can_be_y || (can_be_x && x.channels * x.length > y.channels * y.length);
    s.a = s.a_is_x ? x : y, s.b = s.a_is_x ? y : x;
    s.batch = g.batch, s.groups = g.groups, s.taps = g.taps, s.dilation = g.dilation, s.pad = g.pad_left;
    (s.a_is_x ? s.b_out : s.a_out) = g.ins() * g.taps, (s.a_is_x ? s.a_out : s.b_out) = g.taps;
    s.sums = g.out_channels * g.ins() * g.taps;
    s.columns = s.b.channels <= 64 ? 64 : s.b.channels <= 96 ? 96 : kSplitColumns;
    s.row_tiles = static_cast<int>(ceil_div(s.a.channels, kSplitRows)),
    s.column_tiles = static_cast<int>(ceil_div(s.b.channels, s.columns));
    s.boxes_of_n = static_cast<int>(ceil_div(s.b.length, kSplitDepth));
    const int64_t boxes = g.batch * s.boxes_of_n, tiles = s.column_tiles * s.row_tiles * g.taps * g.groups;
    if (boxes > kMost || tiles > kMost) return;
    const SplitCut cut = cut_split(problem.device->multiprocessors, tiles, boxes, 1, s.sums);
    s.parts = static_cast<int>(cut.parts), s.boxes_of_part = static_cast<int>(cut.of_part);
    pack_ = {s.b, g.batch, g.groups, int64_t{s.boxes_of_n} * kSplitDepth, 0};
    pack_.plane = g.batch * g.groups * s.b.channels * pack_.pitch / 2;
    rows_ = g.batch * g.groups * s.b.channels;
    if (rows_ > kMaxBlocks || tiles * s.parts > kMaxBlocks) return;
    s.tiles = static_cast<int>(tiles * s.parts);
    sum_ = {Dtype::f32, s.parts, problem.to};
    records_at_ = split_bytes(kParts * pack_.plane * 4);
    partials_at_ = records_at_ + split_bytes((s.tiles + 1) * sizeof(SplitRecord));
    workspace_size = static_cast<uint64_t>(partials_at_) + sum_.bytes();
    multiprocessors_ = problem.device->multiprocessors;
    fits_ = problem.forced || pays();
    if (!fits_) return;  // before kernels are loaded for nothing
    sum_.load();
    load_kernel(clear_records);
    load_kernel(split_side);
    load_kernel(kernel(), kSplitShared);
    load_kernel(grad_w_lost);
  }
  bool fits() const { return fits_; }

  void launch(const Operands& p, void* workspace, gpuStream_t stream) const override {
    auto* const bytes = static_cast<char*>(workspace);
    auto* const planes = static_cast<uint32_t*>(workspace);
    GradSplitShape s = s_;
    SidePack pack = pack_;
    s.a.base = static_cast<const float*>(s.a_is_x ? p.b : p.a),
    s.b.base = pack.b.base = static_cast<const float*>(s.a_is_x ? p.a : p.b);
    s.records = reinterpret_cast<SplitRecord*>(bytes + records_at_), s.partials = reinterpret_cast<float*>(bytes + partials_at_);
    s.a_map = encode_map({Dtype::f32,
                          {s.a.length, s.a.channels, s.groups, s.batch, 1},
                          {s.a.channel, s.a.channels * s.a.channel, s.a.outer, 0},
                          box_pitch(BoxOrder::slid),
                          box_rows(BoxOrder::slid),
                          0},
                         s.a.base, "conv1d_backward");
    const int64_t group = pack.pitch * s.b.channels, n = group * s.groups;
    s.b_map = encode_map({Dtype::bf16,
                          {pack.pitch, s.b.channels, s.groups, s.batch, kParts},
                          {pack.pitch, group, n, n * s.batch},
                          kSplitDepth,
                          s.columns,
                          64},
                         planes, "conv1d_backward");
    launch_kernel(clear_records, ceil_div(s.tiles + 1, kThreads), kThreads, 0, stream, s.records, s.tiles + 1);
    launch_kernel(split_side, rows_, kThreads, 0, stream, pack, planes, s.records + s.tiles);
    launch_overlapping(90, kernel(), std::min(s.tiles, multiprocessors_), kSplitThreads, kSplitShared, stream, s);
    launch_overlapping(90, grad_w_lost, ceil_div(s.tiles, kTilesOfBlock), PlainTile::kThreads, 0, stream, s);
    sum_.launch(s.partials, p.out, stream);
  }

  static constexpr int64_t kMost = int64_t{1} << 28;

 private:
  // Whether it beats plain multiply-adds, which waste less on small extents. The units do 2.5 times as many of them.
  bool pays() const {
    const double useful = static_cast<double>(s_.a.channels) * static_cast<double>(s_.b.channels);
    const double done = static_cast<double>(s_.row_tiles) * kSplitRows * s_.column_tiles * s_.columns;
    const double terms = static_cast<double>(s_.batch) * static_cast<double>(s_.b.length);
    constexpr double kWorthIt = 1 << 29;
    return workspace_size <= kMostSplitWorkspace && done <= 1.7 * useful &&
           s_.boxes_of_n * kSplitDepth <= 1.5 * static_cast<double>(s_.b.length) &&
           useful * terms * static_cast<double>(s_.taps * s_.groups) >= kWorthIt;
  }
  void (*kernel() const)(GradSplitShape) {
    return s_.columns == 64 ? grad_w_split<64> : s_.columns == 96 ? grad_w_split<96> : grad_w_split<kSplitColumns>;
  }

  GradSplitShape s_{};
  SidePack pack_{};
  SliceSum sum_{};
  int multiprocessors_ = 0;
  bool fits_ = false;
  int64_t rows_ = 0,  // of b: all channels of all n
      records_at_ = 0, partials_at_ = 0;
};

}  // namespace

std::unique_ptr<Part> plan_grad_w_split(const SumProblem& problem) {
  const ConvGeometry& g = problem.g;
  if (problem.device->compute_capability != 90 || problem.device->shared_memory < kSplitShared || find_encode() == nullptr)
    return nullptr;
  if (g.dtype != Dtype::f32 || !problem.aligned() || g.stride != 1 || g.ins() == 0 || g.length == 0 || g.out_length == 0)
    return nullptr;
  for (const int64_t v : {g.length, g.out_length, g.in_channels, g.out_channels, g.batch, g.taps, g.dilation, g.pad_left})
    if (v > GradSplitPart::kMost) return nullptr;
  if (g.dilation * g.taps > GradSplitPart::kMost) return nullptr;
  auto part = std::make_unique<GradSplitPart>(problem);
  return part->fits() ? std::move(part) : nullptr;
}

}  // namespace narrows::gpu
