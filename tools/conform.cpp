// SPDX-License-Identifier: Apache-2.0
// conform.cpp -- runs the suite in every environment, by one process or several side by side, restarts it after a test that killed
// it, and adds up. See conform.h.
#include "conform.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <span>

#include "conform_process.h"
#include "engine.h"
#include "terminal.h"

namespace narrows::tools {
namespace {

using Json = nlohmann::json;

// What narrows-conform ends with: main.cpp, and Catch2.
constexpr int kNotHere = 77, kAllSkipped = 4;
constexpr char kSkipped[] = "skipped: ";
constexpr int kMostHangs = 3;
constexpr size_t kShard = 4;           // tests that one of several jobs takes at a time: few, so that long ones do not pile up
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
  ConformProcess process(words, {});
  Listing listing;
  while (const auto event = process.next(kStartSeconds)) {
    if (event->at("event") == "session") {
      listing.subject = read_subject(*event);
      for (const Json& e : event->at("exclusions")) listing.exclusions.push_back({e.at("calls"), e.at("reason"), e.at("variant")});
    } else if (event->at("event") == "test") {
      Listed test{event->at("name"), event->at("tags")};
      if (wanted(o, test)) listing.tests.push_back(std::move(test));
    }
  }
  const auto end = process.wait(kStartSeconds);
  if (end.exit_code < 0) throw StatusError(NW_FAILED, "looking at the plugin, the suite " + end.how + "\n" + end.printed);
  if (listing.subject.backend.empty())
    throw StatusError(NW_UNAVAILABLE, end.printed.empty() ? "the suite " + end.how : end.printed);
  if (listing.tests.empty())
    throw StatusError(NW_INVALID, "no test matches " + (patterns.empty() ? std::string("the options") : "'" + patterns + "'") +
                                      "; --list shows them");
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

// The tests of one environment, as its runners take them, and what these have to know of each other.
class Queue {
 public:
  Queue(const std::vector<std::string>& names, size_t shard, Progress& progress, int& done)
      : names_(names), shard_(shard), progress_(progress), done_(done) {}

  std::vector<std::string> take() {
    const std::lock_guard lock(mutex_);
    const auto begin = names_.begin() + static_cast<ptrdiff_t>(taken_);
    taken_ = std::min(taken_ + shard_, names_.size());
    return {begin, names_.begin() + static_cast<ptrdiff_t>(taken_)};
  }
  void started(const std::string& test) {
    const std::lock_guard lock(mutex_);
    progress_.update(done_, test);
  }
  void ended() {
    const std::lock_guard lock(mutex_);
    progress_.update(++done_);
  }
  void hung() {
    const std::lock_guard lock(mutex_);
    if (++hangs_ == kMostHangs) hopeless_ = "not run, after " + std::to_string(hangs_) + " that did not end";
  }
  // No test will be started any more. False: it was so before.
  bool give_up(const std::string& why) {
    const std::lock_guard lock(mutex_);
    if (!hopeless_.empty()) return false;
    hopeless_ = why;
    return true;
  }
  std::string hopeless() {
    const std::lock_guard lock(mutex_);
    return hopeless_;
  }

 private:
  std::mutex mutex_;
  const std::vector<std::string>& names_;
  const size_t shard_;
  Progress& progress_;
  int& done_;
  size_t taken_ = 0;
  int hangs_ = 0;
  std::string hopeless_;  // why what is left is not run; "": it is
};

// Runs what it takes from the queue, one process after the other.
class Runner {
 public:
  Runner(const ConformOptions& options, std::string environment, std::vector<Exclusion>& exclusions,
         std::function<void(const Run&)> on_measured, Queue& queue)
      : options_(options), exclusions_(exclusions), on_measured_(std::move(on_measured)), queue_(queue) {
    run_.environment = std::move(environment);
  }

  Run run() {
    while (!run_.not_here && !(left_ = queue_.take()).empty())
      while (!left_.empty() && !run_.not_here)
        if (const std::string why = queue_.hopeless(); !why.empty())
          give_up(why);
        else
          pass();
    return std::move(run_);
  }

 private:
  // Runs what is left until the process ends; something less is left afterwards.
  void pass() {
    std::vector<std::string> patterns;
    patterns.reserve(left_.size());
    for (const std::string& name : left_) patterns.push_back(exactly(name));
    ConformProcess process(arguments(options_, run_.environment), patterns);
    current_.clear(), last_.clear();
    const size_t before = left_.size();
    const int failed_before = run_.count("failed");
    started_up_ = finished_ = false;
    while (const auto event = process.next(options_.timeout)) {
      try {
        take(*event);
      } catch (const Json::exception&) {  // an object of the plugin's on our descriptor
      }
    }
    const auto end = process.wait(options_.timeout);
    if (process.timed_out()) queue_.hung();
    if (!started_up_ && end.exit_code == kNotHere && end.printed.rfind(kSkipped, 0) == 0) {
      run_.not_here = end.printed.substr(sizeof kSkipped - 1);
      return;
    }
    const bool began = left_.size() < before || !current_.empty();
    // What is wrong at the start is told once, and of no other process.
    if (!began && !queue_.give_up("not run: the suite " + end.how + " before its first test")) return;
    blame(end, run_.count("failed") > failed_before);
    if (began && finished_ && end.exit_code >= 0) give_up("it was asked for, and did not report");
  }

