// SPDX-License-Identifier: Apache-2.0
// program_text.cpp -- fuzz target: the text of a tensor program (core/program/text.h). The input is the text.
//
// What is demanded:
//   - a text is read, or refused as invalid with a message; nothing else happens;
//   - what was read prints as a text that reads as the same program, prints alike, and has the same digest.
#include <string>

#include "core/error.h"
#include "core/program/digest.h"
#include "core/program/text.h"
#include "core/program/walk.h"
#include "finding.h"

namespace narrows::fuzz {
namespace {

void check_round_trip(const program::Program& first) {
  const std::string text = program::print(first);
  try {
    const program::Program second = program::parse(text);
    if (!program::same(first, second)) finding("what is printed reads as another program:\n%s", text.c_str());
    if (program::print(second) != text) finding("it prints as another text the second time:\n%s", text.c_str());
    if (program::digest(second) != program::digest(first)) finding("it has another digest the second time:\n%s", text.c_str());
  } catch (const Failure& failure) {
    finding("what is printed is refused: %s\n%s", failure.message.c_str(), text.c_str());
  }
}

}  // namespace
}  // namespace narrows::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  narrows::program::Program program;
  try {
    program = narrows::program::parse(std::string_view(reinterpret_cast<const char*>(data), size));
  } catch (const narrows::Failure& failure) {
    if (failure.status != NW_INVALID || failure.message.empty())
      narrows::fuzz::finding("refused with status %d, '%s'", failure.status, failure.message.c_str());
    return 0;
  }
  narrows::fuzz::check_round_trip(program);
  return 0;
}
