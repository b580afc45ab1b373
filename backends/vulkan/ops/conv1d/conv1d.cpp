// SPDX-License-Identifier: Apache-2.0
// conv1d.cpp -- plans and records conv1d and conv1d_backward: which kernel each part runs on. Step 5 of a tensor's path. The
// kernels are in conv1d_correlations.cpp and conv1d_sums.cpp.
#include "conv1d.h"

namespace narrows::vulkan {
namespace {

// A kernel variant by name. Of conv1d_backward, `grad_w` goes with it; a part that a variant isn't made for runs on one further
// down the list.
struct Variant {
  const char* name;
  PlanCorrelation correlation;
  PlanSum grad_w;
};
enum Kind { kDots, kCoopmat, kGemm, kDirect, kScalar };
constexpr const char* kKernels[] = {"dots", "coopmat", "gemm", "direct", "scalar", nullptr};
constexpr const char* const* kBackwardKernels = kKernels + kCoopmat;
constexpr Variant kVariants[] = {{kKernels[kDots], plan_dots, nullptr},
                                 {kKernels[kCoopmat], plan_coopmat, plan_grad_w_coopmat},
                                 {kKernels[kGemm], plan_gemm, plan_grad_w_gemm},
                                 {kKernels[kDirect], plan_direct, plan_sums_direct},
                                 {kKernels[kScalar], plan_scalar, plan_sums_scalar}};

// The variant where the search for a call's own kernel begins. Many outputs and a long sum: a product beats sliding windows, if
// need be one of stages that are mostly empty. A CPU's matrix unit is a loop.
Kind first_choice(const Device& device, const ConvGeometry& g) {
  if (g.outs() < 8 || g.ins() * g.taps < 8) return kDirect;
  return g.ins() >= kMatrixDepth / 4 && !device.physical.is_cpu() ? kCoopmat : kGemm;
}

[[noreturn]] void decline(const nw_sig& sig) {
  refuse(NW_UNSUPPORTED, -1, "%s: kernel '%s' isn't made for this call", sig.op, sig.kernel);
}

// Of the variants from `first` on. Forced, it is declined wherever it could not run, also where there is nothing for it to do.
int forced_variant(const Device& device, const nw_sig& sig, Dtype dtype, Kind first = kDots) {
  int forced = forced_kernel(sig, kKernels + first);
  if (forced >= 0) forced += first;
  if (forced == kCoopmat && !has_coopmat(device, dtype)) decline(sig);
  return forced;
}

// ---- conv1d ----

enum Input : uint32_t { kX, kW, kBias };

class ConvPlan final : public DevicePlan {
 public:
  ConvPlan(Device& device, const nw_sig& sig) : DevicePlan(device), shape_(Correlation{}) {
    const ConvGeometry g = conv_geometry(sig, kX, kW, sig.num_inputs);
    const int forced = forced_variant(device, sig, g.dtype);
    const bool empty = g.batch == 0 || g.out_channels == 0;  // the extents that are not 0 may then be too large to count with
    const int first = forced >= 0 ? forced : prefers_dots(g) ? kDots : first_choice(device, g);
    kernel = kKernels[empty && forced < 0 ? kScalar : first];
    if (empty) return;
    const bool bias = has_input(sig, kBias);
    const CorrelationProblem problem{device,
                                     g.dtype,
                                     forward_correlation(g, bias ? input(sig, kBias).strides[0] : 0),
                                     alignment(input(sig, kX)),
                                     alignment(input(sig, kW)),
                                     bias ? alignment(input(sig, kBias)) : size_of(g.dtype),
                                     alignment(output(sig, 0))};
    shape_ = CorrelationShape(problem.c);
    for (int i = first; part_ == nullptr; ++i) {
      if (forced >= 0 && i != forced) decline(sig);
      part_ = kVariants[i].correlation(problem);
      kernel = kKernels[i];
    }
    workspace_size = part_->workspace_size;
  }

