// SPDX-License-Identifier: Apache-2.0
// conv1d_split_sm90a.cu -- correlations of f32 on Hopper's matrix units, as accurate as f32's own arithmetic.
// ops/gemm/split_sm90a.h says how: a is x, a row for each position; b is w, a column for each output channel. x goes from where it
// lies to shared memory, if the copy engine (TMA) can walk it and the stride is 1; else it is copied to the workspace first
// (conv1d_lines_sm90a.h). The sum runs over slices of 32 channels; within one over chunks of neighbouring taps, each of which is a
// box of x; within one over its taps, each of which is a step.
//
// A filter is scaled by a power of 2, so that its largest weight has a magnitude from 1 to 2. That is exact, and the sums are
// scaled back. The last kernel computes anew, by plain multiply-adds, the tiles that lost bits.
#include "conv1d_lines_sm90a.h"
#include "conv1d_native.h"
#include "conv1d_product.h"
#include "ops/gemm/split_sm90a.h"

namespace narrows::gpu {
namespace {

// What undoes a filter's scaling, its bias or 0, and whether it has weights so small beside its largest that bits got lost.
struct alignas(16) Filter {
  float back, bias;
  uint32_t loses, unused;
};

// What lies in the workspace beside the planes of weights, [group][part][tap][output channel][channel]; and bias, which filters
// take.
struct Notes {
  Filter* filters;       // of all output channels
  SplitRecord* records;  // of all tiles
  const float* bias;
  int64_t bias_stride;

  __device__ float bias_of(int64_t filter) const { return bias == nullptr ? 0.0f : bias[filter * bias_stride]; }
};

struct SplitShape {
  CUtensorMap x, w;
  Correlation c;
  int columns;  // of a tile: output channels
  BoxOrder order;
  int boxes, wide_boxes, row_tiles, column_tiles, tiles;  // boxes: of the whole sum
  int parts, slices_of_part;
  TapChunks of;
  // Of a call.
  float* out;
  const float* bias;
  float* partials;  // [part][batch][output channel][position], if there are several parts
  Filter* filters;
  SplitRecord* records;

