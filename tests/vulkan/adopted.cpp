// SPDX-License-Identifier: Apache-2.0
// A device of the application's: adopted, used and released, by several threads too.
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <optional>
#include <thread>

#include "environment.h"
#include "opened.h"
#include "runtime.h"

namespace narrows::vulkan::test {
namespace {

int32_t adopt(const Runtime& rt, const Application& app) {
  int32_t id = -1;
  REQUIRE(rt.vulkan->adopt_device(rt.vulkan->self, &app.device, &id, nullptr) == NW_OK);
  return id;
}

TEST_CASE("adopt_device: a device of the application's, of which ids are not used again", "[extension]") {
  Application app;
  nw_vulkan_device& mine = app.device;
  const Runtime rt;
  const nw_vulkan& vulkan = *rt.vulkan;
  int locks = 0;
  mine.lock_ctx = &locks;
  mine.lock = [](void* count) { ++*static_cast<int*>(count); };
  nw_error error;
  int32_t id = -1;
  CHECK(vulkan.adopt_device(vulkan.self, &mine, &id, &error) == NW_INVALID);
  CHECK(std::strstr(error.message, "unlock is NULL") != nullptr);
  mine.unlock = [](void*) {};
  app.features12.timelineSemaphore = VK_FALSE;
  CHECK(vulkan.adopt_device(vulkan.self, &mine, &id, &error) == NW_UNSUPPORTED);
  CHECK(std::strstr(error.message, "lacks the feature timelineSemaphore") != nullptr);
  app.features12.timelineSemaphore = VK_TRUE;
  mine.queue_family = 99;
  CHECK(vulkan.adopt_device(vulkan.self, &mine, &id, &error) == NW_INVALID);
  CHECK(std::strstr(error.message, "device->queue_family is 99; expected the number of a family") != nullptr);
  mine.queue_family = app.opened.physical.queue_family;
  CHECK(id == -1);
  REQUIRE(vulkan.adopt_device(vulkan.self, &mine, &id, &error) == NW_OK);

  nw_vulkan_device seen{};
  seen.struct_size = sizeof seen;
  REQUIRE(vulkan.device(vulkan.self, id, &seen, &error) == NW_OK);
  CHECK(seen.device == mine.device);
  CHECK(seen.instance == mine.instance);
  void* data = nullptr;
  REQUIRE(nw_alloc(rt.handle, on(id), 4000, nullptr, &data, &error) == NW_OK);
  CHECK(add(rt, id, data, data, data, 1000) == NW_OK);
  CHECK(add(rt, 0, data, data, data, 1000, &error) == NW_INVALID);  // an address means something on its device only
  CHECK(nw_stream_sync(rt.handle, on(id), nullptr, nullptr) == NW_OK);
  CHECK(locks > 0);

  void* const handle = app.opened->add_stream();
  const Words words(*app.opened, {7});
  REQUIRE(vulkan.add_memory(vulkan.self, id,
                            reinterpret_cast<uint64_t>(app.opened->memory().find(words.address, words.address + 4)->buffer),
                            words.address, 4, &error) == NW_OK);
  CHECK(vulkan.add_memory(vulkan.self, id, 1, words.address, 4, &error) == NW_INVALID);
  CHECK(nw_free(rt.handle, on(id), reinterpret_cast<void*>(words.address), nullptr, &error) == NW_INVALID);
  CHECK(std::strstr(error.message, "expected remove_memory()") != nullptr);
  CHECK(vulkan.remove_memory(vulkan.self, id, words.address, &error) == NW_OK);
  CHECK(vulkan.remove_memory(vulkan.self, id, words.address, &error) == NW_INVALID);
  app.opened->remove_stream(handle);

  CHECK(vulkan.release_device(vulkan.self, 0, &error) == NW_INVALID);
  REQUIRE(vulkan.release_device(vulkan.self, id, &error) == NW_OK);
  CHECK(vulkan.release_device(vulkan.self, id, &error) == NW_DEVICE_LOST);
  CHECK(add(rt, id, data, data, data, 1000, &error) == NW_DEVICE_LOST);
  CHECK(std::strstr(error.message, "was released") != nullptr);
  CHECK(add(rt, id, data, data, data, 999, &error) == NW_DEVICE_LOST);  // nor is anything planned on it
  int32_t next = -1;
  REQUIRE(vulkan.adopt_device(vulkan.self, &mine, &next, &error) == NW_OK);
  CHECK(next == id + 1);
}

TEST_CASE("device: of an adopted one the instance is the application's", "[extension]") {
  Application app;
  const Runtime rt(here());
  VkApplicationInfo application{.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO};
  application.apiVersion = VK_API_VERSION_1_2;
  VkInstanceCreateInfo info{.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO};
  info.pApplicationInfo = &application;
  VkInstance own = VK_NULL_HANDLE;
  REQUIRE(vkCreateInstance(&info, nullptr, &own) == VK_SUCCESS);
  app.device.instance = own;
  const int32_t id = adopt(rt, app);
  nw_vulkan_device seen{};
  seen.struct_size = sizeof seen;
  REQUIRE(rt.vulkan->device(rt.vulkan->self, id, &seen, nullptr) == NW_OK);
  CHECK(seen.instance == own);
  REQUIRE(rt.vulkan->device(rt.vulkan->self, 0, &seen, nullptr) == NW_OK);
  CHECK(seen.instance == app.opened.loader->instance());
  CHECK(rt.vulkan->release_device(rt.vulkan->self, id, nullptr) == NW_OK);
  vkDestroyInstance(own, nullptr);
}

TEST_CASE("add_memory: bytes past the end of addresses, or that are the backend's, are refused", "[extension]") {
  const EnvironmentVariable unchecked("NARROWS_CHECK", std::nullopt);  // where several tensors lie in a block
  const Application app;
  const Runtime rt(here());
  const int32_t id = adopt(rt, app);
  nw_error error;
  const auto refused = [&](uint64_t address, uint64_t size, const char* words) {
    INFO(address << ", " << size);
    CHECK(rt.vulkan->add_memory(rt.vulkan->self, id, 1, address, size, &error) == NW_INVALID);
    INFO(error.message);
    CHECK(std::strstr(error.message, words) != nullptr);
    CHECK(rt.vulkan->remove_memory(rt.vulkan->self, id, address, &error) == NW_INVALID);
  };
  for (const uint64_t size : {~uint64_t{0}, ~uint64_t{0} - 0xffe}) refused(0x1000, size, "expected an end below 2^64");
  void* data = nullptr;
  REQUIRE(nw_alloc(rt.handle, on(id), 4000, nullptr, &data, nullptr) == NW_OK);
  const auto address = reinterpret_cast<uint64_t>(data);
  const char* const kept = "overlap memory that device";
  refused(address, 4, kept);
  refused(address + 8192, 4096, kept);  // where the next tensor will lie
  refused(address - 4, 8, kept);
  refused(address - 4, uint64_t{1} << 40, kept);
  void* next = nullptr;
  CHECK(nw_alloc(rt.handle, on(id), 16000, nullptr, &next, nullptr) == NW_OK);
  for (void* memory : {data, next}) CHECK(nw_free(rt.handle, on(id), memory, nullptr, nullptr) == NW_OK);
  CHECK(rt.vulkan->release_device(rt.vulkan->self, id, nullptr) == NW_OK);
}

TEST_CASE("release_device: waits for the calls of other threads, which are refused from then on", "[threads]") {
  Application app;
  const Runtime rt(here());
  for (int round = 0; round < 20; ++round) {
    const int32_t id = adopt(rt, app);
    void* data = nullptr;
    REQUIRE(nw_alloc(rt.handle, on(id), 4000, nullptr, &data, nullptr) == NW_OK);
    REQUIRE(add(rt, id, data, data, data, 1000) == NW_OK);
    std::atomic<int> begun{0}, refused{0};
    // Until it is refused, which has to be for the one reason.
    const auto repeat = [&](auto&& call) {
      int32_t status = NW_OK;
      while (status == NW_OK) status = call(), ++begun;
      if (status == NW_DEVICE_LOST) ++refused;
    };
    std::array<std::thread, 4> threads{
        std::thread([&] { repeat([&] { return add(rt, id, data, data, data, 1000); }); }),
        std::thread([&] { repeat([&] { return nw_stream_sync(rt.handle, on(id), nullptr, nullptr); }); }), std::thread([&] {
          repeat([&] {
            void* more = nullptr;
            const int32_t status = nw_alloc(rt.handle, on(id), 512, nullptr, &more, nullptr);
            return status != NW_OK ? status : nw_free(rt.handle, on(id), more, nullptr, nullptr);
          });
        }),
        std::thread([&] {
          int64_t count = 0;  // each is planned anew
          repeat([&] { return add(rt, id, data, data, data, ++count % 1000 + 1); });
        })};
    while (begun < 8) std::this_thread::yield();
    CHECK(rt.vulkan->release_device(rt.vulkan->self, id, nullptr) == NW_OK);
    for (std::thread& thread : threads) thread.join();
    CHECK(refused == 4);
  }
}

TEST_CASE("release_device: waits for work that waits for the application, however long", "[extension]") {
  const EnvironmentVariable limit("NARROWS_VULKAN_TIMEOUT", "1");
  for (const bool own_stream : {false, true}) {
    Application app;
    const Runtime rt;
    const int32_t id = adopt(rt, app);
    void *data = nullptr, *stream = nullptr;
    REQUIRE(nw_alloc(rt.handle, on(id), 4000, nullptr, &data, nullptr) == NW_OK);
    if (own_stream) REQUIRE(nw_stream_create(rt.handle, on(id), &stream, nullptr) == NW_OK);
    const VkSemaphore semaphore = new_timeline(app.opened->vk, app.opened->handle);
    REQUIRE(rt.vulkan->stream_wait(rt.vulkan->self, id, stream, reinterpret_cast<uint64_t>(semaphore), 1, nullptr) == NW_OK);
    REQUIRE(add(rt, id, data, data, data, 1000, nullptr, stream) == NW_OK);
    std::atomic<bool> signaled{false};
    std::thread application([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(2500));
      signaled = true;
      set_timeline(app.opened->vk, app.opened->handle, semaphore, 1);
    });
    CHECK(rt.vulkan->release_device(rt.vulkan->self, id, nullptr) == NW_OK);
    CHECK(signaled);
    application.join();
    app.opened->vk.vkDestroySemaphore(app.opened->handle, semaphore, nullptr);
  }
}

TEST_CASE("release_device: of two at once, one is refused", "[threads]") {
  Application app;
  const Runtime rt(here());
  for (int round = 0; round < 50; ++round) {
    const int32_t id = adopt(rt, app);
    std::atomic<int> ready{0}, released{0}, refused{0};
    const auto release = [&] {
      ++ready;
      while (ready < 2) std::this_thread::yield();
      nw_error error;
      const int32_t status = rt.vulkan->release_device(rt.vulkan->self, id, &error);
      if (status == NW_OK) ++released;
      if (status == NW_DEVICE_LOST && std::strstr(error.message, "was released") != nullptr) ++refused;
    };
    std::thread one(release), other(release);
    one.join(), other.join();
    REQUIRE(released == 1);
    REQUIRE(refused == 1);
  }
}

}  // namespace
}  // namespace narrows::vulkan::test
