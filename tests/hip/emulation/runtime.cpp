// SPDX-License-Identifier: Apache-2.0
// runtime.cpp -- the device, memory, streams and launches of the HIP of hip/hip_runtime.h.
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "block.h"
#include "hip/hip_runtime.h"

namespace hip_emulation {
namespace {

constexpr size_t kMemory = size_t{4} << 30, kSharedMemory = 64 << 10, kAlignment = 256;
constexpr unsigned kMostThreads = 1024;
constexpr int kDevices = 1;

struct Allocation {
  size_t size;
  int device;
};
using Call = void (*)(const void* symbol, void** parameters);

std::recursive_mutex one_at_a_time;  // all that follows, and the kernels
std::map<uintptr_t, Allocation> allocations;
size_t allocated = 0;
std::map<const void*, Call> kernels;
std::map<const void*, int> streams;  // and the device of each
std::set<const void*> events;
thread_local int current_device = 0;
thread_local hipError_t last_error = hipSuccess;
std::vector<std::byte>* shared_memory = nullptr;

hipError_t result(hipError_t error) {
  if (error != hipSuccess) last_error = error;
  return error;
}
bool is_stream(hipStream_t stream) { return reinterpret_cast<uintptr_t>(stream) <= 2 || streams.count(stream) != 0; }
hipError_t on(hipStream_t stream) { return result(is_stream(stream) ? hipSuccess : hipErrorInvalidHandle); }

// nullptr: in none.
const std::pair<const uintptr_t, Allocation>* allocation_at(const void* address) {
  const auto place = reinterpret_cast<uintptr_t>(address);
  auto next = allocations.upper_bound(place);
  if (next == allocations.begin()) return nullptr;
  --next;
  return place < next->first + next->second.size ? &*next : nullptr;
}

// A handle that nobody mistakes for another, as long as it is not freed.
template <class Handle>
Handle new_handle() {
  return reinterpret_cast<Handle>(std::malloc(1));
}

}  // namespace

void learn(const void* symbol, Call call) {
  const std::lock_guard lock(one_at_a_time);
  kernels.emplace(symbol, call);
}

void* dynamic_shared() { return shared_memory->data(); }

}  // namespace hip_emulation

using namespace hip_emulation;

const char* hipGetErrorName(hipError_t error) {
  switch (error) {
#define HIP_EMULATION_NAME(name, number, words) \
  case name: return #name;
    HIP_EMULATION_ERRORS(HIP_EMULATION_NAME)
#undef HIP_EMULATION_NAME
  }
  return "unrecognized error code";
}
const char* hipGetErrorString(hipError_t error) {
  switch (error) {
#define HIP_EMULATION_WORDS(name, number, words) \
  case name: return words;
    HIP_EMULATION_ERRORS(HIP_EMULATION_WORDS)
#undef HIP_EMULATION_WORDS
  }
  return "unrecognized error code";
}
hipError_t hipGetLastError() { return std::exchange(last_error, hipSuccess); }
hipError_t hipPeekAtLastError() { return last_error; }

// ---- devices ----

hipError_t hipGetDeviceCount(int* count) {
  *count = kDevices;
  return hipSuccess;
}
hipError_t hipGetDevice(int* device) {
  *device = current_device;
  return hipSuccess;
}
hipError_t hipSetDevice(int device) {
  if (device < 0 || device >= kDevices) return result(hipErrorInvalidDevice);
  current_device = device;
  return hipSuccess;
}
// Few multiprocessors and a small cache, so that small tensors are large ones.
hipError_t hipGetDeviceProperties(hipDeviceProp_t* properties, int device) {
  if (device < 0 || device >= kDevices) return result(hipErrorInvalidDevice);
  *properties = {.name = "a CPU that plays a GPU",
                 .gcnArchName = "emulated",
                 .totalGlobalMem = kMemory,
                 .sharedMemPerBlock = kSharedMemory,
                 .multiProcessorCount = 16,
                 .maxThreadsPerMultiProcessor = 2048,
                 .warpSize = 64,
                 .l2CacheSize = 1 << 20};
  return hipSuccess;
}
hipError_t hipDeviceGetAttribute(int* value, hipDeviceAttribute_t, int) {
  *value = 1;
  return hipSuccess;
}
hipError_t hipDeviceCanAccessPeer(int* can, int device, int other) {
  if (device < 0 || device >= kDevices || other < 0 || other >= kDevices) return result(hipErrorInvalidDevice);
  *can = device != other;
  return hipSuccess;
}
hipError_t hipDeviceEnablePeerAccess(int other, unsigned) {
  return other >= 0 && other < kDevices && other != current_device ? hipSuccess : result(hipErrorInvalidDevice);
}
hipError_t hipDeviceGetUuid(hipUUID* uuid, hipDevice_t device) {
  *uuid = {};
  uuid->bytes[15] = static_cast<char>(device + 1);
  return hipSuccess;
}

