// SPDX-License-Identifier: Apache-2.0
// steps.h -- the steps of a schedule, each a function on a draft. They throw Failure where a step has no meaning; whether its
// result computes the same is proven afterwards, of all of them alike.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "core/program/ir.h"
#include "core/program/step_line.h"
#include "core/program/tree.h"
#include "core/program/verify.h"

namespace narrows::program {

// What a step works on. `reference` has the same blocks in the order of the unscheduled program; a step that changes blocks changes
// them in both.
struct Draft {
  Program reference, current;
  const Verifier& verifier;  // of the reference as it was before the step
  bool changes_reference = false;
  std::vector<std::string> made;
};

using Step = void (*)(Draft&, const StepLine&);

// steps_loops.cpp
void split(Draft&, const StepLine&);
void fuse(Draft&, const StepLine&);
void reorder(Draft&, const StepLine&);
void parallel(Draft&, const StepLine&);
void vectorize(Draft&, const StepLine&);
void unroll(Draft&, const StepLine&);
void bind(Draft&, const StepLine&);
void pipeline(Draft&, const StepLine&);
void tensorize(Draft&, const StepLine&);
void annotate(Draft&, const StepLine&);
// steps_move.cpp
void compute_at(Draft&, const StepLine&);
void reverse_compute_at(Draft&, const StepLine&);
// steps_inline.cpp
void compute_inline(Draft&, const StepLine&);
void reverse_compute_inline(Draft&, const StepLine&);
// steps_reduction.cpp
void decompose_reduction(Draft&, const StepLine&);
void rfactor(Draft&, const StepLine&);
// steps_buffers.cpp
void cache_read(Draft&, const StepLine&);
void cache_write(Draft&, const StepLine&);
void set_scope(Draft&, const StepLine&);
void transform_layout(Draft&, const StepLine&);
void pad(Draft&, const StepLine&);

// steps_common.cpp: what several steps need.
const Path& need_block(const std::vector<Path>& all, const std::string& name);  // throws Failure, with the names that there are
ForPtr need_loop(const Program& program, const std::string& name);
// "; did you mean 'j'? there are: i, j", of what has no such name.
std::string instead_of(const std::string& name, const std::vector<std::string>& names);
void require_unbound(const For& loop);  // throws Failure
std::vector<Path> paths_under(const Program& program, const std::string& loop);
Buffer& need_allocation(Program& program, const std::string& name);
Buffer::Scope parse_scope(const std::string& name);

// Loops around a statement, the first outermost.
Stmt nest(const std::vector<For>& loops, Stmt inner);
For make_loop(std::string name, ExprPtr extent);

// Is value < extent for all values of the loops and sizes?
bool is_within(const Program& program, const std::vector<For>& loops, const ExprPtr& predicate, const ExprPtr& value,
               const ExprPtr& extent);
bool is_never_negative(const Program& program, const std::vector<For>& loops, const ExprPtr& predicate, const ExprPtr& value);

// `a and b`; NULL is no condition.
ExprPtr both(const ExprPtr& a, const ExprPtr& b);

// The predicate, and what keeps the axes within their extents as far as it and the loops do not.
ExprPtr guard(const Program& program, const std::vector<For>& loops, const ExprPtr& predicate, const std::vector<Axis>& axes);

// The parts of `a and b and c`.
std::vector<ExprPtr> conditions_of(const ExprPtr& predicate);

bool loads(const Block& block, const std::string& buffer);
bool stores(const Block& block, const std::string& buffer);

}  // namespace narrows::program
