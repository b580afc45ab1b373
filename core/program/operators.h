// SPDX-License-Identifier: Apache-2.0
// operators.h -- the signs of the text and the functions that they mean; how strongly they bind is Python's.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/program/ir.h"

namespace narrows::program {

constexpr int kOr = 1, kAnd = 2, kNot = 3, kComparison = 4, kSum = 5, kProduct = 6, kMinus = 7, kPrimary = 8;

struct Operator {
  const char* sign;
  const char* function;
  int strength;
};

const Operator* find_infix(std::string_view sign);

// The sign that a call is printed by; NULL: it is printed by its name.
const Operator* infix_of(const Expr& call);

ExprPtr apply(const Operator& found, const ExprPtr& left, const ExprPtr& right);
ExprPtr condition(const std::string& function, std::vector<ExprPtr> operands);  // of bool alone

// A call as it is written: `min`, `max` and `clamp` are of index too. And the name that a call is printed with.
ExprPtr call_of(const std::string& written, const std::vector<ExprPtr>& operands);
std::string written_name(const Expr& call);

}  // namespace narrows::program
