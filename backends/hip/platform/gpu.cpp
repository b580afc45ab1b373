// SPDX-License-Identifier: Apache-2.0
// gpu.cpp -- what differs between the vendors in more than a name, for HIP on either platform; amd.cpp and nvidia.cpp have what
// HIP leaves to them.
#include "gpu.h"

#include "backend.h"

namespace narrows::gpu {

int32_t status_of(gpuError_t error) {
  switch (error) {
    case hipSuccess: return NW_OK;
    case hipErrorOutOfMemory: return NW_OUT_OF_MEMORY;
    case hipErrorInvalidValue:
    case hipErrorInvalidHandle:
    case hipErrorInvalidDevice:
    case hipErrorInvalidDevicePointer: return NW_INVALID;
    case hipErrorInsufficientDriver:
    case hipErrorNoDevice:
    case hipErrorNotInitialized: return NW_UNAVAILABLE;
    case hipErrorNoBinaryForGpu:
    case hipErrorInvalidDeviceFunction: return NW_UNSUPPORTED;  // AMD's answer where no code object fits the device
    case hipErrorStreamCaptureUnsupported:
    case hipErrorStreamCaptureInvalidated:
    case hipErrorStreamCaptureImplicit:
    case hipErrorStreamCaptureWrongThread:
    case hipErrorCapturedEvent: return NW_NOT_CAPTURABLE;
    // The context is gone: every later call gives the same answer.
    case hipErrorIllegalAddress:
    case hipErrorLaunchTimeOut:
    case hipErrorLaunchFailure:
    case hipErrorAssert:
    case hipErrorECCNotCorrectable:
    case hipErrorContextIsDestroyed: return NW_DEVICE_LOST;
    default: return NW_FAILED;
  }
}

// Throws where memory was short, so that the next call tries again.
gpuMemPool_t create_pool(int device, uint64_t kept) {
  int supported = 0;
  if (hipDeviceGetAttribute(&supported, hipDeviceAttributeMemoryPoolsSupported, device) != hipSuccess || supported == 0)
    return nullptr;
  hipMemPoolProps properties = {};
  properties.allocType = hipMemAllocationTypePinned;
  properties.location.type = hipMemLocationTypeDevice;
  properties.location.id = device;
  hipMemPool_t pool = nullptr;
  const gpuError_t made = hipMemPoolCreate(&pool, &properties);
  if (status_of(made) == NW_OUT_OF_MEMORY) check(made, "making a memory pool");
  if (made != hipSuccess) return nullptr;
  (void)hipMemPoolSetAttribute(pool, hipMemPoolAttrReleaseThreshold, &kept);
  return pool;
}

void reach_peer(int device, int other, gpuMemPool_t pool_of_other) {
  int possible = 0;
  if (hipDeviceCanAccessPeer(&possible, device, other) != hipSuccess || possible == 0) return;
  (void)hipDeviceEnablePeerAccess(other, 0);  // the caller may have done so before
  hipMemAccessDesc access = {};
  access.location.type = hipMemLocationTypeDevice;
  access.location.id = device;
  access.flags = hipMemAccessFlagsProtReadWrite;
  if (pool_of_other != nullptr) (void)hipMemPoolSetAccess(pool_of_other, &access, 1);
}

}  // namespace narrows::gpu
