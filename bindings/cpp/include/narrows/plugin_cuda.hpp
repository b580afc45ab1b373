// SPDX-License-Identifier: Apache-2.0
/// @file plugin_cuda.hpp
/// @brief plugin.hpp for GPUs, in CUDA: a plugin from ops whose kernels run on the call's stream.
///
/// nvcc compiles it as C++17 or newer, for NVIDIA's GPUs. hipcc compiles the same source for AMD's:
/// the folder narrows/hip on the include path has CUDA's names for HIP.
///
/// @code{.cpp}
/// __global__ void times(const float* x, float* y, float factor, int64_t n) {
///   const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
///   if (i < n) y[i] = factor * x[i];
/// }
/// void scale(const narrows::plugin::Launch& call) {
///   const int64_t n = call.size(0);
///   if (n == 0) return;
///   const float* x = call.input<float>(0);
///   float* y = call.output<float>(0);
///   times<<<(n + 255) / 256, 256, 0, narrows::plugin::stream(call)>>>(x, y, 2.0F, n);
///   narrows::plugin::check(cudaGetLastError());
/// }
/// NARROWS_CUDA_PLUGIN(
///     "mine", {.name = "mine.scale/1", .inputs = {"x"}, .outputs = {"y"}, .kernel = scale})
/// @endcode
///
/// This is step 4 of a tensor's path in docs/design.md.
///
/// The call's device is current while the op's function runs. That function must not allocate or
/// wait for the GPU. Everything else is as in plugin.hpp.
#ifndef NARROWS_PLUGIN_CUDA_HPP
#define NARROWS_PLUGIN_CUDA_HPP

#include <cuda_runtime_api.h>
#include <narrows/plugin.hpp>

#include <string>

/// @cond
// The vendors' 16-bit types, whose headers a kernel includes only if it uses them.
struct __half;
#ifdef NARROWS_CUDA_IS_HIP
struct hip_bfloat16;
struct __hip_bfloat16;
#else
struct __nv_bfloat16;
#endif
/// @endcond

namespace narrows::plugin {

/// @defgroup cpp_cuda C++: plugins for NVIDIA's and AMD's GPUs
/// @{

/// @cond
template <>
inline constexpr DLDataType class_dtype<::__half> = {kDLFloat, 16, 1};
#ifdef NARROWS_CUDA_IS_HIP
template <>
inline constexpr DLDataType class_dtype<::hip_bfloat16> = {kDLBfloat, 16, 1};
template <>
inline constexpr DLDataType class_dtype<::__hip_bfloat16> = {kDLBfloat, 16, 1};
#else
template <>
inline constexpr DLDataType class_dtype<::__nv_bfloat16> = {kDLBfloat, 16, 1};
#endif
/// @endcond

/// The stream that the call is put on.
inline cudaStream_t stream(const Launch& call) { return static_cast<cudaStream_t>(call.stream()); }

/// Throws an exception with the error's name and meaning. It clears the error, so that no later
/// call finds it.
inline void check(cudaError_t error) {
  if (error == cudaSuccess) return;
  (void)cudaGetLastError();
  throw std::runtime_error(std::string(cudaGetErrorName(error)) + ": " + cudaGetErrorString(error));
}

/// @cond
namespace detail {

// `static`: each plugin has its own.
static __global__ void copy_elements(StridedCopy copy, int64_t n) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < n; i += step)
    copy.elements(i, 1);
}

