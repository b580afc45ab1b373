// SPDX-License-Identifier: Apache-2.0
// inverse.h -- which points of a block read an element of a buffer: the subscripts of the access, solved for the block's axes.
// So the adjoint of a read is a sum over these points, and scatters nothing.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/program/expr.h"
#include "core/program/ir.h"

namespace narrows::program {

// What is read where `conditions` all hold, by a block with these axes.
struct Reading {
  std::vector<Axis> axes;
  std::vector<ExprPtr> indices;
  std::vector<ExprPtr> conditions;
};

// Of an element at `places`: the points are those of `free` at which `guard` holds.
struct Inverse {
  std::vector<Axis> free;           // reduction axes, each with its extent; no binding
  Substitution axes;                // every other axis of the access, from places and free axes
  ExprPtr guard;                    // comparisons of index
  std::vector<ExprPtr> conditions;  // of the access, in its own axes
};

// The points that read the element at `places` (names) of a buffer of that shape: those of all inverses together, each once. No
// subscript depends on data. `fresh` makes a name of an axis.
std::vector<Inverse> invert(const Reading& access, const std::vector<ExprPtr>& places, const std::vector<ExprPtr>& shape,
                            const std::function<std::string()>& fresh);

}  // namespace narrows::program
