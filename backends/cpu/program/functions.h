// SPDX-License-Identifier: Apache-2.0
// functions.h -- the functions of a program's values: the kernels of elementwise, so that a program computes what docs/ops.md says,
// to the bit, however it is run.
#pragma once

#include <string>

#include "common/program_bind.h"
#include "ops/elementwise/elementwise.h"

namespace narrows::cpu {

// The kernel of a function by its name, for operands of a dtype (of where: of its second one). Never nullptr: refuses what there is
// not. It takes an operand `elu` has as alpha in Run::alpha.
Kernel function_kernel(const Instance& instance, const std::string& name, ir::DType dtype);
Kernel conversion_kernel(const Instance& instance, ir::DType from, ir::DType to);

// A param's value as an element of its dtype, in the low bytes.
Scalar param_scalar(const Instance& instance, ir::DType dtype, const ParamValue& value);

// Whether products may be added without being rounded: this instance's kernels have the instruction.
bool fuses(const Instance& instance);

}  // namespace narrows::cpu
