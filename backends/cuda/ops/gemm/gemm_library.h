// SPDX-License-Identifier: Apache-2.0
// gemm_library.h -- products of matrices by the vendor's own library, where the machine has it. Nothing needs it: every op has
// kernels of its own. It is cuBLASLt for cuda and hipBLASLt for hip (platform/blaslt.h).
#pragma once

#include <memory>
#include <string>

#include "blaslt.h"
#include "common/float_dtype.h"
#include "gpu.h"

namespace narrows::gpu {

// out = alpha * left * right + beta * out, of matrices with contiguous rows, each `pitch` elements after the last one. left is
// (rows, depth) and right (depth, columns); a transposed one lies as (depth, rows) or (columns, depth). Addresses and pitches in
// bytes are multiples of kGemmAlignment. Sums are kept in f32.
struct GemmMatrix {
  int64_t pitch = 0;
  bool transposed = false;
};
struct GemmShape {
  common::Dtype dtype, out_dtype;  // of both operands: f16 or bf16; of the result: the same or f32
  int64_t rows, columns, depth;
  GemmMatrix left, right, out;
  bool factors_on_device;  // alpha and beta are read from device memory, when the product runs: blaslt::kReadsFactorsOnDevice
};
constexpr int64_t kGemmAlignment = 16;

// A planned product. Any thread may launch it.
class Gemm {
 public:
  virtual ~Gemm() = default;
  // Gives the same bits for the same operands where blaslt::kGivesSameBits. `workspace`: workspace_size bytes, aligned to 256.
  // Throws common::Refusal.
  virtual void launch(const float* alpha, const void* left, const void* right, const float* beta, void* out, void* workspace,
                      gpuStream_t stream) const = 0;
  uint64_t workspace_size = 0;
};

// For the current device, which is `device`. nullptr: there is none, and *reason says why. Throws common::Refusal if the device is
// lost.
std::unique_ptr<const Gemm> plan_gemm(int device, const GemmShape& shape, std::string* reason);

// The end of planning: captures a launch and throws it away, so that its kernels are loaded, and what the library refuses is known
// before the call. "", or what was refused. Throws common::Refusal if the device is lost.
std::string warm_up(const Gemm& gemm, const GemmShape& shape);

}  // namespace narrows::gpu
