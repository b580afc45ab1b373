// SPDX-License-Identifier: Apache-2.0
// conv1d.h -- the parts that conv1d and conv1d_backward are put together from, and the kernels that each part may run on. A part is
// a correlation (the forward pass; one residue of grad_x) or a sum over batch and positions (grad_w, grad_bias). Every kernel
// family plans a part, or says that it isn't made for it.
#pragma once

#include <limits>
#include <memory>

#include "backend.h"
#include "common/conv1d.h"

namespace narrows::gpu {

// Addresses of a part's tensors: of a correlation in, w, bias or nullptr, and out; of a sum grad_y, x, nullptr, and the gradient.
struct Operands {
  const void *a, *b, *bias;
  void* out;
  const void* more = nullptr;  // further channels of w: MoreWeights
};

// A part, planned: its kernels are loaded on the device.
class Part {
 public:
  virtual ~Part() = default;
  virtual void launch(const Operands& operands, void* workspace, gpuStream_t stream) const = 0;
  uint64_t workspace_size = 0;
};

// Channels of w, from `from` on, that lie in another tensor: of a product whose operand is two tensors side by side.
struct MoreWeights {
  int64_t from = std::numeric_limits<int64_t>::max();
  int64_t out = 0, in = 0;  // strides in elements
};
struct CorrelationProblem : CorrelationRequest {
  const Device* device;
  bool forced = false;    // by the call: a kernel takes it though another were faster
  MoreWeights more = {};  // that only conv1d_split_sm90a.cu takes
};
// A sum; or grad_x at once, where `to` is grad_x and x_align that of w.
struct SumProblem : SumRequest {
  const Device* device;
  bool forced = false;
};

// Each gives nullptr for a part that the kernel isn't made for. A part has at least one output element.
using PlanCorrelation = std::unique_ptr<Part> (*)(const CorrelationProblem&);
using PlanSum = std::unique_ptr<Part> (*)(const SumProblem&);

// The plain loops, for everything.
std::unique_ptr<Part> plan_scalar(const CorrelationProblem& problem);
std::unique_ptr<Part> plan_sum_scalar(const SumProblem& problem);
std::unique_ptr<Part> plan_grad_x_scalar(const SumProblem& problem);  // all residues at once
// Zeros in all of a tensor; `a` and `b` are not read.
struct FillProblem {
  Dtype dtype;
  Tensor3 to;
  int64_t align;  // bytes
};
std::unique_ptr<Part> plan_fill_zero(const FillProblem& problem);

// Few channels to a group: sliding windows. Elements must be aligned.
std::unique_ptr<Part> plan_direct(const CorrelationProblem& problem);
std::unique_ptr<Part> plan_grad_w_direct(const SumProblem& problem);
std::unique_ptr<Part> plan_grad_w_vectors(const SumProblem& problem);  // what plan_grad_w_direct asks first
std::unique_ptr<Part> plan_grad_bias_direct(const SumProblem& problem);

// Few outputs to a filter: dot products. Elements must be aligned.
std::unique_ptr<Part> plan_dots(const CorrelationProblem& problem);

// Many channels to a group: products, without a matrix of the input's windows in memory. Elements must be aligned.
std::unique_ptr<Part> plan_gemm(const CorrelationProblem& problem);
std::unique_ptr<Part> plan_grad_w_gemm(const SumProblem& problem);

// The same in a vendor's own instructions: platform/conv1d_native.cpp has the table. nullptr where there is none.
struct NativeConv1d {
  PlanCorrelation fir = nullptr, gemm = nullptr;  // what `direct` and `gemm` ask first
  PlanSum grad_w_gemm = nullptr;                  // likewise
  PlanCorrelation mma = nullptr;
  PlanSum grad_w_mma = nullptr;
  PlanCorrelation split = nullptr;
  PlanSum grad_w_split = nullptr;
  PlanCorrelation wgmma = nullptr;
  PlanSum grad_w_wgmma = nullptr;
};
const NativeConv1d& conv1d_native();

inline constexpr int kThreads = 256;  // of a block, where nothing asks for another number

// Blocks for `total` threads, in a loop over the grid where there would be too many.
inline int64_t grid_of(int64_t total, int threads = kThreads) {
  return std::clamp<int64_t>(ceil_div(total, threads), 1, kMaxBlocks);
}

}  // namespace narrows::gpu
