// SPDX-License-Identifier: Apache-2.0
// driver.cpp -- contexts, streams and allocations as NVIDIA's driver knows them, by the entry points that the runtime finds:
// libcuda is not linked. HIP for NVIDIA takes this file too.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <atomic>

#include "backend.h"
#include "ops/program/compiler.h"

namespace narrows::gpu {

namespace {

template <class Function>
Function entry_point(const char* name, unsigned version) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t error = cudaGetDriverEntryPointByVersion(name, &function, version, cudaEnableDefault, &found);
  if (error != cudaSuccess || found != cudaDriverEntryPointSuccess)
    refuse(NW_UNAVAILABLE, -1, "the NVIDIA driver has no %s; install a newer driver", name);
  return reinterpret_cast<Function>(function);
}

struct Driver {
  CUresult (*ctx_get_current)(CUcontext*) = entry_point<decltype(ctx_get_current)>("cuCtxGetCurrent", 4000);
  CUresult (*ctx_push)(CUcontext) = entry_point<decltype(ctx_push)>("cuCtxPushCurrent", 4000);
  CUresult (*ctx_pop)(CUcontext*) = entry_point<decltype(ctx_pop)>("cuCtxPopCurrent", 4000);
  CUresult (*ctx_device)(CUdevice*) = entry_point<decltype(ctx_device)>("cuCtxGetDevice", 2000);
  CUresult (*retain)(CUcontext*, CUdevice) = entry_point<decltype(retain)>("cuDevicePrimaryCtxRetain", 7000);
  CUresult (*device_get)(CUdevice*, int) = entry_point<decltype(device_get)>("cuDeviceGet", 2000);
  CUresult (*stream_ctx)(CUstream, CUcontext*) = entry_point<decltype(stream_ctx)>("cuStreamGetCtx", 9020);
  CUresult (*launch)(const CUlaunchConfig*, CUfunction, void**, void**) = entry_point<decltype(launch)>("cuLaunchKernelEx", 11060);
  CUresult (*module_load)(CUmodule*, const void*) = entry_point<decltype(module_load)>("cuModuleLoadData", 2000);
  CUresult (*module_function)(CUfunction*, CUmodule, const char*) = entry_point<decltype(module_function)>("cuModuleGetFunction",
                                                                                                           2000);
  CUresult (*set_attribute)(CUfunction, CUfunction_attribute, int) = entry_point<decltype(set_attribute)>("cuFuncSetAttribute",
                                                                                                          9000);
  CUresult (*address_range)(CUdeviceptr*, size_t*, CUdeviceptr) = entry_point<decltype(address_range)>("cuMemGetAddressRange",
                                                                                                       3020);
};
const Driver& driver() {
  static const Driver instance;
  return instance;
}

// The driver's numbers are the runtime's.
void check(CUresult result, const char* doing) { gpu::check(from_cuda(static_cast<cudaError_t>(result)), doing); }

// The primary context of a device, which the runtime and every framework use. Retained once and kept: what a thread or an exit
// handler may still use must stay.
CUcontext primary_context(int device) {
  constexpr int kMost = 64;
  static std::atomic<CUcontext> contexts[kMost];
  if (device < 0 || device >= kMost) refuse(NW_UNSUPPORTED, -1, "device %d; this backend knows 0 to %d", device, kMost - 1);
  CUcontext context = contexts[device].load(std::memory_order_acquire);
  if (context != nullptr) return context;
  CUdevice handle = 0;
  CUresult result = driver().device_get(&handle, device);
  if (result == CUDA_SUCCESS) result = driver().retain(&context, handle);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) refuse(NW_OUT_OF_MEMORY, -1, "device %d has no memory left for a context", device);
  if (result != CUDA_SUCCESS)
    refuse(NW_UNAVAILABLE, -1, "device %d could not be opened (driver error %d)", device, static_cast<int>(result));
  contexts[device].store(context, std::memory_order_release);  // a second thread that retains it too gets the same one
  return context;
}

}  // namespace

// By the driver's stack of contexts: the runtime's cudaSetDevice, to come back to a device, would make a context there.
DeviceScope::DeviceScope(int device) {
  const CUcontext wanted = primary_context(device);
  CUcontext current = nullptr;
  if (driver().ctx_get_current(&current) == CUDA_SUCCESS && current == wanted) return;
  if (const CUresult result = driver().ctx_push(wanted); result != CUDA_SUCCESS)
    refuse(NW_DEVICE_LOST, -1, "device %d: its context cannot be entered (driver error %d)", device, static_cast<int>(result));
  entered_ = true;
}

DeviceScope::~DeviceScope() {
  CUcontext left = nullptr;
  if (entered_) driver().ctx_pop(&left);
}

bool is_default_stream(gpuStream_t stream) {
  return stream == nullptr || stream == cudaStreamLegacy || stream == cudaStreamPerThread;
}

