/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file ops.h
 * @brief The params of the built-in ops.
 *
 * Params are plain structs without pointers or padding. 0 is the neutral value of every field, so a
 * caller sets only what differs:
 *
 * @code{.c}
 * nw_conv1d_params params = {0};
 * params.pad_left = 2;
 * call.op = "conv1d";
 * call.params = &params;
 * call.params_size = sizeof params;
 * @endcode
 * This is step 1 of a tensor's path in docs/design.md.
 * docs/ops.md has formulas, gradients, shapes, dtypes and special values. The host checks all of it
 * once for every backend. A `_backward` op takes the params of its forward op.
 *
 * Fields are only appended. Numbers never change.
 */
#ifndef NARROWS_OPS_H
#define NARROWS_OPS_H

#include <stdint.h>

/**
 * @defgroup op_params Params of the built-in ops
 *
 * `lltm` and `lltm_backward` have no params. `lltm` is the recurrent cell of PyTorch's C++
 * extension tutorial. B is the batch, F the number of features, S the size of the state:
 *
 * - Inputs: `input` (B, F); `weights` (3S, S + F); `bias` (3S) or (1, 3S); `old_h` (B, S);
 *   `old_cell` (B, S).
 * - Outputs: `new_h` (B, S); `new_cell` (B, S); `gates` (B, 3S). Beside f16 and bf16, `gates` is
 *   f32. When not training, `gates` is NULL.
 * @{
 */

/** nw_conv1d_params.padding_mode: the padding is zeros. */
#define NW_PADDING_ZEROS 0

/**
 * Params of `conv1d` and `conv1d_backward`: cross-correlation as in torch and ONNX.
 *
 * N is the batch, C and O are input and output channels, L and T input and output lengths, and K is
 * the number of taps:
 *
 * - Inputs: `x` (N, C, L); `w` (O, C/groups, K); `bias` (O), which may be absent.
 * - Output: `y` (N, O, T), where
 *   `T = floor((L + pad_left + pad_right - dilation*(K-1) - 1) / stride) + 1`.
 * - Unbatched: `x` (C, L), `w` (O, C/groups, K), `y` (O, T).
 * - One signal: `x` (L), `w` (K), `y` (T).
 */
typedef struct nw_conv1d_params {
  /** Elements of x from one output to the next. At least 0; 0 is read as 1. */
  int64_t stride;
  /** Elements of x from one tap to the next. At least 0; 0 is read as 1. */
  int64_t dilation;
  /** Groups of channels. Divides C and O. 0 is read as 1. */
  int64_t groups;
  /** Elements put before x. At least 0. */
  int64_t pad_left;
  /** Elements put after x. At least 0. */
  int64_t pad_right;
  /** #NW_PADDING_ZEROS. */
  int64_t padding_mode;
} nw_conv1d_params;

/**
 * Params of `elementwise` and `elementwise_backward`: `out = function(a, b, c)`.
 *
 * Operands are broadcast as in NumPy. The inputs are a; then b and c, if the function has them. If
 * b or c is absent, the number in `b_...` or `c_...` stands for it.
 *
 * Fields that a call does not read must be 0, except `alpha`.
 */
typedef struct nw_elementwise_params {
  /** The function: NW_EW_NEG and so on. 0 is invalid. */
  int32_t function;
  /** For #NW_EW_CAST the dtype of the output: NW_DTYPE_FLOAT32 and so on. Otherwise 0. */
  int32_t out_dtype;
  /** The alpha of #NW_EW_ELU. No other function reads it. */
  double alpha;
  /** Stands for an absent b if the operands are floating-point. */
  double b_real;
  /** Stands for an absent b if the operands are integers or bool. */
  int64_t b_int;
  /** Stands for an absent c if the operands are floating-point. */
  double c_real;
  /** Stands for an absent c if the operands are integers or bool. */
  int64_t c_int;
} nw_elementwise_params;

/**
 * Params of `lltm_sequence` and `lltm_sequence_backward`: `lltm` over a whole sequence.
 *
 * T is the number of steps. Sequences are (T, B, ...), or (B, T, ...) with `batch_first`:
 *
 * - Inputs: `input` (T, B, F); `weights` (3S, S + F); `bias` (3S) or (1, 3S), which may be absent;
 *   `old_h` and `old_cell` (B, S); `lengths` (B) of i32, which may be absent.
 * - Outputs: `h` (T, B, S), after every step; `new_h` and `new_cell` (B, S), after the last one;
 *   `cells` (T, B, S) and `gates` (T, B, 3S), for backward only. Beside f16 and bf16, `gates` is
 *   f32.
 */
