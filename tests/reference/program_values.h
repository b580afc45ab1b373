// SPDX-License-Identifier: Apache-2.0
// program_values.h -- the value of one expression of a tensor program. See program.h.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "program.h"

namespace narrows::reference {

// What an expression reads besides its own constants.
class Surroundings {
 public:
  virtual ~Surroundings() = default;
  virtual Exact read(const std::string& buffer, const std::vector<int64_t>& indices) = 0;
  virtual bool is_present(const std::string& buffer) const = 0;

  std::unordered_map<std::string, Exact> names;  // sizes, params, loop variables and axes
  Rounding rounding = Rounding::none;
};

Exact value_of(const program::Expr& e, Surroundings& around);
int64_t index_of(const program::Expr& e, Surroundings& around);

// As a buffer of the dtype holds it; integers are in their range already.
Exact stored(program::DType dtype, Exact value, Rounding rounding);

std::string shown(const std::vector<int64_t>& point);  // "[1, 2]"

}  // namespace narrows::reference
