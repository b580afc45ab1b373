// SPDX-License-Identifier: Apache-2.0
// lltm_sequence.cpp -- plans lltm_sequence and lltm_sequence_backward: by clusters that keep the weights over all steps, else by
// calls of the other ops, step after step.
#include "common/lltm_sequence_steps.h"
#include "lltm_native.h"

namespace narrows::gpu {
namespace {

enum Variant : int { kCluster, kSteps };
constexpr const char* kKernels[] = {"cluster", kStepsKernel, nullptr};
using namespace lltm_sequence_forward;

StepPlanner planner(const Instance& instance) {
  return step_planner<Op>(instance, {&lltm, &lltm_backward, &lltm_sequence, &elementwise, &conv1d});
}

// ---- forward ----

class ClusterPlan final : public Plan {
 public:
  ClusterPlan(const LltmClusterChoice& choice, const LltmSequenceSizes& sizes, const Instance& instance, const nw_sig& sig)
      : choice_(choice), sizes_(sizes), kernel_{reinterpret_cast<void (*)(LltmSequenceForward)>(const_cast<void*>(choice.kernel)),
                                                load_kernel(choice.kernel, choice.grid.shared)} {
    read_strides(sig, inputs_, outputs_);
    input_ = sequence_strides(sizes, input(sig, kInput));
    for (uint32_t i = 0; i < kNumOutputs; ++i)
      if (has_output(sig, i)) sequences_[i] = sequence_strides(sizes, output(sig, i));
    lengths_stride_ = has_input(sig, kLengths) && has_elements(input(sig, kLengths)) ? input(sig, kLengths).strides[0] : 0;
    kernel = kKernels[kCluster];
    if (!choice.wants_sums || sizes.step.features == 0 || sizes.steps == 0) return;
    product_ = plan_lltm_input_product(sig, planner(instance), &sums_);
    workspace_size = product_->workspace_size, traits = product_->traits;
  }

  void launch(const nw_call& call) const override {
    const auto given = [&](uint32_t i) { return i < call.num_inputs ? data<char>(call.inputs[i]) : nullptr; };
    const auto in = [&](uint32_t i) { return Matrix{given(i), inputs_[i].row, inputs_[i].column}; };
    const auto wanted = [&](uint32_t i) { return i < call.num_outputs ? data<char>(call.outputs[i]) : nullptr; };
    const auto state = [&](uint32_t i) { return Matrix{wanted(i), outputs_[i].row, outputs_[i].column}; };
    const auto sequence = [](char* base, const SequenceStrides& s) { return Sequence{base, s.step, s.row, s.column}; };
    const auto saved = [&](uint32_t i) { return sequence(sizes_.recompute ? nullptr : wanted(i), sequences_[i]); };
    DLTensor sums{};
    if (product_ != nullptr) {
      product_->launch(call);
      sums = tensor_at(sums_, call, 0);
    }
    launch_kernel(
        kernel_, choice_.grid, stream_of(call),
        LltmSequenceForward{
            sizes_.step.batch, sizes_.step.features, sizes_.step.state, sizes_.steps, sizes_.reverse,
            sequence(given(kInput), input_), sequence(wanted(kH), sequences_[kH]), saved(kCells), saved(kGates), in(kWeights),
            product_ != nullptr ? Matrix{} : in(kBias), in(kOldH), in(kOldCell), state(kNewH), state(kNewCell),
            product_ == nullptr ? Sequence{} : Sequence{data<char>(&sums), sums.strides[0], sums.strides[1], sums.strides[2]},
            Lengths{given(kLengths), lengths_stride_}});
  }

