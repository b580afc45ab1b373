// SPDX-License-Identifier: Apache-2.0
// Out of memory at every allocation, the driver's and the backend's own: each call of an application's life is repeated until it
// gets through, and fails one allocation later each time. It says so, and the next call works.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <new>

#include "calls.h"
#include "driver.h"
#include "environment.h"
#include "opened.h"
#include "runtime.h"

// The program's functions lie between these.
extern "C" const char __executable_start, etext;

namespace {

thread_local int g_good_news = -1;  // calls of operator new from the program's own code before the one that fails; -1: none does
thread_local bool g_new_has_failed = false;

void* allocate(size_t size, const void* caller) {
  const bool is_ours = caller >= &__executable_start && caller < &etext;
  if (g_good_news >= 0 && is_ours && g_good_news-- == 0) {
    g_new_has_failed = true;
    throw std::bad_alloc();
  }
  if (void* const memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(size_t size) { return allocate(size, __builtin_return_address(0)); }
void* operator new[](size_t size) { return allocate(size, __builtin_return_address(0)); }
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }

namespace narrows::vulkan::test {
namespace {

// What runs out of memory: at its call number `call` from now on; whether it has since.
struct Scarcity {
  void (*begin)(Driver&, int call);
  bool (*end)(Driver&);
};
const Scarcity kDriver = {[](Driver& driver, int call) { driver.fail(call); },
                          [](Driver& driver) {
                            const bool failed = driver.has_failed();
                            driver.calm();
                            return failed;
                          }};
const Scarcity kNew = {[](Driver&, int call) { g_new_has_failed = false, g_good_news = call; },
                       [](Driver&) {
                         g_good_news = -1;
                         return g_new_has_failed;
                       }};

class Life {
 public:
  Life(Driver& driver, const Scarcity& scarcity) : driver_(driver), scarcity_(scarcity) {}

  // Calls until nothing fails within the call; the number of failures. undo: of what may go well in spite of one.
  template <class Call>
  int pass(const char* what, Call&& call, const std::function<void()>& undo = nullptr) {
    for (int failures = 0;; ++failures) {
      nw_error error{};
      scarcity_.begin(driver_, failures);
      const int32_t status = call(&error);
      const bool failed = scarcity_.end(driver_);
      INFO(what << ", allocation " << failures << ": " << error.message);
      if (!failed) {
        REQUIRE(status == NW_OK);
        return failures;
      }
      if (status == NW_OK && undo != nullptr) {
        undo();
        continue;
      }
      REQUIRE(status == NW_OUT_OF_MEMORY);
      CHECK(std::strlen(error.message) > 10);
    }
  }

 private:
  Driver& driver_;
  const Scarcity& scarcity_;
};

// Ops of several kernels, with a workspace of the runtime's and with one that is given, and a copy within the device. What a call
// gives that went well in the end is what it gives without any trouble.
void live_with_ops(const Runtime& rt, Life& life) {
  const Tensor run{kF32, {4'000}}, rows{kF32, {4'000, 3}};
  const Call calls[] = {elementwise_backward(NW_EW_MUL, {rows, {kF32, {3}}}, rows), conv1d_backward(kF32, {2, 9, 1'500, 9, 3, {}}),
                        lltm(kF32, 3, 4, 5), lltm_backward(kF32, 600, 5, 6)};
  for (const Call& call : calls)
    for (const bool given : {false, true}) {
      Prepared prepared(rt, call);
      if (given) prepared.give_workspace();
      life.pass(call.op, [&](nw_error* e) { return nw_run(rt.handle, &prepared.handed, e); }, [] {});
      const std::vector<Bytes> got = prepared.outputs();
      REQUIRE(prepared.run() == NW_OK);
      CHECK((prepared.outputs() == got));
    }
  Prepared copied(rt, elementwise(NW_EW_NEG, {run}, run));
  void *const from = copied.handed.inputs[0]->data, *const to = copied.handed.outputs[0]->data;
  life.pass("nw_copy", [&](nw_error* e) { return nw_copy(rt.handle, on(0), to, on(0), from, 16'000, nullptr, e); }, [] {});
  Bytes bytes(16'000);
  REQUIRE(nw_copy(rt.handle, {kDLCPU, 0}, bytes.data(), on(0), from, bytes.size(), nullptr, nullptr) == NW_OK);
  REQUIRE(nw_stream_sync(rt.handle, on(0), nullptr, nullptr) == NW_OK);
  CHECK((copied.outputs()[0] == bytes));
}

// An application's semaphore. A wait that is refused is not on the stream: those values are beyond what the semaphore reaches while
// the stream gets through.
void live_with_semaphores(const Runtime& rt, Life& life, void* stream) {
  const nw_vulkan& vulkan = *rt.vulkan;
  nw_vulkan_device device{};
  device.struct_size = sizeof device;
  REQUIRE(vulkan.device(vulkan.self, 0, &device, nullptr) == NW_OK);
  const auto handle = static_cast<VkDevice>(device.device);
  VolkDeviceTable vk{};
  volkLoadDeviceTable(&vk, handle);
  const VkSemaphore semaphore = new_timeline(vk, handle);
  const auto number = reinterpret_cast<uint64_t>(semaphore);
  uint64_t next = 1000, reached = 0;
  const auto wait = [&](nw_error* e) {
    const uint64_t value = next--;
    const int32_t status = vulkan.stream_wait(vulkan.self, 0, stream, number, value, e);
    if (status == NW_OK) reached = std::max(reached, value);
    return status;
  };
  life.pass("stream_wait", wait, [] {});
  set_timeline(vk, handle, semaphore, reached);
  uint64_t mine = 0, point = 0;
  life.pass("stream_point", [&](nw_error* e) { return vulkan.stream_point(vulkan.self, 0, stream, &mine, &point, e); });
  const auto of_stream = reinterpret_cast<VkSemaphore>(mine);
  VkSemaphoreWaitInfo info{.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO};
  info.semaphoreCount = 1, info.pSemaphores = &of_stream, info.pValues = &point;
  CHECK(vk.vkWaitSemaphores(handle, &info, 20'000'000'000) == VK_SUCCESS);
  set_timeline(vk, handle, semaphore, 2000);
  uint64_t signaled = 2000;
  life.pass("stream_signal", [&](nw_error* e) { return vulkan.stream_signal(vulkan.self, 0, stream, number, ++signaled, e); });
  CHECK(nw_stream_sync(rt.handle, on(0), stream, nullptr) == NW_OK);
  info.pSemaphores = &semaphore, info.pValues = &signaled;  // the stream's own may be there first
  CHECK(vk.vkWaitSemaphores(handle, &info, 20'000'000'000) == VK_SUCCESS);
  uint64_t value = 0;
  CHECK(vk.vkGetSemaphoreCounterValue(handle, semaphore, &value) == VK_SUCCESS);
  CHECK(value == signaled);
  vk.vkDestroySemaphore(handle, semaphore, nullptr);
}

// A device opened, memory, a stream, a chain of more than a batch, copies, a plan, semaphores, memory for others, an adopted
// device; and the way back.
void live(Driver& driver, const Scarcity& scarcity) {
  Life life(driver, scarcity);
  {  // the instance too
    nw_runtime* first = nullptr;
    REQUIRE(nw_runtime_create(nullptr, &first, nullptr) == NW_OK);
    REQUIRE(nw_load(first, here(), nullptr) == NW_OK);
    nw_device_info info{};
    info.struct_size = sizeof info;
    const int found = life.pass("nw_device", [&](nw_error* e) { return nw_device(first, on(0), &info, e); });
    CHECK(found > 0);
    nw_runtime_destroy(first);
  }
  Application app;
  const Runtime rt(here());
  const nw_vulkan& vulkan = *rt.vulkan;
  constexpr int64_t kCount = 1000;
  const auto alloc = [&](int32_t id, uint64_t size) {
    void* data = nullptr;
    // Where there is no room for a block, a smaller one may be had.
    life.pass(
        "nw_alloc", [&](nw_error* e) { return nw_alloc(rt.handle, on(id), size, nullptr, &data, e); },
        [&] { nw_free(rt.handle, on(id), data, nullptr, nullptr); });
    return data;
  };
  void *sum = alloc(0, kCount * 4), *step = alloc(0, kCount * 4), *stream = nullptr;
  const int made = life.pass("nw_stream_create", [&](nw_error* e) { return nw_stream_create(rt.handle, on(0), &stream, e); });
  CHECK(made > 0);
  std::vector<float> ones(kCount, 1), got(kCount);
  life.pass("nw_copy",
            [&](nw_error* e) { return nw_copy(rt.handle, on(0), step, {kDLCPU, 0}, ones.data(), kCount * 4, stream, e); });
  life.pass("nw_run", [&](nw_error* e) { return add(rt, 0, step, step, sum, kCount, e, stream); });
  int sums = 0;  // of calls that said NW_OK, and of no others
  for (int i = 0; i < 150; ++i)
    life.pass(
        "nw_run",
        [&](nw_error* e) {
          const int32_t status = add(rt, 0, sum, step, sum, kCount, e, stream);
          sums += status == NW_OK;
          return status;
        },
        [] {});
  life.pass("nw_stream_wait", [&](nw_error* e) { return nw_stream_wait(rt.handle, on(0), nullptr, stream, e); });
  life.pass("nw_copy",
            [&](nw_error* e) { return nw_copy(rt.handle, {kDLCPU, 0}, got.data(), on(0), sum, kCount * 4, nullptr, e); });
  life.pass("nw_stream_sync", [&](nw_error* e) { return nw_stream_sync(rt.handle, on(0), nullptr, e); });
  CHECK(sums >= 150);
  CHECK(got == std::vector<float>(kCount, 2 + static_cast<float>(sums)));

  live_with_ops(rt, life);
  live_with_semaphores(rt, life, stream);
  void* data = nullptr;
  int32_t fd = -1, id = -1;
  uint64_t size = 0, semaphore = 0;
  if (vulkan.alloc_exportable(vulkan.self, 0, 4000, &data, &fd, &size, nullptr) == NW_OK) {
    close(fd);
    nw_free(rt.handle, on(0), data, nullptr, nullptr);
    life.pass("alloc_exportable", [&](nw_error* e) { return vulkan.alloc_exportable(vulkan.self, 0, 4000, &data, &fd, &size, e); });
    close(fd);
    nw_free(rt.handle, on(0), data, nullptr, nullptr);
  }
  if (vulkan.semaphore_create(vulkan.self, 0, &semaphore, &fd, nullptr) == NW_OK) {
    close(fd);
    vulkan.semaphore_destroy(vulkan.self, 0, semaphore, nullptr);
    life.pass("semaphore_create", [&](nw_error* e) { return vulkan.semaphore_create(vulkan.self, 0, &semaphore, &fd, e); });
    close(fd);
    vulkan.semaphore_destroy(vulkan.self, 0, semaphore, nullptr);
  }
  const std::unique_ptr<void, void (*)(void*)> host(std::aligned_alloc(65536, 65536), std::free);
  if (app.opened.physical.host_import_alignment != 0) {
    life.pass("import_host", [&](nw_error* e) { return vulkan.import_host(vulkan.self, 0, host.get(), 65536, &data, e); });
    nw_free(rt.handle, on(0), data, nullptr, nullptr);
  }
  const int adopted = life.pass("adopt_device", [&](nw_error* e) { return vulkan.adopt_device(vulkan.self, &app.device, &id, e); });
  CHECK(adopted > 0);
  CHECK(id == 1);  // those that failed have left none behind
  data = alloc(id, kCount * 4);
  life.pass("nw_run", [&](nw_error* e) { return add(rt, id, data, data, data, kCount, e); });
  CHECK(life.pass("nw_free", [&](nw_error* e) { return nw_free(rt.handle, on(id), data, nullptr, e); }) == 0);
  life.pass("release_device", [&](nw_error* e) { return vulkan.release_device(vulkan.self, id, e); });
  for (void* freed : {sum, step})  // what gives memory back needs none
    CHECK(life.pass("nw_free", [&](nw_error* e) { return nw_free(rt.handle, on(0), freed, stream, e); }) == 0);
  life.pass("nw_stream_destroy", [&](nw_error* e) { return nw_stream_destroy(rt.handle, on(0), stream, e); });
}

TEST_CASE("out of memory: the driver's, at each of its calls", "[faults][memory]") {
  for (const char* checked : {"0", "1"})
    for (const bool as_discrete : {true, false}) {
      const EnvironmentVariable check("NARROWS_CHECK", checked);
      Driver driver({.as_discrete = as_discrete});
      live(driver, kDriver);
      for (const auto& [name, count] : driver.left_over()) FAIL_CHECK(count << " left of " << name);
      std::set<std::string> missed = Driver::functions();
      for (const std::string& name : driver.failed()) missed.erase(name);
      for (const char* optional : {"vkGetMemoryFdKHR", "vkGetSemaphoreFdKHR", "vkGetMemoryHostPointerPropertiesEXT"})
        if (driver.calls(optional) == 0) missed.erase(optional);
      for (const std::string& name : missed) FAIL_CHECK(name << " has never failed");
    }
}

TEST_CASE("out of memory: the host's, at each operator new of the backend", "[faults][memory]") {
  for (const char* checked : {"0", "1"}) {
    const EnvironmentVariable check("NARROWS_CHECK", checked);
    Driver driver({.as_discrete = true});
    live(driver, kNew);
    for (const auto& [name, count] : driver.left_over()) FAIL_CHECK(count << " left of " << name);
  }
}

}  // namespace
}  // namespace narrows::vulkan::test
