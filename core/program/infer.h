// SPDX-License-Identifier: Apache-2.0
// infer.h -- the rules of types, once for the builders (expr.h) and the check of a program (types.h). Each throws Failure.
#pragma once

#include <string>
#include <vector>

#include "core/program/ir.h"

namespace narrows::program {

DType call_type(const std::string& name, const std::vector<ExprPtr>& operands);
void require_subscripts(const std::string& buffer, const std::vector<ExprPtr>& indices);
void require_cast(DType dtype, const ExprPtr& value);
void require_clamp(const ExprPtr& value, const ExprPtr& low, const ExprPtr& high);

}  // namespace narrows::program
