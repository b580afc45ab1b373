// conform.cpp -- runs the suite in every environment, restarts it after a test that killed it, and adds up. See conform.h.
#include "conform.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <random>

#include "conform_process.h"
#include "engine.h"
#include "terminal.h"

namespace narrows::tools {
namespace {

using Json = nlohmann::json;

constexpr int kNotHere = 77;
constexpr double kStartSeconds = 120;  // until the suite has found its backend

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

std::vector<std::string> arguments(const ConformOptions& o, const std::string& environment) {
  std::vector<std::string> words{"--seed", std::to_string(o.seed)};
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) words.insert(words.end(), {name, value});
  };
  add("--plugin", o.plugin);
  add("--backend", o.backend);
  add("--device", o.device);
  add("--manifest", o.manifest);
  add("--environment", environment);
  return words;
}

bool tagged(const Listed& test, const char* tag) { return std::find(test.tags.begin(), test.tags.end(), tag) != test.tags.end(); }

// Bench cases in bench mode alone; those that need many gigabytes by --huge alone.
bool wanted(const ConformOptions& o, const Listed& test) {
  if (tagged(test, "bench") || o.bench) return tagged(test, "bench") && o.bench;
  return !tagged(test, "huge") || o.huge;
}

Subject read_subject(const Json& event) {
  Subject s;
  s.backend = event.at("backend"), s.version = event.at("version"), s.path = event.at("path"), s.arch = event.at("arch");
  s.manifest = event.at("manifest"), s.seed = event.at("seed"), s.environments = event.at("environments");
  s.device_type = event.at("device").at(0), s.device_id = event.at("device").at(1);
  for (const Json& op : event.at("ops")) {
    s.ops.push_back(op.at("name"));
    for (const std::string kernel : op.at("kernels")) s.variants.insert(s.ops.back() + "/" + kernel);
  }
  return s;
}

struct Listing {
  Subject subject;
  std::vector<Exclusion> exclusions;
  std::vector<Listed> tests;
};

// Asks the suite what it would run, without an environment.
Listing ask(const ConformOptions& o) {
  std::vector<std::string> words = arguments(o, "");
  words.push_back("--list-tests");
  std::string patterns;
  for (const std::string& pattern : o.patterns) patterns += (patterns.empty() ? "" : ",") + pattern;
  words.push_back(patterns.empty() ? "*" : patterns);
  ConformProcess process(words);
  Listing listing;
  while (const auto event = process.next(kStartSeconds)) {
    if (event->at("event") == "session") {
      listing.subject = read_subject(*event);
      for (const Json& e : event->at("exclusions"))
        listing.exclusions.push_back({e.at("calls"), e.at("reason"), e.at("op"), e.at("kernel")});
    } else if (event->at("event") == "test") {
      Listed test{event->at("name"), event->at("tags")};
      if (wanted(o, test)) listing.tests.push_back(std::move(test));
    }
  }
  const auto end = process.wait();
  if (process.timed_out()) throw StatusError(NW_FAILED, "the suite did not start within two minutes\n" + end.printed);
  if (end.exit_code < 0) throw StatusError(NW_FAILED, "looking at the plugin, the suite " + end.how + "\n" + end.printed);
  if (listing.subject.backend.empty())
    throw StatusError(NW_UNAVAILABLE, end.printed.empty() ? "the suite " + end.how : end.printed);
  if (listing.tests.empty())
    throw StatusError(NW_INVALID, "no test matches " + (patterns.empty() ? std::string("the options") : "'" + patterns + "'") +
                                      "; `narrows conform --list` shows them");
  return listing;
}

TestResult read_result(const Json& event) {
  TestResult r;
  r.name = event.at("test"), r.status = event.at("status"), r.reason = event.at("reason");
  r.failed_assertions = event.at("failed_assertions"), r.assertions = event.at("assertions");
  r.accepted = event.at("accepted"), r.refused = event.at("refused");
  if (r.status != "failed") return r;
  for (const Json& f : event.at("failures")) r.failures.push_back({f.at("text"), f.at("file"), f.at("line")});
  return r;
}

// The tests that are still to be run, in a file that the child reads; unlinked at the end.
class NamesFile {
 public:
  explicit NamesFile(const std::vector<std::string>& names) {
    std::string text;
    for (const std::string& name : names) text += exactly(name) + "\n";
    const int fd = mkstemp(path_);
    if (fd < 0 || write(fd, text.data(), text.size()) != static_cast<ssize_t>(text.size()))
      throw StatusError(NW_FAILED, std::string(path_) + " cannot be written");
    close(fd);
  }
  ~NamesFile() { unlink(path_); }
  NamesFile(const NamesFile&) = delete;
  NamesFile& operator=(const NamesFile&) = delete;
  const char* path() const { return path_; }

 private:
  char path_[32] = "/tmp/narrows-conform-XXXXXX";
};

// One environment: as many processes as it takes.
class Runner {
 public:
  Runner(const ConformOptions& options, std::string environment, std::vector<Exclusion>& exclusions, Progress& progress, int& done)
      : options_(options), exclusions_(exclusions), progress_(progress), done_(done) {
    run_.environment = std::move(environment);
  }

  Run run(std::vector<std::string> names) {
    const double start = now();
    left_ = std::move(names);
    while (!left_.empty() && run_.not_here.empty()) pass();
    run_.seconds = now() - start;
    return std::move(run_);
  }