  // Output channels are the fastest: blocks that read one tile of x run side by side.
  struct Place {
    int column, group, row, batch, part, channel, boxes, wide_boxes;
    __device__ Place(const SplitShape& s, int tile) {
      column = tile % s.column_tiles * s.columns, tile /= s.column_tiles;
      group = tile % static_cast<int>(s.c.groups), tile /= static_cast<int>(s.c.groups);
      row = tile % s.row_tiles * kSplitRows, tile /= s.row_tiles;
      batch = tile % static_cast<int>(s.c.batch), part = tile / static_cast<int>(s.c.batch);
      channel = part * s.slices_of_part * kSplitDepth;
      const int before = part * s.slices_of_part * s.of.chunks;
      boxes = min(s.boxes - before, s.slices_of_part * s.of.chunks), wide_boxes = min(s.wide_boxes - before, boxes);
    }
  };
  struct Box {
    int channel, chunk = 0;
    __device__ Box(const SplitShape&, const Place& at) : channel(at.channel) {}
    __device__ __forceinline__ void advance(const SplitShape& s) {
      if (++chunk == s.of.chunks) chunk = 0, channel += kSplitDepth;
    }
    __device__ __forceinline__ int steps(const SplitShape& s) const { return s.of.chunk[chunk].taps; }
    __device__ __forceinline__ int shift(const SplitShape& s, const Place&, int step) const {
      return s.of.chunk[chunk].shift + step * s.of.tap_step;
    }
  };
  __device__ __forceinline__ void load_a(const Place& at, const Box& box, uint32_t to, uint32_t barrier) const {
    const int position = at.row + of.chunk[box.chunk].start, line = of.chunk[box.chunk].line;
    order == BoxOrder::rows ? copy_in(to, &x, barrier, position, box.channel, at.group, line, at.batch)
                            : copy_in(to, &x, barrier, box.channel, position, at.group, line, at.batch);
  }
  __device__ __forceinline__ void load_b(const Place& at, const Box& box, int step, int part, uint32_t to, uint32_t barrier) const {
    copy_in(to, &w, barrier, box.channel, at.column, of.chunk[box.chunk].first + step, part, at.group);
  }
  __device__ __forceinline__ SplitTarget target(const Place& at) const {
    if (parts == 1)
      return {out + at.batch * c.out_batch + at.group * c.out_group + at.row * c.out_position + at.column * c.out_channel,
              c.out_position, c.out_channel};
    const int64_t row = ((at.part * c.batch + at.batch) * c.groups + at.group) * c.outs + at.column;
    return {partials + row * c.length + at.row, 1, c.length};
  }
  template <int kColumns>
  __device__ __forceinline__ void store(const Place& at, const SplitSums<kColumns>& sums, int group, SplitRecord* record) const {
    const int64_t first = at.group * c.outs + at.column;
    const int outs = static_cast<int>(c.outs) - at.column;
    const bool adds = bias != nullptr && parts == 1;  // else a -0 would become 0
    // All that the sums need is read before the first store, behind which no load may move. Columns that are not there read the
    // last.
    float back[kColumns / 4], add[kColumns / 4];
    uint32_t loses = 0;
#pragma unroll
    for (int j = 0; j < kColumns / 4; ++j) {
      const Filter filter = filters[first + min(sums.column_of(j), outs - 1)];
      back[j] = filter.back, add[j] = filter.bias, loses |= filter.loses;
    }
    if (loses != 0) record->b_loses = 1;
    sums.store(target(at), group, static_cast<int>(c.length) - at.row, outs, record,
               [&](int j, float sum) { return adds ? sum * back[j] + add[j] : sum * back[j]; });
  }
};

// ---- weights: a block for each filter ----

struct SplitPack {
  Correlation c;
  MoreWeights more;
  int64_t pitch;  // channels, to a multiple of 16
  int lines, tiles;
  BoxOrder order;
};

// e of a largest magnitude of 2^e to 2^(e + 1); 0 where there is none, or it is not finite.
__device__ __forceinline__ int exponent_of(uint32_t most) {
  return most == 0 || most >= kInfinity ? 0 : ilogbf(__uint_as_float(most));
}
// Times 2^-e, as two factors that are numbers: exact, but for elements that get lost.
struct Scaling {
  float first, second;
  __device__ __forceinline__ explicit Scaling(int exponent)
      : first(scalbnf(1.0f, -exponent / 2)), second(scalbnf(1.0f, -exponent - -exponent / 2)) {}
  __device__ __forceinline__ float operator()(float x, SplitRange& range) const {
    const float scaled = x * first * second;
    range.see(scaled == 0.0f && x != 0.0f ? 1u : __float_as_uint(scaled));
    return scaled;
  }
};

__global__ void split_weights(const SplitPack s, const float* w, const float* more, uint32_t* planes, const Notes notes) {
  allow_next_kernel();
  __shared__ uint32_t most, loses;
  const Correlation& c = s.c;
  const int filter = static_cast<int>(blockIdx.x), group = filter / static_cast<int>(c.outs),
            out = filter % static_cast<int>(c.outs);
  const int taps = static_cast<int>(c.taps), ins = static_cast<int>(c.ins), pitch = static_cast<int>(s.pitch);
  for (int i = filter * kThreads + static_cast<int>(threadIdx.x); i < s.tiles; i += static_cast<int>(gridDim.x) * kThreads)
    notes.records[i].clear();
  if (threadIdx.x == 0) most = loses = 0;
  __syncthreads();
  w += group * c.w_group + out * c.w_out;
  const auto weight = [&](int channel, int tap) {
    return channel < s.more.from ? w[channel * c.w_in + tap * c.w_tap]
                                 : more[out * s.more.out + (channel - s.more.from) * s.more.in];
  };
  uint32_t largest = 0;
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x); i < ins * taps; i += kThreads)
    largest = max(largest, __float_as_uint(taps == 1 ? weight(i, 0) : weight(i / taps, i % taps)) & 0x7fffffffu);
  largest = __reduce_max_sync(~0u, largest);
  if (threadIdx.x % 32 == 0) atomicMax(&most, largest);
  __syncthreads();
  const int exponent = exponent_of(most);
  const Scaling scale(exponent);
  const int pairs = pitch / 2;
  const int64_t plane = c.taps * c.outs * pairs;
  uint32_t* const to = planes + kParts * group * plane + out * pairs;
  SplitRange range;
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x); i < taps * pairs; i += kThreads) {
    const int place = taps == 1 ? 0 : i / pairs, pair = i - place * pairs, tap = tap_at(taps, s.lines, place);
    float scaled[2];
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int channel = pair / 8 * 16 + depth_at(s.order, pair % 8 * 2 + e);
      scaled[e] = scale(channel < ins ? weight(channel, tap) : 0.0f, range);
    }
    uint32_t parts[kParts];
    split(scaled[0], scaled[1], parts);
