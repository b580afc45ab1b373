// SPDX-License-Identifier: Apache-2.0
// Chains: calls that read what the ones before them wrote, put on a stream together, and ops whose later kernels read what their
// earlier ones wrote. Right with the stream's barriers, and wrong without them, or the first half would prove nothing: only a GPU
// shows that, since a CPU that plays the device runs one command after another.
#include <functional>

#include "calls.h"
#include "driver.h"
#include "opened.h"

namespace narrows::vulkan::test {
namespace {

constexpr int64_t kWords = 8 << 20;  // 32 MiB: of so many words an H200 was seen to get some wrong without barriers

// A device whose default stream waits, so that what is put on it runs all at once.
class Held {
 public:
  Held() {
    nw_vulkan_device device{};
    device.struct_size = sizeof device;
    REQUIRE(rt.vulkan->device(rt.vulkan->self, 0, &device, nullptr) == NW_OK);
    handle_ = static_cast<VkDevice>(device.device);
    volkLoadDeviceTable(&vk_, handle_);
    const PhysicalDevice physical(static_cast<VkInstance>(device.instance), static_cast<VkPhysicalDevice>(device.physical_device));
    is_cpu = physical.is_cpu();
  }
  // Runs what `put` puts on the stream, at most a batch, with its barriers or without.
  void run(bool with_barriers, const std::function<void()>& put) {
    VkSemaphore gate = new_timeline(vk_, handle_);
    REQUIRE(nw_stream_sync(rt.handle, on(0), nullptr, nullptr) == NW_OK);
    REQUIRE(rt.vulkan->stream_wait(rt.vulkan->self, 0, nullptr, reinterpret_cast<uint64_t>(gate), 1, nullptr) == NW_OK);
    if (!with_barriers) driver.leave_out("vkCmdPipelineBarrier");
    const int submissions = driver.calls("vkQueueSubmit"), dispatches = driver.calls("vkCmdDispatch");
    put();
    CHECK(driver.calls("vkQueueSubmit") == submissions);
    CHECK(driver.calls("vkCmdDispatch") > dispatches + 1);
    set_timeline(vk_, handle_, gate, 1);
    REQUIRE(nw_stream_sync(rt.handle, on(0), nullptr, nullptr) == NW_OK);
    driver.calm();
    vk_.vkDestroySemaphore(handle_, gate, nullptr);
  }
  Driver driver;
  const Runtime rt{here()};
  bool is_cpu = false;

 private:
  VkDevice handle_ = VK_NULL_HANDLE;
  VolkDeviceTable vk_{};
};

std::vector<Bytes> one_by_one(Held& held, Prepared& call, int times) {
  call.reset();
  call.fill_workspace(0);
  for (int i = 0; i < times; ++i) {
    if (i != 0) call.swap(0, 0);
    REQUIRE(call.run() == NW_OK);
    REQUIRE(nw_stream_sync(held.rt.handle, on(0), nullptr, nullptr) == NW_OK);
  }
  return call.outputs();
}

// Each call's first output is the first input of the next. The workspace begins as NaNs.
std::vector<Bytes> chained(Held& held, Prepared& call, int times, bool with_barriers) {
  call.reset();
  call.fill_workspace(0xFF);
  held.run(with_barriers, [&] {
    for (int i = 0; i < times; ++i) {
      if (i != 0) call.swap(0, 0);
      REQUIRE(call.run() == NW_OK);
    }
  });
  return call.outputs();
}

// Every chain is right with the barriers, and without them at least one is wrong.
void check_chains(Held& held, const std::vector<Call>& chains, int times) {
  int wrong = 0;
  for (const Call& chain : chains) {
    Prepared call(held.rt, chain);
    call.give_workspace();
    const std::vector<Bytes> expected = one_by_one(held, call, times);
    CHECK((chained(held, call, times, true) == expected));
    if (!held.is_cpu) wrong += chained(held, call, times, false) != expected;
  }
  if (held.is_cpu) SKIP("a device that is a CPU runs one command after another, with barriers and without");
  CHECK(wrong > 0);
}

TEST_CASE("chains: elementwise, each call reading backwards what the one before it wrote", "[chains]") {
  Held held;
  // out[i] = 3 in[n - 1 - i] + 1: the first groups of a call read what the last ones of the call before it write.
  Call call = elementwise(NW_EW_FMA, {{kI32, {kWords}, {-1}, kWords - 1}, {}, {}}, {kI32, {kWords}});
  nw_elementwise_params p{};
  p.function = NW_EW_FMA, p.b_int = 3, p.c_int = 1;
  call.params = params(p);
  check_chains(held, {call}, held.is_cpu ? 4 : 16);
}

// A small call's products begin while its weights are being packed; the first products of a large one read, batches being taken
// backwards, what the last ones of the call before it write.
TEST_CASE("chains: conv1d, by the matrix unit where there is one, whose weights are packed first", "[chains]") {
  Held held;
  const auto call = [&](int64_t batch, int64_t channels, int64_t length) {
    Call made = conv1d(kF16, {batch, channels, length, channels, 3, {.pad_left = 1, .pad_right = 1}});
    const int64_t size = channels * length;
    made.inputs[0].strides = {-size, length, 1}, made.inputs[0].first = (batch - 1) * size;
    return made;
  };
  if (held.is_cpu)
    check_chains(held, {call(1, 64, 500)}, 2);
  else
    check_chains(held, {call(1, 64, 504), call(2, 256, 2048), call(16, 256, kWords / 16 / 256)}, 4);
}

TEST_CASE("chains: lltm_backward, whose products read the gradient of the gates", "[chains]") {
  Held held;
  if (held.is_cpu)
    check_chains(held, {lltm_backward(kF32, 64, 48, 48)}, 1);
  else
    check_chains(held, {lltm_backward(kF32, 64, 64, 64), lltm_backward(kF32, 256, 256, 256), lltm_backward(kF32, 2048, 1408, 1408)},
                 1);
}

// The largest gradient is set to zero, found, read by the split; the parts are read by the products.
TEST_CASE("chains: lltm_backward by the matrix unit, whose gradients are split first", "[chains]") {
  Held held;
  if (held.is_cpu)
    check_chains(held, {lltm_backward(kF16, 64, 48, 48)}, 1);
  else
    check_chains(held, {lltm_backward(kF16, 256, 256, 256), lltm_backward(kF16, 2048, 1408, 1408)}, 1);
}

}  // namespace
}  // namespace narrows::vulkan::test