// ---- memory ----

// New memory is NaN in every floating-point dtype, and ends where it ends: what a sanitizer finds there is a kernel's mistake.
hipError_t hipMalloc(void** data, size_t size) {
  const std::lock_guard lock(one_at_a_time);
  void* memory = nullptr;
  if (size > kMemory - allocated || posix_memalign(&memory, kAlignment, size) != 0) return result(hipErrorOutOfMemory);
  std::memset(memory, 0xff, size);
  allocations[reinterpret_cast<uintptr_t>(memory)] = {size, current_device};
  allocated += size;
  *data = memory;
  return hipSuccess;
}
hipError_t hipFree(void* data) {
  const std::lock_guard lock(one_at_a_time);
  if (data == nullptr) return hipSuccess;
  const auto found = allocations.find(reinterpret_cast<uintptr_t>(data));
  if (found == allocations.end()) return result(hipErrorInvalidValue);
  allocated -= found->second.size;
  allocations.erase(found);
  std::free(data);
  return hipSuccess;
}
hipError_t hipMemPoolCreate(hipMemPool_t* pool, const hipMemPoolProps*) {
  *pool = new_handle<hipMemPool_t>();
  return hipSuccess;
}
hipError_t hipMemPoolSetAttribute(hipMemPool_t, hipMemPoolAttr, void*) { return hipSuccess; }
hipError_t hipMemPoolSetAccess(hipMemPool_t, const hipMemAccessDesc*, size_t) { return hipSuccess; }
hipError_t hipMemPoolTrimTo(hipMemPool_t, size_t) { return hipSuccess; }
hipError_t hipMemPoolDestroy(hipMemPool_t pool) {
  std::free(pool);
  return hipSuccess;
}
hipError_t hipMallocFromPoolAsync(void** data, size_t size, hipMemPool_t, hipStream_t stream) {
  const std::lock_guard lock(one_at_a_time);
  const hipError_t error = on(stream);
  return error == hipSuccess ? hipMalloc(data, size) : error;
}
hipError_t hipMallocAsync(void** data, size_t size, hipStream_t stream) {
  return hipMallocFromPoolAsync(data, size, nullptr, stream);
}
hipError_t hipFreeAsync(void* data, hipStream_t stream) {
  const std::lock_guard lock(one_at_a_time);
  const hipError_t error = on(stream);
  return error == hipSuccess ? hipFree(data) : error;
}
hipError_t hipMemcpyAsync(void* to, const void* from, size_t size, hipMemcpyKind, hipStream_t stream) {
  const std::lock_guard lock(one_at_a_time);
  if (const hipError_t error = on(stream); error != hipSuccess) return error;
  std::memmove(to, from, size);
  return hipSuccess;
}
hipError_t hipPointerGetAttributes(hipPointerAttribute_t* attributes, const void* address) {
  const std::lock_guard lock(one_at_a_time);
  const auto* const found = allocation_at(address);
  if (found == nullptr) return result(hipErrorInvalidValue);
  *attributes = {.type = hipMemoryTypeDevice, .device = found->second.device, .isManaged = 0};
  return hipSuccess;
}
hipError_t hipMemGetAddressRange(hipDeviceptr_t* base, size_t* size, hipDeviceptr_t address) {
  const std::lock_guard lock(one_at_a_time);
  const auto* const found = allocation_at(address);
  if (found == nullptr) return result(hipErrorNotFound);
  *base = reinterpret_cast<void*>(found->first);
  *size = found->second.size;
  return hipSuccess;
}

// ---- streams and events: all that was put on them is done ----

