// SPDX-License-Identifier: Apache-2.0
// program_f64.glsl -- the functions of math_f64.glsl beside those of math_f32.glsl, which have the same names: those of functions
// differ in their operands, and the others are given new ones here (program_names.glsl, made by ops/program/texts.cmake).
#undef REAL
#undef PAIR
#undef BITS
#undef SBITS
#undef to_bits
#undef from_bits
#undef msb_of
#undef IS_SHORT
#undef IS_HALF
#include "program/program_names.glsl"
#include "math_f64.glsl"
