// SPDX-License-Identifier: Apache-2.0
// info.cpp -- `narrows info`: what was found, and its JSON. info_text.cpp prints it.
#include "info.h"

#include <dlfcn.h>
#include <narrows/program.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "demo/report.h"

namespace narrows::tools {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr const char* kBesideLibnarrows = "beside libnarrows";

// Where libnarrows is; "": not known.
fs::path library_folder() {
  Dl_info library{};
  std::error_code error;
  if (dladdr(dlsym(RTLD_DEFAULT, "nw_version"), &library) == 0 || library.dli_fname == nullptr) return "";
  const fs::path real = fs::canonical(library.dli_fname, error);
  return error ? "" : real.parent_path();
}

std::vector<SearchFolder> search_folders(const std::string& plugin_path) {
  std::vector<SearchFolder> folders;
  const auto add = [&](const char* source, const std::string& folder) {
    std::error_code ignored;
    folders.push_back({source, folder, folder[0] == '/' && fs::is_directory(folder, ignored)});
  };
  const char* environment = secure_getenv("NARROWS_PLUGIN_PATH");
  const std::string given = !plugin_path.empty() ? plugin_path : environment != nullptr ? environment : "";
  for (size_t begin = 0; begin < given.size();) {
    const size_t end = std::min(given.find(':', begin), given.size());
    if (end > begin) add(plugin_path.empty() ? "NARROWS_PLUGIN_PATH" : "--plugin-path", given.substr(begin, end - begin));
    begin = end + 1;
  }
  if (const fs::path own = library_folder(); !own.empty()) add(kBesideLibnarrows, (own / "narrows" / "backends").string());
  return folders;
}

void add_devices(const Runtime& runtime, const nw_backend_info& backend, Info& info) {
  for (int32_t id = 0; id < backend.device_count; ++id) {
    DeviceFound found{backend.name, {static_cast<DLDeviceType>(backend.device_type), id}, {}, ""};
    try {
      found.info = runtime.device(found.device);
    } catch (const StatusError& e) {
      found.trouble = e.what();
    }
    info.devices.push_back(std::move(found));
  }
}

void add_compiler(const Runtime& runtime, const nw_backend_info& backend, Info& info) {
  const auto* const source = static_cast<const nw_program_source*>(nw_extension(runtime.get(), backend.name, "program_source/1"));
  if (source == nullptr || source->struct_size < sizeof *source) return;
  char text[1024] = "";
  uint64_t needed = 0;
  nw_error error{};
  const int32_t status = source->compiler(source->self, text, sizeof text, &needed, &error);
  info.compilers.push_back({backend.name, text, status == NW_OK ? "" : error.message});
}

// Narrows' own backends, in the order in which they are named to the build.
constexpr std::pair<DLDeviceType, const char*> kOwn[] = {
    {kDLCPU, "cpu"}, {kDLCUDA, "cuda"}, {kDLROCM, "hip"}, {kDLVulkan, "vulkan"}};

std::string shell_quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+") == std::string::npos
             ? text
             : out + "'";
}

// The command, for a checkout of Narrows, that installs one more backend where this libnarrows is: by pip beside the Python
// package, else by CMake, which is told those that are here too.
std::string install_command(const Info& info, const std::string& wanted) {
  std::error_code ignored;
  fs::path prefix = library_folder().parent_path();
  if (prefix.filename() == "lib") prefix = prefix.parent_path();  // of Debian's lib/x86_64-linux-gnu
  if (fs::exists(prefix / "__init__.py", ignored)) return wanted == "cpu" ? "pip install ." : "pip install ./backends/" + wanted;
  std::string backends;
  for (const auto& [type, name] : kOwn) {
    const bool here = std::any_of(info.plugins.begin(), info.plugins.end(),
                                  [&, own = name](const nw_backend_info& b) { return own == std::string(b.name); });
    if (here || name == wanted) backends += (backends.empty() ? "" : ";") + std::string(name);
  }
  const std::string at = shell_quoted(prefix.string());
  if (fs::exists(prefix / "CMakeCache.txt", ignored))
    return "cmake -DNARROWS_BACKENDS='" + backends + "' " + at + " && cmake --build " + at;
  return "cmake -B build/all -DNARROWS_BACKENDS='" + backends +
         "' && cmake --build build/all && cmake --install build/all --prefix " + at;
}

