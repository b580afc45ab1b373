// SPDX-License-Identifier: Apache-2.0
// conform_text.cpp -- a verdict for people, who read it in ten seconds; and the command itself.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "conform.h"
#include "demo/report.h"
#include "engine.h"
#include "info.h"
#include "probe.h"
#include "terminal.h"

namespace narrows::tools {
namespace {

constexpr size_t kFailuresShown = 12, kLinesShown = 8, kReasonsShown = 5;
constexpr char kNotOffered[] = " does not offer ";

// A word as a POSIX shell reads it back.
std::string quoted(const std::string& word) {
  if (word.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=") == std::string::npos)
    return word;
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string plural(int64_t n, const char* word) { return std::to_string(n) + " " + word + (n == 1 ? "" : "s"); }

// The first lines of a text, indented.
void print_lines(const std::string& text, const char* indent) {
  size_t shown = 0;
  for (size_t begin = 0; begin < text.size() && shown < kLinesShown; ++shown) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::printf("%s%s\n", indent, printable(text.substr(begin, end - begin)).c_str());
    begin = end + 1;
  }
}

void print_head(const Verdict& v) {
  const Subject& s = v.subject;
  std::printf("%s %s on %s %d\n", bold(printable(s.backend)).c_str(), printable(s.version).c_str(), device_type_name(s.device_type),
              s.device_id);
  std::printf("  plugin    %s\n", printable(s.path).c_str());
  if (!s.manifest.empty())
    std::printf("  manifest  %s, %s\n", printable(s.manifest).c_str(),
                plural(static_cast<int64_t>(v.exclusions.size()), "exclusion").c_str());
  std::printf("  seed      %llu\n\n", static_cast<unsigned long long>(s.seed));
}

void print_run(const Run& run) {
  const std::string name = run.environment.empty() ? "as it is" : run.environment;
  if (run.not_here) {
    std::printf("  %-10s  %s\n", printable(name).c_str(), yellow("not here: " + printable(*run.not_here)).c_str());
    return;
  }
  int64_t accepted = 0, refused = 0;
  for (const TestResult& test : run.tests) accepted += test.accepted, refused += test.refused;
  const int failed = run.count("failed"), skipped = run.count("skipped");
  const std::string failures = std::to_string(failed) + " failed";
  std::printf("  %-10s  %-24s %4d passed  %s  %3d skipped  %9lld calls  %7lld refusals  %8s\n", printable(name).c_str(),
              printable(run.arch).c_str(), run.count("passed"), (failed == 0 ? failures : red(failures)).c_str(), skipped,
              static_cast<long long>(accepted), static_cast<long long>(refused), duration(run.seconds).c_str());
}

void print_failures(const ConformOptions& options, const Verdict& v) {
  size_t shown = 0, more = 0;
  std::map<std::string, int64_t> not_run;  // why, and how many: what they did not start for is told once
  for (const Run& run : v.runs)
    for (const TestResult& test : run.tests) {
      if (test.status != "failed") continue;
      if (!test.failures.empty() && test.failures.front().text.starts_with("not run")) {
        ++not_run[test.failures.front().text];
        continue;
      }
      if (shown++ >= kFailuresShown) {
        ++more;
        continue;
      }
      std::printf("\n%s %s%s\n", red("FAILED").c_str(), run.environment.empty() ? "" : (run.environment + ": ").c_str(),
                  printable(test.name).c_str());
      if (!test.failures.empty()) print_lines(test.failures.front().text, "    ");
      if (test.failed_assertions > 1) std::printf("    and %s more in it\n", plural(test.failed_assertions - 1, "failure").c_str());
      std::printf("    %s %s\n", dim("again:").c_str(), printable(repeat_command(options, v, run, test.name)).c_str());
    }
  for (const auto& [why, count] : not_run) std::printf("\n%s %s\n", plural(count, "test").c_str(), printable(why).c_str());
  if (more != 0) std::printf("\n%s more failed; --json has them all\n", plural(static_cast<int64_t>(more), "test").c_str());
}

void print_skips(const Verdict& v) {
  std::map<std::string, int> reasons;
  std::set<std::string> not_offered;
  for (const Run& run : v.runs)
    for (const TestResult& test : run.tests) {
      if (test.status != "skipped") continue;
      const size_t at = test.reason.find(kNotOffered);
      if (at != std::string::npos) not_offered.insert(test.reason.substr(at + sizeof kNotOffered - 1));
      ++reasons[at != std::string::npos ? kNotOffered : test.reason.empty() ? "no reason given" : test.reason];
    }
  std::string names;
  for (const std::string& op : not_offered) names += (names.empty() ? "" : ", ") + op;
  std::vector<std::pair<int, std::string>> by_count;
  by_count.reserve(reasons.size());
  for (const auto& [reason, count] : reasons)
    by_count.emplace_back(-count, reason == kNotOffered ? "the plugin does not offer " + names : reason);
  std::sort(by_count.begin(), by_count.end());
  for (size_t i = 0; i < std::min(by_count.size(), kReasonsShown); ++i)
    std::printf("  skipped %s: %s\n", plural(-by_count[i].first, "test").c_str(), printable(by_count[i].second).c_str());
  if (by_count.size() > kReasonsShown)
    std::printf("  and more for %s; --json has them all\n",
                plural(static_cast<int64_t>(by_count.size() - kReasonsShown), "other reason").c_str());
}

std::string rate(const Measured& m) {
  char text[48];
  if (m.operations > 0)
    std::snprintf(text, sizeof text, "%10.2f GFLOP/s", m.operations / m.seconds * 1e-9);
  else
    std::snprintf(text, sizeof text, "%10.2f GB/s   ", m.bytes / m.seconds * 1e-9);
  return text;
}

// Beside what the device reaches otherwise, where that was measured.
std::string of_ceiling(const Measured& m) {
  if (m.ceiling == 0) return "";
  char text[48];
  const double reached = (m.operations > 0 ? m.operations : m.bytes) / m.seconds;
  std::snprintf(text, sizeof text, "  %3.0f %% of %s", 100 * reached / m.ceiling, m.operations > 0 ? "cuBLAS" : "a copy");
  return text;
}

// "yes", "no" or nothing to ask, for each dtype.
std::string cells(const SupportRow& row) {
  std::string text;
  for (const Support s : row) text += s == Support::yes ? " yes |" : s == Support::no ? " **no** |" : " |";
  return text + "\n";
}

}  // namespace

std::string exactly(const std::string& test) {
  std::string pattern = "\"";
  for (const char c : test) pattern += c == ',' || c == '"' || c == '\\' ? std::string("\\") + c : std::string(1, c);
  return pattern + '"';
}

static const char* subcommand(const ConformOptions& o) { return o.bench ? "bench" : "conform"; }

std::string repeat_command(const ConformOptions& o, const Verdict& v, const Run& run, const std::string& test) {
  std::string command = quoted(o.program) + " " + subcommand(o);
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) command += std::string(" ") + name + " " + quoted(value);
  };
  add("--plugin", o.plugin);
  add("--backend", o.plugin.empty() ? v.subject.backend : o.backend);
  add("--device", o.device);
  add("--manifest", o.manifest);
  add("--environment", run.environment);
  add("--plugin-path", o.plugin_path);
  char timeout[64] = "";
  if (o.timeout != ConformOptions{}.timeout) std::snprintf(timeout, sizeof timeout, " --timeout %g", o.timeout);
  return command + " --seed " + std::to_string(v.subject.seed) + (o.huge ? " --huge" : "") + timeout + " " + quoted(exactly(test));
}

