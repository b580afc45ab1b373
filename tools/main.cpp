// SPDX-License-Identifier: Apache-2.0
// main.cpp -- the `narrows` command: options and help.
#include <narrows/narrows.h>

#include <dlfcn.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "commands.h"
#include "core/near.h"
#include "demo/report.h"

namespace {

using namespace narrows::tools;

constexpr const char* kDescription =
    "Narrows: one C ABI between array frameworks and the devices that compute.\n"
    "`narrows SUBCOMMAND --help` has examples.\n"
    "The Python package's command has three more: `new` starts a package with an op, `config` prints options for compilers,\n"
    "`hub` writes a plugin in the layout of Hugging Face's kernels.";

constexpr const char* kExitCodes =
    "Exit codes:\n"
    "  0  done\n"
    "  1  a check failed: a result is not what it must be\n"
    "  2  bad usage, or an input file that cannot be used\n"
    "  3  nothing to work with: no plugin, no such backend or device, no recordings\n"
    "  4  an operation failed while running, or an output could not be written";

constexpr const char* kInfoExamples =
    "Examples:\n"
    "  narrows info                                what was found, on which devices, what it can do\n"
    "  narrows info --verbose                      every function of elementwise with every dtype\n"
    "  narrows info --json | python3 -m json.tool  the same for a program\n"
    "  narrows info --plugin-path /opt/kernels     with the plugins of one more folder\n";

constexpr const char* kDemoExamples =
    "Examples:\n"
    "  narrows demo                                the eight spoken recordings of alsa-utils\n"
    "  narrows demo --wav me.wav --out results     your own voice: filtered, clipped, and learnt from\n"
    "  narrows demo --backend cpu --seed 7 --json  one backend, other initial weights, for a program\n"
    "Writes speech.wav, bandpass.wav, softclip.wav and demo.html.\n"
    "The LLTM has to beat the guess that nothing changes, on speech it was not trained on; with --wav it may fail to.\n";

constexpr const char* kConformExamples =
    "PATTERN ...: the tests to run, names with * at an end, [tags], ~ for not; by default all.\n"
    "Examples:\n"
    "  narrows conform --plugin ./narrows_mine.so         a verdict on a plugin: its own ops, and the built-in ones that it "
    "offers\n"
    "  narrows conform --backend cpu --environment avx2   one environment of the manifest\n"
    "  narrows conform --backend vulkan --jobs 8          the same verdict sooner, by eight processes\n"
    "  narrows conform '[conv1d][trap]' 'lltm*'           tests by tag and by name\n"
    "  narrows conform --list                             what there is\n"
    "  narrows conform --support                          which op takes which dtype, as a table in Markdown\n"
    "The suite runs in a process of its own: a crash or a hang of the plugin fails one test. docs/conformance.md has the rest.\n";

constexpr const char* kBenchExamples =
    "PATTERN ...: the cases to measure, as `narrows conform` takes tests; by default all.\n"
    "Examples:\n"
    "  narrows bench --backend cuda                      every case, each first checked, on every kernel that takes it\n"
    "  narrows bench --backend cuda '[conv1d]'           by tag\n"
    "  narrows bench --plugin ./narrows_mine.so --json   for a program\n"
    "On a CUDA device graphs are replayed; rates stand beside the device's own copy and, of operations, cuBLAS.\n";

void add_plugin_path(CLI::App* command, std::string& target) {
  command->add_option("--plugin-path", target, "Absolute folders with plugins, ':' between; instead of NARROWS_PLUGIN_PATH")
      ->type_name("FOLDERS");
}

CLI::App* add_info(CLI::App& app, InfoOptions& options) {
  CLI::App* info = app.add_subcommand("info", "Plugins found, their devices and ops, and what is missing");
  info->add_flag("--json", options.json, "JSON instead of text");
  info->add_flag("-v,--verbose", options.verbose, "Every function of elementwise with every dtype, every kernel");
  add_plugin_path(info, options.plugin_path);
  info->add_option("--timeout", options.timeout, "How long a plugin may take to say what it is, in a process of its own")
      ->type_name("SECONDS")
      ->check(CLI::Range(1, 3600))
      ->capture_default_str();
  info->add_option_function<std::vector<std::string>>(
          "--installed",
          [&options](const std::vector<std::string>& words) {
            for (size_t i = 0; i + 3 < words.size(); i += 4)
              options.installed.push_back({words[i], words[i + 1], words[i + 2], words[i + 3]});
          },
          "A plugin that a package brings: its file, the package's name and version, and why it cannot be loaded, or ''")
      ->type_size(4)
      ->expected(1, CLI::detail::expected_max_vector_size)
      ->group("");  // the Python package's command says it
  info->footer(std::string(kInfoExamples) + kExitCodes);
  return info;
}

CLI::App* add_demo(CLI::App& app, DemoOptions& options) {
  CLI::App* demo = app.add_subcommand("demo", "Real speech through conv1d, elementwise ops and a trained LLTM; a report in HTML");
  demo->add_option("--wav", options.wav, "A PCM or float WAV, mono or stereo; else the recordings of --speech")->type_name("FILE");
  demo->add_option("--speech", options.speech, "Where the eight spoken recordings are")->type_name("FOLDER")->capture_default_str();
  demo->add_option("--out", options.out, "Where results are written")->type_name("FOLDER")->capture_default_str();
  demo->add_option("--backend", options.backend, "Name of the backend; else NARROWS_BACKEND, else one for the CPU")
      ->envname("NARROWS_BACKEND")
      ->type_name("NAME");
  demo->add_option("--seed", options.seed, "Of the LLTM's initial weights")->capture_default_str();
  demo->add_option("--epochs", options.epochs, "Of the LLTM's training")->check(CLI::Range(1, 10000));
  demo->add_flag("--json", options.json, "JSON instead of text");
  add_plugin_path(demo, options.plugin_path);
  demo->footer(std::string(kDemoExamples) + kExitCodes);
  return demo;
}

// An option whose shell variable was not set would otherwise say nothing, and something else would be judged.
const CLI::Validator kNotEmpty([](std::string& text) { return text.empty() ? std::string("may not be empty") : std::string(); },
                               "");
const CLI::Validator kWholeNumber(
    [](std::string& text) {
      const bool digits = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
      return digits && (text.size() < 20 || (text.size() == 20 && text <= "18446744073709551615"))
                 ? std::string()
                 : text + " is not a number from 0 to 2^64 - 1";
    },
    "");

const CLI::Validator kJobs(
    [](std::string& text) {
      int jobs = 0;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), jobs);
      return error == std::errc() && end == text.data() + text.size() && jobs >= 1 && jobs <= 256
                 ? std::string()
                 : "'" + text + "' is not a number from 1 to 256";
    },
    "");

