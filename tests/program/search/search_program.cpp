// SPDX-License-Identifier: Apache-2.0
// search_program.cpp -- looks for a schedule that is accepted and computes something else: random programs, random steps, and after
// each accepted step both programs run by the reference (tests/reference/program.h).
//
//   narrows_search_program [--seed FIRST] [--count PROGRAMS] [--steps EACH] [--seconds MOST] [--findings MOST] [--compile EVERY]
//                          [--out FOLDER] [--record FILE --code NAME] [--plugin FILE] [--show]
//
// Program number s is the same on every machine, so a search goes on where another one ended: --seed. Totals are printed at the
// end, and are a line of FILE (record.h); with FILE the first seed is the one after all of its lines. SIGINT and SIGTERM end a
// search early and leave its totals.
// Where the cpu backend is built, each program that an accepted step made is run by its interpreter, too, and of each EVERY-th
// seed the last one is compiled. With --plugin another backend's plugin takes the cpu's place: a GPU's compiles, and may decline.
// Then more of the steps are a GPU's, and every second seed begins with the default schedule of GPUs. A finding is written into
// FOLDER as the program's text, a line for each step, and what differs; the exit code is 1 then.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include "core/error.h"
#include "core/program/auto.h"
#include "core/program/expr.h"
#include "core/program/schedule.h"
#include "core/program/text.h"
#include "core/program/walk.h"
#include "random_program.h"
#include "random_step.h"
#include "record.h"
#include "reference/program.h"
#ifdef PROGRAM_PLUGIN
#include "../cpu_plugin.h"
#include "kernels.h"
#endif

namespace narrows::search {
namespace {

using Clock = std::chrono::steady_clock;
using Lines = std::vector<std::string>;

// Sums of small integers are exact in any order; long products are rounded.
constexpr reference::Exact kTolerance = 1e-12L;
constexpr double kMostPoints = 1 << 17;

struct Options {
  uint64_t seed = 1, count = 200, steps = 8, seconds = 0, compile = 0, findings = 0;
  std::string out, record, code, plugin;
  bool show = false;
};

struct Count {
  int64_t accepted = 0, refused = 0;
};

struct Totals {
  int64_t programs = 0, unfit = 0, sequences = 0, interpreted = 0, compiled = 0, declined = 0, undecided = 0, findings = 0;
  std::map<std::string, Count> steps;
  double slowest = 0;  // milliseconds of one step
  std::string slowest_step;
};

#ifdef PROGRAM_PLUGIN
const Plugin& plugin(const Options& options) {
  static const Plugin kPlugin(options.plugin.empty() ? nullptr : options.plugin.c_str());
  return kPlugin;
}
bool is_for_gpu(const Options& options) { return !plugin(options).is_of_cpu(); }
#else
bool is_for_gpu(const Options&) { return false; }
#endif

// One program with its steps.
class Case {
 public:
  Case(const Options& options, Totals& totals, uint64_t seed) : options_(options), totals_(totals), seed_(seed), random_(seed) {}

  void run() {
    made_ = random_program(random_);
    if (options_.show) std::printf("---- seed %llu\n%s", static_cast<unsigned long long>(seed_), made_.text.c_str());
    std::unique_ptr<program::Schedule> schedule;
    try {
      schedule = std::make_unique<program::Schedule>(program::parse(made_.text));
    } catch (const Failure& failure) {
      if (options_.show) std::printf("unfit: %s\n", failure.message.c_str());
      ++totals_.unfit;
      return;
    }
    ++totals_.programs;
    if (!run_unscheduled(schedule->original())) return;
    if (is_for_gpu(options_) && seed_ % 2 == 0) begin_with_default(schedule);
    for (uint64_t i = 0; i < options_.steps && !is_over_; ++i) step(*schedule);
    if (!is_over_ && !lines_.empty()) end(*schedule);
  }

 private:
  // The program is accepted, so it has no fault at any size.
  bool run_unscheduled(const program::Program& original) {
    for (size_t i = 0; i < made_.sizes.size(); ++i) {
      arguments_.push_back(arguments_at(original, i));
      expected_.push_back(reference::evaluate(original, arguments_.back()));
      if (!expected_.back().faults.empty()) {
        finding("accepted without a step, though: " + expected_.back().faults[0], i);
        return false;
      }
    }
    return true;
  }

  // Every second choice of sizes comes without the optional tensors, and with the params' defaults.
  reference::Arguments arguments_at(const program::Program& original, size_t i) const {
    reference::Arguments out = reference::small_integers(original, made_.sizes[i], seed_ + i);
    const bool is_whole = (seed_ + i) % 2 == 0;
    for (const program::Buffer& tensor : original.tensors)
      if (tensor.optional && !is_whole) out.tensors.erase(tensor.name);
    if (is_whole) out.params.insert(made_.params.begin(), made_.params.end());
    return out;
  }

