// SPDX-License-Identifier: Apache-2.0
// saved.h -- what a saved model carries of a program: its text, how plugins run it, and the programs of its gradients.
// docs/programs.md, "In saved models", has the format.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/program/schedule.h"

namespace narrows::program {

struct SavedProgram {
  Schedule original;                                        // without steps
  std::vector<std::pair<std::string, Schedule>> scheduled;  // by the name of a plugin
};

// Each but the first is the adjoint of the one before it. Everything is verified: the texts, that the steps keep what they compute,
// and that adjoint() gives each adjoint. So a library that makes another adjoint of a program refuses the older text.
// Throws Failure: the line, and what is wrong there.
std::vector<SavedProgram> read_saved(std::string_view text);

}  // namespace narrows::program
