// SPDX-License-Identifier: Apache-2.0
// kernels.cpp -- see kernels.h.
#include "kernels.h"

#include <algorithm>

#include "device.h"
#include "pipeline_cache.h"
#include "spirv.h"

namespace narrows::vulkan {
namespace {

// The specialization constants of shaders/common.glsl, math_f32.glsl and bits.glsl.
constexpr uint32_t kRowShift = 29, kFuses = 30, kConvertsHalves = 31;

}  // namespace

Kernels::Kernels(Device& device) : device_(device) {
  const VkPushConstantRange range{VK_SHADER_STAGE_COMPUTE_BIT, 0, kPushBytes};
  VkPipelineLayoutCreateInfo info{.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO};
  info.pushConstantRangeCount = 1;
  info.pPushConstantRanges = &range;
  device_.check(device_.vk.vkCreatePipelineLayout(device_.handle, &info, nullptr, &layout_), "creating a pipeline layout");
  try {
    load_cache();
  } catch (...) {
    device_.vk.vkDestroyPipelineLayout(device_.handle, layout_, nullptr);
    throw;
  }
}

void Kernels::load_cache() {
  cache_file_ = pipeline_cache_file(device_.physical);
  const std::vector<char> kept = cache_file_.empty() ? std::vector<char>{} : read_pipeline_cache(cache_file_);
  VkPipelineCacheCreateInfo info{.sType = VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO};
  info.initialDataSize = kept.size();
  info.pInitialData = kept.data();
  device_.check(device_.vk.vkCreatePipelineCache(device_.handle, &info, nullptr, &cache_), "creating a pipeline cache");
  was_kept_ = kept.size();
}

// Only what has grown is written.
void Kernels::save_cache() noexcept {
  if (cache_file_.empty() || device_.is_lost()) return;
  const std::lock_guard lock(save_mutex_);
  try {
    size_t size = 0;
    if (device_.vk.vkGetPipelineCacheData(device_.handle, cache_, &size, nullptr) < 0 || size <= was_kept_) return;
    std::vector<char> data(size);
    if (device_.vk.vkGetPipelineCacheData(device_.handle, cache_, &size, data.data()) != VK_SUCCESS) return;
    data.resize(size);
    if (write_pipeline_cache(cache_file_, data)) was_kept_ = size;
  } catch (const std::exception&) {
    // Out of memory: the next process compiles again.
  }
}

// Many processes end without destroying their runtime, so the cache is saved as it grows: the first pipeline at once, later ones
// when they have taken so long that saving does not count.
void Kernels::save_if_worth(Duration spent) {
  constexpr int kTimes = 16;
  {
    const std::lock_guard lock(mutex_);
    unsaved_ += spent;
    if (unsaved_ < kTimes * save_took_) return;
    unsaved_ = {};
  }
  const auto start = std::chrono::steady_clock::now();
  save_cache();
  const std::lock_guard lock(mutex_);
  save_took_ = std::chrono::steady_clock::now() - start;
}

Kernels::~Kernels() {
  if (device_.is_lost()) return;
  if (!made_.empty()) save_cache();
  for (const auto& [key, made] : made_) device_.vk.vkDestroyPipeline(device_.handle, made.kernel.pipeline, nullptr);
  device_.vk.vkDestroyPipelineCache(device_.handle, cache_, nullptr);
  device_.vk.vkDestroyPipelineLayout(device_.handle, layout_, nullptr);
}

Kernel Kernels::get(const Shader& shader, const std::vector<uint32_t>& constants) {
  device_.refuse_if_lost();
  const std::pair key(&shader, constants);
  std::unique_lock lock(mutex_);
  auto found = made_.find(key);
  // Where the other thread fails the key is gone: this one tries again.
  while (found != made_.end() && found->second.kernel.pipeline == VK_NULL_HANDLE) {
    made_one_.wait(lock);
    found = made_.find(key);
  }
  if (found != made_.end()) {
    found->second.last_asked = ++asked_;
    return found->second.kernel;
  }
  forget_old();
  found = made_.emplace(key, Made{{VK_NULL_HANDLE, std::make_shared<int>()}, ++asked_}).first;
  lock.unlock();
  const auto start = std::chrono::steady_clock::now();
  VkPipeline pipeline = VK_NULL_HANDLE;
  try {
    pipeline = make(shader, constants);
  } catch (...) {
    lock.lock();
    made_.erase(found);
    made_one_.notify_all();
    throw;
  }
  lock.lock();
  found->second.kernel.pipeline = pipeline;
  const Kernel kernel = found->second.kernel;
  lock.unlock();
  made_one_.notify_all();
  save_if_worth(std::chrono::steady_clock::now() - start);
  return kernel;
}

// Of those that nobody has, the older half goes.
void Kernels::forget_old() {
  if (made_.size() < most) return;
  std::vector<decltype(made_)::iterator> idle;
  for (auto it = made_.begin(); it != made_.end(); ++it)
    if (it->second.kernel.use.use_count() == 1 && it->second.kernel.pipeline != VK_NULL_HANDLE) idle.push_back(it);
  std::sort(idle.begin(), idle.end(), [](auto a, auto b) { return a->second.last_asked < b->second.last_asked; });
  idle.resize((idle.size() + 1) / 2);
  for (const auto it : idle) {
    device_.vk.vkDestroyPipeline(device_.handle, it->second.kernel.pipeline, nullptr);
    made_.erase(it);
  }
}

size_t Kernels::count() {
  const std::lock_guard lock(mutex_);
  return made_.size();
}

VkPipeline Kernels::make(const Shader& shader, const std::vector<uint32_t>& constants) {
  const std::vector<uint32_t> words = words_for(device_.physical, shader, constants);
  std::vector<VkSpecializationMapEntry> entries;
  entries.reserve(constants.size() + 3);
  for (uint32_t i = 0; i < constants.size(); ++i) entries.push_back({i, i * 4, 4});
  std::vector<uint32_t> values = constants;
  const auto add = [&](uint32_t id, uint32_t value) {
    entries.push_back({id, static_cast<uint32_t>(values.size()) * 4, 4});
    values.push_back(value);
  };
  add(kRowShift, device_.physical.row_shift());
  add(kFuses, device_.physical.fma_rounds_once ? 1 : 0);
  add(kConvertsHalves, device_.physical.converts_halves ? 1 : 0);
  const VkSpecializationInfo specialization{static_cast<uint32_t>(entries.size()), entries.data(), values.size() * 4,
                                            values.data()};

  VkShaderModuleCreateInfo module_info{.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO};
  module_info.codeSize = words.size() * sizeof(uint32_t);
  module_info.pCode = words.data();
  VkShaderModule module = VK_NULL_HANDLE;
  device_.check(device_.vk.vkCreateShaderModule(device_.handle, &module_info, nullptr, &module), "creating a shader module");
  VkComputePipelineCreateInfo info{.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO};
  info.stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO};
  info.stage.stage = VK_SHADER_STAGE_COMPUTE_BIT;
  info.stage.module = module;
  info.stage.pName = "main";
  if (uses_matrices(words)) info.stage.flags = VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT;
  info.stage.pSpecializationInfo = &specialization;
  info.layout = layout_;
  VkPipeline pipeline = VK_NULL_HANDLE;
  const VkResult result = device_.vk.vkCreateComputePipelines(device_.handle, cache_, 1, &info, nullptr, &pipeline);
  device_.vk.vkDestroyShaderModule(device_.handle, module, nullptr);
  device_.check(result, "creating a compute pipeline");
  return pipeline;
}

}  // namespace narrows::vulkan
