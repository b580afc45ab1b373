// SPDX-License-Identifier: Apache-2.0
// plugin_loader.cpp -- see plugin_loader.h.
#include "core/plugin_loader.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <new>

#include "core/elf.h"

namespace narrows {
namespace {

// Memory that ran out says nothing of a plugin or a folder: the call fails with NW_OUT_OF_MEMORY, lists nothing and may be
// repeated. Of dlopen, only errno tells.
nw_plugin_query_fn find_query(const std::string& path) {
  // RTLD_LOCAL keeps a plugin's libraries out of everyone else's sight; nothing here is ever unloaded.
  errno = 0;
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  const bool out_of_memory = errno == ENOMEM;
  if (library == nullptr && out_of_memory)
    throw_failure(NW_OUT_OF_MEMORY, -1, "out of memory: %s cannot be loaded: %s", path.c_str(), dlerror());
  if (library == nullptr) throw_failure(NW_UNAVAILABLE, -1, "cannot be loaded: %s", dlerror());
  void* const symbol = dlsym(library, NW_PLUGIN_QUERY);
  if (symbol == nullptr) throw_failure(NW_INVALID, -1, "not a plugin: it does not export %s", NW_PLUGIN_QUERY);
  return reinterpret_cast<nw_plugin_query_fn>(symbol);
}

// The absolute path of the file that is mapped at an address, or "".
std::string mapped_file(const void* address) {
  errno = 0;
  std::ifstream maps("/proc/self/maps");
  if (!maps && errno == ENOMEM) throw std::bad_alloc();
  maps.exceptions(std::ios::badbit);  // a std::bad_alloc while reading
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0, end = 0;
    int path = 0;
    const int fields = std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " %*s %*s %*s %*s %n", &begin, &end, &path);
    if (fields == 2 && reinterpret_cast<uintptr_t>(address) - begin < end - begin) return line.substr(static_cast<size_t>(path));
  }
  return "";
}

const nw_plugin& query(nw_plugin_query_fn function) {
  nw_error error{};
  error.argument = -1;
  const nw_plugin* table = nullptr;
  try {
    table = function(NW_ABI_MAJOR, &error);
  } catch (...) {
    const Failure failure = caught(nullptr, NW_PLUGIN_QUERY);
    throw_failure(failure.status == NW_OUT_OF_MEMORY ? NW_OUT_OF_MEMORY : NW_INVALID, -1, "%s", failure.message.c_str());
  }
  if (table != nullptr) return *table;
  if (error.status == NW_OUT_OF_MEMORY) throw_failure(NW_OUT_OF_MEMORY, -1, "%s: out of memory", NW_PLUGIN_QUERY);
  error.message[sizeof error.message - 1] = '\0';
  if (error.status == NW_INVALID && error.message[0] != '\0') throw_failure(NW_INVALID, -1, "%s", error.message);
  throw_failure(NW_UNSUPPORTED, -1, "refuses a host of ABI major %d: %s", NW_ABI_MAJOR,
                error.message[0] != '\0' ? error.message : "it gave no reason");
}

// The plugins in a folder; an errno. Not by std::filesystem, whose iterator ends the process where memory runs out.
int find_files(const std::string& folder, std::vector<std::string>& files) {
  const std::unique_ptr<DIR, int (*)(DIR*)> open(opendir(folder.c_str()), closedir);
  if (open == nullptr) return errno;
  errno = 0;
  while (const dirent* entry = readdir(open.get())) {
    if (fnmatch("narrows_*.so", entry->d_name, 0) == 0) files.push_back(folder + (folder.back() == '/' ? "" : "/") + entry->d_name);
    errno = 0;
  }
  return errno;
}

}  // namespace

std::unique_ptr<Backend> load_plugin(const std::string& path) {
  const nw_plugin* table = nullptr;
  try {
    const std::string reason = elf_error(path);
    if (!reason.empty()) throw_failure(NW_INVALID, -1, "%s", reason.c_str());
    table = &query(find_query(path));
    return std::make_unique<Backend>(path, *table);
  } catch (const Failure& failure) {
    if (failure.status == NW_OUT_OF_MEMORY) throw;
    auto refused = std::make_unique<Backend>(path, failure.status, failure.message);
    if (table != nullptr) refused->set_names(*table);
    return refused;
  }
}

std::vector<std::unique_ptr<Backend>> load_folder(const std::string& folder) {
  std::vector<std::unique_ptr<Backend>> out;
  const auto refuse = [&](const std::string& reason) { out.push_back(std::make_unique<Backend>(folder, NW_INVALID, reason)); };
  if (folder[0] != '/') {
    refuse("'" + folder + "' is not an absolute folder; plugins are searched for in absolute ones only");
    return out;
  }
  std::vector<std::string> files;
  if (const int error = find_files(folder, files); error == ENOMEM) {
    throw std::bad_alloc();
  } else if (error != 0) {
    refuse(std::string("cannot be searched for plugins: ") + strerror(error));
    return out;
  }
  std::sort(files.begin(), files.end());
  for (const std::string& file : files) out.push_back(load_plugin(file));
  return out;
}

std::string own_folder() {
  const auto* const here = reinterpret_cast<const void*>(&own_folder);
  Dl_info info{};
  if (dladdr(here, &info) == 0) return "";
  // A relative name was relative to the working directory when libnarrows was loaded, which may have been left since.
  const std::string file = info.dli_fname[0] == '/' ? info.dli_fname : mapped_file(here);
  char resolved[PATH_MAX];
  if (realpath(file.c_str(), resolved) == nullptr) {
    if (errno == ENOMEM) throw std::bad_alloc();
    return "";
  }
  const std::string whole = resolved;
  return whole.substr(0, whole.rfind('/') + 1) + "narrows/backends";
}

std::string no_plugin_serves(DLDevice device) {
  return format(
      "no plugin serves %s; `narrows info` lists what was found, and the command that builds a backend. Expected a narrows_*.so "
      "that "
      "serves it in a folder of NARROWS_PLUGIN_PATH, or beside libnarrows: %s",
      show_device(device).c_str(), own_folder().c_str());
}

std::vector<std::string> split_path(const std::string& folders) {
  std::vector<std::string> out;
  for (size_t begin = 0; begin <= folders.size();) {
    const size_t end = std::min(folders.find(':', begin), folders.size());
    if (end != begin) out.push_back(folders.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

}  // namespace narrows
