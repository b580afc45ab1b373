// SPDX-License-Identifier: Apache-2.0
// lltm.h -- the tensors of lltm and its gradients in kernels, and the variants that the plans choose from. The left operand of G =
// [old_h, input] * weights^T + bias is never built: the product is a sum of two, over the two column ranges of weights.
#pragma once

#include <memory>
#include <string>

#include "common/lltm.h"
#include "ops/dtype.h"

namespace narrows::gpu {

// A (rows, columns) tensor of a call, of elements that the kernel knows; base nullptr: absent. The base may have any alignment.
struct Matrix {
  char* base = nullptr;
  int64_t row = 0, column = 0;  // strides in elements
};

template <class T>
__host__ __device__ __forceinline__ T* at(const Matrix& m, int64_t row, int64_t column) {
  return reinterpret_cast<T*>(m.base) + (row * m.row + column * m.column);
}

// ---- forward ----

struct LltmForward {
  int64_t batch, features, state;
  Matrix input, weights, bias, old_h, old_cell;  // bias is one row
  Matrix new_h, new_cell, gates;                 // gates are of the accumulator's dtype
  char* workspace;                               // of a variant that asks for it
};

// What a variant is asked with; `aligned`: every tensor to its element's size; `forced`: this variant or none.
struct LltmRequest {
  const nw_sig& sig;
  const Device& device;
  LltmSizes sizes;
  bool aligned, forced;
};
// A variant's answer; kernel nullptr: it isn't made for this request.
struct LltmGemms;
class Part;
struct LltmChoice {
  const void* kernel = nullptr;
  int64_t blocks = 0;
  int threads = 0;
  size_t shared = 0;  // dynamic
  // What puts it on a stream; nullptr: the kernel takes the tensors as they are.
  void (*launch)(const LltmChoice& choice, const LltmForward& tensors, gpuStream_t stream) = nullptr;
  uint64_t workspace_size = 0;
  uint32_t traits = 0;                               // of the plan, beside what it has
  std::shared_ptr<const LltmGemms> gemms = nullptr;  // of lltm_library.cu
  std::shared_ptr<const Part> product = nullptr;     // of lltm_as_conv1d.cu
  std::string reason = {};                           // why there is no kernel, if the sizes, strides and alignments aren't it
};

LltmChoice lltm_scalar(const LltmRequest& request);  // takes everything
LltmChoice lltm_fused(const LltmRequest& request);   // takes what is aligned

}  // namespace narrows::gpu
