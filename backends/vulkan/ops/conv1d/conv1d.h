// SPDX-License-Identifier: Apache-2.0
// conv1d.h -- the parts that conv1d and conv1d_backward are put together from, and the kernels that each part may run on. A part is
// a correlation (the forward pass; one residue of grad_x) or a sum over batch and positions (grad_w, grad_bias). Every kernel
// family plans a part, or says that it isn't made for it.
#pragma once

#include "common/conv1d.h"
#include "ops/gemm/gemm.h"

namespace narrows::vulkan {

// Addresses of a part's tensors: of a correlation x, w, bias or 0, and the result; of a sum grad_y, x, 0, and the gradient. `shape`
// is that of the part's CorrelationShape or SumShape in memory.
struct Operands {
  Address a, b, bias, out, shape;
};

// A part, planned.
class Part {
 public:
  virtual ~Part() = default;
  // ordered: after all that was recorded before; else the call's own commands may still run.
  virtual void record(Recorder& recorder, const Operands& operands, Address workspace, bool ordered) const = 0;
  uint64_t workspace_size = 0;
};

// ---- correlations ----

// As in shaders/conv1d/conv1d_correlation.glsl: what all residues of grad_x have in common.
struct CorrelationShape {
  int64_t batch, groups, outs, ins;
  int64_t step, tap_step, extent;
  int64_t in_batch, in_group, in_channel, in_position;
  int64_t w_group, w_out, w_in, w_tap;
  int64_t out_batch, out_group, out_channel, out_position;
  int64_t bias_stride;

  explicit CorrelationShape(const Correlation& c)
      : batch(c.batch), groups(c.groups), outs(c.outs), ins(c.ins), step(c.step), tap_step(c.tap_step), extent(c.extent),
        in_batch(c.in_batch), in_group(c.in_group), in_channel(c.in_channel), in_position(c.in_position), w_group(c.w_group),
        w_out(c.w_out), w_in(c.w_in), w_tap(c.w_tap), out_batch(c.out_batch), out_group(c.out_group), out_channel(c.out_channel),
        out_position(c.out_position), bias_stride(c.bias_stride) {}
};

struct CorrelationProblem : CorrelationRequest {
  Device& device;
};

// ---- sums ----

// As in shaders/conv1d/conv1d_sum.glsl.
struct SumShape {
  int64_t batch, groups, outs, ins, taps, outputs;
  int64_t stride, dilation, pad_left, extent;
  Strides3 x, y, to;

  explicit SumShape(const SumRequest& r)
      : batch(r.g.batch), groups(r.g.groups), outs(r.g.outs()), ins(r.to.channels), taps(r.to.positions), outputs(r.g.out_length),
        stride(r.g.stride), dilation(r.g.dilation), pad_left(r.g.pad_left), extent(r.g.length), x(r.g.x), y(r.g.y),
        to(r.to.strides) {}
};

struct SumProblem : SumRequest {
  Device& device;
};

// ---- kernel families: nullptr for a part that they aren't made for; a part has at least one output element ----

using PlanCorrelation = std::unique_ptr<Part> (*)(const CorrelationProblem&);
using PlanSum = std::unique_ptr<Part> (*)(const SumProblem&);

// The plain loops, for everything.
std::unique_ptr<Part> plan_scalar(const CorrelationProblem& problem);
std::unique_ptr<Part> plan_sums_scalar(const SumProblem& problem);
// Few channels to a group: sliding windows; of sums several taps at once, and slices.
std::unique_ptr<Part> plan_direct(const CorrelationProblem& problem);
std::unique_ptr<Part> plan_sums_direct(const SumProblem& problem);
// Few outputs to a filter: dot products.
std::unique_ptr<Part> plan_dots(const CorrelationProblem& problem);
// Many channels to a group: products, of f16 and bf16 by the device's matrix unit.
bool has_coopmat(const Device& device, Dtype dtype);  // whether there is such a kernel on the device at all
std::unique_ptr<Part> plan_coopmat(const CorrelationProblem& problem);
std::unique_ptr<Part> plan_grad_w_coopmat(const SumProblem& problem);
std::unique_ptr<Part> plan_gemm(const CorrelationProblem& problem);
std::unique_ptr<Part> plan_grad_w_gemm(const SumProblem& problem);

inline constexpr int64_t kMostBlocks = int64_t{1} << 31;  // work groups that the modules count in 32 bits

}  // namespace narrows::vulkan
