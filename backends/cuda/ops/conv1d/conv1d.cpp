// SPDX-License-Identifier: Apache-2.0
// conv1d.cpp -- plans and launches conv1d and conv1d_backward: which kernel each part runs on. Step 5 of a tensor's path. The
// kernels are in conv1d_*.cu; conv1d_native() has those in a vendor's own instructions.
#include <iterator>
#include <vector>

#include "conv1d.h"

namespace narrows::gpu {
namespace {

// A kernel variant by name. Of conv1d_backward, `grad_w` goes with it; a part that a variant isn't made for runs on one further
// down the list.
struct Variant {
  const char* name;
  PlanCorrelation correlation;
  PlanSum grad_w;
  const char* needs;  // for the words of a refusal
};

enum Kernel { kDots, kWgmma, kMma, kGemm, kDirect, kScalar };
constexpr const char* kKernels[] = {"dots", "wgmma", "mma", "gemm", "direct", "scalar", nullptr};
constexpr const char* const* kBackwardKernels = kKernels + kWgmma;

const Variant* variants() {
  static const Variant list[] = {
      {kKernels[kDots], plan_dots, nullptr,
       "it needs at most 16 outputs to a filter in all of the batch, elements aligned to their size, and sums of fewer than 2^30 "
       "terms"},
      {kKernels[kWgmma], conv1d_native().wgmma, conv1d_native().grad_w_wgmma,
       "it needs f16 or bf16, sm_90, elements aligned to their size, extents up to 2^28 and not too many taps; for grad_w also "
       "stride 1, and rows of eights of contiguous positions at multiples of 16 bytes"},
      {kKernels[kMma], conv1d_native().mma, conv1d_native().grad_w_mma,
       "it needs f16 or bf16, sm_80 or newer, and elements aligned to their size"},
      {kKernels[kGemm], plan_gemm, plan_grad_w_gemm, "it needs elements aligned to their size, and sums of fewer than 2^30 terms"},
      {kKernels[kDirect], plan_direct, plan_grad_w_direct, "it needs elements aligned to their size"},
      {kKernels[kScalar], plan_scalar, plan_grad_w_scalar, "it is never asked"}};
  return list;
}

[[noreturn]] void refuse_forced(const nw_sig& sig, int forced, Dtype dtype) {
  const Variant& variant = variants()[forced];
  refuse(NW_UNSUPPORTED, -1, "%s: kernel '%s' does not take this call of %s: %s", sig.op, variant.name, name_of(dtype),
         variant.correlation == nullptr ? "this build has none" : variant.needs);
}

// Of the variants from `first` on. Forced, it is declined wherever the build or the device could not run it, also where there is
// nothing for it to do.
int forced_variant(const Device& device, const nw_sig& sig, Dtype dtype, Kernel first = kDots) {
  int forced = forced_kernel(sig, kKernels + first);
  if (forced >= 0) forced += first;
  const bool fits = forced == kWgmma ? device.compute_capability == 90 : forced == kMma ? device.generation >= 80 : true;
  if (forced >= 0 && (!fits || variants()[forced].correlation == nullptr)) refuse_forced(sig, forced, dtype);
  return forced;
}

// Many outputs and a long sum: a product beats sliding windows.
bool prefers_product(const ConvGeometry& g) { return g.outs() >= 8 && g.ins() * g.taps >= 8; }

// The variant where the search for a call's own kernel begins.
Kernel first_choice(const ConvGeometry& g) { return prefers_product(g) ? kWgmma : kDirect; }

// ---- conv1d ----

enum Input : uint32_t { kX, kW, kBias };

class ConvPlan final : public Plan {
 public:
  ConvPlan(const Instance& instance, const nw_sig& sig) {
    const ConvGeometry g = conv_geometry(sig, kX, kW, sig.num_inputs);
    const int forced = forced_variant(instance.device(sig), sig, g.dtype);
    const bool empty = g.batch == 0 || g.out_channels == 0;  // the extents that are not 0 may then be too large to count with
    const int first = forced >= 0 ? forced : prefers_dots(g) ? kDots : first_choice(g);
    kernel = kKernels[empty && forced < 0 ? kScalar : first];
    if (empty) return;
    const bool bias = has_input(sig, kBias);
    const CorrelationProblem problem{&instance.device(sig),
                                     g.dtype,
                                     forward_correlation(g, bias ? input(sig, kBias).strides[0] : 0),
                                     input(sig, kX).align_log2,
                                     input(sig, kW).align_log2,
                                     bias ? input(sig, kBias).align_log2 : 8,
                                     output(sig, 0).align_log2};
    for (int i = first; part_ == nullptr; ++i) {
      if (forced >= 0 && i != forced) refuse_forced(sig, forced, g.dtype);
      if (variants()[i].correlation != nullptr) part_ = variants()[i].correlation(problem);
      kernel = kKernels[i];
    }
    workspace_size = part_->workspace_size;
  }

