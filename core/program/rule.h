// SPDX-License-Identifier: Apache-2.0
// rule.h -- what an op's declaration says of a program's tensors: the shape rule (docs/abi.md, "Shape rules"), and what is read.
#pragma once

#include <string>

#include "core/program/ir.h"

namespace narrows::program {

// Of a checked program: the dimensions of its inputs and in-out tensors, and of its outputs and in-out tensors.
std::string shape_rule_of(const Program& program);

// Is an element of the tensor read, or asked whether it is there?
bool uses_tensor(const Program& program, const std::string& name);

}  // namespace narrows::program
