// SPDX-License-Identifier: Apache-2.0
// presolve.h -- what can be said of a System in a microsecond: equalities are substituted, bounds are tightened. Most questions
// about loops end here; what is left goes to isl, and is smaller.
#pragma once

#include <vector>

#include "core/program/polyhedra.h"

namespace narrows::program {

struct Presolved {
  enum class Answer : uint8_t { empty, not_empty, unknown };
  Answer answer = Answer::unknown;
  size_t unknowns = 0;  // of what is left, which has a point exactly if the system has
  std::vector<Linear> zeros, not_negatives;
};

Presolved presolve(const System& system);

}  // namespace narrows::program
