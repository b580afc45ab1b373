// SPDX-License-Identifier: Apache-2.0
// session.cpp -- see session.h.
#include "session.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <utility>

namespace narrows::test {
namespace {

struct Session {
  std::string plugin;
  nw_runtime* runtime = nullptr;
  nw_backend_info tested{};
  DLDevice device{};
  uint64_t seed = 0;
  Manifest manifest;
};
Session* session = nullptr;

Session& opened() {
  if (session == nullptr) throw std::logic_error("open_session() was not called");
  return *session;
}

[[noreturn]] void fail(const std::string& what) { throw std::runtime_error(what); }

nw_runtime* make_runtime(const std::string& plugin, uint32_t num_threads = 0) {
  nw_options options{};
  options.struct_size = sizeof options;
  options.num_threads = num_threads;
  nw_runtime* made = nullptr;
  nw_error error{};
  if (nw_runtime_create(&options, &made, &error) != NW_OK) fail(std::string("nw_runtime_create: ") + error.message);
  if (!plugin.empty() && nw_load(made, std::filesystem::absolute(plugin).c_str(), &error) != NW_OK) fail(error.message);
  return made;
}

nw_backend_info backend_info(nw_runtime* rt, uint32_t index) {
  nw_backend_info info{};
  info.struct_size = sizeof info;
  nw_error error{};
  if (nw_backend(rt, index, &info, &error) != NW_OK) fail(std::string("nw_backend: ") + error.message);
  return info;
}

DLDevice parse_device(const std::string& text) {
  int type = 0, id = 0, end = 0;
  if (std::sscanf(text.c_str(), "%d:%d%n", &type, &id, &end) != 2 || text.size() != static_cast<size_t>(end) || type < 1 || id < 0)
    fail("device is '" + text + "'; expected DLDeviceType:id, such as 1:0 for the CPU or 2:0 for CUDA");
  return {static_cast<DLDeviceType>(type), id};
}

// A plugin file that was named is the first that nw_backend lists.
nw_backend_info choose_backend(nw_runtime* rt, const Options& options, DLDeviceType type) {
  std::string seen;
  for (uint32_t i = 0; i < nw_backend_count(rt); ++i) {
    const nw_backend_info info = backend_info(rt, i);
    const bool usable = info.status == NW_OK && (info.flags & NW_BACKEND_SHADOWED) == 0;
    const bool named = options.backend.empty() || options.backend == info.name;
    if (!options.plugin.empty() && !named)
      fail("the plugin " + options.plugin + " is backend '" + info.name + "'; expected '" + options.backend + "'");
    if (usable && named && (type == 0 || type == info.device_type)) return info;
    seen += std::string("\n  ") + (info.name[0] == '\0' ? "?" : info.name) + ", " + info.path + ": " +
            (info.reason[0] != '\0' ? info.reason
             : named                ? "serves another device"
                                    : "is another backend");
    if (!options.plugin.empty()) break;  // the file that was named, and no other
  }
  fail("no usable backend" + (options.backend.empty() ? "" : " '" + options.backend + "'") +
       (type == 0 ? "" : " for device type " + std::to_string(type)) + "; plugins found:" + (seen.empty() ? " none" : seen));
}

// The plugin's file without ".so", with ".manifest.json".
std::string manifest_beside(const char* plugin) {
  const std::filesystem::path path = std::filesystem::path(plugin).replace_extension(".manifest.json");
  return std::filesystem::exists(path) ? path.string() : "";
}

std::vector<std::string> cpu_features() {
  std::ifstream file("/proc/cpuinfo");
  std::vector<std::string> words;
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("flags", 0) != 0 && line.rfind("Features", 0) != 0) continue;
    std::istringstream rest(line.substr(line.find(':') + 1));
    for (std::string word; rest >> word;) words.push_back(word);
    break;
  }
#if defined(__x86_64__)
  // AMX's tiles are there for a process that the system lets have them.
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  if (syscall(SYS_arch_prctl, kRequestPermission, kTileData) != 0)
    std::erase_if(words, [](const std::string& word) { return word.rfind("amx", 0) == 0; });
#endif
  return words;
}

void enter(const Environment& environment) {
  const auto features = cpu_features();
  for (const std::string& feature : environment.cpu)
    if (std::find(features.begin(), features.end(), feature) == features.end()) throw NotHere("this CPU has no " + feature);
  for (const auto& [name, value] : environment.variables) setenv(name.c_str(), value.c_str(), 1);
}

