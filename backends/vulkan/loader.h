// loader.h -- Vulkan's loader and one VkInstance, shared by the runtimes of a process. Step 4 of a tensor's path.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "vk.h"

namespace narrows::vulkan {

// Opens libvulkan.so.1 and makes the instance; throws NW_UNAVAILABLE and what to install.
class Loader {
 public:
  static std::shared_ptr<Loader> get();  // the process's one, made if there is none
  ~Loader();

  VkInstance instance() const { return instance_; }
  // Real GPUs first, then the order of the loader. NARROWS_VULKAN_DEVICE, if set, is the index of the only one that counts.
  std::vector<VkPhysicalDevice> physical_devices() const;

 private:
  Loader();
  VkInstance instance_ = VK_NULL_HANDLE;
};

}  // namespace narrows::vulkan