 private:
  LltmClusterChoice choice_;
  LltmSequenceSizes sizes_;
  LoadedKernel<LltmSequenceForward> kernel_;
  Strides2 inputs_[kNumInputs], outputs_[kNumOutputs];
  SequenceStrides input_, sequences_[kNumOutputs];
  int64_t lengths_stride_ = 0;
  std::unique_ptr<LltmSequenceByCalls> product_;  // of the input, for all steps; nullptr: the kernel makes it
  StepTensor sums_;                               // what it gives
};

// What the cluster's variant has for the call, if it is to be asked.
LltmClusterChoice ask_cluster(decltype(NativeLltm::sequence_cluster) variant, const Instance& instance, const nw_sig& sig,
                              const LltmSequenceSizes& sizes, int forced) {
  const bool aligned = std::all_of(sig.tensors, sig.tensors + sig.num_inputs + sig.num_outputs, is_aligned);
  LltmClusterChoice choice;
  if (forced != kSteps && variant != nullptr && aligned) choice = variant(instance.device(sig), sizes, forced < 0);
  if (forced == kCluster && choice.kernel == nullptr)
    refuse(NW_UNSUPPORTED, -1,
           "%s: kernel '%s' does not take this call of %s: it needs sm_90 or newer, f32, f16 or bf16, rows, 1 to "
           "256 states, few features in 16 bits (see docs/internals/cuda.md), and tensors that are aligned to their elements",
           sig.op, kKernels[kCluster], name_of(sizes.step.dtype));
  return choice;
}

std::unique_ptr<Plan> plan_forward(const Instance& instance, const nw_sig& sig) {
  const LltmSequenceSizes sizes = lltm_sequence_sizes(sig, kInput, kOldH);
  const LltmClusterChoice choice = ask_cluster(lltm_native().sequence_cluster, instance, sig, sizes, forced_kernel(sig, kKernels));
  if (choice.kernel != nullptr) return std::make_unique<ClusterPlan>(choice, sizes, instance, sig);
  return std::make_unique<LltmSequencePlanOfCalls<Plan>>(plan_lltm_sequence(sig, planner(instance)), kStepsKernel);
}

// ---- backward ----

class ClusterGrads final : public LltmStateGrads {
 public:
  ClusterGrads(const LltmClusterChoice& choice, const LltmSequenceSizes& sizes)
      : choice_(choice), sizes_(sizes), kernel_{reinterpret_cast<void (*)(LltmSequenceBackward)>(const_cast<void*>(choice.kernel)),
                                                load_kernel(choice.kernel, choice.grid.shared)} {}

  void launch(const nw_call& call, const DLTensor* const (&tensors)[kCount]) const override {
    const auto matrix = [&](Tensor i) {
      return tensors[i] == nullptr ? Matrix{} : Matrix{data<char>(tensors[i]), tensors[i]->strides[0], tensors[i]->strides[1]};
    };
    const auto sequence = [&](Tensor i) {
      const DLTensor* const t = tensors[i];
      return t == nullptr ? Sequence{} : Sequence{data<char>(t), t->strides[0], t->strides[1], t->strides[2]};
    };
    const DLTensor* const lengths = tensors[kLengths];
    launch_kernel(kernel_, choice_.grid, stream_of(call),
                  LltmSequenceBackward{sizes_.step.batch, sizes_.step.state, sizes_.steps, sizes_.reverse, sequence(kGradH),
                                       sequence(kCells), sequence(kGates), sequence(kDH), sequence(kDCell), matrix(kWeights),
                                       matrix(kGradNewH), matrix(kGradNewCell), matrix(kDOldH), matrix(kDOldCell),
                                       lengths == nullptr ? Lengths{} : Lengths{data<char>(lengths), lengths->strides[0]}});
  }

 private:
  LltmClusterChoice choice_;
  LltmSequenceSizes sizes_;
  LoadedKernel<LltmSequenceBackward> kernel_;
};

std::unique_ptr<Plan> plan_backward(const Instance& instance, const nw_sig& sig) {
  const LltmSequenceSizes sizes = lltm_sequence_sizes(sig, lltm_sequence_grad::kInput, lltm_sequence_grad::kOldH);
  const LltmClusterChoice choice =
      ask_cluster(lltm_native().sequence_backward_cluster, instance, sig, sizes, forced_kernel(sig, kKernels));
  std::unique_ptr<LltmStateGrads> grads;
  if (choice.kernel != nullptr) grads = std::make_unique<ClusterGrads>(choice, sizes);
  const char* const variant = kKernels[grads != nullptr ? kCluster : kSteps];
  return std::make_unique<LltmSequencePlanOfCalls<Plan>>(plan_lltm_sequence_backward(sig, planner(instance), std::move(grads)),
                                                         variant);
}

}  // namespace

const Op lltm_sequence = {"lltm_sequence", kKernels, plan_forward};
const Op lltm_sequence_backward = {"lltm_sequence_backward", kKernels, plan_backward};

}  // namespace narrows::gpu
