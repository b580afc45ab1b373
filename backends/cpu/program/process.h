// SPDX-License-Identifier: Apache-2.0
// process.h -- runs a program without a shell, within a time.
#pragma once

#include <string>
#include <vector>

namespace narrows::cpu {

struct Outcome {
  enum class Kind { exited, killed, timed_out, not_started };
  Kind kind;
  int number;          // the exit status, the signal, or errno
  std::string output;  // what it wrote, both streams
};

// arguments[0] is the program's path. Its input is empty. After `seconds` it is killed with all that it started; what it leaves
// running when it ends is left alone.
Outcome run_process(const std::vector<std::string>& arguments, double seconds);

// The path of a program, searched for in $PATH if it has no '/'; empty: there is none.
std::string find_program(const std::string& name);

}  // namespace narrows::cpu
