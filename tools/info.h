// SPDX-License-Identifier: Apache-2.0
// info.h -- what `narrows info` found out, before it is told as text or as JSON.
#pragma once

#include <string>
#include <vector>

#include "commands.h"
#include "core/thread_count.h"
#include "engine.h"
#include "probe.h"

namespace narrows::tools {

struct SearchFolder {
  std::string source;  // "--plugin-path", "NARROWS_PLUGIN_PATH", "beside libnarrows"
  std::string folder;
  bool exists = false;
};

struct DeviceFound {
  std::string backend;
  DLDevice device{};
  nw_device_info info{};
  std::string trouble;  // why it could not be described; "" otherwise
};

struct MissingDevice {
  std::string device_type, how;
};

// What compiles the tensor programs of a backend.
struct ProgramCompiler {
  std::string backend, description;
  std::string missing;  // why there is none, and how to install one
};

// A file that a package brings and that the runtime does not list.
struct LeftOut {
  InstalledPlugin plugin;
  bool crashed = false;  // when a process of its own asked what it is
};

struct Info {
  std::vector<SearchFolder> folders;
  std::vector<nw_backend_info> plugins;  // strings belong to the runtime
  std::vector<DeviceFound> devices;
  std::vector<std::pair<std::string, std::vector<OpSupport>>> ops;  // by backend
  std::vector<std::pair<std::string, const nw_op*>> own_ops;        // by backend
  std::vector<ProgramCompiler> compilers;
  std::vector<MissingDevice> missing;
  std::vector<std::string> notes;  // of the plugins
  ThreadCount threads;
  std::vector<InstalledPlugin> installed;
  std::vector<LeftOut> left_out;
};

inline bool usable(const nw_backend_info& b) { return b.status == NW_OK && !(b.flags & NW_BACKEND_SHADOWED); }
// "accepted", "shadowed", "unavailable", "refused"
std::string verdict(const nw_backend_info& b);

Info gather_info(const Runtime& runtime, const std::string& plugin_path);
// The package that brings a listed plugin, or NULL.
const InstalledPlugin* package_of(const Info& info, const nw_backend_info& b);
std::string info_json(const Info& info);
void print_info(const Info& info, bool verbose);

}  // namespace narrows::tools
