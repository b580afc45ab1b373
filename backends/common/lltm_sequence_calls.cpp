// SPDX-License-Identifier: Apache-2.0
// lltm_sequence_calls.cpp -- calls of other ops, which lltm_sequence_steps.cpp puts together: planned once, launched for any step.
#include "lltm_sequence_steps.h"

namespace narrows::common {

StepCall::StepCall(const StepPlanner& planner, const nw_sig& whole, const char* op, const void* params, uint64_t params_size,
                   std::vector<StepTensor> inputs, std::vector<StepTensor> outputs)
    : inputs_(std::move(inputs)), outputs_(std::move(outputs)) {
  std::vector<nw_tensor_sig> tensors;
  for (const std::vector<StepTensor>* list : {&inputs_, &outputs_})
    for (const StepTensor& t : *list) {
      nw_tensor_sig sig{};
      sig.ndim = t.ndim;
      if (t.ndim >= 0)
        sig.dtype = t.dtype, sig.align_log2 = t.align_log2, sig.alias_of = -1, sig.shape = t.shape, sig.strides = t.strides;
      tensors.push_back(sig);
    }
  for (size_t i = 0; i < outputs_.size(); ++i)
    for (size_t j = 0; j < inputs_.size(); ++j)
      if (outputs_[i].place.kind != StepPlace::kAbsent && outputs_[i].place == inputs_[j].place)
        tensors[inputs_.size() + i].alias_of = static_cast<int32_t>(j);
  nw_sig sig{};
  sig.struct_size = sizeof sig, sig.flags = whole.flags, sig.device = whole.device, sig.op = op;
  sig.num_inputs = static_cast<uint32_t>(inputs_.size()), sig.num_outputs = static_cast<uint32_t>(outputs_.size());
  sig.tensors = tensors.data();
  const auto* bytes = static_cast<const unsigned char*>(params);
  while (params_size > 0 && bytes[params_size - 1] == 0) --params_size;
  sig.params = params_size == 0 ? nullptr : params, sig.params_size = params_size;
  plan_ = planner(sig);
  plan_->device_id = whole.device.device_id;
}

DLTensor tensor_at(const StepTensor& t, const nw_call& call, int64_t time) {
  const DLTensor* const of = t.place.kind == StepPlace::kInput    ? call.inputs[t.place.index]
                             : t.place.kind == StepPlace::kOutput ? call.outputs[t.place.index]
                                                                  : nullptr;
  const auto base = reinterpret_cast<uintptr_t>(of != nullptr ? data<char>(of) : static_cast<char*>(call.workspace));
  DLTensor out{};
  out.data = reinterpret_cast<void*>(base + static_cast<uintptr_t>(t.place.offset + time * t.place.step));
  out.device = of != nullptr ? of->device : call.device;
  out.ndim = t.ndim, out.dtype = t.dtype;
  out.shape = const_cast<int64_t*>(t.shape), out.strides = const_cast<int64_t*>(t.strides);
  return out;
}

void StepCall::launch(const nw_call& call, char* workspace, std::initializer_list<int64_t> times) const {
  constexpr size_t kMost = 16;
  DLTensor tensors[kMost];
  const DLTensor* inputs[kMost];
  const DLTensor* outputs[kMost];
  size_t number = 0;
  const auto bind = [&](const StepTensor& t) -> const DLTensor* {
    const int64_t time = times.begin()[std::min(number, times.size() - 1)];
    DLTensor& out = tensors[number++];
    if (t.place.kind == StepPlace::kAbsent) return nullptr;
    out = tensor_at(t, call, time);
    return &out;
  };
  for (size_t i = 0; i < inputs_.size(); ++i) inputs[i] = bind(inputs_[i]);
  for (size_t i = 0; i < outputs_.size(); ++i) outputs[i] = bind(outputs_[i]);
  nw_call one = call;
  one.flags = call.flags & ~uint32_t{NW_FITS};
  one.inputs = inputs, one.num_inputs = static_cast<uint32_t>(inputs_.size());
  one.outputs = outputs, one.num_outputs = static_cast<uint32_t>(outputs_.size());
  one.params = nullptr, one.params_size = 0;
  one.workspace = workspace, one.workspace_size = plan_->workspace_size;
  plan_->launch(one);
}

}  // namespace narrows::common
