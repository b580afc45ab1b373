// SPDX-License-Identifier: Apache-2.0
// elementwise_functions.h -- the functions of elementwise, of one element. What an expression gives is cast to the output's type.
#pragma once

#include "elementwise_math.h"

namespace narrows::gpu {

// Arithmetic that wraps: on an unsigned type that is not promoted to int; floating point as it is.
template <class C, bool = std::is_floating_point_v<C>>
struct WrapOf {
  using type = C;
};
template <class C>
struct WrapOf<C, false> {
  using type = std::common_type_t<std::make_unsigned_t<C>, unsigned>;
};
template <class C>
using Wrap = typename WrapOf<C>::type;
template <class C>
__device__ __forceinline__ Wrap<C> wrap(C x) {
  return static_cast<Wrap<C>>(x);
}
template <class C>
constexpr unsigned kWidth = sizeof(C) * 8;

// A heavy function costs so much that one element a thread keeps it busy; unrolled it would only cost registers.
constexpr bool kCheap = false, kCostly = true;
#define NARROWS_FUNCTION1(Name, heavy, ...)                              \
  struct Name {                                                          \
    static constexpr int kArity = 1;                                     \
    static constexpr bool kHeavy = heavy;                                \
    template <class C>                                                   \
    static __device__ __forceinline__ auto apply([[maybe_unused]] C a) { \
      __VA_ARGS__                                                        \
    }                                                                    \
  };
#define NARROWS_FUNCTION1_HALF(Name, heavy, full, half)                          \
  struct Name {                                                                  \
    static constexpr int kArity = 1;                                             \
    static constexpr bool kHeavy = heavy;                                        \
    template <class C>                                                           \
    static __device__ __forceinline__ auto apply([[maybe_unused]] C a) {         \
      full;                                                                      \
    }                                                                            \
    static __device__ __forceinline__ float apply_half(float a) { return half; } \
  };
#define NARROWS_FUNCTION1_F16(Name, heavy, full, half)                          \
  struct Name {                                                                 \
    static constexpr int kArity = 1;                                            \
    static constexpr bool kHeavy = heavy;                                       \
    template <class C>                                                          \
    static __device__ __forceinline__ auto apply([[maybe_unused]] C a) {        \
      full;                                                                     \
    }                                                                           \
    static __device__ __forceinline__ float apply_f16(float a) { return half; } \
  };
#define NARROWS_FUNCTION2(Name, heavy, ...)                  \
  struct Name {                                              \
    static constexpr int kArity = 2;                         \
    static constexpr bool kHeavy = heavy;                    \
    template <class C>                                       \
    static __device__ __forceinline__ auto apply(C a, C b) { \
      __VA_ARGS__                                            \
    }                                                        \
  };

#define NARROWS_FUNCTION2_BYTES(Name, full, bytes)                                   \
  struct Name {                                                                      \
    static constexpr int kArity = 2;                                                 \
    static constexpr bool kHeavy = false;                                            \
    template <class C>                                                               \
    static __device__ __forceinline__ auto apply(C a, C b) {                         \
      return full;                                                                   \
    }                                                                                \
    template <class C>                                                               \
    static __device__ __forceinline__ uint32_t apply_bytes(uint32_t a, uint32_t b) { \
      return bytes;                                                                  \
    }                                                                                \
  };

// ---- four bytes at once: sums of seven bits each, whose carries stay within a byte ----

constexpr uint32_t kHighBits = 0x80808080;
// The high bit of each byte: whether the lower seven of a are at least those of b.
__device__ __forceinline__ uint32_t differences(uint32_t a, uint32_t b) { return (a | kHighBits) - (b & ~kHighBits); }
// Bytes of 0 or 1.
template <class C>
__device__ __forceinline__ uint32_t less_bytes(uint32_t a, uint32_t b) {
  const uint32_t by_sign = std::is_signed_v<C> ? a & ~b : ~a & b;
  return ((by_sign | (~(a ^ b) & ~differences(a, b))) & kHighBits) >> 7;
}
// Bytes of 1 where a byte is not 0.
__device__ __forceinline__ uint32_t truth_bytes(uint32_t a) { return ((((a & ~kHighBits) + ~kHighBits) | a) & kHighBits) >> 7; }

// ---- any type ----

NARROWS_FUNCTION1(Identity, kCheap, return a;)
NARROWS_FUNCTION1(Neg, kCheap, {
  if constexpr (std::is_floating_point_v<C>)
    return -a;
  else
    return Wrap<C>(0) - wrap(a);
})
NARROWS_FUNCTION1(Abs, kCheap, {
  if constexpr (std::is_floating_point_v<C>)
    return std::fabs(a);
  else
    return a < 0 ? Wrap<C>(0) - wrap(a) : wrap(a);
})
NARROWS_FUNCTION1(Sign, kCheap, {
  if constexpr (std::is_floating_point_v<C>)
    return sign_of(a);
  else if constexpr (std::is_signed_v<C>)
    return (a > 0) - (a < 0);
  else
    return a != 0;
})
NARROWS_FUNCTION1(Square, kCheap, return wrap(a) * wrap(a);)
NARROWS_FUNCTION1(Relu, kCheap, return a <= 0 ? C(0) : a;)
NARROWS_FUNCTION1(LogicalNot, kCheap, return a == 0;)
NARROWS_FUNCTION1(IsNan, kCheap, return a != a;)
NARROWS_FUNCTION2_BYTES(Add, wrap(a) + wrap(b), ((a & ~kHighBits) + (b & ~kHighBits)) ^ ((a ^ b) & kHighBits))
NARROWS_FUNCTION2_BYTES(Sub, wrap(a) - wrap(b), differences(a, b) ^ (~(a ^ b) & kHighBits))
NARROWS_FUNCTION2(Mul, kCheap, return wrap(a) * wrap(b);)
NARROWS_FUNCTION2(Maximum, kCheap, return a > b || a != a ? a : b;)
NARROWS_FUNCTION2(Minimum, kCheap, return a < b || a != a ? a : b;)
NARROWS_FUNCTION2(Equal, kCheap, return a == b;)
NARROWS_FUNCTION2(NotEqual, kCheap, return a != b;)
NARROWS_FUNCTION2_BYTES(Less, a < b, less_bytes<C>(a, b))
NARROWS_FUNCTION2_BYTES(LessEqual, a <= b, less_bytes<C>(b, a) ^ 0x01010101)
NARROWS_FUNCTION2_BYTES(LogicalAnd, a != 0 && b != 0, truth_bytes(a) & truth_bytes(b))
NARROWS_FUNCTION2_BYTES(LogicalOr, a != 0 || b != 0, truth_bytes(a | b))
NARROWS_FUNCTION2_BYTES(LogicalXor, (a != 0) != (b != 0), truth_bytes(a) ^ truth_bytes(b))
NARROWS_FUNCTION2_BYTES(LogicalEqual, (a != 0) == (b != 0), truth_bytes(a) ^ truth_bytes(b) ^ 0x01010101)

struct Fma {
  static constexpr int kArity = 3;
  static constexpr bool kHeavy = false;
  template <class C>
  static __device__ __forceinline__ auto apply(C a, C b, C c) {
    if constexpr (std::is_floating_point_v<C>)
      return std::fma(a, b, c);
    else
      return wrap(a) * wrap(b) + wrap(c);
  }
  template <class S>
  static __device__ __forceinline__ float apply_to_halves(float a, float b, float c) {
    return fma_half<S>(a, b, c);
  }
};
struct Clamp {
  static constexpr int kArity = 3;
  static constexpr bool kHeavy = false;
  template <class C>
  static __device__ __forceinline__ C apply(C a, C b, C c) {
    return Minimum::apply(Maximum::apply(a, b), c);
  }
};
// By the width of b and c alone; a is a bool's byte.
// Of floating-point numbers as unsigned integers.
NARROWS_FUNCTION2(CopySign, kCheap, {
  constexpr Wrap<C> kSign = Wrap<C>(1) << (kWidth<C> - 1);
  return (wrap(a) & (kSign - 1)) | (wrap(b) & kSign);
})
struct Where {
  static constexpr int kArity = 3;
  static constexpr bool kHeavy = false;
  template <class C>
  static __device__ __forceinline__ C apply(unsigned char a, C b, C c) {
    return a != 0 ? b : c;
  }
};

// ---- floating point ----

NARROWS_FUNCTION1(Sqrt, kCheap, return square_root(a);)
NARROWS_FUNCTION1(Rsqrt, kCheap, return C(1) / square_root(a);)
NARROWS_FUNCTION1(Cbrt, kCostly, return std::cbrt(a);)
NARROWS_FUNCTION1(Exp, kCheap, return std::exp(a);)
NARROWS_FUNCTION1(Exp2, kCheap, return std::exp2(a);)
NARROWS_FUNCTION1(Expm1, kCostly, return std::expm1(a);)
NARROWS_FUNCTION1(Log, kCheap, return std::log(a);)
NARROWS_FUNCTION1(Log2, kCheap, return std::log2(a);)
NARROWS_FUNCTION1(Log10, kCheap, return std::log10(a);)
NARROWS_FUNCTION1(Log1p, kCostly, return std::log1p(a);)
NARROWS_FUNCTION1_F16(Sin, kCostly, return std::sin(a), sin_f16(a))
NARROWS_FUNCTION1_F16(Cos, kCostly, return std::cos(a), cos_f16(a))
NARROWS_FUNCTION1_F16(Tan, kCostly, return std::tan(a), tan_f16(a))
NARROWS_FUNCTION1(Asin, kCostly, return std::asin(a);)
NARROWS_FUNCTION1(Acos, kCostly, return std::acos(a);)
NARROWS_FUNCTION1(Atan, kCostly, return std::atan(a);)
NARROWS_FUNCTION1(Sinh, kCostly, return std::sinh(a);)
NARROWS_FUNCTION1(Cosh, kCostly, return std::cosh(a);)
NARROWS_FUNCTION1_HALF(Tanh, kCheap, return std::tanh(a), tanh_half(a))
NARROWS_FUNCTION1(Asinh, kCostly, return std::asinh(a);)
NARROWS_FUNCTION1(Acosh, kCostly, return std::acosh(a);)
NARROWS_FUNCTION1(Atanh, kCostly, return std::atanh(a);)
NARROWS_FUNCTION1_HALF(Sigmoid, kCheap, return sigmoid(a), sigmoid_half(a))
NARROWS_FUNCTION2(Elu, kCostly, return a <= 0 ? b * std::expm1(a) : a;)  // b is alpha
NARROWS_FUNCTION1_HALF(Gelu, kCheap, return gelu(a), gelu_half(a))
NARROWS_FUNCTION1_HALF(GeluTanh, kCheap, return times_sigmoid(a, gelu_tanh_argument(a)), gelu_tanh_half(a))
NARROWS_FUNCTION1_HALF(Silu, kCheap, return silu(a), silu_half(a))
NARROWS_FUNCTION1(Softplus, kCostly, return softplus(a);)
NARROWS_FUNCTION1_HALF(Erf, kCheap, return std::erf(a), erf_half(a))
NARROWS_FUNCTION1(Erfc, kCostly, return std::erfc(a);)
NARROWS_FUNCTION1(Floor, kCheap, return std::floor(a);)
NARROWS_FUNCTION1(Ceil, kCheap, return std::ceil(a);)
NARROWS_FUNCTION1(Round, kCheap, return std::rint(a);)
NARROWS_FUNCTION1(Trunc, kCheap, return std::trunc(a);)
NARROWS_FUNCTION1(Reciprocal, kCheap, return C(1) / a;)
NARROWS_FUNCTION1(Sinc, kCheap, return sinc(a);)
NARROWS_FUNCTION1(IsInf, kCheap, return std::fabs(a) == std::numeric_limits<C>::infinity();)
NARROWS_FUNCTION1(IsFinite, kCheap, return std::fabs(a) < std::numeric_limits<C>::infinity();)
NARROWS_FUNCTION2(Div, kCheap, return a / b;)
NARROWS_FUNCTION2(Pow, kCostly, return power(a, b);)
NARROWS_FUNCTION2(Atan2, kCostly, return std::atan2(a, b);)
NARROWS_FUNCTION2(Hypot, kCostly, return std::hypot(a, b);)
NARROWS_FUNCTION2(Fmod, kCostly, return std::fmod(a, b);)
NARROWS_FUNCTION2(Remainder, kCostly, return python_remainder(a, b);)
NARROWS_FUNCTION2(Logaddexp, kCostly, return logaddexp(a, b);)

// ---- integers: division truncates and by zero gives 0; all else wraps ----

// Of numbers of which b is neither 0 nor more than 2^63, by two quotients in f64. The first has 51 right bits, so that the rest is
// less than 2^13 + 2b; the second takes that down to less than b, or one b past either end.
__device__ __forceinline__ uint64_t quotient_by_reals(uint64_t a, uint64_t b) {
  const double reciprocal = __drcp_rn(static_cast<double>(b));
  uint64_t q = static_cast<uint64_t>(static_cast<double>(a) * reciprocal);
  int64_t rest = static_cast<int64_t>(a - q * b);
  const int64_t more = static_cast<int64_t>(static_cast<double>(rest) * reciprocal);
  q += static_cast<uint64_t>(more);
  rest -= more * static_cast<int64_t>(b);
  return rest < 0 ? q - 1 : static_cast<uint64_t>(rest) >= b ? q + 1 : q;
}
__device__ __forceinline__ int64_t quotient_of(int64_t a, int64_t b) {
  const auto size = [](int64_t x) { return x < 0 ? uint64_t{0} - static_cast<uint64_t>(x) : static_cast<uint64_t>(x); };
  const uint64_t q = quotient_by_reals(size(a), size(b));
  return b == 0 ? 0 : static_cast<int64_t>((a ^ b) < 0 ? uint64_t{0} - q : q);
}
__device__ __forceinline__ uint64_t quotient_of(uint64_t a, uint64_t b) {
  return b >> 63 != 0 ? (a >= b ? 1 : 0) : b == 0 ? 0 : quotient_by_reals(a, b);
}
template <class C>
__device__ __forceinline__ C quotient_of(C a, C b) {
  const bool negates = std::is_signed_v<C> && b == static_cast<C>(-1);
  const C q = static_cast<C>(a / (b == 0 || negates ? C(1) : b));
  return b == 0 ? C(0) : negates ? static_cast<C>(Wrap<C>(0) - wrap(q)) : q;
}
template <class C>
__device__ __forceinline__ C rest_of(C a, C b) {
  return b == 0 ? C(0) : static_cast<C>(wrap(a) - wrap(quotient_of(a, b)) * wrap(b));
}
NARROWS_FUNCTION2(IntDiv, kCheap, return quotient_of(a, b);)
NARROWS_FUNCTION2(IntFmod, kCheap, return rest_of(a, b);)
NARROWS_FUNCTION2(IntRemainder, kCheap, {
  const C r = rest_of(a, b);
  if constexpr (std::is_signed_v<C>)
    if (r != 0 && (r < 0) != (b < 0)) return static_cast<C>(wrap(r) + wrap(b));
  return r;
})
NARROWS_FUNCTION2(IntPow, kCostly, {
  if constexpr (std::is_signed_v<C>)
    if (b < 0) return a == 1 ? C(1) : a != C(-1) ? C(0) : (b & 1) != 0 ? C(-1) : C(1);
  Wrap<C> result = 1, base = wrap(a);
  for (auto e = static_cast<std::make_unsigned_t<C>>(b); e != 0; e = static_cast<std::make_unsigned_t<C>>(e >> 1), base *= base)
    if (e & 1) result *= base;
  return static_cast<C>(result);
})
NARROWS_FUNCTION1(Never, kCheap, return false;)
NARROWS_FUNCTION1(Always, kCheap, return true;)
NARROWS_FUNCTION1(BitwiseNot, kCheap, return ~wrap(a);)
NARROWS_FUNCTION2(BitwiseAnd, kCheap, return a & b;)
NARROWS_FUNCTION2(BitwiseOr, kCheap, return a | b;)
NARROWS_FUNCTION2(BitwiseXor, kCheap, return a ^ b;)
// On the unsigned type: a negative b is a large one.
NARROWS_FUNCTION2(LeftShift, kCheap, return b < kWidth<C> ? static_cast<C>(wrap(a) << (b & (kWidth<C> - 1))) : C(0);)
NARROWS_FUNCTION2(RightShift, kCheap, {
  const auto places = static_cast<std::make_unsigned_t<C>>(b);
  if (places < kWidth<C>) return static_cast<C>(a >> (places & (kWidth<C> - 1)));
  if constexpr (std::is_signed_v<C>)
    if (a < 0) return C(-1);
  return C(0);
})

}  // namespace narrows::gpu