// The environment is set before the instance exists that reads it, so its backend's file is looked for in another runtime, which
// makes no instance of a backend that needs one.
std::string manifest_of(const Options& options) {
  if (!options.manifest.empty()) return options.manifest;
  if (!options.plugin.empty()) return manifest_beside(options.plugin.c_str());
  nw_runtime* const rt = make_runtime("");
  const DLDeviceType type = options.device.empty() ? DLDeviceType{} : parse_device(options.device).device_type;
  const std::string path = manifest_beside(choose_backend(rt, options, type).path);
  nw_runtime_destroy(rt);
  return path;
}

}  // namespace

void open_session(const Options& options) {
  auto made = std::make_unique<Session>();
  made->seed = options.seed;
  made->plugin = options.plugin;
  if (const std::string path = manifest_of(options); !path.empty()) made->manifest = read_manifest(path);
  const Environment* const environment = made->manifest.environment(options.environment);
  if (!options.environment.empty() && environment == nullptr)
    fail("the manifest '" + made->manifest.path + "' has no environment '" + options.environment + "'");
  if (environment != nullptr) enter(*environment);
  setenv("NARROWS_CHECK", "1", 0);  // a backend that can look up whose memory a tensor is does so while it is judged
  made->runtime = make_runtime(options.plugin);
  DLDevice device = options.device.empty() ? DLDevice{} : parse_device(options.device);
  made->tested = choose_backend(made->runtime, options, device.device_type);
  if (options.device.empty()) device = {static_cast<DLDeviceType>(made->tested.device_type), 0};
  if (made->tested.device_count == 0) fail(std::string("backend '") + made->tested.name + "' has no device on this machine");
  made->device = device;
  session = made.release();
  const std::string is = arch();
  for (Exclusion& e : session->manifest.exclusions) e.applies = e.holds(is);
  // A setting that nobody reads would judge one thing several times.
  if (environment != nullptr && is.rfind(environment->arch, 0) != 0)
    fail("in the environment '" + environment->name + "' the device says '" + is + "'; expected '" + environment->arch + "…'");
}

std::string close_session() {
  const int ours = dup(STDERR_FILENO);
  std::FILE* const file = std::tmpfile();
  if (ours < 0 || file == nullptr) fail("no file for what is printed at the end");
  dup2(fileno(file), STDERR_FILENO);
  nw_runtime_destroy(std::exchange(opened().runtime, nullptr));
  std::fflush(stderr);
  dup2(ours, STDERR_FILENO);
  close(ours);
  std::string printed;
  std::rewind(file);
  for (int c; (c = std::getc(file)) != EOF;) printed += static_cast<char>(c);
  std::fclose(file);
  return printed;
}

nw_runtime* runtime() { return opened().runtime; }
nw_runtime* new_runtime(uint32_t num_threads) { return make_runtime(opened().plugin, num_threads); }
DLDevice device() { return opened().device; }
const nw_backend_info& tested() { return opened().tested; }
const char* backend() { return tested().name; }
uint64_t base_seed() { return opened().seed; }
Manifest& manifest() { return opened().manifest; }

std::string arch() {
  nw_device_info info{};
  info.struct_size = sizeof info;
  nw_error error{};
  if (nw_device(runtime(), device(), &info, &error) != NW_OK) fail(std::string("nw_device: ") + error.message);
  return info.arch;
}

bool has_addresses() {
  const auto type = static_cast<int>(device().device_type);
  return type == kDLCPU || type == kDLCUDA || type == kDLROCM || type == kDLVulkan || type == kDLOneAPI;
}

static const nw_op* listed(const char* op) {
  for (uint32_t i = 0; i < tested().num_ops; ++i)
    if (std::strcmp(tested().ops[i]->name, op) == 0) return tested().ops[i];
  return nullptr;
}

bool offers(const char* op) { return listed(op) != nullptr; }

std::vector<const char*> kernels(const char* op) {
  std::vector<const char*> names{nullptr};
  const nw_op* const found = listed(op);
  for (const char* const* k = found == nullptr ? nullptr : found->kernels; k != nullptr && *k != nullptr; ++k) names.push_back(*k);
  return names;
}

}  // namespace narrows::test
