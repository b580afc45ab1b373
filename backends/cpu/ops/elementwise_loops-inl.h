// elementwise_loops-inl.h -- functions of one line, for integers and floating point: plain loops, which the compiler vectorises
// for each target. Step 5 of a tensor's path.
#if defined(NARROWS_ELEMENTWISE_LOOPS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef NARROWS_ELEMENTWISE_LOOPS_INL_H
#undef NARROWS_ELEMENTWISE_LOOPS_INL_H
#else
#define NARROWS_ELEMENTWISE_LOOPS_INL_H
#endif

#include <hwy/highway.h>

#include <cmath>
#include <limits>
#include <type_traits>

#include "elementwise.h"

// An output may be an input, element for element: iterations are independent all the same.
#if defined(__clang__)
#define NARROWS_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define NARROWS_INDEPENDENT _Pragma("GCC ivdep")
#endif

HWY_BEFORE_NAMESPACE();
namespace narrows::cpu::HWY_NAMESPACE {

// One row of a table of kernels.
struct Entry {
  int function;
  Kernel kernel;
};

template <size_t N>
Kernel find_kernel(const Entry (&table)[N], int function) {
  for (const Entry& entry : table)
    if (entry.function == function) return entry.kernel;
  return nullptr;
}

template <class T, class F>
void loop(const void* const* in, void* out, int64_t n, double) {
  const F f{};
  const T* a = static_cast<const T*>(in[0]);
  if constexpr (std::is_invocable_v<F, T>) {
    auto* o = static_cast<decltype(f(T()))*>(out);
    NARROWS_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) o[i] = f(a[i]);
  } else if constexpr (std::is_invocable_v<F, T, T>) {
    const T* b = static_cast<const T*>(in[1]);
    auto* o = static_cast<decltype(f(T(), T()))*>(out);
    NARROWS_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) o[i] = f(a[i], b[i]);
  } else {
    const T *b = static_cast<const T*>(in[1]), *c = static_cast<const T*>(in[2]);
    auto* o = static_cast<decltype(f(T(), T(), T()))*>(out);
    NARROWS_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) o[i] = f(a[i], b[i], c[i]);
  }
}

// Arithmetic that wraps: on an unsigned type that is not promoted to int; floating point as it is.
template <class T, bool = std::is_floating_point_v<T>>
struct WrapOf {
  using type = T;
};
template <class T>
struct WrapOf<T, false> {
  using type = std::common_type_t<std::make_unsigned_t<T>, unsigned>;
};
template <class T>
using Wrap = typename WrapOf<T>::type;
template <class T>
constexpr bool is_float = std::is_floating_point_v<T>;

#define NARROWS_UNARY(Name, R, ...)                \
  struct Name {                                    \
    template <class T>                             \
    HWY_INLINE R operator()(T a) const __VA_ARGS__ \
  };
#define NARROWS_BINARY(Name, R, ...)                    \
  struct Name {                                         \
    template <class T>                                  \
    HWY_INLINE R operator()(T a, T b) const __VA_ARGS__ \
  };
#define NARROWS_TERNARY(Name, R, ...)                        \
  struct Name {                                              \
    template <class T>                                       \
    HWY_INLINE R operator()(T a, T b, T c) const __VA_ARGS__ \
  };

NARROWS_UNARY(Neg, T, {
  if constexpr (is_float<T>) return -a;
  return static_cast<T>(Wrap<T>{0} - static_cast<Wrap<T>>(a));
})
NARROWS_UNARY(Abs, T, {
  if constexpr (is_float<T>) return std::abs(a);
  if constexpr (std::is_unsigned_v<T>) return a;
  return a < 0 ? Neg{}(a) : a;
})
NARROWS_UNARY(Sign, T, {
  const T sign = static_cast<T>((a > 0) - (a < 0));
  if constexpr (is_float<T>) return a != a ? a : sign;
  return sign;
})
NARROWS_UNARY(Square, T, { return static_cast<T>(static_cast<Wrap<T>>(a) * static_cast<Wrap<T>>(a)); })
NARROWS_UNARY(Relu, T, {
  if constexpr (is_float<T>) return a != a || a > 0 ? a : T{0};
  return a > 0 ? a : T{0};
})
NARROWS_UNARY(Identity, T, { return a; })
NARROWS_UNARY(LogicalNot, bool, { return a == 0; })
NARROWS_UNARY(BitwiseNot, T, { return static_cast<T>(~a); })
NARROWS_UNARY(IsNan, bool, { return a != a; })