  void record(Recorder& recorder, const nw_call& call) const override {
    if (part_ == nullptr) return;
    const Address bias = call.num_inputs > kBias ? address(call.inputs[kBias]) : 0;
    part_->record(recorder,
                  {address(call.inputs[kX]), address(call.inputs[kW]), bias, address(call.outputs[0]), recorder.params(shape_)},
                  workspace(call), true);
  }

 private:
  CorrelationShape shape_;
  std::unique_ptr<Part> part_;
};

// ---- conv1d_backward ----

namespace backward {

enum Input : uint32_t { kGradY, kX, kW };
enum Output : uint32_t { kGradX, kGradW, kGradBias, kNumOutputs };

class ConvBackwardPlan final : public DevicePlan {
 public:
  ConvBackwardPlan(Device& device, const nw_sig& sig) : DevicePlan(device), sig_(&sig), grad_x_shape_(Correlation{}) {
    const ConvGeometry g = conv_geometry(sig, kX, kW, kGradY);
    const int forced = forced_variant(device, sig, g.dtype, kCoopmat);
    first_ = forced >= 0 ? forced : first_choice(device, g);
    if (!has_input(sig, kGradY) || g.batch == 0 || g.out_channels == 0) {
      fill_all(g);
    } else {
      if (has_output(sig, kGradX)) plan_grad_x(g);
      if (has_output(sig, kGradW)) plan_grad_w(g);
      if (has_output(sig, kGradBias)) plan_grad_bias(g);
      // What a forced kernel is asked about is at least one of the gradients.
      if (forced >= 0 && forced != used_ && (has_output(sig, kGradX) || has_output(sig, kGradW))) decline(sig);
    }
    kernel = kKernels[forced >= 0 ? forced : used_];
    for (const auto& part : grad_x_) workspace_size = std::max(workspace_size, part->workspace_size);
    for (const Sum* sum : {&grad_w_, &grad_bias_})
      if (sum->part != nullptr) workspace_size = std::max(workspace_size, sum->part->workspace_size);
    sig_ = nullptr;
  }

  // One gradient after the other in the same workspace. The correlations of grad_x write different places; those by the matrix
  // unit, whose weights are packed there, wait for each other.
  void record(Recorder& recorder, const nw_call& call) const override {
    for (uint32_t i = 0; i < kNumOutputs; ++i)
      if (fill_[i].kernel.pipeline != VK_NULL_HANDLE) fill_[i].record(recorder, address(call.outputs[i]));
    if (!grad_x_.empty()) {
      const Operands operands{address(call.inputs[kGradY]), address(call.inputs[kW]), 0, address(call.outputs[kGradX]),
                              recorder.params(grad_x_shape_)};
      for (const auto& part : grad_x_) part->record(recorder, operands, workspace(call), part == grad_x_.front());
    }
    record_sum(recorder, call, grad_w_, kGradW);
    record_sum(recorder, call, grad_bias_, kGradBias);
  }

 private:
  struct Sum {
    SumShape shape{};
    std::unique_ptr<Part> part;
  };

  void record_sum(Recorder& recorder, const nw_call& call, const Sum& sum, uint32_t out) const {
    if (sum.part == nullptr) return;
    const Operands operands{address(call.inputs[kGradY]), address(call.inputs[kX]), 0, address(call.outputs[out]),
                            recorder.params(sum.shape)};
    sum.part->record(recorder, operands, workspace(call), true);
  }

  // ---- planning ----

  int64_t align_of_output(uint32_t i) const { return alignment(output(*sig_, i)); }

  void fill(Dtype dtype, uint32_t out, int64_t outer, int64_t channels, int64_t positions, Strides3 strides) {
    if (outer == 0 || channels == 0 || positions == 0) return;  // the others may be huge
    fill_[out] = {{outer, channels, positions}, {strides.outer, strides.channel, strides.position}, {}};
    fill_[out].load(device, size_of(dtype), align_of_output(out) < size_of(dtype));
  }
  void fill_all(const ConvGeometry& g) {
    const auto strides = [&](uint32_t i) { return strides3(output(*sig_, i)); };
    if (has_output(*sig_, kGradX)) fill(g.dtype, kGradX, g.batch, g.in_channels, g.length, strides(kGradX));
    if (has_output(*sig_, kGradW)) fill(g.dtype, kGradW, g.out_channels, g.ins(), g.taps, strides(kGradW));
    if (has_output(*sig_, kGradBias)) fill(g.dtype, kGradBias, 1, 1, g.out_channels, strides(kGradBias));
  }

