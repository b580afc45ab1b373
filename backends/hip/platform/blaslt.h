// SPDX-License-Identifier: Apache-2.0
// blaslt.h -- the little of hipBLASLt's C interface that is used here, so that neither its headers nor its library are needed to
// build. Names, numbers and layouts are those of hipblaslt.h, hipblas-common.h and library_types.h of hipBLASLt 0.6, 0.7, 0.8,
// 0.10, 0.12, 1.0, 1.1 and 1.2 (ROCm 6.0 to 7.2), where they are the same; older ones, of the same file names, had other numbers of
// dtypes. backends/cuda/platform/blaslt.h is the other one. The two compare line by line.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "gpu.h"

namespace narrows::gpu::blaslt {

// The ops' variant, words in messages, the variable that switches it off when it is 0, and how names of functions begin.
inline constexpr char kVariant[] = "hipblaslt";
inline constexpr char kName[] = "hipBLASLt", kStatusName[] = "hipBLAS status";
inline constexpr char kSwitch[] = "NARROWS_HIPBLASLT";
inline constexpr char kPrefix[] = "hipblasLt";
// The newest first. torch's has no number.
inline constexpr const char* kFiles[] = {"libhipblaslt.so.1", "libhipblaslt.so.0", "libhipblaslt.so"};

// Whether it can be told that the same product gives the same bits; one that cannot is taken only where it is forced. It has
// kernels that add with atomics, and no attribute that leaves them out; and others that wait for each other through memory of the
// handle, which all streams of a device share here, so that products on two streams may disturb each other.
inline constexpr bool kGivesSameBits = false;
// Whether a launch writes into its descriptor, which hipblasLtMatmul does without a lock.
inline constexpr bool kWritesDescriptor = true;
// Whether alpha and beta may lie in device memory. Its products take any pointer mode but the host's as a vector of alphas, though
// the interface has a mode of that name.
inline constexpr bool kReadsFactorsOnDevice = false;

using Handle = void*;  // hipblasLtHandle_t
using Status = int;    // hipblasStatus_t
constexpr Status kSuccess = 0, kShortOfMemory = 2;

// hipDataType
enum DataType : int { kFloat32 = 0, kFloat16 = 2, kBfloat16 = 14 };
// hipblasComputeType_t: HIPBLAS_COMPUTE_32F
enum ComputeType : int { kCompute32F = 2 };
// hipblasLtMatmulDescAttributes_t, all of int32_t
enum DescAttribute : int { kTransA = 0, kTransB = 1 };
// hipblasOperation_t
constexpr int32_t kTransposed = 112;
// hipblasLtMatmulPreferenceAttributes_t: of uint64_t
enum PreferenceAttribute : int { kMaxWorkspaceBytes = 1 };

struct Algorithm {  // hipblasLtMatmulAlgo_t
  uint8_t data[16];
  size_t max_workspace_size;
};
constexpr size_t kResultSize = 56;  // of hipblasLtMatmulHeuristicResult_t

// The attribute of a product whose factors lie in device memory. set(attribute, value)
template <class Set>
void set_factors_on_device(const Set&) {}

// What an algorithm has to be like, beside its workspace: nothing can be asked for. prefer(attribute, value)
template <class Prefer>
void prefer_more(const Prefer&, uint32_t) {}

// Why an open library cannot be called from here; "": it can. A stream belongs to the runtime that made it, of which a process
// may have two.
inline std::string other_runtime([[maybe_unused]] void* file) {
#if !defined(__HIP_PLATFORM_NVIDIA__)
  void* const its = dlsym(file, "hipStreamBeginCapture");
  if (its != nullptr && its != reinterpret_cast<void*>(&hipStreamBeginCapture)) return "it uses another HIP runtime";
#endif
  return {};
}

// Why an open library is none that is known here; "": it is one.
inline std::string unknown_version(void* file, Handle handle) {
  constexpr int kOldest = 600, kBeyond = 200000;  // 0.6.0 and 2.0.0: 100000 * major + 100 * minor + patch
  const auto get_version = reinterpret_cast<Status (*)(Handle, int*)>(dlsym(file, "hipblasLtGetVersion"));
  int version = 0;
  if (get_version == nullptr || get_version(handle, &version) != kSuccess) return "its version cannot be read";
  if (version >= kOldest && version < kBeyond) return {};
  return "it is version " + std::to_string(version / 100000) + "." + std::to_string(version / 100 % 1000) +
         "; 0.6 to 1.x are known here";
}

}  // namespace narrows::gpu::blaslt
