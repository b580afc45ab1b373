// SPDX-License-Identifier: Apache-2.0
// lltm_as_conv1d.cu -- see lltm_as_conv1d.h.
#include "lltm_as_conv1d.h"

#include "lltm_cell.h"

namespace narrows::gpu {
namespace {

// out[i, j] = sum over k of w[i, k] * in[k, j], as a correlation of one tap.
Correlation product_of(int64_t rows, int64_t columns, int64_t depth, Strides2 w, Strides2 in, Strides2 out) {
  Correlation c{};
  c.batch = c.groups = c.taps = c.step = c.tap_step = 1;
  c.outs = rows, c.ins = depth, c.length = c.extent = columns;
  c.w_out = w.row, c.w_in = w.column;
  c.in_channel = in.row, c.in_position = in.column;
  c.out_channel = out.row, c.out_position = out.column;
  return c;
}

std::unique_ptr<Part> plan_product(const CorrelationProblem& problem) {
  return conv1d_native().split == nullptr ? nullptr : conv1d_native().split(problem);
}

uint64_t gates_size(const LltmSizes& z) { return static_cast<uint64_t>(ceil_div(z.batch * 3 * z.state * 4, 256) * 256); }

void launch(const LltmChoice& choice, const LltmForward& p, gpuStream_t stream) {
  const uint64_t size = gates_size({Dtype::f32, p.batch, p.features, p.state});
  choice.product->launch({p.weights.base, p.old_h.base, nullptr, p.workspace, p.input.base}, p.workspace + size, stream);
  launch_kernel(reinterpret_cast<void (*)(LltmForward)>(const_cast<void*>(choice.kernel)), choice.blocks, choice.threads, 0, stream,
                p);
}

}  // namespace

LltmChoice lltm_as_conv1d(const LltmRequest& request) {
  const LltmSizes& z = request.sizes;
  const int64_t blocks = z.batch * cell_blocks_of_row(z.state);
  if (z.dtype != Dtype::f32 || !request.aligned || z.batch == 0 || z.state == 0 || blocks > kMaxBlocks) return {};
  const auto strides = [&](uint32_t i) { return strides2(input(request.sig, i)); };
  const Strides2 weights = strides(lltm_forward::kWeights), old_h = strides(lltm_forward::kOldH),
                 more = strides(lltm_forward::kInput);
  // A row of the product for each cell of the batch, a column for each gate. in[k, j] is weights[j, k].
  CorrelationProblem problem{};
  problem.dtype = Dtype::f32, problem.device = &request.device, problem.forced = request.forced;
  problem.c = product_of(z.batch, 3 * z.state, z.state + z.features, old_h, {weights.column, weights.row}, {3 * z.state, 1});
  problem.more = {z.state, more.row, more.column};
  problem.in_align = alignment(input(request.sig, lltm_forward::kWeights));
  problem.w_align = problem.bias_align = problem.out_align = 16;
  LltmChoice choice;
  choice.product = plan_product(problem);
  if (choice.product == nullptr) return {};
  choice.workspace_size = gates_size(z) + choice.product->workspace_size;
  choice.kernel = kernel_address(lltm_cells_kernel<float>);
  choice.blocks = blocks, choice.threads = kCellThreads, choice.launch = launch;
  return choice;
}

std::unique_ptr<Part> plan_lltm_as_conv1d(const LltmAsConv1d& p) {
  const LltmProduct& of = p.product;
  CorrelationProblem problem{};
  problem.dtype = Dtype::f32, problem.device = p.device, problem.forced = p.forced;
  const Strides2 grads = of.to_weights ? Strides2{1, p.pitch} : Strides2{p.pitch, 1};
  problem.c = product_of(of.rows, of.columns, of.depth, grads, p.operand, p.out);
  problem.in_align = p.operand_align, problem.out_align = p.out_align, problem.w_align = problem.bias_align = 16;
  return plan_product(problem);
}

}  // namespace narrows::gpu
