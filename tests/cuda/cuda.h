// SPDX-License-Identifier: Apache-2.0
// cuda.h -- what the tests of CUDA's own terms stand on: streams, graphs, memory of every kind, contexts. They judge any backend
// whose device is kDLCUDA: backends/cuda, and backends/hip built for NVIDIA. They go through the public C API and the CUDA runtime.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <catch2/catch_test_macros.hpp>
#include <set>
#include <string>
#include <vector>

#include "conformance/call_examples.h"
#include "support/harness.h"

namespace narrows::test {

// Fails the test with CUDA's words.
#define CUDA_OK(call)                                                           \
  do {                                                                          \
    const cudaError_t cuda_ok_result = (call);                                  \
    INFO(#call << ": " << cudaGetErrorString(cuda_ok_result));                  \
    REQUIRE(static_cast<int>(cuda_ok_result) == static_cast<int>(cudaSuccess)); \
  } while (false)

class Stream {
 public:
  Stream() { CUDA_OK(cudaStreamCreateWithFlags(&handle_, cudaStreamNonBlocking)); }
  ~Stream() { cudaStreamDestroy(handle_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator cudaStream_t() const { return handle_; }

 private:
  cudaStream_t handle_ = nullptr;
};

// Skips the test where there is one GPU.
#define NEEDS_TWO_GPUS()                                             \
  do {                                                               \
    int gpu_count = 0;                                               \
    CUDA_OK(cudaGetDeviceCount(&gpu_count));                         \
    if (gpu_count < 2) SKIP("needs two GPUs; this machine has one"); \
  } while (false)

// Device memory of the test's own.
class Buffer {
 public:
  explicit Buffer(size_t size) { CUDA_OK(cudaMalloc(&data_, size)); }
  ~Buffer() { cudaFree(data_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
};

// One call of each op, forward and backward, in each of its kinds; of integers element-wise ones alone.
std::vector<Example> examples(DType dtype);
// conv1d and lltm of f16, both directions, on matrix units, and of lltm's sizes the vendor's library takes those that it is chosen
// for.
std::vector<Example> matrix_examples();

// Calls of tensor programs of f32: rows that share sums, and a product.
std::vector<Example> program_examples();

// out = a + b over n f32 numbers, at any addresses and devices.
struct Addition {
  Addition(DLDevice where, void* a, void* b, void* out, int64_t n);
  Addition(const Addition&) = delete;
  Addition& operator=(const Addition&) = delete;
  int32_t run(nw_error* error = nullptr) { return nw_run(runtime(), &call, error); }

  int64_t shape[1];
  DLTensor tensors[3]{};
  const DLTensor* inputs[2];
  const DLTensor* outputs[1];
  nw_elementwise_params params{};
  nw_call call{};
};

// Every kernel variant that the backend lists is among those that ran ("op/kernel"), but for those that its manifest excludes here.
void expect_all_variants(const std::set<std::string>& ran);

// The call was refused with that status, and its message has every word.
void expect_status(int32_t got, const nw_error& error, int32_t status, std::initializer_list<const char*> words);

}  // namespace narrows::test
