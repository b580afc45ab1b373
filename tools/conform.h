// SPDX-License-Identifier: Apache-2.0
// conform.h -- `narrows conform`: the conformance suite, run in processes of its own (narrows-conform), so that a plugin that
// crashes or hangs fails a test and not the judge. What that process says line by line becomes a verdict, on_measured as text, JSON
// and JUnit XML.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "commands.h"

namespace narrows::tools {

struct Failure {
  std::string text, file;
  int64_t line = 0;
};

struct TestResult {
  std::string name;
  std::string status;             // "passed", "failed", "skipped"
  std::string reason;             // of a skip
  std::vector<Failure> failures;  // the first few
  int64_t failed_assertions = 0, assertions = 0;
  int64_t accepted = 0, refused = 0;  // calls
  double seconds = 0;
};

struct Measured {
  std::string name, kernel;
  double seconds = 0, spread = 0, bytes = 0, operations = 0, ceiling = 0;
  int64_t runs = 0;
  bool graphs = false;  // of CUDA's; else launch by launch
};

// The suite in one environment of the manifest, or as the process was started.
struct Run {
  std::string environment;              // "": none
  std::optional<std::string> not_here;  // why it could not be run on this machine
  std::string arch;
  std::vector<TestResult> tests;
  std::vector<Measured> measured;
  std::set<std::string> variants;  // forced ones that ran, "op/kernel"
  std::set<std::string> excluded;  // those that need not run here
  double seconds = 0;

  int count(const char* status) const;
};

struct Exclusion {
  std::string calls, reason;
  std::string variant;   // the "op/kernel" that it excludes altogether; "": it excludes calls
  bool applied = false;  // in some run
  int64_t accepted = 0, declined = 0;
};

struct Listed {
  std::string name;
  std::vector<std::string> tags;
};

// What the suite said of the backend that it found.
struct Subject {
  std::string backend, version, path, arch, manifest;
  int32_t device_type = 0, device_id = 0;
  uint64_t seed = 0;
  std::vector<std::string> ops;
  std::set<std::string> variants;  // listed, "op/kernel"
  std::vector<std::string> environments;
};

struct Verdict {
  Subject subject;
  bool whole = true;  // every test was asked for, so that variants and exclusions can be held to account
  std::vector<Run> runs;
  std::vector<Exclusion> exclusions;
  std::vector<std::string> complaints;  // about the whole: a stale exclusion, a variant that never ran, nothing run
  double seconds = 0;

  int count(const char* status) const;
  bool passed() const;
};

// Runs what the options ask for. Calls `on_measured`, if given, after each measurement: the last one of run.measured. Throws
// StatusError: NW_UNAVAILABLE where there is nothing to judge, NW_INVALID for a bad request.
using OnMeasured = std::function<void(const Subject&, const Run&)>;
Verdict judge(const ConformOptions& options, const OnMeasured& on_measured = nullptr);
std::vector<Listed> list_tests(const ConformOptions& options);

// The pattern that one test matches, and no other.
std::string exactly(const std::string& test);
// The command that repeats one test.
std::string repeat_command(const ConformOptions& options, const Verdict& verdict, const Run& run, const std::string& test);

void print_verdict(const ConformOptions& options, const Verdict& verdict);
void print_measured(const Subject& subject, const Run& run);
std::string verdict_json(const ConformOptions& options, const Verdict& verdict);
std::string verdict_junit(const ConformOptions& options, const Verdict& verdict);
// A table in Markdown of the ops and dtypes that the backend supports, found by asking it.
std::string support_markdown(const ConformOptions& options);

}  // namespace narrows::tools
