// SPDX-License-Identifier: Apache-2.0
// memory_check_test.cpp -- backends/cuda/memory_check.cpp without a GPU: a driver of our own knows two of them. What is refused on
// one GPU is tested with the real driver too (tests/cuda/memory_kinds.cpp); few machines have two.
#include "memory_check.h"

#include <catch2/catch_test_macros.hpp>
#include <cstdio>
#include <string>
#include <vector>

using namespace narrows::gpu;

namespace {

constexpr size_t kSize = 4096;

// Nothing is there: addresses are looked up alone.
struct Allocation {
  uintptr_t begin;
  Memory memory;
};
const Allocation kAllocations[] = {{uintptr_t{1} << 40, {Memory::kDevice, 0}},
                                   {uintptr_t{2} << 40, {Memory::kDevice, 1}},
                                   {uintptr_t{3} << 40, {Memory::kManaged, 1}},
                                   {uintptr_t{4} << 40, {Memory::kPinned, 1}}};
void* const kHere = reinterpret_cast<void*>(kAllocations[0].begin);
void* const kThere = reinterpret_cast<void*>(kAllocations[1].begin);
void* const kManaged = reinterpret_cast<void*>(kAllocations[2].begin);
void* const kPinned = reinterpret_cast<void*>(kAllocations[3].begin);
void* const kStreams[] = {reinterpret_cast<void*>(uintptr_t{5} << 40),
                          reinterpret_cast<void*>(uintptr_t{6} << 40)};  // of device 0, 1

const Allocation* allocation_of(const void* address) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  for (const Allocation& one : kAllocations)
    if (at >= one.begin && at < one.begin + kSize) return &one;
  return nullptr;
}

}  // namespace

Memory narrows::gpu::memory_at(const void* address) {
  const Allocation* const found = allocation_of(address);
  return found == nullptr ? Memory{Memory::kUnknown, -1} : found->memory;
}

bool narrows::gpu::find_allocation(const void* address, const void** base, size_t* size) {
  const Allocation* const found = allocation_of(address);
  if (found == nullptr) return false;
  *base = reinterpret_cast<const void*>(found->begin), *size = kSize;
  return true;
}

int narrows::gpu::stream_device(gpuStream_t stream) {
  return stream == static_cast<gpuStream_t>(kStreams[0]) ? 0 : stream == static_cast<gpuStream_t>(kStreams[1]) ? 1 : -1;
}

namespace {

// Two inputs and an output of 100 floats, and a workspace of 256 bytes, on device 0.
struct Checked {
  Checked() {
    for (DLTensor& t : tensors) t = {kHere, {static_cast<DLDeviceType>(kDeviceType), 0}, 1, {kDLFloat, 32, 1}, shape, nullptr, 0};
    call.struct_size = sizeof call;
    call.device = tensors[0].device;
    call.num_inputs = 2, call.inputs = pointers;
    call.num_outputs = 1, call.outputs = pointers + 2;
    call.workspace = kHere;
  }
  Checked(const Checked&) = delete;
  Checked& operator=(const Checked&) = delete;

  // The words of the refusal, "" where there is none.
  std::string words() {
    try {
      check_memory(call, 256, 0);
      argument = -2;
      return "";
    } catch (const Refusal& refusal) {
      CHECK(refusal.status == NW_INVALID);
      argument = refusal.argument;
      return refusal.message;
    }
  }

  int64_t shape[1] = {100};
  DLTensor tensors[3];
  const DLTensor* pointers[3] = {&tensors[0], &tensors[1], &tensors[2]};
  nw_call call{};
  int32_t argument = -2;
};

std::string text(const void* address) {
  char out[32];
  std::snprintf(out, sizeof out, "%p", address);
  return out;
}

}  // namespace

TEST_CASE("memory check: memory of another GPU is refused, whichever tensor it is", "[memory_check]") {
  Checked c;
  CHECK(c.words().empty());
  for (int32_t i = 0; i < 3; ++i) {
    c.tensors[i].data = kThere;
    CHECK(c.words() == "tensor " + std::to_string(i) + ": address " + text(kThere) + " is memory of device 1; expected device 0");
    CHECK(c.argument == i);
    c.tensors[i].data = kHere;
  }
  c.call.workspace = kThere;
  CHECK(c.words() == "workspace: address " + text(kThere) + " is memory of device 1; expected device 0");
  CHECK(c.argument == -1);
}

TEST_CASE("memory check: what both GPUs reach is not refused, nor a tensor without elements", "[memory_check]") {
  Checked c;
  c.tensors[0].data = kPinned;
  c.tensors[0].device.device_type = static_cast<DLDeviceType>(kPinnedType);
  c.tensors[1].data = kManaged;
  if (kManagedType != 0) c.tensors[1].device.device_type = static_cast<DLDeviceType>(kManagedType);
  CHECK(c.words().empty());
  int64_t none[1] = {0};
  c.tensors[2].data = kThere, c.tensors[2].shape = none;
  CHECK(c.words().empty());
}

TEST_CASE("memory check: a stream of another GPU is refused, a default stream is every GPU's", "[memory_check]") {
  Checked c;
  c.call.stream = kStreams[0];
  CHECK(c.words().empty());
  c.call.stream = kStreams[1];
  CHECK(c.words() == "stream " + text(kStreams[1]) + " belongs to device 1; the tensors live on device 0");
  CHECK(c.argument == -1);
}

TEST_CASE("memory check: what the driver does not know is refused, and what leaves its allocation", "[memory_check]") {
  Checked c;
  float host[100];
  c.tensors[1].data = host;
  CHECK(c.words() == "tensor 1: address " + text(host) +
                         " is no memory that the driver knows: host memory, or freed; expected memory of device 0");
  c.tensors[1].data = kHere, c.tensors[1].byte_offset = kSize - 396;
  CHECK(c.words() ==
        "tensor 1: it ends 4 bytes past the allocation [" + text(kHere) + ", " + text(static_cast<char*>(kHere) + kSize) + ")");
}
