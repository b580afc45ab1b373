// vk.h -- Vulkan's functions, loaded at run time by volk: nothing of Vulkan is needed to load the plugin.
#pragma once

#include <volk.h>

#include "common/plugin.h"

namespace narrows::vulkan {

using namespace common;

const char* name_of(VkResult result);
[[noreturn]] void fail_with(VkResult result, const char* doing);

// Throws Refusal for what is an error: out of memory, device lost, failed. `doing`: "creating a buffer".
inline void check(VkResult result, const char* doing) {
  if (result < 0) fail_with(result, doing);
}

inline int64_t ceil_div(int64_t n, int64_t d) { return (n + d - 1) / d; }
inline uint64_t round_up(uint64_t n, uint64_t unit) { return (n + unit - 1) / unit * unit; }

}  // namespace narrows::vulkan
