// SPDX-License-Identifier: Apache-2.0
// functions.h -- the functions that a program's values are computed by: those of docs/ops.md, from core's one table of them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/program/ir.h"

namespace narrows::program {

struct Function {
  const char* name;
  int operands;
  char dtypes;      // F floating point, N those and integers, B integers and bool, I integers, A all
  bool gives_bool;  // else the type of its operands
  bool has_gradient;
  int cost;  // of an element of a vector, in additions
  bool is_costly() const;
};

// NULL: there is none of that name. `cast` is none here, because it is written f32(…); `elu` has its alpha as a second operand.
const Function* find_function(std::string_view name);
std::vector<std::string> function_names();
bool takes(const Function& function, DType dtype);

}  // namespace narrows::program
