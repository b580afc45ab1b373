// kernels.h -- compute pipelines: made when a plan asks for one, kept until the device is closed. Step 5 of a tensor's path.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "vk.h"

namespace narrows::vulkan {

class Device;

// A compiled module of shaders/, its words within the plugin.
struct Shader {
  const char* name;
  const uint32_t* words;
  size_t size;  // bytes
};

// A pipeline, and the layout that all share: 128 bytes of push constants, which every device has, and no descriptors.
struct Kernel {
  VkPipeline pipeline = VK_NULL_HANDLE;
};
inline constexpr uint32_t kPushBytes = 128;

class Kernels {
 public:
  explicit Kernels(Device& device);
  ~Kernels();

  // `constants`: values of the specialization constants 0, 1, 2, ...; those not given keep their defaults. Thread-safe.
  // Refuses, with NW_UNSUPPORTED and the reason, a module that needs what the device lacks.
  Kernel get(const Shader& shader, const std::vector<uint32_t>& constants = {});
  VkPipelineLayout layout() const { return layout_; }

 private:
  VkPipeline make(const Shader& shader, const std::vector<uint32_t>& constants);
  void load_cache();
  void save_cache() noexcept;

  Device& device_;
  VkPipelineLayout layout_ = VK_NULL_HANDLE;
  VkPipelineCache cache_ = VK_NULL_HANDLE;
  std::string cache_file_;  // "": none
  size_t was_kept_ = 0;     // bytes of it that were there
  std::mutex mutex_;
  std::map<std::pair<const Shader*, std::vector<uint32_t>>, VkPipeline> made_;
};

}  // namespace narrows::vulkan
