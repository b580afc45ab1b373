// SPDX-License-Identifier: Apache-2.0
// lltm_sequence.cpp -- lltm_sequence and lltm_sequence_backward by calls of the other ops, step after step. A variant that keeps
// the weights on the multiprocessors over all steps goes before this one in kKernels.
#include "common/lltm_sequence_steps.h"

#include "backend.h"

namespace narrows::gpu {
namespace {

constexpr const char* kKernels[] = {kStepsKernel, nullptr};

template <class PlanCalls>
std::unique_ptr<Plan> plan(const Instance& instance, const nw_sig& sig, PlanCalls plan_calls) {
  forced_kernel(sig, kKernels);  // an unknown one is refused
  return std::make_unique<LltmSequencePlanOfCalls<Plan>>(plan_calls(sig, step_planner(instance, lltm, lltm_backward, elementwise)));
}

}  // namespace

const Op lltm_sequence = {"lltm_sequence", kKernels,
                          [](const Instance& instance, const nw_sig& sig) { return plan(instance, sig, plan_lltm_sequence); }};
const Op lltm_sequence_backward = {"lltm_sequence_backward", kKernels, [](const Instance& instance, const nw_sig& sig) {
                                     return plan(instance, sig, plan_lltm_sequence_backward);
                                   }};

}  // namespace narrows::gpu