// What conform and bench share: which backend, where, and how the suite is run.
void add_suite_options(CLI::App* command, ConformOptions& o) {
  command->allow_extras();  // the patterns: CLI11 would take "[tag]" for a list
  command->add_option("--plugin", o.plugin, "The plugin to run")->type_name("FILE")->check(kNotEmpty);
  command->add_option("--backend", o.backend, "The backend to run, by name; else the first that serves the device")
      ->type_name("NAME")
      ->check(kNotEmpty);
  command->add_option("--device", o.device, "DLDeviceType:id, such as 2:0; else the backend's first device")->type_name("TYPE:ID");
  command->add_option("--manifest", o.manifest, "What the backend may decline and why; else the file beside the plugin")
      ->type_name("FILE");
  command->add_option("--environment", o.environments, "One of the manifest's environments; by default each in turn")
      ->type_name("NAME")
      ->allow_extra_args(false);
  command->add_option("--seed", o.seed, "Of all random cases")->check(kWholeNumber)->capture_default_str();
  command->add_option("--timeout", o.timeout, "Seconds without a sign of life after which the test under way has failed")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  add_plugin_path(command, o.plugin_path);
  auto* list = command->add_flag("--list", o.list, "List the tests instead");
  command->add_flag("--json", o.json, "JSON instead of text")->excludes(list);
}

CLI::App* add_bench(CLI::App& app, ConformOptions& o) {
  CLI::App* bench = app.add_subcommand("bench", "Measures a backend's kernels, after checking them");
  o.bench = true;
  add_suite_options(bench, o);
  bench->footer(std::string(kBenchExamples) + kExitCodes);
  return bench;
}

