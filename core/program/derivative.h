// SPDX-License-Identifier: Apache-2.0
// derivative.h -- the gradients of the functions that a program's values are computed by, as expressions of the same functions.
// core/ops/elementwise_functions.toml has them; scripts/functions.py makes derivative_rules.inc of it.
#pragma once

#include <string_view>
#include <vector>

#include "core/program/ir.h"

namespace narrows::program {

// Has the function a gradient here? `where` has none: its operands are chosen, not computed with.
bool has_derivative(std::string_view function);

// For each operand of the call, `gradient` (of the call's value) times the derivative. NULL: it is 0, or there is none.
std::vector<ExprPtr> derivatives(const ExprPtr& call, const ExprPtr& gradient);

}  // namespace narrows::program
