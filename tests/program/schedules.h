// SPDX-License-Identifier: Apache-2.0
// schedules.h -- what the tests of schedules share: a schedule of a text, what is refused, and the program as it is now.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/program/schedule.h"
#include "programs.h"

using Names = std::vector<std::string>;

inline narrows::program::Schedule schedule(const std::string& text) {
  return narrows::program::Schedule(narrows::program::parse(text));
}

inline narrows::program::Schedule mm_relu() { return schedule(read_file(std::filesystem::path(TEXTS) / "mm_relu.program")); }

// The message of a step that is refused; the program is then as it was.
inline std::string refused(narrows::program::Schedule& schedule, const std::string& line) {
  const std::string before = narrows::program::print(schedule.program());
  const Names trace = schedule.trace();
  std::string message = refusal([&] { schedule.apply(line); });
  CHECK(narrows::program::print(schedule.program()) == before);
  CHECK(schedule.trace() == trace);
  return message;
}

// The lines of the program's text after its declarations.
inline std::string body(const narrows::program::Schedule& schedule) {
  std::string text = narrows::program::print(schedule.program());
  size_t at = text.find("\n  for ");
  return text.substr(at + 1);
}
