// SPDX-License-Identifier: Apache-2.0
// gpu.h -- what the GPU sources call the vendor's names by. backends/hip/platform/gpu.h is the other one; whichever stands on the
// include path is used, so the sources have no #ifdef. The two compare line by line.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

// ---- the runtime ----

#define gpuError_t cudaError_t
#define gpuSuccess cudaSuccess
#define gpuErrorMemoryAllocation cudaErrorMemoryAllocation
#define gpuGetErrorString cudaGetErrorString
#define gpuGetErrorName cudaGetErrorName
#define gpuGetLastError cudaGetLastError
#define gpuPeekAtLastError cudaPeekAtLastError

#define gpuStream_t cudaStream_t
#define gpuStreamCreateWithFlags cudaStreamCreateWithFlags
#define gpuStreamNonBlocking cudaStreamNonBlocking
#define gpuStreamDestroy cudaStreamDestroy
#define gpuStreamSynchronize cudaStreamSynchronize
#define gpuStreamWaitEvent cudaStreamWaitEvent
#define gpuStreamIsCapturing cudaStreamIsCapturing
#define gpuStreamCaptureStatus cudaStreamCaptureStatus
#define gpuStreamCaptureStatusNone cudaStreamCaptureStatusNone
#define gpuStreamBeginCapture cudaStreamBeginCapture
#define gpuStreamEndCapture cudaStreamEndCapture
#define gpuStreamCaptureMode cudaStreamCaptureMode
#define gpuStreamCaptureModeRelaxed cudaStreamCaptureModeRelaxed
#define gpuThreadExchangeStreamCaptureMode cudaThreadExchangeStreamCaptureMode
#define gpuGraph_t cudaGraph_t
#define gpuGraphDestroy cudaGraphDestroy

#define gpuEvent_t cudaEvent_t
#define gpuEventCreateWithFlags cudaEventCreateWithFlags
#define gpuEventDisableTiming cudaEventDisableTiming
#define gpuEventRecord cudaEventRecord
#define gpuEventDestroy cudaEventDestroy

#define gpuMalloc cudaMalloc
#define gpuFree cudaFree
#define gpuMemPool_t cudaMemPool_t
#define gpuMallocFromPoolAsync cudaMallocFromPoolAsync
#define gpuFreeAsync cudaFreeAsync
#define gpuMemPoolTrimTo cudaMemPoolTrimTo
#define gpuMemPoolDestroy cudaMemPoolDestroy
#define gpuMemcpyAsync cudaMemcpyAsync
#define gpuMemcpyDefault cudaMemcpyDefault

#define gpuGetDeviceCount cudaGetDeviceCount
#define gpuDeviceProp cudaDeviceProp
#define gpuGetDeviceProperties cudaGetDeviceProperties

#define gpuFunction_t cudaFunction_t
#define gpuFuncAttributes cudaFuncAttributes
#define gpuFuncGetAttributes cudaFuncGetAttributes
#define gpuFuncSetAttribute cudaFuncSetAttribute
#define gpuFuncAttributeMaxDynamicSharedMemorySize cudaFuncAttributeMaxDynamicSharedMemorySize
// A kernel's address, by which the runtime knows it, and its dynamic shared memory.
#define gpuSymbol(kernel) reinterpret_cast<const void*>(kernel)
#define gpuDynamicShared(type, name) extern __shared__ type name[]

// ---- what differs in more than a name ----

namespace narrows::gpu {

inline constexpr char kPluginName[] = "cuda";
// How many threads compute a program's product together: mma.sync of m16n8k16 is there from sm_80 on. On sm_75 they share the work
// by shuffles. 0: loops that are marked as such products are plain ones.
constexpr int unit_lanes(int compute_capability) { return compute_capability >= 75 ? 32 : 0; }
inline constexpr int kDeviceType = 2, kPinnedType = 3, kManagedType = 13;  // kDLCUDA, kDLCUDAHost, kDLCUDAManaged

// ---- elements ----

using f16 = __half;
using bf16 = __nv_bfloat16;
__device__ __forceinline__ float widen(f16 x) { return __half2float(x); }
__device__ __forceinline__ float widen(bf16 x) { return __bfloat162float(x); }
__device__ __forceinline__ void narrow(float x, f16& out) { out = __float2half_rn(x); }  // to nearest even
__device__ __forceinline__ void narrow(float x, bf16& out) { out = __float2bfloat16_rn(x); }
// Rounded correctly, as nvcc makes it.
__device__ __forceinline__ float square_root(float x) { return std::sqrt(x); }
__device__ __forceinline__ double square_root(double x) { return std::sqrt(x); }
// from[index()] where there is such an element, else 0: of global memory that does not change while the kernel runs.
template <class T, class Index>
__device__ __forceinline__ T load_where(bool there, const T* from, Index index) {
  return there ? from[index()] : T{};
}
// What the lane of a warp of 32 has whose number differs in the bits of `lanes`; all of the block's threads ask at once.
template <class T>
__device__ __forceinline__ T shuffle_xor(T x, int lanes) {
  return __shfl_xor_sync(0xffffffffu, x, lanes);
}
// 16 bytes as one load, at a multiple of 16.
__device__ __forceinline__ uint4 load_16_bytes(const void* from) { return *static_cast<const uint4*>(from); }
// 16 bytes as one store; the compiler makes four of a uint4 that it assembled itself.
__device__ __forceinline__ void store_16_bytes(void* to, uint4 v) {
  asm volatile("st.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}

// Two at once, the first in the lower bits.
__device__ __forceinline__ uint32_t narrow_pair(float x, float y, f16) {
  const __half2 pair = __floats2half2_rn(x, y);
  uint32_t bits;
  memcpy(&bits, &pair, 4);
  return bits;
}
__device__ __forceinline__ uint32_t narrow_pair(float x, float y, bf16) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(x, y);
  uint32_t bits;
  memcpy(&bits, &pair, 4);
  return bits;
}

// ---- memory that is touched once, and so better not kept in a cache: integers and vectors of them ----

template <class T>
__device__ __forceinline__ void store_streamed(T* p, T x) {
  __stcs(p, x);
}

// ---- the device, seen from the host ----

// Why there is no device, and what to install.
const char* advice(gpuError_t error);

// The status that an error stands for (NW_*).
int32_t status_of(gpuError_t error);
// An error of CUDA's by the name that it has here.
inline gpuError_t from_cuda(cudaError_t error) { return error; }

// "sm_90". `size` bytes.
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
