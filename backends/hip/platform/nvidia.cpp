// SPDX-License-Identifier: Apache-2.0
// nvidia.cpp -- devices and memory that HIP's headers for NVIDIA do not tell all of, asked of CUDA; contexts and streams are
// ../cuda/platform/driver.cpp.
#include <cstdio>
#include <cstring>

#include "gpu.h"

namespace narrows::gpu {

const char* advice(gpuError_t error) {
  int driver = 0;  // stays so if there is none
  switch (error) {
    case hipErrorInsufficientDriver:
      return cudaDriverGetVersion(&driver) == cudaSuccess && driver != 0
                 ? "the NVIDIA driver is older than this plugin's CUDA; install a newer driver"
                 : "the NVIDIA driver is missing; install NVIDIA's driver";
    case hipErrorNoDevice: return "the NVIDIA driver sees no GPU; look at nvidia-smi and at CUDA_VISIBLE_DEVICES";
    default: return "the NVIDIA driver could not be opened";
  }
}

void write_arch(const gpuDeviceProp& properties, char* out, size_t size) {
  std::snprintf(out, size, "sm_%d%d", properties.major, properties.minor);
}
int compute_capability(const gpuDeviceProp& properties) { return properties.major * 10 + properties.minor; }
int generation(const gpuDeviceProp&) { return 0; }  // none of their kernels is here

size_t max_shared_memory(int device, const gpuDeviceProp& properties) {
  int size = 0;
  return cudaDeviceGetAttribute(&size, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) == cudaSuccess
             ? static_cast<size_t>(size)
             : properties.sharedMemPerBlock;
}

void write_uuid(int device, const gpuDeviceProp&, uint8_t* out) {
  cudaDeviceProp properties;
  if (cudaGetDeviceProperties(&properties, device) == cudaSuccess) std::memcpy(out, properties.uuid.bytes, 16);
}

}  // namespace narrows::gpu
