// SPDX-License-Identifier: Apache-2.0
// memory.cpp -- memory and streams of the device under test, through nw_alloc, nw_free, nw_copy and nw_stream_*.
#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <limits>

#include "support/harness.h"

using namespace narrows::test;

namespace {

constexpr DLDevice kHost{kDLCPU, 0};

DLDevice neighbour(int32_t id) { return {device().device_type, id}; }

// The call was refused with that status, and its message has every word.
void expect_status(int32_t got, const nw_error& error, int32_t status, std::initializer_list<const char*> words) {
  INFO(error.message);
  CHECK(std::string(nw_status_name(got)) == nw_status_name(status));
  if (got == NW_OK) return;
  CHECK(error.status == got);
  for (const char* word : words) {
    INFO("expected word: " << word);
    CHECK(std::strstr(error.message, word) != nullptr);
  }
}

}  // namespace

TEST_CASE("memory: nothing is NULL, and NULL may be freed", "[memory]") {
  void* data = &data;
  nw_error error{};
  REQUIRE(nw_alloc(runtime(), device(), 0, nullptr, &data, &error) == NW_OK);
  CHECK(data == nullptr);
  CHECK(nw_free(runtime(), device(), nullptr, nullptr, &error) == NW_OK);
}

TEST_CASE("memory: allocations are aligned to 256 bytes, and hold what is copied to them", "[memory]") {
  Rng rng("memory");
  for (const uint64_t size : {1u, 2u, 255u, 256u, 257u, 4097u, 1000003u}) {
    void* data = nullptr;
    nw_error error{};
    REQUIRE(nw_alloc(runtime(), device(), size, nullptr, &data, &error) == NW_OK);
    REQUIRE(data != nullptr);
    if (has_addresses()) CHECK(reinterpret_cast<uintptr_t>(data) % NW_WORKSPACE_ALIGN == 0);
    std::vector<unsigned char> there(size), back(size);
    for (unsigned char& byte : there) byte = static_cast<unsigned char>(rng.bits() | 1);  // no byte is 0, as fresh memory may be
    const std::vector<unsigned char> before = there;
    REQUIRE(nw_copy(runtime(), device(), data, kHost, there.data(), size, nullptr, &error) == NW_OK);
    REQUIRE(nw_copy(runtime(), kHost, back.data(), device(), data, size, nullptr, &error) == NW_OK);
    CHECK(there == before);
    CHECK(back == before);
    CHECK(nw_free(runtime(), device(), data, nullptr, &error) == NW_OK);
  }
}

TEST_CASE("memory: more than there can be is refused", "[memory]") {
  for (const uint64_t size : {UINT64_MAX, UINT64_MAX - 1, UINT64_MAX - 255, UINT64_MAX / 2 + 1, UINT64_MAX / 2}) {
    void* data = &data;
    nw_error error{};
    const int32_t status = nw_alloc(runtime(), device(), size, nullptr, &data, &error);
    expect_status(status, error, NW_OUT_OF_MEMORY, {std::to_string(size).c_str(), "bytes"});
    CHECK(data == &data);
  }
}

TEST_CASE("memory: a copy without an address, or past the end of all addresses, is refused", "[memory]") {
  unsigned char here[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  void* data = nullptr;
  nw_error error{};
  REQUIRE(nw_alloc(runtime(), device(), sizeof here, nullptr, &data, &error) == NW_OK);
  expect_status(nw_copy(runtime(), device(), nullptr, kHost, here, 8, nullptr, &error), error, NW_INVALID, {"dst", "NULL", "8"});
  expect_status(nw_copy(runtime(), kHost, here, device(), nullptr, 8, nullptr, &error), error, NW_INVALID, {"src", "NULL", "8"});
  CHECK(nw_copy(runtime(), device(), nullptr, kHost, nullptr, 0, nullptr, &error) == NW_OK);
  if (device().device_type == kDLCPU)
    expect_status(nw_copy(runtime(), device(), data, kHost, here, UINT64_MAX - 4, nullptr, &error), error, NW_INVALID,
                  {"18446744073709551611"});
  CHECK(here[0] == 1);
  CHECK(nw_free(runtime(), device(), data, nullptr, &error) == NW_OK);
}

TEST_CASE("memory: a device that does not exist is refused", "[memory]") {
  for (const int32_t id : {-1, 1000, std::numeric_limits<int32_t>::max()}) {
    const std::string number = std::to_string(id);
    void* data = &data;
    nw_error error{};
    nw_device_info info{};
    info.struct_size = sizeof info;
    expect_status(nw_alloc(runtime(), neighbour(id), 8, nullptr, &data, &error), error, NW_INVALID, {number.c_str(), "device"});
    expect_status(nw_stream_create(runtime(), neighbour(id), &data, &error), error, NW_INVALID, {number.c_str(), "device"});
    expect_status(nw_device(runtime(), neighbour(id), &info, &error), error, NW_INVALID, {number.c_str(), "device"});
    CHECK(data == &data);
    CHECK(info.name[0] == '\0');
  }
}

TEST_CASE("memory: streams are made, synchronised, waited for and destroyed", "[memory]") {
  void *one = &one, *two = &two;
  nw_error error{};
  REQUIRE(nw_stream_create(runtime(), device(), &one, &error) == NW_OK);
  REQUIRE(nw_stream_create(runtime(), device(), &two, &error) == NW_OK);
  if (device().device_type == kDLCPU) {  // whose only stream is NULL
    CHECK(one == nullptr);
    CHECK(two == nullptr);
  } else {
    CHECK(one != two);
  }
  CHECK(nw_stream_wait(runtime(), device(), one, two, &error) == NW_OK);
  CHECK(nw_stream_sync(runtime(), device(), one, &error) == NW_OK);
  CHECK(nw_stream_destroy(runtime(), device(), two, &error) == NW_OK);
  CHECK(nw_stream_destroy(runtime(), device(), one, &error) == NW_OK);
}

TEST_CASE("memory: on the CPU the stream is NULL", "[memory]") {
  if (device().device_type != kDLCPU) SKIP("another device has streams of its own");
  int any = 0;
  void* data = &any;
  nw_error error{};
  expect_status(nw_alloc(runtime(), device(), 8, &any, &data, &error), error, NW_INVALID, {"stream", "expected NULL", "CPU"});
  CHECK(data == &any);
  expect_status(nw_free(runtime(), device(), nullptr, &any, &error), error, NW_INVALID, {"stream", "expected NULL"});
  expect_status(nw_stream_sync(runtime(), device(), &any, &error), error, NW_INVALID, {"stream", "expected NULL"});
  expect_status(nw_stream_wait(runtime(), device(), nullptr, &any, &error), error, NW_INVALID, {"stream", "expected NULL"});
  expect_status(nw_stream_destroy(runtime(), device(), &any, &error), error, NW_INVALID, {"stream", "expected NULL"});
}
