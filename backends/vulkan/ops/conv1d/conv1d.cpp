// SPDX-License-Identifier: Apache-2.0
// conv1d.cpp -- plans and records conv1d and conv1d_backward: which kernel each part runs on. The kernels are in
// conv1d_correlations.cpp and conv1d_sums.cpp.
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

// The variant where the search for a call's own kernel begins: a product if need be of stages that are mostly empty. A CPU's matrix
// unit is a loop.
Kind first_choice(const Device& device, const ConvGeometry& g) {
  if (!prefers_product(g)) return kDirect;
  return g.ins() >= kMatrixDepth / 4 && !device.physical.is_cpu() ? kCoopmat : kGemm;
}

[[noreturn]] void decline(const nw_sig& sig) {
  refuse(NW_UNSUPPORTED, -1, "%s: kernel '%s' isn't made for this call", sig.op, sig.kernel);
}

// Of the variants from `first` on. Forced, it is declined wherever it could not run, also where there is nothing for it to do.
int forced_variant(const Device& device, const nw_sig& sig, Dtype dtype, Kind first = kDots) {
  const int forced = forced_kernel(sig, kKernels, first);
  if (forced == kCoopmat && !has_coopmat(device, dtype)) decline(sig);
  return forced;
}

// ---- conv1d ----

class ConvPlan final : public DevicePlan {
 public:
  ConvPlan(Device& device, const nw_sig& sig) : DevicePlan(device), shape_(Correlation{}) {
    const ConvGeometry g = conv_geometry(sig, conv::kX, conv::kW, sig.num_inputs);
    const int forced = forced_variant(device, sig, g.dtype);
    VariantSearch<Variant> search{kVariants, forced >= 0 ? forced : prefers_dots(g) ? kDots : first_choice(device, g), kScalar};
    if (g.has_outputs()) {
      const CorrelationProblem problem{forward_request(sig, g), device};
      shape_ = CorrelationShape(problem.c);
      part_ = forced >= 0 ? kVariants[forced].correlation(problem) : search.plan(&Variant::correlation, problem);
      if (part_ == nullptr) decline(sig);
      workspace_size = part_->workspace_size;
    }
    kernel = kKernels[forced >= 0 ? forced : search.used];
  }

  void record(Recorder& recorder, const nw_call& call) const override {
    if (part_ == nullptr) return;
    const Address bias = call.num_inputs > conv::kBias ? address(call.inputs[conv::kBias]) : 0;
    part_->record(
        recorder,
        {address(call.inputs[conv::kX]), address(call.inputs[conv::kW]), bias, address(call.outputs[0]), recorder.params(shape_)},
        workspace(call), true);
  }

 private:
  CorrelationShape shape_;
  std::unique_ptr<Part> part_;
};

// ---- conv1d_backward ----

using namespace conv_grad;

class ConvBackwardPlan final : public DevicePlan {
 public:
  ConvBackwardPlan(Device& device, const nw_sig& sig) : DevicePlan(device), grad_x_shape_(Correlation{}) {
    const ConvGradRequest request = read_conv1d_backward(sig);
    const int forced = forced_variant(device, sig, request.g.dtype, kCoopmat);
    search_.first = forced >= 0 ? forced : first_choice(device, request.g);
    plan_gradients(request, *this);
    // What a forced kernel is asked about is at least one of the gradients.
    if (forced >= 0 && forced != search_.used && request.has_terms() && (request.wants(kGradX) || request.wants(kGradW)))
      decline(sig);
    kernel = kKernels[forced >= 0 ? forced : search_.used];
    for (const auto& part : grad_x_) workspace_size = std::max(workspace_size, part->workspace_size);
    for (const Sum& sum : sums_) workspace_size = std::max(workspace_size, sum.part->workspace_size);
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
    for (const Sum& sum : sums_)
      sum.part->record(recorder,
                       {address(call.inputs[kGradY]), address(call.inputs[kX]), 0, address(call.outputs[sum.output]),
                        recorder.params(sum.shape)},
                       workspace(call), true);
  }

  // ---- for plan_gradients() ----

  void fill(const ConvGradRequest& r, uint32_t out) {
    fill_[out].to = r.gradient(out);
    fill_[out].load(device, size_of(r.g.dtype), !is_aligned(output(r.sig, out)));
  }
  static bool takes_all_phases(const ConvGradRequest&) { return false; }
  void add_phase(const CorrelationRequest& phase) {
    CorrelationShape shape(phase.c);  // a stride that a phase never takes is 0 there
    if (shape.w_tap == 0) shape.w_tap = grad_x_shape_.w_tap;
    if (shape.out_position == 0) shape.out_position = grad_x_shape_.out_position;
    grad_x_shape_ = shape;
    grad_x_.push_back(search_.plan(&Variant::correlation, CorrelationProblem{phase, device}));
  }
  void add_grad_w(const SumRequest& sum) {
    sums_.push_back({SumShape(sum), search_.plan(&Variant::grad_w, SumProblem{sum, device}), kGradW});
  }
  void add_grad_bias(const SumRequest& sum) {
    const SumProblem problem{sum, device};
    std::unique_ptr<Part> part = search_.first == kScalar ? nullptr : plan_sums_direct(problem);
    if (part == nullptr) part = plan_sums_scalar(problem);
    sums_.push_back({SumShape(sum), std::move(part), kGradBias});
  }

 private:
  struct Sum {
    SumShape shape;
    std::unique_ptr<Part> part;
    uint32_t output;
  };

  VariantSearch<Variant> search_{kVariants, kCoopmat, kScalar};
  Fill fill_[kNumOutputs];  // zeros that come first
  CorrelationShape grad_x_shape_;
  std::vector<std::unique_ptr<Part>> grad_x_;
  std::vector<Sum> sums_;
};

}  // namespace

const Op conv1d = {"conv1d", kKernels, [](const Instance& instance, const nw_sig& sig) -> std::unique_ptr<Plan> {
                     return std::make_unique<ConvPlan>(instance.device(sig), sig);
                   }};

const Op conv1d_backward = {"conv1d_backward", kBackwardKernels,
                            [](const Instance& instance, const nw_sig& sig) -> std::unique_ptr<Plan> {
                              return std::make_unique<ConvBackwardPlan>(instance.device(sig), sig);
                            }};

}  // namespace narrows::vulkan
