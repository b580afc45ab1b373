// SPDX-License-Identifier: Apache-2.0
// rule.h -- a program's tensors as a shape rule of core: docs/abi.md, "Shape rules".
#pragma once

#include <string>

#include "core/program/ir.h"

namespace narrows::program {

// Of a checked program: the dimensions of its inputs and in-out tensors, and of its outputs and in-out tensors.
std::string shape_rule_of(const Program& program);

}  // namespace narrows::program
