// SPDX-License-Identifier: Apache-2.0
// toolchain.h -- the system's C compiler: which one, for how long it may run, what is said where it fails.
#pragma once

#include <string>
#include <vector>

#include "program/process.h"

namespace narrows::cpu {

// $CC with what it says beside the name, else cc, gcc or clang, the first that is there; empty: there is none.
std::vector<std::string> find_compiler();
// The same; refuses (NW_UNAVAILABLE) where there is none.
std::vector<std::string> required_compiler();
// Its name, version and file, for people. Refuses as that does, and where it does not say its version.
std::string compiler_description();

// What changes where another compiler is installed under its name.
std::string identity(const std::string& path);

double compile_seconds();  // $NARROWS_COMPILE_SECONDS, else 60

[[noreturn]] void refuse_outcome(const Outcome& outcome, const std::string& compiler, const std::string& source);

}  // namespace narrows::cpu
