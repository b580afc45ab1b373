// SPDX-License-Identifier: Apache-2.0
// lltm_cell.glsl -- the activations of lltm's gates: input gate, output gate, candidate. All come from exponentials of numbers that are
// not positive, or small (tanh of f32): nothing overflows, nothing cancels.
#ifdef DTYPE_F64
#include "math_f64.glsl"
#else
#include "math_f32.glsl"
#endif

// A driver that contracts unasked has these modules without the mode that keeps NaN: it is told by its bits. The result is a NaN of our
// own, because Mesa's llvmpipe with LLVM 19 returned a part of z's bits for some numbers where z itself was to be chosen.
ACC exp_gate(ACC z) { return is_nan(z) ? not_a_number() : exp_real(z); }
ACC expm1_gate(ACC z) { return is_nan(z) ? not_a_number() : expm1_real(z); }
ACC sigmoid_gate(ACC z) { return is_nan(z) ? not_a_number() : sigmoid_real(z); }
ACC tanh_gate(ACC z) { return is_nan(z) ? not_a_number() : tanh_real(z); }

precise ACC elu(ACC z) { return less(ACC(0), z) ? z : expm1_gate(z); }
precise ACC elu_slope(ACC z) { return less(ACC(0), z) ? ACC(1) : exp_gate(z); }
precise ACC sigmoid_slope(ACC z) {
  const ACC e = exp_gate(-size(z)), sum = ACC(1) + e;
  return ratio(e, sum * sum);
}
// 1 - tanh^2
precise ACC tanh_slope(ACC x) { return ACC(4) * sigmoid_slope(x + x); }