CLI::App* add_conform(CLI::App& app, ConformOptions& o) {
  CLI::App* conform = app.add_subcommand("conform", "Judges a backend or a plugin by the conformance suite");
  add_suite_options(conform, o);
  conform->add_flag("--huge", o.huge, "Tensors of more than 2^31 elements too: 10 GiB of memory");
  auto* support = conform->add_flag("--support", o.support, "Print the table of ops and dtypes instead");
  auto* jobs = conform->add_option("--jobs", o.jobs, "Processes of the suite side by side, a few tests each at a time; one verdict")
                   ->type_name("N")
                   ->check(kJobs)
                   ->capture_default_str();
  auto* junit = conform->add_option("--junit", o.junit, "Write the results as JUnit XML too")->type_name("FILE");
  for (const char* instead : {"--list", "--json"}) support->excludes(instead);
  for (const char* instead : {"--list", "--support"}) junit->excludes(instead), jobs->excludes(instead);
  conform->footer(std::string(kConformExamples) + kExitCodes);
  return conform;
}

// Of the first option on the command line that the command has not.
std::string near_option(const CLI::App& command, int argc, char** argv) {
  std::vector<std::string> known;
  for (const CLI::Option* option : command.get_options())
    for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  for (int i = 1; i < argc; ++i) {
    const std::string word = std::string(argv[i]).substr(0, std::string(argv[i]).find('='));
    if (word.starts_with("--") && std::find(known.begin(), known.end(), word) == known.end())
      return narrows::did_you_mean(word, known);
  }
  return "";
}

std::string near_subcommand(const CLI::App& app, const std::string& word) {
  std::vector<std::string> known;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) known.push_back(command->get_name());
  return narrows::did_you_mean(word, known);
}

// CLI11 has a code for every kind of mistake; ours are few.
int parse_failed(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv) {
  const char* const first = argc > 1 ? argv[1] : nullptr;
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) return app.exit(error);  // --help, --version
  if (app.get_subcommands().empty() && first != nullptr && first[0] != '-') {
    for (const char* word : {"new", "config", "hub"})
      if (std::strcmp(first, word) == 0) {
        std::fprintf(stderr, "narrows: %s is in the Python package's command: pip install narrows, or python -m narrows %s\n", word,
                     word);
        return kBadUsage;
      }
    std::fprintf(stderr, "narrows: unknown subcommand '%s'%s (see narrows --help)\n", printable(first).c_str(),
                 near_subcommand(app, first).c_str());
    return kBadUsage;
  }
  const CLI::App& command = app.get_subcommands().empty() ? app : *app.get_subcommands().front();
  const bool extra = error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError);
  std::fprintf(stderr, "narrows: %s%s (see narrows --help)\n", printable(error.what()).c_str(),
               extra ? near_option(command, argc, argv).c_str() : "");
  return kBadUsage;
}

int run(int argc, char** argv) {
  CLI::App app{kDescription, "narrows"};
  app.footer(kExitCodes);
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string("narrows ") + nw_version());
  InfoOptions info_options;
  DemoOptions demo_options;
  ConformOptions conform_options, bench_options;
  const CLI::App* info = add_info(app, info_options);
  const std::pair<CLI::App*, ConformOptions*> suites[] = {{add_conform(app, conform_options), &conform_options},
                                                          {add_bench(app, bench_options), &bench_options}};
  add_demo(app, demo_options);
  try {
    app.parse(argc, argv);
    for (const auto& [command, options] : suites) {
      options->patterns = command->remaining();
      if (std::strchr(argv[0], '/') != nullptr) options->program = argv[0];
      for (const std::string& word : options->patterns)
        if (word.starts_with("-")) throw CLI::ExtrasError(command->get_name(), {word});
    }
  } catch (const CLI::ParseError& error) {
    return parse_failed(app, error, argc, argv);
  }
  if (info->parsed()) return run_info(info_options);
  for (const auto& [command, options] : suites)
    if (command->parsed()) return run_conform(*options);
  return run_demo(demo_options);
}

}  // namespace

int main(int argc, char** argv) {
  if (std::strcmp(nw_version(), NARROWS_VERSION) != 0) {
    Dl_info library{};
    dladdr(dlsym(RTLD_DEFAULT, "nw_version"), &library);
    std::fprintf(stderr, "narrows %s: this process has libnarrows %s, %s; expected %s, the command's own\n", NARROWS_VERSION,
                 nw_version(), library.dli_fname == nullptr ? "of an unknown file" : library.dli_fname, NARROWS_VERSION);
    return kUnavailable;
  }
  const int code = run(argc, argv);
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  std::fprintf(stderr, "narrows: the output could not be written\n");
  return code != 0 ? code : kFailed;
}
