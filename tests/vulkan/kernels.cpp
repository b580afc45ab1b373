// SPDX-License-Identifier: Apache-2.0
// Kernels: specialization, features that a device lacks, float controls.
#include <array>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "opened.h"

namespace narrows::vulkan::test {
namespace {

TEST_CASE("kernels: one pipeline for each set of constants", "[kernels]") {
  Opened opened;
  Kernels& kernels = opened->kernels();
  CHECK(kernels.get(shaders::steps, {3}).pipeline == kernels.get(shaders::steps, {3}).pipeline);
  CHECK(kernels.get(shaders::steps, {3}).pipeline != kernels.get(shaders::steps, {4}).pipeline);
}

// While it lives a device's vkCreateComputePipelines waits for open(), and then fails as often as it is told to.
class Gate {
 public:
  explicit Gate(Device& device) : device_(device) {
    real_ = std::exchange(device.vk.vkCreateComputePipelines, create), now_ = this;
  }
  ~Gate() { device_.vk.vkCreateComputePipelines = real_; }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  void wait_for_call() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return calls_ != 0; });
  }
  void open(int failures = 0) {
    const std::lock_guard lock(mutex_);
    is_open_ = true, failures_ = failures;
    changed_.notify_all();
  }
  int calls() {
    const std::lock_guard lock(mutex_);
    return calls_;
  }

 private:
  static VkResult VKAPI_PTR create(VkDevice device, VkPipelineCache cache, uint32_t count, const VkComputePipelineCreateInfo* info,
                                   const VkAllocationCallbacks* callbacks, VkPipeline* made) {
    {
      std::unique_lock lock(now_->mutex_);
      ++now_->calls_;
      now_->changed_.notify_all();
      now_->changed_.wait(lock, [] { return now_->is_open_; });
      if (now_->failures_-- > 0) return VK_ERROR_OUT_OF_HOST_MEMORY;
    }
    return real_(device, cache, count, info, callbacks, made);
  }
  inline static Gate* now_ = nullptr;
  inline static PFN_vkCreateComputePipelines real_ = nullptr;
  Device& device_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int calls_ = 0, failures_ = 0;
  bool is_open_ = false;
};

TEST_CASE("kernels: while one is made, nobody waits but those who want the same, and it is made once", "[kernels][threads]") {
  constexpr int kThreads = 4;
  for (const int failures : {0, 1, kThreads}) {
    Opened opened;
    Kernels& kernels = opened->kernels();
    const Kernel there = kernels.get(shaders::steps, {3});
    Gate gate(*opened);
    std::atomic<int> failed{0};
    std::array<VkPipeline, kThreads> got{};
    std::vector<std::thread> threads;
    for (VkPipeline& pipeline : got)
      threads.emplace_back([&] {
        if (!refusal([&] { pipeline = kernels.get(shaders::steps, {4}).pipeline; }).empty()) ++failed;
      });
    gate.wait_for_call();
    CHECK(kernels.get(shaders::steps, {3}).pipeline == there.pipeline);  // would wait for ever
    CHECK(kernels.count() == 2);
    gate.open(failures);
    for (std::thread& thread : threads) thread.join();
    CHECK(failed == failures);
    CHECK(gate.calls() == (failures == kThreads ? kThreads : failures + 1));
    const VkPipeline made = kernels.get(shaders::steps, {4}).pipeline;
    for (const VkPipeline pipeline : got) CHECK((pipeline == made || pipeline == VK_NULL_HANDLE));
  }
}

TEST_CASE("kernels: some that nobody has are forgotten, and none that is in use", "[kernels]") {
  Opened opened;
  Kernels& kernels = opened->kernels();
  Stream& stream = *opened->stream(nullptr);
  const Words one(*opened, {1}), words(*opened, std::vector<uint32_t>(100, 7));
  kernels.most = 512;
  const Kernel kept = kernels.get(shaders::steps, {3});
  uint32_t expected = 7;
  for (uint32_t factor = 10; factor < 1200; ++factor) {
    step(stream, words, one, factor);  // the kernel is in use by the stream alone
    expected = expected * factor + 1;
    if (factor % 64 == 0) stream.sync();
  }
  CHECK(kernels.get(shaders::steps, {3}).pipeline == kept.pipeline);
  CHECK(kernels.count() < 700);
  CHECK(difference(words.read(stream), std::vector<uint32_t>(100, expected)) == "");
}

TEST_CASE("kernels: a feature that the device lacks is a refusal that names it", "[kernels]") {
  Opened opened;
  if (opened.physical.features.shaderFloat64 == VK_TRUE)
    CHECK(opened->kernels().get(shaders::needs_f64).pipeline != VK_NULL_HANDLE);
  opened.physical.features.shaderFloat64 = VK_FALSE;
  Device device(*opened.loader, opened.physical, 0, false);
  const std::string said = refusal([&] { (void)device.kernels().get(shaders::needs_f64); });
  CHECK(said.substr(0, 2) == "2:");
  CHECK(said.find("lacks shaderFloat64 (SPIR-V capability 10), which shader 'needs_f64' needs") != std::string::npos);
}

TEST_CASE("kernels: float controls that the device lacks are left out", "[kernels]") {
  Opened opened;
  for (const VkBool32 has : {VK_TRUE, VK_FALSE}) {
    if (has == VK_FALSE) opened.physical.properties12.shaderSignedZeroInfNanPreserveFloat32 = VK_FALSE;
    Device device(*opened.loader, opened.physical, 0, false);
    const Words words(device, {0x3f800000});
    const struct {
      Address floats;
    } push{words.address};
    const Kernel kernel = device.kernels().get(shaders::controls);
    Stream& stream = *device.stream(nullptr);
    stream.record([&](Recorder& recorder) { recorder.dispatch(kernel, push, 1); });
    CHECK(difference(words.read(stream), std::vector<uint32_t>{0x40000000}) == "");
  }
}

TEST_CASE("devices: what cannot serve says what it lacks", "[kernels]") {
  Opened opened;
  PhysicalDevice physical = opened.physical;
  CHECK(physical.unfit().empty());
  physical.features12.bufferDeviceAddress = VK_FALSE;
  CHECK(physical.unfit().find("lacks the feature bufferDeviceAddress") != std::string::npos);
  physical.properties.apiVersion = VK_API_VERSION_1_1;
  CHECK(physical.unfit().find("has Vulkan 1.1; expected 1.2 or newer") != std::string::npos);
  CHECK(opened.physical.lacks(5359) != nullptr);  // a capability of drawing
}

}  // namespace
}  // namespace narrows::vulkan::test
