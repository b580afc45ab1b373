// SPDX-License-Identifier: Apache-2.0
// modules.h -- SPIR-V modules of other plugins, and "vulkan_kernels/1", by which they run: see abi/include/narrows/vulkan.h.
#pragma once

#include <narrows/vulkan.h>

#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "kernels.h"

namespace narrows::vulkan {

struct Instance;

// Thread-safe. A module stays where it is until the instance goes.
class Modules {
 public:
  // The shader of these words, which are copied. The same words give the same shader. Refuses what is no compute shader with an
  // entry point "main", or has descriptors.
  const Shader& get(const uint32_t* words, uint64_t size);
  bool has(const void* shader) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::vector<uint32_t>, Shader> shaders_;
  std::set<const void*> handles_;  // of these: every dispatch asks
};

// For an instance; `table` is the backend's.
nw_vulkan_kernels make_kernels_extension(Instance& instance, const nw_plugin& table);

}  // namespace narrows::vulkan
