// SPDX-License-Identifier: Apache-2.0
// elementwise_integers.glsl -- the functions of elementwise over integers and bool, of one element; see elementwise_functions.glsl.
// The includer defines `const int FUNCTION` and
//   INTEGER   the type in which it computes: int, uint, int64_t or uint64_t. 8 and 16 bits are widened to 32 when loaded; what is
//             stored are the low bits, so that all wraps.
//   UNSIGNED  the unsigned type of the same width
//   T         the operands' dtype; a bool comes as 0 or 1
//   WIDTH     its bits
//   SIGNED    1 or 0
#include "elementwise_numbers.glsl"
#include "integers.glsl"

// Of floating-point numbers as unsigned integers.
INTEGER with_sign(INTEGER size, INTEGER sign) {
  const UNSIGNED mask = UNSIGNED(1) << (WIDTH - 1);
  return INTEGER((UNSIGNED(size) & (mask - UNSIGNED(1))) | (UNSIGNED(sign) & mask));
}

INTEGER apply_unary(INTEGER a) {
  switch (FUNCTION) {
    case NW_EW_NEG: return INTEGER(UNSIGNED(0) - UNSIGNED(a));
    case NW_EW_ABS: return a < INTEGER(0) ? INTEGER(UNSIGNED(0) - UNSIGNED(a)) : a;
    case NW_EW_SIGN: return sign_of(a);
    case NW_EW_SQUARE: return INTEGER(UNSIGNED(a) * UNSIGNED(a));
    case NW_EW_RELU: return a > INTEGER(0) ? a : INTEGER(0);
    case NW_EW_BITWISE_NOT: return T == BOOL ? INTEGER(1) - a : ~a;
    default: return a;  // floor, ceil, round, trunc
  }
}

INTEGER apply(INTEGER a, INTEGER b, INTEGER c) {
  switch (FUNCTION) {
    case NW_EW_ADD: return INTEGER(UNSIGNED(a) + UNSIGNED(b));
    case NW_EW_SUB: return INTEGER(UNSIGNED(a) - UNSIGNED(b));
    case NW_EW_MUL: return INTEGER(UNSIGNED(a) * UNSIGNED(b));
    case NW_EW_DIV: return quotient(a, b);
    case NW_EW_POW: return power(a, b);
    case NW_EW_MAXIMUM: return max(a, b);
    case NW_EW_MINIMUM: return min(a, b);
    case NW_EW_FMOD: return rest_of(a, b);
    case NW_EW_REMAINDER: return remainder(a, b);
    case NW_EW_BITWISE_AND: return a & b;
    case NW_EW_BITWISE_OR: return a | b;
    case NW_EW_BITWISE_XOR: return a ^ b;
    case NW_EW_BITWISE_LEFT_SHIFT: return left_shift(a, b);
    case NW_EW_BITWISE_RIGHT_SHIFT: return right_shift(a, b);
    case NW_EW_FMA: return INTEGER(UNSIGNED(a) * UNSIGNED(b) + UNSIGNED(c));
    case NW_EW_CLAMP: return min(max(a, b), c);
    case NW_EW_COPYSIGN: return with_sign(a, b);
    default: return apply_unary(a);
  }
}

bool holds(INTEGER a, INTEGER b) {
  const INTEGER none = INTEGER(0);
  switch (FUNCTION) {
    case NW_EW_LOGICAL_NOT: return a == none;
    case NW_EW_ISFINITE: return true;
    case NW_EW_EQ: return a == b;
    case NW_EW_NE: return a != b;
    case NW_EW_LT: return a < b;
    case NW_EW_LE: return a <= b;
    case NW_EW_GT: return a > b;
    case NW_EW_GE: return a >= b;
    case NW_EW_LOGICAL_AND: return a != none && b != none;
    case NW_EW_LOGICAL_OR: return a != none || b != none;
    case NW_EW_LOGICAL_XOR: return (a != none) != (b != none);
    default: return false;  // isnan, isinf
  }
}