  void launch(const nw_call& call) const override {
    if (part_ == nullptr) return;
    const void* bias = call.num_inputs > kBias ? data<void>(call.inputs[kBias]) : nullptr;
    part_->launch({data<void>(call.inputs[kX]), data<void>(call.inputs[kW]), bias, data<void>(call.outputs[0])}, call.workspace,
                  stream_of(call));
  }

 private:
  std::unique_ptr<Part> part_;
};

// ---- conv1d_backward ----

namespace backward {

enum Input : uint32_t { kGradY, kX, kW };
enum Output : uint32_t { kGradX, kGradW, kGradBias };

class ConvBackwardPlan final : public Plan {
 public:
  ConvBackwardPlan(const Instance& instance, const nw_sig& sig) : sig_(&sig), device_(&instance.device(sig)) {
    const ConvGeometry g = conv_geometry(sig, kX, kW, kGradY);
    const int forced = forced_variant(*device_, sig, g.dtype, kWgmma);
    first_ = forced >= 0 ? forced : first_choice(g);
    used_ = kScalar;
    if (!has_input(sig, kGradY) || g.batch == 0 || g.out_channels == 0) {
      fill_all(g);
    } else {
      if (has_output(sig, kGradX)) plan_grad_x(g);
      if (has_output(sig, kGradW)) plan_grad_w(g);
      if (has_output(sig, kGradBias)) plan_grad_bias(g);
      // What a forced kernel is asked about is at least one of the gradients.
      if (forced >= 0 && forced != used_ && (has_output(sig, kGradX) || has_output(sig, kGradW)))
        refuse_forced(sig, forced, g.dtype);
    }
    kernel = kKernels[forced >= 0 ? forced : used_];
    for (const Step& step : steps_) workspace_size = std::max(workspace_size, step.part->workspace_size);
    sig_ = nullptr;
  }

  // One part after the other in the same workspace.
  void launch(const nw_call& call) const override {
    for (const Step& step : steps_) {
      const auto in = [&](int i) { return i < 0 ? nullptr : data<void>(call.inputs[i]); };
      step.part->launch({in(step.a), in(step.b), nullptr, data<void>(call.outputs[step.output])}, call.workspace, stream_of(call));
    }
  }

 private:
  struct Step {
    std::unique_ptr<Part> part;
    int a, b, output;  // which tensors of the call it works on; -1: none
  };

  int align_of_output(uint32_t i) const { return output(*sig_, i).align_log2; }

