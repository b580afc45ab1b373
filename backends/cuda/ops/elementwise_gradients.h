// elementwise_gradients.h -- grad_out times the derivative of a function by one operand. Subgradients and special values are those
// of docs/ops.md, which are torch's. Step 5 of a tensor's path.
#pragma once

#include "elementwise_functions.h"
#include "elementwise_sum.h"

namespace narrows::gpu {

// ---- derivatives that take more than a line ----

template <class C>
__device__ __forceinline__ C sqrt_of_product(C a, C b) {  // which itself may overflow
  return square_root(a) * square_root(b);
}
template <class C>
__device__ __forceinline__ C acosh_slope(C a) {
  return a < C(1) ? std::numeric_limits<C>::quiet_NaN() : C(1) / sqrt_of_product(a - C(1), a + C(1));
}
template <class C>
__device__ __forceinline__ C gelu_slope(C a) {
  const C density = static_cast<C>(0.398942280401432677939946059934) * std::exp(C(-0.5) * (a * a));
  return normal_cdf(a) + a * density;
}
template <class C>
__device__ __forceinline__ C gelu_tanh_slope(C a) {
  constexpr C kLinear = static_cast<C>(1.59576912160573071), kCubic = static_cast<C>(3 * 1.59576912160573071 * 0.044715);
  const C t = gelu_tanh_argument(a).high;
  const C curved = a * sigmoid_slope(t) * (kLinear + kCubic * (a * a));
  return sigmoid(t) + (std::fabs(t) > C(2000) ? C(0) : curved);
}
template <class C>
__device__ __forceinline__ C pow_slope_a(C a, C b) {
  return b == 0 ? C(0) : b * power(a, b - C(1));
}
template <class C>
__device__ __forceinline__ C pow_slope_b(C a, C b) {
  return a == 0 && b >= 0 ? C(0) : power(a, b) * std::log(a);
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
NARROWS_GRADIENT2(GradSquare, kCheap, return g * (a + a);)
NARROWS_GRADIENT2(GradSqrt, kCheap, return g / (C(2) * square_root(a));)
NARROWS_GRADIENT2(GradRsqrt, kCheap, return C(-0.5) * g / square_root(a) / a;)
NARROWS_GRADIENT2(GradCbrt, kCostly, {
  const C root = std::cbrt(a);
  return g / (C(3) * (root * root));
})
NARROWS_GRADIENT2(GradExp, kCheap, return g * std::exp(a);)
NARROWS_GRADIENT2(GradExp2, kCheap, return g * (std::exp2(a) * static_cast<C>(kLn2));)
NARROWS_GRADIENT2(GradLog2, kCheap, return g / (a * static_cast<C>(kLn2));)
NARROWS_GRADIENT2(GradLog10, kCheap, return g / (a * static_cast<C>(2.30258509299404568401799145468));)
NARROWS_GRADIENT2(GradLog1p, kCheap, return g / (C(1) + a);)
NARROWS_GRADIENT2(GradSin, kCostly, return g * std::cos(a);)
NARROWS_GRADIENT2(GradCos, kCostly, return -(g * std::sin(a));)
NARROWS_GRADIENT2(GradTan, kCostly, {
  const C t = std::tan(a);
  return g * (C(1) + t * t);
})
NARROWS_GRADIENT2(GradAsin, kCheap, return g / sqrt_of_product(C(1) - a, C(1) + a);)
NARROWS_GRADIENT2(GradAcos, kCheap, return -(g / sqrt_of_product(C(1) - a, C(1) + a));)
NARROWS_GRADIENT2(GradAtan, kCheap, return g / (C(1) + a * a);)
NARROWS_GRADIENT2(GradSinh, kCostly, return g * std::cosh(a);)
NARROWS_GRADIENT2(GradCosh, kCostly, return g * std::sinh(a);)
NARROWS_GRADIENT2(GradTanh, kCheap, return g * (C(4) * sigmoid_slope(a + a));)
NARROWS_GRADIENT2(GradAsinh, kCostly, return g / std::hypot(a, C(1));)
NARROWS_GRADIENT2(GradAcosh, kCheap, return g * acosh_slope(a);)
NARROWS_GRADIENT2(GradAtanh, kCheap, return g / ((C(1) - a) * (C(1) + a));)
NARROWS_GRADIENT2(GradSigmoid, kCheap, return g * sigmoid_slope(a);)
NARROWS_GRADIENT2(GradRelu, kCheap, return a <= 0 ? C(0) : g;)
NARROWS_GRADIENT3(GradElu, kCheap, return a <= 0 ? g * b * std::exp(a) : g;)  // b is alpha
NARROWS_GRADIENT2(GradGelu, kCostly, return g * gelu_slope(a);)
NARROWS_GRADIENT2(GradGeluTanh, kCostly, return g * gelu_tanh_slope(a);)
NARROWS_GRADIENT2(GradSilu, kCheap, return g * (sigmoid(a) + a * sigmoid_slope(a));)
NARROWS_GRADIENT2(GradSoftplus, kCheap, return g * sigmoid(a);)
NARROWS_GRADIENT2(GradErf, kCheap, return g * (static_cast<C>(1.12837916709551257389615890312) * std::exp(-(a * a)));)
NARROWS_GRADIENT2(GradErfc, kCheap, return g * (static_cast<C>(-1.12837916709551257389615890312) * std::exp(-(a * a)));)
NARROWS_GRADIENT2(GradReciprocal, kCheap, return -(g / a / a);)
NARROWS_GRADIENT3(GradDivB, kCheap, return -g * (a / b / b);)
NARROWS_GRADIENT3(GradPowA, kCostly, return g * pow_slope_a(a, b);)
NARROWS_GRADIENT3(GradPowB, kCostly, return g * pow_slope_b(a, b);)
NARROWS_GRADIENT3(GradAtan2A, kCostly, {
  const C r = std::hypot(a, b);
  return g * (b / r / r);
})
NARROWS_GRADIENT3(GradAtan2B, kCostly, {
  const C r = std::hypot(a, b);
  return -g * (a / r / r);
})
NARROWS_GRADIENT3(GradHypot, kCostly, return g * (a / std::hypot(a, b));)
NARROWS_GRADIENT3(GradWon, kCheap, return won(g, a == b, a < b);)  // of maximum by a; the rest by exchanging a and b
NARROWS_GRADIENT3(GradFmodB, kCostly, return -g * whole_quotient(a, b, std::fmod(a, b));)
NARROWS_GRADIENT3(GradRemainderB, kCostly, return -g * floor_quotient(a, b);)
NARROWS_GRADIENT3(GradCopysign, kCheap, return g * (sign_of(a) * std::copysign(C(1), b));)
NARROWS_GRADIENT3(GradLogaddexp, kCheap, return g * sigmoid(a - b);)

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
};

template <class T>
constexpr GradientTable gradient_table() {
  return {kGradientRows<T>, static_cast<int>(sizeof(kGradientRows<T>) / sizeof(GradientRow)), finish_kernel<T>};
}

}  // namespace narrows::gpu