int stream_device(gpuStream_t stream) {
  if (is_default_stream(stream)) return -1;
  CUcontext context = nullptr;
  CUdevice device = 0;
  const CUresult result = driver().stream_ctx(stream, &context);
  if (result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_INVALID_HANDLE || result == CUDA_ERROR_INVALID_CONTEXT)
    refuse(NW_INVALID, -1, "stream %p is no stream of CUDA", static_cast<void*>(stream));
  check(result, "asking for a stream's context");
  check(driver().ctx_push(context), "entering a stream's context");
  const CUresult found = driver().ctx_device(&device);
  driver().ctx_pop(&context);
  check(found, "asking for a stream's device");
  return static_cast<int>(device);
}

Memory memory_at(const void* address) {
  cudaPointerAttributes found{};
  const cudaError_t error = cudaPointerGetAttributes(&found, address);
  if (error == cudaErrorInvalidValue) return {Memory::kUnknown, -1};
  check(from_cuda(error), "asking whose memory an address is");
  switch (found.type) {
    case cudaMemoryTypeDevice: return {Memory::kDevice, found.device};
    case cudaMemoryTypeManaged: return {Memory::kManaged, found.device};
    case cudaMemoryTypeHost: return {Memory::kPinned, found.device};
    default: return {Memory::kUnknown, -1};
  }
}

gpuFunction_t find_function(const void* symbol) {
  cudaFunction_t function = nullptr;
  check(from_cuda(cudaGetFuncBySymbol(&function, symbol)), "looking for a kernel");
  return reinterpret_cast<gpuFunction_t>(function);
}

namespace {

// The attributes of a launch, and how many they are. The runtime's and the driver's differ in names alone.
template <class Attribute, class Id, class Value>
unsigned set_attributes(Attribute (&list)[2], Value Attribute::* value, Id overlapping, Id cluster, const Grid& grid) {
  unsigned count = 0;
  if (grid.overlaps) {
    list[count].id = overlapping;
    (list[count++].*value).programmaticStreamSerializationAllowed = 1;
  }
  if (grid.cluster > 1) {
    list[count].id = cluster;
    (list[count++].*value).clusterDim = {grid.cluster, 1, 1};
  }
  return count;
}

}  // namespace

// Where the function is known, by the driver: the runtime would look for the symbol among all that it has.
gpuError_t launch_symbol(const void* symbol, gpuFunction_t function, const Grid& grid, void** arguments, gpuStream_t stream) {
  if (function == nullptr) {
    cudaLaunchAttribute attributes[2] = {};
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(grid.blocks), config.blockDim = dim3(grid.threads), config.dynamicSmemBytes = grid.shared;
    config.stream = stream, config.attrs = attributes;
    config.numAttrs = set_attributes(attributes, &cudaLaunchAttribute::val, cudaLaunchAttributeProgrammaticStreamSerialization,
                                     cudaLaunchAttributeClusterDimension, grid);
    return from_cuda(cudaLaunchKernelExC(&config, symbol, arguments));
  }
  CUlaunchAttribute attributes[2] = {};
  CUlaunchConfig config{};
  config.gridDimX = grid.blocks, config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = grid.threads, config.blockDimY = config.blockDimZ = 1;
  config.sharedMemBytes = static_cast<unsigned>(grid.shared), config.hStream = stream, config.attrs = attributes;
  config.numAttrs = set_attributes(attributes, &CUlaunchAttribute::value, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                                   CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, grid);
  const CUresult result = driver().launch(&config, reinterpret_cast<CUfunction>(function), arguments, nullptr);
  return from_cuda(static_cast<cudaError_t>(result));  // the driver's numbers are the runtime's
}

void* load_module(const std::string& code) {
  CUmodule module = nullptr;
  check(driver().module_load(&module, code.c_str()), "loading a program's kernels");  // an intermediate text ends with a 0
  return module;
}

gpuFunction_t find_in_module(void* module, const std::string& name, int64_t shared_bytes) {
  CUfunction function = nullptr;
  check(driver().module_function(&function, static_cast<CUmodule>(module), name.c_str()), "looking for a program's kernel");
  if (shared_bytes > 0)
    check(driver().set_attribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, static_cast<int>(shared_bytes)),
          "asking for a program's shared memory");
  return reinterpret_cast<gpuFunction_t>(function);
}

bool find_allocation(const void* address, const void** base, size_t* size) {
  CUdeviceptr start = 0;
  const CUresult result = driver().address_range(&start, size, reinterpret_cast<CUdeviceptr>(address));
  if (result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_NOT_FOUND) return false;
  check(result, "asking for the allocation of an address");
  *base = reinterpret_cast<const void*>(start);
  return true;
}

}  // namespace narrows::gpu
