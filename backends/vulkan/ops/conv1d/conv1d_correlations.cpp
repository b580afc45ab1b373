// SPDX-License-Identifier: Apache-2.0
// conv1d_correlations.cpp -- the kernels of a correlation.
#include <initializer_list>

#include "conv1d.h"

namespace narrows::vulkan {
namespace {

constexpr ByDtype kScalar = NARROWS_BY_DTYPE(conv1d_scalar), kWindows = NARROWS_BY_DTYPE(conv1d_windows),
                  kShort = NARROWS_BY_DTYPE(conv1d_short), kFir = NARROWS_BY_DTYPE(conv1d_fir),
                  kGemm = NARROWS_BY_DTYPE(conv1d_gemm), kDots = NARROWS_BY_DTYPE(conv1d_dots);

// As in shaders/conv1d/conv1d_correlation.glsl.
struct Push {
  Address x, w, bias, y, shape;
  int64_t taps, outputs, origin;
  uint32_t tiles, blocks;
  int32_t columns, depth;
  Divider by_taps, by_outputs;
};

class CorrelationPart final : public Part {
 public:
  CorrelationPart(const CorrelationProblem& problem, Kernel kernel, int64_t groups, Push push)
      : kernel_(std::move(kernel)), groups_(groups), push_(push) {
    const Correlation& c = problem.c;
    const int64_t size = size_of(problem.dtype);
    push_.taps = c.taps, push_.outputs = c.length, push_.origin = c.origin;
    push_.blocks = static_cast<uint32_t>(groups);
    w_offset_ = static_cast<Address>(c.w_offset * size), out_offset_ = static_cast<Address>(c.out_offset * size);
  }
  void record(Recorder& recorder, const Operands& operands, Address, bool ordered) const override {
    Push push = push_;
    push.x = operands.a, push.w = operands.b + w_offset_, push.bias = operands.bias, push.y = operands.out + out_offset_;
    push.shape = operands.shape;
    recorder.dispatch(kernel_, push, groups_, ordered);
  }

 private:
  Kernel kernel_;
  int64_t groups_;
  Push push_;
  Address w_offset_, out_offset_;
};

// ---- direct ----

constexpr int64_t kPositionsOfWindows = 64 * 4;

// Tiles of `positions` outputs of each row; a row is `outs` output channels of a group.
std::unique_ptr<Part> plan_rows(const CorrelationProblem& problem, const Kernel& kernel, int64_t positions, int64_t outs) {
  const Correlation& c = problem.c;
  const int64_t tiles = ceil_div(c.length, positions), rows = c.batch * c.groups * ceil_div(c.outs, outs);
  if (tiles > kMostBlocks / rows) return nullptr;
  Push push{};
  push.tiles = static_cast<uint32_t>(tiles);
  return std::make_unique<CorrelationPart>(problem, kernel, rows * tiles, push);
}

// Whether so many elements may be read at once, from the start of each row on.
bool has_rows_together(Dtype dtype, int64_t align, int64_t step, std::initializer_list<RowStride> rows, int64_t group = kGroup) {
  return step == 1 && align >= std::min<int64_t>(16, group * size_of(dtype)) && rows_start_on(group, rows);
}

// As in shaders/conv1d/conv1d_short.comp.
struct ShortPush {
  Address x, w, bias, y;
  int64_t x_row, y_row, w_row, w_tap, bias_step;
  int32_t extent, outputs, origin;
  uint32_t tiles, blocks, filters;
};

class ShortPart final : public Part {
 public:
  ShortPart(const CorrelationProblem& problem, Kernel kernel, int64_t tiles, ShortPush push)
      : kernel_(std::move(kernel)), push_(push) {
    const Correlation& c = problem.c;
    const int64_t size = size_of(problem.dtype);
    const auto of_rows = [&](int64_t batch, int64_t group) { return (c.groups > 1 ? group : batch) * size; };
    push_.x_row = of_rows(c.in_batch, c.in_group), push_.y_row = of_rows(c.out_batch, c.out_group);
    push_.w_row = c.w_group * size, push_.w_tap = c.w_tap * size, push_.bias_step = c.bias_stride * size;
    push_.extent = static_cast<int32_t>(c.extent), push_.outputs = static_cast<int32_t>(c.length);
    push_.origin = static_cast<int32_t>(c.origin);
    push_.tiles = static_cast<uint32_t>(tiles), push_.blocks = static_cast<uint32_t>(c.batch * c.groups * tiles);
    push_.filters = static_cast<uint32_t>(c.groups);
    w_offset_ = static_cast<Address>(c.w_offset * size), out_offset_ = static_cast<Address>(c.out_offset * size);
  }
  void record(Recorder& recorder, const Operands& operands, Address, bool ordered) const override {
    ShortPush push = push_;
    push.x = operands.a, push.w = operands.b + w_offset_, push.bias = operands.bias, push.y = operands.out + out_offset_;
    recorder.dispatch(kernel_, push, push.blocks, ordered);
  }

