// SPDX-License-Identifier: Apache-2.0
// ranges.h -- which part of an axis a loop's body needs: the least and the highest value of a subscript, as expressions of the
// loops outside.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "core/program/ir.h"

namespace narrows::program {

// low <= value <= high.
struct Range {
  ExprPtr low, high;
};

using Ranges = std::map<std::string, Range>;

// Of an expression whose names are in `inner`, or stay as they are. nullopt: it is not known.
std::optional<Range> range_of(const ExprPtr& expr, const Ranges& inner);

// The same value, as a sum of products in which equal terms are one.
ExprPtr simplify(const ExprPtr& expr);

// From the least to the highest of both.
Range join(const Range& a, const Range& b);

}  // namespace narrows::program
