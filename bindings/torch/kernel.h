// SPDX-License-Identifier: Apache-2.0
// kernel.h -- one call of an op by torch's dispatcher: torch's stack in, libnarrows, torch's stack out.
#pragma once

#include <narrows/narrows.h>

#include <string>
#include <vector>

#include "bindings/torch/shim.h"

namespace narrows::torch {

// An op as it is registered; kept as long as the process.
struct Entry {
  Entry(const nw_op* op, bool is_backward);

  const nw_op* op;
  std::string name;                   // torch's
  std::vector<bool> optional_inputs;  // Tensor?
  std::vector<const nw_param*> fields;
  std::vector<unsigned char> initial;  // the params of a call that gives none
  bool masked, is_backward;
  uint64_t required, all;  // masks of outputs
};

// Every op is run by this runtime.
void set_runtime(nw_runtime* rt);
// The body of each kernel that torch calls. Throws what torch turns into Python's exceptions.
void call(const Entry& entry, Value* stack);

}  // namespace narrows::torch
