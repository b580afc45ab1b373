/* SPDX-License-Identifier: Apache-2.0 */
/* exported_functions.c -- the functions of docs/ops.md that the kernels of an exported plugin call, by the C library. export.cpp
 * puts it in front of exported.c, behind the prelude (c_prelude.cpp); export_text.cpp makes one FUNCTION of each that is called. */
#include <math.h>
#include <string.h>

__extension__ typedef __int128 wide;

/* ---- functions of docs/ops.md, by the C library: for one element in double, or in the widest integer of the sign ---- */

static double fn_sign(double a) { return a != a ? a : (double)((a > 0) - (a < 0)); }
static double fn_rsqrt(double a) { return 1 / sqrt(a); }
static double fn_reciprocal(double a) { return 1 / a; }
static double fn_sigmoid(double a) { return a < 0 ? exp(a) / (1 + exp(a)) : 1 / (1 + exp(-a)); }
static double fn_gelu(double a) { return a == -INFINITY ? 0 : 0.5 * a * erfc(a * -0.70710678118654752440); }
static double fn_gelu_tanh(double a) {
  const double u = 0.79788456080286535588 * (a + 0.044715 * a * a * a);
  return a == -INFINITY ? 0 : a / (1 + exp(-2 * u));
}
static double fn_silu(double a) { return a == -INFINITY ? 0 : a * fn_sigmoid(a); }
static double fn_sinc(double a) {
  const double n = rint(a), s = sin((a - n) * 3.14159265358979323846) / (a * 3.14159265358979323846);
  if (a == 0 || a - n == 0 || isinf(a)) return a == 0;
  return rint(n / 2) == n / 2 ? s : -s;
}
static double fn_softplus(double a) { return a > 0 ? a + log1p(exp(-a)) : log1p(exp(a)); }
static double fn_square(double a) { return a * a; }
static double fn_round(double a) { return rint(a); }
static double fn_remainder(double a, double b) {
  const double r = fmod(a, b);
  if (r == 0) return copysign(0, b);
  return (r < 0) != (b < 0) ? r + b : r;
}
static double fn_logaddexp(double a, double b) {
  if (a == b) return a + 0.69314718055994530942;
  return a != a || b != b ? a + b : (a > b ? a : b) + log1p(exp(-fabs(a - b)));
}
static i64 in_sign(i64 a) { return (a > 0) - (a < 0); }
static i64 in_div(i64 a, i64 b) { return b == 0 ? 0 : b == -1 ? (i64)(0 - (u64)a) : a / b; }
static i64 in_fmod(i64 a, i64 b) { return b == 0 || b == -1 ? 0 : a % b; }
static i64 in_remainder(i64 a, i64 b) { return nw_remainder(a, b); }
static u64 un_sign(u64 a) { return a != 0; }
static u64 un_div(u64 a, u64 b) { return b == 0 ? 0 : a / b; }
static u64 un_fmod(u64 a, u64 b) { return b == 0 ? 0 : a % b; }
static u64 un_remainder(u64 a, u64 b) { return un_fmod(a, b); }
static u64 un_pow(u64 a, u64 b) { /* modulo 2^64 */
  u64 out = 1;
  for (; b != 0; b >>= 1, a *= a)
    if (b & 1) out *= a;
  return out;
}
static i64 in_pow(i64 a, i64 b) {
  if (b < 0) return a == 1 ? 1 : a == -1 ? (b & 1 ? -1 : 1) : 0;
  return (i64)un_pow((u64)a, (u64)b);
}
static i64 in_left(i64 a, i64 b, int width) { return b < 0 || b >= width ? 0 : (i64)((u64)a << b); }
static u64 un_left(u64 a, u64 b, u64 width) { return b >= width ? 0 : a << b; }
static i64 in_right(i64 a, i64 b, int width) { return b < 0 || b >= width ? (a < 0 ? -1 : 0) : a >> b; }
static u64 un_right(u64 a, u64 b, u64 width) { return b >= width ? 0 : a >> b; }

/* ---- conversions: each rounds once, and saturates where it becomes an integer ---- */

/* Of a wider number: towards 0, with the last bit set where that lost something. What is rounded again is right then. */
static float odd_float(double a) {
  float out = (float)a;
  u32 u;
  if ((double)out == a || a != a || isinf(a)) return out;
  memcpy(&u, &out, 4);
  if (fabs((double)out) > fabs(a)) --u;
  u |= 1;
  memcpy(&out, &u, 4);
  return out;
}
static double odd_unsigned(u64 a) { return a < 1ULL << 53 ? (double)a : (double)((a >> 11 | ((a & 0x7ff) != 0)) << 11); }
static double odd_signed(i64 a) { return a < 0 ? -odd_unsigned(0 - (u64)a) : odd_unsigned((u64)a); }

static i64 saturated_signed(double a, int width) {
  const double limit = ldexp(1, width - 1);
  if (a != a) return 0;
  if (a >= limit) return (i64)(~0ULL >> (65 - width));
  return a < -limit ? -(i64)(~0ULL >> (65 - width)) - 1 : (i64)a;
}
static u64 saturated_unsigned(double a, int width) {
  if (!(a > 0)) return 0;
  return a >= ldexp(1, width) ? ~0ULL >> (64 - width) : (u64)a;
}
static wide saturated(wide a, wide least, wide greatest) { return a < least ? least : a > greatest ? greatest : a; }

/* Elements as they lie in memory. */
#define FROM_f64(x) (x)
#define FROM_f32(x) ((double)(x))
#define FROM_f16(x) ((double)nw_from_f16(x))
#define FROM_bf16(x) ((double)nw_from_bf16(x))
#define TO_f64(x) (x)
#define TO_f32(x) ((float)(x))
#define TO_f16(x) nw_to_f16(odd_float(x))
#define TO_bf16(x) nw_to_bf16(odd_float(x))

/* A function of the kernels' services: out[i] = expression of A, B and C. */
#define FUNCTION(name, T, R, expression)                                                          \
  static void name(const void* a, const void* b, const void* c, void* out, i64 n, double alpha) { \
    (void)b, (void)c, (void)alpha;                                                                \
    for (i64 i = 0; i < n; ++i) {                                                                 \
      const T##u *A = (const T##u*)a + i, *B = (const T##u*)b + i, *C = (const T##u*)c + i;       \
      (void)A, (void)B, (void)C;                                                                  \
      ((R##u*)out)[i] = (R)(expression);                                                          \
    }                                                                                             \
  }