void print_verdict(const ConformOptions& options, const Verdict& v) {
  print_head(v);
  for (const Run& run : v.runs) print_run(run);
  print_failures(options, v);
  if (!v.complaints.empty()) std::printf("\n");
  for (const std::string& complaint : v.complaints) std::printf("%s %s\n", red("FAILED").c_str(), printable(complaint).c_str());
  std::printf("\n");
  print_skips(v);
  const std::string word = v.passed() ? green("PASSED") : red("FAILED");
  std::printf("%s  %d passed, %d failed, %d skipped, in %s\n", word.c_str(), v.count("passed"),
              v.count("failed") + static_cast<int>(v.complaints.size()), v.count("skipped"), duration(v.seconds).c_str());
}

void print_measured(const Subject& subject, const Run& run) {
  const Measured& m = run.measured.back();
  if (run.measured.size() == 1)
    std::printf(
        "%s\n",
        bold(printable(subject.backend + (run.environment.empty() ? "" : " " + run.environment) + ", " + run.arch)).c_str());
  std::printf("  %-52s %-10s %12s  %s  +-%.0f %%%s%s\n", printable(m.name).c_str(),
              printable(m.kernel.empty() ? "(chosen)" : m.kernel).c_str(), duration(m.seconds).c_str(), rate(m).c_str(),
              m.spread * 100, of_ceiling(m).c_str(), m.graphs ? "  in graphs" : "");
  std::fflush(stdout);  // some cases take seconds
}

