// SPDX-License-Identifier: Apache-2.0
// lltm_library.h -- the variants of lltm and lltm_backward in f16 and bf16 whose products are the vendor's library's.
#pragma once

#include "lltm_backward.h"
#include "ops/gemm/gemm_library.h"

namespace narrows::gpu {

// From how many multiply-adds on (of one of backward's two products) the library is faster than the kernels here, measured on an
// H200: what it needs around its products takes some microseconds.
constexpr int64_t kLeastForLibrary = int64_t{1} << 28;

// Of what the library's products go through and the kernels here do not: forward the gates in f32, backward the products' own
// workspace. No call shall run out of memory for speed.
constexpr int64_t kMostForLibrary = int64_t{1} << 31;  // bytes

// Whether the library is asked at all, by dtype and sizes alone. One that may give other bits has to be forced.
bool is_for_library(const LltmSizes& sizes, bool forced);
// What a plan's traits are, beside others, if its products are the library's.
inline constexpr uint32_t kLibraryTraits = blaslt::kGivesSameBits ? 0 : NW_PLAN_NONDETERMINISTIC;
// Whether it can read or write a tensor of 16-bit elements.
bool has_library_rows(const nw_tensor_sig& tensor);

LltmChoice lltm_library(const LltmRequest& request);

// ---- backward ----

// Matrix units take 16 bits, and the gradient of a gate has 24: it is split into the sum of two elements (lltm_split.h). With
// G = [first parts; second parts], (2 * batch, 3 * state), and X = [old_h, input], [d_old_h, d_input] are both halves of G *
// weights, added, and d_weights = G^T * [X; X]: a product each. The scale of f16's gradients is known on the device alone; a
// library that does not read factors there leaves d_weights in f32, for a kernel to scale. d_bias is summed up beside it
// (lltm_bias.h).
struct LltmLibraryGradients {
  Matrix gate_grads;     // f32, without gaps
  const float* largest;  // the largest finite magnitude of each of num_largest parts of them
  int64_t num_largest;
  Matrix input, weights, old_h;
  Matrix d_input, d_weights, d_old_h;  // only what is wanted is read
  char* workspace;
};

// Of d_weights in f32, where it is left so; else 0.
inline int64_t library_sums_size(const LltmSizes& sizes) {
  return blaslt::kReadsFactorsOnDevice || sizes.dtype == Dtype::bf16 ? 0 : 12 * sizes.state * (sizes.state + sizes.features);
}

// A planned call's part after the gradient of the gates. Immutable.
class LltmLibraryProducts {
 public:
  struct Wanted {
    bool d_old_h, d_input;
  };
  // The pitches are those of weights and, 0 if it is unwanted, of d_weights. nullptr: the library declines, and *reason says why.
  static std::unique_ptr<const LltmLibraryProducts> plan(const Device& device, const LltmSizes& sizes, Wanted wanted,
                                                         int64_t weights_pitch, int64_t d_weights_pitch, std::string* reason);
  virtual ~LltmLibraryProducts() = default;
  virtual void launch(const LltmLibraryGradients& tensors, gpuStream_t stream) const = 0;
  uint64_t workspace_size = 0;
};

}  // namespace narrows::gpu
