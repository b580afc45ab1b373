// SPDX-License-Identifier: Apache-2.0
// verify.h -- proves that a scheduled program computes what its reference does, for all sizes.
// docs/internals/program_verification.md has the rules. A refusal names block, loop and rule, with a counterexample.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/program/ir.h"

namespace narrows::program {

class Verifier {
 public:
  // The program whose order of execution is the meaning. Throws Failure (NW_INVALID) unless it has one: each access is in bounds or
  // guarded, each block runs once for each point of its axes, nothing is read that was not written, each output is written.
  explicit Verifier(const Program& reference);
  ~Verifier();
  Verifier(const Verifier&) = delete;
  Verifier& operator=(const Verifier&) = delete;

  // `current` has the reference's blocks, with the same axes and bodies. Throws Failure (NW_INVALID): the values could differ, or
  // it could not be proven that they do not.
  void check(const Program& current) const;

  // Local memory is one thread's, shared memory one block's. Throws Failure where a buffer of such a scope holds what another
  // thread or block reads. A backend with threads asks this before it lowers; until then a schedule may pass through such states.
  void require_scopes(const Program& current) const;

  // May the value that block `later` reads of `earlier` through a buffer be computed at the other block's time? With `goes_up`,
  // what `later` does moves to `earlier`; else what `earlier` computes moves to `later`. "": yes; else which block between them
  // prevents it.
  std::string moved(const std::string& earlier, const std::string& later, const std::string& buffer, bool goes_up) const;

  // The loop of `current` into which an allocation may sink, so that each iteration has its own: the innermost one that all its
  // users share and that no value crosses. "": none, it is the whole program's.
  std::string home_of(const Program& current, const std::string& buffer) const;

  struct State;

 private:
  std::unique_ptr<State> state_;
};

// Of a program as it stands.
void verify(const Program& program);

}  // namespace narrows::program
