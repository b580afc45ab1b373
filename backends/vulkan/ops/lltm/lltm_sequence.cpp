// SPDX-License-Identifier: Apache-2.0
// lltm_sequence.cpp -- lltm_sequence and lltm_sequence_backward by calls of the other ops, step after step. Each call is recorded
// as an op of its own, since what an op's commands read is bounded (Recorder::kMaxParams).
#include "common/lltm_sequence_steps.h"

#include "backend.h"

namespace narrows::vulkan {
namespace {

constexpr const char* kKernels[] = {kStepsKernel, nullptr};

class SequencePlan final : public LltmSequencePlanOfCalls<DevicePlan> {
 public:
  using LltmSequencePlanOfCalls::LltmSequencePlanOfCalls;
  void record(Recorder&, const nw_call&) const override {}  // launch() has its calls recorded
};

StepPlanner planner(const Instance& instance) {
  return step_planner<Op>(instance, {&lltm, &lltm_backward, &lltm_sequence, &elementwise});
}

std::unique_ptr<Plan> as_plan(const Instance& instance, const nw_sig& sig, std::unique_ptr<LltmSequenceByCalls> calls) {
  return std::make_unique<SequencePlan>(std::move(calls), kStepsKernel, instance.device(sig));
}

}  // namespace

const Op lltm_sequence = {"lltm_sequence", kKernels, [](const Instance& instance, const nw_sig& sig) {
                            forced_kernel(sig, kKernels);  // an unknown one is refused
                            return as_plan(instance, sig, plan_lltm_sequence(sig, planner(instance)));
                          }};
const Op lltm_sequence_backward = {"lltm_sequence_backward", kKernels, [](const Instance& instance, const nw_sig& sig) {
                                     forced_kernel(sig, kKernels);
                                     return as_plan(instance, sig, plan_lltm_sequence_backward(sig, planner(instance)));
                                   }};

}  // namespace narrows::vulkan
