// SPDX-License-Identifier: Apache-2.0
// plugin_slots.cpp -- devices, memory and streams of the plugin under test, by its slots: what memory.cpp asks of the host, asked
// of the plugin itself, and the growth rule of what it writes.
#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <limits>

#include "plugin_table.h"

using namespace narrows::test;

namespace {

constexpr DLDevice kHost{kDLCPU, 0};

std::vector<unsigned char> random_bytes(size_t size, Rng& rng) {
  std::vector<unsigned char> bytes(size);
  for (unsigned char& byte : bytes) byte = static_cast<unsigned char>(rng.bits());
  return bytes;
}

void* allocated(const Instance& instance, uint64_t size) {
  void* data = nullptr;
  nw_error error{};
  const int32_t status = tested_table().alloc(instance.self(), device().device_id, size, nullptr, &data, &error);
  INFO(size << " bytes: " << error.message);
  REQUIRE(status == NW_OK);
  return data;
}

int32_t copy(const Instance& instance, DLDevice to, void* dst, DLDevice from, const void* src, uint64_t size) {
  return tested_table().copy(instance.self(), to, dst, from, src, size, nullptr, nullptr);
}

// The slot refuses with a reason, and as well where nobody wants to read one.
template <class Slot>
void expect_refusal(const char* what, Slot&& slot) {
  INFO(what);
  nw_error error;
  std::memset(&error, 0x5A, sizeof error);
  CHECK(refusal_fault(slot(&error), error, 0) == "");
  CHECK(slot(nullptr) != NW_OK);
}

}  // namespace

TEST_CASE("plugin: the device under test is counted", "[plugin]") {
  const Instance instance;
  for (int again = 0; again < 2; ++again) {
    int32_t count = -1;
    WatchedError watched;
    REQUIRE(tested_table().device_count(instance.self(), &count, &watched.error) == NW_OK);
    CHECK(count > device().device_id);
    CHECK(watched.untouched());
  }
}

TEST_CASE("plugin: nw_device_info of every size is filled as far as it goes", "[plugin][growth]") {
  const Instance instance;
  Sized<nw_device_info> whole(sizeof(nw_device_info));
  REQUIRE(tested_table().device_info(instance.self(), device().device_id, whole.get(), nullptr) == NW_OK);
  CHECK(std::memchr(whole.get()->name, '\0', sizeof whole.get()->name) != nullptr);
  CHECK(std::memchr(whole.get()->arch, '\0', sizeof whole.get()->arch) != nullptr);
  CHECK(whole.get()->name[0] != '\0');
  std::string damaged;
  for (size_t size = sizeof(uint32_t); size <= sizeof(nw_device_info) + 40; ++size) {
    Sized<nw_device_info> some(size);
    REQUIRE(tested_table().device_info(instance.self(), device().device_id, some.get(), nullptr) == NW_OK);
    const bool named = size < offsetof(nw_device_info, arch) || std::strcmp(some.get()->name, whole.get()->name) == 0;
    if (!some.intact_behind() || some.get()->struct_size != size || !named) damaged += " " + std::to_string(size);
  }
  INFO("struct_size of nw_device_info at which it wrote past the end, or changed struct_size, or left out the name:" << damaged);
  CHECK(damaged.empty());
}

TEST_CASE("plugin: a device that does not exist is refused", "[plugin]") {
  const Instance instance;
  const nw_plugin& table = tested_table();
  int32_t count = 0;
  REQUIRE(table.device_count(instance.self(), &count, nullptr) == NW_OK);
  for (const int32_t id : {-1, count, 1000000, std::numeric_limits<int32_t>::max()}) {
    INFO("device_id " << id);
    nw_device_info info{};
    info.struct_size = sizeof info;
    void *data = &data, *stream = nullptr;
    expect_refusal("device_info", [&](nw_error* error) { return table.device_info(instance.self(), id, &info, error); });
    expect_refusal("alloc", [&](nw_error* error) { return table.alloc(instance.self(), id, 8, nullptr, &data, error); });
    expect_refusal("stream_create", [&](nw_error* error) { return table.stream_create(instance.self(), id, &stream, error); });
    expect_refusal("stream_sync", [&](nw_error* error) { return table.stream_sync(instance.self(), id, nullptr, error); });
    CHECK(data == &data);
  }
}

TEST_CASE("plugin: memory of 0 bytes is NULL, and NULL may be freed", "[plugin][memory]") {
  const Instance instance;
  WatchedError watched;
  void* data = &data;
  REQUIRE(tested_table().alloc(instance.self(), device().device_id, 0, nullptr, &data, &watched.error) == NW_OK);
  CHECK(data == nullptr);
  CHECK(tested_table().free(instance.self(), device().device_id, nullptr, nullptr, &watched.error) == NW_OK);
  CHECK(watched.untouched());
}