// The device types that Narrows' own backends are written for, and that nothing found here serves.
std::vector<MissingDevice> missing_devices(const Info& info) {
  std::vector<MissingDevice> missing;
  for (const auto& [device_type, name] : kOwn) {
    const DLDeviceType type = device_type;  // which a lambda may hold
    const auto of_type = [&](bool working) {
      return std::find_if(info.plugins.begin(), info.plugins.end(), [&](const nw_backend_info& b) {
        return b.device_type == type && !(b.flags & NW_BACKEND_SHADOWED) && (!working || (b.status == NW_OK && b.device_count > 0));
      });
    };
    if (of_type(true) != info.plugins.end()) continue;
    const auto broken = of_type(false);
    const std::string how = broken == info.plugins.end()
                                ? "no plugin serves it. In a checkout of Narrows: " + install_command(info, name) +
                                      "; or put a narrows_*.so that serves it into a folder that is searched"
                            : broken->status == NW_OK ? std::string(broken->name) + " found no device"
                                                      : broken->reason;
    missing.push_back({device_type_name(type), how});
  }
  return missing;
}

json json_of(const OpSupport& op) {
  json dtypes = json::object(), functions = json::object();
  for (size_t i = 0; i < kDtypes.size(); ++i) {
    const auto count = op.count(i);
    if (count.legal > 0) dtypes[kDtypes[i].name] = {{"supported", count.supported}, {"legal", count.legal}};
  }
  for (const FunctionSupport& f : op.functions) {
    if (f.name.empty()) continue;
    json row = json::object();
    for (size_t i = 0; i < kDtypes.size(); ++i)
      if (f.dtypes[i] != Support::outside) row[kDtypes[i].name] = f.dtypes[i] == Support::yes;
    functions[f.name] = row;
  }
  json j{{"op", op.op}, {"kernels", op.kernels}, {"dtypes", dtypes}};
  if (!functions.empty()) j["functions"] = functions;
  return j;
}

json names(const char* const* list) {
  json j = json::array();
  for (; list != nullptr && *list != nullptr; ++list) j.push_back(*list);
  return j;
}

json json_of(const nw_op& op) {
  json params = json::array();
  for (const nw_param* const* field = op.params; field != nullptr && *field != nullptr; ++field)
    params.push_back({{"name", (*field)->name},
                      {"dtype", dtype_text((*field)->dtype)},
                      {"offset", (*field)->offset},
                      {"values", names((*field)->values)},
                      {"initial", (*field)->initial}});
  return {{"op", op.name},
          {"inputs", names(op.inputs)},
          {"min_inputs", op.min_inputs},
          {"outputs", names(op.outputs)},
          {"num_aux", op.num_aux},
          {"params_size", op.params_size},
          {"params", params},
          {"shape_rule", op.shape_rule == nullptr ? json() : json(op.shape_rule)},
          {"backward", op.backward == nullptr ? json() : json(op.backward)},
          {"inplace", (op.flags & NW_OP_INPLACE) != 0},
          {"batchable", (op.flags & NW_OP_BATCHABLE) != 0},
          {"autocast", (op.flags & NW_OP_AUTOCAST) != 0},
          {"batch", op.batch == nullptr ? json() : json(op.batch)},
          {"kernels", names(op.kernels)}};
}

json json_of(const InstalledPlugin* package) {
  return package == nullptr || package->distribution.empty() ? json()
                                                             : json{{"name", package->distribution}, {"version", package->version}};
}

json json_of(const LeftOut& left_out) {
  return {{"name", ""},
          {"version", ""},
          {"path", left_out.plugin.path},
          {"verdict", left_out.crashed ? "crashed" : "refused"},
          {"status", nw_status_name(NW_FAILED)},
          {"reason", left_out.plugin.reason},
          {"device_type", nullptr},
          {"device_count", 0},
          {"ops", json::array()},
          {"distribution", json_of(&left_out.plugin)}};
}

json json_of(const nw_backend_info& b, const InstalledPlugin* package) {
  json ops = json::array();
  for (uint32_t i = 0; i < b.num_ops; ++i) ops.push_back(b.ops[i]->name);
  return {{"name", b.name},
          {"version", b.version},
          {"path", b.path},
          {"verdict", verdict(b)},
          {"status", nw_status_name(b.status)},
          {"reason", b.reason},
          {"device_type", device_type_name(b.device_type)},
          {"device_count", b.device_count},
          {"ops", ops},
          {"distribution", json_of(package)}};
}

json json_of(const ThreadCount& count) {
  json limits = json::object();
  for (const ThreadCount::Limit& limit : count.limits) limits[limit.source] = limit.threads;
  return {{"threads", count.threads}, {"limits", limits}, {"ignored", count.ignored}};
}

