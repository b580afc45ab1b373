// SPDX-License-Identifier: Apache-2.0
// elementwise_float.h -- the table of functions for a floating-point dtype.
#pragma once

#include "elementwise_functions.h"
#include "elementwise_loops.h"

namespace narrows::gpu {

// elu's alpha takes the place of a second operand.
template <class T>
const FunctionRow kFloatRows[] = {
    {NW_EW_NEG, kernels<Neg, T, T, T>()},
    {NW_EW_ABS, kernels<Abs, T, T, T>()},
    {NW_EW_SIGN, kernels<Sign, T, T, T>()},
    {NW_EW_SQUARE, kernels<Square, T, T, T>()},
    {NW_EW_SQRT, kernels<Sqrt, T, T, T>()},
    {NW_EW_RSQRT, kernels<Rsqrt, T, T, T>()},
    {NW_EW_CBRT, kernels<Cbrt, T, T, T>()},
    {NW_EW_EXP, kernels<Exp, T, T, T>()},
    {NW_EW_EXP2, kernels<Exp2, T, T, T>()},
    {NW_EW_EXPM1, kernels<Expm1, T, T, T>()},
    {NW_EW_LOG, kernels<Log, T, T, T>()},
    {NW_EW_LOG2, kernels<Log2, T, T, T>()},
    {NW_EW_LOG10, kernels<Log10, T, T, T>()},
    {NW_EW_LOG1P, kernels<Log1p, T, T, T>()},
    {NW_EW_SIN, kernels<Sin, T, T, T>()},
    {NW_EW_COS, kernels<Cos, T, T, T>()},
    {NW_EW_TAN, kernels<Tan, T, T, T>()},
    {NW_EW_ASIN, kernels<Asin, T, T, T>()},
    {NW_EW_ACOS, kernels<Acos, T, T, T>()},
    {NW_EW_ATAN, kernels<Atan, T, T, T>()},
    {NW_EW_SINH, kernels<Sinh, T, T, T>()},
    {NW_EW_COSH, kernels<Cosh, T, T, T>()},
    {NW_EW_TANH, kernels<Tanh, T, T, T>()},
    {NW_EW_ASINH, kernels<Asinh, T, T, T>()},
    {NW_EW_ACOSH, kernels<Acosh, T, T, T>()},
    {NW_EW_ATANH, kernels<Atanh, T, T, T>()},
    {NW_EW_SIGMOID, kernels<Sigmoid, T, T, T>()},
    {NW_EW_RELU, kernels<Relu, T, T, T>()},
    {NW_EW_ELU, kernels<Elu, T, T, T>()},
    {NW_EW_GELU, kernels<Gelu, T, T, T>()},
    {NW_EW_GELU_TANH, kernels<GeluTanh, T, T, T>()},
    {NW_EW_SILU, kernels<Silu, T, T, T>()},
    {NW_EW_SOFTPLUS, kernels<Softplus, T, T, T>()},
    {NW_EW_ERF, kernels<Erf, T, T, T>()},
    {NW_EW_ERFC, kernels<Erfc, T, T, T>()},
    {NW_EW_FLOOR, kernels<Floor, T, T, T>()},
    {NW_EW_CEIL, kernels<Ceil, T, T, T>()},
    {NW_EW_ROUND, kernels<Round, T, T, T>()},
    {NW_EW_TRUNC, kernels<Trunc, T, T, T>()},
    {NW_EW_RECIPROCAL, kernels<Reciprocal, T, T, T>()},
    {NW_EW_LOGICAL_NOT, kernels<LogicalNot, bool, T, T>()},
    {NW_EW_ISNAN, kernels<IsNan, bool, T, T>()},
    {NW_EW_ISINF, kernels<IsInf, bool, T, T>()},
    {NW_EW_ISFINITE, kernels<IsFinite, bool, T, T>()},
    {NW_EW_ADD, kernels<Add, T, T, T>()},
    {NW_EW_SUB, kernels<Sub, T, T, T>()},
    {NW_EW_MUL, kernels<Mul, T, T, T>()},
    {NW_EW_DIV, kernels<Div, T, T, T>()},
    {NW_EW_POW, kernels<Pow, T, T, T>()},
    {NW_EW_ATAN2, kernels<Atan2, T, T, T>()},
    {NW_EW_HYPOT, kernels<Hypot, T, T, T>()},
    {NW_EW_MAXIMUM, kernels<Maximum, T, T, T>()},
    {NW_EW_MINIMUM, kernels<Minimum, T, T, T>()},
    {NW_EW_FMOD, kernels<Fmod, T, T, T>()},
    {NW_EW_REMAINDER, kernels<Remainder, T, T, T>()},
    {NW_EW_LOGADDEXP, kernels<Logaddexp, T, T, T>()},
    {NW_EW_EQ, kernels<Equal, bool, T, T>()},
    {NW_EW_NE, kernels<NotEqual, bool, T, T>()},
    {NW_EW_LT, kernels<Less, bool, T, T>()},
    {NW_EW_LE, kernels<LessEqual, bool, T, T>()},
    {NW_EW_LOGICAL_AND, kernels<LogicalAnd, bool, T, T>()},
    {NW_EW_LOGICAL_OR, kernels<LogicalOr, bool, T, T>()},
    {NW_EW_LOGICAL_XOR, kernels<LogicalXor, bool, T, T>()},
    {NW_EW_FMA, kernels<Fma, T, T, T>()},
    {NW_EW_CLAMP, kernels<Clamp, T, T, T>()},
    {NW_EW_SINC, kernels<Sinc, T, T, T>()},
};

template <class T>
constexpr FunctionTable float_table() {
  return {kFloatRows<T>, static_cast<int>(sizeof(kFloatRows<T>) / sizeof(FunctionRow))};
}

}  // namespace narrows::gpu
