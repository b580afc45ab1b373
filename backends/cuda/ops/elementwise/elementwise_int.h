// SPDX-License-Identifier: Apache-2.0
// elementwise_int.h -- the tables of functions for the two integer dtypes of a width.
#pragma once

#include "elementwise_functions.h"
#include "elementwise_loops.h"

namespace narrows::gpu {

// What depends on the sign.
template <class T>
const FunctionRow kSignRows[] = {
    {NW_EW_ABS, kernels<Abs, T, T, T>()},
    {NW_EW_SIGN, kernels<Sign, T, T, T>()},
    {NW_EW_RELU, kernels<Relu, T, T, T>()},
    {NW_EW_DIV, kernels<IntDiv, T, T, T>()},
    {NW_EW_POW, kernels<IntPow, T, T, T>()},
    {NW_EW_MAXIMUM, kernels<Maximum, T, T, T>()},
    {NW_EW_MINIMUM, kernels<Minimum, T, T, T>()},
    {NW_EW_FMOD, kernels<IntFmod, T, T, T>()},
    {NW_EW_REMAINDER, kernels<IntRemainder, T, T, T>()},
    {NW_EW_LT, kernels<Less, bool, T, T>()},
    {NW_EW_LE, kernels<LessEqual, bool, T, T>()},
    {NW_EW_BITWISE_RIGHT_SHIFT, kernels<RightShift, T, T, T>()},
    {NW_EW_CLAMP, kernels<Clamp, T, T, T>()},
};

// The unsigned dtype: those, and what needs the bits alone.
template <class T>
const FunctionRow kUnsignedRows[] = {
    {NW_EW_ABS, kernels<Identity, T, T, T>()},
    {NW_EW_SIGN, kernels<Sign, T, T, T>()},
    {NW_EW_RELU, kernels<Identity, T, T, T>()},
    {NW_EW_DIV, kernels<IntDiv, T, T, T>()},
    {NW_EW_POW, kernels<IntPow, T, T, T>()},
    {NW_EW_MAXIMUM, kernels<Maximum, T, T, T>()},
    {NW_EW_MINIMUM, kernels<Minimum, T, T, T>()},
    {NW_EW_FMOD, kernels<IntFmod, T, T, T>()},
    {NW_EW_REMAINDER, kernels<IntFmod, T, T, T>()},
    {NW_EW_LT, kernels<Less, bool, T, T>()},
    {NW_EW_LE, kernels<LessEqual, bool, T, T>()},
    {NW_EW_BITWISE_RIGHT_SHIFT, kernels<RightShift, T, T, T>()},
    {NW_EW_CLAMP, kernels<Clamp, T, T, T>()},
    {NW_EW_NEG, kernels<Neg, T, T, T>()},
    {NW_EW_SQUARE, kernels<Square, T, T, T>()},
    {NW_EW_FLOOR, kernels<Identity, T, T, T>()},
    {NW_EW_CEIL, kernels<Identity, T, T, T>()},
    {NW_EW_ROUND, kernels<Identity, T, T, T>()},
    {NW_EW_TRUNC, kernels<Identity, T, T, T>()},
    {NW_EW_LOGICAL_NOT, kernels<LogicalNot, bool, T, T>()},
    {NW_EW_BITWISE_NOT, kernels<BitwiseNot, T, T, T>()},
    {NW_EW_ISNAN, kernels<Never, bool, T, T>()},
    {NW_EW_ISINF, kernels<Never, bool, T, T>()},
    {NW_EW_ISFINITE, kernels<Always, bool, T, T>()},
    {NW_EW_ADD, kernels<Add, T, T, T>()},
    {NW_EW_SUB, kernels<Sub, T, T, T>()},
    {NW_EW_MUL, kernels<Mul, T, T, T>()},
    {NW_EW_EQ, kernels<Equal, bool, T, T>()},
    {NW_EW_NE, kernels<NotEqual, bool, T, T>()},
    {NW_EW_LOGICAL_AND, kernels<LogicalAnd, bool, T, T>()},
    {NW_EW_LOGICAL_OR, kernels<LogicalOr, bool, T, T>()},
    {NW_EW_LOGICAL_XOR, kernels<LogicalXor, bool, T, T>()},
    {NW_EW_BITWISE_AND, kernels<BitwiseAnd, T, T, T>()},
    {NW_EW_BITWISE_OR, kernels<BitwiseOr, T, T, T>()},
    {NW_EW_BITWISE_XOR, kernels<BitwiseXor, T, T, T>()},
    {NW_EW_BITWISE_LEFT_SHIFT, kernels<LeftShift, T, T, T>()},
    {NW_EW_FMA, kernels<Fma, T, T, T>()},
    {NW_EW_COPYSIGN, kernels<CopySign, T, T, T>()},
    {NW_EW_WHERE, kernels<Where, T, unsigned char, T>()},
};

template <size_t N>
constexpr FunctionTable table_of(const FunctionRow (&rows)[N]) {
  return {rows, static_cast<int>(N)};
}

}  // namespace narrows::gpu
