// SPDX-License-Identifier: Apache-2.0
// elementwise_table.h -- what the table of element-wise functions says of a number, in constant expressions.
#pragma once

#include <cstdint>
#include <iterator>

namespace narrows {

// How many operands that function has, 1 to 3; 0 for a number that is none's.
constexpr int operands_of(int32_t function) {
  constexpr int kOperands[] = {
#define NARROWS_FUNCTION(number, name, operands, dtypes, result, differentiable, cost) operands,
#include "core/ops/elementwise_functions.inc"
#undef NARROWS_FUNCTION
  };
  return function < 1 || function > static_cast<int32_t>(std::size(kOperands)) ? 0 : kOperands[function - 1];
}

}  // namespace narrows
