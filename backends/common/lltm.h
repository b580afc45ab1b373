// SPDX-License-Identifier: Apache-2.0
// lltm.h -- what lltm and its gradients read of a signature. Step 5 of a tensor's path.
#pragma once

#include "float_dtype.h"

namespace narrows::common {

// Strides in elements of a (rows, columns) tensor; 0 for one without elements, whose address may be NULL.
struct Strides2 {
  int64_t row = 0, column = 0;
};
inline Strides2 strides2(const nw_tensor_sig& t) {
  if (!has_elements(t)) return {};
  return {t.ndim == 2 ? t.strides[0] : 0, t.ndim > 0 ? t.strides[t.ndim - 1] : 0};
}

struct LltmSizes {
  Dtype dtype;
  int64_t batch, features, state;
};

}  // namespace narrows::common