 private:
  // Runs what is left until the process ends.
  void pass() {
    const size_t before = left_.size();
    const NamesFile names(left_);
    std::vector<std::string> words = arguments(options_, run_.environment);
    words.insert(words.end(), {"--input-file", names.path()});
    ConformProcess process(words);
    current_.clear();
    bool finished = false;
    while (const auto event = process.next(options_.timeout)) finished |= take(*event);
    const auto end = process.wait();
    if (finished && current_.empty() && end.exit_code >= 0) return left_.clear();  // a name that did not run then never will
    if (current_.empty() && left_.size() < before) return;  // killed after it had told which test it was that failed
    if (end.exit_code == kNotHere && current_.empty()) {
      run_.not_here = end.printed.substr(end.printed.find(": ") == std::string::npos ? 0 : end.printed.find(": ") + 2);
      return;
    }
    const std::string how =
        process.timed_out() ? "gave no sign of life for " + std::to_string(static_cast<int>(options_.timeout)) + " s, and was ended"
                            : end.how;
    if (current_.empty() && run_.tests.empty())
      throw StatusError(NW_UNAVAILABLE, end.printed.empty() ? "the suite " + how : end.printed);
    // Not in a test: between two, or at the end. What comes next is blamed, so that this ends.
    TestResult died;
    died.name = !current_.empty() ? current_ : left_.empty() ? "after the last test" : left_.front();
    died.status = "failed";
    died.failed_assertions = 1;
    died.failures.push_back({"the process " + how + (end.printed.empty() ? "" : "\n" + end.printed), "", 0});
    add(std::move(died));
  }

  // Whether it was the last event.
  bool take(const Json& event) {
    const std::string kind = event.at("event");
    if (kind == "session") run_.arch = event.at("arch");
    if (kind == "start") current_ = event.at("test"), started_ = now(), progress_.update(done_, current_);
    if (kind == "bench")
      run_.measured.push_back({event.at("case"), event.at("kernel"), event.at("seconds"), event.at("spread"), event.at("bytes"),
                               event.at("operations"), event.at("runs")});
    if (kind == "end") {
      for (const std::string variant : event.at("variants")) run_.variants.insert(variant);
      for (size_t i = 0; i < exclusions_.size(); ++i) {
        exclusions_[i].accepted += event.at("exclusions").at(i).at(0).get<int64_t>();
        exclusions_[i].declined += event.at("exclusions").at(i).at(1).get<int64_t>();
      }
      add(read_result(event));
    }
    return kind == "done";
  }

  void add(TestResult result) {
    result.seconds = current_.empty() ? 0 : now() - started_;
    left_.erase(std::remove(left_.begin(), left_.end(), result.name), left_.end());
    current_.clear();
    run_.tests.push_back(std::move(result));
    progress_.update(++done_);
  }

  const ConformOptions& options_;
  std::vector<Exclusion>& exclusions_;
  Progress& progress_;
  int& done_;
  Run run_;
  std::vector<std::string> left_;
  std::string current_;  // the test under way; "": none
  double started_ = 0;
};

// What no single test can tell.
void hold_to_account(Verdict& v) {
  if (std::all_of(v.runs.begin(), v.runs.end(), [](const Run& run) { return !run.not_here.empty(); }))
    v.complaints.push_back("nothing was run: no environment of the manifest is possible here");
  else if (v.count("passed") + v.count("failed") == 0)
    v.complaints.push_back("nothing was run: every test was skipped");
  if (!v.whole) return;
  const auto excluded = [&](const std::string& variant) {
    return std::any_of(v.exclusions.begin(), v.exclusions.end(),
                       [&](const Exclusion& e) { return !e.kernel.empty() && e.op + "/" + e.kernel == variant; });
  };
  for (const Run& run : v.runs)
    for (const std::string& variant : v.subject.variants)
      if (run.not_here.empty() && run.variants.count(variant) == 0 && !excluded(variant))
        v.complaints.push_back("kernel variant " + variant + " is listed and never ran" +
                               (run.environment.empty() ? "" : " in " + run.environment));
  for (const Exclusion& e : v.exclusions) {
    if (e.declined == 0) v.complaints.push_back("stale exclusion: no call was declined as " + e.calls + " (" + e.reason + ")");
  }
}

}  // namespace

int Run::count(const char* status) const {
  return static_cast<int>(std::count_if(tests.begin(), tests.end(), [&](const TestResult& t) { return t.status == status; }));
}
int Verdict::count(const char* status) const {
  int sum = 0;
  for (const Run& run : runs) sum += run.count(status);
  return sum;
}
bool Verdict::passed() const { return complaints.empty() && count("failed") == 0 && count("passed") > 0; }

std::vector<Listed> list_tests(const ConformOptions& options) { return ask(options).tests; }

Verdict judge(const ConformOptions& options) {
  const double start = now();
  Listing listing = ask(options);
  Verdict v;
  v.subject = listing.subject;
  v.exclusions = std::move(listing.exclusions);
  v.whole = options.patterns.empty() && !options.bench;
  std::vector<std::string> environments = options.environments;
  if (environments.empty() && !options.bench) environments = listing.subject.environments;
  if (environments.empty()) environments.emplace_back();
  std::vector<std::string> names;
  names.reserve(listing.tests.size());
  for (const Listed& test : listing.tests) names.push_back(test.name);
  Progress progress(listing.subject.backend, static_cast<int>(names.size() * environments.size()));
  int done = 0;
  for (const std::string& environment : environments) {
    v.runs.push_back(Runner(options, environment, v.exclusions, progress, done).run(names));
    if (!v.runs.back().not_here.empty()) done += static_cast<int>(names.size());
  }
  for (const Exclusion& e : v.exclusions)
    if (e.accepted != 0)
      v.complaints.push_back("stale exclusion: " + std::to_string(e.accepted) + " calls were accepted as " + e.calls + " (" +
                             e.reason + ")");
  hold_to_account(v);
  v.seconds = now() - start;
  return v;
}

}  // namespace narrows::tools
