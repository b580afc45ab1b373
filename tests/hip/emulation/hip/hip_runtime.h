// SPDX-License-Identifier: Apache-2.0
// hip_runtime.h -- a HIP whose GPU is the CPU: as much of HIP's interface as the hip backend uses, under HIP's own names, so that
// its sources are compiled as they are by an ordinary compiler, and its kernels run under the sanitizers. runtime.cpp is the other
// half.
//
// A kernel is a function. Its blocks run one after the other, on the thread that launches them; the threads of a block take turns
// at __syncthreads(). Work is done when its call returns, so streams and events only count. Shared memory is static: one kernel
// runs at a time, and a block finds there what the one before left. AddressSanitizer guards such a variable where its function has
// internal linkage: GCC leaves those alone that the linker merges. Nothing here is about speed, and nothing shows what a device's
// caches, warps and schedulers make of a kernel.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <type_traits>
#include <utility>

#define HIP_VERSION_MAJOR 6
#define HIP_EMULATION 1

// ---- the language ----

#define __global__
#define __device__
#define __host__
#define __constant__
#define __shared__ static
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
};
struct alignas(8) uint2 {
  uint32_t x, y;
};
struct alignas(16) uint4 {
  uint32_t x, y, z, w;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
inline uint2 make_uint2(uint32_t x, uint32_t y) { return {x, y}; }

namespace hip_emulation {

// The thread that is running, written between two of its turns.
struct Position {
  unsigned x;
};
extern Position thread_index, block_index, block_size, grid_size;

void* dynamic_shared();
void barrier();

// A kernel's address. `call` calls it with the parameters at these addresses.
void learn(const void* symbol, void (*call)(const void* symbol, void** parameters));
template <class... Parameters, size_t... kIndex>
void call_with(const void* symbol, void** parameters, std::index_sequence<kIndex...>) {
  reinterpret_cast<void (*)(Parameters...)>(const_cast<void*>(symbol))(*static_cast<Parameters*>(parameters[kIndex])...);
}
template <class... Parameters>
const void* symbol(void (*kernel)(Parameters...)) {
  const auto* address = reinterpret_cast<const void*>(kernel);
  learn(address, [](const void* known, void** parameters) {
    call_with<Parameters...>(known, parameters, std::index_sequence_for<Parameters...>{});
  });
  return address;
}

}  // namespace hip_emulation

// In the place of those of backends/hip/platform/gpu.h. A kernel's address says nothing of its parameters, so they are kept.
#define gpuSymbol(kernel) ::hip_emulation::symbol(kernel)
#define gpuDynamicShared(type, name) type* const name = static_cast<type*>(::hip_emulation::dynamic_shared())

#define threadIdx (::hip_emulation::thread_index)
#define blockIdx (::hip_emulation::block_index)
#define blockDim (::hip_emulation::block_size)
#define gridDim (::hip_emulation::grid_size)
inline void __syncthreads() { ::hip_emulation::barrier(); }
// By memory and barriers, so all threads of the block have to ask at once: whole warps of `width`, a power of two.
template <class T>
T __shfl_xor(T value, int mask, [[maybe_unused]] int width) {
  static T values[1024];
  values[threadIdx.x] = value;
  __syncthreads();
  const T other = values[threadIdx.x ^ static_cast<unsigned>(mask)];
  __syncthreads();
  return other;
}

inline float __uint_as_float(uint32_t bits) { return std::bit_cast<float>(bits); }
inline uint32_t __float_as_uint(float x) { return std::bit_cast<uint32_t>(x); }
inline int __double2hiint(double x) { return static_cast<int>(std::bit_cast<uint64_t>(x) >> 32); }
inline int __double2loint(double x) { return static_cast<int>(std::bit_cast<uint64_t>(x)); }
inline double __hiloint2double(int high, int low) {
  return std::bit_cast<double>(uint64_t{static_cast<uint32_t>(high)} << 32 | static_cast<uint32_t>(low));
}
inline uint32_t __umulhi(uint32_t x, uint32_t y) { return static_cast<uint32_t>(uint64_t{x} * y >> 32); }
inline int __clzll(uint64_t x) { return std::countl_zero(x); }
inline uint32_t __funnelshift_r(uint32_t low, uint32_t high, uint32_t shift) {
  return static_cast<uint32_t>((uint64_t{high} << 32 | low) >> (shift & 31));
}
// Bytes of the eight of (y, x), the lowest of x the first, by the lower three bits of each digit of `selector`.
inline uint32_t __byte_perm(uint32_t x, uint32_t y, uint32_t selector) {
  const uint64_t bytes = uint64_t{y} << 32 | x;
  uint32_t out = 0;
  for (int i = 0; i < 4; ++i) out |= static_cast<uint32_t>(bytes >> 8 * (selector >> 4 * i & 7) & 0xff) << 8 * i;
  return out;
}
inline float __fmul_rn(float x, float y) { return x * y; }
inline double __dmul_rn(double x, double y) { return x * y; }
inline double __drcp_rn(double x) { return 1 / x; }
inline float __fdividef(float x, float y) { return x / y; }
inline float __expf(float x) { return std::exp(x); }
using std::fma;

// What clang has for AMD's GPUs.
#define __builtin_amdgcn_rcpf(x) (1.0f / (x))
#ifndef __clang__
#define __builtin_nontemporal_store(value, to) (*(to) = (value))
#endif

// ---- the interface ----

#define HIP_EMULATION_ERRORS(X)                                              \
  X(hipSuccess, 0, "no error")                                               \
  X(hipErrorInvalidValue, 1, "invalid argument")                             \
  X(hipErrorOutOfMemory, 2, "out of memory")                                 \
  X(hipErrorNotInitialized, 3, "initialization error")                       \
  X(hipErrorInvalidDevicePointer, 17, "invalid device pointer")              \
  X(hipErrorInsufficientDriver, 35, "driver version is insufficient")        \
  X(hipErrorInvalidDeviceFunction, 98, "invalid device function")            \
  X(hipErrorNoDevice, 100, "no device")                                      \
  X(hipErrorInvalidDevice, 101, "invalid device ordinal")                    \
  X(hipErrorNoBinaryForGpu, 209, "no kernel image for this device")          \
  X(hipErrorECCNotCorrectable, 214, "uncorrectable ECC error")               \
  X(hipErrorInvalidHandle, 400, "invalid resource handle")                   \
  X(hipErrorNotFound, 500, "named symbol not found")                         \
  X(hipErrorIllegalAddress, 700, "an illegal memory access")                 \
  X(hipErrorLaunchTimeOut, 702, "the launch timed out")                      \
  X(hipErrorContextIsDestroyed, 709, "context is destroyed")                 \
  X(hipErrorAssert, 710, "device-side assert triggered")                     \
  X(hipErrorLaunchFailure, 719, "unspecified launch failure")                \
  X(hipErrorNotSupported, 801, "operation not supported")                    \
  X(hipErrorStreamCaptureUnsupported, 900, "not when stream is capturing")   \
  X(hipErrorStreamCaptureInvalidated, 901, "capture was invalidated")        \
  X(hipErrorStreamCaptureImplicit, 906, "would make an implicit dependency") \
  X(hipErrorCapturedEvent, 907, "event is captured")                         \
  X(hipErrorStreamCaptureWrongThread, 908, "capture of another thread")
enum hipError_t {
#define HIP_EMULATION_ERROR(name, number, words) name = number,
  HIP_EMULATION_ERRORS(HIP_EMULATION_ERROR)
#undef HIP_EMULATION_ERROR
};

using hipStream_t = struct ihipStream_t*;
using hipEvent_t = struct ihipEvent_t*;
using hipGraph_t = struct ihipGraph_t*;
using hipMemPool_t = struct ihipMemPool_t*;
using hipFunction_t = struct ihipFunction_t*;
using hipModule_t = struct ihipModule_t*;
using hipDevice_t = int;
using hipDeviceptr_t = void*;

struct hipDeviceProp_t {
  char name[256];
  char gcnArchName[256];
  size_t totalGlobalMem, sharedMemPerBlock;
  int multiProcessorCount, maxThreadsPerMultiProcessor, warpSize, l2CacheSize;
};
struct hipUUID {
  char bytes[16];
};
enum hipMemoryType { hipMemoryTypeUnregistered, hipMemoryTypeHost, hipMemoryTypeDevice, hipMemoryTypeManaged };
struct hipPointerAttribute_t {
  hipMemoryType type;
  int device;
  int isManaged;
};
enum hipMemAllocationType { hipMemAllocationTypePinned = 1 };
enum hipMemLocationType { hipMemLocationTypeDevice = 1 };
struct hipMemPoolProps {
  hipMemAllocationType allocType;
  struct {
    hipMemLocationType type;
    int id;
  } location;
};
enum hipMemAccessFlags { hipMemAccessFlagsProtReadWrite = 3 };
struct hipMemAccessDesc {
  struct {
    hipMemLocationType type;
    int id;
  } location;
  hipMemAccessFlags flags;
};
struct hipFuncAttributes {
  size_t sharedSizeBytes;
  int maxDynamicSharedSizeBytes;
};
enum hipDeviceAttribute_t { hipDeviceAttributeMemoryPoolsSupported };
enum hipMemPoolAttr { hipMemPoolAttrReleaseThreshold };
enum hipFuncAttribute { hipFuncAttributeMaxDynamicSharedMemorySize };
enum hipMemcpyKind { hipMemcpyDefault = 4 };
enum hipStreamCaptureStatus { hipStreamCaptureStatusNone };
enum hipStreamCaptureMode { hipStreamCaptureModeRelaxed = 2 };
inline constexpr unsigned hipStreamNonBlocking = 1, hipEventDisableTiming = 2;

const char* hipGetErrorName(hipError_t error);
const char* hipGetErrorString(hipError_t error);
hipError_t hipGetLastError();
hipError_t hipPeekAtLastError();

hipError_t hipGetDeviceCount(int* count);
hipError_t hipGetDevice(int* device);
hipError_t hipSetDevice(int device);
hipError_t hipGetDeviceProperties(hipDeviceProp_t* properties, int device);
hipError_t hipDeviceGetAttribute(int* value, hipDeviceAttribute_t attribute, int device);
hipError_t hipDeviceCanAccessPeer(int* can, int device, int other);
hipError_t hipDeviceEnablePeerAccess(int other, unsigned flags);
hipError_t hipDeviceGetUuid(hipUUID* uuid, hipDevice_t device);

hipError_t hipMalloc(void** data, size_t size);
hipError_t hipFree(void* data);
hipError_t hipMemPoolCreate(hipMemPool_t* pool, const hipMemPoolProps* properties);
hipError_t hipMemPoolSetAttribute(hipMemPool_t pool, hipMemPoolAttr attribute, void* value);
hipError_t hipMemPoolSetAccess(hipMemPool_t pool, const hipMemAccessDesc* access, size_t count);
hipError_t hipMemPoolTrimTo(hipMemPool_t pool, size_t kept);
hipError_t hipMemPoolDestroy(hipMemPool_t pool);
hipError_t hipMallocFromPoolAsync(void** data, size_t size, hipMemPool_t pool, hipStream_t stream);
hipError_t hipMallocAsync(void** data, size_t size, hipStream_t stream);
hipError_t hipFreeAsync(void* data, hipStream_t stream);
hipError_t hipMemcpyAsync(void* to, const void* from, size_t size, hipMemcpyKind kind, hipStream_t stream);
hipError_t hipPointerGetAttributes(hipPointerAttribute_t* attributes, const void* address);
hipError_t hipMemGetAddressRange(hipDeviceptr_t* base, size_t* size, hipDeviceptr_t address);

hipError_t hipStreamCreateWithFlags(hipStream_t* stream, unsigned flags);
hipError_t hipStreamDestroy(hipStream_t stream);
hipError_t hipStreamSynchronize(hipStream_t stream);
hipError_t hipStreamWaitEvent(hipStream_t stream, hipEvent_t event, unsigned flags);
hipError_t hipStreamGetDevice(hipStream_t stream, hipDevice_t* device);
hipError_t hipStreamIsCapturing(hipStream_t stream, hipStreamCaptureStatus* status);
hipError_t hipStreamBeginCapture(hipStream_t stream, hipStreamCaptureMode mode);
hipError_t hipStreamEndCapture(hipStream_t stream, hipGraph_t* graph);
hipError_t hipThreadExchangeStreamCaptureMode(hipStreamCaptureMode* mode);
hipError_t hipGraphDestroy(hipGraph_t graph);
hipError_t hipEventCreateWithFlags(hipEvent_t* event, unsigned flags);
hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream);
hipError_t hipEventDestroy(hipEvent_t event);

hipError_t hipFuncGetAttributes(hipFuncAttributes* attributes, const void* kernel);
hipError_t hipFuncSetAttribute(const void* kernel, hipFuncAttribute attribute, int value);
hipError_t hipLaunchKernel(const void* kernel, dim3 blocks, dim3 threads, void** parameters, size_t shared, hipStream_t stream);

// Kernels that were compiled at run time: compiler.cpp.
hipError_t hipModuleLoadData(hipModule_t* module, const void* code);
hipError_t hipModuleGetFunction(hipFunction_t* function, hipModule_t module, const char* name);
hipError_t hipModuleLaunchKernel(hipFunction_t function, unsigned blocks, unsigned blocks_y, unsigned blocks_z, unsigned threads,
                                 unsigned threads_y, unsigned threads_z, unsigned shared, hipStream_t stream, void** parameters,
                                 void** extra);

// The functions of its hiprtc, by name; nullptr: there is none.
void* hip_emulation_compiler(const char* name);
