// SPDX-License-Identifier: Apache-2.0
// When a stream submits, and what it puts between commands, as the driver sees it.
#include "driver.h"
#include "opened.h"

namespace narrows::vulkan::test {
namespace {

// Work behind it waits until it is opened.
struct Gate {
  explicit Gate(Device& its_device) : device(its_device), handle(new_timeline(device.vk, device.handle)) {}
  ~Gate() { device.vk.vkDestroySemaphore(device.handle, handle, nullptr); }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  void open() { set_timeline(device.vk, device.handle, handle, 1); }
  Device& device;
  VkSemaphore handle;
};

TEST_CASE("submissions: at once on an idle stream, by 64 ops on a busy one, the rest where somebody waits",
          "[streams][submissions]") {
  const Driver driver;
  Opened opened;
  Stream& stream = *opened->stream(nullptr);
  const Words one(*opened, {1});
  for (const int ops : {1, 63, 64, 65, 130}) {
    const Words words(*opened, std::vector<uint32_t>(100, 7));
    Gate gate(*opened);
    stream.sync();
    const auto submissions = [&, before = driver.calls("vkQueueSubmit")] { return driver.calls("vkQueueSubmit") - before; };
    step(stream, words, one);  // the device has nothing else to do
    CHECK(submissions() == 1);
    stream.sync();
    stream.wait_for(gate.handle, 1);  // the application's, in a submission of its own
    CHECK(submissions() == 2);
    for (int i = 0; i < ops; ++i) step(stream, words, one);
    CHECK(submissions() == 2 + ops / 64);  // behind the gate the stream is busy
    gate.open();
    stream.sync();
    CHECK(submissions() == 2 + (ops + 63) / 64);
    stream.sync();
    CHECK(submissions() == 2 + (ops + 63) / 64);
    step(stream, words, one);
    CHECK(submissions() == 3 + (ops + 63) / 64);
    CHECK(difference(words.read(stream), std::vector<uint32_t>(100, 7 + static_cast<uint32_t>(ops) + 2)) == "");
  }
}

TEST_CASE("barriers: one before each command, and one for the host that reads", "[streams][barriers]") {
  for (const bool as_discrete : {true, false}) {
    const Driver driver({.as_discrete = as_discrete});
    Opened opened(as_discrete);
    Stream& stream = *opened->stream(nullptr);
    const Words one(*opened, {1}), words(*opened, std::vector<uint32_t>(100, 7));
    stream.sync();
    const auto count = [&, barriers = driver.calls("vkCmdPipelineBarrier"),
                        commands = driver.calls("vkCmdDispatch") + driver.calls("vkCmdCopyBuffer"),
                        submissions = driver.calls("vkQueueSubmit")] {
      return std::vector<int>{driver.calls("vkCmdPipelineBarrier") - barriers,
                              driver.calls("vkCmdDispatch") + driver.calls("vkCmdCopyBuffer") - commands,
                              driver.calls("vkQueueSubmit") - submissions};
    };
    for (int i = 0; i < 100; ++i) step(stream, words, one);
    stream.sync();
    std::vector<int> counted = count();
    CHECK(counted[1] == 100);
    // Memory that the host sees is read by it after any submission.
    CHECK(counted[0] == 100 + (opened.physical.is_unified() ? counted[2] : 0));
    (void)words.read(stream);
    counted = count();
    if (as_discrete) CHECK(counted[1] == 101);
    CHECK(counted[0] == counted[1] + (opened.physical.is_unified() ? counted[2] : 1));
    // A batch that is begun while somebody waits has its first one already.
    step(stream, words, one);
    stream.sync(true);
    const int begun = driver.calls("vkCmdPipelineBarrier");
    step(stream, words, one);
    CHECK(driver.calls("vkCmdPipelineBarrier") == begun + (opened.physical.is_unified() ? 1 : 0));
    stream.sync();
    CHECK(difference(words.read(stream), std::vector<uint32_t>(100, 7 + 102)) == "");
    const Kernel kernel = opened->kernels().get(shaders::steps, {1});
    const struct {
      Address words, step;
      uint32_t count, padding;
    } push{words.address, one.address, 100, 0};
    const int before = driver.calls("vkCmdPipelineBarrier");
    Gate gate(*opened);
    stream.wait_for(gate.handle, 1);
    step(stream, words, one);
    const int busy = driver.calls("vkCmdPipelineBarrier");
    CHECK(busy > before);
    stream.record([&](Recorder& recorder) {
      for (int i = 0; i < 3; ++i) recorder.dispatch(kernel, push, 2, i == 0);
    });
    CHECK(driver.calls("vkCmdPipelineBarrier") == busy + 1);  // those that need not wait for each other
    gate.open();
    stream.sync();
  }
}

TEST_CASE("barriers: one for the host after each submission, once the application's own memory is there", "[streams][barriers]") {
  const Driver driver({.as_discrete = true});
  Opened opened(true);
  Stream& stream = *opened->stream(nullptr);
  const Words one(*opened, {1}), words(*opened, {7});
  Buffer buffer = opened->memory().create_buffer(4000, Side::device);
  const auto barriers = [&] {
    const int before = driver.calls("vkCmdPipelineBarrier");
    step(stream, words, one);
    stream.sync();
    return driver.calls("vkCmdPipelineBarrier") - before;
  };
  CHECK(barriers() == 1);
  opened->memory().add_foreign(buffer.handle, buffer.address, 4000);
  CHECK(barriers() == 2);
  opened->memory().remove_foreign(buffer.address);
  opened->memory().destroy_buffer(buffer);
}

}  // namespace
}  // namespace narrows::vulkan::test
