// SPDX-License-Identifier: Apache-2.0
// kernel.cpp -- see kernel.h.
#include "bindings/torch/kernel.h"

namespace narrows::torch {

void run_op(const Entry& entry, Value* stack) {
  int32_t status = NW_OK;
  std::string why;
  Call call(entry, *find_shim(&status, &why));
  const Value* next = stack;
  for (uint32_t i = 0; i < entry.op->max_inputs; ++i) {
    Value value = *next++;
    if (entry.optional_inputs[i] && value != 0) value = call.unboxed(value);
    call.take_input(i, reinterpret_cast<Handle>(value));
  }
  for (const nw_param* const field : entry.fields) call.take_param(*field, *next++);
  if (entry.masked) call.take_wanted(*next);
  call.run();
  if (entry.masked) {
    *stack = reinterpret_cast<Value>(call.give_list());
    return;
  }
  for (uint32_t j = 0; j < entry.op->num_outputs; ++j) stack[j] = reinterpret_cast<Value>(call.give(j));
}

}  // namespace narrows::torch