hipError_t hipStreamCreateWithFlags(hipStream_t* stream, unsigned) {
  const std::lock_guard lock(one_at_a_time);
  *stream = new_handle<hipStream_t>();
  streams[*stream] = current_device;
  return hipSuccess;
}
hipError_t hipStreamDestroy(hipStream_t stream) {
  const std::lock_guard lock(one_at_a_time);
  if (streams.erase(stream) == 0) return result(hipErrorInvalidHandle);
  std::free(stream);
  return hipSuccess;
}
hipError_t hipStreamSynchronize(hipStream_t stream) {
  const std::lock_guard lock(one_at_a_time);
  return on(stream);
}
hipError_t hipStreamWaitEvent(hipStream_t stream, hipEvent_t event, unsigned) {
  const std::lock_guard lock(one_at_a_time);
  return result(is_stream(stream) && events.count(event) != 0 ? hipSuccess : hipErrorInvalidHandle);
}
hipError_t hipStreamGetDevice(hipStream_t stream, hipDevice_t* device) {
  const std::lock_guard lock(one_at_a_time);
  const auto found = streams.find(stream);
  if (found == streams.end()) return result(hipErrorInvalidHandle);
  *device = found->second;
  return hipSuccess;
}
hipError_t hipStreamIsCapturing(hipStream_t stream, hipStreamCaptureStatus* status) {
  const std::lock_guard lock(one_at_a_time);
  *status = hipStreamCaptureStatusNone;
  return on(stream);
}
hipError_t hipStreamBeginCapture(hipStream_t, hipStreamCaptureMode) { return result(hipErrorNotSupported); }
hipError_t hipStreamEndCapture(hipStream_t, hipGraph_t*) { return result(hipErrorNotSupported); }
hipError_t hipThreadExchangeStreamCaptureMode(hipStreamCaptureMode*) { return hipSuccess; }
hipError_t hipGraphDestroy(hipGraph_t) { return hipSuccess; }
hipError_t hipEventCreateWithFlags(hipEvent_t* event, unsigned) {
  const std::lock_guard lock(one_at_a_time);
  *event = new_handle<hipEvent_t>();
  events.insert(*event);
  return hipSuccess;
}
hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream) { return hipStreamWaitEvent(stream, event, 0); }
hipError_t hipEventDestroy(hipEvent_t event) {
  const std::lock_guard lock(one_at_a_time);
  if (events.erase(event) == 0) return result(hipErrorInvalidHandle);
  std::free(event);
  return hipSuccess;
}

// ---- kernels ----

hipError_t hipFuncGetAttributes(hipFuncAttributes* attributes, const void* kernel) {
  const std::lock_guard lock(one_at_a_time);
  *attributes = {};
  return result(kernels.count(kernel) != 0 ? hipSuccess : hipErrorInvalidDeviceFunction);
}
hipError_t hipFuncSetAttribute(const void* kernel, hipFuncAttribute, int) {
  const std::lock_guard lock(one_at_a_time);
  return result(kernels.count(kernel) != 0 ? hipSuccess : hipErrorInvalidDeviceFunction);
}

hipError_t hipLaunchKernel(const void* kernel, dim3 blocks, dim3 threads, void** parameters, size_t shared, hipStream_t stream) {
  const std::lock_guard lock(one_at_a_time);
  if (const hipError_t error = on(stream); error != hipSuccess) return error;
  const auto found = kernels.find(kernel);
  if (found == kernels.end()) return result(hipErrorInvalidDeviceFunction);
  if (blocks.x == 0 || threads.x == 0 || threads.x > kMostThreads || shared > kSharedMemory) return result(hipErrorInvalidValue);
  struct Launch {
    Call call;
    const void* kernel;
    void** parameters;
  } launch{found->second, kernel, parameters};
  std::vector<std::byte> memory(shared, std::byte{0xff});  // NaN
  shared_memory = &memory;
  run_grid(
      blocks.x, threads.x,
      [](void* argument) {
        const auto& self = *static_cast<const Launch*>(argument);
        self.call(self.kernel, self.parameters);
      },
      &launch);
  shared_memory = nullptr;
  return hipSuccess;
}

hipError_t hipModuleLaunchKernel(hipFunction_t function, unsigned blocks, unsigned blocks_y, unsigned blocks_z, unsigned threads,
                                 unsigned threads_y, unsigned threads_z, unsigned shared, hipStream_t stream, void** parameters,
                                 void**) {
  const std::lock_guard lock(one_at_a_time);
  if (const hipError_t error = on(stream); error != hipSuccess) return error;
  const bool is_flat = blocks_y == 1 && blocks_z == 1 && threads_y == 1 && threads_z == 1 && shared == 0;
  if (!is_flat || function == nullptr || blocks == 0 || threads == 0 || threads > kMostThreads) return result(hipErrorInvalidValue);
  struct Launch {
    void (*kernel)(void** parameters);
    void** parameters;
  } launch{reinterpret_cast<void (*)(void**)>(function), parameters};
  run_grid(
      blocks, threads,
      [](void* argument) {
        const auto& self = *static_cast<const Launch*>(argument);
        self.kernel(self.parameters);
      },
      &launch);
  return hipSuccess;
}
