// SPDX-License-Identifier: Apache-2.0
// instance.cpp -- see backend.h and vk.h.
#include "backend.h"

namespace narrows::vulkan {

Slot& Instance::slot(int32_t id) const {
  const std::shared_lock lock(mutex_);
  if (id < 0 || static_cast<size_t>(id) >= slots_.size())
    refuse(NW_INVALID, -1, "vulkan: device %d was asked for; there are %zu, from 0", id, slots_.size());
  return *slots_[static_cast<size_t>(id)];
}

Device& Instance::device(int32_t id) const {
  Slot& slot = this->slot(id);
  const std::lock_guard lock(slot.mutex);
  if (slot.device == nullptr) slot.device = std::make_unique<Device>(*loader, slot.physical, id, checked);
  return *slot.device;
}

int32_t Instance::count() const {
  const std::shared_lock lock(mutex_);
  return static_cast<int32_t>(slots_.size());
}

int32_t Instance::add(const PhysicalDevice& physical, const nw_vulkan_device* adopted) {
  auto slot = std::make_unique<Slot>(physical);
  const std::lock_guard lock(mutex_);
  const auto id = static_cast<int32_t>(slots_.size());
  if (adopted != nullptr) slot->device = std::make_unique<Device>(*loader, slot->physical, id, checked, adopted);
  slots_.push_back(std::move(slot));
  return id;
}

const char* name_of(VkResult result) {
  switch (result) {
    case VK_ERROR_OUT_OF_HOST_MEMORY: return "out of host memory";
    case VK_ERROR_OUT_OF_DEVICE_MEMORY: return "out of device memory";
    case VK_ERROR_INITIALIZATION_FAILED: return "initialization failed";
    case VK_ERROR_DEVICE_LOST: return "device lost";
    case VK_ERROR_MEMORY_MAP_FAILED: return "mapping memory failed";
    case VK_ERROR_TOO_MANY_OBJECTS: return "too many objects";
    case VK_ERROR_INVALID_EXTERNAL_HANDLE: return "invalid external handle";
    default: return "an error of the driver";
  }
}

void fail_with(VkResult result, const char* doing) {
  const bool memory = result == VK_ERROR_OUT_OF_HOST_MEMORY || result == VK_ERROR_OUT_OF_DEVICE_MEMORY;
  const int32_t status = memory ? NW_OUT_OF_MEMORY : result == VK_ERROR_DEVICE_LOST ? NW_DEVICE_LOST : NW_FAILED;
  throw Refusal{status, -1, std::string("vulkan: ") + doing + ": " + name_of(result) + " (" + std::to_string(result) + ")", result};
}

}  // namespace narrows::vulkan
