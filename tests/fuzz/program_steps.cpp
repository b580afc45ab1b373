// SPDX-License-Identifier: Apache-2.0
// program_steps.cpp -- fuzz target: the steps of a schedule (core/program/schedule.h). The input is a byte that chooses a program,
// and lines, each a step of it, of which the first eight are taken.
//
// What is demanded:
//   - a step is taken, or refused as invalid with a message, and then program and trace are as before;
//   - the program that a step makes prints as a text that can be read;
//   - the trace, applied to the program as it was, gives the same program.
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/program/schedule.h"
#include "core/program/text.h"
#include "finding.h"

namespace narrows::fuzz {
namespace {

// Small products for steps that want sizes, a unit's product, and a tensor that is changed; then examples/programs.
constexpr const char* kTexts[] = {R"(program 1 mm_relu(A: f32[6, K], B: f32[K, 4], C: out f32[6, 4]):
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
)",
                                  R"(program 1 dots(A: i8[M, 8], B: i8[8, N], C: inout i32[M, N]):
  for i in M:
    for j in N:
      for k in 2:
        for q in 4:
          block C(vi: S(M) = i, vj: S(N) = j, vk: R(8) = k * 4 + q):
            C[vi, vj] = C[vi, vj] + i32(A[vi, vk]) * i32(B[vk, vj])
)"};
constexpr const char* kExamples[] = {"conv1d", "softmax", "cumsum", "stencil", "layer_norm", "gather"};
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
  program::Schedule again(schedule.original());
  for (const std::string& line : schedule.trace()) again.apply(line);
  if (program::print(again.program()) != program::print(schedule.program())) finding("the trace replays to another program");
}

std::vector<program::Schedule> read_programs() {
  std::vector<program::Schedule> out;
  for (const char* const text : kTexts) out.emplace_back(program::parse(text));
  for (const char* const name : kExamples) {
    std::ifstream in(std::string(TEXTS "/") + name + ".program");
    out.emplace_back(program::parse(std::string(std::istreambuf_iterator<char>(in), {})));
  }
  return out;
}

}  // namespace
}  // namespace narrows::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::vector<narrows::program::Schedule> kUnscheduled = narrows::fuzz::read_programs();
  if (size == 0) return 0;
  narrows::program::Schedule schedule = kUnscheduled[data[0] % kUnscheduled.size()];
  const std::string lines(reinterpret_cast<const char*>(data) + 1, size - 1);
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
