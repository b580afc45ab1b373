// SPDX-License-Identifier: Apache-2.0
// elementwise_gradients.h -- grad_out times the derivative of a function by one operand. Subgradients and special values are those
// of docs/ops.md, which are torch's.
#pragma once

#include "elementwise_functions.h"
#include "elementwise_scaled.h"
#include "elementwise_sum.h"

namespace narrows::gpu {

// ---- gradients that take more than a line ----
// A plain expression serves where its factors are normal numbers; else, or where only their product is one, elementwise_scaled.h.

template <class C>
__device__ __forceinline__ C sqrt_of_product(C a, C b) {  // which itself may overflow
  return square_root(a) * square_root(b);
}
template <class C>
__device__ __forceinline__ C capped_size(C a, C most) {  // NaN stays
  const C size = std::fabs(a);
  return size > most ? most : size;
}
// exp(-(t.high + t.low))
template <class C>
__device__ __forceinline__ C exp_minus(Pair<C> t) {
  const C e = std::exp(-t.high);
  return std::fma(-e, t.low, e);
}
// g / (a * k)
template <class C>
__device__ __forceinline__ C log_gradient(C g, C a, double k) {
  const C divisor = a * static_cast<C>(k);
  return leaves_range(divisor) ? scaled_quotient_gradient(g, C(1), a, static_cast<C>(k)) : g / divisor;
}
// g * factor * e^-a^2
template <class C>
__device__ __forceinline__ C erf_gradient(C g, C a, C factor) {
  const C x = capped_size(a, C(64));
  const Pair<C> square = product(x, x);
  if (exp_leaves_range(square.high)) return scaled_exp_gradient(g, factor, -square.high, -square.low);
  return g * (factor * exp_minus(square));
}
constexpr double kDensityAtZero = 0.398942280401432677939946059934;  // 1/sqrt(2*pi)
// phi is the density. For a < 0 the gradient is phi*(a + Phi/phi), else 1 + phi*(a - Phi(-a)/phi).
__device__ __forceinline__ float gelu_gradient(float g, float a) {
  const float x = capped_size(a, 20.f), rise = fmaf(static_cast<float>(kDensityAtZero), x, -normal_tail_ratio(x));
  const Pair<float> square = product(x, x);
  if (a < 0 && exp_leaves_range(0.5f * square.high)) return scaled_exp_gradient(g, -rise, -0.5f * square.high, -0.5f * square.low);
  const Power z = half_gaussian(square);
  return g * (a < 0 ? -rise * z.e * z.scale : fmaf(rise * z.e, z.scale, 1.f));
}
__device__ __forceinline__ double gelu_gradient(double g, double a) {
  const double x = capped_size(a, 80.0);
  const Pair<double> square = product(x, x), half{0.5 * square.high, 0.5 * square.low};
  if (a < 0 && exp_leaves_range(half.high)) {  // Phi/phi by its asymptotic series: x is at least 37
    const double y = 1 / square.high, ratio = (1 + y * (-1 + y * (3 + y * (-15 + y * 105)))) / x;
    return scaled_exp_gradient(g, (ratio - x) * kDensityAtZero, -half.high, -half.low);
  }
  const double capped = a < 0 ? -x : x, e = exp_minus(half);
  const Pair<double> y = times(-capped, constant<double>(0.7071067811865476, -4.833646656726457e-17));  // its low part mends erfc's
  const double cdf = std::fma(-0.564189583547756287 * e, y.low, 0.5 * std::erfc(y.high));
  return g * std::fma(kDensityAtZero * capped, e, cdf);
}
// With z = e^-|t| of the sigmoid's argument t, and t' * |a| = `steep`.
template <class C>
__device__ __forceinline__ C gelu_tanh_gradient(C g, C a) {
  constexpr C kLinear = static_cast<C>(1.59576912160573071), kCubic = static_cast<C>(3 * 1.59576912160573071 * 0.044715);
  const C x = capped_size(a, C(40)), steep = x * std::fma(kCubic, x * x, kLinear);
  const Pair<C> t = gelu_tanh_argument(x);
  if (a < 0 && exp_leaves_range(t.high)) return scaled_exp_gradient(g, C(1) - steep, -t.high, -t.low);
  const C z = exp_minus(t), sum = C(1) + z, r = C(1) / sum;
  return g * (a < 0 ? z * r * r * (sum - steep) : r * std::fma(steep * z, r, C(1)));
}
template <class C>
__device__ __forceinline__ C silu_gradient(C g, C a) {
  const C x = capped_size(a, kFar<C>);
  if (a < 0 && exp_leaves_range(a)) return scaled_exp_gradient(g, C(1) + a, a, C(0));
  const C z = std::exp(-x), sum = C(1) + z, r = C(1) / sum;
  return g * (a < 0 ? z * r * r * (sum - x) : r * std::fma(x * z, r, C(1)));
}
// g * sigmoid(a - b)
template <class C>
__device__ __forceinline__ C logaddexp_gradient(C g, C a, C b) {
  if (a == b) return C(0.5) * g;  // of two equal infinities the difference is NaN
  const C t = a - b, back = t - a, low = (a - (t - back)) - (b + back), size = std::fabs(t);
  if (t < 0 && exp_leaves_range(t)) return scaled_exp_gradient(g, C(1), t, low);
  const C z = exp_minus(Pair<C>{size, size < kFar<C> ? std::copysign(C(1), t) * low : C(0)});
  return g * ((t < 0 ? z : C(1)) / (C(1) + z));
}
template <class C>
__device__ __forceinline__ C elu_gradient(C g, C a, C alpha) {
  if (!(a <= 0)) return g;
  const C slope = alpha * std::exp(a);
  const bool leaves = a > -kFar<C> && (a < -kExpLimit<C> || std::fabs(slope) < std::numeric_limits<C>::min());
  return leaves ? scaled_exp_gradient(g, alpha, a, C(0)) : g * slope;
}
// g * (cos(pi a) - sinc(a))/a: near 0 a polynomial times a; else by the distances f from a whole number and 1/2 - |f| from half of
// an odd one, each exact where it is small. The powers of two keep g times what comes first in the range.
template <class C>
__device__ __forceinline__ C sinc_gradient(C g, C a) {
  const C size = std::fabs(a), f = alternating_rest(size), rest = C(0.5) - std::fabs(f);
  if (size <= C(0.5)) return g * sinc_slope(f * f) * (C(4) * a);
  const C cosine = rest * sinc_near(rest) * static_cast<C>(1.57079632679489661923132169164);
  const C sine = C(0.5) * (f * sinc_near(f)) / size;
  return g * ((is_odd(std::rint(size)) ? -cosine : cosine) - sine) / (C(0.5) * a);
}
// -g * a / b^2
template <class C>
__device__ __forceinline__ C div_gradient_b(C g, C a, C b) {
  const C above = g * a, divisor = b * b;
  const bool leaves = leaves_range(divisor) || (leaves_range(above) && g != 0 && a != 0);
  return leaves ? scaled_quotient_gradient(-g, a, b, b) : -(above / divisor);
}
template <class C>
__device__ __forceinline__ C pow_gradient_a(C g, C a, C b) {
  if (b == 0 || (a == 0 && b > 1)) return g * C(0);
  const C y = power(a, b), ratio = y / a, slope = ratio * b;
  const bool leaves = a == 0 || leaves_range(y) || leaves_range(ratio) || leaves_range(slope);
  return leaves ? scaled_pow_gradient_a(g, a, b) : g * slope;
}
template <class C>
__device__ __forceinline__ C pow_gradient_b(C g, C a, C b) {
  if (a == 0 && b >= 0) return g * C(0);
  const C y = power(a, b), log = std::log(a), slope = y * log;
  const bool leaves = leaves_range(y) || (leaves_range(slope) && log != 0);
  return leaves ? scaled_pow_gradient_b(g, a, b) : g * slope;
}
// g * n / r or, with kSquared, g * n / r^2: see scaled_distance_gradient(). The squares' sum may lack one that underflows.
template <bool kSquared, class C>
__device__ __forceinline__ C distance_gradient(C g, C n, C a, C b) {
  using Limits = std::numeric_limits<C>;
  const C square = std::fma(a, a, b * b), slope = n / (kSquared ? square : square_root(square));
  const bool leaves = square < Limits::min() / Limits::epsilon() || square > Limits::max();
  return leaves || (leaves_range(slope) && n != 0) ? scaled_distance_gradient<kSquared>(g, n, a, b) : g * slope;
}
// a/b rounded towards 0: the whole number of times that fmod takes b from a.
template <class C>
__device__ __forceinline__ C whole_quotient(C a, C b, C rest) {
  return std::rint((a - rest) / b);
}
// a/b rounded down: remainder takes b once more where the signs differ. Counted so for an infinite b, too.
template <class C>
__device__ __forceinline__ C floor_quotient(C a, C b) {
  const C rest = std::fmod(a, b), n = whole_quotient(a, b, rest);
  return rest != 0 && (rest < 0) != (b < 0) ? n - C(1) : n;
}
// -g * quotient; beyond the range that is a/b, whatever it is rounded to.
template <class C>
__device__ __forceinline__ C fmod_gradient_b(C g, C a, C b, C quotient) {
  return std::fabs(quotient) > std::numeric_limits<C>::max() ? scaled_quotient_gradient(-g, a, b, C(1)) : -g * quotient;
}
// What maximum or minimum passes on: all to the winner, half to each at a tie, all past a NaN.
template <class C>
__device__ __forceinline__ C won(C g, bool tie, bool lost) {
  return tie ? C(0.5) * g : lost ? C(0) : g;
}

// ---- functions of grad_out and what else each reads, in the order of a row's slots ----

#define NARROWS_GRADIENT3(Name, heavy, ...)                       \
  struct Name {                                                   \
    static constexpr int kArity = 3;                              \
    static constexpr bool kHeavy = heavy;                         \
    template <class C>                                            \
    static __device__ __forceinline__ auto apply(C g, C a, C b) { \
      __VA_ARGS__                                                 \
    }                                                             \
  };
#define NARROWS_GRADIENT2(Name, heavy, ...)                  \
  struct Name {                                              \
    static constexpr int kArity = 2;                         \
    static constexpr bool kHeavy = heavy;                    \
    template <class C>                                       \
    static __device__ __forceinline__ auto apply(C g, C a) { \
      __VA_ARGS__                                            \
    }                                                        \
  };
NARROWS_GRADIENT2(GradAbs, kCheap, return g * sign_of(a);)
NARROWS_GRADIENT2(GradSquare, kCheap, return std::fabs(a) < C(0x1p100f) ? g * (a + a) : (g * a) * C(2);)
NARROWS_GRADIENT2(GradSqrt, kCheap, return g / (C(2) * square_root(a));)
NARROWS_GRADIENT2(GradRsqrt, kCheap, {
  const C root = square_root(a), divisor = (a + a) * root;
  return leaves_range(divisor) ? scaled_quotient_gradient(g, C(-0.5), a, root) : -(g / divisor);
})
NARROWS_GRADIENT2(GradCbrt, kCostly, {
  const C root = std::cbrt(a);
  return g / (C(3) * (root * root));
})
NARROWS_GRADIENT2(GradExp, kCheap, {
  const bool leaves = std::fabs(a) > kExpLimit<C> && a > -kFar<C>;
  return leaves ? scaled_exp_gradient(g, C(1), a, C(0)) : g * std::exp(a);
})
NARROWS_GRADIENT2(GradExp2, kCheap, {
  const bool leaves = std::fabs(a) > C(std::numeric_limits<C>::max_exponent - 3) && a > -2 * kFar<C>;
  if (!leaves) return g * (std::exp2(a) * static_cast<C>(kLn2));
  const Pair<C> t = times(a, constant<C>(0.6931471805599453, 2.3190468138462996e-17));
  return scaled_exp_gradient(g, static_cast<C>(kLn2), t.high, t.low);
})
NARROWS_GRADIENT2(GradLog2, kCheap, return log_gradient(g, a, kLn2);)
NARROWS_GRADIENT2(GradLog10, kCheap, return log_gradient(g, a, 2.30258509299404568401799145468);)
NARROWS_GRADIENT2(GradLog1p, kCheap, return g / (C(1) + a);)
NARROWS_GRADIENT2(GradSin, kCostly, return g * std::cos(a);)
NARROWS_GRADIENT2(GradCos, kCostly, return -(g * std::sin(a));)
NARROWS_GRADIENT2(GradTan, kCostly, {
  const C t = std::tan(a);
  return g * (C(1) + t * t);
})
NARROWS_GRADIENT2(GradAsin, kCheap, return g / sqrt_of_product(C(1) - a, C(1) + a);)
NARROWS_GRADIENT2(GradAcos, kCheap, return -(g / sqrt_of_product(C(1) - a, C(1) + a));)
NARROWS_GRADIENT2(GradAtan, kCheap, {
  const C divisor = C(1) + a * a;
  return divisor > std::numeric_limits<C>::max() ? scaled_quotient_gradient(g, C(1), a, a) : g / divisor;
})
NARROWS_GRADIENT2(GradSinh, kCostly,
                  return std::fabs(a) > kExpLimit<C> ? scaled_exp_gradient(g, C(0.5), std::fabs(a), C(0)) : g * std::cosh(a);)
NARROWS_GRADIENT2(GradCosh, kCostly, {
  return std::fabs(a) > kExpLimit<C> ? scaled_exp_gradient(g, std::copysign(C(0.5), a), std::fabs(a), C(0)) : g * std::sinh(a);
})
NARROWS_GRADIENT2(GradTanh, kCheap, {
  return exp_leaves_range(a + a) ? scaled_exp_gradient(g, C(4), C(-2) * std::fabs(a), C(0)) : g * (C(4) * sigmoid_slope(a + a));
})
NARROWS_GRADIENT2(GradAsinh, kCostly, return g / std::hypot(a, C(1));)
NARROWS_GRADIENT2(GradAcosh, kCheap, return g / sqrt_of_product(a - C(1), a + C(1));)
NARROWS_GRADIENT2(GradAtanh, kCheap, {
  const C divisor = (C(1) - a) * (C(1) + a);
  return divisor < std::numeric_limits<C>::lowest() ? scaled_quotient_gradient(-g, C(1), a, a) : g / divisor;
})
NARROWS_GRADIENT2(GradSigmoid, kCheap,
                  { return exp_leaves_range(a) ? scaled_exp_gradient(g, C(1), -std::fabs(a), C(0)) : g * sigmoid_slope(a); })
NARROWS_GRADIENT2(GradRelu, kCheap, return a <= 0 ? C(0) : g;)
NARROWS_GRADIENT2(GradSinc, kCostly, return sinc_gradient(g, a);)
NARROWS_GRADIENT3(GradElu, kCheap, return elu_gradient(g, a, b);)  // b is alpha
NARROWS_GRADIENT2(GradGelu, kCostly, return gelu_gradient(g, a);)
NARROWS_GRADIENT2(GradGeluTanh, kCostly, return gelu_tanh_gradient(g, a);)
NARROWS_GRADIENT2(GradSilu, kCheap, return silu_gradient(g, a);)
NARROWS_GRADIENT2(GradSoftplus, kCheap,
                  { return a < 0 && exp_leaves_range(a) ? scaled_exp_gradient(g, C(1), a, C(0)) : g * sigmoid(a); })
NARROWS_GRADIENT2(GradErf, kCheap, return erf_gradient(g, a, static_cast<C>(1.12837916709551257389615890312));)
NARROWS_GRADIENT2(GradErfc, kCheap, return erf_gradient(g, a, static_cast<C>(-1.12837916709551257389615890312));)
NARROWS_GRADIENT2(GradReciprocal, kCheap, {
  const C divisor = a * a;
  return leaves_range(divisor) ? scaled_quotient_gradient(-g, C(1), a, a) : -(g / divisor);
})
NARROWS_GRADIENT3(GradDivB, kCheap, return div_gradient_b(g, a, b);)
NARROWS_GRADIENT3(GradPowA, kCostly, return pow_gradient_a(g, a, b);)
NARROWS_GRADIENT3(GradPowB, kCostly, return pow_gradient_b(g, a, b);)
NARROWS_GRADIENT3(GradAtan2A, kCheap, return distance_gradient<true>(g, b, a, b);)
NARROWS_GRADIENT3(GradAtan2B, kCheap, return distance_gradient<true>(-g, a, a, b);)
NARROWS_GRADIENT3(GradHypot, kCheap, return distance_gradient<false>(g, a, a, b);)
NARROWS_GRADIENT3(GradWon, kCheap, return won(g, a == b, a < b);)  // of maximum by a; the rest by exchanging a and b
NARROWS_GRADIENT3(GradFmodB, kCostly, return fmod_gradient_b(g, a, b, whole_quotient(a, b, std::fmod(a, b)));)
NARROWS_GRADIENT3(GradRemainderB, kCostly, return fmod_gradient_b(g, a, b, floor_quotient(a, b));)
NARROWS_GRADIENT3(GradCopysign, kCheap, return g * (sign_of(a) * std::copysign(C(1), b));)
NARROWS_GRADIENT3(GradLogaddexp, kCheap, return logaddexp_gradient(g, a, b);)

// a is a bool's byte, and comes first.
struct GradWhereB {
  static constexpr int kArity = 2;
  static constexpr bool kHeavy = false;
  template <class C>
  static __device__ __forceinline__ C apply(unsigned char a, C g) {
    return a != 0 ? g : C(0);
  }
};
struct GradWhereC {
  static constexpr int kArity = 2;
  static constexpr bool kHeavy = false;
  template <class C>
  static __device__ __forceinline__ C apply(unsigned char a, C g) {
    return a != 0 ? C(0) : g;
  }
};
template <int kOperand>
struct GradClamp {
  static constexpr int kArity = 4;
  static constexpr bool kHeavy = false;
  template <class C>
  static __device__ __forceinline__ C apply(C g, C a, C b, C c) {
    const bool passes = kOperand == 0 ? a >= b && a <= c : kOperand == 1 ? a < b && b < c : a > c || c < b || (a < b && b == c);
    return passes ? g : C(0);
  }
};

// ---- the table ----

template <class F, class T, class A = T>
constexpr GradientRow by(int function, int operand, Source first, Source second = kNone, Source third = kNone,
                         Source fourth = kNone) {
  return {function, operand, {first, second, third, fourth}, kernels<F, T, A, T>(), sum_kernel<F, A, T>};
}

template <class T>
const GradientRow kGradientRows[] = {
    by<Neg, T>(NW_EW_NEG, 0, kGradOut),
    by<GradAbs, T>(NW_EW_ABS, 0, kGradOut, kA),
    by<GradSquare, T>(NW_EW_SQUARE, 0, kGradOut, kA),
    by<GradSqrt, T>(NW_EW_SQRT, 0, kGradOut, kA),
    by<GradRsqrt, T>(NW_EW_RSQRT, 0, kGradOut, kA),
    by<GradCbrt, T>(NW_EW_CBRT, 0, kGradOut, kA),
    by<GradExp, T>(NW_EW_EXP, 0, kGradOut, kA),
    by<GradExp2, T>(NW_EW_EXP2, 0, kGradOut, kA),
    by<GradExp, T>(NW_EW_EXPM1, 0, kGradOut, kA),
    by<Div, T>(NW_EW_LOG, 0, kGradOut, kA),
    by<GradLog2, T>(NW_EW_LOG2, 0, kGradOut, kA),
    by<GradLog10, T>(NW_EW_LOG10, 0, kGradOut, kA),
    by<GradLog1p, T>(NW_EW_LOG1P, 0, kGradOut, kA),
    by<GradSin, T>(NW_EW_SIN, 0, kGradOut, kA),
    by<GradCos, T>(NW_EW_COS, 0, kGradOut, kA),
    by<GradTan, T>(NW_EW_TAN, 0, kGradOut, kA),
    by<GradAsin, T>(NW_EW_ASIN, 0, kGradOut, kA),
    by<GradAcos, T>(NW_EW_ACOS, 0, kGradOut, kA),
    by<GradAtan, T>(NW_EW_ATAN, 0, kGradOut, kA),
    by<GradSinh, T>(NW_EW_SINH, 0, kGradOut, kA),
    by<GradCosh, T>(NW_EW_COSH, 0, kGradOut, kA),
    by<GradTanh, T>(NW_EW_TANH, 0, kGradOut, kA),
    by<GradAsinh, T>(NW_EW_ASINH, 0, kGradOut, kA),
    by<GradAcosh, T>(NW_EW_ACOSH, 0, kGradOut, kA),
    by<GradAtanh, T>(NW_EW_ATANH, 0, kGradOut, kA),
    by<GradSigmoid, T>(NW_EW_SIGMOID, 0, kGradOut, kA),
    by<GradRelu, T>(NW_EW_RELU, 0, kGradOut, kA),
    by<GradElu, T>(NW_EW_ELU, 0, kGradOut, kA, kAlpha),
    by<GradGelu, T>(NW_EW_GELU, 0, kGradOut, kA),
    by<GradGeluTanh, T>(NW_EW_GELU_TANH, 0, kGradOut, kA),
    by<GradSilu, T>(NW_EW_SILU, 0, kGradOut, kA),
    by<GradSoftplus, T>(NW_EW_SOFTPLUS, 0, kGradOut, kA),
    by<GradErf, T>(NW_EW_ERF, 0, kGradOut, kA),
    by<GradErfc, T>(NW_EW_ERFC, 0, kGradOut, kA),
    by<GradReciprocal, T>(NW_EW_RECIPROCAL, 0, kGradOut, kA),
    by<Identity, T>(NW_EW_ADD, 0, kGradOut),
    by<Identity, T>(NW_EW_ADD, 1, kGradOut),
    by<Identity, T>(NW_EW_SUB, 0, kGradOut),
    by<Neg, T>(NW_EW_SUB, 1, kGradOut),
    by<Mul, T>(NW_EW_MUL, 0, kGradOut, kB),
    by<Mul, T>(NW_EW_MUL, 1, kGradOut, kA),
    by<Div, T>(NW_EW_DIV, 0, kGradOut, kB),
    by<GradDivB, T>(NW_EW_DIV, 1, kGradOut, kA, kB),
    by<GradPowA, T>(NW_EW_POW, 0, kGradOut, kA, kB),
    by<GradPowB, T>(NW_EW_POW, 1, kGradOut, kA, kB),
    by<GradAtan2A, T>(NW_EW_ATAN2, 0, kGradOut, kA, kB),
    by<GradAtan2B, T>(NW_EW_ATAN2, 1, kGradOut, kA, kB),
    by<GradHypot, T>(NW_EW_HYPOT, 0, kGradOut, kA, kB),
    by<GradHypot, T>(NW_EW_HYPOT, 1, kGradOut, kB, kA),
    by<GradWon, T>(NW_EW_MAXIMUM, 0, kGradOut, kA, kB),
    by<GradWon, T>(NW_EW_MAXIMUM, 1, kGradOut, kB, kA),
    by<GradWon, T>(NW_EW_MINIMUM, 0, kGradOut, kB, kA),
    by<GradWon, T>(NW_EW_MINIMUM, 1, kGradOut, kA, kB),
    by<Identity, T>(NW_EW_FMOD, 0, kGradOut),
    by<GradFmodB, T>(NW_EW_FMOD, 1, kGradOut, kA, kB),
    by<Identity, T>(NW_EW_REMAINDER, 0, kGradOut),
    by<GradRemainderB, T>(NW_EW_REMAINDER, 1, kGradOut, kA, kB),
    by<GradCopysign, T>(NW_EW_COPYSIGN, 0, kGradOut, kA, kB),
    by<GradLogaddexp, T>(NW_EW_LOGADDEXP, 0, kGradOut, kA, kB),
    by<GradLogaddexp, T>(NW_EW_LOGADDEXP, 1, kGradOut, kB, kA),
    by<Mul, T>(NW_EW_FMA, 0, kGradOut, kB),
    by<Mul, T>(NW_EW_FMA, 1, kGradOut, kA),
    by<Identity, T>(NW_EW_FMA, 2, kGradOut),
    by<GradWhereB, T, unsigned char>(NW_EW_WHERE, 1, kA, kGradOut),
    by<GradWhereC, T, unsigned char>(NW_EW_WHERE, 2, kA, kGradOut),
    by<GradClamp<0>, T>(NW_EW_CLAMP, 0, kGradOut, kA, kB, kC),
    by<GradClamp<1>, T>(NW_EW_CLAMP, 1, kGradOut, kA, kB, kC),
    by<GradClamp<2>, T>(NW_EW_CLAMP, 2, kGradOut, kA, kB, kC),
    by<GradSinc, T>(NW_EW_SINC, 0, kGradOut, kA),
};

template <class T>
constexpr GradientTable gradient_table() {
  return {kGradientRows<T>, static_cast<int>(sizeof(kGradientRows<T>) / sizeof(GradientRow)), finish_kernel<T>};
}

}  // namespace narrows::gpu