#pragma unroll
    for (int part = 0; part < kParts; ++part) to[part * plane + place * c.outs * pairs + pair] = parts[part];
  }
  if (range.least < 2 * kSplitLeast - 1) loses = 1;
  __syncthreads();
  if (threadIdx.x == 0) notes.filters[filter] = {scalbnf(1.0f, exponent), notes.bias_of(filter), loses, 0};
}

// The same of filters of one tap that lie side by side: a block makes 32 of them.
__global__ void split_weights_across(const SplitPack s, const float* w, uint32_t* planes, const Notes notes) {
  allow_next_kernel();
  constexpr int kFilters = 32, kWarps = kThreads / 32;
  __shared__ uint32_t most[kFilters], loses[kFilters];
  __shared__ int exponents[kFilters];
  __shared__ float tile[kFilters][kFilters + 1];
  const Correlation& c = s.c;
  const int blocks = (static_cast<int>(c.outs) + kFilters - 1) / kFilters, group = static_cast<int>(blockIdx.x) / blocks;
  const int first = static_cast<int>(blockIdx.x) % blocks * kFilters, outs = static_cast<int>(c.outs),
            ins = static_cast<int>(c.ins);
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int pitch = static_cast<int>(s.pitch), pairs = pitch / 2;
  for (int i = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x); i < s.tiles;
       i += static_cast<int>(gridDim.x) * kThreads)
    notes.records[i].clear();
  if (warp == 0) most[lane] = loses[lane] = 0;
  __syncthreads();
  w += group * c.w_group + first * c.w_out;
  const auto weight = [&](int out, int channel) {
    return first + out < outs && channel < ins ? w[out * c.w_out + channel * c.w_in] : 0.0f;
  };
  uint32_t largest = 0;
  for (int channel = warp; channel < ins; channel += kWarps)
    largest = max(largest, __float_as_uint(weight(lane, channel)) & 0x7fffffffu);
  atomicMax(&most[lane], largest);
  __syncthreads();
  if (warp == 0) exponents[lane] = exponent_of(most[lane]);
  const int64_t plane = c.outs * pairs;
  for (int from = 0; from < pitch; from += kFilters) {
    __syncthreads();
    for (int i = warp; i < kFilters; i += kWarps) tile[lane][i] = weight(lane, from + i);
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < kFilters * kFilters / 2; i += kThreads) {
      const int out = i / (kFilters / 2), pair = i % (kFilters / 2);
      if (first + out >= outs || from / 2 + pair >= pairs) continue;
      SplitRange range;
      const Scaling scale(exponents[out]);
      float scaled[2];
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        scaled[e] = scale(tile[out][pair / 8 * 16 + depth_at(s.order, pair % 8 * 2 + e)], range);
      }
      if (range.least < 2 * kSplitLeast - 1) loses[out] = 1;
      uint32_t parts[kParts];
      split(scaled[0], scaled[1], parts);
      uint32_t* const to = planes + kParts * group * plane + (first + out) * int64_t{pairs} + from / 2 + pair;
#pragma unroll
      for (int part = 0; part < kParts; ++part) to[part * plane] = parts[part];
    }
  }
  __syncthreads();
  if (warp == 0 && first + lane < outs) {
    const int64_t filter = group * c.outs + first + lane;
    notes.filters[filter] = {scalbnf(1.0f, exponents[lane]), notes.bias_of(filter), loses[lane], 0};
  }
}

template <int kColumns, BoxOrder kOrder>
__global__ void __launch_bounds__(kSplitThreads, 1) correlate_split(const __grid_constant__ SplitShape s) {
  extern __shared__ uint8_t bytes[];
  multiply_split<SplitShape, kColumns, kOrder>(s, bytes);
}

