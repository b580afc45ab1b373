// SPDX-License-Identifier: Apache-2.0
// kernels.h -- compute pipelines: made when a plan asks for one, kept while a plan or work on its way has it, and some longer.
#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
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
  // Not where the build's compilers did not know what it is written in.
  bool is_there() const { return size > sizeof(uint32_t); }
};

// A pipeline, and the layout that all share: 128 bytes of push constants, which every device has, and no descriptors.
struct Kernel {
  VkPipeline pipeline = VK_NULL_HANDLE;
  std::shared_ptr<const void> use;  // while it lives the pipeline does, until the device is closed
};
inline constexpr uint32_t kPushBytes = 128;

class Kernels {
 public:
  explicit Kernels(Device& device);
  ~Kernels();

  // `constants`: values of the specialization constants 0, 1, 2, ...; those not given keep their defaults. Thread-safe: one thread
  // makes a pipeline, others that want the same wait for it, and nobody else waits.
  // Refuses, with NW_UNSUPPORTED and the reason, a module that needs what the device lacks.
  Kernel get(const Shader& shader, const std::vector<uint32_t>& constants = {});
  VkPipelineLayout layout() const { return layout_; }
  size_t count();  // pipelines that there are
  // So many are made before some are forgotten. A GPU's driver keeps some ten KB for one, lavapipe 1.5 MB.
  size_t most = 4096;

 private:
  using Duration = std::chrono::steady_clock::duration;
  struct Made {
    Kernel kernel;  // without a pipeline while one thread makes it
    uint64_t last_asked = 0;
  };
  VkPipeline make(const Shader& shader, const std::vector<uint32_t>& constants);
  void forget_old();
  void load_cache();
  void save_cache() noexcept;
  void save_if_worth(Duration spent);

  Device& device_;
  VkPipelineLayout layout_ = VK_NULL_HANDLE;
  VkPipelineCache cache_ = VK_NULL_HANDLE;
  std::string cache_file_;  // "": none
  std::mutex save_mutex_;
  size_t was_kept_ = 0;  // bytes of it that are there
  std::mutex mutex_;
  std::condition_variable made_one_;  // or failed to
  std::map<std::pair<const Shader*, std::vector<uint32_t>>, Made> made_;
  uint64_t asked_ = 0;    // calls of get()
  Duration unsaved_{};    // that pipelines have taken since the cache was saved,
  Duration save_took_{};  // and that saving it took then
};

}  // namespace narrows::vulkan
