// SPDX-License-Identifier: Apache-2.0
// elementwise_f64.cu -- the functions of f64.
#include "elementwise_float.h"

namespace narrows::gpu {
const FunctionTable kFunctionsF64 = float_table<double>();
}
