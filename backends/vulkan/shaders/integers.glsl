// SPDX-License-Identifier: Apache-2.0
// integers.glsl -- what GLSL leaves undefined of integers, or lacks: quotients and rests, powers, shifts by any number, signs. The
// includer defines INTEGER, UNSIGNED, WIDTH and SIGNED, as elementwise_integers.glsl says.

INTEGER quotient(INTEGER a, INTEGER b) {
  if (b == INTEGER(0)) return INTEGER(0);
#if SIGNED
  if (b == INTEGER(-1)) return INTEGER(UNSIGNED(0) - UNSIGNED(a));  // of the lowest number it wraps
#endif
  return a / b;
}
// GLSL leaves % of negative numbers undefined.
INTEGER rest_of(INTEGER a, INTEGER b) { return b == INTEGER(0) ? INTEGER(0) : a - quotient(a, b) * b; }

INTEGER remainder(INTEGER a, INTEGER b) {
  const INTEGER r = rest_of(a, b);
#if SIGNED
  if (r != INTEGER(0) && (r < INTEGER(0)) != (b < INTEGER(0))) return r + b;
#endif
  return r;
}

INTEGER power(INTEGER a, INTEGER b) {
#if SIGNED
  if (b < INTEGER(0)) {
    if (a == INTEGER(1)) return a;
    return a != INTEGER(-1) ? INTEGER(0) : (b & INTEGER(1)) != INTEGER(0) ? a : INTEGER(1);
  }
#endif
  UNSIGNED result = UNSIGNED(1), base = UNSIGNED(a);
  for (UNSIGNED e = UNSIGNED(b); e != UNSIGNED(0); e >>= 1) {
    if ((e & UNSIGNED(1)) != UNSIGNED(0)) result *= base;
    base *= base;
  }
  return INTEGER(result);
}

// On the unsigned type: a negative b is a large one.
bool is_shift(INTEGER b) { return UNSIGNED(b) < UNSIGNED(WIDTH); }
INTEGER left_shift(INTEGER a, INTEGER b) { return is_shift(b) ? INTEGER(UNSIGNED(a) << int(b)) : INTEGER(0); }
INTEGER right_shift(INTEGER a, INTEGER b) {
  if (is_shift(b)) return a >> int(b);
  return a < INTEGER(0) ? ~INTEGER(0) : INTEGER(0);
}

INTEGER sign_of(INTEGER a) { return a > INTEGER(0) ? INTEGER(1) : a == INTEGER(0) ? INTEGER(0) : ~INTEGER(0); }
