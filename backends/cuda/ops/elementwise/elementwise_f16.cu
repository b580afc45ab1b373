// SPDX-License-Identifier: Apache-2.0
// elementwise_f16.cu -- the functions of f16.
#include "elementwise_float.h"

namespace narrows::gpu {
const FunctionTable kFunctionsF16 = float_table<f16>();
}
