// SPDX-License-Identifier: Apache-2.0
// two_devices.cpp -- devices by number: memory, streams, plans and copies of two GPUs in one process, while the caller's current
// device stays. contexts.cpp has what appears on a device, and what is refused. Skipped where there is one GPU.
#include <thread>

#include "cuda.h"

using namespace narrows::test;

namespace {

constexpr int64_t kN = 1 << 20;
constexpr uint64_t kSize = kN * sizeof(float);

DLDevice gpu(int id) { return {kDLCUDA, id}; }

int current_device() {
  int id = -1;
  CUDA_OK(cudaGetDevice(&id));
  return id;
}

// Memory of nw_alloc() and a stream of nw_stream_create(), on a device by its number.
class Owned {
 public:
  explicit Owned(int id) : device(gpu(id)) {
    nw_error error{};
    int32_t status = nw_stream_create(runtime(), device, &stream, &error);
    if (status == NW_OK) status = nw_alloc(runtime(), device, kSize, stream, &data, &error);
    INFO(error.message);
    REQUIRE(status == NW_OK);
  }
  ~Owned() {
    nw_free(runtime(), device, data, stream, nullptr);
    nw_stream_destroy(runtime(), device, stream, nullptr);
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;

  void write(const std::vector<float>& values) const {
    nw_error error{};
    const int32_t status = nw_copy(runtime(), device, data, {kDLCPU, 0}, values.data(), kSize, stream, &error);
    INFO(error.message);
    REQUIRE(status == NW_OK);
  }
  std::vector<float> read() const {
    std::vector<float> values(kN, -1);
    nw_error error{};
    const int32_t status = nw_copy(runtime(), {kDLCPU, 0}, values.data(), device, data, kSize, stream, &error);
    INFO(error.message);
    REQUIRE(status == NW_OK);
    return values;
  }
  // nw_copy() from another one, on a stream of this device or of the other.
  void copy_from(const Owned& other, void* on) const {
    nw_error error{};
    const int32_t status = nw_copy(runtime(), device, data, other.device, other.data, kSize, on, &error);
    INFO(error.message);
    REQUIRE(status == NW_OK);
  }
  void sync() const { REQUIRE(nw_stream_sync(runtime(), device, stream, nullptr) == NW_OK); }

  const DLDevice device;
  void* data = nullptr;
  void* stream = nullptr;
};

std::vector<float> counting(float first) {
  std::vector<float> values(kN);
  for (int64_t i = 0; i < kN; ++i) values[static_cast<size_t>(i)] = first + static_cast<float>(i % 1000);
  return values;
}

}  // namespace

TEST_CASE("two devices: nw_copy goes either way, on the stream of either", "[two]") {
  NEEDS_TWO_GPUS();
  for (const int current : {0, 1}) {
    CUDA_OK(cudaSetDevice(current));
    const Owned near(0), far(1);
    for (const bool on_target : {true, false}) {
      INFO("current device " << current << ", a stream of the " << (on_target ? "target" : "source"));
      const Owned &first = on_target ? far : near, &second = on_target ? near : far;
      near.write(counting(1));
      far.write(counting(-1));
      near.sync();
      far.copy_from(near, first.stream);
      first.sync();
      CHECK(far.read() == counting(1));
      far.write(counting(5));
      far.sync();
      near.copy_from(far, second.stream);
      second.sync();
      CHECK(near.read() == counting(5));
      CHECK(far.read() == counting(5));
      CHECK(current_device() == current);
    }
  }
  CUDA_OK(cudaSetDevice(0));
}

// The bytes of a copy are those that stood there in the stream's order: a call before it, and one after it.
TEST_CASE("two devices: a copy is ordered on its stream", "[two]") {
  NEEDS_TWO_GPUS();
  CUDA_OK(cudaSetDevice(0));
  const Owned near(0), far(1);
  near.write(counting(1));
  Addition twice(near.device, near.data, near.data, near.data, kN);
  twice.call.stream = near.stream;
  nw_error error{};
  for (int i = 0; i < 4; ++i) REQUIRE(twice.run(&error) == NW_OK);
  far.copy_from(near, near.stream);
  REQUIRE(twice.run(&error) == NW_OK);
  near.sync();
  std::vector<float> expected = counting(1);
  for (float& value : expected) value *= 16;
  CHECK(far.read() == expected);
  for (float& value : expected) value *= 2;
  CHECK(near.read() == expected);
}

// Memory of the caller's own, of which no pool of ours knows, and after the caller has opened the way itself.
TEST_CASE("two devices: nw_copy takes the caller's memory, and peers that it has enabled", "[two]") {
  NEEDS_TWO_GPUS();
  CUDA_OK(cudaSetDevice(1));
  int possible = 0;
  CUDA_OK(cudaDeviceCanAccessPeer(&possible, 1, 0));
  if (possible != 0) {
    const cudaError_t enabled = cudaDeviceEnablePeerAccess(0, 0);
    if (enabled == cudaErrorPeerAccessAlreadyEnabled) (void)cudaGetLastError();
    CHECK((enabled == cudaSuccess || enabled == cudaErrorPeerAccessAlreadyEnabled));
  }
  const Buffer far(kSize);
  CUDA_OK(cudaSetDevice(0));
  const Buffer near(kSize);
  const std::vector<float> values = counting(3);
  CUDA_OK(cudaMemcpy(near.data(), values.data(), kSize, cudaMemcpyHostToDevice));
  nw_error error{};
  const int32_t status = nw_copy(runtime(), gpu(1), far.data(), gpu(0), near.data(), kSize, nullptr, &error);
  INFO(error.message);
  REQUIRE(status == NW_OK);
  CHECK(cudaPeekAtLastError() == cudaSuccess);
  CUDA_OK(cudaSetDevice(1));
  CUDA_OK(cudaDeviceSynchronize());
  std::vector<float> seen(kN);
  CUDA_OK(cudaMemcpy(seen.data(), far.data(), kSize, cudaMemcpyDeviceToHost));
  CUDA_OK(cudaSetDevice(0));
  CHECK(seen == values);
}

// One plan of the cache is of one device: the same call on both gives each device's result, whichever was planned first.
TEST_CASE("two devices: the same calls on both, by threads of their own", "[two]") {
  NEEDS_TWO_GPUS();
  CUDA_OK(cudaSetDevice(0));
  const Owned first(0), second(1);
  const Owned* const owned[] = {&first, &second};
  int32_t status[2] = {-1, -1};
  int current[2] = {-1, -1};
  nw_error errors[2]{};
  first.write(counting(1));
  second.write(counting(2));
  std::vector<std::thread> threads;
  for (size_t i = 0; i < 2; ++i)
    threads.emplace_back([&, i] {
      const Owned& own = *owned[i];
      (void)cudaSetDevice(1 - static_cast<int>(i));  // each thread has the other one as its current device
      status[i] = NW_OK;
      for (int repeat = 0; repeat < 8 && status[i] == NW_OK; ++repeat) {
        Addition twice(own.device, own.data, own.data, own.data, kN);
        twice.call.stream = own.stream;
        status[i] = twice.run(&errors[i]);
      }
      (void)cudaGetDevice(&current[i]);
    });
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < 2; ++i) {
    INFO("device " << i << ": " << errors[i].message);
    CHECK(status[i] == NW_OK);
    CHECK(current[i] == 1 - static_cast<int>(i));
    std::vector<float> expected = counting(i == 0 ? 1 : 2);
    for (float& value : expected) value *= 256;
    CHECK(owned[i]->read() == expected);
  }
}
