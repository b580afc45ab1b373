// SPDX-License-Identifier: Apache-2.0
// device.cpp -- see device.h.
#include "device.h"

#include "shaders.h"

namespace narrows::vulkan {

void Queue::lock() {
  mutex_.lock();
  if (lock_ != nullptr) lock_(lock_ctx_);
}

void Queue::unlock() {
  if (unlock_ != nullptr) unlock_(lock_ctx_);
  mutex_.unlock();
}

Device::Device(bool is_adopted, Loader& its_loader, const PhysicalDevice& physical_device, int32_t device_id)
    : loader(its_loader), physical(physical_device), id(device_id), instance(its_loader.instance()), adopted_(is_adopted) {
  queues_ = std::make_unique<Queue[]>(physical.queue_count);
}

// Where this throws, the destructor runs, since the other constructor is through.
Device::Device(Loader& its_loader, const PhysicalDevice& physical_device, int32_t device_id, bool checked,
               const nw_vulkan_device* adopted)
    : Device(adopted != nullptr, its_loader, physical_device, device_id) {
  adopted != nullptr ? adopt(*adopted) : open();
  memory_ = std::make_unique<Memory>(*this, checked);
  kernels_ = std::make_unique<Kernels>(*this);
  default_stream_ = std::make_shared<Stream>(*this, next_queue());
}

void Device::adopt(const nw_vulkan_device& device) {
  instance = static_cast<VkInstance>(device.instance);
  handle = static_cast<VkDevice>(device.device);
  volkLoadDeviceTable(&vk, handle);
  queues_[0].handle = static_cast<VkQueue>(device.queue);
  queues_[0].lock_ctx_ = device.lock_ctx;
  queues_[0].lock_ = device.lock;
  queues_[0].unlock_ = device.unlock;
}

void Device::open() {
  const std::vector<float> priorities(physical.queue_count, 1.0f);
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
  VkPhysicalDeviceSubgroupSizeControlFeatures full{.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES};
  full.computeFullSubgroups = VK_TRUE;
  VkPhysicalDeviceCooperativeMatrixFeaturesKHR matrices{
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR, .pNext = &full, .cooperativeMatrix = VK_TRUE};
  VkPhysicalDeviceShaderBfloat16FeaturesKHR bf16{.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_BFLOAT16_FEATURES_KHR,
                                                 .pNext = &matrices,
                                                 .shaderBFloat16Type = VK_TRUE,
                                                 .shaderBFloat16CooperativeMatrix = VK_TRUE};
  if (physical.matrix_units) features12.pNext = &matrices;
  if (physical.matrix_units.bf16) features12.pNext = &bf16;
  const std::vector<const char*> extensions = physical.wanted_extensions();
  VkDeviceCreateInfo info{.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO};
  info.pNext = &features;
  info.queueCreateInfoCount = 1;
  info.pQueueCreateInfos = &queues;
  info.enabledExtensionCount = static_cast<uint32_t>(extensions.size());
  info.ppEnabledExtensionNames = extensions.data();
  vulkan::check(vkCreateDevice(physical.handle, &info, nullptr, &handle), "opening a device");
  volkLoadDeviceTable(&vk, handle);
  for (uint32_t i = 0; i < physical.queue_count; ++i) vk.vkGetDeviceQueue(handle, physical.queue_family, i, &queues_[i].handle);
}

Device::~Device() { close(); }

// Nobody uses it any more. Streams are waited for while progress() still counts them.
bool Device::close() {
  if (handle == VK_NULL_HANDLE) return false;  // it could not be opened
  const auto finish = [](Stream& stream) {
    try {
      stream.finish();
    } catch (...) {  // out of memory, which its end looks after, or lost
    }
  };
  for (const auto& [key, stream] : streams_) finish(*stream);
  if (default_stream_ != nullptr) finish(*default_stream_);
  // After the streams, which are waited for no longer than NARROWS_VULKAN_TIMEOUT says.
  if (!is_lost() && !adopted_ && vk.vkDeviceWaitIdle(handle) == VK_ERROR_DEVICE_LOST)
    gone_.store("was lost before", std::memory_order_relaxed);
  const bool lost = is_lost();
  std::map<void*, std::shared_ptr<Stream>>().swap(streams_);
  default_stream_.reset();
  kernels_.reset();
  memory_.reset();
  if (!adopted_) lost ? loader.keep_instance() : vk.vkDestroyDevice(handle, nullptr);
  if (!lost) gone_.store("was released", std::memory_order_relaxed);
  return !lost;
}

void Device::refuse_released() const {
  refuse(NW_DEVICE_LOST, -1, "vulkan: device %d, %s, was released", id, physical.properties.deviceName);
}

// New calls are refused before the lock is asked for, so that those of other threads cannot keep it.
void Device::release() {
  refuse_if_lost();
  if (released_.exchange(true)) refuse_released();
  const std::lock_guard lock(in_use_);
  if (!close()) refuse_if_lost();
}

DeviceInUse::DeviceInUse(Device& device) : device_(device) {
  if (device.adopted_) {
    if (device.released_) device.refuse_released();
    lock_ = std::shared_lock(device.in_use_);
    if (device.released_) device.refuse_released();
  }
  device.refuse_if_lost();
}

void Device::check(VkResult result, const char* doing) {
  if (result == VK_ERROR_DEVICE_LOST) lose(doing);
  vulkan::check(result, doing);
}

void Device::lose(const char* why) {
  gone_.store("was lost before; a new process may find it again", std::memory_order_relaxed);
  throw Refusal{NW_DEVICE_LOST, -1, std::string("vulkan: ") + physical.properties.deviceName + " is lost: " + why,
                VK_ERROR_DEVICE_LOST};
}

void Device::refuse_if_lost() const {
  if (const char* const how = gone_.load(std::memory_order_relaxed))
    refuse(NW_DEVICE_LOST, -1, "vulkan: device %d, %s, %s", id, physical.properties.deviceName, how);
}

// Tried, not looked up: drivers have no version by which all of their builds could be told.
bool Device::runs_long_loops() {
  constexpr uint32_t kCount = 1 << 17;
  std::call_once(loops_tried_, [&] {
    uint32_t expected = 1, got = 0;
    for (uint32_t i = 0; i < kCount; ++i) expected = expected * 1664525 + 1013904223;
    const Kernel kernel = kernels_->get(shaders::long_loop);
    const struct {
      Address to;
      uint32_t count, padding;
    } push{default_stream_->allocate(sizeof got), kCount, 0};
    if (push.to == 0)
      refuse(NW_OUT_OF_MEMORY, -1, "vulkan: cannot allocate %zu bytes on device %d to test how long its loops run", sizeof got, id);
    try {
      default_stream_->record([&](Recorder& recorder) { recorder.dispatch(kernel, push, 1); });
      default_stream_->copy_to_host(&got, push.to, sizeof got);
    } catch (...) {
      default_stream_->free(push.to);
      throw;
    }
    default_stream_->free(push.to);
    loops_end_early_ = got != expected;
  });
  return !loops_end_early_;
}

bool Device::runs_loops(double iterations) { return iterations < kFewestLoops || !physical.is_cpu() || runs_long_loops(); }

void Device::check_loops(double iterations) {
  if (runs_loops(iterations)) return;
  refuse(NW_UNSUPPORTED, -1,
         "vulkan: a thread of this call loops %.0f times, and %s (%s) ends such loops early; use a newer driver, such as Mesa 25",
         iterations, physical.properties.deviceName, physical.properties12.driverInfo);
}

Queue& Device::next_queue() { return queues_[next_queue_.fetch_add(1, std::memory_order_relaxed) % physical.queue_count]; }

std::shared_ptr<Stream> Device::stream(void* stream) {
  refuse_if_lost();
  if (stream == nullptr) return default_stream_;
  const std::shared_lock lock(streams_mutex_);
  const auto found = streams_.find(stream);
  if (found == streams_.end())
    refuse(NW_INVALID, -1, "vulkan: stream %p does not belong to device %d; expected NULL or one that was created there", stream,
           id);
  return found->second;
}

Device::Progress Device::progress() const {
  Progress all{};
  const auto add = [&](const Stream& stream) {
    all.done += stream.completed();
    all.waits_for_application |= stream.waits_for_application();
  };
  const std::shared_lock lock(streams_mutex_);
  if (default_stream_ != nullptr) add(*default_stream_);
  for (const auto& [handle, stream] : streams_) add(*stream);
  return all;
}

void* Device::add_stream() {
  refuse_if_lost();
  auto made = std::make_shared<Stream>(*this, next_queue());
  void* const key = made.get();
  const std::lock_guard lock(streams_mutex_);
  streams_.emplace(key, std::move(made));
  return key;
}

void Device::remove_stream(void* stream) {
  if (stream == nullptr)
    refuse(NW_INVALID, -1, "vulkan: stream is NULL, the default stream; expected one that nw_stream_create() made");
  const std::shared_ptr<Stream> last = this->stream(stream);
  last->sync();
  const std::lock_guard lock(streams_mutex_);
  streams_.erase(stream);
}

}  // namespace narrows::vulkan
