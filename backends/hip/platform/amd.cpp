// SPDX-License-Identifier: Apache-2.0
// amd.cpp -- devices, streams and memory as AMD's runtime knows them. It was compiled, and never run on AMD's hardware:
// docs/gpu.md.
#include <cstdio>
#include <cstring>
#include <string_view>

#include "backend.h"

namespace narrows::gpu {

const char* advice(gpuError_t error) {
  switch (error) {
    case hipErrorInsufficientDriver: return "the amdgpu driver is older than this machine's HIP; install a newer driver";
    case hipErrorNoDevice:
      return "HIP sees no AMD GPU; look at rocminfo, at HIP_VISIBLE_DEVICES, and whether this user may open /dev/kfd and /dev/dri";
    default: return "HIP could not be initialised";
  }
}

// "gfx90a:sramecc+:xnack-" without its features.
void write_arch(const gpuDeviceProp& properties, char* out, size_t size) {
  const std::string_view name = properties.gcnArchName;
  const std::string_view target = name.substr(0, name.find(':'));
  std::snprintf(out, size, "%.*s", static_cast<int>(target.size()), target.data());
}
int compute_capability(const gpuDeviceProp&) { return 0; }
int generation(const gpuDeviceProp&) { return 0; }
size_t max_shared_memory(int, const gpuDeviceProp& properties) { return properties.sharedMemPerBlock; }

void write_uuid(int device, const gpuDeviceProp&, uint8_t* out) {
  hipUUID uuid{};
  if (hipDeviceGetUuid(&uuid, device) == hipSuccess) std::memcpy(out, uuid.bytes, sizeof(uuid.bytes));
}

// To set a device makes nothing there: AMD's runtime has one context for each, and opens it when it is used.
DeviceScope::DeviceScope(int device) {
  hipError_t result = hipGetDevice(&previous_);
  if (result == hipSuccess && previous_ == device) return;
  if (result == hipSuccess) result = hipSetDevice(device);
  if (result != hipSuccess) refuse(status_of(result), -1, "device %d cannot be entered: %s", device, hipGetErrorString(result));
  entered_ = true;
}

DeviceScope::~DeviceScope() {
  if (entered_) (void)hipSetDevice(previous_);
}

bool is_default_stream(gpuStream_t stream) {
  return reinterpret_cast<uintptr_t>(stream) <= 2;  // null, hipStreamLegacy where HIP has it, hipStreamPerThread
}

int stream_device(gpuStream_t stream) {
  if (is_default_stream(stream)) return -1;
#if HIP_VERSION_MAJOR >= 6
  hipDevice_t device = -1;
  const ForeseenErrors foreseen;
  const hipError_t error = hipStreamGetDevice(stream, &device);
  if (status_of(error) == NW_INVALID || error == hipErrorContextIsDestroyed)
    refuse(NW_INVALID, -1, "stream %p is no stream of HIP", static_cast<void*>(stream));
  check(error, "asking for a stream's device");
  return device;
#else
  return hipGetStreamDeviceId(stream);
#endif
}

// HIP 6 renamed `memoryType`, and gave managed memory a kind of its own.
Memory memory_at(const void* address) {
  hipPointerAttribute_t found{};
  const ForeseenErrors foreseen;
  const hipError_t error = hipPointerGetAttributes(&found, address);
  if (error == hipErrorInvalidValue) return {Memory::kUnknown, -1};
  check(error, "asking whose memory an address is");
#if HIP_VERSION_MAJOR >= 6
  const hipMemoryType type = found.type;
  const bool is_managed = found.isManaged != 0 || type == hipMemoryTypeManaged;
#else
  const hipMemoryType type = found.memoryType;
  const bool is_managed = found.isManaged != 0;
#endif
  if (is_managed) return {Memory::kManaged, found.device};
  if (type == hipMemoryTypeDevice) return {Memory::kDevice, found.device};
  if (type == hipMemoryTypeHost) return {Memory::kPinned, found.device};
  return {Memory::kUnknown, -1};
}

gpuFunction_t find_function(const void*) { return nullptr; }
gpuError_t launch_symbol(const void* symbol, gpuFunction_t function, const Grid& grid, void** arguments, gpuStream_t stream) {
  if (symbol == nullptr)
    return hipModuleLaunchKernel(function, grid.blocks, 1, 1, grid.threads, 1, 1, static_cast<unsigned>(grid.shared), stream,
                                 arguments, nullptr);
  return hipLaunchKernel(symbol, dim3(grid.blocks), dim3(grid.threads), arguments, grid.shared, stream);
}

bool find_allocation(const void* address, const void** base, size_t* size) {
  hipDeviceptr_t start{};
  const ForeseenErrors foreseen;
  const hipError_t error = hipMemGetAddressRange(&start, size, const_cast<void*>(address));
  if (status_of(error) == NW_INVALID || error == hipErrorNotFound) return false;
  check(error, "asking for the allocation of an address");
  *base = start;
  return true;
}

}  // namespace narrows::gpu
