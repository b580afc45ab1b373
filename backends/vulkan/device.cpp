// device.cpp -- see device.h.
#include "device.h"

namespace narrows::vulkan {

Device::Device(const PhysicalDevice& physical_device, int32_t device_id, bool checked) : physical(physical_device), id(device_id) {
  std::vector<float> priorities(physical.queue_count, 1.0f);
  VkDeviceQueueCreateInfo queues{.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO};
  queues.queueFamilyIndex = physical.queue_family;
  queues.queueCount = physical.queue_count;
  queues.pQueuePriorities = priorities.data();
  // All that it can do, but what costs time and never covers device addresses, or is for debuggers.
  VkPhysicalDeviceFeatures2 features{.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2};
  VkPhysicalDeviceVulkan11Features features11 = physical.features11;
  VkPhysicalDeviceVulkan12Features features12 = physical.features12;
  features.features = physical.features;
  features.features.robustBufferAccess = VK_FALSE;
  features12.bufferDeviceAddressCaptureReplay = features12.bufferDeviceAddressMultiDevice = VK_FALSE;
  features.pNext = &features11;
  features11.pNext = &features12;
  VkDeviceCreateInfo info{.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO};
  info.pNext = &features;
  info.queueCreateInfoCount = 1;
  info.pQueueCreateInfos = &queues;
  vulkan::check(vkCreateDevice(physical.handle, &info, nullptr, &handle), "opening a device");
  volkLoadDeviceTable(&vk, handle);
  queues_ = std::make_unique<Queue[]>(physical.queue_count);
  for (uint32_t i = 0; i < physical.queue_count; ++i) vk.vkGetDeviceQueue(handle, physical.queue_family, i, &queues_[i].handle);
  memory_ = std::make_unique<Memory>(*this, checked);
  kernels_ = std::make_unique<Kernels>(*this);
  default_stream_ = std::make_shared<Stream>(*this, next_queue());
}

Device::~Device() {
  if (!is_lost()) (void)vk.vkDeviceWaitIdle(handle);
  streams_.clear();
  default_stream_.reset();
  kernels_.reset();
  memory_.reset();
  if (!is_lost()) vk.vkDestroyDevice(handle, nullptr);
}

void Device::check(VkResult result, const char* doing) {
  if (result == VK_ERROR_DEVICE_LOST) lose(doing);
  vulkan::check(result, doing);
}

void Device::lose(const char* why) {
  lost_.store(true, std::memory_order_relaxed);
  throw Refusal{NW_DEVICE_LOST, -1, std::string("vulkan: ") + physical.properties.deviceName + " is lost: " + why,
                VK_ERROR_DEVICE_LOST};
}

void Device::refuse_if_lost() const {
  if (is_lost())
    refuse(NW_DEVICE_LOST, -1, "vulkan: %s was lost before; a new process may find it again", physical.properties.deviceName);
}

Queue& Device::next_queue() { return queues_[next_queue_.fetch_add(1, std::memory_order_relaxed) % physical.queue_count]; }

std::shared_ptr<Stream> Device::stream(void* stream) {
  if (stream == nullptr) return default_stream_;
  const std::shared_lock lock(streams_mutex_);
  const auto found = streams_.find(stream);
  if (found == streams_.end())
    refuse(NW_INVALID, -1, "vulkan: stream %p is none of device %d's; expected NULL or one that was created there", stream, id);
  return found->second;
}

void* Device::add_stream() {
  auto made = std::make_shared<Stream>(*this, next_queue());
  void* const key = made.get();
  const std::lock_guard lock(streams_mutex_);
  streams_.emplace(key, std::move(made));
  return key;
}

void Device::remove_stream(void* stream) {
  if (stream == nullptr) refuse(NW_INVALID, -1, "vulkan: stream NULL is the default one, which nobody destroys");
  const std::shared_ptr<Stream> last = this->stream(stream);
  last->sync();
  const std::lock_guard lock(streams_mutex_);
  streams_.erase(stream);
}

}  // namespace narrows::vulkan