json json_of(const DeviceFound& d) {
  json j{{"backend", d.backend}, {"device_type", device_type_name(d.device.device_type)}, {"device_id", d.device.device_id}};
  if (!d.trouble.empty()) return j.update({{"trouble", d.trouble}}), j;
  return j.update({{"name", d.info.name}, {"arch", d.info.arch}, {"total_memory", d.info.total_memory}}), j;
}

constexpr const char* kNoFolder = ":";  // as a plugin_path

// What becomes of a process that asks plugins what they are, and opens their devices: "" where it ends by itself.
template <class Ask>
std::string crash_of(unsigned seconds, const Ask& ask) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) return std::string("cannot be asked what it is: fork: ") + strerror(errno);
  if (child == 0) {
    alarm(seconds);
    try {
      ask();
    } catch (const std::exception&) {  // the parent will see it too
    }
    _exit(0);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status))
    return WEXITSTATUS(status) == 0 ? "" : "ends the process, with exit code " + std::to_string(WEXITSTATUS(status));
  if (WTERMSIG(status) == SIGALRM) return "does not say what it is within " + std::to_string(seconds) + " s";
  return "crashes when it is asked what it is: " + std::string(strsignal(WTERMSIG(status)));
}

// The plugins in the folders of --plugin-path or NARROWS_PLUGIN_PATH.
std::vector<std::string> files_of_folders(const std::string& plugin_path) {
  std::vector<std::string> files;
  for (const SearchFolder& folder : search_folders(plugin_path)) {
    if (folder.source == kBesideLibnarrows || !folder.exists) continue;
    std::vector<std::string> found;
    std::error_code error;
    for (fs::directory_iterator at(folder.folder, error), end; !error && at != end; at.increment(error)) {
      const std::string name = at->path().filename().string();
      if (name.rfind("narrows_", 0) == 0 && at->path().extension() == ".so") found.push_back(at->path().string());
    }
    std::sort(found.begin(), found.end());
    files.insert(files.end(), found.begin(), found.end());
  }
  return files;
}

// A runtime with the plugins of folders, but for those that would end this process. Where there is none, one child says so of all.
std::unique_ptr<Runtime> load_folders(const InfoOptions& options, std::vector<LeftOut>& left_out) {
  const auto made = [](const std::string& path) { return std::make_unique<Runtime>(path, Runtime::Warnings::told_by_caller); };
  const std::vector<std::string> files = files_of_folders(options.plugin_path);
  const auto all = static_cast<unsigned>(options.timeout * std::max<size_t>(files.size(), 1));
  if (files.empty() || crash_of(all, [&] { made(options.plugin_path)->backends(); }).empty()) return made(options.plugin_path);
  std::vector<std::string> sound;
  const auto load = [&](const Runtime& runtime) {  // each goes ahead of those before
    for (auto file = sound.rbegin(); file != sound.rend(); ++file) nw_load(runtime.get(), file->c_str(), nullptr);
  };
  for (const std::string& file : files) {
    sound.push_back(file);
    const std::string crash = crash_of(options.timeout, [&] {
      const auto runtime = made(kNoFolder);
      load(*runtime);
      runtime->backends();
    });
    if (crash.empty()) continue;
    sound.pop_back();
    left_out.push_back({{file, "", "", crash}, true});
  }
  auto runtime = made(kNoFolder);
  load(*runtime);
  return runtime;
}

// Loads what folders have and packages bring, but for what would end this process. The children come first, while there is one
// thread.
std::vector<LeftOut> load_plugins(std::unique_ptr<Runtime>& runtime, const InfoOptions& options) {
  std::vector<LeftOut> left_out;
  std::vector<const InstalledPlugin*> sound;
  for (const InstalledPlugin& plugin : options.installed) {
    const auto ask = [&] {
      const Runtime asked(kNoFolder, Runtime::Warnings::told_by_caller);
      nw_load_behind(asked.get(), plugin.path.c_str(), nullptr);
      asked.backends();
    };
    const std::string crash = plugin.reason.empty() ? crash_of(options.timeout, ask) : "";
    if (plugin.reason.empty() && crash.empty()) {
      sound.push_back(&plugin);
      continue;
    }
    left_out.push_back({plugin, !crash.empty()});
    if (!crash.empty()) left_out.back().plugin.reason = crash;
  }
  runtime = load_folders(options, left_out);
  for (const InstalledPlugin* plugin : sound) nw_load_behind(runtime->get(), plugin->path.c_str(), nullptr);
  return left_out;
}

