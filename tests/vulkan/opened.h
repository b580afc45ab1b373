// SPDX-License-Identifier: Apache-2.0
// opened.h -- a device for a test, opened without the table, and what the tests put on its streams.
#pragma once

#include <narrows/vulkan.h>

#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

#include "device.h"
#include "test_shaders.h"

namespace narrows::vulkan::test {

// The first device. as_discrete: treated as one whose memory the host does not see, so that copies are staged.
struct Opened {
  explicit Opened(bool as_discrete = false, bool checked = false);
  std::shared_ptr<Loader> loader;
  PhysicalDevice physical;
  std::unique_ptr<Device> device;
  Device* operator->() const { return device.get(); }
  Device& operator*() const { return *device; }
};

// Stands for the application: a VkDevice that the runtime did not make, as it hands it over.
struct Application {
  Application() : features11(opened.physical.features11), features12(opened.physical.features12) {
    features11.pNext = &features12;
    features = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, &features11, opened.physical.features};
    device.struct_size = sizeof device;
    device.queue_family = opened.physical.queue_family;
    device.instance = opened.loader->instance();
    device.physical_device = opened.physical.handle;
    device.device = opened->handle;
    device.queue = opened->queue();
    device.features = &features;
  }
  Application(const Application&) = delete;
  Application& operator=(const Application&) = delete;
  Opened opened;
  VkPhysicalDeviceVulkan11Features features11;
  VkPhysicalDeviceVulkan12Features features12;
  VkPhysicalDeviceFeatures2 features{};
  nw_vulkan_device device{};
};

// Words on the device; freed with it.
struct Words {
  Words(Device& device, std::vector<uint32_t> values);
  ~Words();
  Words(const Words&) = delete;
  Words& operator=(const Words&) = delete;
  std::vector<uint32_t> read(Stream& stream) const;
  Device& device;
  Address address;
  size_t count;
};

// words = words * factor + step[0], for all words or the first `count`, on the stream.
void step(Stream& stream, const Words& words, const Words& by, uint32_t factor = 1);

// A timeline semaphore at 0 of the test's own, and how the host sets it.
VkSemaphore new_timeline(const VolkDeviceTable& vk, VkDevice device);
void set_timeline(const VolkDeviceTable& vk, VkDevice device, VkSemaphore timeline, uint64_t value);

// The first place where the words on the device are others than expected; "" if there is none.
std::string difference(const std::vector<uint32_t>& got, const std::vector<uint32_t>& expected);

// What body throws, as "status: message"; "" if it throws nothing.
template <class Body>
std::string refusal(Body&& body) {
  try {
    body();
  } catch (const Refusal& refusal) {
    return std::to_string(refusal.status) + ": " + refusal.message;
  }
  return "";
}

}  // namespace narrows::vulkan::test
