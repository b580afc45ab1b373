// SPDX-License-Identifier: Apache-2.0
// reduction.h -- the form of a block that reduces: Y[v] = Y[v] ⊕ element.
#pragma once

#include <optional>
#include <string>

#include "core/program/ir.h"

namespace narrows::program {

struct Reduction {
  std::string combine;  // ⊕: add, mul, maximum, minimum, logical_and or logical_or
  ExprPtr element;      // does not read the store's buffer
};

// Nothing: the store is not of that form.
std::optional<Reduction> reduction_of(const Store& store);

// The value that changes no other one under ⊕: of `maximum` -infinity or the least integer.
ExprPtr identity_of(const std::string& combine, DType dtype);

bool reads(const ExprPtr& expr, const std::string& buffer);

}  // namespace narrows::program
