// SPDX-License-Identifier: Apache-2.0
// conv1d_sums.cpp -- the kernels of the gradients that are sums over batch and positions. Long sums are cut into slices by shape
// alone (and by the size of the matrix unit's tiles), whose results are added in order.
#include "conv1d.h"

namespace narrows::vulkan {
namespace {

constexpr ByDtype kSums = NARROWS_BY_DTYPE(conv1d_sums), kGradW = NARROWS_BY_DTYPE(conv1d_grad_w);

// As in shaders/conv1d/conv1d_sum.glsl.
struct Push {
  Address grad_y, x, to, partial, shape;
  int64_t slice_length;
  uint32_t slices, tap_blocks, blocks;
  int32_t columns, depth, stages;
  uint32_t row_tiles, column_tiles;
  Divider by_taps, by_outputs;
};

class SumPart final : public Part {
 public:
  SumPart(const SumProblem& problem, Kernel kernel, int64_t groups, Push push)
      : kernel_(std::move(kernel)), groups_(groups), push_(push) {
    push_.blocks = static_cast<uint32_t>(groups);
    if (push_.slices == 1) return;
    sum_ = {push_.slices, problem.to, {}};
    sum_.load(problem.device, problem.g.dtype, !problem.aligned());
    workspace_size = sum_.bytes(problem.g.dtype);
  }
  void record(Recorder& recorder, const Operands& operands, Address workspace, bool ordered) const override {
    Push push = push_;
    push.grad_y = operands.a, push.x = operands.b, push.to = operands.out, push.partial = workspace, push.shape = operands.shape;
    recorder.dispatch(kernel_, push, groups_, ordered);
    if (push.slices > 1) sum_.record(recorder, workspace, operands.out, true);
  }

