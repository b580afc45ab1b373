// SPDX-License-Identifier: Apache-2.0
// program_steps.cpp -- fuzz target: the steps of a schedule (core/program/schedule.h). The input is lines, each a step of one small
// program, of which the first eight are taken.
//
// What is demanded:
//   - a step is taken, or refused as invalid with a message, and then program and trace are as before;
//   - the program that a step makes prints as a text that can be read;
//   - the trace, applied to the program as it was, gives the same program.
#include <memory>
#include <string>

#include "core/error.h"
#include "core/program/schedule.h"
#include "core/program/text.h"
#include "finding.h"

namespace narrows::fuzz {
namespace {

constexpr const char* kProgram = R"(program 1 mm_relu(A: f32[6, K], B: f32[K, 4], C: out f32[6, 4]):
  alloc Y: f32[6, 4]
  for i in 6:
    for j in 4:
      for k in K:
        block Y(vi: S(6) = i, vj: S(4) = j, vk: R(K) = k):
          init:
            Y[vi, vj] = f32(0)
          Y[vi, vj] = Y[vi, vj] + A[vi, vk] * B[vk, vj]
  for i1 in 6:
    for j1 in 4:
      block C(vi: S(6) = i1, vj: S(4) = j1):
        C[vi, vj] = maximum(Y[vi, vj], f32(0))
)";
constexpr int kMaxSteps = 8;

// Was the step taken?
bool take(program::Schedule& schedule, const std::string& line) {
  const std::string before = program::print(schedule.program());
  const size_t steps = schedule.trace().size();
  try {
    schedule.apply(line);
  } catch (const Failure& failure) {
    if (failure.status != NW_INVALID || failure.message.empty())
      finding("'%s' fails with status %d, '%s'", line.c_str(), failure.status, failure.message.c_str());
    if (program::print(schedule.program()) != before || schedule.trace().size() != steps)
      finding("'%s' is refused and changes something", line.c_str());
    return false;
  }
  const std::string text = program::print(schedule.program());
  if (program::print(program::parse(text)) != text) finding("after '%s' the program prints as another text", line.c_str());
  return true;
}

void replay(const program::Schedule& schedule) {
  program::Schedule again(program::parse(kProgram));
  for (const std::string& line : schedule.trace()) again.apply(line);
  if (program::print(again.program()) != program::print(schedule.program())) finding("the trace replays to another program");
}

}  // namespace
}  // namespace narrows::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const narrows::program::Schedule kUnscheduled(narrows::program::parse(narrows::fuzz::kProgram));
  narrows::program::Schedule schedule = kUnscheduled;
  const std::string lines(reinterpret_cast<const char*>(data), size);
  bool changed = false;
  size_t begin = 0;
  for (int i = 0; i < narrows::fuzz::kMaxSteps && begin <= lines.size(); ++i) {
    const size_t end = std::min(lines.find('\n', begin), lines.size());
    changed = narrows::fuzz::take(schedule, lines.substr(begin, end - begin)) || changed;
    begin = end + 1;
  }
  if (changed) narrows::fuzz::replay(schedule);
  return 0;
}
