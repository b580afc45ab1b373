// SPDX-License-Identifier: Apache-2.0
// lltm_sequence_steps.h -- lltm_sequence and its gradients by other ops of the same backend: lltm and lltm_backward at each step,
// elementwise for what lies between them. It needs no kernel of its own, so it is every GPU's portable variant. Backward runs
// lltm_backward for the state's gradients alone at each step, or a kernel of the backend for those of all steps; the gradients of
// input, weights and bias are one more call of it, whose batch is all rows of all steps.
#pragma once

#include <algorithm>
#include <functional>
#include <string_view>
#include <vector>

#include "lltm_sequence.h"

namespace narrows::common {

inline constexpr const char* kStepsKernel = "steps";

// Plans an op of the backend, by its name in the signature.
using StepPlanner = std::function<std::unique_ptr<Plan>(const nw_sig&)>;

// By these ops of a backend.
template <class Op, class Instance>
StepPlanner step_planner(const Instance& instance, std::initializer_list<const Op*> ops) {
  return [&instance, ops = std::vector<const Op*>(ops)](const nw_sig& sig) {
    return (*std::find_if(ops.begin(), ops.end(), [&](const Op* op) { return op->name == std::string_view(sig.op); }))
        ->plan(instance, sig);
  };
}

// Where a tensor of a step lies: in a tensor of the call, or in the workspace. Step t is `step` bytes times t further on.
struct StepPlace {
  enum Kind : uint8_t { kAbsent, kInput, kOutput, kWorkspace } kind = kAbsent;
  uint32_t index = 0;
  int64_t offset = 0, step = 0;
  bool apart = false;  // launched with a step of its own: never the same memory as another tensor of that place
  bool operator==(const StepPlace&) const = default;
};

// A tensor of a step, of up to three dimensions.
struct StepTensor {
  StepPlace place;
  DLDataType dtype{};
  int32_t ndim = -1;
  uint16_t align_log2 = 8;
  int64_t shape[3] = {}, strides[3] = {};
};

// A tensor of step `time` of a call; it refers to the sizes in `t`.
DLTensor tensor_at(const StepTensor& t, const nw_call& call, int64_t time);

// A planned call of another op. Launching it leaves nothing behind: plans are immutable.
class StepCall {
 public:
  StepCall() = default;
  StepCall(const StepPlanner& planner, const nw_sig& whole, const char* op, const void* params, uint64_t params_size,
           std::vector<StepTensor> inputs, std::vector<StepTensor> outputs);
  // times[i]: the step that tensor i is of, inputs first; where there are fewer, the last one goes on.
  void launch(const nw_call& call, char* workspace, std::initializer_list<int64_t> times) const;
  uint64_t workspace_size() const { return plan_ == nullptr ? 0 : plan_->workspace_size; }
  uint32_t traits() const { return plan_->traits; }
  explicit operator bool() const { return plan_ != nullptr; }

 private:
  std::unique_ptr<Plan> plan_;
  std::vector<StepTensor> inputs_, outputs_;
};

// Plans by `planner`. What launch() puts on the stream is that of its calls, one after the other.
class LltmSequenceByCalls {
 public:
  virtual ~LltmSequenceByCalls() = default;
  virtual void launch(const nw_call& call) const = 0;
  uint64_t workspace_size = 0;
  uint32_t traits = NW_PLAN_CAPTURABLE;  // if all of its calls have it; NW_PLAN_NONDETERMINISTIC if one has it
};
std::unique_ptr<LltmSequenceByCalls> plan_lltm_sequence(const nw_sig& sig, const StepPlanner& planner);

// Of f32: the input's part of the gates before activation, with the bias, of all steps, by conv1d with one tap. It leaves them in
// the workspace as `sums`, (steps, batch, 3 * state). There are features.
std::unique_ptr<LltmSequenceByCalls> plan_lltm_input_product(const nw_sig& sig, const StepPlanner& planner, StepTensor* sums);

// A kernel of a backend for the state's gradients of all steps. Sequences are (steps, batch, columns). d_h and d_cell are what
// lltm_backward of each step would get, 0 at the steps that a row has not.
class LltmStateGrads {
 public:
  enum Tensor { kGradH, kGradNewH, kGradNewCell, kWeights, kLengths, kCells, kGates, kDH, kDCell, kDOldH, kDOldCell, kCount };
  virtual ~LltmStateGrads() = default;
  // nullptr: an absent tensor. cells, gates, d_h, d_cell and weights are there.
  virtual void launch(const nw_call& call, const DLTensor* const (&tensors)[kCount]) const = 0;
};
// `grads` nullptr: by calls of lltm_backward.
std::unique_ptr<LltmSequenceByCalls> plan_lltm_sequence_backward(const nw_sig& sig, const StepPlanner& planner,
                                                                 std::unique_ptr<LltmStateGrads> grads = nullptr);

// Such calls as a plan, of class Base, which is made of `arguments`.
template <class Base>
class LltmSequencePlanOfCalls : public Base {
 public:
  template <class... Arguments>
  explicit LltmSequencePlanOfCalls(std::unique_ptr<LltmSequenceByCalls> calls, const char* variant, Arguments&&... arguments)
      : Base(std::forward<Arguments>(arguments)...), calls_(std::move(calls)) {
    this->workspace_size = calls_->workspace_size, this->traits = calls_->traits, this->kernel = variant;
  }
  void launch(const nw_call& call) const override { calls_->launch(call); }

 private:
  std::unique_ptr<LltmSequenceByCalls> calls_;
};

}  // namespace narrows::common
