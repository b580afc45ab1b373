// SPDX-License-Identifier: Apache-2.0
// toolchain.cpp -- see toolchain.h.
#include "program/toolchain.h"

#include <sys/stat.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <cstring>

#include "common/plugin.h"
#include "common/program_files.h"

namespace narrows::cpu {
namespace {

using common::environment;
using common::refuse;

constexpr double kSeconds = 60;

std::vector<std::string> words(const std::string& text) {
  std::vector<std::string> out;
  for (size_t begin = 0; (begin = text.find_first_not_of(' ', begin)) != std::string::npos;) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    out.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  return out;
}

std::string last_lines(const std::string& output) {
  constexpr size_t kMost = 200;
  std::string out = output.substr(output.size() > kMost ? output.size() - kMost : 0);
  if (out.size() < output.size())
    if (const size_t line = out.find('\n'); line != std::string::npos && line + 1 < out.size()) out = out.substr(line + 1);
  while (!out.empty() && (out.back() == '\n' || out.back() == ' ')) out.pop_back();
  return out;
}

}  // namespace

std::vector<std::string> find_compiler() {
  if (const std::string named = environment("CC"); !named.empty()) {
    std::vector<std::string> out = words(named);
    if (!out.empty()) out[0] = find_program(out[0]);
    return out.empty() || out[0].empty() ? std::vector<std::string>() : out;
  }
  for (const char* name : {"cc", "gcc", "clang"})
    if (std::string path = find_program(name); !path.empty()) return {path};
  return {};
}

std::vector<std::string> required_compiler() {
  std::vector<std::string> out = find_compiler();
  if (!out.empty()) return out;
  const std::string named = environment("CC");
  refuse(NW_UNAVAILABLE, -1, "there is no C compiler: %s; install one, or set CC",
         named.empty() ? "cc, gcc and clang were not found" : ("CC is '" + named + "', which was not found").c_str());
}

std::string compiler_description() {
  const std::vector<std::string> command = required_compiler();
  const Outcome outcome = run_process({command[0], "--version"}, compile_seconds());
  if (outcome.kind != Outcome::Kind::exited || outcome.number != 0)
    refuse(NW_FAILED, -1, "the C compiler %s does not answer '--version'", command[0].c_str());
  return outcome.output.substr(0, outcome.output.find('\n')) + ", " + command[0];
}

std::string identity(const std::string& path) {
  char resolved[PATH_MAX];
  struct stat info{};
  if (realpath(path.c_str(), resolved) == nullptr || stat(resolved, &info) != 0) return path;
  return std::string(resolved) + " " + std::to_string(info.st_size) + " " + std::to_string(info.st_mtim.tv_sec) + "." +
         std::to_string(info.st_mtim.tv_nsec);
}

double compile_seconds() {
  const std::string text = environment("NARROWS_COMPILE_SECONDS");
  char* end = nullptr;
  const double seconds = std::strtod(text.c_str(), &end);
  return end != text.c_str() && seconds > 0 ? std::min(seconds, 86400.0) : kSeconds;
}

void refuse_outcome(const Outcome& outcome, const std::string& compiler, const std::string& source) {
  const std::string lines = last_lines(outcome.output);
  switch (outcome.kind) {
    case Outcome::Kind::not_started:
      refuse(NW_UNAVAILABLE, -1, "the C compiler %s cannot be started: %s", compiler.c_str(), std::strerror(outcome.number));
    case Outcome::Kind::timed_out:
      refuse(NW_FAILED, -1, "the C compiler %s was ended after %g seconds ($NARROWS_COMPILE_SECONDS); the source is %s",
             compiler.c_str(), compile_seconds(), source.c_str());
    case Outcome::Kind::killed:
      refuse(NW_FAILED, -1, "the C compiler %s was killed by signal %d; the source is %s%s%s", compiler.c_str(), outcome.number,
             source.c_str(), lines.empty() ? "" : "; its last lines: ", lines.c_str());
    default:
      refuse(NW_FAILED, -1, "the C compiler %s failed with status %d; the source is %s%s%s", compiler.c_str(), outcome.number,
             source.c_str(), lines.empty() ? "" : "; its last lines: ", lines.c_str());
  }
}

}  // namespace narrows::cpu
