// SPDX-License-Identifier: Apache-2.0
// gpu.cpp -- what differs between the vendors in more than a name, for CUDA.
#include "gpu.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <initializer_list>

#include "backend.h"

namespace narrows::gpu {

const char* advice(gpuError_t error) {
  int driver = 0;  // stays so if there is none
  switch (error) {
    case cudaErrorInsufficientDriver:
      return cudaDriverGetVersion(&driver) == cudaSuccess && driver != 0
                 ? "the NVIDIA driver is older than this plugin's CUDA; install a newer driver"
                 : "the NVIDIA driver is missing; install NVIDIA's driver";
    case cudaErrorNoDevice: return "the NVIDIA driver sees no GPU; look at nvidia-smi and at CUDA_VISIBLE_DEVICES";
    case cudaErrorSystemDriverMismatch: return "libcuda and the kernel's NVIDIA driver differ in version; reboot or reinstall one";
    case cudaErrorSystemNotReady: return "the GPU's fabric manager does not run";
    case cudaErrorInitializationError: return "the NVIDIA driver could not be initialised";
    default: return "the NVIDIA driver could not be opened";
  }
}

int32_t status_of(gpuError_t error) {
  switch (error) {
    case cudaSuccess: return NW_OK;
    case cudaErrorMemoryAllocation: return NW_OUT_OF_MEMORY;
    case cudaErrorInvalidValue:
    case cudaErrorInvalidResourceHandle:
    case cudaErrorInvalidDevice:
    case cudaErrorInvalidDevicePointer: return NW_INVALID;
    case cudaErrorInsufficientDriver:
    case cudaErrorNoDevice:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorSystemNotReady:
    case cudaErrorInitializationError:
    case cudaErrorDevicesUnavailable: return NW_UNAVAILABLE;
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorUnsupportedPtxVersion: return NW_UNSUPPORTED;
    case cudaErrorStreamCaptureUnsupported:
    case cudaErrorStreamCaptureInvalidated:
    case cudaErrorStreamCaptureImplicit:
    case cudaErrorStreamCaptureWrongThread:
    case cudaErrorCapturedEvent: return NW_NOT_CAPTURABLE;
    // The context is gone: every later call gives the same answer.
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorLaunchFailure:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
#if CUDART_VERSION >= 12080
    case cudaErrorContained:
    case cudaErrorTensorMemoryLeak:
#endif
    case cudaErrorMpsClientTerminated:
    case cudaErrorExternalDevice:
    case cudaErrorContextIsDestroyed: return NW_DEVICE_LOST;
    default: return NW_FAILED;
  }
}

void write_arch(const gpuDeviceProp& properties, char* out, size_t size) {
  std::snprintf(out, size, "sm_%d%d", properties.major, properties.minor);
}
int compute_capability(const gpuDeviceProp& properties) { return properties.major * 10 + properties.minor; }

// PTX runs on all newer GPUs, which compile it; code on those of the same major number.
constexpr int newest_that_runs(int capability, std::initializer_list<int> ptx, std::initializer_list<int> code) {
  int newest = 0;
  for (const int compiled : ptx)
    if (compiled <= capability) newest = std::max(newest, compiled);
  for (const int compiled : code)
    if (compiled <= capability && compiled / 10 == capability / 10) newest = std::max(newest, compiled);
  return newest;
}
static_assert(newest_that_runs(90, {120}, {75, 80, 90, 100}) == 90 && newest_that_runs(89, {80}, {80, 86}) == 86);
static_assert(newest_that_runs(120, {80}, {80, 90}) == 80 && newest_that_runs(120, {90}, {90, 100}) == 90);
static_assert(newest_that_runs(75, {80}, {80}) == 0);

int generation(const gpuDeviceProp& properties) {
  return newest_that_runs(compute_capability(properties), {NARROWS_CUDA_PTX}, {NARROWS_CUDA_CODE});
}
size_t max_shared_memory(int, const gpuDeviceProp& properties) { return properties.sharedMemPerBlockOptin; }
void write_uuid(int, const gpuDeviceProp& properties, uint8_t* out) { std::memcpy(out, properties.uuid.bytes, 16); }

// Throws where memory was short, so that the next call tries again.
gpuMemPool_t create_pool(int device, uint64_t kept) {
  int supported = 0;
  if (cudaDeviceGetAttribute(&supported, cudaDevAttrMemoryPoolsSupported, device) != cudaSuccess || supported == 0) return nullptr;
  cudaMemPoolProps properties = {};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location.type = cudaMemLocationTypeDevice;
  properties.location.id = device;
  cudaMemPool_t pool = nullptr;
  const gpuError_t made = cudaMemPoolCreate(&pool, &properties);
  if (status_of(made) == NW_OUT_OF_MEMORY) check(made, "making a memory pool");
  if (made != cudaSuccess) return nullptr;
  (void)cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &kept);
  return pool;
}

void reach_peer(int device, int other, gpuMemPool_t pool_of_other) {
  int possible = 0;
  if (cudaDeviceCanAccessPeer(&possible, device, other) != cudaSuccess || possible == 0) return;
  (void)cudaDeviceEnablePeerAccess(other, 0);  // the caller may have done so before
  cudaMemAccessDesc access = {};
  access.location.type = cudaMemLocationTypeDevice;
  access.location.id = device;
  access.flags = cudaMemAccessFlagsProtReadWrite;
  if (pool_of_other != nullptr) (void)cudaMemPoolSetAccess(pool_of_other, &access, 1);
}

}  // namespace narrows::gpu
