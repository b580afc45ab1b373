// SPDX-License-Identifier: Apache-2.0
// elementwise_bf16.cu -- the functions of bf16.
#include "elementwise_float.h"

namespace narrows::gpu {
const FunctionTable kFunctionsBf16 = float_table<bf16>();
}
