// SPDX-License-Identifier: Apache-2.0
// expr.h -- makes, compares, changes and evaluates expressions. What is made here has the right type, or a Failure says why it
// cannot be; arithmetic of `index` is folded where its operands are constants, checked for overflow.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/program/ir.h"

namespace narrows::program {

ExprPtr make_integer(int64_t value, DType dtype = DType::index);
ExprPtr make_real(DType dtype, double value);  // rounded to the type
ExprPtr make_boolean(bool value);
ExprPtr make_name(const std::string& name, DType dtype = DType::index);
ExprPtr make_load(const std::string& buffer, DType dtype, std::vector<ExprPtr> indices);
ExprPtr make_present(const std::string& tensor);

// A function by its name (docs/programs.md). Of `index`: add, sub, mul, floor_div, remainder, minimum, maximum, and comparisons.
ExprPtr make_call(const std::string& name, std::vector<ExprPtr> operands);

// To an element type. The cast of an `index` constant is a constant of that type; a cast to the same type is the value itself.
ExprPtr make_cast(DType dtype, ExprPtr value);

// The integer `value` held between low and high: minimum(maximum(value, low), high), of `index`.
ExprPtr make_clamp(ExprPtr value, ExprPtr low, ExprPtr high);

// Of `index`.
ExprPtr operator+(const ExprPtr& a, const ExprPtr& b);
ExprPtr operator-(const ExprPtr& a, const ExprPtr& b);
ExprPtr operator*(const ExprPtr& a, const ExprPtr& b);
ExprPtr operator+(const ExprPtr& a, int64_t b);
ExprPtr operator-(const ExprPtr& a, int64_t b);
ExprPtr operator*(const ExprPtr& a, int64_t b);
ExprPtr floor_div(const ExprPtr& a, const ExprPtr& b);
ExprPtr remainder(const ExprPtr& a, const ExprPtr& b);

// The number of an `index` constant.
std::optional<int64_t> constant(const ExprPtr& expr);

// Alike in every part; two NULLs are. Two NaNs are, and 0 and -0 are not.
bool same(const ExprPtr& a, const ExprPtr& b);
bool same(const std::vector<ExprPtr>& a, const std::vector<ExprPtr>& b);

// Each name of `values` replaced, and the result folded. What does not change is shared with `expr`; NULL gives NULL.
using Substitution = std::map<std::string, ExprPtr>;
ExprPtr substitute(const ExprPtr& expr, const Substitution& values);

// The number of an expression of `index`, or of comparisons of such (0 or 1). Throws Failure: a name that `values` lacks, a
// division by 0, an overflow, data.
int64_t evaluate(const ExprPtr& expr, const std::map<std::string, int64_t>& values);

}  // namespace narrows::program