// ---- tiles that lost bits ----

constexpr uint32_t kTwo = 0x40000000;                 // above the largest weight of a scaled filter
using PlainTile = GemmTile<float, 16, 16, 2, 2, 16>;  // 128 output channels x 128 positions

// As WeightLoader, of two tensors.
struct FilterLoader {
  using Acc = float;
  static constexpr bool kAlongDepth = true;
  const ProductShape& s;
  const MoreWeights& more;
  const float *w, *second;

  __device__ __forceinline__ void load(int64_t row, int64_t k, Acc (&out)[kGroup<Acc>]) const {
    uint32_t channel, tap;
    s.taps.divide(static_cast<uint32_t>(k), &channel, &tap);
#pragma unroll
    for (int i = 0; i < kGroup<Acc>; ++i) {
      out[i] = 0.0f;
      if (row < s.c.outs && k + i < s.depth)
        out[i] = channel < more.from ? w[row * s.c.w_out + channel * s.c.w_in + tap * s.c.w_tap]
                                     : second[row * more.out + (channel - more.from) * more.in];
      if (++tap == s.taps.divisor) tap = 0, ++channel;
    }
  }
};

__device__ void compute_lost(const SplitShape& s, const SplitShape::Place& at, const ProductShape& product, const MoreWeights& more,
                             const Operands& p, PlainTile::Shared& shared) {
  const Correlation& c = s.c;
  typename PlainTile::Sums sums;
  multiply<PlainTile>(FilterLoader{product, more, static_cast<const float*>(p.b) + c.w_offset + at.group * c.w_group,
                                   static_cast<const float*>(p.more)},
                      WindowLoader<float>{product, static_cast<const float*>(p.a) + at.group * c.in_group}, at.column,
                      at.batch * c.length + at.row, at.channel * c.taps,
                      at.channel * c.taps + at.boxes / s.of.chunks * kSplitDepth * c.taps, shared, sums);
  const SplitTarget to = s.target(at);
  const bool adds = s.bias != nullptr && s.parts == 1;
  for (int j = 0; j < PlainTile::kColumnGroups * PlainTile::kUnit; ++j) {
    const int row = PlainTile::column_of(j);
    if (at.row + row >= c.length) continue;
#pragma unroll
    for (int i = 0; i < PlainTile::kRowGroups * PlainTile::kUnit; ++i) {
      const int column = PlainTile::row_of(i);
      if (column >= s.columns || at.column + column >= c.outs) continue;
      const float sum = sums.at[i][j];
      to.base[row * to.row + column * to.column] =
          adds ? sum + s.bias[(at.group * c.outs + at.column + column) * c.bias_stride] : sum;
    }
  }
}

__global__ void __launch_bounds__(PlainTile::kThreads)
    correlate_lost(const __grid_constant__ SplitShape s, const ProductShape product, const MoreWeights more, const Operands p) {
  wait_for_kernel_ahead();
  __shared__ typename PlainTile::Shared shared;
  for_each_lost(
      s.tiles,
      [&](int tile) {
        const SplitRecord& record = s.records[tile];
        return record.is_lost(s.c.ins * s.c.taps, record.b_loses != 0 ? 0 : ~0u, kTwo);
      },
      [&](int tile) { compute_lost(s, SplitShape::Place(s, tile), product, more, p, shared); });
}

// out = the parts' sums, in their order, + bias.
__global__ void add_parts(const __grid_constant__ SplitShape s) {
  wait_for_kernel_ahead();
  const Correlation& c = s.c;
  // Less than 2^26 sums: kMostBytes of cut_split() are of two parts at least.
  const int filters = static_cast<int>(c.groups * c.outs), length = static_cast<int>(c.length);
  const int total = static_cast<int>(c.batch) * filters * length, step = static_cast<int>(gridDim.x) * kThreads;
  for (int i = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x); i < total; i += step) {
    const int row = i / length, q = i - row * length, n = row / filters, filter = row - n * filters;
    float sum = s.partials[i];
    for (int part = 1; part < s.parts; ++part) sum += s.partials[int64_t{part} * total + i];
    if (s.bias != nullptr) sum += s.bias[filter * c.bias_stride];
    const int group = filter / static_cast<int>(c.outs);
    s.out[n * c.out_batch + group * c.out_group + (filter - group * c.outs) * c.out_channel + q * c.out_position] = sum;
  }
}