std::string support_markdown(const ConformOptions& o) {
  const Runtime runtime(o.plugin_path);
  nw_error error{};
  if (!o.plugin.empty() && nw_load(runtime.get(), std::filesystem::absolute(o.plugin).c_str(), &error) != NW_OK)
    throw StatusError(NW_UNAVAILABLE, error.message);
  const auto all = runtime.backends();
  const nw_backend_info* chosen = nullptr;
  for (const nw_backend_info& b : all) {
    if (!o.plugin.empty() && &b != &all.front()) break;  // the file that was named, and no other
    if (chosen == nullptr && usable(b) && (o.backend.empty() || o.backend == b.name)) chosen = &b;
  }
  if (chosen == nullptr) throw StatusError(NW_UNAVAILABLE, "no usable backend" + (o.backend.empty() ? "" : " '" + o.backend + "'"));
  std::string text = "| " + std::string(chosen->name) + " |", rule = "|---|";
  for (const Dtype& dtype : kDtypes) text += std::string(" ") + dtype.short_name + " |", rule += "---|";
  text += "\n" + rule + "\n";
  for (const OpSupport& op : probe(runtime, *chosen)) {
    std::vector<std::pair<SupportRow, std::string>> groups;  // functions that agree in everything share a row
    for (const FunctionSupport& f : op.functions) {
      size_t i = 0;
      while (i < groups.size() && groups[i].first != f.dtypes) ++i;
      if (i == groups.size()) groups.emplace_back(f.dtypes, "");
      if (!f.name.empty()) groups[i].second += " " + f.name;
    }
    for (const auto& [row, functions] : groups) text += "| `" + op.op + "`" + functions + " |" + cells(row);
  }
  return text;
}

static int conform(const ConformOptions& o) {
  if (!o.plugin_path.empty()) setenv("NARROWS_PLUGIN_PATH", o.plugin_path.c_str(), 1);
  if (o.support) return std::fputs(support_markdown(o).c_str(), stdout), kOk;
  if (o.list) {
    for (const Listed& test : list_tests(o)) {
      std::printf("%s", printable(test.name).c_str());
      for (const std::string& tag : test.tags) std::printf(" [%s]", tag.c_str());
      std::printf("\n");
    }
    return kOk;
  }
  std::ofstream junit;  // opened before anything is run
  if (!o.junit.empty() && (junit.open(o.junit), !junit))
    throw StatusError(NW_INVALID, o.junit + " cannot be written: " + std::strerror(errno));
  const Verdict v = judge(o, o.bench && !o.json ? print_measured : OnMeasured());
  if (o.json)
    std::fputs(verdict_json(o, v).c_str(), stdout);
  else if (!o.bench || !v.passed())
    print_verdict(o, v);
  if (!o.junit.empty() && !(junit << verdict_junit(o, v)).flush()) throw StatusError(NW_FAILED, o.junit + " cannot be written");
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) throw StatusError(NW_FAILED, "the verdict cannot be printed");
  return v.passed() ? kOk : kCheckFailed;
}

int run_conform(const ConformOptions& options) {
  try {
    return conform(options);
  } catch (const StatusError& e) {
    std::fprintf(stderr, "narrows %s: %s\n", subcommand(options), e.what());
    return e.status == NW_UNAVAILABLE ? kUnavailable : e.status == NW_INVALID ? kBadUsage : kFailed;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "narrows %s: %s\n", subcommand(options), printable(e.what()).c_str());
    return kFailed;
  }
}

}  // namespace narrows::tools
