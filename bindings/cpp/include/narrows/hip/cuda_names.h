/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CUDA's names for HIP, so that one source serves both vendors' GPUs. This folder stands on the
 * include path where a source in CUDA is compiled by hipcc, in the place of CUDA's own headers.
 *
 * It has the runtime's names that plugin_cuda.hpp uses, and those that kernels' hosts use often.
 * What HIP has under no other name (inline PTX, *_sync, cooperative groups, textures) is not here:
 * a source asks for __HIP__ where it needs another way.
 */
#ifndef NARROWS_HIP_CUDA_NAMES_H
#define NARROWS_HIP_CUDA_NAMES_H

#define NARROWS_CUDA_IS_HIP 1

#include <hip/hip_fp16.h>
#include <hip/hip_runtime.h>

/* Errors. */
#define cudaError_t hipError_t
#define cudaSuccess hipSuccess
#define cudaErrorInvalidValue hipErrorInvalidValue
#define cudaErrorMemoryAllocation hipErrorOutOfMemory
#define cudaErrorNoDevice hipErrorNoDevice
#define cudaErrorNotSupported hipErrorNotSupported
#define cudaGetErrorName hipGetErrorName
#define cudaGetErrorString hipGetErrorString
#define cudaGetLastError hipGetLastError
#define cudaPeekAtLastError hipPeekAtLastError

/* Devices. */
#define cudaDeviceProp hipDeviceProp_t
#define cudaGetDevice hipGetDevice
#define cudaSetDevice hipSetDevice
#define cudaGetDeviceCount hipGetDeviceCount
#define cudaGetDeviceProperties hipGetDeviceProperties
#define cudaDeviceGetAttribute hipDeviceGetAttribute
#define cudaDevAttrMultiProcessorCount hipDeviceAttributeMultiprocessorCount
#define cudaDevAttrMaxSharedMemoryPerBlock hipDeviceAttributeMaxSharedMemoryPerBlock
#define cudaDevAttrWarpSize hipDeviceAttributeWarpSize
#define cudaDeviceSynchronize hipDeviceSynchronize

/* Streams and events. */
#define cudaStream_t hipStream_t
#define cudaStreamNonBlocking hipStreamNonBlocking
#define cudaStreamCreateWithFlags hipStreamCreateWithFlags
#define cudaStreamDestroy hipStreamDestroy
#define cudaStreamSynchronize hipStreamSynchronize
#define cudaStreamWaitEvent hipStreamWaitEvent
#define cudaStreamIsCapturing hipStreamIsCapturing
#define cudaStreamCaptureStatus hipStreamCaptureStatus
#define cudaStreamCaptureStatusNone hipStreamCaptureStatusNone
#define cudaEvent_t hipEvent_t
#define cudaEventDisableTiming hipEventDisableTiming
#define cudaEventCreateWithFlags hipEventCreateWithFlags
#define cudaEventRecord hipEventRecord
#define cudaEventDestroy hipEventDestroy

/* Memory. */
#define cudaMalloc hipMalloc
#define cudaMallocAsync hipMallocAsync
#define cudaFree hipFree
#define cudaFreeAsync hipFreeAsync
#define cudaMemsetAsync hipMemsetAsync
#define cudaMemcpyAsync hipMemcpyAsync
#define cudaMemcpyDefault hipMemcpyDefault
#define cudaMemcpyDeviceToDevice hipMemcpyDeviceToDevice
#define cudaMemcpyDeviceToHost hipMemcpyDeviceToHost
#define cudaMemcpyHostToDevice hipMemcpyHostToDevice

/* Kernels. */
#define cudaFuncAttributes hipFuncAttributes
#define cudaFuncGetAttributes hipFuncGetAttributes
#define cudaFuncSetAttribute hipFuncSetAttribute
#define cudaFuncAttributeMaxDynamicSharedMemorySize hipFuncAttributeMaxDynamicSharedMemorySize
#define cudaOccupancyMaxActiveBlocksPerMultiprocessor hipOccupancyMaxActiveBlocksPerMultiprocessor
#ifdef gpuSymbol /* a HIP that plays a GPU: it has to know the parameters */
#define cudaLaunchKernel(kernel, ...) hipLaunchKernel(gpuSymbol(kernel), __VA_ARGS__)
#else
#define cudaLaunchKernel(kernel, ...) \
  hipLaunchKernel(reinterpret_cast<const void*>(kernel), __VA_ARGS__)
#endif

#endif
