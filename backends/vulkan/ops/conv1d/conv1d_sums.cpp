// SPDX-License-Identifier: Apache-2.0
// conv1d_sums.cpp -- the kernels of the gradients that are sums over batch and positions. Step 5 of a tensor's path. Long sums are
// cut into slices by shape alone (and by the size of the matrix unit's tiles), whose results are added in order.
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
    const SumShape& s = problem.shape;
    push_.blocks = static_cast<uint32_t>(groups);
    if (push_.slices == 1) return;
    sum_ = {push_.slices, {s.groups * s.outs, s.ins, s.taps}, {s.to.outer, s.to.channel, s.to.position}, {}};
    sum_.load(problem.device, problem.dtype, !problem.aligned());
    workspace_size = sum_.bytes(problem.dtype);
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

// Enough work groups for a device, but hundreds of positions to each, and no more than some megabytes of sums.
int64_t slices_of(const SumShape& s, int64_t tap_blocks) {
  constexpr int64_t kBlocks = 2048, kPositions = 1024, kMostSums = int64_t{1} << 21;
  const int64_t rows = s.groups * s.outs * s.ins, total = s.batch * s.outputs;
  const int64_t wanted = std::min(ceil_div(kBlocks, rows * tap_blocks), kMostSums / (rows * s.taps));
  return std::clamp<int64_t>(wanted, 1, std::max<int64_t>(total / kPositions, 1));
}

std::unique_ptr<Part> plan_sums(const SumProblem& problem, int64_t taps) {
  const SumShape& s = problem.shape;
  Push push{};
  const int64_t total = s.batch * s.outputs, tap_blocks = ceil_div(s.taps, taps);
  push.slice_length = ceil_div(total, slices_of(s, tap_blocks));
  push.slices = static_cast<uint32_t>(ceil_div(total, push.slice_length));
  push.tap_blocks = static_cast<uint32_t>(tap_blocks);
  constexpr int64_t kThreads = 64;
  const int64_t loops = 2 * ceil_div(push.slice_length, kThreads) + push.slice_length / s.outputs + 16;
  problem.device.check_loops(static_cast<double>(loops));
  const int64_t groups = s.groups * s.outs * s.ins * tap_blocks * push.slices;
  const Kernel kernel =
      problem.device.kernels().get(kSums.of(problem.dtype), {!problem.aligned(), static_cast<uint32_t>(taps), problem.bias});
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
  const SumShape& s = problem.shape;
  return problem.aligned() && !problem.bias && std::max({s.ins * s.taps, s.batch * s.outputs, s.outs}) < kMostExtent;
}

constexpr MatrixModules kCoopmat = NARROWS_MATRIX_MODULES(conv1d_grad_w_coopmat);
constexpr MatrixTile kLargeMatrices = {2, 2, 4, 4}, kSmallMatrices = {2, 4, 2, 2};

// Whether eights of grad_y and fours of x can be read together, whole ones, whose positions 32 bits count.
bool has_whole_rows(const SumProblem& problem) {
  const SumShape& s = problem.shape;
  const auto starts = [](int64_t count, int64_t stride, int64_t group) { return count <= 1 || stride % group == 0; };
  return s.stride == 1 && s.y.position == 1 && s.x.position == 1 && s.outputs % 8 == 0 && s.extent % kGroup == 0 && s.extent > 0 &&
         problem.y_align >= 16 && problem.x_align >= 8 && starts(s.batch, s.y.outer, 8) &&
         starts(s.groups * s.outs, s.y.channel, 8) && starts(s.batch, s.x.outer, kGroup) &&
         starts(s.groups * s.ins, s.x.channel, kGroup) && std::max({s.extent, s.pad_left, (s.taps - 1) * s.dilation}) < kMostExtent;
}

}  // namespace

std::unique_ptr<Part> plan_sums_scalar(const SumProblem& problem) { return plan_sums(problem, 1); }

std::unique_ptr<Part> plan_sums_direct(const SumProblem& problem) {
  const int64_t taps = problem.shape.taps;
  if (!problem.aligned()) return nullptr;
  return plan_sums(problem, taps == 1 ? 1 : taps <= 4 ? 4 : 16);
}

std::unique_ptr<Part> plan_grad_w_gemm(const SumProblem& problem) {
  const SumShape& s = problem.shape;
  if (!fits_product(problem)) return nullptr;
  const auto count = [&](const GemmTile& tile) { return num_tiles(s, tile.rows(), tile.columns()); };
  GemmTile tile = problem.dtype == Dtype::f64 ? kLargeF64 : kLarge;
  // A tile that is mostly empty, or too few of them even in slices.
  const int64_t stages = ceil_div(s.batch * s.outputs, int64_t{tile.depth});
  if (problem.device.physical.is_cpu() || s.outs <= tile.rows() / 2 || count(tile) * stages < 4 * kManyGroups) tile = kSmall;
  Push push = push_of(s, tile.rows(), tile.columns(), tile.depth);
  push.slices = static_cast<uint32_t>(gemm_slices(problem.device, tile, count(tile), push.stages));
  const int64_t groups = count(tile) * push.slices;
  if (groups > kMostBlocks) return nullptr;
  return std::make_unique<SumPart>(problem, gemm_kernel(problem.device, kGradW.of(problem.dtype), tile), groups, push);
}

std::unique_ptr<Part> plan_grad_w_coopmat(const SumProblem& problem) {
  const SumShape& s = problem.shape;
  Device& device = problem.device;
  if (!has_coopmat(device, problem.dtype) || !fits_product(problem)) return nullptr;
  const MatrixUnit& unit = matrix_unit(device, problem.dtype);
  const auto count = [&](const MatrixTile& tile) { return num_tiles(s, tile.rows(unit), tile.columns(unit)); };
  const int64_t stages = ceil_div(s.batch * s.outputs, kMatrixDepth);
  const bool fills = s.outs > kLargeMatrices.rows(unit) / 2 && s.ins * s.taps > kLargeMatrices.columns(unit) / 2;
  const MatrixTile& tile = fills && count(kLargeMatrices) * stages >= 4 * kManyGroups ? kLargeMatrices : kSmallMatrices;
  Push push = push_of(s, tile.rows(unit), tile.columns(unit), kMatrixDepth);
  push.slices = static_cast<uint32_t>(num_slices(count(tile), stages));
  const int64_t groups = count(tile) * push.slices;
  if (groups > kMostBlocks) return nullptr;
  device.check_loops(3 * ceil_div(stages, push.slices) + 1024);
  const Kernel kernel = matrix_kernel(device, kCoopmat, problem.dtype, tile, 0, kMatrixDepth, {has_whole_rows(problem)});
  return std::make_unique<SumPart>(problem, kernel, groups, push);
}

}  // namespace narrows::vulkan
