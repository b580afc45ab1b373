// SPDX-License-Identifier: Apache-2.0
// plugin.cpp -- refusals, and the kernel variant that a call forces. Step 4 of a tensor's path.
#include "plugin.h"

#include <cstdarg>
#include <cstdio>

namespace narrows::common {

void refuse(int32_t status, int32_t argument, const char* format, ...) {
  char message[sizeof(nw_error::message)];
  va_list args;
  va_start(args, format);
  std::vsnprintf(message, sizeof(message), format, args);
  va_end(args);
  throw Refusal{status, argument, message};
}

int32_t fail(nw_error* error, int32_t status, int32_t argument, const char* message, int64_t native_code) noexcept {
  if (error != nullptr) {
    error->status = status;
    error->argument = argument;
    error->native_code = native_code;
    std::snprintf(error->message, sizeof(error->message), "%s", message);
  }
  return status;
}

int forced_kernel(const nw_sig& sig, const char* const* kernels, int first) {
  if (sig.kernel == nullptr) return -1;
  std::string names;
  for (int i = first; kernels[i] != nullptr; ++i) {
    if (std::strcmp(kernels[i], sig.kernel) == 0) return i;
    names += names.empty() ? kernels[i] : std::string(", ") + kernels[i];
  }
  refuse(NW_UNSUPPORTED, -1, "%s: this backend has no kernel '%s'; it has %s", sig.op, sig.kernel, names.c_str());
}

}  // namespace narrows::common
