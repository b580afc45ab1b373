// SPDX-License-Identifier: Apache-2.0
// order.h -- which of two executions comes first, as alternatives of conditions; and how a counterexample is told.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/program/affine.h"
#include "core/program/unit.h"

namespace narrows::program {

// Two parts of one program: the loops that order both, and which stands first where those are equal.
struct Pair {
  Pair(const Part& first, const Part& second);

  Part a, b;
  int common;             // loops that both share and that order both
  bool a_first, b_first;  // in one iteration of all of them; neither: one runs within the other's interval, or both are one
  bool is_same() const { return a.unit == b.unit && a.is_init == b.is_init; }
};

struct Runs {
  Run a, b;
};

// Runs of both in which a comes before b. One alternative of several; false: this one cannot be.
bool place_before(Affine& affine, const Pair& pair, Runs& runs, const std::string& prefix_a, const std::string& prefix_b);

// Runs of both in which a does not come before b, be it that they overlap.
bool place_not_before(Affine& affine, const Pair& pair, Runs& runs, const std::string& prefix_a, const std::string& prefix_b);

// Two runs that differ first in loop `depth`, where a has the lower value.
bool place_apart(Affine& affine, const Pair& pair, Runs& runs, int depth, const std::string& prefix_a, const std::string& prefix_b);

// One loop of a run comes before that of another.
void order_loops(Affine& affine, const std::vector<Linear>& keys, const std::vector<Linear>& later);

// The same point of the axes: of an init, of its spatial axes.
void equate_axes(Affine& affine, const Part& part, const Run& one, const Run& other);
void equate(Affine& affine, const std::vector<Linear>& one, const std::vector<Linear>& other);

// Telling. "i=0 j=3", "Y[0, 3]", " (N=4)".
std::string tell_loops(const Part& part, const Run& run, const std::vector<int64_t>& point, int from = 0);
std::string tell_element(const Access& access, const std::vector<Linear>& element, const std::vector<int64_t>& point);
std::string tell_sizes(const Program& program, const System& system, const std::vector<int64_t>& point);
std::string at(const std::string& loops);  // "at i=0 ", or "" without loops

std::vector<int> unknowns_of(const std::vector<Linear>& values);  // from the first value on

}  // namespace narrows::program
