// SPDX-License-Identifier: Apache-2.0
// check_expr.h -- what one expression must be where it stands. Part of types.h's check.
#pragma once

#include <map>
#include <set>
#include <string>

#include "core/program/ir.h"

namespace narrows::program {

// The names of a program.
struct Names {
  std::set<std::string> sizes;          // and integer params: the numbers that do not change while the program runs
  std::map<std::string, DType> params;  // the other ones
  std::map<std::string, const Buffer*> buffers;
  int parts = 0;  // of the expressions so far
};

struct Place {
  std::string what;                              // "block 'Y': the extent of axis 'vi'"
  const std::set<std::string>* loops = nullptr;  // that may stand here
  const std::set<std::string>* axes = nullptr;
  bool data = false;    // loads and params may stand here
  bool gather = false;  // clamp may stand here
};

// Throws Failure that begins with place.what. `dtype`: what the expression has to be.
void check_expr(const ExprPtr& expr, DType dtype, const Place& place, Names& names);

}  // namespace narrows::program