 private:
  Kernel kernel_;
  ShortPush push_;
  Address w_offset_, out_offset_;
};

// One channel to one, of rows that lie equally far apart.
std::unique_ptr<Part> plan_short(const CorrelationProblem& problem) {
  constexpr int64_t kMostTaps = 8;
  const Correlation& c = problem.c;
  if (c.ins != 1 || c.outs != 1 || c.taps > kMostTaps || c.taps < 1 || (c.length > 1 && c.step != 1) ||
      (c.taps > 1 && c.tap_step != 1))
    return nullptr;
  if (std::max({c.length, c.extent, c.origin, -c.origin, c.batch, c.groups}) >= kMostExtent) return nullptr;
  const bool both = c.batch > 1 && c.groups > 1;
  if (both && (c.in_batch != c.groups * c.in_group || c.out_batch != c.groups * c.out_group)) return nullptr;
  const int64_t run = size_of(problem.dtype) == 2 ? 8 : 4;
  if (!has_rows_together(problem.dtype, problem.in_align, c.in_position, {{c.batch, c.in_batch}, {c.groups, c.in_group}}, run) ||
      !has_rows_together(problem.dtype, problem.out_align, c.out_position, {{c.batch, c.out_batch}, {c.groups, c.out_group}},
                         run) ||
      c.out_offset % run != 0)
    return nullptr;
  constexpr int64_t kThreads = 128;
  const int64_t runs = run == 8 ? 1 : 2, positions = kThreads * runs * run;
  if (c.length < positions / 4) return nullptr;  // mostly empty tiles
  const int64_t tiles = ceil_div(c.length, positions);
  if (tiles > kMostBlocks / (c.batch * c.groups)) return nullptr;
  const auto word = [](int64_t x) { return static_cast<uint32_t>(x); };
  const Kernel kernel = problem.device.kernels().get(
      kShort.of(problem.dtype), {0, word(kThreads), word(c.taps), word(c.origin & (run - 1)), word(runs), c.extent % run != 0});
  return std::make_unique<ShortPart>(problem, kernel, tiles, ShortPush{});
}

std::unique_ptr<Part> plan_fir(const CorrelationProblem& problem) {
  const Correlation& c = problem.c;
  if ((c.length > 1 && c.step != 1) || (c.taps > 1 && c.tap_step != 1)) return nullptr;
  if (std::max({c.length, c.taps, c.extent, c.origin, -c.origin, c.ins}) >= kMostExtent) return nullptr;
  if (c.ins == 0 || c.taps == 0) return nullptr;
  constexpr int64_t kThreads = 64, kFours = 3, kPositions = kThreads * kFours * kGroup;  // of a tile
  const int64_t outs = c.outs > 1 ? 4 : 1;
  if (c.length < kPositions / 4) return nullptr;  // mostly empty tiles
  const bool in_together = has_rows_together(problem.dtype, problem.in_align, c.in_position,
                                             {{c.batch, c.in_batch}, {c.groups, c.in_group}, {c.ins, c.in_channel}});
  const bool out_together =
      c.out_offset % kGroup == 0 && has_rows_together(problem.dtype, problem.out_align, c.out_position,
                                                      {{c.batch, c.out_batch}, {c.groups, c.out_group}, {c.outs, c.out_channel}});
  const int64_t work_groups = c.batch * c.groups * ceil_div(c.outs, outs) * ceil_div(c.length, kPositions);
  // One after the other, unless a driver would end so long a loop.
  constexpr int64_t kTapsAtATime = 192;
  const int64_t loops = c.ins * (2 + 16 * ceil_div(c.taps, kTapsAtATime));
  const int64_t tiles = work_groups >= 16 * kManyGroups && loops < (1 << 12) ? 4 : 1;
  problem.device.check_loops(tiles * loops);
  const auto word = [](int64_t x) { return static_cast<uint32_t>(x); };
  const bool whole = in_together && c.extent % kGroup == 0 && c.extent > 0;
  const Kernel kernel = problem.device.kernels().get(
      kFir.of(problem.dtype), {0, word(outs), in_together, out_together, in_together ? word(c.origin & (kGroup - 1)) : 0,
                               word(c.taps % 4), word(tiles), whole});
  return plan_rows(problem, kernel, tiles * kPositions, outs);
}

// Of those, and of the plain loops.
double loops_of_windows(const Correlation& c) { return static_cast<double>(c.ins) * (static_cast<double>(c.taps) + 2) + 1; }

std::unique_ptr<Part> plan_windows(const CorrelationProblem& problem) {
  problem.device.check_loops(loops_of_windows(problem.c));
  const int64_t outs = problem.c.outs > 1 ? 8 : 1;
  const Kernel kernel = problem.device.kernels().get(kWindows.of(problem.dtype), {0, static_cast<uint32_t>(outs)});
  return plan_rows(problem, kernel, kPositionsOfWindows, outs);
}

// ---- gemm ----

constexpr GemmTile kLarge = {16, 16, 2, 2, 16}, kLargeF64 = {16, 16, 1, 2, 16}, kSmall = {8, 8, 1, 2, 16},
                   kSmallF64 = {8, 16, 1, 1, 16};
static_assert(kLarge.is_whole() && kLargeF64.is_whole() && kSmall.is_whole() && kSmallF64.is_whole());

int64_t num_tiles(const Correlation& c, const GemmTile& tile) {
  return c.groups * ceil_div(c.outs, tile.rows()) * ceil_div(c.batch * c.length, tile.columns());
}

// Large tiles where they are filled, and there are enough of them.
GemmTile tile_of(const CorrelationProblem& problem) {
  const bool f64 = problem.dtype == Dtype::f64;
  const GemmTile large = f64 ? kLargeF64 : kLarge, small = f64 ? kSmallF64 : kSmall;
  const bool fills = problem.c.outs > large.rows() / 2 && num_tiles(problem.c, large) >= kManyGroups;
  return fills && !problem.device.physical.is_cpu() ? large : small;
}

// ---- coopmat ----

constexpr MatrixModules kCoopmat = NARROWS_MATRIX_MODULES(conv1d_coopmat);
constexpr MatrixTile kLargeMatrices = {2, 2, 4, 4}, kWideMatrices = {2, 2, 4, 5}, kSmallMatrices = {2, 4, 2, 2};

// First the weights are packed into the workspace.
class MatrixPart final : public Part {
 public:
  MatrixPart(const CorrelationProblem& problem, Kernel pack, Push packing, Kernel kernel, int64_t groups, Push push)
      : pack_(std::move(pack)), packing_(packing), product_(problem, std::move(kernel), groups, push),
        w_offset_(static_cast<Address>(problem.c.w_offset * size_of(problem.dtype))) {
    packing_.taps = problem.c.taps;
    workspace_size = uint64_t{packing.blocks} * 16;
  }
  void record(Recorder& recorder, const Operands& operands, Address workspace, bool) const override {
    constexpr int64_t kThreads = 64;
    Push packing = packing_;
    packing.w = operands.b + w_offset_, packing.y = workspace, packing.shape = operands.shape;
    // Ordered even within a call: residues of grad_x share the workspace.
    recorder.dispatch(pack_, packing, ceil_div(packing.blocks, kThreads), true);
    Operands packed = operands;
    packed.b = workspace - w_offset_;  // which the product adds
    product_.record(recorder, packed, workspace, true);
  }

