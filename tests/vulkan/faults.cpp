// SPDX-License-Identifier: Apache-2.0
// Faults: drivers that run out of memory, lose the device or stand still. A test puts its own function into the device's table.
#include <chrono>
#include <thread>
#include <utility>

#include "environment.h"
#include "opened.h"

namespace narrows::vulkan::test {
namespace {

// The driver's function, and how many more calls of it succeed.
int g_good_calls = 0;
PFN_vkAllocateMemory g_allocate = nullptr;
PFN_vkQueueSubmit g_submit = nullptr;

VkResult VKAPI_PTR allocate_or_not(VkDevice device, const VkMemoryAllocateInfo* info, const VkAllocationCallbacks* callbacks,
                                   VkDeviceMemory* memory) {
  return g_good_calls-- > 0 ? g_allocate(device, info, callbacks, memory) : VK_ERROR_OUT_OF_DEVICE_MEMORY;
}
VkResult VKAPI_PTR submit_or_not(VkQueue queue, uint32_t count, const VkSubmitInfo* infos, VkFence fence) {
  return g_good_calls-- > 0 ? g_submit(queue, count, infos, fence) : VK_ERROR_OUT_OF_HOST_MEMORY;
}
VkResult VKAPI_PTR lose_submit(VkQueue, uint32_t, const VkSubmitInfo*, VkFence) { return VK_ERROR_DEVICE_LOST; }

// From here on nothing is done any more: timelines are at `reached`, and waits bring nothing.
void stand_still(Device& device, uint64_t reached) {
  static uint64_t value = 0;
  value = reached;
  device.vk.vkGetSemaphoreCounterValue = [](VkDevice, VkSemaphore, uint64_t* out) -> VkResult {
    *out = value;
    return VK_SUCCESS;
  };
  device.vk.vkWaitSemaphores = [](VkDevice, const VkSemaphoreWaitInfo*, uint64_t) -> VkResult { return VK_TIMEOUT; };
}

TEST_CASE("faults: out of memory is an error, and the next call works", "[faults]") {
  Opened opened;
  const Words one(*opened, {1});
  g_allocate = opened->vk.vkAllocateMemory;
  void* const stream = opened->add_stream();
  for (int good = 0; good < 3; ++good) {
    opened->vk.vkAllocateMemory = allocate_or_not;
    g_good_calls = good;
    int failed = 0;
    for (int i = 0; i < 3; ++i) failed += opened->stream(stream)->allocate(100'000'000) == 0;
    CHECK(failed == 3 - good);
    opened->vk.vkAllocateMemory = g_allocate;
    const Address address = opened->stream(stream)->allocate(100'000'000);
    CHECK(address != 0);
  }
  opened->vk.vkAllocateMemory = allocate_or_not;
  g_good_calls = 0;
  void* const fresh = opened->add_stream();
  CHECK(refusal([&] { step(*opened->stream(fresh), one, one); }).find("4: vulkan: allocating memory") == 0);
  opened->vk.vkAllocateMemory = g_allocate;
  step(*opened->stream(fresh), one, one);
  CHECK(difference(one.read(*opened->stream(fresh)), std::vector<uint32_t>{2}) == "");
}

TEST_CASE("faults: what the driver has no memory to submit is submitted later", "[faults]") {
  Opened opened;
  Stream& stream = *opened->stream(nullptr);
  const Words one(*opened, {1}), words(*opened, std::vector<uint32_t>(100, 7));
  g_submit = opened->vk.vkQueueSubmit;
  opened->vk.vkQueueSubmit = submit_or_not;
  g_good_calls = 0;
  step(stream, words, one, 3);                                                // on the stream
  CHECK(refusal([&] { step(stream, words, one, 3); }).substr(0, 2) == "4:");  // and this is not
  CHECK(refusal([&] { stream.sync(); }).find("submitting work: out of host memory") != std::string::npos);
  opened->vk.vkQueueSubmit = g_submit;
  step(stream, words, one, 3);
  CHECK(difference(words.read(stream), std::vector<uint32_t>(100, 3 * 22 + 1)) == "");
}

TEST_CASE("faults: of a copy that found no memory nothing is left", "[faults]") {
  Opened opened(true);  // through staging
  Stream& stream = *opened->stream(nullptr);
  const Words one(*opened, {1}), first(*opened, std::vector<uint32_t>(100, 7)), second(*opened, std::vector<uint32_t>(100, 8));
  const std::vector<uint32_t> twos(100, 2), threes(100, 3);
  g_submit = opened->vk.vkQueueSubmit;
  opened->vk.vkQueueSubmit = submit_or_not;
  g_good_calls = 0;
  CHECK(refusal([&] { stream.copy_from_host(first.address, twos.data(), 400); }).substr(0, 2) == "4:");
  opened->vk.vkQueueSubmit = g_submit;
  stream.copy_from_host(second.address, threes.data(), 400);
  CHECK(difference(first.read(stream), std::vector<uint32_t>(100, 7)) == "");
  CHECK(difference(second.read(stream), threes) == "");
  opened->vk.vkQueueSubmit = submit_or_not;
  g_good_calls = 0;
  step(stream, first, one);  // is on the stream, and stays there when the copy behind it is dropped
  std::vector<uint32_t> got(100);
  CHECK(refusal([&] { stream.copy_to_host(got.data(), first.address, 400); }).substr(0, 2) == "4:");
  opened->vk.vkQueueSubmit = g_submit;
  CHECK(difference(first.read(stream), std::vector<uint32_t>(100, 8)) == "");
}

TEST_CASE("faults: of an op that is refused midway nothing is left", "[faults]") {
  Opened opened;
  Stream& stream = *opened->stream(nullptr);
  const Words words(*opened, std::vector<uint32_t>(100, 7));
  const Kernel kernel = opened->kernels().get(shaders::wild);
  const struct {
    Address words;
    uint32_t index, padding;
  } push{words.address, 5, 0};
  CHECK(refusal([&] {
          stream.record([&](Recorder& recorder) {
            recorder.dispatch(kernel, push, 1);
            (void)recorder.params(push);
            recorder.dispatch(kernel, push, int64_t{1} << 40);
          });
        }).substr(0, 2) == "2:");
  CHECK(difference(words.read(stream), std::vector<uint32_t>(100, 7)) == "");
}

TEST_CASE("faults: a lost device stays lost, and the process lives", "[faults]") {
  Opened opened;
  Stream& stream = *opened->stream(nullptr);
  const Words one(*opened, {1});
  const auto submit = opened->vk.vkQueueSubmit;
  opened->vk.vkQueueSubmit = lose_submit;
  CHECK(refusal([&] { step(stream, one, one); }).find("7: vulkan: ") == 0);
  opened->vk.vkQueueSubmit = submit;
  CHECK(opened->is_lost());
  CHECK(refusal([&] { step(stream, one, one); }).find("was lost before; a new process may find it again") != std::string::npos);
  CHECK(refusal([&] { stream.sync(); }).substr(0, 2) == "7:");
  CHECK(refusal([&] { (void)stream.allocate(4); }).substr(0, 2) == "7:");
  uint32_t word = 0;
  CHECK(refusal([&] { stream.copy_to_host(&word, one.address, 4); }).substr(0, 2) == "7:");
  Opened another;
  const Words two(*another, {2});
  CHECK(difference(two.read(*another->stream(nullptr)), std::vector<uint32_t>{2}) == "");
}

// What is left of a lost device runs on in the driver's threads: with NVIDIA's, the end of the instance is then a crash.
TEST_CASE("faults: the instance stays where a lost device was left, and goes otherwise", "[faults]") {
  for (const bool lost : {false, true}) {
    static int ends = 0;
    static PFN_vkDestroyInstance end = nullptr;
    {
      Opened opened;
      ends = 0;
      end = std::exchange(vkDestroyInstance, [](VkInstance instance, const VkAllocationCallbacks* callbacks) {
        ++ends;
        end(instance, callbacks);
      });
      if (lost) CHECK(refusal([&] { opened->lose("a test says so"); }).substr(0, 2) == "7:");
    }
    vkDestroyInstance = end;
    CHECK(ends == (lost ? 0 : 1));
  }
}

TEST_CASE("faults: a device that makes no progress is lost after a while", "[faults]") {
  const EnvironmentVariable limit("NARROWS_VULKAN_TIMEOUT", "1");
  Opened opened;
  Stream& stream = *opened->stream(nullptr);
  const Words one(*opened, {1});
  stream.sync();
  stand_still(*opened, 0);
  step(stream, one, one);
  CHECK(refusal([&] { stream.sync(); }).find("7: vulkan: ") == 0);
  CHECK(opened->is_lost());
}

TEST_CASE("faults: a device that makes no progress is closed after a while", "[faults]") {
  const EnvironmentVariable limit("NARROWS_VULKAN_TIMEOUT", "1");
  Opened opened;
  {
    const Words one(*opened, {1});
    Stream& stream = *opened->stream(nullptr);
    stream.sync();
    stand_still(*opened, 0);
    step(stream, one, one);
  }
  static bool waits_for_ever = false;
  waits_for_ever = false;
  opened->vk.vkDeviceWaitIdle = [](VkDevice) -> VkResult {
    waits_for_ever = true;
    return VK_SUCCESS;
  };
  opened.device.reset();
  CHECK_FALSE(waits_for_ever);
}

TEST_CASE("faults: a launch that waits for earlier work says that the device is lost", "[faults]") {
  Opened opened;
  Stream& stream = *opened->stream(nullptr);
  const Words one(*opened, {1});
  stream.sync();
  stand_still(*opened, 0);
  opened->vk.vkWaitSemaphores = [](VkDevice, const VkSemaphoreWaitInfo*, uint64_t) -> VkResult { return VK_ERROR_DEVICE_LOST; };
  std::string said;
  for (int i = 0; i < 64 * 20 && said.empty(); ++i) said = refusal([&] { step(stream, one, one); });
  CHECK(said.find("7: vulkan: ") == 0);
}

TEST_CASE("faults: a device on which another stream makes progress is not lost", "[faults]") {
  const EnvironmentVariable limit("NARROWS_VULKAN_TIMEOUT", "1");
  Opened opened;
  Stream &stream = *opened->stream(nullptr), &other = *opened->stream(opened->add_stream());
  const Words one(*opened, {1});
  step(stream, one, one);
  static VkSemaphore late = VK_NULL_HANDLE;
  static PFN_vkGetSemaphoreCounterValue read = nullptr;
  static std::chrono::steady_clock::time_point end;
  static uint64_t others = 0;
  late = other.point().semaphore, read = opened->vk.vkGetSemaphoreCounterValue, others = 0;
  end = std::chrono::steady_clock::now() + std::chrono::milliseconds(3500);
  opened->vk.vkGetSemaphoreCounterValue = [](VkDevice device, VkSemaphore semaphore, uint64_t* value) -> VkResult {
    if (std::chrono::steady_clock::now() > end) return read(device, semaphore, value);
    *value = semaphore == late ? 0 : ++others;
    return VK_SUCCESS;
  };
  opened->vk.vkWaitSemaphores = [](VkDevice, const VkSemaphoreWaitInfo*, uint64_t) -> VkResult {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    return VK_TIMEOUT;
  };
  step(other, one, one);
  CHECK(refusal([&] { other.sync(); }) == "");
  CHECK(std::chrono::steady_clock::now() > end);
}

TEST_CASE("faults: work that waits for an application's semaphore may wait, and neither loses the device nor stops the host",
          "[faults]") {
  const EnvironmentVariable limit("NARROWS_VULKAN_TIMEOUT", "1");
  Opened opened;
  Stream &stream = *opened->stream(nullptr), &behind = *opened->stream(opened->add_stream());
  const Words one(*opened, {1}), words(*opened, {7});
  const VkSemaphore semaphore = new_timeline(opened->vk, opened->handle);
  stream.wait_for(semaphore, 1);
  step(stream, words, one);
  behind.wait_for(stream);
  constexpr uint32_t kMany = 64 * 20;  // more than are on their way at once
  for (uint32_t i = 1; i < kMany; ++i) step(behind, words, one);
  std::thread application([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(2500));
    set_timeline(opened->vk, opened->handle, semaphore, 1);
  });
  CHECK(refusal([&] { behind.sync(); }) == "");
  application.join();
  CHECK(difference(words.read(behind), std::vector<uint32_t>{7 + kMany}) == "");
  CHECK(refusal([&] { stream.signal(semaphore, 1); }).find("1: vulkan: signal: value 1; expected more than 1") == 0);
  stream.signal(semaphore, 2);
  stream.sync();
  opened->vk.vkDestroySemaphore(opened->handle, semaphore, nullptr);
}

TEST_CASE("faults: a device that stands still behind a semaphore that was reached is lost all the same", "[faults]") {
  const EnvironmentVariable limit("NARROWS_VULKAN_TIMEOUT", "1");
  Opened opened;
  Stream& stream = *opened->stream(nullptr);
  const Words one(*opened, {1});
  const VkSemaphore semaphore = new_timeline(opened->vk, opened->handle);
  set_timeline(opened->vk, opened->handle, semaphore, 1);
  stream.wait_for(semaphore, 1);
  stream.sync();
  stand_still(*opened, stream.completed());
  step(stream, one, one);
  CHECK(refusal([&] { stream.sync(); }).find("7: vulkan: ") == 0);
}

TEST_CASE("faults: a limit of time that is none is refused", "[faults]") {
  for (const char* text : {"never", "-1", "1.5", "10000000000", "99999999999999999999"}) {
    const EnvironmentVariable limit("NARROWS_VULKAN_TIMEOUT", text);
    const std::string said = refusal([&] { const Opened opened; });
    INFO(text << ": " << said);
    CHECK(said.find(std::string("3: NARROWS_VULKAN_TIMEOUT is '") + text + "'") == 0);
  }
}

TEST_CASE("guards: in checked memory a byte before a tensor, or behind it, is reported by the call that waits",
          "[faults][guards]") {
  for (const bool as_discrete : {false, true}) {
    Opened opened(as_discrete, true);
    Stream& stream = *opened->stream(nullptr);
    const Words words(*opened, std::vector<uint32_t>(1000)), others(*opened, {7});
    if (memory_types(opened.physical.memory, opened.physical.is_unified(), ~0u, Side::guarded).empty())
      SKIP("the host does not see enough of this device's memory");
    const Address odd = stream.allocate(1001);
    const Kernel kernel = opened->kernels().get(shaders::wild);
    // To the tensor's word of that number, with the tensor looked up as a call's operands are.
    const auto record = [&](Address tensor, int word) {
      REQUIRE(opened->memory().find(tensor, tensor + 1));
      const struct {
        Address words;
        uint32_t index, padding;
      } push{tensor + static_cast<Address>(4 * word), 0, 0};
      stream.record([&](Recorder& recorder) { recorder.dispatch(kernel, push, 1); });
    };
    const auto write_at = [&](Address tensor, int word) {
      return refusal([&] {
        record(tensor, word);
        stream.sync();
      });
    };
    CHECK(write_at(words.address, 0) == "");
    CHECK(write_at(words.address, 999) == "");
    const auto reports = [](const std::string& said, const char* at) {
      INFO(said);
      CHECK(said.find("6: vulkan: validation: a guard of allocation [0x") == 0);
      CHECK(said.find(at) != std::string::npos);
    };
    reports(write_at(words.address, 1000), "was written to, at byte 4000");
    CHECK(refusal([&] { stream.sync(); }) == "");  // once
    reports(write_at(words.address, 1000 + 900), "at byte 7600");
    reports(write_at(words.address, -1), "at byte -4");
    CHECK(write_at(odd, 249) == "");
    reports(write_at(odd, 250), "at byte 1001");
    CHECK(difference(others.read(stream), std::vector<uint32_t>{7}) == "");
    // Of memory that is freed before anybody waits too.
    const std::string said = refusal([&] {
      record(odd, 300);
      stream.free(odd);
      stream.sync();
    });
    reports(said, "at byte 1200");
    // What is freed while the device works does not become a tensor of another size.
    const Address before = stream.allocate(1024);
    record(before, 0);
    stream.free(before);
    const Address after = stream.allocate(1000);
    reports(write_at(after, 250), "at byte 1000");
    stream.free(after);
  }
}

// In an entry of its own: what the layer says when no call is left to fail is printed.
TEST_CASE("leak: validation sees an object that outlives its device", "[.][leak]") {
  Opened opened;
  VkBufferCreateInfo info{.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO};
  info.size = 4;
  info.usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT;
  VkBuffer left = VK_NULL_HANDLE;
  REQUIRE(opened->vk.vkCreateBuffer(opened->handle, &info, nullptr, &left) == VK_SUCCESS);
}

// By hand and in an entry of its own: with validation in the shaders, a word past the end is reported by the call that waits.
TEST_CASE("overrun: validation sees a word past a tensor's end", "[.][overrun]") {
  Opened opened(false, true);
  Stream& stream = *opened->stream(nullptr);
  const Words words(*opened, std::vector<uint32_t>(1000));
  const Kernel kernel = opened->kernels().get(shaders::wild);
  const auto write_at = [&](uint32_t index) {
    return refusal([&] {
      const struct {
        Address words;
        uint32_t index, padding;
      } push{words.address, index, 0};
      stream.record([&](Recorder& recorder) { recorder.dispatch(kernel, push, 1); });
      stream.sync();
    });
  };
  CHECK(write_at(999) == "");
  const std::string said = write_at(1000);
  INFO(said);
  CHECK(said.find("6: vulkan: validation: ") == 0);
  CHECK(said.find("a guard of") == std::string::npos);  // which needs no layer
}

}  // namespace
}  // namespace narrows::vulkan::test
