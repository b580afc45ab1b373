// SPDX-License-Identifier: Apache-2.0
// instance.cpp -- see backend.h and vk.h.
#include "backend.h"
#include "core/byte_range.h"

namespace narrows::vulkan {
namespace {

void require_live(Device& device, const DLTensor& t, int32_t index) {
  const auto [begin, end] = byte_range(t);
  const Memory& memory = device.memory();
  if (begin == end || memory.find(begin, end)) return;
  const auto near = memory.near(begin);
  const auto number = [](Address a) { return static_cast<unsigned long long>(a); };
  if (near && begin < near->second)
    refuse(NW_INVALID, index, "tensor %d: bytes [0x%llx, 0x%llx) leave the allocation [0x%llx, 0x%llx)", index, number(begin),
           number(end), number(near->first), number(near->second));
  refuse(NW_INVALID, index,
         "tensor %d: bytes [0x%llx, 0x%llx) lie in no live allocation of device %d: a host pointer, an address of another device, "
         "or freed",
         index, number(begin), number(end), device.id);
}

}  // namespace

void require_live(Device& device, const nw_call& call, uint64_t workspace_size) {
  for (uint32_t i = 0; i < call.num_inputs + call.num_outputs; ++i) {
    const DLTensor* t = i < call.num_inputs ? call.inputs[i] : call.outputs[i - call.num_inputs];
    if (t != nullptr) require_live(device, *t, static_cast<int32_t>(i));
  }
  if (workspace_size != 0 && !device.memory().find(workspace(call), workspace(call) + workspace_size))
    refuse(NW_INVALID, -1, "%s: workspace %p of %llu bytes lies in no live allocation of device %d", call.op, call.workspace,
           static_cast<unsigned long long>(workspace_size), device.id);
}

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
