// lltm.h -- what lltm and its gradients read of a signature. Step 5 of a tensor's path.
#pragma once

#include "float_dtype.h"

namespace narrows::common {

// Strides in elements of a (rows, columns) tensor.
struct Strides2 {
  int64_t row = 0, column = 0;
};
inline Strides2 strides2(const nw_tensor_sig& t) {
  return {t.ndim == 2 ? t.strides[0] : 0, t.ndim > 0 ? t.strides[t.ndim - 1] : 0};
}

struct LltmSizes {
  Dtype dtype;
  int64_t batch, features, state;
};

}  // namespace narrows::common
