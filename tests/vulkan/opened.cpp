// SPDX-License-Identifier: Apache-2.0
// opened.cpp -- see opened.h.
#include "opened.h"

#include <catch2/catch_translate_exception.hpp>

namespace narrows::vulkan::test {
namespace {

// A refusal that no test expects fails it in its own words.
CATCH_TRANSLATE_EXCEPTION(const Refusal& refusal) { return std::to_string(refusal.status) + ": " + refusal.message; }

PhysicalDevice first_device(const Loader& loader, bool as_discrete) {
  PhysicalDevice physical(loader.instance(), loader.physical_devices().at(0));
  if (as_discrete) physical.properties.deviceType = VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU;
  return physical;
}

}  // namespace

Opened::Opened(bool as_discrete, bool checked)
    : loader(Loader::get()), physical(first_device(*loader, as_discrete)),
      device(std::make_unique<Device>(*loader, physical, 0, checked)) {}

Words::Words(Device& its_device, std::vector<uint32_t> values)
    : device(its_device), address(device.stream(nullptr)->allocate(values.size() * 4)), count(values.size()) {
  REQUIRE(address != 0);
  device.stream(nullptr)->copy_from_host(address, values.data(), count * 4);
}

Words::~Words() {
  if (!device.is_lost()) device.stream(nullptr)->free(address);
}

std::vector<uint32_t> Words::read(Stream& stream) const {
  std::vector<uint32_t> values(count, 0xC5C5C5C5);
  stream.copy_to_host(values.data(), address, count * 4);
  return values;
}

void step(Stream& stream, const Words& words, const Words& by, uint32_t factor) {
  const struct {
    Address words, step;
    uint32_t count, padding;
  } push{words.address, by.address, static_cast<uint32_t>(words.count), 0};
  const Kernel kernel = words.device.kernels().get(shaders::steps, {factor});
  stream.record([&](Recorder& recorder) { recorder.dispatch(kernel, push, ceil_div(static_cast<int64_t>(words.count), 64)); });
}

VkSemaphore new_timeline(const VolkDeviceTable& vk, VkDevice device) {
  VkSemaphoreTypeCreateInfo type{.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO};
  type.semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE;
  VkSemaphoreCreateInfo info{.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO};
  info.pNext = &type;
  VkSemaphore made = VK_NULL_HANDLE;
  REQUIRE(vk.vkCreateSemaphore(device, &info, nullptr, &made) == VK_SUCCESS);
  return made;
}

void set_timeline(const VolkDeviceTable& vk, VkDevice device, VkSemaphore timeline, uint64_t value) {
  const VkSemaphoreSignalInfo info{VK_STRUCTURE_TYPE_SEMAPHORE_SIGNAL_INFO, nullptr, timeline, value};
  REQUIRE(vk.vkSignalSemaphore(device, &info) == VK_SUCCESS);
}

std::string difference(const std::vector<uint32_t>& got, const std::vector<uint32_t>& expected) {
  if (got.size() != expected.size()) return std::to_string(got.size()) + " words, expected " + std::to_string(expected.size());
  for (size_t i = 0; i < got.size(); ++i)
    if (got[i] != expected[i])
      return "word " + std::to_string(i) + " is " + std::to_string(got[i]) + ", expected " + std::to_string(expected[i]);
  return "";
}

}  // namespace narrows::vulkan::test
