// SPDX-License-Identifier: Apache-2.0
// emulation_test.cpp -- the HIP that the CPU plays, by itself: that blocks, threads and barriers are what kernels take them for,
// that what is wrong with a kernel shows, and that wrong calls are refused with HIP's errors.
#include <catch2/catch_test_macros.hpp>
#include <vector>

#include "hip/hip_runtime.h"

namespace {

constexpr unsigned kThreads = 128;

// Each block turns its part of `in` around, through shared memory.
template <bool kWithBarrier>
__global__ void turn_around(const int* in, int* out) {
  __shared__ int part[kThreads];
  const unsigned first = blockIdx.x * blockDim.x;
  part[threadIdx.x] = in[first + threadIdx.x];
  if (kWithBarrier) __syncthreads();
  out[first + threadIdx.x] = part[blockDim.x - 1 - threadIdx.x];
}

// Sums by halves, in dynamic shared memory; threads that have nothing to add any more end.
__global__ void add_up(const int* in, int* out) {
  gpuDynamicShared(int, sums);
  sums[threadIdx.x] = in[threadIdx.x];
  for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x >= half) return;
    sums[threadIdx.x] += sums[threadIdx.x + half];
  }
  if (threadIdx.x == 0) *out = sums[0];
}

// Each thread's neighbour's, and then what that one got of a thread sixteen away.
__global__ void exchange(const int* in, int* out) {
  const int near = __shfl_xor(in[threadIdx.x], 1, 32);
  out[threadIdx.x] = __shfl_xor(near, 16, 32);
}

__global__ void write_at(int* out, int64_t index) { out[index] = 1; }

// By a pointer, of whose array UndefinedBehaviorSanitizer does not know.
__global__ void write_shared_at(int* out, int64_t index) {
  __shared__ int part[kThreads];
  int* const first = part;
  first[index] = 1;
  *out = first[0];
}

struct DeviceMemory {
  explicit DeviceMemory(size_t count) : size(count * sizeof(int)) { REQUIRE(hipMalloc(&data, size) == hipSuccess); }
  explicit DeviceMemory(const std::vector<int>& values) : DeviceMemory(values.size()) {
    REQUIRE(hipMemcpyAsync(data, values.data(), size, hipMemcpyDefault, nullptr) == hipSuccess);
  }
  ~DeviceMemory() { CHECK(hipFree(data) == hipSuccess); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  std::vector<int> values() const {
    std::vector<int> out(size / sizeof(int));
    REQUIRE(hipMemcpyAsync(out.data(), data, size, hipMemcpyDefault, nullptr) == hipSuccess);
    return out;
  }
  int* ints() const { return static_cast<int*>(data); }

  void* data = nullptr;
  size_t size;
};

template <class... Parameters>
hipError_t launch(void (*kernel)(Parameters...), unsigned blocks, unsigned threads, size_t shared,
                  std::type_identity_t<Parameters>... parameters) {
  void* list[] = {&parameters...};
  return hipLaunchKernel(gpuSymbol(kernel), {blocks}, {threads}, list, shared, nullptr);
}

std::vector<int> count_up(size_t count, int first = 0) {
  std::vector<int> out(count);
  for (size_t i = 0; i < count; ++i) out[i] = first + static_cast<int>(i);
  return out;
}

// What turn_around has to make of `in`.
std::vector<int> turned(std::vector<int> in) {
  for (auto part = in.begin(); part != in.end(); part += kThreads) std::reverse(part, part + kThreads);
  return in;
}

}  // namespace

TEST_CASE("hip emulation: threads of a block meet at a barrier, block after block") {
  constexpr unsigned kBlocks = 5;
  const DeviceMemory in(count_up(kBlocks * kThreads)), out(kBlocks * kThreads);
  REQUIRE(launch(turn_around<true>, kBlocks, kThreads, 0, in.ints(), out.ints()) == hipSuccess);
  CHECK(out.values() == turned(in.values()));
}

