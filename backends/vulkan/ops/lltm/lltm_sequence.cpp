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

template <class PlanCalls>
std::unique_ptr<Plan> plan(const Instance& instance, const nw_sig& sig, PlanCalls plan_calls) {
  forced_kernel(sig, kKernels);  // an unknown one is refused
  return std::make_unique<SequencePlan>(plan_calls(sig, step_planner(instance, lltm, lltm_backward, elementwise)),
                                        instance.device(sig));
}

}  // namespace

const Op lltm_sequence = {"lltm_sequence", kKernels,
                          [](const Instance& instance, const nw_sig& sig) { return plan(instance, sig, plan_lltm_sequence); }};
const Op lltm_sequence_backward = {"lltm_sequence_backward", kKernels, [](const Instance& instance, const nw_sig& sig) {
                                     return plan(instance, sig, plan_lltm_sequence_backward);
                                   }};

}  // namespace narrows::vulkan
