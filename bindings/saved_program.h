// SPDX-License-Identifier: Apache-2.0
// saved_program.h -- how libnarrows_torch and libnarrows_xla load a program that a saved model carries: by libnarrows_program,
// which is beside them where there is isl. They do not link it.
#pragma once

#include <dlfcn.h>
#include <narrows/program.h>

#include <cstdio>
#include <string>

namespace narrows {

// nw_program_load_saved(). `who` stands in front of the errors of this function's own.
inline int32_t load_saved_program(nw_runtime* runtime, const char* who, const std::string& saved, const nw_op** op,
                                  nw_error* error) {
  static void* const library = dlopen("libnarrows_program.so.1", RTLD_NOW | RTLD_LOCAL);
  static const auto load =
      reinterpret_cast<decltype(&nw_program_load_saved)>(library == nullptr ? nullptr : dlsym(library, "nw_program_load_saved"));
  if (load == nullptr) {
    std::snprintf(
        error->message, sizeof error->message,
        "%s is a tensor program, and this process has no libnarrows_program.so.1, which reads it; expected a narrows that "
        "was built where isl is",
        who);
    return error->status = NW_UNAVAILABLE;
  }
  if (const size_t nul = saved.find('\0'); nul != std::string::npos) {
    std::snprintf(error->message, sizeof error->message, "%s: the saved program has a NUL at %zu; expected text without one", who,
                  nul);
    return error->status = NW_INVALID;
  }
  return load(runtime, saved.c_str(), op, error);
}

}  // namespace narrows
