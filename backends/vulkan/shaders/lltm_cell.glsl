// lltm_cell.glsl -- the activations of lltm's gates: input gate, output gate, candidate. All come from exponentials of numbers that are
// not positive: nothing overflows, nothing cancels.
#ifdef DTYPE_F64
#include "math_f64.glsl"
#define exp_gate exp_real
#define expm1_gate expm1_real
#define sigmoid_gate sigmoid_real
#define tanh_gate tanh_real
#else
#include "math_f32.glsl"
// math.glsl's functions take sums in two parts for their accuracy. A cell is asked for eight units in the last place of each, and these are
// good to five, most of it the division's, in one part.

// p of e^x = 2^n*(1 + p), x from kExpUnder to 0; n is not positive.
precise float expm1_part(float x, out int n) {
  const float whole = floor(x * kLog2E + 0.5), r = (x - whole * kLn2High) - whole * kLn2Low;
  n = int(whole);
  return r + r * r * (0.5 + r * exp_tail(r));
}
precise float exp_gate(float x) {
  if (is_nan(x)) return x;
  if (x < kExpUnder) return 0.0;
  int n;
  const float p = expm1_part(x, n);
  return scale(1.0 + p, n);
}
precise float expm1_gate(float x) {
  if (is_nan(x) || size(x) < power_of_two(-kDigits - 2)) return x;
  if (x < kExpm1Under) return -1.0;
  int n;
  const float p = expm1_part(x, n), power = power_of_two(n);
  return power * p + (power - 1.0);
}
precise float sigmoid_gate(float z) {
  if (is_nan(z)) return z;
  const float e = exp_gate(-size(z));
  if (is_negative(z) && e < power_of_two(-kDigits - 3)) return e;
  return (is_negative(z) ? e : 1.0) / (1.0 + e);
}
precise float tanh_gate(float x) {
  const float a = size(x);
  if (is_nan(x) || a < kTiny) return x;
  if (a > kTanhEnd) return with_sign(1.0, x);
  const float e = expm1_gate(-2.0 * a);
  return with_sign(e / (e + 2.0), x);
}
#endif

precise ACC elu(ACC z) { return less(ACC(0), z) ? z : expm1_gate(z); }
precise ACC elu_slope(ACC z) { return less(ACC(0), z) ? ACC(1) : exp_gate(z); }
precise ACC sigmoid_slope(ACC z) {
  const ACC e = exp_gate(-size(z)), sum = ACC(1) + e;
  return ratio(e, sum * sum);
}
// 1 - tanh^2
precise ACC tanh_slope(ACC x) { return ACC(4) * sigmoid_slope(x + x); }