  // Which test the end of the process counts against; none if all is well, or if the one that it was has said so itself.
  void blame(const ConformProcess::End& end, bool some_failed) {
    const bool expected = finished_ && end.exit_code >= 0 && (end.exit_code == 0 || end.exit_code == kAllSkipped || some_failed);
    const bool told = current_.empty() && end.exit_code < 0 && !run_.tests.empty() && run_.tests.back().name == last_ &&
                      run_.tests.back().status == "failed";
    if (expected || told) return;
    const std::string name = !current_.empty() ? current_ : last_.empty() ? "start of the suite" : "after '" + last_ + "'";
    add_failure(name, "the process " + end.how + (end.printed.empty() ? "" : "\n" + end.printed));
  }

  void give_up(const std::string& why) {
    for (const std::string& name : std::vector<std::string>(left_)) add_failure(name, why);
  }

  void add_failure(const std::string& name, const std::string& why) {
    TestResult failed;
    failed.name = name;
    failed.status = "failed";
    failed.failed_assertions = 1;
    failed.failures.push_back({why, "", 0});
    add(std::move(failed));
  }

  void take(const Json& event) {
    const std::string kind = event.at("event");
    if (kind == "session") {
      run_.arch = event.at("arch");
      for (size_t i = 0; i < exclusions_.size(); ++i)
        if (event.at("exclusions").at(i).at("applies")) exclusions_[i].applied = true, run_.excluded.insert(exclusions_[i].variant);
      started_up_ = true;
    } else if (kind == "start") {
      if (!current_.empty()) add_failure(current_, "it did not report its end");
      current_ = event.at("test"), started_ = now();
      queue_.started(current_);
    } else if (kind == "bench") {
      run_.measured.push_back({event.at("case"), event.at("kernel"), event.at("seconds"), event.at("spread"), event.at("bytes"),
                               event.at("operations"), event.at("ceiling"), event.at("runs"), event.at("graphs")});
      if (on_measured_) on_measured_(run_);
    } else if (kind == "end") {
      for (const std::string variant : event.at("variants")) run_.variants.insert(variant);
      for (size_t i = 0; i < exclusions_.size(); ++i) {
        exclusions_[i].accepted += event.at("exclusions").at(i).at(0).get<int64_t>();
        exclusions_[i].declined += event.at("exclusions").at(i).at(1).get<int64_t>();
      }
      last_ = event.at("test");
      add(read_result(event));
    } else if (kind == "done") {
      finished_ = true;
    }
  }

  void add(TestResult result) {
    result.seconds = current_.empty() ? 0 : now() - started_;
    left_.erase(std::remove(left_.begin(), left_.end(), result.name), left_.end());
    current_.clear();
    run_.tests.push_back(std::move(result));
    queue_.ended();
  }