// ---- the part ----

class SplitPart final : public Part {
 public:
  explicit SplitPart(const CorrelationProblem& problem) : multiprocessors_(problem.device->multiprocessors) {
    const Correlation& c = s_.c = problem.c;
    if (!plan_chunks(c, kSplitSlack, 4, &s_.of)) return;
    s_.columns = c.outs <= 64 ? 64 : c.outs <= 96 ? 96 : kSplitColumns;
    const int64_t slices = ceil_div(c.ins, kSplitDepth), rest = c.ins % kSplitDepth;
    s_.boxes = static_cast<int>(slices) * s_.of.chunks;
    s_.wide_boxes = s_.boxes - (rest > 0 && rest <= kSplitDepth / 2 ? s_.of.chunks : 0);
    s_.row_tiles = static_cast<int>(ceil_div(c.length, kSplitRows)),
    s_.column_tiles = static_cast<int>(ceil_div(c.outs, s_.columns));
    const int64_t whole = c.batch * c.groups * s_.column_tiles * s_.row_tiles, sums = c.batch * c.groups * c.outs * c.length;
    if (whole > kMaxBlocks || c.groups * c.outs > kMaxBlocks) return;
    const SplitCut cut = cut_split(multiprocessors_, whole, slices, c.taps, sums);
    s_.parts = static_cast<int>(cut.parts), s_.slices_of_part = static_cast<int>(cut.of_part);
    const int64_t tiles = whole * s_.parts;
    if (tiles > kMaxBlocks) return;
    s_.tiles = static_cast<int>(tiles);
    s_.order = is_walkable_by_channels(problem) ? BoxOrder::depth : BoxOrder::rows;
    pack_ = {c, problem.more, ceil_div(c.ins, 16) * 16, s_.of.lines, s_.tiles, s_.order};
    filters_at_ = split_bytes(c.groups * kParts * c.taps * c.outs * pack_.pitch * 2);
    records_at_ = filters_at_ + split_bytes(c.groups * c.outs * sizeof(Filter));
    partials_at_ = records_at_ + split_bytes(tiles * sizeof(SplitRecord));
    lines_at_ = partials_at_ + (s_.parts > 1 ? split_bytes(s_.parts * sums * 4) : 0);
    workspace_size = static_cast<uint64_t>(lines_at_);
    copied_ = s_.order == BoxOrder::rows && !is_walkable(problem);
    if (copied_) {
      line_ = plan_lines(c, s_.of, Dtype::f32);
      if (line_.blocks == 0) return;
      workspace_size += bytes_of(line_, Dtype::f32);
    }
    product_.c = c, product_.taps = FastDivide(c.taps), product_.columns = c.batch * c.length, product_.depth = c.ins * c.taps;
    product_.w_rows = false;
    if (product_.depth >= kFastDivideLimit / 2) return;
    fits_ = problem.forced || pays();
    if (!fits_) return;  // before kernels are loaded for nothing
    load_kernel(split_weights);
    load_kernel(split_weights_across);
    load_copies<float>();
    with_kernel([&](auto* kernel) { load_kernel(kernel, kSplitShared); });
    load_kernel(correlate_lost);
    load_kernel(add_parts);
  }
  bool fits() const { return fits_; }