 private:
  Kernel kernel_;
  int64_t groups_;
  Push push_;
  SliceSum sum_;
};

std::unique_ptr<Part> plan_sums(const SumProblem& problem, int64_t taps) {
  constexpr int64_t kLeastPositions = 1024, kThreads = 64;  // of a slice; of a work group
  const int64_t tap_blocks = ceil_div(problem.to.positions, taps);
  const SumSlices slices = slices_of_sums(problem.g, problem.to, tap_blocks, kLeastPositions);
  Push push{};
  push.slice_length = slices.length;
  push.slices = static_cast<uint32_t>(slices.count);
  push.tap_blocks = static_cast<uint32_t>(tap_blocks);
  const int64_t loops = 2 * ceil_div(slices.length, kThreads) + slices.length / problem.g.out_length + 16;
  problem.device.check_loops(static_cast<double>(loops));
  const int64_t groups = problem.to.outer * problem.to.channels * tap_blocks * slices.count;
  const Kernel kernel =
      problem.device.kernels().get(kSums.of(problem.g.dtype), {!problem.aligned(), static_cast<uint32_t>(taps), problem.of_bias});
  return std::make_unique<SumPart>(problem, kernel, groups, push);
}

constexpr GemmTile kLarge = {16, 16, 2, 2, 16}, kLargeF64 = {16, 16, 1, 2, 16}, kSmall = {8, 8, 1, 1, 16};
static_assert(kLarge.is_whole() && kLargeF64.is_whole() && kSmall.is_whole());

// Tiles of `rows` x `columns` for all groups.
int64_t num_tiles(const SumShape& s, int64_t rows, int64_t columns) {
  return s.groups * ceil_div(s.outs, rows) * ceil_div(s.ins * s.taps, columns);
}

// A product in tiles of `rows` x `columns` and stages of `depth`.
Push push_of(const SumShape& s, int64_t rows, int64_t columns, int64_t depth) {
  Push push{};
  push.columns = static_cast<int32_t>(s.ins * s.taps), push.depth = static_cast<int32_t>(s.batch * s.outputs);
  push.stages = static_cast<int32_t>(ceil_div(s.batch * s.outputs, depth));
  push.row_tiles = static_cast<uint32_t>(ceil_div(s.outs, rows));
  push.column_tiles = static_cast<uint32_t>(ceil_div(s.ins * s.taps, columns));
  push.by_taps = Divider(s.taps), push.by_outputs = Divider(s.outputs);
  return push;
}
bool fits_product(const SumProblem& problem) {
  const SumShape s(problem);
  return problem.aligned() && !problem.of_bias && std::max({s.ins * s.taps, s.batch * s.outputs, s.outs}) < kMostExtent;
}

constexpr MatrixModules kCoopmat = NARROWS_MATRIX_MODULES(conv1d_grad_w_coopmat);
constexpr MatrixTile kLargeMatrices = {2, 2, 4, 4}, kSmallMatrices = {2, 4, 2, 2};

// Whether eights of grad_y and fours of x can be read together, whole ones, whose positions 32 bits count.
bool has_whole_rows(const SumProblem& problem) {
  const ConvGeometry& g = problem.g;
  return g.stride == 1 && g.y.position == 1 && g.x.position == 1 && g.out_length % 8 == 0 && g.length % kGroup == 0 &&
         g.length > 0 && problem.y_align >= 16 && problem.x_align >= 8 &&
         rows_start_on(8, {{g.batch, g.y.outer}, {g.out_channels, g.y.channel}}) &&
         rows_start_on(kGroup, {{g.batch, g.x.outer}, {g.in_channels, g.x.channel}}) &&
         std::max({g.length, g.pad_left, (g.taps - 1) * g.dilation}) < kMostExtent;
}

}  // namespace

std::unique_ptr<Part> plan_sums_scalar(const SumProblem& problem) { return plan_sums(problem, 1); }

std::unique_ptr<Part> plan_sums_direct(const SumProblem& problem) {
  const int64_t taps = problem.to.positions;
  if (!problem.aligned()) return nullptr;
  return plan_sums(problem, taps == 1 ? 1 : taps <= 4 ? 4 : 16);
}

std::unique_ptr<Part> plan_grad_w_gemm(const SumProblem& problem) {
  const SumShape s(problem);
  if (!fits_product(problem)) return nullptr;
  const auto count = [&](const GemmTile& tile) { return num_tiles(s, tile.rows(), tile.columns()); };
  GemmTile tile = problem.g.dtype == Dtype::f64 ? kLargeF64 : kLarge;
  // A tile that is mostly empty, or too few of them even in slices.
  const int64_t stages = ceil_div(s.batch * s.outputs, int64_t{tile.depth});
  if (problem.device.physical.is_cpu() || s.outs <= tile.rows() / 2 || count(tile) * stages < 4 * kManyGroups) tile = kSmall;
  Push push = push_of(s, tile.rows(), tile.columns(), tile.depth);
  push.slices = static_cast<uint32_t>(gemm_slices(problem.device, tile, count(tile), push.stages));
  const int64_t groups = count(tile) * push.slices;
  if (groups > kMostBlocks) return nullptr;
  return std::make_unique<SumPart>(problem, gemm_kernel(problem.device, kGradW.of(problem.g.dtype), tile), groups, push);
}

std::unique_ptr<Part> plan_grad_w_coopmat(const SumProblem& problem) {
  const SumShape s(problem);
  Device& device = problem.device;
  if (!has_coopmat(device, problem.g.dtype) || !fits_product(problem)) return nullptr;
  const MatrixUnit& unit = matrix_unit(device, problem.g.dtype);
  const auto count = [&](const MatrixTile& tile) { return num_tiles(s, tile.rows(unit), tile.columns(unit)); };
  const int64_t stages = ceil_div(s.batch * s.outputs, kMatrixDepth);
  const bool fills = s.outs > kLargeMatrices.rows(unit) / 2 && s.ins * s.taps > kLargeMatrices.columns(unit) / 2;
  const MatrixTile& tile = fills && count(kLargeMatrices) * stages >= 4 * kManyGroups ? kLargeMatrices : kSmallMatrices;
  Push push = push_of(s, tile.rows(unit), tile.columns(unit), kMatrixDepth);
  push.slices = static_cast<uint32_t>(num_slices(count(tile), stages));
  const int64_t groups = count(tile) * push.slices;
  if (groups > kMostBlocks) return nullptr;
  device.check_loops(3 * ceil_div(stages, push.slices) + 1024);
  const Kernel kernel = matrix_kernel(device, kCoopmat, problem.g.dtype, tile, 0, kMatrixDepth, {has_whole_rows(problem)});
  return std::make_unique<SumPart>(problem, kernel, groups, push);
}

}  // namespace narrows::vulkan
