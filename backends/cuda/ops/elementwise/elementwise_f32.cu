// SPDX-License-Identifier: Apache-2.0
// elementwise_f32.cu -- the functions of f32. Step 5 of a tensor's path.
#include "elementwise_float.h"

namespace narrows::gpu {
const FunctionTable kFunctionsF32 = float_table<float>();
}
