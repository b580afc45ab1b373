// SPDX-License-Identifier: Apache-2.0
// lltm.h -- what the plans of lltm and its gradients share. The left operand of G = [old_h, input] * weights^T + bias is never
// built: the product is a sum of two, over the two column ranges of weights.
#pragma once

#include "common/lltm.h"
#include "ops/gemm/gemm.h"

namespace narrows::vulkan {

// Whether a matrix can be read `group` elements at a time along its rows, from column `first` on.
inline bool reads_rows_together(const nw_tensor_sig& t, int64_t first, int64_t group = kGroup) {
  const Strides2 s = strides2(t);
  return s.column == 1 && (s.row % group == 0 || t.shape[0] == 1) && first % group == 0 &&
         alignment(t) >= std::min<int64_t>(16, group * (t.dtype.bits / 8));
}

}  // namespace narrows::vulkan
