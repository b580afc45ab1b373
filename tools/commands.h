// SPDX-License-Identifier: Apache-2.0
// commands.h -- the subcommands of `narrows`: their options and the exit codes that all of them share.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace narrows::tools {

// Exit codes; `narrows --help` documents them.
inline constexpr int kOk = 0;
inline constexpr int kCheckFailed = 1;  // it ran, but a result is not what it must be
inline constexpr int kBadUsage = 2;     // a wrong option, or an input file that cannot be used
inline constexpr int kUnavailable = 3;  // no plugin, device or recording to work with
inline constexpr int kFailed = 4;       // an operation failed while running, or an output could not be written

// A plugin file that a package brings, as the Python package's command hands it over.
struct InstalledPlugin {
  std::string path, distribution, version;
  std::string reason;  // why it cannot be loaded; "": load it
};

struct InfoOptions {
  bool json = false;
  bool verbose = false;
  std::string plugin_path;  // "": NARROWS_PLUGIN_PATH
  unsigned timeout = 30;    // seconds in which a plugin says what it is
  std::vector<InstalledPlugin> installed;
};
int run_info(const InfoOptions& options);

struct DemoOptions {
  bool json = false;
  std::string wav;  // "": the spoken recordings in `speech`
  std::string speech = "/usr/share/sounds/alsa";
  std::string out = "narrows-demo";
  std::string backend;      // "": the runtime's choice
  std::string plugin_path;  // "": NARROWS_PLUGIN_PATH
  uint32_t seed = 1;
  int epochs = 0;  // 0: the default
};
int run_demo(const DemoOptions& options);

struct ConformOptions {
  std::string program = "narrows";        // as it was called, for commands that repeat a test
  std::string plugin;                     // a file; "": by backend
  std::string backend;                    // "": the plugin's, else the runtime's first
  std::string device;                     // "2:0", DLDeviceType:id; "": the backend's first
  std::string manifest;                   // "": the one beside the plugin
  std::vector<std::string> environments;  // of the manifest; empty: all
  std::vector<std::string> patterns;      // of tests, as Catch2 takes them; empty: all
  uint64_t seed = 20260101;
  double timeout = 900;  // seconds without a sign of life
  int jobs = 1;          // processes side by side
  bool huge = false, list = false, bench = false, support = false, json = false;
  std::string junit;        // a file; "": none
  std::string plugin_path;  // "": NARROWS_PLUGIN_PATH
};
int run_conform(const ConformOptions& options);

}  // namespace narrows::tools
