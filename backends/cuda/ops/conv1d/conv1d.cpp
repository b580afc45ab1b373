// SPDX-License-Identifier: Apache-2.0
// conv1d.cpp -- plans and launches conv1d and conv1d_backward: which kernel each part runs on. The kernels are in conv1d_*.cu;
// conv1d_native() has those in a vendor's own instructions.
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

enum Kernel { kDots, kWgmma, kMma, kSplit, kGemm, kDirect, kScalar };
constexpr const char* kKernels[] = {"dots", "wgmma", "mma", "wgmma_split", "gemm", "direct", "scalar", nullptr};
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
      {kKernels[kSplit], conv1d_native().split, conv1d_native().grad_w_split,
       "it needs f32, sm_90, elements aligned to their size, extents up to 2^28 and not too many taps; for grad_w also stride 1, "
       "and in one of grad_y and x rows of contiguous positions at multiples of 16 bytes"},
      {kKernels[kGemm], plan_gemm, plan_grad_w_gemm, "it needs elements aligned to their size, and sums of fewer than 2^30 terms"},
      {kKernels[kDirect], plan_direct, plan_grad_w_direct, "it needs elements aligned to their size"},
      {kKernels[kScalar], plan_scalar, plan_sum_scalar, "it is never asked"}};
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
  const int forced = forced_kernel(sig, kKernels, first);
  const bool fits = forced == kWgmma || forced == kSplit ? device.compute_capability == 90
                    : forced == kMma                     ? device.generation >= 80
                                                         : true;
  if (forced >= 0 && (!fits || variants()[forced].correlation == nullptr)) refuse_forced(sig, forced, dtype);
  return forced;
}

// The variant where the search for a call's own kernel begins.
Kernel first_choice(const ConvGeometry& g) { return prefers_product(g) ? kWgmma : kDirect; }

// ---- conv1d ----

class ConvPlan final : public Plan {
 public:
  ConvPlan(const Instance& instance, const nw_sig& sig) {
    const ConvGeometry g = conv_geometry(sig, conv::kX, conv::kW, sig.num_inputs);
    const Device& device = instance.device(sig);
    const int forced = forced_variant(device, sig, g.dtype);
    VariantSearch<Variant> search{variants(), forced >= 0 ? forced : prefers_dots(g) ? kDots : first_choice(g), kScalar};
    if (g.has_outputs()) {
      const CorrelationProblem problem{forward_request(sig, g), &device, forced >= 0};
      part_ = forced >= 0 ? variants()[forced].correlation(problem) : search.plan(&Variant::correlation, problem);
      if (part_ == nullptr) refuse_forced(sig, forced, g.dtype);
      workspace_size = part_->workspace_size;
    }
    kernel = kKernels[forced >= 0 ? forced : search.used];
  }

  void launch(const nw_call& call) const override {
    if (part_ == nullptr) return;
    const void* bias = call.num_inputs > conv::kBias ? data<void>(call.inputs[conv::kBias]) : nullptr;
    part_->launch({data<void>(call.inputs[conv::kX]), data<void>(call.inputs[conv::kW]), bias, data<void>(call.outputs[0])},
                  call.workspace, stream_of(call));
  }

 private:
  std::unique_ptr<Part> part_;
};

// ---- conv1d_backward ----

using namespace conv_grad;

class ConvBackwardPlan final : public Plan {
 public:
  ConvBackwardPlan(const Instance& instance, const nw_sig& sig) : device_(&instance.device(sig)) {
    const ConvGradRequest request = read_conv1d_backward(sig);
    const int forced = forced_variant(*device_, sig, request.g.dtype, kWgmma);
    search_.first = forced >= 0 ? forced : first_choice(request.g);
    plan_gradients(request, *this);
    // What a forced kernel is asked about is at least one of the gradients.
    if (forced >= 0 && forced != search_.used && request.has_terms() && (request.wants(kGradX) || request.wants(kGradW)))
      refuse_forced(sig, forced, request.g.dtype);
    kernel = kKernels[forced >= 0 ? forced : search_.used];
    for (const Step& step : steps_) workspace_size = std::max(workspace_size, step.part->workspace_size);
  }

  // One part after the other in the same workspace.
  void launch(const nw_call& call) const override {
    for (const Step& step : steps_) {
      const auto in = [&](int i) { return i < 0 ? nullptr : data<void>(call.inputs[i]); };
      step.part->launch({in(step.a), in(step.b), nullptr, data<void>(call.outputs[step.output])}, call.workspace, stream_of(call));
    }
  }

  // ---- for plan_gradients() ----

  void fill(const ConvGradRequest& r, uint32_t out) {
    steps_.push_back({plan_fill_zero({r.g.dtype, r.gradient(out), alignment(output(r.sig, out))}), -1, -1, out});
  }
  bool takes_all_phases(const ConvGradRequest& r) {
    constexpr int64_t kMostPhases = 1024;  // each is a launch
    if (num_grad_x_phases(r.g) <= kMostPhases) return false;
    const CorrelationRequest any = r.phase(0);
    const SumProblem problem{{r.g, r.gradient(kGradX), false, any.in_align, any.w_align, any.out_align}, device_};
    steps_.push_back({plan_grad_x_scalar(problem), kGradY, kW, kGradX});
    return true;
  }
  void add_phase(const CorrelationRequest& phase) {
    const CorrelationProblem problem{phase, device_, search_.first == kSplit};
    steps_.push_back({search_.plan(&Variant::correlation, problem), kGradY, kW, kGradX});
  }
  void add_grad_w(const SumRequest& sum) {
    const SumProblem problem{sum, device_, search_.first == kSplit};
    steps_.push_back({search_.plan(&Variant::grad_w, problem), kGradY, kX, kGradW});
  }
  void add_grad_bias(const SumRequest& sum) {
    const SumProblem problem{sum, device_};
    std::unique_ptr<Part> part = search_.first == kScalar ? nullptr : plan_grad_bias_direct(problem);
    if (part == nullptr) part = plan_sum_scalar(problem);
    steps_.push_back({std::move(part), kGradY, -1, kGradBias});
  }

 private:
  struct Step {
    std::unique_ptr<Part> part;
    int a, b;  // which tensors of the call it works on; -1: none
    uint32_t output;
  };

  const Device* device_;
  VariantSearch<Variant> search_{variants(), kWgmma, kScalar};
  std::vector<Step> steps_;
};

}  // namespace

const Op conv1d = {"conv1d", kKernels, [](const Instance& instance, const nw_sig& sig) -> std::unique_ptr<Plan> {
                     return std::make_unique<ConvPlan>(instance, sig);
                   }};

const Op conv1d_backward = {"conv1d_backward", kBackwardKernels,
                            [](const Instance& instance, const nw_sig& sig) -> std::unique_ptr<Plan> {
                              return std::make_unique<ConvBackwardPlan>(instance, sig);
                            }};

}  // namespace narrows::gpu
