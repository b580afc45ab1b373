// SPDX-License-Identifier: Apache-2.0
// loader.h -- Vulkan's loader and one VkInstance, shared by the runtimes of a process.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "vk.h"

namespace narrows::vulkan {

// Real GPUs come first: their place among devices, which keep the loader's order within one.
int rank_of(VkPhysicalDeviceType type);

// Opens libvulkan.so.1 and makes the instance; throws NW_UNAVAILABLE and what to install.
// NARROWS_VULKAN_VALIDATION=api turns on Khronos's validation layer, =gpu its checks within shaders too. What it says is then an
// error of the call during which it says so, or of the next one; what no call has said by the end goes to stderr.
class Loader {
 public:
  static std::shared_ptr<Loader> get();  // the process's one, made if there is none
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  VkInstance instance() const { return instance_; }
  // Real GPUs first, then the order of the loader. NARROWS_VULKAN_DEVICE, if set, is the index of the only one that counts.
  std::vector<VkPhysicalDevice> physical_devices() const;
  // A device was lost and stays undestroyed: so does the instance, which must not go before its devices.
  void keep_instance() { keeps_instance_.store(true); }
  void add_message(const char* message);  // that something was invalid
  // Throws what the validation layer, or who else, has said since the last call.
  void refuse_if_invalid();

 private:
  Loader() = default;
  void open();
  void create(const char* validation);
  void listen();
  VkDebugUtilsMessengerCreateInfoEXT listener();

  VkInstance instance_ = VK_NULL_HANDLE;
  VkDebugUtilsMessengerEXT messenger_ = VK_NULL_HANDLE;
  std::atomic<bool> keeps_instance_{false};
  std::atomic<bool> has_message_{false};
  std::mutex message_mutex_;
  std::string message_;  // the first since the last call
};

}  // namespace narrows::vulkan
