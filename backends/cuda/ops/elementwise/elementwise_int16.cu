// SPDX-License-Identifier: Apache-2.0
// elementwise_int16.cu -- the functions of i16 and u16.
#include "elementwise_int.h"

namespace narrows::gpu {
const FunctionTable kFunctionsI16 = table_of(kSignRows<int16_t>);
const FunctionTable kFunctionsU16 = table_of(kUnsignedRows<uint16_t>);
}  // namespace narrows::gpu
