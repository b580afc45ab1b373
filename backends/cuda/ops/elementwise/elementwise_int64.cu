// SPDX-License-Identifier: Apache-2.0
// elementwise_int64.cu -- the functions of i64 and u64.
#include "elementwise_int.h"

namespace narrows::gpu {
const FunctionTable kFunctionsI64 = table_of(kSignRows<int64_t>);
const FunctionTable kFunctionsU64 = table_of(kUnsignedRows<uint64_t>);
}  // namespace narrows::gpu
