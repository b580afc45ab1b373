// SPDX-License-Identifier: Apache-2.0
// elementwise.comp -- out = FUNCTION(a, b, c), and with -DGRADIENT the gradient by one of them. Modules differ in the type that is
// computed in, NUMBER: -DREALS=32 (f32, f16, bf16), =64, -DINTEGERS=32 (8 to 32 bits; bool too, among the unsigned), =64, with
// -DSIGNED=1 or 0. Functions that move bits alone (where, copysign) are those of unsigned integers.
#version 460
#ifdef GRADIENT
#define SLOTS 4  // grad_out, a, b, c
#else
#define SLOTS 3
#endif
#ifdef REALS
#if REALS == 64
#define NARROWS_FLOAT64
#endif
#include "float_controls.glsl"
#if REALS == 32 && !defined(GRADIENT)
#define HAS_PAIRS
#endif
#endif
#include "elementwise_loop.glsl"

// ---- numbers ----

#ifdef REALS
#include "elementwise_reals.glsl"
#else
#if INTEGERS == 64
#define UNSIGNED uint64_t
#if SIGNED
#define INTEGER int64_t
#else
#define INTEGER uint64_t
#endif
INTEGER opened(uint64_t bits, uint dtype) { return INTEGER(bits); }
uint64_t closed(INTEGER x, uint dtype) { return uint64_t(x); }
#else
#define UNSIGNED uint
#if SIGNED
#define INTEGER int
#else
#define INTEGER uint
#endif
INTEGER opened(uint64_t bits, uint dtype) {
  const INTEGER low = bitfieldExtract(INTEGER(uint(bits)), 0, 8 * int(size_of_dtype(dtype)));
  return dtype == BOOL ? INTEGER(low != INTEGER(0)) : low;  // any byte but 0 is true
}
uint64_t closed(INTEGER x, uint dtype) { return uint64_t(uint(x)); }
#endif
#define NUMBER INTEGER
#define WIDTH (8 * int(size_of_dtype(T)))
#include "elementwise_integers.glsl"
#endif

// ---- functions ----

#ifdef GRADIENT
#include "elementwise_gradients.glsl"

uint dtype_of_slot(uint k) { return k == 1 ? A : T; }

uint64_t result(uint64_t elements[SLOTS]) {
  const NUMBER g = opened(elements[0], T);
  if (FUNCTION == NW_EW_WHERE) return closed(gradient_of_where(g, elements[1] != 0ul), OUT);
  const NUMBER b = FUNCTION == NW_EW_ELU ? opened(alpha, REAL_DTYPE) : opened(elements[2], T);
  return closed(gradient(g, opened(elements[1], T), b, opened(elements[3], T)), OUT);
}

#else
#ifdef REALS
#include "elementwise_functions.glsl"
#endif

uint dtype_of_slot(uint k) { return k == 0 ? A : T; }

// What stands in the place of b. By a switch, of which one case is compiled.
NUMBER second(uint64_t bits) {
#ifdef REALS
  switch (FUNCTION) {
    case NW_EW_ELU: return opened(alpha, REAL_DTYPE);
    default: return opened(bits, T);
  }
#else
  return opened(bits, T);
#endif
}

uint64_t result(uint64_t elements[SLOTS]) {
  switch (FUNCTION) {
#ifndef REALS
    case NW_EW_WHERE: {
      const uint64_t bits = elements[0] != 0ul ? elements[1] : elements[2];
      return T != BOOL ? bits : bits != 0ul ? 1ul : 0ul;
    }
#endif
    case NW_EW_LOGICAL_NOT:
    case NW_EW_ISNAN:
    case NW_EW_ISINF:
    case NW_EW_ISFINITE:
    case NW_EW_EQ:
    case NW_EW_NE:
    case NW_EW_LT:
    case NW_EW_LE:
    case NW_EW_GT:
    case NW_EW_GE:
    case NW_EW_LOGICAL_AND:
    case NW_EW_LOGICAL_OR:
    case NW_EW_LOGICAL_XOR: return holds(opened(elements[0], T), opened(elements[1], T)) ? 1ul : 0ul;
    default: return closed(apply(opened(elements[0], T), second(elements[1]), opened(elements[2], T)), OUT);
  }
}

#ifdef HAS_PAIRS
// By the device's conversions, which take and give two at once.
uint pair_of_results(uint words[SLOTS]) {
  const vec2 a = unpackHalf2x16(words[0]), c = unpackHalf2x16(words[2]);
  vec2 b = unpackHalf2x16(words[1]);
  switch (FUNCTION) {
    case NW_EW_ELU: b = vec2(opened(alpha, REAL_DTYPE)); break;
    default: break;
  }
  return packHalf2x16(vec2(apply(a.x, b.x, c.x), apply(a.y, b.y, c.y)));
}
#endif
#endif
