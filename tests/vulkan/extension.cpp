// SPDX-License-Identifier: Apache-2.0
// "vulkan/1" through the public C API: what it refuses, host memory in place, memory and semaphores for others.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include "driver.h"
#include "opened.h"
#include "runtime.h"

namespace narrows::vulkan::test {
namespace {

void* host_memory(size_t size) {
  void* const memory = std::aligned_alloc(65536, size);
  REQUIRE(memory != nullptr);
  return memory;
}

TEST_CASE("addresses: foreign, freed, past the end, of the host or of another device", "[addresses]") {
  const Runtime rt;
  void *a = nullptr, *b = nullptr, *out = nullptr;
  for (void** data : {&a, &b, &out}) REQUIRE(nw_alloc(rt.handle, on(0), 4000, nullptr, data, nullptr) == NW_OK);
  const auto word = [](void* address, uintptr_t bytes) {
    return reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(address) + bytes);
  };
  nw_error error;
  CHECK(add(rt, 0, a, b, out, 1000) == NW_OK);
  const auto refused = [&](int32_t argument, const char* words) {
    CHECK(error.status == NW_INVALID);
    CHECK(error.argument == argument);
    INFO(error.message);
    CHECK(std::strstr(error.message, words) != nullptr);
  };
  REQUIRE(add(rt, 0, a, b, out, 1001, &error) != NW_OK);
  refused(0, "leave the allocation");
  REQUIRE(add(rt, 0, a, word(b, 4), out, 1000, &error) != NW_OK);
  refused(1, "leave the allocation");
  float host[1000];
  REQUIRE(add(rt, 0, a, host, out, 1000, &error) != NW_OK);
  refused(1, "lie in no live allocation of device 0: a host pointer, an address of another device, or freed");
  REQUIRE(add(rt, 0, word(nullptr, 64), b, out, 1000, &error) != NW_OK);
  refused(0, "lie in no live allocation");
  REQUIRE(nw_free(rt.handle, on(0), b, nullptr, nullptr) == NW_OK);
  REQUIRE(add(rt, 0, a, b, out, 1000, &error) != NW_OK);
  refused(1, "no live allocation");
  int no_stream = 0;
  REQUIRE(add(rt, 0, a, a, out, 1000, &error, &no_stream) == NW_INVALID);
  CHECK(std::strstr(error.message, "does not belong to device 0") != nullptr);
  for (void* data : {a, out}) REQUIRE(nw_free(rt.handle, on(0), data, nullptr, nullptr) == NW_OK);
}

TEST_CASE("addresses: strides and offsets that leave the allocation, either way, and a workspace that is the host's",
          "[addresses]") {
  const Runtime rt;
  constexpr int64_t kCount = 1000;
  // The output lies below the inputs, and what a wrong input reaches is no overlap of the two, which would be refused as such.
  std::array<void*, 4> memory{};
  for (void*& data : memory) REQUIRE(nw_alloc(rt.handle, on(0), 4 * kCount, nullptr, &data, nullptr) == NW_OK);
  std::ranges::sort(memory);
  const auto [out, a, b, last] = memory;
  const FloatTensor good_a{a, 100}, good_b{b, 100}, good_out{out, 100};
  nw_error error;
  const auto try_b = [&](const FloatTensor& bad) { return add(rt, 0, good_a, bad, good_out, &error); };
  CHECK(try_b({b, 100, 10}) == NW_OK);         // the last element is number 990
  CHECK(try_b({b, 100, 10, 36}) == NW_OK);     // 999
  CHECK(try_b({b, 100, -10, 3960}) == NW_OK);  // from 990 to 0
  CHECK(try_b({b, 100, 0, 3996}) == NW_OK);
  const FloatTensor bad[] = {{b, 100, 10, 40},     // one past the end
                             {b, 100, 11},         // by stride
                             {b, 100, -10, 3956},  // one before the beginning
                             {b, 100, -1},         // the same
                             {b, 100, 0, 4000},    // from the end on
                             {b, 100, 1, 3700},    // by offset
                             {b, 100, int64_t{1} << 40}};
  for (const FloatTensor& tensor : bad) {
    INFO("stride " << tensor.stride << ", offset " << tensor.byte_offset);
    CHECK(try_b(tensor) == NW_INVALID);
    CHECK(error.argument == 1);
    INFO(error.message);
    const bool said =
        std::strstr(error.message, "leave the allocation [0x") || std::strstr(error.message, "lie in no live allocation");
    CHECK(said);
    CHECK(add(rt, 0, tensor, good_b, good_out, &error) == NW_INVALID);
    CHECK(error.argument == 0);
  }
  CHECK(add(rt, 0, good_a, good_b, {last, 100, 11}, &error) == NW_INVALID);
  CHECK(error.argument == 2);

  // The gradient of a broadcast operand is a sum, and takes a workspace.
  int64_t many = 1 << 22, one = 1, none = 0;
  DLTensor tensors[] = {{a, on(0), 1, {kDLFloat, 32, 1}, &many, &none, 0},
                        {a, on(0), 1, {kDLFloat, 32, 1}, &many, &none, 0},
                        {b, on(0), 1, {kDLFloat, 32, 1}, &one, nullptr, 0},
                        {out, on(0), 1, {kDLFloat, 32, 1}, &one, nullptr, 0}};
  const DLTensor *inputs[] = {&tensors[0], &tensors[1], &tensors[2]}, *outputs[] = {nullptr, &tensors[3], nullptr};
  nw_elementwise_params params{};
  params.function = NW_EW_MUL;
  nw_call call{};
  call.struct_size = sizeof call;
  call.op = "elementwise_backward";
  call.num_inputs = 3, call.inputs = inputs, call.num_outputs = 3, call.outputs = outputs;
  call.params = &params, call.params_size = sizeof params;
  nw_plan* plan = nullptr;
  nw_plan_info info{};
  info.struct_size = sizeof info;
  const int32_t planned = nw_plan_get(rt.handle, &call, &plan, &info, &error);
  INFO(error.message);
  REQUIRE(planned == NW_OK);
  REQUIRE(info.workspace_size > 0);
  void* const host = host_memory(65536);
  call.workspace = host, call.workspace_size = 65536;
  CHECK(nw_launch(plan, &call, &error) == NW_INVALID);
  CHECK(std::strstr(error.message, "elementwise_backward: workspace 0x") != nullptr);
  CHECK(std::strstr(error.message, "lies in no live allocation of device 0") != nullptr);
  void* room = nullptr;
  REQUIRE(nw_alloc(rt.handle, on(0), info.workspace_size, nullptr, &room, nullptr) == NW_OK);
  call.workspace = room,
  call.workspace_size = info.workspace_size + 4096;  // said to be more than is there: only what is needed counts
  CHECK(nw_launch(plan, &call, &error) == NW_OK);
  CHECK(nw_free(rt.handle, on(0), room, nullptr, nullptr) == NW_OK);
  CHECK(nw_launch(plan, &call, &error) == NW_INVALID);  // freed
  nw_plan_release(plan);
  CHECK(nw_stream_sync(rt.handle, on(0), nullptr, nullptr) == NW_OK);
  std::free(host);
}

TEST_CASE("threads: calls of many on streams of their own, plans and memory among them", "[threads]") {
  const Runtime rt(here());
  constexpr int kThreads = 6, kRounds = 30;
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      const int64_t count = 100 + t % 3;  // some share a plan
      const auto bytes = static_cast<uint64_t>(count) * 4;
      const std::vector<float> ones(static_cast<size_t>(count), 1);
      std::vector<float> got(ones.size());
      void *stream = nullptr, *one = nullptr;
      bool good = nw_stream_create(rt.handle, on(0), &stream, nullptr) == NW_OK;
      good = good && nw_alloc(rt.handle, on(0), bytes, stream, &one, nullptr) == NW_OK;
      good = good && nw_copy(rt.handle, on(0), one, {kDLCPU, 0}, ones.data(), bytes, stream, nullptr) == NW_OK;
      for (int i = 0; good && i < kRounds; ++i) {
        void* sum = nullptr;
        good = nw_alloc(rt.handle, on(0), bytes, stream, &sum, nullptr) == NW_OK;
        good = good && add(rt, 0, one, one, sum, count, nullptr, stream) == NW_OK;
        good = good && nw_stream_wait(rt.handle, on(0), nullptr, stream, nullptr) == NW_OK;
        good = good && nw_copy(rt.handle, {kDLCPU, 0}, got.data(), on(0), sum, bytes, stream, nullptr) == NW_OK;
        good = good && nw_stream_sync(rt.handle, on(0), stream, nullptr) == NW_OK;
        good = good && got == std::vector<float>(ones.size(), 2);
        good = good && nw_free(rt.handle, on(0), sum, stream, nullptr) == NW_OK;
        if (i % 10 == 0) nw_plan_cache_clear(rt.handle);
      }
      good = good && nw_free(rt.handle, on(0), one, stream, nullptr) == NW_OK;
      if (good && nw_stream_destroy(rt.handle, on(0), stream, nullptr) == NW_OK) ++right;
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(right == kThreads);
}

TEST_CASE("import_host: an op works in the host's own memory", "[extension]") {
  const Runtime rt;
  const nw_vulkan& vulkan = *rt.vulkan;
  constexpr size_t kSize = 65536;
  auto* const memory = static_cast<float*>(host_memory(kSize));
  for (size_t i = 0; i < kSize / 4; ++i) memory[i] = static_cast<float>(i);
  void* data = nullptr;
  nw_error error;
  REQUIRE(vulkan.import_host(vulkan.self, 0, memory, kSize, &data, &error) == NW_OK);
  REQUIRE(add(rt, 0, data, data, data, kSize / 4) == NW_OK);
  REQUIRE(nw_stream_sync(rt.handle, on(0), nullptr, nullptr) == NW_OK);
  for (size_t i = 0; i < kSize / 4; ++i) REQUIRE(memory[i] == static_cast<float>(2 * i));
  REQUIRE(nw_free(rt.handle, on(0), data, nullptr, &error) == NW_OK);
  CHECK(vulkan.import_host(vulkan.self, 0, memory + 1, kSize, &data, &error) == NW_INVALID);
  CHECK(std::strstr(error.message, "multiples of") != nullptr);
  CHECK(vulkan.import_host(vulkan.self, 0, memory, kSize - 4, &data, &error) == NW_INVALID);
  CHECK(vulkan.import_host(vulkan.self, 0, nullptr, kSize, &data, &error) == NW_INVALID);
  CHECK(vulkan.import_host(vulkan.self, 9, memory, kSize, &data, &error) == NW_INVALID);
  std::free(memory);
}

TEST_CASE("import_host: once, where the device's address is the host's, and nothing is left of a second time", "[extension]") {
  Driver driver;
  constexpr size_t kSize = 65536;
  void* const memory = host_memory(2 * kSize);
  {
    const Runtime rt(here());
    const nw_vulkan& vulkan = *rt.vulkan;
    const auto import = [&](uint64_t offset, uint64_t size, void** data, nw_error* error) {
      return vulkan.import_host(vulkan.self, 0, static_cast<char*>(memory) + offset, size, data, error);
    };
    void *first = nullptr, *second = nullptr;
    nw_error error;
    REQUIRE(import(0, kSize, &first, &error) == NW_OK);
    for (const auto& [offset, size] : {std::pair{size_t{0}, kSize}, std::pair{size_t{0}, 2 * kSize}}) {
      const int32_t status = import(offset, size, &second, &error);
      if (first != memory && status == NW_OK) {  // each time an address of its own
        CHECK(nw_free(rt.handle, on(0), second, nullptr, nullptr) == NW_OK);
        second = nullptr;
        continue;
      }
      CHECK(status == NW_INVALID);
      CHECK(second == nullptr);
      INFO(error.message);
      CHECK(std::strstr(error.message, "overlap memory that device 0 has") != nullptr);
    }
    REQUIRE(import(kSize, kSize, &second, &error) == NW_OK);
    for (void* data : {first, second}) CHECK(nw_free(rt.handle, on(0), data, nullptr, nullptr) == NW_OK);
    REQUIRE(import(0, kSize, &first, &error) == NW_OK);  // again
    CHECK(nw_free(rt.handle, on(0), first, nullptr, nullptr) == NW_OK);
  }
  CHECK(driver.left_over().empty());
  std::free(memory);
}

TEST_CASE("import_host: what is freed while it is used is no memory for the stream's next tensor", "[extension]") {
  constexpr size_t kSize = 65536;
  void* const memory = host_memory(kSize);
  {
    Opened opened;
    Stream& stream = *opened->stream(nullptr);
    const VkSemaphore gate = new_timeline(opened->vk, opened->handle);
    const Address imported = opened->memory().import_host(memory, kSize);
    stream.wait_for(gate, 1);
    stream.free(imported);
    const Address next = stream.allocate(kSize);
    CHECK(next != 0);
    CHECK(next != imported);
    set_timeline(opened->vk, opened->handle, gate, 1);
    stream.sync();
    stream.free(next);
    opened->vk.vkDestroySemaphore(opened->handle, gate, nullptr);
  }
  std::free(memory);
}

TEST_CASE("alloc_exportable, semaphore_create: file descriptors of the caller's", "[extension]") {
  const Runtime rt;
  const nw_vulkan& vulkan = *rt.vulkan;
  void* data = nullptr;
  int32_t fd = -1;
  uint64_t size = 0;
  nw_error error;
  const int32_t status = vulkan.alloc_exportable(vulkan.self, 0, 4000, &data, &fd, &size, &error);
  if (status == NW_UNSUPPORTED) {
    CHECK(std::strstr(error.message, "cannot export memory") != nullptr);
  } else {
    REQUIRE(status == NW_OK);
    CHECK(size >= 4000);
    CHECK(close(fd) == 0);
    CHECK(add(rt, 0, data, data, data, 1000) == NW_OK);
    CHECK(nw_free(rt.handle, on(0), data, nullptr, nullptr) == NW_OK);
  }
  CHECK(vulkan.alloc_exportable(vulkan.self, 0, 0, &data, &fd, &size, &error) == NW_INVALID);
  uint64_t semaphore = 0;
  const int32_t made = vulkan.semaphore_create(vulkan.self, 0, &semaphore, &fd, &error);
  if (made == NW_UNSUPPORTED) {
    CHECK(std::strstr(error.message, "cannot export timeline semaphores (VK_KHR_external_semaphore_fd)") != nullptr);
  } else {
    INFO(error.message);
    REQUIRE(made == NW_OK);
    CHECK(close(fd) == 0);
    CHECK(vulkan.stream_signal(vulkan.self, 0, nullptr, semaphore, 5, &error) == NW_OK);
    CHECK(vulkan.stream_wait(vulkan.self, 0, nullptr, semaphore, 5, &error) == NW_OK);
    CHECK(nw_stream_sync(rt.handle, on(0), nullptr, nullptr) == NW_OK);
    CHECK(vulkan.semaphore_destroy(vulkan.self, 0, semaphore, &error) == NW_OK);
  }
  CHECK(vulkan.stream_signal(vulkan.self, 0, nullptr, 0, 1, &error) == NW_INVALID);
  CHECK(vulkan.stream_wait(vulkan.self, 0, nullptr, 0, 1, &error) == NW_INVALID);
}

TEST_CASE("stream_point: the stream's semaphore has that value when all that was on the stream is done", "[extension]") {
  const Runtime rt(here());
  const nw_vulkan& vulkan = *rt.vulkan;
  nw_vulkan_device mine{};
  mine.struct_size = sizeof mine;
  REQUIRE(vulkan.device(vulkan.self, 0, &mine, nullptr) == NW_OK);
  const auto device = static_cast<VkDevice>(mine.device);
  VolkDeviceTable vk{};
  volkLoadDeviceTable(&vk, device);
  const auto wait = [&](uint64_t semaphore, uint64_t value, uint64_t nanoseconds) {
    const auto handle = reinterpret_cast<VkSemaphore>(semaphore);
    VkSemaphoreWaitInfo info{.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO};
    info.semaphoreCount = 1, info.pSemaphores = &handle, info.pValues = &value;
    return vk.vkWaitSemaphores(device, &info, nanoseconds);
  };
  constexpr uint64_t kLong = 20'000'000'000;
  void *data = nullptr, *stream = nullptr;
  nw_error error;
  REQUIRE(nw_stream_create(rt.handle, on(0), &stream, nullptr) == NW_OK);
  REQUIRE(nw_alloc(rt.handle, on(0), 4000, stream, &data, nullptr) == NW_OK);
  const std::vector<float> ones(1000, 1);
  REQUIRE(nw_copy(rt.handle, on(0), data, {kDLCPU, 0}, ones.data(), 4000, stream, nullptr) == NW_OK);
  const VkSemaphore gate = new_timeline(vk, device);
  REQUIRE(vulkan.stream_wait(vulkan.self, 0, stream, reinterpret_cast<uint64_t>(gate), 1, nullptr) == NW_OK);
  uint64_t semaphore = 0, first = 0, second = 0;
  REQUIRE(add(rt, 0, data, data, data, 1000, nullptr, stream) == NW_OK);
  REQUIRE(vulkan.stream_point(vulkan.self, 0, stream, &semaphore, &first, &error) == NW_OK);
  for (int i = 0; i < 10; ++i) REQUIRE(add(rt, 0, data, data, data, 1000, nullptr, stream) == NW_OK);
  REQUIRE(vulkan.stream_point(vulkan.self, 0, stream, &semaphore, &second, &error) == NW_OK);
  CHECK(second > first);
  CHECK(wait(semaphore, first, 0) == VK_TIMEOUT);
  set_timeline(vk, device, gate, 1);
  CHECK(wait(semaphore, first, kLong) == VK_SUCCESS);
  CHECK(wait(semaphore, second, kLong) == VK_SUCCESS);  // submitted, without anybody who waits by Narrows
  std::vector<float> got(1000);
  REQUIRE(nw_copy(rt.handle, {kDLCPU, 0}, got.data(), on(0), data, 4000, stream, nullptr) == NW_OK);
  REQUIRE(nw_stream_sync(rt.handle, on(0), stream, nullptr) == NW_OK);
  CHECK(got == std::vector<float>(1000, 2048));
  CHECK(vulkan.stream_point(vulkan.self, 0, stream, nullptr, &first, &error) == NW_INVALID);
  CHECK(vulkan.stream_point(vulkan.self, 0, &first, &semaphore, &first, &error) == NW_INVALID);
  vk.vkDestroySemaphore(device, gate, nullptr);
  CHECK(nw_free(rt.handle, on(0), data, stream, nullptr) == NW_OK);
  CHECK(nw_stream_destroy(rt.handle, on(0), stream, nullptr) == NW_OK);
}

// The other API is Vulkan too: a second VkDevice.
TEST_CASE("alloc_exportable, semaphore_create: another device imports them, and works on the same bytes in turn", "[extension]") {
  Opened other;
  const Runtime rt(here());
  const nw_vulkan& vulkan = *rt.vulkan;
  void* data = nullptr;
  int32_t fd = -1, semaphore_fd = -1;
  uint64_t size = 0, semaphore = 0;
  nw_error error;
  if (vulkan.alloc_exportable(vulkan.self, 0, 4000, &data, &fd, &size, &error) == NW_UNSUPPORTED) SKIP(error.message);
  constexpr auto kType = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT;
  const VolkDeviceTable& vk = other->vk;
  const VkImportMemoryFdInfoKHR import{VK_STRUCTURE_TYPE_IMPORT_MEMORY_FD_INFO_KHR, nullptr, kType, fd};
  const VkMemoryAllocateFlagsInfo flags{VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO, &import,
                                        VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT, 0};
  VkExternalMemoryBufferCreateInfo external{VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO, nullptr, kType};
  VkBufferCreateInfo info{.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO};
  info.pNext = &external, info.size = 4000;
  info.usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
               VK_BUFFER_USAGE_TRANSFER_DST_BIT;
  Buffer seen;
  REQUIRE(vk.vkCreateBuffer(other->handle, &info, nullptr, &seen.handle) == VK_SUCCESS);
  VkMemoryRequirements needs;
  vk.vkGetBufferMemoryRequirements(other->handle, seen.handle, &needs);
  VkMemoryAllocateInfo allocation{.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO};
  allocation.pNext = &flags, allocation.allocationSize = size;
  allocation.memoryTypeIndex =
      memory_types(other.physical.memory, other.physical.is_unified(), needs.memoryTypeBits, Side::device).at(0);
  REQUIRE(vk.vkAllocateMemory(other->handle, &allocation, nullptr, &seen.memory) == VK_SUCCESS);  // takes the fd
  REQUIRE(vk.vkBindBufferMemory(other->handle, seen.handle, seen.memory, 0) == VK_SUCCESS);
  const VkBufferDeviceAddressInfo asked{VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO, nullptr, seen.handle};
  seen.address = vk.vkGetBufferDeviceAddress(other->handle, &asked);
  other->memory().add_foreign(seen.handle, seen.address, 4000);

  const std::vector<float> ones(1000, 1);
  REQUIRE(nw_copy(rt.handle, on(0), data, {kDLCPU, 0}, ones.data(), 4000, nullptr, nullptr) == NW_OK);
  REQUIRE(add(rt, 0, data, data, data, 1000) == NW_OK);
  Stream& stream = *other->stream(nullptr);
  VkSemaphore imported = VK_NULL_HANDLE;
  if (vulkan.semaphore_create(vulkan.self, 0, &semaphore, &semaphore_fd, &error) == NW_OK) {
    imported = new_timeline(vk, other->handle);
    VkImportSemaphoreFdInfoKHR taken{.sType = VK_STRUCTURE_TYPE_IMPORT_SEMAPHORE_FD_INFO_KHR};
    taken.semaphore = imported, taken.handleType = VK_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD_BIT, taken.fd = semaphore_fd;
    REQUIRE(vk.vkImportSemaphoreFdKHR(other->handle, &taken) == VK_SUCCESS);
    REQUIRE(vulkan.stream_signal(vulkan.self, 0, nullptr, semaphore, 1, nullptr) == NW_OK);
    stream.wait_for(imported, 1);
  } else {
    REQUIRE(nw_stream_sync(rt.handle, on(0), nullptr, nullptr) == NW_OK);
  }
  const auto bits = [](float value) {
    uint32_t word;
    std::memcpy(&word, &value, sizeof word);
    return word;
  };
  std::vector<uint32_t> words(1000);
  stream.copy_to_host(words.data(), seen.address, 4000);
  CHECK(difference(words, std::vector<uint32_t>(1000, bits(2))) == "");
  const std::vector<float> tens(1000, 10);
  stream.copy_from_host(seen.address, tens.data(), 4000);  // and waits
  REQUIRE(add(rt, 0, data, data, data, 1000) == NW_OK);
  std::vector<float> got(1000);
  REQUIRE(nw_copy(rt.handle, {kDLCPU, 0}, got.data(), on(0), data, 4000, nullptr, nullptr) == NW_OK);
  REQUIRE(nw_stream_sync(rt.handle, on(0), nullptr, nullptr) == NW_OK);
  CHECK(got == std::vector<float>(1000, 20));
  other->memory().remove_foreign(seen.address);
  other->memory().destroy_buffer(seen);
  if (imported != VK_NULL_HANDLE) vk.vkDestroySemaphore(other->handle, imported, nullptr);
  if (semaphore != 0) CHECK(vulkan.semaphore_destroy(vulkan.self, 0, semaphore, nullptr) == NW_OK);
  CHECK(nw_free(rt.handle, on(0), data, nullptr, nullptr) == NW_OK);
}

}  // namespace
}  // namespace narrows::vulkan::test
