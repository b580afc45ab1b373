// SPDX-License-Identifier: Apache-2.0
// program.h -- tensor programs on the CPU: kernels `compiled` and `interpreter`.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend.h"
#include "common/program_lower.h"
#include "common/recent.h"
#include "program/c_source.h"
#include "program/compile.h"
#include "program/copies.h"

namespace narrows::cpu {

extern const char* const kProgramKernels[];

// What an instance keeps, so that a program that is planned for other sizes is neither read nor compiled again.
class Programs {
 public:
  struct Compiled {
    std::shared_ptr<const CSource> source;
    std::shared_ptr<const CObject> object;  // nullptr: it was only asked for
  };
  struct Kept {
    std::shared_ptr<const CSource> source;
    std::weak_ptr<const CObject> object;  // it stays as long as a plan or the compiler has it
  };
  struct Known {
    Lowered lowered;
    std::optional<WithoutCopies> direct;   // for small calls
    std::map<std::string, Kept> compiled;  // by layout
  };

  // The program of a text; of those that were used last.
  std::shared_ptr<Known> read(std::string_view text);

  Compiled compile(const Instance& instance, Known* known, const Bound& bound, bool asks);

 private:
  common::Recent<Known> known_{256};
  CCompiler compiler_;
};

// What is printed, interpreted or exported of a text. Refuses loops that are bound to a GPU's threads.
Lowered lowered_text(std::string_view text);

// What the C of this instance's programs is printed and compiled for.
CTarget c_target(const Instance& instance);
std::vector<std::string> c_flags(bool contracts);
std::vector<std::string> c_machine_flags(const Instance& instance);

// Plans a call of the program that the text is. Where no kernel is forced: `compiled` if there is a C compiler, else `interpreter`.
// `asks`: the plan will not be launched; nothing is compiled.
std::unique_ptr<Plan> plan_program(const Instance& instance, std::string_view text, const nw_sig& sig, bool asks);

// The C text of a program for dense tensors that are all there. Its first line says which kernel runs.
std::string source_of_program(const Instance& instance, std::string_view text);

}  // namespace narrows::cpu