typedef struct nw_lltm_sequence_params {
  /** 0: sequences are (T, B, ...). 1: they are (B, T, ...). */
  int64_t batch_first;
  /** 0: step 0 comes first. 1: the last step of each sequence comes first, and step 0 last. */
  int64_t reverse;
  /**
   * 0: `cells` and `gates` are saved for backward. 1: backward computes them again. They have no
   * steps then: the first extent of both is 0.
   */
  int64_t recompute;
} nw_lltm_sequence_params;

/** @} */

/**
 * @defgroup dtypes Dtypes by number
 *
 * How a field of params names a dtype.
 * @{
 */

/** 32-bit floating point. */
#define NW_DTYPE_FLOAT32 1
/** 64-bit floating point. */
#define NW_DTYPE_FLOAT64 2
/** 16-bit floating point of IEEE 754. */
#define NW_DTYPE_FLOAT16 3
/** 16-bit floating point with 8 bits of exponent: the upper half of a float32. */
#define NW_DTYPE_BFLOAT16 4
/** 8-bit signed integer. */
#define NW_DTYPE_INT8 5
/** 16-bit signed integer. */
#define NW_DTYPE_INT16 6
/** 32-bit signed integer. */
#define NW_DTYPE_INT32 7
/** 64-bit signed integer. */
#define NW_DTYPE_INT64 8
/** 8-bit unsigned integer. */
#define NW_DTYPE_UINT8 9
/** 16-bit unsigned integer. */
#define NW_DTYPE_UINT16 10
/** 32-bit unsigned integer. */
#define NW_DTYPE_UINT32 11
/** 64-bit unsigned integer. */
#define NW_DTYPE_UINT64 12
/** Boolean: one byte. 0 is false, any other byte is true. Ops write 0 or 1. */
#define NW_DTYPE_BOOL 13

/** @} */

/**
 * @defgroup elementwise_functions Functions of elementwise
 *
 * The numbers for nw_elementwise_params.function. 0 is invalid. docs/ops.md has the dtypes, the
 * gradients and the special values of each.
 * @{
 */

/** @name Unary functions */
/** @{ */

/** `-a`. */
#define NW_EW_NEG 1
/** `|a|`. */
#define NW_EW_ABS 2
/** -1, 0 or 1. */
#define NW_EW_SIGN 3
/** `a*a`. */
#define NW_EW_SQUARE 4
/** `sqrt(a)`. */
#define NW_EW_SQRT 5
/** `1/sqrt(a)`. */
#define NW_EW_RSQRT 6
/** The cube root of a. */
#define NW_EW_CBRT 7
/** `e^a`. */
#define NW_EW_EXP 8
/** `2^a`. */
#define NW_EW_EXP2 9
/** `e^a - 1`. */
#define NW_EW_EXPM1 10
/** `ln(a)`. */
#define NW_EW_LOG 11
/** `log2(a)`. */
#define NW_EW_LOG2 12
/** `log10(a)`. */
#define NW_EW_LOG10 13
/** `ln(1 + a)`. */
#define NW_EW_LOG1P 14
/** `sin(a)`. */
#define NW_EW_SIN 15
/** `cos(a)`. */
#define NW_EW_COS 16
/** `tan(a)`. */
#define NW_EW_TAN 17
/** `arcsin(a)`. */
#define NW_EW_ASIN 18
/** `arccos(a)`. */
#define NW_EW_ACOS 19
/** `arctan(a)`. */
#define NW_EW_ATAN 20
/** `sinh(a)`. */
#define NW_EW_SINH 21
/** `cosh(a)`. */
#define NW_EW_COSH 22
/** `tanh(a)`. */
#define NW_EW_TANH 23
/** `arsinh(a)`. */
#define NW_EW_ASINH 24
/** `arcosh(a)`. */
#define NW_EW_ACOSH 25
/** `artanh(a)`. */
#define NW_EW_ATANH 26
/** `1/(1 + e^-a)`. */
#define NW_EW_SIGMOID 27
/** `a > 0 ? a : 0`. */
#define NW_EW_RELU 28
/** `a > 0 ? a : alpha*expm1(a)`. */
#define NW_EW_ELU 29
/** `a*(1 + erf(a/sqrt(2)))/2`. */
#define NW_EW_GELU 30
/** `a*(1 + tanh(sqrt(2/pi)*(a + 0.044715*a^3)))/2`. */
#define NW_EW_GELU_TANH 31
/** `a*sigmoid(a)`. */
#define NW_EW_SILU 32
/** `ln(1 + e^a)`. */
#define NW_EW_SOFTPLUS 33
/** `erf(a)`. */
#define NW_EW_ERF 34
/** `1 - erf(a)`. */
#define NW_EW_ERFC 35
/** The largest integer <= a. */
#define NW_EW_FLOOR 36
/** The smallest integer >= a. */
#define NW_EW_CEIL 37
/** The nearest integer. Half goes to even. */
#define NW_EW_ROUND 38
/** a rounded towards 0. */
#define NW_EW_TRUNC 39
/** `1/a`. */
#define NW_EW_RECIPROCAL 40
/** `a == 0`, as a bool. */
#define NW_EW_LOGICAL_NOT 41
/** All bits of a inverted. For bool: not a. */
#define NW_EW_BITWISE_NOT 42
/** Whether a is NaN, as a bool. */
#define NW_EW_ISNAN 43
/** Whether a is infinite, as a bool. */
#define NW_EW_ISINF 44
/** Whether a is neither infinite nor NaN, as a bool. */
#define NW_EW_ISFINITE 45
/** a in the dtype `out_dtype`. The cast saturates. NaN to an integer is 0. */
#define NW_EW_CAST 46

