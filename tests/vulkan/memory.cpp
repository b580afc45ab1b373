// SPDX-License-Identifier: Apache-2.0
// Memory: allocations apart, addresses found and lost, blocks that go back.
#include <catch2/generators/catch_generators.hpp>
#include <cstring>
#include <map>
#include <random>

#include "driver.h"
#include "opened.h"
#include "runtime.h"

namespace narrows::vulkan::test {
namespace {

TEST_CASE("memory: live allocations are apart, aligned, and found by every address in them", "[memory]") {
  const bool checked = GENERATE(false, true);
  Opened opened(false, checked);
  Memory& memory = opened->memory();
  std::mt19937 random(1);
  std::map<Address, uint64_t> live;
  for (int round = 0; round < 2000; ++round) {
    if (live.size() < 200 && random() % 3 != 0) {
      const uint64_t size = 1 + random() % (round % 50 == 0 ? 20u << 20 : 5000u);
      const Address address = memory.allocate(size);
      REQUIRE(address != 0);
      REQUIRE(address % NW_WORKSPACE_ALIGN == 0);
      const auto next = live.lower_bound(address);
      REQUIRE((next == live.end() || address + size <= next->first));
      if (next != live.begin()) REQUIRE(std::prev(next)->first + std::prev(next)->second <= address);
      live.emplace(address, size);
    } else if (!live.empty()) {
      const auto victim = std::next(live.begin(), static_cast<long>(random() % live.size()));
      const auto [address, size] = *victim;
      Pieces freed;
      memory.retire(address, 0, freed);
      REQUIRE(freed.size() == 1);
      CHECK(freed.front().size == size);
      CHECK_FALSE(memory.find(address, address + 1));
      memory.give_back(address);
      live.erase(victim);
    }
  }
  for (const auto& [address, size] : live) {
    CHECK(memory.find(address, address + size));
    CHECK(memory.find(address + size - 1, address + size));
    CHECK_FALSE(memory.find(address, address + size + 1));
    CHECK_FALSE(memory.find(address - 1, address + 1));
    CHECK(memory.near(address + size - 1) == std::pair(address, address + size));
  }
  CHECK_FALSE(memory.find(0x10, 0x20));
  CHECK_FALSE(memory.find(~Address{0} - 8, ~Address{0}));
  Pieces freed;
  for (const auto& [address, size] : live) memory.retire(address, 0, freed), memory.give_back(address);
}

TEST_CASE("memory: what is freed twice, or was never allocated, is refused", "[memory]") {
  Opened opened;
  Stream& stream = *opened->stream(nullptr);
  const Address address = stream.allocate(1000);
  stream.free(address);
  CHECK(refusal([&] { stream.free(address); }).find("; expected one that was allocated on device 0") != std::string::npos);
  CHECK(refusal([&] { stream.free(address + 4); }).substr(0, 2) == "1:");
  CHECK(refusal([&] { (void)opened->memory().allocate(uint64_t{1} << 60); }).substr(0, 2) == "4:");
}

TEST_CASE("memory: the largest allocation that the device grants is had, and one more byte is refused with that number",
          "[memory]") {
  constexpr uint64_t kLargest = 100 << 20;
  const Driver driver({.largest = kLargest});
  const Runtime rt(here());
  void* data = nullptr;
  for (const uint64_t less : {uint64_t{0}, uint64_t{256}, uint64_t{40'000}, uint64_t{64} << 10, uint64_t{100'000}}) {
    INFO(less);
    REQUIRE(nw_alloc(rt.handle, on(0), kLargest - less, nullptr, &data, nullptr) == NW_OK);
    REQUIRE(nw_free(rt.handle, on(0), data, nullptr, nullptr) == NW_OK);
  }
  nw_error error{};
  CHECK(nw_alloc(rt.handle, on(0), kLargest + 1, nullptr, &data, &error) == NW_OUT_OF_MEMORY);
  INFO(error.message);
  CHECK(
      std::strstr(error.message, "cannot allocate 104857601 bytes on device 0; it promises allocations of up to 104857600 bytes"));
  CHECK(nw_alloc(rt.handle, on(0), uint64_t{1} << 60, nullptr, &data, &error) == NW_OUT_OF_MEMORY);
  CHECK(std::strstr(error.message, "vulkan: 1152921504606846976 bytes were asked for; ") == error.message);
  CHECK(nw_alloc(rt.handle, on(0), 4, nullptr, &data, nullptr) == NW_OK);
}

TEST_CASE("memory: more than the device's largest buffer is refused with that limit", "[memory]") {
  Opened opened;
  CHECK(opened.physical.largest_buffer >= uint64_t{1} << 30);
  opened.physical.largest_buffer = 100 << 20;
  Device device(*opened.loader, opened.physical, 0, false);
  const std::string expected = " has 104857600 at most (maxBufferSize)";
  for (const auto& said : {refusal([&] { (void)device.stream(nullptr)->allocate((100 << 20) + 1); }), refusal([&] {
                             (void)device.memory().import_host(reinterpret_cast<void*>(uintptr_t{1} << 20), uint64_t{1} << 30);
                           })}) {
    if (said.find("cannot import") != std::string::npos) continue;
    CHECK(said.substr(0, 2) == std::to_string(NW_OUT_OF_MEMORY) + ":");
    CHECK(said.find(expected) != std::string::npos);
  }
  const Address largest = device.stream(nullptr)->allocate(100 << 20);
  CHECK(largest != 0);
  device.stream(nullptr)->free(largest);
}

TEST_CASE(
    "memory: the driver is asked once for what is allocated over and over; what is empty is kept to a limit, and goes by trim()",
    "[memory]") {
  const Driver driver;
  Opened opened;
  Stream& stream = *opened->stream(nullptr);
  const auto had = [&] { return driver.left_over()["vkAllocateMemory"]; };
  const int asked = driver.calls("vkAllocateMemory"), before = had();
  for (int i = 0; i < 1000; ++i) {
    const Address small = stream.allocate(1000 + static_cast<uint64_t>(i)), middle = stream.allocate(1 << 20);
    stream.free(small);
    stream.free(middle);
    if (i % 100 == 0) stream.sync();
  }
  CHECK(driver.calls("vkAllocateMemory") == asked + 1);  // one block
  constexpr uint64_t kLarge = 40 << 20;                  // has a block of its own
  for (int i = 0; i < 100; ++i) stream.free(stream.allocate(kLarge)), stream.sync();
  CHECK(driver.calls("vkAllocateMemory") == asked + 2);
  std::vector<Address> many;
  for (int i = 0; i < 10; ++i) many.push_back(stream.allocate(kLarge));
  CHECK(had() == before + 11);
  for (const Address address : many) stream.free(address);
  stream.sync();
  CHECK(had() <= before + 6);  // 256 MiB of empty blocks, the one of 64 MiB among them
  CHECK(had() >= before + 4);
  opened->memory().trim();
  CHECK(had() == before);
  stream.free(stream.allocate(1000));
  CHECK(had() == before + 1);
}

TEST_CASE("memory: a stream has at once what was freed on it, another one only when its work is done", "[memory]") {
  Opened opened;
  Stream& stream = *opened->stream(nullptr);
  void* const other = opened->add_stream();
  const Address first = stream.allocate(100'000'000);  // a block of its own
  stream.free(first);
  const Address again = stream.allocate(100'000'000);
  CHECK(again == first);
  const Words one(*opened, {1});
  const Words many(*opened, std::vector<uint32_t>(1 << 20));
  for (int i = 0; i < 40; ++i) step(stream, many, one);
  stream.free(again);
  const Address elsewhere = opened->stream(other)->allocate(100'000'000);
  CHECK(elsewhere != first);
  stream.sync();
  opened->stream(other)->free(elsewhere);
}

}  // namespace
}  // namespace narrows::vulkan::test
