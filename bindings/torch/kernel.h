// SPDX-License-Identifier: Apache-2.0
// kernel.h -- the bodies of the kernels that torch's dispatcher calls: torch's stack in, torch's stack out. They throw what torch
// turns into Python's exceptions.
#pragma once

#include "bindings/torch/call.h"

namespace narrows::torch {

// Of an op: its inputs, its params, and `wanted` where the op is masked.
void run_op(const Entry& entry, Value* stack);

// Of the op that every tensor program is called by.
extern const char* const kProgramSchema;
void run_program(Value* stack, uint64_t, uint64_t);

}  // namespace narrows::torch
