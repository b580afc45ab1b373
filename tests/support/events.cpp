// SPDX-License-Identifier: Apache-2.0
// events.cpp -- the suite's own reporter, "events": a JSON object per line as things happen, which `narrows conform` reads. What is
// lost when a plugin kills the process is therefore the test that it died in, and nothing before it. docs/conformance.md lists
// them.
#include <catch2/catch_test_case_info.hpp>
#include <catch2/interfaces/catch_interfaces_config.hpp>
#include <catch2/reporters/catch_reporter_registrars.hpp>
#include <catch2/reporters/catch_reporter_streaming_base.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <ostream>
#include <utility>

#include "bench.h"
#include "harness.h"

namespace narrows::test {
namespace {

using Json = nlohmann::json;

constexpr size_t kFailuresKept = 5;  // of one test: a wrong kernel fails thousands of cases alike
constexpr size_t kTextKept = 2000;

Json describe_session() {
  Json ops = Json::array(), environments = Json::array(), exclusions = Json::array();
  for (uint32_t i = 0; i < tested().num_ops; ++i) {
    Json names = Json::array();
    for (const char* kernel : kernels(tested().ops[i]->name))
      if (kernel != nullptr) names.push_back(kernel);
    ops.push_back({{"name", tested().ops[i]->name}, {"kernels", names}});
  }
  for (const Environment& e : manifest().environments) environments.push_back(e.name);
  for (const Exclusion& e : manifest().exclusions)
    exclusions.push_back({{"calls", e.text()}, {"reason", e.reason}, {"variant", e.variant()}, {"applies", e.applies}});
  return {{"event", "session"},
          {"backend", backend()},
          {"version", tested().version},
          {"path", tested().path},
          {"device", {device().device_type, device().device_id}},
          {"arch", arch()},
          {"seed", base_seed()},
          {"ops", ops},
          {"environments", environments},
          {"manifest", manifest().path},
          {"exclusions", exclusions}};
}

class Events final : public Catch::StreamingReporterBase {
 public:
  explicit Events(Catch::ReporterConfig&& config) : StreamingReporterBase(std::move(config)) {
    m_preferences.shouldReportAllAssertions = false;
  }
  static std::string getDescription() { return "JSON lines for narrows conform"; }

  void reportInvalidTestSpec(Catch::StringRef spec) override {
    std::fprintf(stderr, "no pattern: %s\n", std::string(spec).c_str());
  }
  void listTests(const std::vector<Catch::TestCaseHandle>& tests) override {
    write(describe_session());
    for (const Catch::TestCaseHandle& test : tests) {
      Json tags = Json::array();
      for (const Catch::Tag& tag : test.getTestCaseInfo().tags) tags.push_back(std::string(tag.original));
      write({{"event", "test"}, {"name", test.getTestCaseInfo().name}, {"tags", tags}});
    }
  }
  void testRunStarting(const Catch::TestRunInfo& run) override {
    StreamingReporterBase::testRunStarting(run);
    write(describe_session());
    set_bench_sink([this](const Measurement& m) {
      write({{"event", "bench"},
             {"case", m.name},
             {"kernel", m.kernel},
             {"seconds", m.seconds},
             {"spread", m.spread},
             {"runs", m.runs},
             {"graphs", m.graphs},
             {"bytes", m.bytes},
             {"operations", m.operations},
             {"ceiling", m.ceiling}});
    });
  }
  void testCaseStarting(const Catch::TestCaseInfo& test) override {
    StreamingReporterBase::testCaseStarting(test);
    failures_ = Json::array();
    failed_ = 0;
    skipped_ = "";
    take_tally();
    write({{"event", "start"}, {"test", test.name}});
  }
  void assertionEnded(const Catch::AssertionStats& stats) override {
    const Catch::AssertionResult& result = stats.assertionResult;
    if (result.getResultType() == Catch::ResultWas::ExplicitSkip) skipped_ = std::string(result.getMessage());
    if (result.isOk()) return;
    if (++failed_ > kFailuresKept) return;
    std::string text;
    for (const Catch::MessageInfo& message : stats.infoMessages) text += message.message + "\n";
    if (result.hasExpression()) {
      text += result.getExpressionInMacro();
      if (result.hasExpandedExpression()) text += "\n  " + result.getExpandedExpression();
    }
    if (result.hasMessage() && stats.infoMessages.empty()) text += std::string(result.getMessage());
    failures_.push_back(
        {{"text", text.substr(0, kTextKept)}, {"file", result.getSourceInfo().file}, {"line", result.getSourceInfo().line}});
  }
  void testCaseEnded(const Catch::TestCaseStats& stats) override {
    const Tally tally = take_tally();
    std::string status = stats.totals.testCases.failed != 0 ? "failed" : stats.totals.testCases.skipped != 0 ? "skipped" : "passed";
    if (status == "passed" && stats.totals.assertions.total() == 0) {
      status = tally.declined.empty() ? "failed" : "skipped";
      skipped_ = tally.declined.empty() ? "" : *tally.declined.begin();
      if (tally.declined.empty()) failures_.push_back({{"text", "the test checked nothing"}, {"file", ""}, {"line", 0}}), ++failed_;
    }
    Json exclusions = Json::array();
    for (Exclusion& e : manifest().exclusions) exclusions.push_back({std::exchange(e.accepted, 0), std::exchange(e.declined, 0)});
    write({{"event", "end"},
           {"test", stats.testInfo->name},
           {"status", status},
           {"reason", skipped_},
           {"failures", failures_},
           {"failed_assertions", failed_},
           {"assertions", stats.totals.assertions.total()},
           {"accepted", tally.accepted},
           {"refused", tally.refused},
           {"declined", tally.declined},
           {"variants", tally.variants},
           {"exclusions", exclusions}});
    StreamingReporterBase::testCaseEnded(stats);
  }
  void testRunEnded(const Catch::TestRunStats& stats) override {
    write({{"event", "done"}});
    set_bench_sink({});
    StreamingReporterBase::testRunEnded(stats);
  }

 private:
  // A message may quote what a plugin wrote: anything.
  void write(const Json& event) { m_stream << event.dump(-1, ' ', false, Json::error_handler_t::replace) << std::endl; }

  Json failures_;
  size_t failed_ = 0;
  std::string skipped_;
};

}  // namespace
CATCH_REGISTER_REPORTER("events", Events)
}  // namespace narrows::test