NARROWS_BINARY(Add, T, { return static_cast<T>(static_cast<Wrap<T>>(a) + static_cast<Wrap<T>>(b)); })
NARROWS_BINARY(Sub, T, { return static_cast<T>(static_cast<Wrap<T>>(a) - static_cast<Wrap<T>>(b)); })
NARROWS_BINARY(Mul, T, { return static_cast<T>(static_cast<Wrap<T>>(a) * static_cast<Wrap<T>>(b)); })
// NaN from either side goes through.
NARROWS_BINARY(Maximum, T, { return a > b || a != a ? a : b; })
NARROWS_BINARY(Minimum, T, { return a < b || a != a ? a : b; })
NARROWS_BINARY(Equal, bool, { return a == b; })
NARROWS_BINARY(NotEqual, bool, { return a != b; })
NARROWS_BINARY(Less, bool, { return a < b; })
NARROWS_BINARY(LessEqual, bool, { return a <= b; })
NARROWS_BINARY(Greater, bool, { return a > b; })
NARROWS_BINARY(GreaterEqual, bool, { return a >= b; })
NARROWS_BINARY(LogicalAnd, bool, { return (a != 0) & (b != 0); })
NARROWS_BINARY(LogicalOr, bool, { return (a != 0) | (b != 0); })
NARROWS_BINARY(LogicalXor, bool, { return (a != 0) ^ (b != 0); })
NARROWS_BINARY(BitwiseAnd, T, { return static_cast<T>(a & b); })
NARROWS_BINARY(BitwiseOr, T, { return static_cast<T>(a | b); })
NARROWS_BINARY(BitwiseXor, T, { return static_cast<T>(a ^ b); })

NARROWS_TERNARY(Fma, T, {
  if constexpr (is_float<T>) return std::fma(a, b, c);
  return static_cast<T>(static_cast<Wrap<T>>(a) * static_cast<Wrap<T>>(b) + static_cast<Wrap<T>>(c));
})
NARROWS_TERNARY(Clamp, T, { return Minimum{}(Maximum{}(a, b), c); })

// a ? b : c, by the width of b and c alone.
template <class Bits>
void where_loop(const void* const* in, void* out, int64_t n, double) {
  const auto* a = static_cast<const uint8_t*>(in[0]);
  const auto *b = static_cast<const Bits*>(in[1]), *c = static_cast<const Bits*>(in[2]);
  auto* o = static_cast<Bits*>(out);
  NARROWS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) o[i] = a[i] != 0 ? b[i] : c[i];
}

// What integers and floating point have in common.
template <class T>
constexpr Entry kLoops[] = {
    {NW_EW_NEG, loop<T, Neg>},
    {NW_EW_ABS, loop<T, Abs>},
    {NW_EW_SIGN, loop<T, Sign>},
    {NW_EW_SQUARE, loop<T, Square>},
    {NW_EW_RELU, loop<T, Relu>},
    {NW_EW_LOGICAL_NOT, loop<T, LogicalNot>},
    {NW_EW_ADD, loop<T, Add>},
    {NW_EW_SUB, loop<T, Sub>},
    {NW_EW_MUL, loop<T, Mul>},
    {NW_EW_MAXIMUM, loop<T, Maximum>},
    {NW_EW_MINIMUM, loop<T, Minimum>},
    {NW_EW_EQ, loop<T, Equal>},
    {NW_EW_NE, loop<T, NotEqual>},
    {NW_EW_LT, loop<T, Less>},
    {NW_EW_LE, loop<T, LessEqual>},
    {NW_EW_GT, loop<T, Greater>},
    {NW_EW_GE, loop<T, GreaterEqual>},
    {NW_EW_LOGICAL_AND, loop<T, LogicalAnd>},
    {NW_EW_LOGICAL_OR, loop<T, LogicalOr>},
    {NW_EW_LOGICAL_XOR, loop<T, LogicalXor>},
    {NW_EW_FMA, loop<T, Fma>},
    {NW_EW_CLAMP, loop<T, Clamp>},
};

}  // namespace narrows::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