  // The first variant from first_ on that takes the part.
  template <class Problem>
  std::unique_ptr<Part> choose(const Problem& problem, std::unique_ptr<Part> (*const Variant::*plan)(const Problem&)) {
    for (int i = first_;; ++i) {
      std::unique_ptr<Part> part = (kVariants[i].*plan)(problem);
      if (part == nullptr) continue;
      used_ = std::min(used_, i);
      return part;
    }
  }

  void plan_grad_x(const ConvGeometry& g) {
    const Strides3 strides = strides3(output(*sig_, kGradX));
    if (g.in_channels == 0 || g.length == 0) return;
    const int64_t phases = num_grad_x_phases(g);
    if (phases < g.stride) fill(g.dtype, kGradX, g.batch, g.in_channels, g.length, strides);
    for (int64_t i = 0; i < phases; ++i) {
      const CorrelationProblem problem{device,
                                       g.dtype,
                                       grad_x_phase(g, strides, i),
                                       alignment(input(*sig_, kGradY)),
                                       alignment(input(*sig_, kW)),
                                       size_of(g.dtype),
                                       align_of_output(kGradX)};
      if (problem.c.length <= 0) continue;
      CorrelationShape shape(problem.c);  // a stride that a phase never takes is 0 there
      if (shape.w_tap == 0) shape.w_tap = grad_x_shape_.w_tap;
      if (shape.out_position == 0) shape.out_position = grad_x_shape_.out_position;
      grad_x_shape_ = shape;
      grad_x_.push_back(choose(problem, &Variant::correlation));
    }
  }

  SumProblem sum_problem(const ConvGeometry& g, uint32_t out) const {
    const bool bias = out == kGradBias;
    Strides3 to = strides3(output(*sig_, out));
    if (bias) to = {to.position, 0, 0};
    const SumShape shape{g.batch,      g.groups, g.outs(),   bias ? 1 : g.ins(), bias ? 1 : g.taps,
                         g.out_length, g.stride, g.dilation, g.pad_left,         g.length,
                         g.x,          g.y,      to};
    return {device, g.dtype, shape, bias, alignment(input(*sig_, kGradY)), alignment(input(*sig_, kX)), align_of_output(out)};
  }
  void plan_grad_w(const ConvGeometry& g) {
    if (g.in_channels == 0) return;
    const SumProblem problem = sum_problem(g, kGradW);
    grad_w_ = {problem.shape, choose(problem, &Variant::grad_w)};
  }
  void plan_grad_bias(const ConvGeometry& g) {
    const SumProblem problem = sum_problem(g, kGradBias);
    grad_bias_ = {problem.shape, first_ == kScalar ? nullptr : plan_sums_direct(problem)};
    if (grad_bias_.part == nullptr) grad_bias_.part = plan_sums_scalar(problem);
  }

  const nw_sig* sig_;               // while planning
  int first_ = 0, used_ = kScalar;  // variants: where the search begins, and the first that was found
  Fill fill_[kNumOutputs];          // zeros that come first
  CorrelationShape grad_x_shape_;
  std::vector<std::unique_ptr<Part>> grad_x_;
  Sum grad_w_, grad_bias_;
};

}  // namespace backward
}  // namespace

const Op conv1d = {"conv1d", kKernels, [](const Instance& instance, const nw_sig& sig) -> std::unique_ptr<Plan> {
                     return std::make_unique<ConvPlan>(instance.device(sig), sig);
                   }};

const Op conv1d_backward = {"conv1d_backward", kBackwardKernels,
                            [](const Instance& instance, const nw_sig& sig) -> std::unique_ptr<Plan> {
                              return std::make_unique<backward::ConvBackwardPlan>(instance.device(sig), sig);
                            }};

}  // namespace narrows::vulkan
