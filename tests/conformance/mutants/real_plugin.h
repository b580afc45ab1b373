// SPDX-License-Identifier: Apache-2.0
// real_plugin.h -- the plugin on whose device a judged plugin works: the file that NARROWS_TEST_REAL_PLUGIN names. What a judged
// plugin does to the memory of that device goes through the slots of that plugin.
#pragma once

#include <dlfcn.h>
#include <narrows/plugin.h>

#include <cstdio>
#include <cstdlib>

namespace mutants {

// The path; `otherwise` where the variable is not set.
inline const char* real_plugin_path(const char* otherwise) {
  const char* const path = std::getenv("NARROWS_TEST_REAL_PLUGIN");
  return path == nullptr ? otherwise : path;
}

// The table in that file; NULL and the reason where there is none.
inline const nw_plugin* load_plugin(const char* path, nw_error* error) {
  void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  void* const symbol = library == nullptr ? nullptr : dlsym(library, NW_PLUGIN_QUERY);
  if (symbol != nullptr) return reinterpret_cast<nw_plugin_query_fn>(symbol)(NW_ABI_MAJOR, error);
  if (error != nullptr) {
    *error = {NW_UNAVAILABLE, -1, 0, ""};
    std::snprintf(error->message, sizeof error->message, "the real plugin: %s", dlerror());
  }
  return nullptr;
}

}  // namespace mutants
