// SPDX-License-Identifier: Apache-2.0
// elementwise_functions.glsl -- the functions of elementwise over floating point, of one element; elementwise_integers.glsl has
// them over integers and bool under the same names. The includer defines the specialization constant `const int FUNCTION`
// (NW_EW_*) and includes math_f32.glsl (f32, f16, bf16) or math_f64.glsl before. One case of a switch is kept; the code is inlined
// at each call, so of a pipeline one place is kept that calls apply().
//   apply(a, b, c)  what has the operands' dtype; an absent operand is not read; of elu, b is alpha
//   holds(a, b)     what gives bool
// where, copysign and cast are not here: they work on bits.
#include "elementwise_numbers.glsl"

precise REAL add_real(REAL a, REAL b) { return a + b; }
precise REAL mul_real(REAL a, REAL b) { return a * b; }

REAL apply_unary(REAL a) {
  switch (FUNCTION) {
    case NW_EW_NEG: return negated(a);
    case NW_EW_ABS: return size(a);
    case NW_EW_SIGN: return sign_of(a);
    case NW_EW_SQUARE: return mul_real(a, a);
    case NW_EW_RELU: return is_nan(a) || order_of(a) > SBITS(0) ? a : REAL(0);
    case NW_EW_FLOOR: return floor_real(a);
    case NW_EW_CEIL: return ceil_real(a);
    case NW_EW_ROUND: return round_real(a);
    case NW_EW_TRUNC: return trunc_real(a);
    case NW_EW_SQRT: return sqrt_real(a);
    case NW_EW_RSQRT: return rsqrt_real(a);
    case NW_EW_CBRT: return cbrt_real(a);
    case NW_EW_RECIPROCAL: return quotient(REAL(1), a);
    case NW_EW_EXP: return exp_real(a);
    case NW_EW_EXP2: return exp2_real(a);
    case NW_EW_EXPM1: return expm1_real(a);
    case NW_EW_SINH: return sinh_real(a);
    case NW_EW_COSH: return cosh_real(a);
    case NW_EW_TANH: return tanh_real(a);
    case NW_EW_SIGMOID: return sigmoid_real(a);
    case NW_EW_GELU_TANH: return gelu_tanh_real(a);
    case NW_EW_SILU: return silu_real(a);
    case NW_EW_SOFTPLUS: return softplus_real(a);
    case NW_EW_LOG: return log_real(a);
    case NW_EW_LOG2: return log2_real(a);
    case NW_EW_LOG10: return log10_real(a);
    case NW_EW_LOG1P: return log1p_real(a);
    case NW_EW_ASINH: return asinh_real(a);
    case NW_EW_ACOSH: return acosh_real(a);
    case NW_EW_ATANH: return atanh_real(a);
    case NW_EW_SIN: return sin_real(a);
    case NW_EW_COS: return cos_real(a);
    case NW_EW_TAN: return tan_real(a);
    case NW_EW_ASIN: return asin_real(a);
    case NW_EW_ACOS: return acos_real(a);
    case NW_EW_ATAN: return atan_real(a);
    case NW_EW_ERF: return erf_real(a);
    case NW_EW_ERFC: return erfc_real(a);
    case NW_EW_SINC: return sinc_real(a);
    default: return a;
  }
}

REAL apply(REAL a, REAL b, REAL c) {
  switch (FUNCTION) {
    case NW_EW_ADD: return add_real(a, b);
    case NW_EW_SUB: return add_real(a, negated(b));
    case NW_EW_MUL: return mul_real(a, b);
    case NW_EW_MAXIMUM: return larger(a, b);
    case NW_EW_MINIMUM: return smaller(a, b);
    case NW_EW_CLAMP: return smaller(larger(a, b), c);
    case NW_EW_DIV: return quotient(a, b);
    case NW_EW_FMA: return fma_stored(a, b, c);
    case NW_EW_HYPOT: return hypot_real(a, b);
    case NW_EW_FMOD: return fmod_real(a, b);
    case NW_EW_REMAINDER: return remainder_real(a, b);
    case NW_EW_ELU: return elu_real(a, b);
    case NW_EW_LOGADDEXP: return logaddexp_real(a, b);
    case NW_EW_POW: return pow_real(a, b);
    case NW_EW_ATAN2: return atan2_real(a, b);
    case NW_EW_GELU: return gelu_real(a);
    default: return apply_unary(a);
  }
}

bool holds(REAL a, REAL b) {
  switch (FUNCTION) {
    case NW_EW_LOGICAL_NOT: return is_zero(a);
    case NW_EW_ISNAN: return is_nan(a);
    case NW_EW_ISINF: return is_inf(a);
    case NW_EW_ISFINITE: return is_finite(a);
    case NW_EW_EQ: return equal(a, b);
    case NW_EW_NE: return !equal(a, b);
    case NW_EW_LT: return less(a, b);
    case NW_EW_LE: return less_equal(a, b);
    case NW_EW_GT: return less(b, a);
    case NW_EW_GE: return less_equal(b, a);
    case NW_EW_LOGICAL_AND: return !is_zero(a) && !is_zero(b);
    case NW_EW_LOGICAL_OR: return !is_zero(a) || !is_zero(b);
    case NW_EW_LOGICAL_XOR: return is_zero(a) != is_zero(b);
    default: return false;
  }
}
