// commands.h -- the subcommands of `narrows`: their options and the exit codes that all of them share.
#pragma once

#include <cstdint>
#include <string>

namespace narrows::tools {

// Exit codes; `narrows --help` documents them.
inline constexpr int kOk = 0;
inline constexpr int kCheckFailed = 1;  // it ran, but a result is not what it must be
inline constexpr int kBadUsage = 2;     // a wrong option, or an input file that cannot be used
inline constexpr int kUnavailable = 3;  // no plugin, device or recording to work with
inline constexpr int kFailed = 4;       // an operation failed while running, or an output could not be written

struct InfoOptions {
  bool json = false;
  bool verbose = false;
  std::string plugin_path;  // "": NARROWS_PLUGIN_PATH
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

}  // namespace narrows::tools
