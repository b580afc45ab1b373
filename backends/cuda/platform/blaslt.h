// SPDX-License-Identifier: Apache-2.0
// blaslt.h -- the little of cuBLASLt's C interface that is used here, so that neither its headers nor its library are needed to
// build. Names, numbers and layouts are those of cublasLt.h, cublas_api.h and library_types.h of CUDA 12 and 13, where they are the
// same: NVIDIA keeps them within a library's major version, which is in its file's name. backends/hip/platform/blaslt.h is the
// other one. The two compare line by line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "gpu.h"

namespace narrows::gpu::blaslt {

// The ops' variant, words in messages, the variable that switches it off when it is 0, and how names of functions begin.
inline constexpr char kVariant[] = "cublaslt";
inline constexpr char kName[] = "cuBLASLt", kStatusName[] = "cuBLAS status";
inline constexpr char kSwitch[] = "NARROWS_CUBLASLT";
inline constexpr char kPrefix[] = "cublasLt";
// The newest first.
inline constexpr const char* kFiles[] = {"libcublasLt.so.13", "libcublasLt.so.12"};

// Whether it can be told that the same product gives the same bits; one that cannot is taken only where it is forced.
inline constexpr bool kGivesSameBits = true;
// Whether a launch writes into its descriptor.
inline constexpr bool kWritesDescriptor = false;
// Whether alpha and beta may lie in device memory.
inline constexpr bool kReadsFactorsOnDevice = true;

using Handle = void*;  // cublasLtHandle_t
using Status = int;    // cublasStatus_t
constexpr Status kSuccess = 0, kShortOfMemory = 3;

// cudaDataType_t
enum DataType : int { kFloat32 = 0, kFloat16 = 2, kBfloat16 = 14 };
// cublasComputeType_t: CUBLAS_COMPUTE_32F
enum ComputeType : int { kCompute32F = 68 };
// cublasLtMatmulDescAttributes_t, all of int32_t
enum DescAttribute : int { kPointerMode = 2, kTransA = 3, kTransB = 4 };
// cublasLtPointerMode_t
constexpr int32_t kPointersToDevice = 1;
// cublasOperation_t
constexpr int32_t kTransposed = 1;
// cublasLtMatmulPreferenceAttributes_t: of uint64_t, then of uint32_t
enum PreferenceAttribute : int {
  kMaxWorkspaceBytes = 1,
  kReductionSchemeMask = 3,
  kMinAlignmentA = 5,
  kMinAlignmentB = 6,
  kMinAlignmentC = 7,
  kMinAlignmentD = 8
};
// cublasLtReductionScheme_t: parts of a sum are kept in the workspace, and added in a step of their own
constexpr uint32_t kReducedInWorkspace = 2;

struct Algorithm {  // cublasLtMatmulAlgo_t
  uint64_t data[8];
};
constexpr size_t kResultSize = 96;  // of cublasLtMatmulHeuristicResult_t

// The attribute of a product whose factors lie in device memory. set(attribute, value)
template <class Set>
void set_factors_on_device(const Set& set) {
  set(kPointerMode, kPointersToDevice);
}

// What an algorithm has to be like, beside its workspace: never a reduction whose order is left to chance. prefer(attribute, value)
template <class Prefer>
void prefer_more(const Prefer& prefer, uint32_t alignment) {
  prefer(kReductionSchemeMask, kReducedInWorkspace);
  for (const PreferenceAttribute of : {kMinAlignmentA, kMinAlignmentB, kMinAlignmentC, kMinAlignmentD}) prefer(of, alignment);
}

// Why an open library cannot be called from here; "": it can.
inline std::string other_runtime(void*) {
  return {};  // streams are the driver's, of which a process has one
}

// Why an open library is none that is known here; "": it is one.
inline std::string unknown_version(void*, Handle) {
  return {};  // the file's name says it
}

}  // namespace narrows::gpu::blaslt