/** @} */
/** @name Binary functions */
/** @{ */

/** `a + b`. */
#define NW_EW_ADD 47
/** `a - b`. */
#define NW_EW_SUB 48
/** `a*b`. */
#define NW_EW_MUL 49
/** `a/b`. Integers truncate; an integer by zero is 0. */
#define NW_EW_DIV 50
/** `a^b`. */
#define NW_EW_POW 51
/** The angle of the point x = b, y = a. */
#define NW_EW_ATAN2 52
/** `sqrt(a*a + b*b)`, without overflow. */
#define NW_EW_HYPOT 53
/** The larger of a and b. NaN if either is NaN. */
#define NW_EW_MAXIMUM 54
/** The smaller of a and b. NaN if either is NaN. */
#define NW_EW_MINIMUM 55
/** `a - b*trunc(a/b)`. It has the sign of a. */
#define NW_EW_FMOD 56
/** `a - b*floor(a/b)`. It has the sign of b. */
#define NW_EW_REMAINDER 57
/** `|a|` with the sign of b. */
#define NW_EW_COPYSIGN 58
/** `ln(e^a + e^b)`. */
#define NW_EW_LOGADDEXP 59
/** `a == b`, as a bool. */
#define NW_EW_EQ 60
/** `a != b`, as a bool. */
#define NW_EW_NE 61
/** `a < b`, as a bool. */
#define NW_EW_LT 62
/** `a <= b`, as a bool. */
#define NW_EW_LE 63
/** `a > b`, as a bool. */
#define NW_EW_GT 64
/** `a >= b`, as a bool. */
#define NW_EW_GE 65
/** Whether both a and b are not 0, as a bool. */
#define NW_EW_LOGICAL_AND 66
/** Whether a or b is not 0, as a bool. */
#define NW_EW_LOGICAL_OR 67
/** Whether exactly one of a and b is not 0, as a bool. */
#define NW_EW_LOGICAL_XOR 68
/** `a & b`. */
#define NW_EW_BITWISE_AND 69
/** `a | b`. */
#define NW_EW_BITWISE_OR 70
/** `a ^ b`. */
#define NW_EW_BITWISE_XOR 71
/** `a << b`. 0 if b is the width of a or more, or less than 0. */
#define NW_EW_BITWISE_LEFT_SHIFT 72
/** `a >> b`. If b is the width of a or more, or less than 0: 0, or -1 if a is negative. */
#define NW_EW_BITWISE_RIGHT_SHIFT 73

/** @} */
/** @name Ternary functions */
/** @{ */

/** `a*b + c`, rounded once. */
#define NW_EW_FMA 74
/** `a ? b : c`. */
#define NW_EW_WHERE 75
/** `a` limited to [b, c]. */
#define NW_EW_CLAMP 76
/** `sin(pi*a)/(pi*a)`; 1 at 0. */
#define NW_EW_SINC 77

/** @} */
/** @} */

#endif