TEST_CASE("hip emulation: a missing barrier shows, whichever way the threads take their turns") {
  constexpr unsigned kBlocks = 2;
  const DeviceMemory in(count_up(kBlocks * kThreads, 1000)), out(kBlocks * kThreads);
  REQUIRE(launch(turn_around<false>, kBlocks, kThreads, 0, in.ints(), out.ints()) == hipSuccess);
  const std::vector<int> got = out.values(), wanted = turned(in.values());
  CHECK_FALSE(std::equal(got.begin(), got.begin() + kThreads, wanted.begin()));
  CHECK_FALSE(std::equal(got.begin() + kThreads, got.end(), wanted.begin() + kThreads));
}

TEST_CASE("hip emulation: threads that have ended keep nobody waiting") {
  const DeviceMemory in(count_up(256)), out(1);
  REQUIRE(launch(add_up, 1, 256, 256 * sizeof(int), in.ints(), out.ints()) == hipSuccess);
  CHECK(out.values() == std::vector<int>{255 * 256 / 2});
}

TEST_CASE("hip emulation: lanes of a warp exchange values") {
  const DeviceMemory in(count_up(64)), out(64);
  REQUIRE(launch(exchange, 1, 64, 0, in.ints(), out.ints()) == hipSuccess);
  std::vector<int> wanted = count_up(64);
  for (int& x : wanted) x ^= 17;
  CHECK(out.values() == wanted);
}

TEST_CASE("hip emulation: an address is known by the allocation that it lies in") {
  const DeviceMemory memory(10);
  void* base = nullptr;
  size_t size = 0;
  REQUIRE(hipMemGetAddressRange(&base, &size, memory.ints() + 9) == hipSuccess);
  CHECK(base == memory.data);
  CHECK(size == memory.size);
  CHECK(hipMemGetAddressRange(&base, &size, memory.ints() + 10) == hipErrorNotFound);
  int on_host = 0;
  hipPointerAttribute_t attributes{};
  CHECK(hipPointerGetAttributes(&attributes, &on_host) == hipErrorInvalidValue);
  CHECK(hipGetLastError() == hipErrorInvalidValue);
  CHECK(hipGetLastError() == hipSuccess);
}

TEST_CASE("hip emulation: wrong calls are refused") {
  const DeviceMemory memory(1);
  CHECK(launch(write_at, 1, 2000, 0, memory.ints(), 0) == hipErrorInvalidValue);
  CHECK(launch(write_at, 1, 1, 1 << 20, memory.ints(), 0) == hipErrorInvalidValue);
  CHECK(hipLaunchKernel(memory.data, {1}, {1}, nullptr, 0, nullptr) == hipErrorInvalidDeviceFunction);
  CHECK(hipStreamSynchronize(static_cast<hipStream_t>(memory.data)) == hipErrorInvalidHandle);
  CHECK(hipFree(memory.ints() + 1) == hipErrorInvalidValue);
  CHECK(hipSetDevice(7) == hipErrorInvalidDevice);
  void* data = nullptr;
  CHECK(hipMalloc(&data, size_t{1} << 40) == hipErrorOutOfMemory);
  CHECK(data == nullptr);
}

// AddressSanitizer ends the process: see CMakeLists.txt.
TEST_CASE("hip emulation: an overrun", "[.overrun]") {
  const DeviceMemory memory(10);
  (void)launch(write_at, 1, 1, 0, memory.ints(), 10);
  FAIL("nobody saw it");
}
TEST_CASE("hip emulation: an overrun of shared memory", "[.shared_overrun]") {
  const DeviceMemory in(count_up(256)), out(1);
  (void)launch(add_up, 1, 256, 255 * sizeof(int), in.ints(), out.ints());
  FAIL("nobody saw it");
}
TEST_CASE("hip emulation: an overrun of a shared variable", "[.static_overrun]") {
  const DeviceMemory out(1);
  (void)launch(write_shared_at, 1, 1, 0, out.ints(), kThreads);
  FAIL("nobody saw it");
}