  void begin_with_default(std::unique_ptr<program::Schedule>& schedule) {
    auto tiled = std::make_unique<program::Schedule>(schedule->original());
    program::schedule_for_gpu(tiled.get());
    if (tiled->trace().empty() || points(tiled->program()) > kMostPoints) return;  // a tile's points take the reference minutes
    schedule = std::move(tiled);
    lines_ = schedule->trace();
    compare(*schedule);
  }

  double extent(const program::For& loop) const {
    try {
      return std::max(1.0, static_cast<double>(program::evaluate(loop.extent, made_.sizes[0])));
    } catch (const Failure&) {  // that of another loop's iteration
      return 1;
    }
  }

  // Of the largest nest, at the first sizes.
  double points(const program::Program& scheduled) const {
    double most = 0;
    program::for_each_block(scheduled, [&](const program::Block&, const program::Loops& loops) {
      double product = 1;
      for (const auto& loop : loops) product *= extent(*loop);
      most = std::max(most, product);
    });
    return most;
  }

  void step(program::Schedule& schedule) {
    const std::string line = random_step(random_, schedule, is_for_gpu(options_)), before = program::print(schedule.program());
    Count& count = totals_.steps[line.substr(0, line.find('('))];
    const auto begin = Clock::now();
    bool is_accepted = true;
    std::string reason;
    try {
      schedule.apply(line);
    } catch (const Failure& failure) {
      is_accepted = false;
      reason = failure.message;
      if (failure.status != NW_INVALID) finding("step " + line + " failed: " + reason, 0);
    }
    note_time(std::chrono::duration<double, std::milli>(Clock::now() - begin).count(), line);
    if (options_.show) std::printf("%s %s %s\n", is_accepted ? "accepted" : "refused ", line.c_str(), reason.c_str());
    if (is_accepted && points(schedule.program()) > kMostPoints) {  // as where each iteration computes all of a product
      ++totals_.undecided;
      is_over_ = true;
      return;
    }
    ++(is_accepted ? count.accepted : count.refused);
    if (!is_accepted) {
      if (program::print(schedule.program()) != before) finding("step " + line + " was refused and changed the program", 0);
      return;
    }
    lines_.push_back(line);
    compare(schedule);
  }

  void note_time(double milliseconds, const std::string& line) {
    if (milliseconds <= totals_.slowest) return;
    totals_.slowest = milliseconds;
    totals_.slowest_step = "seed " + std::to_string(seed_) + " " + line;
  }

  // A schedule may pass through states that a backend with threads refuses: their scopes mean nothing yet.
  static bool scopes_fit(const program::Schedule& schedule) {
    try {
      schedule.require_scopes();
      return true;
    } catch (const Failure&) {
      return false;
    }
  }

  void compare(const program::Schedule& schedule) {
    const program::Program& scheduled = schedule.program();
    const std::string text = program::print(scheduled);
    if (options_.show) std::printf("%s", text.c_str());
    program::Program again;
    try {
      again = program::parse(text);
    } catch (const Failure& failure) {
      return finding("the scheduled program does not parse: " + failure.message + "\n" + text, 0);
    }
    if (!scopes_fit(schedule))
      for (program::Buffer& allocation : again.allocations) allocation.scope = program::Buffer::Scope::global;
    for (size_t i = 0; i < made_.sizes.size() && !is_over_; ++i) {
      try {
        const reference::Evaluation result = reference::evaluate(again, arguments_[i]);
        Lines found = result.faults;
        for (const std::string& line : reference::differences(expected_[i], result, scheduled, kTolerance)) found.push_back(line);
        if (!found.empty()) finding(found[0] + "\n" + text, i);
      } catch (const std::invalid_argument&) {  // what the reference cannot decide
        ++totals_.undecided;
      }
    }
    run_kernel(again, "interpreter", totals_.interpreted);
  }

  void run_kernel([[maybe_unused]] const program::Program& scheduled, [[maybe_unused]] const char* kernel,
                  [[maybe_unused]] int64_t& count) {
#ifdef PROGRAM_PLUGIN
    const bool is_run = is_for_gpu(options_) ? kernel == std::string("compiled")  // a GPU's plugin has that kernel alone
                                             : runs_on_cpu(scheduled);
    if (!is_run) return;
    for (size_t i = 0; i < made_.sizes.size() && !is_over_; ++i) {
      try {
        const std::string wrong = wrong_by_kernel(plugin(options_), scheduled, arguments_[i], kernel, seed_ + i);
        if (wrong == kDeclined) {
          ++totals_.declined;
          return;
        }
        if (!wrong.empty()) finding(std::string(kernel) + ": " + wrong + "\n" + program::print(scheduled), i);
      } catch (const std::invalid_argument&) {  // counted as undecided already
        return;
      }
    }
    ++count;
#endif
  }

  void end(const program::Schedule& schedule) {
    ++totals_.sequences;
    if (options_.compile > 0 && seed_ % options_.compile == 0) run_kernel(schedule.program(), "compiled", totals_.compiled);
    if (!is_over_) replay(schedule);
  }