TEST_CASE("plugin: memory is aligned to 256 bytes and apart, whatever its size", "[plugin][memory]") {
  const Instance instance;
  constexpr uint64_t kSizes[] = {1, 2, 3, 8, 24, 100, 255, 256, 257, 1000, 4096, 4097, 65537, 1000003};
  std::vector<void*> all;
  for (const uint64_t size : kSizes) {
    all.push_back(allocated(instance, size));
    INFO(size << " bytes at " << all.back());
    CHECK(all.back() != nullptr);
    if (has_addresses()) CHECK(reinterpret_cast<uintptr_t>(all.back()) % NW_WORKSPACE_ALIGN == 0);
  }
  Rng rng("plugin memory");
  std::vector<std::vector<unsigned char>> bytes;
  for (const uint64_t size : kSizes) bytes.push_back(random_bytes(size, rng));
  for (size_t i = 0; i < all.size(); ++i)
    REQUIRE(copy(instance, device(), all[i], kHost, bytes[i].data(), bytes[i].size()) == NW_OK);
  for (size_t i = 0; i < all.size(); ++i) {
    std::vector<unsigned char> back(bytes[i].size());
    REQUIRE(copy(instance, kHost, back.data(), device(), all[i], back.size()) == NW_OK);
    CHECK(same_bytes(back, bytes[i]));
    CHECK(tested_table().free(instance.self(), device().device_id, all[i], nullptr, nullptr) == NW_OK);
  }
}

TEST_CASE("plugin: copies in every direction, of odd sizes at odd places", "[plugin][memory]") {
  if (!has_addresses()) SKIP("DLTensor.data of this device is a handle, in which there is no second byte");
  const Instance instance;
  constexpr uint64_t kSize = 3001;
  Rng rng("plugin copies");
  auto *const a = static_cast<char*>(allocated(instance, kSize)), *const b = static_cast<char*>(allocated(instance, kSize));
  for (const uint64_t at : {0, 1, 3, 64, 255})
    for (const uint64_t n : {0, 1, 7, 255, 1023, 2001}) {
      INFO(n << " bytes at " << at);
      std::vector<unsigned char> expected = random_bytes(kSize, rng), back(kSize);
      const std::vector<unsigned char> other = random_bytes(n, rng);
      REQUIRE(copy(instance, device(), a, kHost, expected.data(), kSize) == NW_OK);
      REQUIRE(copy(instance, device(), b, kHost, expected.data(), kSize) == NW_OK);
      REQUIRE(copy(instance, device(), a + at, kHost, other.data(), n) == NW_OK);   // in
      REQUIRE(copy(instance, device(), b + at + 2, device(), a + at, n) == NW_OK);  // across
      std::copy(other.begin(), other.end(), expected.begin() + static_cast<std::ptrdiff_t>(at + 2));
      REQUIRE(tested_table().stream_sync(instance.self(), device().device_id, nullptr, nullptr) == NW_OK);
      REQUIRE(copy(instance, kHost, back.data(), device(), b, kSize) == NW_OK);  // out
      CHECK(same_bytes(back, expected));
    }
  for (char* memory : {a, b}) CHECK(tested_table().free(instance.self(), device().device_id, memory, nullptr, nullptr) == NW_OK);
}

TEST_CASE("plugin: streams are made, waited for, synchronised and destroyed", "[plugin][stream]") {
  const Instance instance;
  const nw_plugin& table = tested_table();
  const int32_t id = device().device_id;
  WatchedError watched;
  void *one = &one, *two = &two;
  REQUIRE(table.stream_create(instance.self(), id, &one, &watched.error) == NW_OK);
  REQUIRE(table.stream_create(instance.self(), id, &two, &watched.error) == NW_OK);
  if (device().device_type == kDLCPU) {  // whose only stream is NULL
    CHECK(one == nullptr);
    CHECK(two == nullptr);
  } else {
    CHECK(one != two);
  }
  CHECK(table.stream_wait(instance.self(), id, one, two, &watched.error) == NW_OK);
  CHECK(table.stream_wait(instance.self(), id, one, nullptr, &watched.error) == NW_OK);
  for (void* stream : {one, two, static_cast<void*>(nullptr)})
    CHECK(table.stream_sync(instance.self(), id, stream, &watched.error) == NW_OK);
  CHECK(table.stream_destroy(instance.self(), id, two, &watched.error) == NW_OK);
  CHECK(table.stream_destroy(instance.self(), id, one, &watched.error) == NW_OK);
  CHECK(watched.untouched());
}

TEST_CASE("plugin: on the CPU a stream that is not NULL is refused", "[plugin][stream]") {
  if (device().device_type != kDLCPU) SKIP("another device has streams of its own");
  const Instance instance;
  const nw_plugin& table = tested_table();
  int nobodys = 0;
  void* data = &nobodys;
  expect_refusal("alloc", [&](nw_error* error) { return table.alloc(instance.self(), 0, 8, &nobodys, &data, error); });
  CHECK(data == &nobodys);
  expect_refusal("stream_sync", [&](nw_error* error) { return table.stream_sync(instance.self(), 0, &nobodys, error); });
  expect_refusal("stream_wait", [&](nw_error* error) { return table.stream_wait(instance.self(), 0, nullptr, &nobodys, error); });
}

TEST_CASE("plugin: an extension that nobody has is NULL", "[plugin]") {
  const nw_plugin& table = tested_table();
  if (table.struct_size < offsetof(nw_plugin, extension) + sizeof table.extension || table.extension == nullptr)
    SKIP("the plugin has no extension slot");
  const Instance instance;
  CHECK(table.extension(instance.self(), "narrows_test.nobody_has_this/1") == nullptr);
}