 private:
  Kernel pack_;
  Push packing_;
  CorrelationPart product_;
  Address w_offset_;
};

}  // namespace

std::unique_ptr<Part> plan_scalar(const CorrelationProblem& problem) {
  constexpr int64_t kThreads = 64;
  const Correlation& c = problem.c;
  problem.device.check_loops(loops_of_windows(c));
  const Kernel kernel = problem.device.kernels().get(kScalar.of(problem.dtype), {!problem.aligned()});
  return std::make_unique<CorrelationPart>(problem, kernel, ceil_div(c.batch * c.groups * c.outs * c.length, kThreads), Push{});
}

std::unique_ptr<Part> plan_direct(const CorrelationProblem& problem) {
  if (!problem.aligned()) return nullptr;
  std::unique_ptr<Part> part = plan_short(problem);
  if (part == nullptr) part = plan_fir(problem);
  if (part == nullptr) part = plan_windows(problem);
  return part;
}

std::unique_ptr<Part> plan_dots(const CorrelationProblem& problem) {
  constexpr int64_t kThreads = 128;
  const Correlation& c = problem.c;
  if (!problem.aligned() || !has_few_outputs(c.batch, c.length)) return nullptr;
  const int64_t columns = c.batch * c.length, depth = c.ins * c.taps;
  if (depth >= kMostExtent) return nullptr;
  // An element of x is loaded once for the filters of a work group; but first of all there are enough groups.
  const int64_t most_rows = problem.dtype == Dtype::f64 ? 2 : 4;
  const int64_t rows = c.groups * ceil_div(c.outs, most_rows) >= kManyGroups / 2 ? most_rows : 1;
  const int64_t tiles = ceil_div(c.outs, rows);
  if (tiles > kMostBlocks / c.groups) return nullptr;
  problem.device.check_loops(static_cast<double>(ceil_div(depth, kThreads) + 2 * kThreads));
  Push push{};
  push.tiles = static_cast<uint32_t>(tiles);
  push.columns = static_cast<int32_t>(columns), push.depth = static_cast<int32_t>(depth);
  push.by_taps = Divider(c.taps), push.by_outputs = Divider(c.length);
  const uint32_t held_columns = columns == 1 ? 1 : columns <= 4 ? 4 : uint32_t{kMostOutputsOfDots};
  const Kernel kernel = problem.device.kernels().get(kDots.of(problem.dtype), {0, static_cast<uint32_t>(rows), held_columns});
  return std::make_unique<CorrelationPart>(problem, kernel, c.groups * tiles, push);
}

std::unique_ptr<Part> plan_gemm(const CorrelationProblem& problem) {
  const Correlation& c = problem.c;
  const int64_t columns = c.batch * c.length, depth = c.ins * c.taps;
  if (!problem.aligned() || std::max({columns, depth, c.outs}) >= kMostExtent) return nullptr;
  const GemmTile tile = tile_of(problem);
  const int64_t tiles = num_tiles(c, tile);
  if (tiles > kMostBlocks) return nullptr;
  problem.device.check_loops(gemm_loops(tile, depth));
  const bool filter_rows = c.has_whole_filters() && c.w_offset == 0 &&
                           has_rows_together(problem.dtype, problem.w_align, 1, {{c.outs, c.w_out}, {c.groups, c.w_group}});
  Push push{};
  push.tiles = static_cast<uint32_t>(ceil_div(columns, tile.columns()));
  push.columns = static_cast<int32_t>(columns), push.depth = static_cast<int32_t>(depth);
  push.by_taps = Divider(c.taps), push.by_outputs = Divider(c.length);
  const Kernel kernel = gemm_kernel(problem.device, kGemm.of(problem.dtype), tile, {filter_rows});
  return std::make_unique<CorrelationPart>(problem, kernel, tiles, push);
}

bool has_coopmat(const Device& device, Dtype dtype) { return has_matrix_unit(device, kCoopmat, dtype); }

std::unique_ptr<Part> plan_coopmat(const CorrelationProblem& problem) {
  const Correlation& c = problem.c;
  Device& device = problem.device;
  if (!has_coopmat(device, problem.dtype) || !problem.aligned()) return nullptr;
  const MatrixUnit& unit = matrix_unit(device, problem.dtype);
  const auto num_tiles = [&](const MatrixTile& tile) {
    return c.batch * c.groups * ceil_div(c.outs, tile.rows(unit)) * ceil_div(c.length, tile.columns(unit));
  };
  const bool in_together = c.step == 1 && has_rows_together(problem.dtype, problem.in_align, c.in_position,
                                                            {{c.batch, c.in_batch}, {c.groups, c.in_group}, {c.ins, c.in_channel}});
  // Tiles so wide that a row's last one is as full as may be; columns that are read one by one would take longer there.
  const auto columns = [&](const MatrixTile& tile) { return ceil_div(c.length, tile.columns(unit)) * tile.columns(unit); };
  const bool wide = in_together && columns(kWideMatrices) < columns(kLargeMatrices);
  const bool fills = c.outs > kLargeMatrices.rows(unit) / 2 && num_tiles(kLargeMatrices) >= kManyGroups;
  const MatrixTile& tile = !fills ? kSmallMatrices : wide ? kWideMatrices : kLargeMatrices;
  // The input is read once for all taps where they reach no further than shared memory has room for.
  constexpr int64_t kMostShift = 16;
  const int64_t reach = (c.taps - 1) * std::abs(c.tap_step);
  const bool slides = c.step == 1 && std::abs(c.tap_step) <= kMostShift && reach <= kMostShift;
  // Columns that are read four at a time begin at a multiple of four.
  const int64_t most_shift = slides ? reach : 0;
  const int64_t block = in_together ? kGroup : 1, room = ceil_div(most_shift + block - 1, block) * block;

  // Stages of half the depth, if threads have whole loads then: where all taps' weights find room beside each other so that few
  // barriers are waited at, and where channels that are not there are left out.
  const int64_t half = kMatrixDepth / 2, shared_memory = device.physical.properties.limits.maxComputeSharedMemorySize;
  const bool can_halve = half % unit.k == 0 && tile.rows(unit) * (half / 8) % (tile.subgroups() * unit.subgroup) == 0;
  constexpr int64_t kMostAtOnce = 5;  // more would leave no registers for loads that are under way
  const bool at_once = can_halve && slides && c.taps > 1 && c.taps <= kMostAtOnce &&
                       tile.shared_memory(unit, half, room, 2, c.taps) <= shared_memory;
  const bool halves = at_once || (can_halve && c.ins % kMatrixDepth != 0 && c.ins % kMatrixDepth <= half);
  const int64_t depth = halves ? half : kMatrixDepth, stages = ceil_div(c.ins, depth) * c.taps;
  if (std::max({c.length, c.outs, c.ins, stages * depth, c.batch}) >= kMostExtent) return nullptr;
  const int64_t row_tiles = ceil_div(c.outs, tile.rows(unit)), tiles = num_tiles(tile);
  const int64_t packed = c.groups * row_tiles * stages * tile.rows(unit) * (depth / 8);
  if (tiles > kMostBlocks || packed > kMostBlocks) return nullptr;
  // Weights that packing would blow up, of many small groups: not for speed's sake.
  if (packed * 8 > (int64_t{1} << 24) && packed / 2 > c.groups * c.outs * c.ins * c.taps) return nullptr;
  device.check_loops(3 * stages + 1024);

  // Positions are counted in 32 bits there.
  const bool whole = in_together && c.extent % kGroup == 0 && c.extent > 0 && c.ins % 8 == 0 &&
                     std::max({c.extent, c.origin, -c.origin, reach}) < kMostExtent;
  // Of all sums as f16; of a row of matrices, whose sums are still f32 there.
  const int64_t patches = problem.dtype == Dtype::f16 ? 16 * int64_t{tile.subgroups()} * tile.row_matrices * unit.m *
                                                            (tile.column_matrices * unit.n / 8 + 1)
                                                      : tile.patches(unit, tile.column_matrices);
  const bool out_together = patches <= shared_memory && problem.out_align >= 16 && c.length % 8 == 0 && c.out_position == 1 &&
                            c.out_offset % 8 == 0 &&
                            rows_start_on(8, {{c.batch, c.out_batch}, {c.groups, c.out_group}, {c.outs, c.out_channel}});
  Push push{};
  push.tiles = static_cast<uint32_t>(ceil_div(c.length, tile.columns(unit)));
  push.depth = static_cast<int32_t>(stages);
  push.by_taps = Divider(c.taps);
  Push packing = push;
  packing.blocks = static_cast<uint32_t>(packed);
  packing.columns = static_cast<int32_t>(row_tiles);
  const auto word = [](int64_t x) { return static_cast<uint32_t>(x); };
  const Kernel kernel =
      matrix_kernel(device, kCoopmat, problem.dtype, tile, room, depth,
                    {word(at_once ? c.taps : 1), slides, c.tap_step < 0, word(block), word(most_shift), out_together, whole});
  const Kernel pack = device.kernels().get(shaders::conv1d_pack, {0, word(tile.rows(unit)), word(depth / 8)});
  return std::make_unique<MatrixPart>(problem, pack, packing, kernel, tiles, push);
}

}  // namespace narrows::vulkan
