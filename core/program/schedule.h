// SPDX-License-Identifier: Apache-2.0
// schedule.h -- changes how a program runs, and not what it computes. docs/program_schedules.md has the steps.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/program/ir.h"
#include "core/program/verify.h"

namespace narrows::program {

class Schedule {
 public:
  // Throws Failure (NW_INVALID) where the program has no meaning (verify.h).
  explicit Schedule(Program program);

  // Takes one step, as `split(loop="i", factors=[None, 8])`. Returns the names of what it made: loops, or a block. Throws Failure:
  // the step is not possible, or it could change what is computed; then nothing has changed.
  std::vector<std::string> apply(std::string_view line);

  const Program& original() const { return original_; }
  const Program& program() const { return current_; }
  const std::vector<std::string>& trace() const { return trace_; }  // applied to the original, they give the program again

  std::vector<std::string> blocks() const;
  std::vector<std::string> loops(const std::string& block) const;  // from the outermost; throws Failure: no such block

  void require_scopes() const;  // as Verifier::require_scopes

  // The loop into which an allocation may sink (Verifier::home_of).
  std::string home_of(const std::string& buffer) const;

 private:
  Program original_, reference_, current_;
  std::shared_ptr<const Verifier> verifier_;  // of the reference: the original with its blocks changed as the steps changed them
  std::vector<std::string> trace_;
};

// The names of all steps.
std::vector<std::string> step_names();

}  // namespace narrows::program