// What differs between CUDA and HIP in more than a name.
#ifdef NARROWS_CUDA_IS_HIP
inline constexpr DLDeviceType kGpu = kDLROCM;
// Not every AMD GPU has memory in the stream's order. Elsewhere both functions wait for the device.
inline bool has_pools() {
  int device = 0, pools = 0;
  check(hipGetDevice(&device));
  check(hipDeviceGetAttribute(&pools, hipDeviceAttributeMemoryPoolsSupported, device));
  return pools != 0;
}
inline cudaError_t allocate(void** data, uint64_t size, cudaStream_t stream) {
  return has_pools() ? hipMallocAsync(data, size, stream) : hipMalloc(data, size);
}
inline cudaError_t release(void* data, cudaStream_t stream) {
  return has_pools() ? hipFreeAsync(data, stream) : hipFree(data);
}
// "gfx90a:sramecc+:xnack-" without its features.
inline void describe(int32_t id, const cudaDeviceProp& properties, nw_device_info& info) {
  std::snprintf(info.arch, sizeof info.arch, "%.*s",
                static_cast<int>(std::strcspn(properties.gcnArchName, ":")),
                properties.gcnArchName);
  hipUUID uuid{};
  check(hipDeviceGetUuid(&uuid, id));
  std::memcpy(info.uuid, uuid.bytes, sizeof info.uuid);
}
#else
inline constexpr DLDeviceType kGpu = kDLCUDA;
inline cudaError_t allocate(void** data, uint64_t size, cudaStream_t stream) {
  return cudaMallocAsync(data, size, stream);
}
inline cudaError_t release(void* data, cudaStream_t stream) { return cudaFreeAsync(data, stream); }
inline void describe(int32_t, const cudaDeviceProp& properties, nw_device_info& info) {
  std::snprintf(info.arch, sizeof info.arch, "sm_%d%d", properties.major, properties.minor);
  std::memcpy(info.uuid, properties.uuid.bytes, sizeof info.uuid);
}
#endif

}  // namespace detail
/// @endcond

