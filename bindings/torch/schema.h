// SPDX-License-Identifier: Apache-2.0
// schema.h -- an op's declaration as torch has it: its name, and the schema.
#pragma once

#include <narrows/abi.h>

#include <cstdint>
#include <string>

namespace narrows::torch {

// A declared name as Python writes it: behind one of Python's own words stands an underscore.
std::string python_name(const std::string& name);
// "vendor.name/1" as vendor_name_1.
std::string torch_name(const char* op);
// "conv1d(Tensor x, Tensor w, Tensor? bias=None, *, SymInt stride=1, ...) -> Tensor"
std::string schema(const nw_op& op);

inline bool may_be_absent(const std::string& name) { return !name.empty() && name.back() == '?'; }
// Whether some main output may be left out: then the op takes `wanted`, a mask, and returns a list of those that are there.
bool is_masked(const nw_op& op);
// Bit j: no call may leave out main output j.
uint64_t required_outputs(const nw_op& op);
// Whether the field's type in the schema is optional, with None as its default, which stands for the declared one: torch leaves out
// an argument that equals its default, as -0.0 does 0.0.
bool is_optional(const nw_param& field);

}  // namespace narrows::torch