  void fill(Dtype dtype, uint32_t out, int64_t outer, int64_t channels, int64_t positions, Strides3 strides) {
    if (outer == 0 || channels == 0 || positions == 0) return;  // the others may be huge
    steps_.push_back(
        {plan_fill_zero({dtype, outer, channels, positions, strides, align_of_output(out)}), -1, -1, static_cast<int>(out)});
  }
  void fill_all(const ConvGeometry& g) {
    if (has_output(*sig_, kGradX)) fill(g.dtype, kGradX, g.batch, g.in_channels, g.length, strides3(output(*sig_, kGradX)));
    if (has_output(*sig_, kGradW)) fill(g.dtype, kGradW, g.out_channels, g.ins(), g.taps, strides3(output(*sig_, kGradW)));
    if (has_output(*sig_, kGradBias)) fill(g.dtype, kGradBias, 1, 1, g.out_channels, strides3(output(*sig_, kGradBias)));
  }

  // The first variant from first_ on that takes the part.
  template <class Problem>
  std::unique_ptr<Part> choose(const Problem& problem, std::unique_ptr<Part> (*const Variant::*plan)(const Problem&)) {
    for (int i = first_;; ++i) {
      std::unique_ptr<Part> part = variants()[i].*plan == nullptr ? nullptr : (variants()[i].*plan)(problem);
      if (part == nullptr) continue;
      used_ = std::min(used_, i);
      return part;
    }
  }

  void plan_grad_x(const ConvGeometry& g) {
    constexpr int64_t kMostPhases = 1024;  // each is a launch
    const Strides3 strides = strides3(output(*sig_, kGradX));
    if (g.in_channels == 0 || g.length == 0) return;
    const int64_t phases = num_grad_x_phases(g);
    if (phases > kMostPhases) {
      const SumProblem problem{
          device_, g, strides, input(*sig_, kGradY).align_log2, input(*sig_, kW).align_log2, align_of_output(kGradX)};
      steps_.push_back({plan_grad_x_scalar(problem), kGradY, kW, kGradX});
      return;
    }
    if (phases < g.stride) fill(g.dtype, kGradX, g.batch, g.in_channels, g.length, strides);
    for (int64_t i = 0; i < phases; ++i) {
      const CorrelationProblem problem{device_,
                                       g.dtype,
                                       grad_x_phase(g, strides, i),
                                       input(*sig_, kGradY).align_log2,
                                       input(*sig_, kW).align_log2,
                                       8,
                                       align_of_output(kGradX)};
      if (problem.c.length > 0) steps_.push_back({choose(problem, &Variant::correlation), kGradY, kW, kGradX});
    }
  }

  SumProblem sum_problem(const ConvGeometry& g, uint32_t out) const {
    return {device_,
            g,
            strides3(output(*sig_, out)),
            input(*sig_, kGradY).align_log2,
            input(*sig_, kX).align_log2,
            align_of_output(out)};
  }
  void plan_grad_w(const ConvGeometry& g) {
    if (g.in_channels > 0) steps_.push_back({choose(sum_problem(g, kGradW), &Variant::grad_w), kGradY, kX, kGradW});
  }
  void plan_grad_bias(const ConvGeometry& g) {
    const SumProblem problem = sum_problem(g, kGradBias);
    std::unique_ptr<Part> part = first_ == kScalar ? nullptr : plan_grad_bias_direct(problem);
    if (part == nullptr) part = plan_grad_bias_scalar(problem);
    steps_.push_back({std::move(part), kGradY, -1, kGradBias});
  }

  const nw_sig* sig_;  // while planning
  const Device* device_;
  int first_, used_;  // variants: where the search begins, and the first that was found
  std::vector<Step> steps_;
};

}  // namespace backward
}  // namespace

const Op conv1d = {"conv1d", kKernels, [](const Instance& instance, const nw_sig& sig) -> std::unique_ptr<Plan> {
                     return std::make_unique<ConvPlan>(instance, sig);
                   }};

const Op conv1d_backward = {"conv1d_backward", kBackwardKernels,
                            [](const Instance& instance, const nw_sig& sig) -> std::unique_ptr<Plan> {
                              return std::make_unique<backward::ConvBackwardPlan>(instance, sig);
                            }};

}  // namespace narrows::gpu
