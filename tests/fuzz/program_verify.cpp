// SPDX-License-Identifier: Apache-2.0
// program_verify.cpp -- fuzz target: the proof of a text that came from anywhere, as nw_program_parse() and saved models ask for it
// (core/program/verify.h), and its default schedule. The input is the text; its length chooses the sizes.
//
// What is demanded of a text that can be read:
//   - it is accepted, or refused as invalid with a message, within the time that libFuzzer gives an input;
//   - the reference (tests/reference/program.h), which shares no code with the verifier, finds no fault in what is accepted, nor in
//     what the default schedule for CPUs makes of it;
//   - what is accepted is lowered and printed, or refused with a message.
#include <algorithm>
#include <memory>
#include <set>
#include <stdexcept>

#include "core/program/auto.h"
#include "core/program/schedule.h"
#include "core/program/walk.h"
#include "lower.h"
#include "reference/program.h"

namespace narrows::fuzz {
namespace {

constexpr double kMostPoints = 1 << 12;

// What a run touches: the points of all nests, and the elements of all buffers. Too many where it cannot be told: an extent depends
// on another loop, or a dimension is negative.
double points(const program::Program& program, const std::map<std::string, int64_t>& sizes) {
  std::map<std::string, int64_t> known = sizes;
  for (const program::Param& param : program.params)
    if (program::is_integer(param.dtype)) known[param.name] = param.value->integer;
  const auto product = [&](const program::ExprPtr& extent, double out) {
    for (const std::string& name : program::names_in(extent))
      if (known.count(name) == 0) return kMostPoints + 1;
    return out * std::max(1.0, static_cast<double>(program::evaluate(extent, known)));
  };
  double sum = 0;
  for (const auto* list : {&program.tensors, &program.allocations})
    for (const Buffer& buffer : *list) {
      double elements = 1;
      for (const program::ExprPtr& extent : buffer.shape) {
        if (program::evaluate(extent, known) < 0) return kMostPoints + 1;
        elements = product(extent, elements);
      }
      sum += elements;
    }
  program::for_each_block(program, [&](const program::Block&, const program::Loops& loops) {
    double runs = 1;
    for (const auto& loop : loops) runs = product(loop->extent, runs);
    sum += runs;
  });
  return sum;
}

bool has_scopes(const program::Schedule& schedule) {
  try {
    schedule.require_scopes();
    return true;
  } catch (const Failure&) {  // for now its scopes mean nothing
    return false;
  }
}

void require_no_fault(const program::Schedule& schedule, const std::map<std::string, int64_t>& sizes, const char* what) {
  program::Program program = schedule.program();
  if (!has_scopes(schedule))
    for (Buffer& allocation : program.allocations) allocation.scope = Buffer::Scope::global;
  try {
    if (points(program, sizes) > kMostPoints) return;
    const reference::Arguments arguments = reference::small_integers(program, sizes, 1);
    const std::vector<std::string> faults = reference::evaluate(program, arguments).faults;
    if (!faults.empty()) finding("%s is accepted, though: %s\n%s", what, faults[0].c_str(), program::print(program).c_str());
  } catch (const Failure&) {                // sizes that do not go together
  } catch (const std::invalid_argument&) {  // what the reference cannot decide
  }
}

std::unique_ptr<program::Schedule> accepted(program::Program program) {
  try {
    return std::make_unique<program::Schedule>(std::move(program));
  } catch (const Failure& failure) {
    if (failure.status != NW_INVALID || failure.message.empty())
      finding("refused with status %d, '%s'", failure.status, failure.message.c_str());
    return nullptr;
  }
}

void check(program::Program program, size_t choice) {
  const std::unique_ptr<program::Schedule> schedule = accepted(std::move(program));
  if (schedule == nullptr) return;
  std::map<std::string, int64_t> sizes;
  for (const std::string& name : program::sizes_of(schedule->original())) sizes[name] = static_cast<int64_t>(choice++ % 5);
  require_no_fault(*schedule, sizes, "a program");
  lower_or_refuse(schedule->program(), choice);
  program::Schedule by_default = *schedule;
  program::schedule_for_cpu(&by_default, {64, 32});
  require_no_fault(by_default, sizes, "the default schedule of a program");
  lower_or_refuse(by_default.program(), choice);
}

}  // namespace
}  // namespace narrows::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  narrows::program::Program program;
  try {
    program = narrows::program::parse(std::string_view(reinterpret_cast<const char*>(data), size));
  } catch (const narrows::Failure&) {  // of which program_text knows more
    return 0;
  }
  narrows::fuzz::check(std::move(program), size);
  return 0;
}
