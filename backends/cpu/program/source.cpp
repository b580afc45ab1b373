// SPDX-License-Identifier: Apache-2.0
// source.cpp -- extension nw_program_source: the C text of a program, for a reader.
#include <narrows/program.h>

#include "common/program_bind.h"
#include "core/error.h"
#include "core/program/text.h"
#include "program/program.h"

namespace narrows::cpu {
namespace {

std::string first_line(const Instance& instance) {
  if (CCompiler::is_present()) return std::string("// cpu: kernel 'compiled' runs, for ") + instance.target + "\n";
  return "// cpu: kernel 'interpreter' runs, for there is no C compiler; 'compiled' would be\n";
}

}  // namespace

std::string source_of_program(const Instance& instance, std::string_view text) {
  try {
    const Lowered lowered = lowered_text(text);
    return first_line(instance) + print_c(any_call(lowered), c_target(instance)).text;
  } catch (const Failure& failure) {
    throw common::Refusal{failure.status, failure.argument, failure.message, failure.native_code};
  }
}

}  // namespace narrows::cpu
