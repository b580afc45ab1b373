// SPDX-License-Identifier: Apache-2.0
// A lost device under the public API: which of the driver's calls says so does not matter, it stays lost, and the process lives.
#include <cstring>
#include <optional>
#include <utility>

#include "driver.h"
#include "opened.h"
#include "runtime.h"

namespace narrows::vulkan::test {
namespace {

// A runtime whose device 0 has work on its default stream that waits for a semaphore of the application's, until this goes.
struct Blocked {
  Blocked() {
    nw_vulkan_device device{};
    device.struct_size = sizeof device;
    REQUIRE(rt.vulkan->device(rt.vulkan->self, 0, &device, nullptr) == NW_OK);
    handle = static_cast<VkDevice>(device.device);
    volkLoadDeviceTable(&vk, handle);
    semaphore = new_timeline(vk, handle);
    REQUIRE(nw_alloc(rt.handle, on(0), 4000, nullptr, &data, nullptr) == NW_OK);
    REQUIRE(run() == NW_OK);
    REQUIRE(nw_stream_sync(rt.handle, on(0), nullptr, nullptr) == NW_OK);
    REQUIRE(rt.vulkan->stream_wait(rt.vulkan->self, 0, nullptr, reinterpret_cast<uint64_t>(semaphore), 1, nullptr) == NW_OK);
    REQUIRE(run() == NW_OK);
  }
  int32_t run() { return add(rt, 0, data, data, data, 1000, &error); }
  // A lost device's objects are nobody's any more, but the driver's own threads end.
  void release() { set_timeline(vk, handle, semaphore, 1); }
  Runtime rt{here()};
  VkDevice handle = VK_NULL_HANDLE;
  VolkDeviceTable vk{};
  VkSemaphore semaphore = VK_NULL_HANDLE;
  void* data = nullptr;
  nw_error error{};
};

void is_lost_for_good(Blocked& b) {
  for (int i = 0; i < 2; ++i) {
    CHECK(b.run() == NW_DEVICE_LOST);
    INFO(b.error.message);
    CHECK(std::strstr(b.error.message, "was lost before; a new process may find it again") != nullptr);
  }
  void* more = nullptr;
  CHECK(nw_alloc(b.rt.handle, on(0), 4000, nullptr, &more, nullptr) == NW_DEVICE_LOST);
  CHECK(nw_stream_sync(b.rt.handle, on(0), nullptr, nullptr) == NW_DEVICE_LOST);
  CHECK(nw_stream_create(b.rt.handle, on(0), &more, nullptr) == NW_DEVICE_LOST);
  CHECK(add(b.rt, 0, b.data, b.data, b.data, 999) == NW_DEVICE_LOST);  // nor is anything planned
}

TEST_CASE("lost: nw_stream_sync says what a wait has found, and so does every later call", "[faults]") {
  for (const char* function : {"vkWaitSemaphores", "vkGetSemaphoreCounterValue"}) {
    Driver driver;
    Blocked b;
    driver.fail(0, VK_ERROR_DEVICE_LOST, function);
    CHECK(nw_stream_sync(b.rt.handle, on(0), nullptr, &b.error) == NW_DEVICE_LOST);
    INFO(b.error.message);
    CHECK(std::strstr(b.error.message, " is lost: ") != nullptr);
    CHECK(driver.has_failed());
    driver.calm();
    is_lost_for_good(b);
    b.release();
  }
}

TEST_CASE("lost: nw_run says so where it submits, or ends what was recorded", "[faults]") {
  const std::pair<const char*, VkResult> faults[] = {{"vkQueueSubmit", VK_ERROR_DEVICE_LOST},
                                                     {"vkGetSemaphoreCounterValue", VK_ERROR_DEVICE_LOST},
                                                     {"vkEndCommandBuffer", VK_ERROR_DEVICE_LOST},
                                                     // What was recorded is gone, of calls that went well.
                                                     {"vkEndCommandBuffer", VK_ERROR_OUT_OF_HOST_MEMORY}};
  for (const auto& [function, result] : faults) {
    INFO(function << " " << result);
    Driver driver;
    Blocked b;
    driver.fail(0, result, function);
    int32_t status = NW_OK;
    for (int i = 0; i < 64 * 20 && status == NW_OK; ++i) status = b.run();
    CHECK(status == NW_DEVICE_LOST);
    CHECK(driver.has_failed());
    driver.calm();
    is_lost_for_good(b);
    b.release();
  }
}

TEST_CASE("lost: nw_runtime_destroy comes back, and the next runtime opens the device anew", "[faults]") {
  for (const char* function : {"vkDeviceWaitIdle", ""}) {
    Driver driver;
    std::optional<Blocked> b(std::in_place);
    driver.fail(0, VK_ERROR_DEVICE_LOST, *function != '\0' ? function : "vkWaitSemaphores");
    if (*function == '\0') CHECK(nw_stream_sync(b->rt.handle, on(0), nullptr, nullptr) == NW_DEVICE_LOST);  // lost before
    const VolkDeviceTable vk = b->vk;
    const VkDevice device = b->handle;
    const VkSemaphore semaphore = b->semaphore;
    if (*function != '\0') b->release();  // it is asked when streams have come to their end
    b.reset();
    CHECK(driver.has_failed());
    driver.calm();
    CHECK(driver.left_over().at("vkCreateDevice") == 1);  // a lost device is left alone
    if (*function == '\0') set_timeline(vk, device, semaphore, 1);
    const Runtime rt(here());
    void* data = nullptr;
    REQUIRE(nw_alloc(rt.handle, on(0), 4000, nullptr, &data, nullptr) == NW_OK);
    CHECK(add(rt, 0, data, data, data, 1000) == NW_OK);
    CHECK(nw_stream_sync(rt.handle, on(0), nullptr, nullptr) == NW_OK);
  }
}

}  // namespace
}  // namespace narrows::vulkan::test
