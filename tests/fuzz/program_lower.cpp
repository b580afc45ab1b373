// SPDX-License-Identifier: Apache-2.0
// program_lower.cpp -- fuzz target: what a backend does with a program before it runs: lowering, binding to a call's tensors, and
// the C text of the cpu backend. The input is the program's text; its length chooses the sizes. Nothing is proven of it before.
//
// What is demanded of a text that can be read:
//   - it is lowered, bound and printed, or refused with a message;
//   - the C text is bounded, whatever is unrolled or vectorised.
#include "lower.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace narrows;
  constexpr size_t kMaxInput = size_t{64} << 10;
  if (size > kMaxInput) return 0;
  program::Program program;
  try {
    program = program::parse(std::string_view(reinterpret_cast<const char*>(data), size));
  } catch (const Failure&) {  // of which program_text knows more
    return 0;
  }
  fuzz::lower_or_refuse(program, size);
  return 0;
}