  void replay(const program::Schedule& schedule) {
    program::Schedule again(schedule.original());
    try {
      for (const std::string& line : schedule.trace()) again.apply(line);
    } catch (const Failure& failure) {
      return finding("the trace does not replay: " + failure.message, 0);
    }
    if (program::print(again.program()) != program::print(schedule.program())) finding("the trace replays to another program", 0);
  }

  void finding(const std::string& what, size_t size) {
    is_over_ = true;
    ++totals_.findings;
    std::string text = made_.text;
    for (const std::string& line : lines_) text += "# step " + line + "\n";
    for (const auto& [name, value] : made_.sizes[size]) text += "# size " + name + " = " + std::to_string(value) + "\n";
    std::string rest = what;
    for (size_t at = rest.find('\n'); at != std::string::npos; at = rest.find('\n', at + 3)) rest.replace(at, 1, "\n# ");
    text += "# " + rest + "\n";
    std::printf("FINDING at seed %llu\n%s", static_cast<unsigned long long>(seed_), text.c_str());
    if (!options_.out.empty()) std::ofstream(options_.out + "/seed_" + std::to_string(seed_) + ".program") << text;
  }

  const Options& options_;
  Totals& totals_;
  uint64_t seed_;
  Random random_;
  RandomProgram made_;
  std::vector<reference::Arguments> arguments_;
  std::vector<reference::Evaluation> expected_;
  Lines lines_;
  bool is_over_ = false;
};

RecordLine line_of(const Options& options, const Totals& totals, uint64_t next, double seconds) {
  RecordLine out{
      options.code,     options.seed,    next,   totals.programs, totals.sequences, 0, 0, totals.interpreted, totals.compiled,
      totals.undecided, totals.findings, seconds};
  for (const auto& [name, count] : totals.steps) out.accepted += count.accepted, out.refused += count.refused;
  return out;
}

void print_totals(const Totals& totals, const RecordLine& line) {
  const auto number = [](auto value) { return static_cast<long long>(value); };
  for (const auto& [name, count] : totals.steps)
    std::printf("  %-24s %8lld accepted %8lld refused\n", name.c_str(), number(count.accepted), number(count.refused));
  if (totals.declined > 0) std::printf("%lld programs were declined by the plugin\n", number(totals.declined));
  std::printf("slowest step: %.1f ms, %s\n", totals.slowest, totals.slowest_step.c_str());
  std::printf(
      "seeds %lld to %lld: %lld programs, %lld unfit; %lld sequences with %lld accepted steps, all run, %lld refused; %lld "
      "interpreted, %lld compiled; %lld undecided; %lld wrong; %.0f s\n",
      number(line.first), number(line.next - 1), number(line.programs), number(totals.unfit), number(line.sequences),
      number(line.accepted), number(line.refused), number(line.interpreted), number(line.compiled), number(line.undecided),
      number(line.wrong), line.seconds);
}

bool read_options(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--show") {
      options.show = true;
      continue;
    }
    if (++i == argc) return false;
    const std::map<std::string, std::string*> texts = {
        {"--out", &options.out}, {"--record", &options.record}, {"--code", &options.code}, {"--plugin", &options.plugin}};
    const std::map<std::string, uint64_t*> counts = {{"--seed", &options.seed},       {"--count", &options.count},
                                                     {"--compile", &options.compile}, {"--steps", &options.steps},
                                                     {"--seconds", &options.seconds}, {"--findings", &options.findings}};
    if (const auto text = texts.find(name); text != texts.end())
      *text->second = argv[i];
    else if (const auto number = counts.find(name); number != counts.end())
      *number->second = std::strtoull(argv[i], nullptr, 10);
    else
      return false;
  }
  if (!options.record.empty()) options.seed = next_seed(options.record);
  return true;
}

volatile std::sig_atomic_t is_ending = 0;

int search(const Options& options) {
  for (const int number : {SIGINT, SIGTERM}) std::signal(number, [](int) { is_ending = 1; });
  Totals totals;
  const auto begin = Clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
  const auto is_over = [&] {
    return is_ending != 0 || (options.seconds > 0 && seconds() >= static_cast<double>(options.seconds)) ||
           (options.findings > 0 && totals.findings >= static_cast<int64_t>(options.findings));
  };
  uint64_t seed = options.seed;
  for (; seed < options.seed + options.count && !is_over(); ++seed) Case(options, totals, seed).run();
  const RecordLine line = line_of(options, totals, seed, seconds());
  print_totals(totals, line);
  if (!options.record.empty() && totals.programs > 0) add_line(options.record, line);
  return totals.findings == 0 && totals.programs > 0 ? 0 : 1;
}

}  // namespace
}  // namespace narrows::search

int main(int argc, char** argv) {
  narrows::search::Options options;
  if (!narrows::search::read_options(argc, argv, options)) {
    std::fprintf(stderr, "usage: see the head of search_program.cpp\n");
    return 2;
  }
  return narrows::search::search(options);
}
