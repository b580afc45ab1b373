/* ops.h -- the params of the built-in ops: plain structs without pointers or padding, in which 0 is the neutral value.
 * Step 1 of a tensor's path. docs/ops.md has formulas, shapes, dtypes and special values; the host checks all of it once for
 * every backend. A `_backward` op takes the params of its forward op. Fields are only appended; numbers never change. */
#ifndef NARROWS_OPS_H
#define NARROWS_OPS_H

#include <stdint.h>

/* conv1d, conv1d_backward: cross-correlation as in torch and ONNX.
 * inputs x (N,C,L) | (C,L) | (L); w (O,C/groups,K) | (O,C/groups,K) | (K); bias (O), may be absent
 * output y (N,O,T) | (O,T) | (T) with T = floor((L + pad_left + pad_right - dilation*(K-1) - 1) / stride) + 1 */
#define NW_PADDING_ZEROS 0
typedef struct nw_conv1d_params {
  int64_t stride;       /* elements of x between outputs; 0 is read as 1 */
  int64_t dilation;     /* elements of x between taps; 0 is read as 1 */
  int64_t groups;       /* divides C and O; 0 is read as 1 */
  int64_t pad_left;     /* elements put before x; >= 0 */
  int64_t pad_right;    /* elements put after x; >= 0 */
  int64_t padding_mode; /* NW_PADDING_* */
} nw_conv1d_params;

/* elementwise, elementwise_backward: out = function(a, b, c), broadcast as in NumPy.
 * inputs a; b, c as the function has operands. An absent b or c of a function that has one is the number in b_* or c_*. */
typedef struct nw_elementwise_params {
  int32_t function;  /* NW_EW_* */
  int32_t out_dtype; /* of cast: NW_DTYPE_*; else 0 */
  double alpha;      /* of elu; read by no other function */
  double b_real;     /* b where it is absent and a is floating point */
  int64_t b_int;     /* b where it is absent and a is an integer or bool */
  double c_real;     /* c likewise */
  int64_t c_int;
} nw_elementwise_params;

/* lltm, lltm_backward: no params. The recurrent cell of PyTorch's C++ extension tutorial.
 * inputs input (B,F); weights (3S,S+F); bias (3S) | (1,3S); old_h (B,S); old_cell (B,S)
 * outputs new_h (B,S); new_cell (B,S); gates (B,3S), f32 for f16 and bf16, NULL when not training */

/* dtypes by number, for params. */
#define NW_DTYPE_FLOAT32 1
#define NW_DTYPE_FLOAT64 2
#define NW_DTYPE_FLOAT16 3
#define NW_DTYPE_BFLOAT16 4
#define NW_DTYPE_INT8 5
#define NW_DTYPE_INT16 6
#define NW_DTYPE_INT32 7
#define NW_DTYPE_INT64 8
#define NW_DTYPE_UINT8 9
#define NW_DTYPE_UINT16 10
#define NW_DTYPE_UINT32 11
#define NW_DTYPE_UINT64 12
#define NW_DTYPE_BOOL 13

/* Functions of elementwise. 0 is invalid. */

/* Unary functions. */
#define NW_EW_NEG 1
#define NW_EW_ABS 2
#define NW_EW_SIGN 3
#define NW_EW_SQUARE 4 /* a*a */
#define NW_EW_SQRT 5
#define NW_EW_RSQRT 6 /* 1/sqrt(a) */
#define NW_EW_CBRT 7
#define NW_EW_EXP 8
#define NW_EW_EXP2 9
#define NW_EW_EXPM1 10
#define NW_EW_LOG 11
#define NW_EW_LOG2 12
#define NW_EW_LOG10 13
#define NW_EW_LOG1P 14
#define NW_EW_SIN 15
#define NW_EW_COS 16
#define NW_EW_TAN 17
#define NW_EW_ASIN 18
#define NW_EW_ACOS 19
#define NW_EW_ATAN 20
#define NW_EW_SINH 21
#define NW_EW_COSH 22
#define NW_EW_TANH 23
#define NW_EW_ASINH 24
#define NW_EW_ACOSH 25
#define NW_EW_ATANH 26
#define NW_EW_SIGMOID 27
#define NW_EW_RELU 28
#define NW_EW_ELU 29 /* a > 0 ? a : alpha*expm1(a) */
#define NW_EW_GELU 30 /* a*(1+erf(a/sqrt(2)))/2 */
#define NW_EW_GELU_TANH 31 /* a*(1+tanh(sqrt(2/pi)*(a+0.044715*a^3)))/2 */
#define NW_EW_SILU 32 /* a*sigmoid(a) */
#define NW_EW_SOFTPLUS 33 /* log(1+exp(a)) */
#define NW_EW_ERF 34
#define NW_EW_ERFC 35
#define NW_EW_FLOOR 36
#define NW_EW_CEIL 37
#define NW_EW_ROUND 38 /* half to even */
#define NW_EW_TRUNC 39
#define NW_EW_RECIPROCAL 40
#define NW_EW_LOGICAL_NOT 41
#define NW_EW_BITWISE_NOT 42
#define NW_EW_ISNAN 43
#define NW_EW_ISINF 44
#define NW_EW_ISFINITE 45
#define NW_EW_CAST 46 /* saturates; NaN to an integer is 0 */
/* Binary functions. */
#define NW_EW_ADD 47
#define NW_EW_SUB 48
#define NW_EW_MUL 49
#define NW_EW_DIV 50 /* integers truncate; by zero: 0 */
#define NW_EW_POW 51
#define NW_EW_ATAN2 52
#define NW_EW_HYPOT 53
#define NW_EW_MAXIMUM 54
#define NW_EW_MINIMUM 55
#define NW_EW_FMOD 56 /* sign of a */
#define NW_EW_REMAINDER 57 /* sign of b */
#define NW_EW_COPYSIGN 58
#define NW_EW_LOGADDEXP 59 /* log(exp(a)+exp(b)) */
#define NW_EW_EQ 60
#define NW_EW_NE 61
#define NW_EW_LT 62
#define NW_EW_LE 63
#define NW_EW_GT 64
#define NW_EW_GE 65
#define NW_EW_LOGICAL_AND 66
#define NW_EW_LOGICAL_OR 67
#define NW_EW_LOGICAL_XOR 68
#define NW_EW_BITWISE_AND 69
#define NW_EW_BITWISE_OR 70
#define NW_EW_BITWISE_XOR 71
#define NW_EW_BITWISE_LEFT_SHIFT 72  /* by the width or more, or by less than 0: 0 */
#define NW_EW_BITWISE_RIGHT_SHIFT 73  /* likewise; of a signed a: its sign, -1 or 0 */
/* Ternary functions: a*b+c; a ? b : c; a limited to [b, c]. */
#define NW_EW_FMA 74
#define NW_EW_WHERE 75
#define NW_EW_CLAMP 76

#endif