/// The plugin's table for CUDA's devices, or HIP's. Each library has its own. #NARROWS_CUDA_PLUGIN
/// makes it.
class __attribute__((visibility("hidden"))) CudaPlugin : public Plugin {
 public:
  /// Makes the table of a plugin with these ops.
  CudaPlugin(const char* name, std::vector<Op> ops) : Plugin(name, std::move(ops)) {
    table_.device_type = detail::kGpu;
    table_.create = create;
    table_.device_count = [](void*, int32_t* count, nw_error* error) {
      return guarded(error, [&] { check(cudaGetDeviceCount(count)); });
    };
    table_.device_info = device_info;
    table_.alloc = alloc;
    table_.free = [](void*, int32_t id, void* data, void* stream, nw_error* error) {
      if (data == nullptr) return known(id, error);
      return on(id, error,
                [&] { check(detail::release(data, static_cast<cudaStream_t>(stream))); });
    };
    table_.copy = copy;
    table_.stream_create = [](void*, int32_t id, void** stream, nw_error* error) {
      cudaStream_t made = nullptr;
      const int32_t status =
          on(id, error, [&] { check(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking)); });
      if (status == NW_OK) *stream = made;
      return status;
    };
    table_.stream_destroy = [](void*, int32_t id, void* stream, nw_error* error) {
      return on(id, error, [&] { check(cudaStreamDestroy(static_cast<cudaStream_t>(stream))); });
    };
    table_.stream_sync = [](void*, int32_t id, void* stream, nw_error* error) {
      return on(id, error,
                [&] { check(cudaStreamSynchronize(static_cast<cudaStream_t>(stream))); });
    };
    table_.stream_wait = stream_wait;
    table_.launch = [](void* self, const void* plan, const nw_call* call, nw_error* error) {
      int32_t status = NW_OK;
      const int32_t entered = on(call->device.device_id, error,
                                 [&] { status = run(self, plan, call, error, copy_tensor); });
      return entered != NW_OK ? entered : status;
    };
  }

 private:
  // On the call's stream, an element a thread.
  static void copy_tensor(const nw_host&, const nw_call& call, const void*, const DLTensor& from,
                          const DLTensor& to) {
    const detail::StridedCopy copy(from, to);
    const int64_t n = copy.size();
    constexpr int64_t kThreads = 256, kMostBlocks = 65536;
    const auto blocks = static_cast<unsigned>(std::min((n + kThreads - 1) / kThreads, kMostBlocks));
    const void* values[] = {&copy, &n};
    check(cudaLaunchKernel(detail::copy_elements, dim3{blocks, 1, 1}, dim3{kThreads, 1, 1},
                           const_cast<void**>(values), 0, static_cast<cudaStream_t>(call.stream)));
  }
  static int32_t known(int32_t id, nw_error* error) {
    int count = 0;
    const int32_t status = guarded(error, [&] { check(cudaGetDeviceCount(&count)); });
    if (status != NW_OK || (id >= 0 && id < count)) return status;
    char message[96];
    std::snprintf(message, sizeof message, "device_id is %d; there are %d devices, from 0", id,
                  count);
    return fail(error, NW_INVALID, -1, message);
  }
  // With that device current; afterwards it is the one that was.
  template <class Body>
  static int32_t on(int32_t device, nw_error* error, Body&& body) {
    int before = 0;
    int32_t found = guarded(error, [&] { check(cudaGetDevice(&before)); });
    if (found == NW_OK && before != device) found = known(device, error);
    if (found != NW_OK) return found;
    return guarded(error, [&] {
      if (before != device) check(cudaSetDevice(device));
      const int32_t status = guarded(error, body);
      if (before != device) check(cudaSetDevice(before));
      if (status != NW_OK)
        throw std::runtime_error(error == nullptr ? "" : std::string(error->message));
    });
  }

  static int32_t create(const nw_host* host, void** self, nw_error* error) {
    int count = 0;
    const cudaError_t found = cudaGetDeviceCount(&count);
    *self = const_cast<nw_host*>(host);
    return found == cudaSuccess && count != 0
               ? NW_OK
               : fail(error, NW_UNAVAILABLE, -1, cudaGetErrorString(found));
  }
  static int32_t device_info(void*, int32_t id, nw_device_info* out, nw_error* error) {
    if (const int32_t status = known(id, error); status != NW_OK) return status;
    return guarded(error, [&] {
      cudaDeviceProp properties;
      check(cudaGetDeviceProperties(&properties, id));
      nw_device_info info{};
      info.struct_size = out->struct_size;
      std::snprintf(info.name, sizeof info.name, "%.127s", properties.name);
      detail::describe(id, properties, info);
      info.total_memory = properties.totalGlobalMem;
      std::memcpy(out, &info, std::min<size_t>(out->struct_size, sizeof info));
    });
  }
  static int32_t alloc(void*, int32_t id, uint64_t size, void* stream, void** data,
                       nw_error* error) {
    void* memory = nullptr;
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    cudaError_t made = cudaSuccess;
    const int32_t status = on(id, error, [&] {
      check(cudaStreamIsCapturing(static_cast<cudaStream_t>(stream), &capture));
      if (capture == cudaStreamCaptureStatusNone && size != 0)
        made = detail::allocate(&memory, size, static_cast<cudaStream_t>(stream));
      if (made != cudaErrorMemoryAllocation) check(made);
      (void)cudaGetLastError();  // told below
    });
    if (status != NW_OK) return status;
    if (capture != cudaStreamCaptureStatusNone)
      return fail(error, NW_NOT_CAPTURABLE, -1,
                  "memory cannot be allocated while the stream is being captured");
    if (made != cudaSuccess) return fail(error, NW_OUT_OF_MEMORY, -1, cudaGetErrorString(made));
    return *data = memory, NW_OK;
  }
  static int32_t copy(void*, DLDevice to, void* dst, DLDevice from, const void* src, uint64_t size,
                      void* stream, nw_error* error) {
    const bool host = to.device_type != detail::kGpu || from.device_type != detail::kGpu;
    if (!host && from.device_id != to.device_id)
      if (const int32_t status = known(from.device_id, error); status != NW_OK) return status;
    return on(to.device_type == detail::kGpu ? to.device_id : from.device_id, error, [&] {
      check(cudaMemcpyAsync(dst, src, size, cudaMemcpyDefault, static_cast<cudaStream_t>(stream)));
      if (host) check(cudaStreamSynchronize(static_cast<cudaStream_t>(stream)));
    });
  }
  static int32_t stream_wait(void*, int32_t id, void* waiter, void* signaler, nw_error* error) {
    return on(id, error, [&] {
      cudaEvent_t event = nullptr;
      check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
      cudaError_t result = cudaEventRecord(event, static_cast<cudaStream_t>(signaler));
      if (result == cudaSuccess)
        result = cudaStreamWaitEvent(static_cast<cudaStream_t>(waiter), event, 0);
      (void)cudaEventDestroy(event);
      check(result);
    });
  }
};

/// @}

}  // namespace narrows::plugin

/// @ingroup cpp_cuda
/// @hideinitializer
/// Defines the one symbol that the host looks up, as #NARROWS_PLUGIN does, for CUDA's or HIP's
/// devices.
///
/// @param NAME  Name of the plugin.
/// @param ...   One Op in braces, or several with ',' between them.
#define NARROWS_CUDA_PLUGIN(NAME, ...)                                                        \
  const nw_plugin* narrows_plugin_query(uint32_t host_major, nw_error* error) {               \
    static const auto* const plugin =                                                         \
        new narrows::plugin::CudaPlugin(NAME, std::vector<narrows::plugin::Op>{__VA_ARGS__}); \
    return plugin->table(host_major, error);                                                  \
  }
#endif
