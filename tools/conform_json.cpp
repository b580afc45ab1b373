// SPDX-License-Identifier: Apache-2.0
// conform_json.cpp -- a verdict for programs: JSON, and JUnit XML for what collects test results.
#include <nlohmann/json.hpp>
#include <sstream>

#include "conform.h"
#include "demo/svg.h"

namespace narrows::tools {
namespace {

using Json = nlohmann::json;

Json test_json(const ConformOptions& options, const Verdict& v, const Run& run, const TestResult& test) {
  Json json{{"name", test.name},
            {"status", test.status},
            {"assertions", test.assertions},
            {"calls_accepted", test.accepted},
            {"calls_refused", test.refused},
            {"seconds", test.seconds}};
  if (test.status == "skipped") json["reason"] = test.reason;
  if (test.status != "failed") return json;
  json["failed_assertions"] = test.failed_assertions;
  json["repeat"] = repeat_command(options, v, run, test.name);
  for (const Failure& f : test.failures) json["failures"].push_back({{"text", f.text}, {"file", f.file}, {"line", f.line}});
  return json;
}

Json run_json(const ConformOptions& options, const Verdict& v, const Run& run) {
  Json json{{"environment", run.environment}, {"arch", run.arch}, {"seconds", run.seconds}};
  if (run.not_here) json["not_here"] = *run.not_here;
  json["tests"] = Json::array();
  for (const TestResult& test : run.tests) json["tests"].push_back(test_json(options, v, run, test));
  for (const Measured& m : run.measured)
    json["measured"].push_back({{"case", m.name},
                                {"kernel", m.kernel},
                                {"seconds", m.seconds},
                                {"spread", m.spread},
                                {"runs", m.runs},
                                {"graphs", m.graphs},
                                {"bytes", m.bytes},
                                {"operations", m.operations},
                                {"ceiling", m.ceiling}});
  return json;
}

// escaped() is for one line.
std::string escaped_lines(const std::string& text) {
  std::string out, line;
  for (std::istringstream lines(text); std::getline(lines, line);) out += (out.empty() ? "" : "\n") + escaped(line);
  return out;
}

std::string test_xml(const ConformOptions& options, const Verdict& v, const Run& run, const TestResult& test) {
  std::string xml = "    <testcase classname=\"" +
                    escaped(v.subject.backend + (run.environment.empty() ? "" : "." + run.environment)) + "\" name=\"" +
                    escaped(test.name) + "\" time=\"" + std::to_string(test.seconds) + "\"";
  if (test.status == "passed") return xml + "/>\n";
  xml += ">\n";
  if (test.status == "skipped") xml += "      <skipped message=\"" + escaped(test.reason) + "\"/>\n";
  for (const Failure& f : test.failures)
    xml +=
        "      <failure message=\"" + escaped(f.text.substr(0, f.text.find('\n'))) + "\">" + escaped_lines(f.text) + "</failure>\n";
  if (test.status == "failed")
    xml += "      <system-out>" + escaped(repeat_command(options, v, run, test.name)) + "</system-out>\n";
  return xml + "    </testcase>\n";
}

std::string suite_head(const std::string& name, size_t tests, int failures, int skipped, double seconds) {
  return "  <testsuite name=\"" + escaped(name) + "\" tests=\"" + std::to_string(tests) + "\" failures=\"" +
         std::to_string(failures) + "\" skipped=\"" + std::to_string(skipped) + "\" time=\"" + std::to_string(seconds) + "\">\n";
}

}  // namespace

std::string verdict_json(const ConformOptions& options, const Verdict& v) {
  const Subject& s = v.subject;
  Json json{{"verdict", v.passed() ? "passed" : "failed"},
            {"plugin", {{"name", s.backend}, {"version", s.version}, {"path", s.path}}},
            {"device", {{"type", s.device_type}, {"id", s.device_id}, {"arch", s.arch}}},
            {"manifest", s.manifest},
            {"seed", s.seed},
            {"ops", s.ops},
            {"passed", v.count("passed")},
            {"failed", v.count("failed")},
            {"skipped", v.count("skipped")},
            {"complaints", v.complaints},
            {"seconds", v.seconds},
            {"exclusions", Json::array()},
            {"runs", Json::array()}};
  for (const Exclusion& e : v.exclusions)
    json["exclusions"].push_back({{"calls", e.calls}, {"reason", e.reason}, {"declined", e.declined}, {"accepted", e.accepted}});
  for (const Run& run : v.runs) json["runs"].push_back(run_json(options, v, run));
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string verdict_junit(const ConformOptions& options, const Verdict& v) {
  std::string xml = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n";
  for (const Run& run : v.runs) {
    const std::string name = v.subject.backend + (run.environment.empty() ? "" : " " + run.environment);
    if (run.not_here) {
      xml += suite_head(name, 1, 0, 1, 0) + "    <testcase classname=\"" + escaped(name) +
             "\" name=\"environment\"><skipped message=\"" + escaped(*run.not_here) + "\"/></testcase>\n  </testsuite>\n";
      continue;
    }
    xml += suite_head(name, run.tests.size(), run.count("failed"), run.count("skipped"), run.seconds);
    for (const TestResult& test : run.tests) xml += test_xml(options, v, run, test);
    xml += "  </testsuite>\n";
  }
  const int complaints = static_cast<int>(v.complaints.size());
  xml += suite_head(v.subject.backend + " as a whole", v.complaints.empty() ? 1 : v.complaints.size(), complaints, 0, 0);
  for (const std::string& complaint : v.complaints)
    xml += "    <testcase classname=\"whole\" name=\"" + escaped(complaint) + "\"><failure message=\"" + escaped(complaint) +
           "\"/></testcase>\n";
  if (v.complaints.empty()) xml += "    <testcase classname=\"whole\" name=\"kernel variants and exclusions\"/>\n";
  return xml + "  </testsuite>\n</testsuites>\n";
}

}  // namespace narrows::tools
