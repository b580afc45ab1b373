// gpu.h -- what the GPU sources call the vendor's names by. backends/cuda/platform/gpu.h is the other one; whichever stands on the
// include path is used, so the sources have no #ifdef. The two compare line by line.
#pragma once

#include <hip/hip_fp16.h>
#include <hip/hip_runtime.h>
#if defined(__HIP_PLATFORM_NVIDIA__)
#include <cuda_bf16.h>
#endif

#include <cstddef>
#include <cstdint>

// ---- the runtime ----

#define gpuError_t hipError_t
#define gpuSuccess hipSuccess
#define gpuErrorMemoryAllocation hipErrorOutOfMemory
#define gpuGetErrorString hipGetErrorString
#define gpuGetErrorName hipGetErrorName

#define gpuStream_t hipStream_t
#define gpuStreamCreateWithFlags hipStreamCreateWithFlags
#define gpuStreamNonBlocking hipStreamNonBlocking
#define gpuStreamDestroy hipStreamDestroy
#define gpuStreamSynchronize hipStreamSynchronize
#define gpuStreamWaitEvent hipStreamWaitEvent
#define gpuStreamIsCapturing hipStreamIsCapturing
#define gpuStreamCaptureStatus hipStreamCaptureStatus
#define gpuStreamCaptureStatusNone hipStreamCaptureStatusNone

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
#define gpuMemsetAsync hipMemsetAsync

#define gpuGetDeviceCount hipGetDeviceCount
#define gpuDeviceProp hipDeviceProp_t
#define gpuGetDeviceProperties hipGetDeviceProperties
#define gpuDeviceGetAttribute hipDeviceGetAttribute

#define gpuLaunchKernel hipLaunchKernel
#define gpuFuncAttributes hipFuncAttributes
#define gpuFuncGetAttributes hipFuncGetAttributes
#define gpuFuncSetAttribute hipFuncSetAttribute
#define gpuFuncAttributeMaxDynamicSharedMemorySize hipFuncAttributeMaxDynamicSharedMemorySize
#define gpuOccupancyMaxActiveBlocksPerMultiprocessor hipOccupancyMaxActiveBlocksPerMultiprocessor

// ---- what differs in more than a name ----

namespace narrows::gpu {

inline constexpr char kPluginName[] = "hip";
#if defined(__HIP_PLATFORM_NVIDIA__)
inline constexpr int kDeviceType = 2, kPinnedType = 3, kManagedType = 13;  // kDLCUDA, kDLCUDAHost, kDLCUDAManaged
#else
inline constexpr int kDeviceType = 10, kPinnedType = 11, kManagedType = 0;  // kDLROCM, kDLROCMHost; managed memory is kDLROCM
#endif

// Lanes that run in step on any device that this build is for; a kernel that needs the device's own number asks warpSize.
#if defined(__HIP_PLATFORM_NVIDIA__)
inline constexpr int kMinWarpSize = 32, kMaxWarpSize = 32;
#else
inline constexpr int kMinWarpSize = 32, kMaxWarpSize = 64;
#endif

// ---- elements ----

using f16 = __half;
__device__ __forceinline__ float widen(f16 x) { return __half2float(x); }
__device__ __forceinline__ void narrow(float x, f16& out) { out = __float2half_rn(x); }  // to nearest even

#if defined(__HIP_PLATFORM_NVIDIA__)
using bf16 = __nv_bfloat16;
__device__ __forceinline__ float widen(bf16 x) { return __bfloat162float(x); }
__device__ __forceinline__ void narrow(float x, bf16& out) { out = __float2bfloat16_rn(x); }
#else
// HIP's own type changed its name, its header and its members from version to version.
struct bf16 {
  uint16_t bits;
};
__device__ __forceinline__ float widen(bf16 x) { return __uint_as_float(static_cast<uint32_t>(x.bits) << 16); }
__device__ __forceinline__ void narrow(float x, bf16& out) {
  const uint32_t bits = __float_as_uint(x);
  out.bits = x == x ? static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16) : uint16_t{0x7fff};
}
#endif

// ---- memory that is touched once, and so better not kept in a cache: integers and vectors of them ----

#if defined(__HIP_PLATFORM_NVIDIA__)
template <class T>
__device__ __forceinline__ T load_streamed(const T* p) {
  return __ldcs(p);
}
template <class T>
__device__ __forceinline__ void store_streamed(T* p, T x) {
  __stcs(p, x);
}
#else
// The compiler's own type of that size: it takes no vector of HIP's.
template <size_t kBytes>
struct StreamedBits;
template <>
struct StreamedBits<1> {
  using type = uint8_t;
};
template <>
struct StreamedBits<2> {
  using type = uint16_t;
};
template <>
struct StreamedBits<4> {
  using type = uint32_t;
};
template <>
struct StreamedBits<8> {
  using type = uint32_t __attribute__((ext_vector_type(2)));
};
template <>
struct StreamedBits<16> {
  using type = uint32_t __attribute__((ext_vector_type(4)));
};
template <class T>
__device__ __forceinline__ T load_streamed(const T* p) {
  const auto bits = __builtin_nontemporal_load(reinterpret_cast<const typename StreamedBits<sizeof(T)>::type*>(p));
  T x;
  __builtin_memcpy(static_cast<void*>(&x), &bits, sizeof(T));
  return x;
}
template <class T>
__device__ __forceinline__ void store_streamed(T* p, T x) {
  typename StreamedBits<sizeof(T)>::type bits;
  __builtin_memcpy(&bits, static_cast<const void*>(&x), sizeof(T));
  __builtin_nontemporal_store(bits, reinterpret_cast<decltype(bits)*>(p));
}
#endif

// ---- the device, seen from the host ----

// Why there is no device, and what to install.
const char* advice(gpuError_t error);

// The status that an error stands for (NW_*).
int32_t status_of(gpuError_t error);

// "gfx90a", "sm_90". `size` bytes.
void write_arch(const gpuDeviceProp& properties, char* out, size_t size);
// 90 for sm_90. 0 for another vendor's device.
int compute_capability(const gpuDeviceProp& properties);
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
