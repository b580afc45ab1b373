// SPDX-License-Identifier: Apache-2.0
// schedule.cpp -- see schedule.h.
#include "core/program/schedule.h"

#include <algorithm>
#include <array>

#include "core/error.h"
#include "core/program/polyhedra.h"
#include "core/program/steps.h"
#include "core/program/text.h"
#include "core/program/types.h"

namespace narrows::program {
namespace {

struct NamedStep {
  const char* name;
  Step step;
  bool needs_proof;
};

constexpr std::array<NamedStep, 21> kSteps = {{
    {"split", split, true},
    {"fuse", fuse, true},
    {"reorder", reorder, true},
    {"parallel", parallel, true},
    {"vectorize", vectorize, true},
    {"unroll", unroll, true},
    {"bind", bind, true},
    {"compute_at", compute_at, true},
    {"reverse_compute_at", reverse_compute_at, true},
    {"compute_inline", compute_inline, true},
    {"reverse_compute_inline", reverse_compute_inline, true},
    {"decompose_reduction", decompose_reduction, true},
    {"cache_read", cache_read, true},
    {"cache_write", cache_write, true},
    {"set_scope", set_scope, true},
    {"transform_layout", transform_layout, true},
    {"rfactor", rfactor, true},
    {"annotate", annotate, false},
    {"tensorize", tensorize, true},
    {"pipeline", pipeline, true},
    {"pad", pad, false},
}};

const NamedStep& need_step(const std::string& name) {
  const auto found = std::find_if(kSteps.begin(), kSteps.end(), [&](const NamedStep& step) { return step.name == name; });
  if (found == kSteps.end())
    throw_failure(NW_INVALID, -1, "there is no step '%s'%s", name.c_str(), instead_of(name, step_names()).c_str());
  return *found;
}

// A trace may end anywhere, and its program is kept as a text. Before anything is proven: what is too long takes long to prove.
void require_text(const Program& program) {
  check(program);
  try {
    parse(print(program));
  } catch (const Failure& failure) {
    throw_failure(NW_INVALID, -1, "the resulting program cannot be kept as text: %s", failure.message.c_str());
  }
}

}  // namespace

std::vector<std::string> step_names() {
  std::vector<std::string> out;
  out.reserve(std::size(kSteps));
  for (const NamedStep& step : kSteps) out.emplace_back(step.name);
  return out;
}

Schedule::Schedule(Program program) : original_(std::move(program)), reference_(original_), current_(original_) {
  check(original_);
  const Effort effort;
  verifier_ = std::make_shared<const Verifier>(reference_);
  verifier_->check(current_);
}

std::vector<std::string> Schedule::apply(std::string_view text) {
  const StepLine line = StepLine::parse(text);
  const Effort effort;
  try {
    const NamedStep& step = need_step(line.name());
    Draft draft{reference_, current_, *verifier_, false, {}};
    step.step(draft, line);
    require_text(draft.current);
    std::shared_ptr<const Verifier> verifier = verifier_;
    if (draft.changes_reference) verifier = std::make_shared<const Verifier>(draft.reference);
    if (step.needs_proof) verifier->check(draft.current);
    trace_.push_back(line.print());
    reference_ = std::move(draft.reference);
    current_ = std::move(draft.current);
    verifier_ = std::move(verifier);
    return std::move(draft.made);
  } catch (Failure& failure) {
    failure.message = line.print() + ": " + failure.message;
    throw;
  }
}

std::vector<std::string> Schedule::blocks() const { return block_names(current_.body); }

std::vector<std::string> Schedule::loops(const std::string& block) const {
  const std::vector<Path> all = paths(current_);
  std::vector<std::string> out;
  for (const ForPtr& loop : need_block(all, block).loops) out.push_back(loop->name);
  return out;
}

void Schedule::require_scopes() const { verifier_->require_scopes(current_); }

std::string Schedule::home_of(const std::string& buffer) const { return verifier_->home_of(current_, buffer); }

}  // namespace narrows::program