// An op of an installed plugin that calls do not run, because a plugin ahead has it for the same devices.
std::vector<std::string> unused_ops(const Info& info) {
  std::vector<std::string> notes;
  for (size_t i = 0; i < info.plugins.size(); ++i) {
    const nw_backend_info& b = info.plugins[i];
    if (!usable(b) || package_of(info, b) == nullptr) continue;
    for (size_t j = 0; j < i; ++j) {
      const nw_backend_info& ahead = info.plugins[j];
      if (!usable(ahead) || ahead.device_type != b.device_type) continue;
      for (uint32_t k = 0; k < b.num_ops; ++k)
        for (uint32_t l = 0; l < ahead.num_ops && std::strchr(b.ops[k]->name, '.') != nullptr; ++l)
          if (std::strcmp(b.ops[k]->name, ahead.ops[l]->name) == 0)
            notes.push_back(std::string(b.path) + ": not used for op '" + b.ops[k]->name + "': " + ahead.path + " has it too");
    }
  }
  return notes;
}

}  // namespace

const InstalledPlugin* package_of(const Info& info, const nw_backend_info& b) {
  const auto found = std::find_if(info.installed.begin(), info.installed.end(),
                                  [&](const InstalledPlugin& plugin) { return plugin.path == b.path; });
  return found == info.installed.end() ? nullptr : &*found;
}

std::string verdict(const nw_backend_info& b) {
  if (b.flags & NW_BACKEND_SHADOWED) return "shadowed";
  if (b.status == NW_OK) return "accepted";
  return b.status == NW_UNAVAILABLE ? "unavailable" : "refused";
}

Info gather_info(const Runtime& runtime, const std::string& plugin_path) {
  Info info;
  info.folders = search_folders(plugin_path);
  info.plugins = runtime.backends();
  for (const nw_backend_info& backend : info.plugins) {
    if (!usable(backend)) continue;
    add_devices(runtime, backend, info);
    add_compiler(runtime, backend, info);
    if (backend.device_count > 0) info.ops.emplace_back(backend.name, probe(runtime, backend));
    for (uint32_t i = 0; i < backend.num_ops; ++i)
      if (std::strchr(backend.ops[i]->name, '.') != nullptr) info.own_ops.emplace_back(backend.name, backend.ops[i]);
  }
  info.missing = missing_devices(info);
  info.notes = runtime.notes();
  info.threads = count_threads();
  return info;
}

std::string info_json(const Info& info) {
  json compilers = json::array();
  for (const ProgramCompiler& c : info.compilers)
    compilers.push_back(
        {{"backend", c.backend}, {"compiler", c.missing.empty() ? json(c.description) : json()}, {"missing", c.missing}});
  json folders = json::array(), plugins = json::array(), devices = json::array(), ops = json::array(), own = json::array(),
       missing = json::array();
  for (const SearchFolder& f : info.folders) folders.push_back({{"source", f.source}, {"folder", f.folder}, {"exists", f.exists}});
  for (const nw_backend_info& b : info.plugins) plugins.push_back(json_of(b, package_of(info, b)));
  for (const LeftOut& left_out : info.left_out) plugins.push_back(json_of(left_out));
  for (const DeviceFound& d : info.devices) devices.push_back(json_of(d));
  for (const auto& [backend, list] : info.ops)
    for (const OpSupport& op : list) ops.push_back(json_of(op)), ops.back()["backend"] = backend;
  for (const auto& [backend, op] : info.own_ops) own.push_back(json_of(*op)), own.back()["backend"] = backend;
  for (const MissingDevice& m : info.missing) missing.push_back({{"device_type", m.device_type}, {"how", m.how}});
  const json j{{"version", nw_version()},
               {"abi_major", nw_abi_major()},
               {"search", folders},
               {"plugins", plugins},
               {"devices", devices},
               {"ops", ops},
               {"own_ops", own},
               {"compilers", compilers},
               {"missing", missing},
               {"notes", info.notes},
               {"threads", json_of(info.threads)}};
  return j.dump(2, ' ', false, json::error_handler_t::replace);
}

int run_info(const InfoOptions& options) {
  try {
    std::unique_ptr<Runtime> runtime;
    std::vector<LeftOut> left_out = load_plugins(runtime, options);
    Info info = gather_info(*runtime, options.plugin_path);
    info.installed = options.installed;
    info.left_out = std::move(left_out);
    for (std::string& note : unused_ops(info)) info.notes.push_back(std::move(note));
    if (options.json) {
      std::printf("%s\n", info_json(info).c_str());
    } else {
      print_info(info, options.verbose);
    }
    if (!info.devices.empty()) return kOk;
    std::fprintf(stderr, "narrows info: no plugin with a device was found\n");
    return kUnavailable;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "narrows info: %s\n", printable(e.what()).c_str());
    return kFailed;
  }
}

}  // namespace narrows::tools
