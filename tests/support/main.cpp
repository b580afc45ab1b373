// SPDX-License-Identifier: Apache-2.0
// main.cpp -- narrows-conform, the conformance suite as a program of its own: Catch2's options, and those below. `narrows conform`
// runs it and tells what it says. Exit codes: 0 passed; 77 the environment asks for what this machine lacks; else not passed.
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <catch2/catch_session.hpp>
#include <catch2/reporters/catch_reporter_event_listener.hpp>
#include <catch2/reporters/catch_reporter_registrars.hpp>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "harness.h"
#include "patterns.h"

namespace {

constexpr int kNotHere = 77;

// Catch2 tells what it can of a fatal signal from within its handler, which takes memory. Where a plugin broke the heap, or died
// while it held the heap's lock, that never ends; so it gets some seconds.
class LastWords final : public Catch::EventListenerBase {
 public:
  using EventListenerBase::EventListenerBase;
  void fatalErrorEncountered(Catch::StringRef) override {
    constexpr unsigned kSeconds = 5;
    signal(SIGALRM, [](int) {
      static constexpr char kWords[] = "a fatal signal could not be reported: the heap may be broken, or its lock held\n";
      [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kWords, sizeof(kWords) - 1);
      signal(SIGALRM, SIG_DFL);
      raise(SIGALRM);
    });
    alarm(kSeconds);
  }
};
CATCH_REGISTER_LISTENER(LastWords)

Catch::Clara::Parser with_our_options(const Catch::Clara::Parser& cli, narrows::test::Options& o) {
  using Catch::Clara::Opt;
  return cli | Opt(o.plugin, "file")["--plugin"]("the plugin to judge") |
         Opt(o.backend, "name")["--backend"]("the backend to judge; else the plugin's, else the first that serves the device") |
         Opt(o.device, "type:id")["--device"]("DLDeviceType:id; else the backend's first device") |
         Opt(o.manifest, "file")["--manifest"]("the backend's manifest; else the one beside its plugin") |
         Opt(o.environment, "name")["--environment"]("one of the manifest's environments") |
         Opt(o.seed, "number")["--seed"]("of all random cases");
}

}  // namespace

int main(int argc, char** argv) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // not longer than who started it: its verdict would be nobody's
  Catch::Session session;
  narrows::test::Options options;
  session.cli(with_our_options(session.cli(), options));
  if (const int rc = session.applyCommandLine(argc, argv); rc != 0) return rc;
  Catch::ConfigData& config = session.configData();
  for (std::string& patterns : config.testsOrTags)
    if (!config.listTests) patterns = narrows::test::without_hidden(patterns);
  if (config.showHelp || config.listTags || config.listReporters || config.listListeners) return session.run();
  try {
    narrows::test::open_session(options);
  } catch (const narrows::test::NotHere& reason) {
    std::printf("skipped: %s\n", reason.what());
    return kNotHere;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  int rc = session.run();
  // A driver may not survive its own end, and there is nothing to see without a layer that looks.
  if (std::getenv("NARROWS_VULKAN_VALIDATION") != nullptr && !config.listTests)
    if (const std::string printed = narrows::test::close_session(); !printed.empty()) {
      std::fprintf(stderr, "%s", printed.c_str());
      rc = rc == 0 ? 1 : rc;
    }
  return rc == kNotHere ? 1 : rc;  // Catch2 may have counted as many failures
}
