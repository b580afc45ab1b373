// elementwise_int8.cu -- the functions of i8, u8 and bool. Step 5 of a tensor's path.
#include "elementwise_int.h"

namespace narrows::gpu {
namespace {
// A bool is a byte of 0 or 1: nearly all that it can do is done as u8.
const FunctionRow kBoolRows[] = {{NW_EW_BITWISE_NOT, kernels<LogicalNot, bool, uint8_t, uint8_t>()}};
}  // namespace

const FunctionTable kFunctionsI8 = table_of(kSignRows<int8_t>);
const FunctionTable kFunctionsU8 = table_of(kUnsignedRows<uint8_t>);
const FunctionTable kFunctionsBool = table_of(kBoolRows);
}  // namespace narrows::gpu
