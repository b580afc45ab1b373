// SPDX-License-Identifier: Apache-2.0
// lltm_bias.h -- d_bias beside products that do not make it, as its own sums.
#pragma once

#include "lltm_backward.h"

namespace narrows::gpu {

// The sums over the batch of the gates' gradients in f32; d_bias is f32, f16 or bf16. Immutable.
class LltmBiasSums {
 public:
  // Takes its part of the workspace at *workspace_size, a multiple of 256 bytes, which grows.
  LltmBiasSums(const LltmSizes& sizes, uint64_t* workspace_size);
  void launch(const Matrix& gate_grads, Matrix d_bias, char* workspace, gpuStream_t stream) const;

 private:
  LltmSizes sizes_;
  int64_t gates_, slice_rows_, slices_;
  uint64_t parts_;
};

}  // namespace narrows::gpu