  void launch(const Operands& p, void* workspace, gpuStream_t stream) const override {
    auto* const bytes = static_cast<char*>(workspace);
    auto* const planes = static_cast<uint32_t*>(workspace);
    const Correlation& c = s_.c;
    SplitShape s = s_;
    s.filters = reinterpret_cast<Filter*>(bytes + filters_at_), s.records = reinterpret_cast<SplitRecord*>(bytes + records_at_);
    s.partials = reinterpret_cast<float*>(bytes + partials_at_);
    s.out = static_cast<float*>(p.out) + c.out_offset, s.bias = static_cast<const float*>(p.bias);
    const auto* const w = static_cast<const float*>(p.b) + c.w_offset;
    if (s.order == BoxOrder::depth)
      s.x = encode_map(map_by_channels(c, Dtype::f32, kSplitDepth, box_rows(BoxOrder::depth), 128), p.a, "conv1d");
    else
      s.x = copied_ ? encode_map(map_of_lines(line_, Dtype::f32, box_pitch(BoxOrder::rows), kSplitDepth, 0), bytes + lines_at_,
                                 "conv1d")
                    : encode_map(map_in_place(c, Dtype::f32, box_pitch(BoxOrder::rows), kSplitDepth, 0), p.a, "conv1d");
    const int64_t tap = c.outs * pack_.pitch, plane = tap * c.taps;
    s.w = encode_map({Dtype::bf16,
                      {pack_.pitch, c.outs, c.taps, kParts, c.groups},
                      {pack_.pitch, tap, plane, kParts * plane},
                      kSplitDepth,
                      s.columns,
                      64},
                     planes, "conv1d");
    const Notes notes{s.filters, s.records, s.bias, c.bias_stride};
    if (lies_across())
      launch_kernel(split_weights_across, c.groups * ceil_div(c.outs, 32), kThreads, 0, stream, pack_, w, planes, notes);
    else
      launch_kernel(split_weights, c.groups * c.outs, kThreads, 0, stream, pack_, w, static_cast<const float*>(p.more), planes,
                    notes);
    if (copied_) launch_copy<float>(line_, p.a, bytes + lines_at_, stream);
    with_kernel([&](auto* kernel) {
      launch_overlapping(90, kernel, std::min(s.tiles, multiprocessors_), kSplitThreads, kSplitShared, stream, s);
    });
    launch_overlapping(90, correlate_lost, ceil_div(s.tiles, kTilesOfBlock), PlainTile::kThreads, 0, stream, s, product_,
                       pack_.more, p);
    if (s.parts > 1) launch_overlapping(90, add_parts, grid_of(c.batch * c.groups * c.outs * c.length), kThreads, 0, stream, s);
  }

 private:
  // Whether it beats plain multiply-adds, which waste less on small extents. The units do 2.5 times as many of them.
  bool pays() const {
    const Correlation& c = s_.c;
    const double useful = static_cast<double>(c.outs) * static_cast<double>(c.ins * c.taps) * static_cast<double>(c.length);
    const double done = static_cast<double>(s_.column_tiles) * s_.columns * s_.row_tiles * kSplitRows *
                        static_cast<double>(c.taps * ceil_div(c.ins, kSplitDepth / 2) * (kSplitDepth / 2));
    constexpr double kWorthIt = 1 << 29;
    return workspace_size <= kMostSplitWorkspace && done <= 1.7 * useful &&
           useful * static_cast<double>(c.batch * c.groups) >= kWorthIt;
  }
  template <class Visit>
  void with_kernel(Visit&& visit) const {
    s_.order == BoxOrder::rows ? with_columns<BoxOrder::rows>(visit) : with_columns<BoxOrder::depth>(visit);
  }
  template <BoxOrder kOrder, class Visit>
  void with_columns(Visit&& visit) const {
    visit(s_.columns == 64   ? correlate_split<64, kOrder>
          : s_.columns == 96 ? correlate_split<96, kOrder>
                             : correlate_split<kSplitColumns, kOrder>);
  }
  // Filters that lie side by side, of one tensor.
  bool lies_across() const { return s_.c.taps == 1 && s_.c.w_out == 1 && s_.c.w_in != 1 && pack_.more.from >= s_.c.ins; }

  SplitShape s_{};
  SplitPack pack_{};
  LineShape line_{};
  ProductShape product_{};
  int multiprocessors_;
  bool copied_ = false, fits_ = false;
  int64_t filters_at_ = 0, records_at_ = 0, partials_at_ = 0, lines_at_ = 0;
};

}  // namespace

std::unique_ptr<Part> plan_split(const CorrelationProblem& problem) {
  const Correlation& c = problem.c;
  if (problem.device->compute_capability != 90 || problem.device->shared_memory < kSplitShared || find_encode() == nullptr)
    return nullptr;
  if (problem.dtype != Dtype::f32 || !problem.aligned() || c.ins == 0 || c.extent == 0 || !is_countable(c)) return nullptr;
  auto part = std::make_unique<SplitPart>(problem);
  return part->fits() ? std::move(part) : nullptr;
}

}  // namespace narrows::gpu
