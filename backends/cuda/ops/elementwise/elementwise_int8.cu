// SPDX-License-Identifier: Apache-2.0
// elementwise_int8.cu -- the functions of i8, u8 and bool.
#include "elementwise_int.h"

namespace narrows::gpu {
namespace {
// Of bool any byte but 0 is true; what is stored is 0 or 1.
const FunctionRow kBoolRows[] = {
    {NW_EW_LOGICAL_NOT, kernels<LogicalNot, bool, uint8_t, uint8_t>()},
    {NW_EW_BITWISE_NOT, kernels<LogicalNot, bool, uint8_t, uint8_t>()},
    {NW_EW_EQ, kernels<LogicalEqual, bool, uint8_t, uint8_t>()},
    {NW_EW_NE, kernels<LogicalXor, bool, uint8_t, uint8_t>()},
    {NW_EW_LOGICAL_AND, kernels<LogicalAnd, bool, uint8_t, uint8_t>()},
    {NW_EW_LOGICAL_OR, kernels<LogicalOr, bool, uint8_t, uint8_t>()},
    {NW_EW_LOGICAL_XOR, kernels<LogicalXor, bool, uint8_t, uint8_t>()},
    {NW_EW_BITWISE_AND, kernels<LogicalAnd, bool, uint8_t, uint8_t>()},
    {NW_EW_BITWISE_OR, kernels<LogicalOr, bool, uint8_t, uint8_t>()},
    {NW_EW_BITWISE_XOR, kernels<LogicalXor, bool, uint8_t, uint8_t>()},
    {NW_EW_WHERE, kernels<Where, bool, unsigned char, uint8_t>()},
};
}  // namespace

const FunctionTable kFunctionsI8 = table_of(kSignRows<int8_t>);
const FunctionTable kFunctionsU8 = table_of(kUnsignedRows<uint8_t>);
const FunctionTable kFunctionsBool = table_of(kBoolRows);
}  // namespace narrows::gpu
