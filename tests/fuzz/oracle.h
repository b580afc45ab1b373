// SPDX-License-Identifier: Apache-2.0
// oracle.h -- what the fuzz targets know of an op, in one place for each. Those of the first ops are in oracle.cpp; a later op has
// a file of its own, ops/<op>.cpp.
#pragma once

#include "bytes.h"
#include "call.h"
#include "expected_parts.h"

namespace narrows::fuzz {

struct Oracle {
  OpFacts facts;
  // The inputs and the params are legal each by itself: are they together? Sets what is wrong, or the outputs.
  void (*judge)(const Case& c, Verdict* v);
  // What the outputs of a legal call hold; one for each output.
  std::vector<Expected> (*expected)(const Case& c, const Values& values);
  // Elements that a call walks over.
  Wide (*work)(const Case& c);
  // Makes the inputs and the params of a small legal call. NULL: params.cpp and tensors.cpp each have their own way.
  void (*inputs)(Bytes& in, DType dtype, Case* c);
};
const Oracle& oracle(Op op);

// <op>_oracle, for each built-in op.
#define NARROWS_OP(name) extern const Oracle name##_oracle;
#include "core/ops/ops.inc"
#undef NARROWS_OP

// "" or why: all present inputs but those of `except` (bits) share one floating-point dtype.
std::string one_float_dtype(const Case& c, uint32_t except = 0);

}  // namespace narrows::fuzz
