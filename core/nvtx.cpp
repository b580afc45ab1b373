// SPDX-License-Identifier: Apache-2.0
// nvtx.cpp -- see nvtx.h. NVTX is no library: whoever marks ranges loads the tool that NVTX_INJECTION64_PATH names, and lends it
// tables of function pointers, one for each module of the interface, into which the tool writes what it wants to be called by.
// Only the two functions of a range are called here; the other slots exist because a tool may write to each.
#include "core/nvtx.h"

#include <dlfcn.h>
#include <stdlib.h>

#include <cstddef>
#include <cstdint>
#include <iterator>

namespace narrows {

std::atomic<const NvtxFunctions*> nvtx{nullptr};

namespace {

using Function = void (*)();

// The modules from 1 on: core, CUDA, OpenCL, CUDA's runtime, core 2, sync. Slot 0 of each is none.
constexpr unsigned kSlots[] = {0, 16, 9, 16, 7, 16, 7};
constexpr unsigned kModules = std::size(kSlots), kCore = 1, kMostSlots = 16;
constexpr unsigned kRangePushA = 9, kRangePop = 11;
constexpr uint32_t kCallbacks = 1, kVersionInfo = 3, kVersion = 3;

struct Tables {
  Function functions[kModules][kMostSlots] = {};
  Function* slots[kModules][kMostSlots + 1] = {};  // ends with NULL

  Tables() {
    for (unsigned m = 1; m < kModules; ++m)
      for (unsigned i = 1; i < kSlots[m]; ++i) slots[m][i] = &functions[m][i];
  }
};
Tables tables;

int get_table(uint32_t module, Function*** table, unsigned* size) {
  if (module == 0 || module >= kModules) return 0;
  if (table != nullptr) *table = tables.slots[module];
  if (size != nullptr) *size = kSlots[module];
  return 1;
}

struct Callbacks {
  size_t struct_size;
  int (*get_table)(uint32_t module, Function*** table, unsigned* size);
};
struct VersionInfo {
  size_t struct_size;
  uint32_t version, reserved;
  void (*set_tool_version)(uint32_t version);
};

const void* export_table(uint32_t id) {
  static const Callbacks callbacks{sizeof(Callbacks), get_table};
  static const VersionInfo info{sizeof(VersionInfo), kVersion, 0, [](uint32_t) {}};
  if (id == kCallbacks) return &callbacks;
  return id == kVersionInfo ? &info : nullptr;
}

// NULL: a tool listens, or there is none. Else why the one that is named does not.
const char* attach() {
  const char* const path = secure_getenv("NVTX_INJECTION64_PATH");
  if (path == nullptr || *path == '\0') return nullptr;
  void* const tool = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
  if (tool == nullptr) return "it cannot be loaded";
  using Initialize = int (*)(const void* (*)(uint32_t));
  const auto initialize = reinterpret_cast<Initialize>(dlsym(tool, "InitializeInjectionNvtx2"));
  if (initialize == nullptr) return "it exports no InitializeInjectionNvtx2";
  if (initialize(export_table) == 0) return "its InitializeInjectionNvtx2 gives 0";
  static NvtxFunctions functions;
  functions.push = reinterpret_cast<int (*)(const char*)>(tables.functions[kCore][kRangePushA]);
  functions.pop = reinterpret_cast<int (*)()>(tables.functions[kCore][kRangePop]);
  if (functions.push != nullptr && functions.pop != nullptr) nvtx.store(&functions, std::memory_order_release);
  return nullptr;
}

}  // namespace

const char* attach_nvtx() {
  static const char* const why_not = attach();
  return why_not;
}

}  // namespace narrows
