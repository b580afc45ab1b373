// SPDX-License-Identifier: Apache-2.0
// parse_expr.h -- reads an expression, by the strength of its operators.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "core/program/cursor.h"
#include "core/program/ir.h"

namespace narrows::program {

// What a name means where an expression stands.
struct Scope {
  std::map<std::string, DType, std::less<>> values;   // sizes, params, loops, axes
  std::map<std::string, DType, std::less<>> buffers;  // by what they hold
  bool declares_sizes = false;                        // in the dimensions of tensors, where any name is a size or a param
};

constexpr int kMaxNesting = 200;      // of brackets and operators that stand before their operand
constexpr int kMaxOperations = 4096;  // of one expression

ExprPtr parse_expression(Cursor& cursor, const Scope& scope);

// As above, and refused at its place if it is not of `index`; `what` names it: "the extent of loop 'i'".
ExprPtr parse_index(Cursor& cursor, const Scope& scope, const std::string& what);

// A constant as it stands between the brackets of f32(…), and as a param's value: [-] NUMBER | inf | nan. NULL, and nothing taken:
// something else stands there.
ExprPtr parse_constant(Cursor& cursor, DType dtype);

}  // namespace narrows::program