  const ConformOptions& options_;
  std::vector<Exclusion>& exclusions_;
  std::function<void(const Run&)> on_measured_;
  Queue& queue_;
  Run run_;
  std::vector<std::string> left_;
  std::string current_, last_;  // the test under way, the one that ended last; "": none
  double started_ = 0;
  bool started_up_ = false, finished_ = false;
};

// One run of what the jobs saw, its tests in the suite's order.
Run merged(std::vector<Run> parts, const std::vector<std::string>& names) {
  Run run = std::move(parts.front());
  for (Run& part : std::span(parts).subspan(1)) {
    if (!run.not_here) run.not_here = part.not_here;
    if (run.arch.empty()) run.arch = part.arch;
    run.tests.insert(run.tests.end(), part.tests.begin(), part.tests.end());
    run.variants.merge(part.variants);
    run.excluded.merge(part.excluded);
  }
  std::map<std::string, size_t> places;
  for (const std::string& name : names) places.emplace(name, places.size() + 1);
  const auto place = [&](const TestResult& test) {  // what is said of no test comes first
    const auto found = places.find(test.name);
    return found == places.end() ? 0 : found->second;
  };
  if (parts.size() > 1)
    std::stable_sort(run.tests.begin(), run.tests.end(),
                     [&](const TestResult& a, const TestResult& b) { return place(a) < place(b); });
  return run;
}

void add(std::vector<Exclusion>& all, const std::vector<Exclusion>& seen) {
  for (size_t i = 0; i < all.size(); ++i) {
    all[i].applied |= seen[i].applied;
    all[i].accepted += seen[i].accepted, all[i].declined += seen[i].declined;
  }
}

// The suite in one environment, by as many runners side by side as there are jobs. A runner is a thread, and its processes end with
// it: each asks for that by PR_SET_PDEATHSIG, so that none outlives an interrupted command.
Run run_environment(const ConformOptions& o, const std::string& environment, const std::vector<std::string>& names,
                    std::vector<Exclusion>& exclusions, const std::function<void(const Run&)>& on_measured, Progress& progress,
                    int& done) {
  const double start = now();
  const auto jobs = static_cast<size_t>(o.jobs);
  Queue queue(names, jobs == 1 ? names.size() : kShard, progress, done);
  std::vector<Exclusion> unseen = exclusions;
  for (Exclusion& e : unseen) e.applied = false, e.accepted = e.declined = 0;
  std::vector<std::vector<Exclusion>> seen(jobs, unseen);
  std::vector<std::future<Run>> runners;
  const auto run_one = [&](size_t i) {
    try {
      return Runner(o, environment, seen[i], on_measured, queue).run();
    } catch (...) {
      queue.give_up("not run: a process could not be started");
      throw;
    }
  };
  for (size_t i = 0; i < std::min(jobs, names.size()); ++i) runners.push_back(std::async(std::launch::async, run_one, i));
  std::vector<Run> parts;
  parts.reserve(runners.size());
  for (auto& runner : runners) parts.push_back(runner.get());
  for (const auto& counts : seen) add(exclusions, counts);
  Run run = merged(std::move(parts), names);
  run.seconds = now() - start;
  return run;
}

// What no single test can tell.
void hold_to_account(Verdict& v, const std::set<std::string>& about_the_judge) {
  int64_t judged = 0, accepted = 0;
  for (const Run& run : v.runs)
    for (const TestResult& test : run.tests) {
      judged += test.status != "skipped" && about_the_judge.count(test.name) == 0;
      accepted += test.accepted;
    }
  if (std::all_of(v.runs.begin(), v.runs.end(), [](const Run& run) { return run.not_here.has_value(); }))
    v.complaints.push_back("nothing was run: no environment of the manifest is possible here");
  else if (judged == 0)
    v.complaints.push_back("nothing was run that is about the plugin");
  for (const Exclusion& e : v.exclusions)
    if (e.accepted != 0)
      v.complaints.push_back("stale exclusion: " + std::to_string(e.accepted) + " calls were accepted as " + e.calls + " (" +
                             e.reason + ")");
  if (!v.whole) return;
  if (accepted == 0) v.complaints.push_back("no call of any op was accepted");
  for (const Exclusion& e : v.exclusions)
    if (e.applied && e.accepted == 0 && e.declined == 0)
      v.complaints.push_back("stale exclusion: no call was declined as " + e.calls + " (" + e.reason + ")");
  for (const Run& run : v.runs)
    for (const std::string& variant : v.subject.variants)
      if (!run.not_here && run.variants.count(variant) == 0 && run.excluded.count(variant) == 0)
        v.complaints.push_back("kernel variant " + variant + " is listed and never ran" +
                               (run.environment.empty() ? "" : " in " + run.environment));
}

// The names that were given, which the manifest must have; else all that it has.
std::vector<std::string> choose_environments(const ConformOptions& options, const Subject& subject) {
  std::string known;
  for (const std::string& name : subject.environments) known += (known.empty() ? "" : ", ") + name;
  for (const std::string& name : options.environments)
    if (std::find(subject.environments.begin(), subject.environments.end(), name) == subject.environments.end())
      throw StatusError(NW_INVALID, "no environment '" + name + "' for this machine in " +
                                        (subject.manifest.empty() ? "a manifest: there is none" : subject.manifest) +
                                        (known.empty() ? "" : "; expected one of " + known));
  std::vector<std::string> chosen = options.environments;
  if (chosen.empty() && !options.bench) chosen = subject.environments;
  if (chosen.empty()) chosen.emplace_back();
  return chosen;
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

Verdict judge(const ConformOptions& options, const OnMeasured& on_measured) {
  const double start = now();
  Listing listing = ask(options);
  Verdict v;
  v.subject = listing.subject;
  v.exclusions = std::move(listing.exclusions);
  v.whole = options.patterns.empty() && !options.bench;
  const std::vector<std::string> environments = choose_environments(options, listing.subject);
  std::vector<std::string> names;
  names.reserve(listing.tests.size());
  std::set<std::string> about_the_judge;
  for (const Listed& test : listing.tests) {
    names.push_back(test.name);
    if (tagged(test, "harness")) about_the_judge.insert(test.name);
  }
  Progress progress(listing.subject.backend, static_cast<int>(names.size() * environments.size()));
  int done = 0;
  const auto tell = [&](const Run& run) {
    progress.clear();
    on_measured(listing.subject, run);
  };
  for (const std::string& environment : environments) {
    v.runs.push_back(run_environment(options, environment, names, v.exclusions,
                                     on_measured ? tell : std::function<void(const Run&)>(), progress, done));
    if (v.runs.back().not_here) done += static_cast<int>(names.size());
  }
  hold_to_account(v, about_the_judge);
  v.seconds = now() - start;
  return v;
}

}  // namespace narrows::tools
