// SPDX-License-Identifier: Apache-2.0
// Streams: order within one, waits between two, batches, many threads, copies through staging.
#include <catch2/generators/catch_generators.hpp>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <thread>
#include <utility>

#include "copy.h"
#include "opened.h"

namespace narrows::vulkan::test {
namespace {

// x -> 3 x + 1, n times, modulo 2^32.
uint32_t chained(uint32_t x, int n) {
  for (int i = 0; i < n; ++i) x = 3 * x + 1;
  return x;
}

TEST_CASE("streams: a chain runs in order, however many batches it takes", "[streams]") {
  Opened opened;
  Stream& stream = *opened->stream(nullptr);
  const Words one(*opened, {1});
  for (const int steps : {1, 63, 64, 65, 500}) {
    const Words words(*opened, std::vector<uint32_t>(10'000, 7));
    for (int i = 0; i < steps; ++i) step(stream, words, one, 3);
    CHECK(difference(words.read(stream), std::vector<uint32_t>(10'000, chained(7, steps))) == "");
  }
}

TEST_CASE("streams: two hand over to each other", "[streams]") {
  Opened opened;
  void* const handles[2] = {opened->add_stream(), opened->add_stream()};
  const std::shared_ptr<Stream> streams[2] = {opened->stream(handles[0]), opened->stream(handles[1])};
  const Words one(*opened, {1}), words(*opened, std::vector<uint32_t>(100'000, 7));
  constexpr int kRounds = 100;
  for (int i = 0; i < kRounds; ++i) {
    step(*streams[i % 2], words, one, 3);
    streams[(i + 1) % 2]->wait_for(*streams[i % 2]);
  }
  streams[0]->wait_for(*streams[0]);  // nothing to do
  CHECK(difference(words.read(*streams[kRounds % 2]), std::vector<uint32_t>(100'000, chained(7, kRounds))) == "");
}

TEST_CASE("streams: one is destroyed while another waits for it", "[streams]") {
  Opened opened;
  Stream& stream = *opened->stream(nullptr);
  const Words one(*opened, {1}), words(*opened, std::vector<uint32_t>(100'000, 7));
  for (int i = 0; i < 20; ++i) {
    void* const handle = opened->add_stream();
    step(*opened->stream(handle), words, one, 3);
    stream.wait_for(*opened->stream(handle));
    opened->remove_stream(handle);
    step(stream, words, one, 3);
    stream.sync();
  }
  CHECK(difference(words.read(stream), std::vector<uint32_t>(100'000, chained(7, 40))) == "");
}

TEST_CASE("streams: a handle that is none is refused", "[streams]") {
  Opened opened;
  void* const handle = opened->add_stream();
  opened->remove_stream(handle);
  CHECK(refusal([&] { (void)opened->stream(handle); }).find("does not belong to device 0") != std::string::npos);
  CHECK(refusal([&] { (void)opened->stream(&opened); }).substr(0, 2) == "1:");
  CHECK(refusal([&] { opened->remove_stream(nullptr); }).find("the default stream") != std::string::npos);
}

TEST_CASE("streams: many threads on streams of their own and on a shared one", "[streams][threads]") {
  Opened opened;
  const Words one(*opened, {1}), shared(*opened, std::vector<uint32_t>(1000));
  constexpr int kThreads = 8, kRounds = 50;
  std::vector<std::vector<uint32_t>> results(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      void* const handle = opened->add_stream();
      {
        const std::shared_ptr<Stream> stream = opened->stream(handle);
        const Words words(*opened, std::vector<uint32_t>(1000, static_cast<uint32_t>(t)));
        for (int i = 0; i < kRounds; ++i) {
          step(*stream, words, one, 3);
          step(*opened->stream(nullptr), shared, one);
          const Address scratch = stream->allocate(5000 + static_cast<uint64_t>(i) * 300);
          stream->free(scratch);
        }
        results[static_cast<size_t>(t)] = words.read(*stream);
        stream->sync();
      }
      opened->remove_stream(handle);
    });
  for (std::thread& thread : threads) thread.join();
  for (int t = 0; t < kThreads; ++t)
    CHECK(difference(results[static_cast<size_t>(t)], std::vector<uint32_t>(1000, chained(static_cast<uint32_t>(t), kRounds))) ==
          "");
  CHECK(difference(shared.read(*opened->stream(nullptr)), std::vector<uint32_t>(1000, kThreads * kRounds)) == "");
}

TEST_CASE("streams: more work groups than a grid's row has", "[streams]") {
  Opened opened;
  opened.physical.properties.limits.maxComputeWorkGroupCount[0] = 7;
  opened.physical.properties.limits.maxComputeWorkGroupCount[1] = 60;
  Stream& stream = *opened->stream(nullptr);
  const Words one(*opened, {1});
  for (const size_t count : {64u * 7, 64u * 7 + 1, 64u * 4 * 59 + 5, 64u * 4 * 60}) {  // rows are of a power of two
    const Words words(*opened, std::vector<uint32_t>(count, 7));
    step(stream, words, one, 3);
    CHECK(difference(words.read(stream), std::vector<uint32_t>(count, 22)) == "");
  }
  const Words words(*opened, std::vector<uint32_t>(64 * 4 * 60 + 1));
  CHECK(refusal([&] { step(stream, words, one); }).find("241 work groups") != std::string::npos);
}

TEST_CASE("copies: through staging and by the host itself, of every size around the staging's", "[copies]") {
  Opened opened(GENERATE(false, true));
  Stream& stream = *opened->stream(nullptr);
  constexpr size_t kHalf = (8 << 20) / 4;
  for (const size_t count : {size_t{1}, kHalf - 1, kHalf, kHalf + 1, 2 * kHalf, 3 * kHalf + 17}) {
    std::vector<uint32_t> values(count);
    std::iota(values.begin(), values.end(), 5u);
    const Words words(*opened, values), one(*opened, {1});
    CHECK(difference(words.read(stream), values) == "");
    step(stream, words, one);  // a copy waits for what is on the stream
    for (uint32_t& v : values) ++v;
    CHECK(difference(words.read(stream), values) == "");
  }
  CHECK((opened->memory().find(stream.allocate(4), 0) == std::nullopt));
  uint32_t word = 0;
  const Words one(*opened, {1});
  CHECK(refusal([&] { stream.copy_to_host(&word, one.address, 8); }).find("lie in no live allocation") != std::string::npos);
  CHECK(refusal([&] { stream.copy_from_host(one.address - 4, &word, 4); }).substr(0, 2) == "1:");
}

TEST_CASE("copies: imported memory is made visible to the host, on a device whose own memory the host does not see", "[copies]") {
  Opened opened(true);
  if (opened.physical.host_import_alignment == 0) SKIP("this device imports no host memory");
  static int to_host = 0;
  static PFN_vkCmdPipelineBarrier barrier = nullptr;
  barrier = std::exchange(opened->vk.vkCmdPipelineBarrier,
                          [](VkCommandBuffer commands, VkPipelineStageFlags before, VkPipelineStageFlags after,
                             VkDependencyFlags flags, uint32_t n, const VkMemoryBarrier* memory, uint32_t n_buffers,
                             const VkBufferMemoryBarrier* buffers, uint32_t n_images, const VkImageMemoryBarrier* images) {
                            to_host += (after & VK_PIPELINE_STAGE_HOST_BIT) != 0;
                            barrier(commands, before, after, flags, n, memory, n_buffers, buffers, n_images, images);
                          });
  Stream& stream = *opened->stream(nullptr);
  const Words one(*opened, {1});
  to_host = 0;
  step(stream, one, one);
  stream.sync();
  CHECK(to_host == 0);
  constexpr size_t kBytes = 65536;
  const std::unique_ptr<void, void (*)(void*)> host(std::aligned_alloc(kBytes, kBytes), std::free);
  const Address imported = opened->memory().import_host(host.get(), kBytes);
  step(stream, one, one);
  stream.sync();
  CHECK(to_host > 0);
  stream.free(imported);
  stream.sync();
}

// Validation does not see the order of accesses through addresses, and lavapipe runs one command after another: only a GPU shows
// what barriers are for. With them right, and without them wrong, or the first half would prove nothing.
TEST_CASE("copies: within the device, by its own means and by the shader, of sizes around a work group's", "[copies]") {
  for (const bool as_discrete : {false, true}) {  // a CPU's copy is its own
    Opened opened(as_discrete);
    Stream& stream = *opened->stream(nullptr);
    std::vector<uint32_t> values(40000);
    for (uint32_t i = 0; i < values.size(); ++i) values[i] = i * 2654435761u;
    const Words from(*opened, values);
    for (const uint64_t first : {0, 4, 1})
      for (const uint64_t count : {1, 4, 1020, 1024, 1028, 4099, 32768}) {
        const Words to(*opened, std::vector<uint32_t>(values.size(), 7));
        copy_within(*opened, stream, to.address + 4 * first, from.address + 4 * first, 4 * count);
        std::vector<uint32_t> expected(values.size(), 7);
        for (uint64_t i = first; i < first + count; ++i) expected[i] = values[i];
        CHECK(difference(to.read(stream), expected) == "");
      }
    CHECK(refusal([&] { copy_within(*opened, stream, from.address, from.address + 16, 32); }).find("overlap") != std::string::npos);
    CHECK(refusal([&] { copy_within(*opened, stream, from.address, 16, 32); }).find("no live allocation") != std::string::npos);
  }
}

TEST_CASE("barriers: commands of one op wait for each other where they ask for it", "[streams][barriers]") {
  Opened opened;
  Stream& stream = *opened->stream(nullptr);
  constexpr size_t kCount = 8 << 20;
  const Words one(*opened, {1});
  const Kernel kernel = opened->kernels().get(shaders::steps, {3});
  const auto chain = [&](bool ordered) {
    const Words words(*opened, std::vector<uint32_t>(kCount, 7));
    const struct {
      Address words, step;
      uint32_t count, padding;
    } push{words.address, one.address, kCount, 0};
    stream.record([&](Recorder& recorder) {
      for (int i = 0; i < 16; ++i) recorder.dispatch(kernel, push, kCount / 64, i == 0 || ordered);
    });
    return difference(words.read(stream), std::vector<uint32_t>(kCount, chained(7, 16)));
  };
  CHECK(chain(true) == "");
  if (opened.physical.is_cpu()) SKIP("a device that is a CPU runs one command after another, with barriers and without");
  CHECK(chain(false) != "");
}

TEST_CASE("params: blocks of an op hold until its batch is done", "[streams]") {
  Opened opened;
  Stream& stream = *opened->stream(nullptr);
  const Words words(*opened, std::vector<uint32_t>(100));
  const Kernel kernel = opened->kernels().get(shaders::steps, {1});
  uint32_t sum = 0;
  for (uint32_t i = 0; i < 300; ++i) {
    std::vector<uint32_t> block(Recorder::kMaxParams / 4, i);
    sum += i;
    stream.record([&](Recorder& recorder) {
      const Address by = recorder.params(block.data(), block.size() * 4);
      const struct {
        Address words, step;
        uint32_t count, padding;
      } push{words.address, by, 100, 0};
      recorder.dispatch(kernel, push, 2);
    });
  }
  CHECK(difference(words.read(stream), std::vector<uint32_t>(100, sum)) == "");
}

}  // namespace
}  // namespace narrows::vulkan::test
