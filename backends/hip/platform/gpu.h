// SPDX-License-Identifier: Apache-2.0
// gpu.h -- what the GPU sources call the vendor's names by. backends/cuda/platform/gpu.h is the other one; whichever stands on the
// include path is used, so the sources have no #ifdef. The two compare line by line.
#pragma once

#include <hip/hip_fp16.h>
#include <hip/hip_runtime.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

// ---- the runtime ----

#define gpuError_t hipError_t
#define gpuSuccess hipSuccess
#define gpuErrorMemoryAllocation hipErrorOutOfMemory
#define gpuGetErrorString hipGetErrorString
#define gpuGetErrorName hipGetErrorName
#define gpuGetLastError hipGetLastError
#define gpuPeekAtLastError hipPeekAtLastError

#define gpuStream_t hipStream_t
#define gpuStreamCreateWithFlags hipStreamCreateWithFlags
#define gpuStreamNonBlocking hipStreamNonBlocking
#define gpuStreamDestroy hipStreamDestroy
#define gpuStreamSynchronize hipStreamSynchronize
#define gpuStreamWaitEvent hipStreamWaitEvent
#define gpuStreamIsCapturing hipStreamIsCapturing
#define gpuStreamCaptureStatus hipStreamCaptureStatus
#define gpuStreamCaptureStatusNone hipStreamCaptureStatusNone
#define gpuStreamBeginCapture hipStreamBeginCapture
#define gpuStreamEndCapture hipStreamEndCapture
#define gpuStreamCaptureMode hipStreamCaptureMode
#define gpuStreamCaptureModeRelaxed hipStreamCaptureModeRelaxed
#define gpuThreadExchangeStreamCaptureMode hipThreadExchangeStreamCaptureMode
#define gpuGraph_t hipGraph_t
#define gpuGraphDestroy hipGraphDestroy

#define gpuEvent_t hipEvent_t
#define gpuEventCreateWithFlags hipEventCreateWithFlags
#define gpuEventDisableTiming hipEventDisableTiming
#define gpuEventRecord hipEventRecord
#define gpuEventDestroy hipEventDestroy

#define gpuMalloc hipMalloc
#define gpuFree hipFree
#define gpuMemPool_t hipMemPool_t
#define gpuMallocFromPoolAsync hipMallocFromPoolAsync
#define gpuFreeAsync hipFreeAsync
#define gpuMemPoolTrimTo hipMemPoolTrimTo
#define gpuMemPoolDestroy hipMemPoolDestroy
#define gpuMemcpyAsync hipMemcpyAsync
#define gpuMemcpyDefault hipMemcpyDefault

#define gpuGetDeviceCount hipGetDeviceCount
#define gpuDeviceProp hipDeviceProp_t
#define gpuGetDeviceProperties hipGetDeviceProperties

#define gpuFunction_t hipFunction_t
#define gpuFuncAttributes hipFuncAttributes
#define gpuFuncGetAttributes hipFuncGetAttributes
#define gpuFuncSetAttribute hipFuncSetAttribute
#define gpuFuncAttributeMaxDynamicSharedMemorySize hipFuncAttributeMaxDynamicSharedMemorySize
// A kernel's address, by which the runtime knows it, and its dynamic shared memory.
#ifndef gpuSymbol  // a runtime that plays a GPU has its own
#define gpuSymbol(kernel) reinterpret_cast<const void*>(kernel)
#define gpuDynamicShared(type, name) extern __shared__ type name[]
#endif

// ---- what differs in more than a name ----

namespace narrows::gpu {

inline constexpr char kPluginName[] = "hip";
#ifndef NW_UNIT_LANES  // the GPU that the CPU plays has a matrix unit
#define NW_UNIT_LANES 0
#endif
// How many threads compute a program's product together. 0: loops that are marked as such products are plain ones.
constexpr int unit_lanes(int) { return NW_UNIT_LANES; }

}  // namespace narrows::gpu

// Device types, sizes of a warp, elements and streamed memory.
#if defined(__HIP_PLATFORM_NVIDIA__)
#include "nvidia.h"
#else
#include "amd.h"
#endif

namespace narrows::gpu {

// ---- the device, seen from the host ----

// Why there is no device, and what to install.
const char* advice(gpuError_t error);

// The status that an error stands for (NW_*).
int32_t status_of(gpuError_t error);

// "gfx90a", "sm_90". `size` bytes.
void write_arch(const gpuDeviceProp& properties, char* out, size_t size);
// 90 for sm_90. 0 for another vendor's device.
int compute_capability(const gpuDeviceProp& properties);
int generation(const gpuDeviceProp& properties);
// Dynamic shared memory that a block may ask for, in bytes.
size_t max_shared_memory(int device, const gpuDeviceProp& properties);
void write_uuid(int device, const gpuDeviceProp& properties, uint8_t* out);

// While it lives, calls of this thread go to `device`. Afterwards all is as before; a context is made on no other device.
class DeviceScope {
 public:
  explicit DeviceScope(int device);  // throws common::Refusal
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  bool entered_ = false;
  [[maybe_unused]] int previous_ = 0;  // where AMD's runtime comes back to
};

// A pool of stream-ordered memory that keeps up to `kept` bytes for the next caller; nullptr: the device has none.
gpuMemPool_t create_pool(int device, uint64_t kept);
// Lets the current device, `device`, read and write another one's memory, that of its pool too, where the machine can; else the
// driver's copies between both go through the host.
void reach_peer(int device, int other, gpuMemPool_t pool_of_other);

bool is_default_stream(gpuStream_t stream);
// The device that a stream belongs to, -1 for a default stream, which is every device's.
int stream_device(gpuStream_t stream);
// Whose memory an address is.
struct Memory {
  enum Kind { kUnknown, kDevice, kManaged, kPinned } kind;  // kUnknown: the host's, or none at all
  int device;
};
Memory memory_at(const void* address);
// The allocation that an address lies in; false: none that the driver knows.
bool find_allocation(const void* address, const void** base, size_t* size);

}  // namespace narrows::gpu
