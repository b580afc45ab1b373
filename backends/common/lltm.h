// SPDX-License-Identifier: Apache-2.0
// lltm.h -- what lltm and its gradients read of a signature. Step 5 of a tensor's path.
#pragma once

#include "float_dtype.h"
#include "tensors.h"

namespace narrows::common {

struct LltmSizes {
  Dtype dtype;
  int64_t batch, features, state;
};

}  // namespace narrows::common
