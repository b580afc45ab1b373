// SPDX-License-Identifier: Apache-2.0
// elementwise_f32.cu -- the functions of f32.
#include "elementwise_float.h"

namespace narrows::gpu {
const FunctionTable kFunctionsF32 = float_table<float>();
}
