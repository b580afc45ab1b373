// SPDX-License-Identifier: Apache-2.0
// elementwise_int32.cu -- the functions of i32 and u32.
#include "elementwise_int.h"

namespace narrows::gpu {
const FunctionTable kFunctionsI32 = table_of(kSignRows<int32_t>);
const FunctionTable kFunctionsU32 = table_of(kUnsignedRows<uint32_t>);
}  // namespace narrows::gpu
