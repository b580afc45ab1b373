// SPDX-License-Identifier: Apache-2.0
// elementwise_int-inl.h -- integer functions. Everything wraps; division truncates and by zero gives 0.
#if defined(NARROWS_ELEMENTWISE_INT_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef NARROWS_ELEMENTWISE_INT_INL_H
#undef NARROWS_ELEMENTWISE_INT_INL_H
#else
#define NARROWS_ELEMENTWISE_INT_INL_H
#endif

#include "elementwise_map-inl.h"

HWY_BEFORE_NAMESPACE();
namespace narrows::cpu::HWY_NAMESPACE {

// The quotient, truncated, for b != 0. There is no vector instruction for it: up to 32 bits it goes by floating point, which is
// exact, because a quotient below an integer k stays further from k than half a unit in the last place.
template <class T>
HWY_INLINE T quotient(T a, T b) {
  if constexpr (sizeof(T) <= 2) return static_cast<T>(static_cast<int32_t>(static_cast<float>(a) / static_cast<float>(b)));
  if constexpr (std::is_same_v<T, int32_t>) {
    const double q = static_cast<double>(a) / b;  // 2^31 for INT_MIN / -1, which wraps
    return static_cast<int32_t>(q > std::numeric_limits<int32_t>::max() ? -q : q);
  }
  if constexpr (std::is_same_v<T, uint32_t>) return static_cast<uint32_t>(static_cast<double>(a) / b);
  if constexpr (std::is_same_v<T, int64_t>) return b == -1 ? Neg{}(a) : a / b;
  if constexpr (std::is_same_v<T, uint64_t>) return a / b;
}

NARROWS_BINARY(Div, T, {
  const T q = quotient<T>(a, b == 0 ? T{1} : b);
  return b == 0 ? T{0} : q;
})
NARROWS_BINARY(Fmod, T, {
  const T q = quotient<T>(a, b == 0 ? T{1} : b);
  return b == 0 ? T{0} : Sub{}(a, Mul{}(q, b));
})
NARROWS_BINARY(Remainder, T, {
  const T r = Fmod{}(a, b);
  return r != 0 && (r < 0) != (b < 0) ? Add{}(r, b) : r;
})
NARROWS_BINARY(Pow, T, {
  if (std::is_signed_v<T> && b < 0) {
    const T minus_one = static_cast<T>(-1);
    return a == 1 ? T{1} : a != minus_one ? T{0} : (b & 1) ? minus_one : T{1};
  }
  Wrap<T> result = 1, base = static_cast<Wrap<T>>(a);
  for (auto e = static_cast<std::make_unsigned_t<T>>(b); e != 0; e = static_cast<std::make_unsigned_t<T>>(e >> 1), base *= base)
    result *= e & 1 ? base : 1;
  return static_cast<T>(result);
})
template <class T>
constexpr unsigned kWidth = sizeof(T) * 8;
NARROWS_BINARY(LeftShift, T, {
  const bool inside = static_cast<std::make_unsigned_t<T>>(b) < kWidth<T>;
  const T shifted = static_cast<T>(static_cast<Wrap<T>>(a) << (static_cast<Wrap<T>>(b) & (kWidth<T> - 1)));
  return inside ? shifted : T{0};
})
NARROWS_BINARY(RightShift, T, {
  const bool inside = static_cast<std::make_unsigned_t<T>>(b) < kWidth<T>;
  const T shifted = static_cast<T>(a >> (static_cast<Wrap<T>>(b) & (kWidth<T> - 1)));
  return inside ? shifted : a < 0 ? static_cast<T>(-1) : T{0};
})

// What is one instruction or two goes by vectors of our own: streamed, the other loops pass through a piece of stack.
NARROWS_MAP1(map_same, kShort, a)
NARROWS_MAP1(map_not, kShort, hn::Not(a))
NARROWS_MAP1(map_positive, kShort, hn::Max(a, hn::Zero(hn::DFromV<V>())))
NARROWS_MAP2(map_max, kShort, hn::Max(a, b))
NARROWS_MAP2(map_min, kShort, hn::Min(a, b))
NARROWS_MAP2(map_and, kShort, hn::And(a, b))
NARROWS_MAP2(map_or, kShort, hn::Or(a, b))
NARROWS_MAP2(map_xor, kShort, hn::Xor(a, b))
NARROWS_MAP3(map_between, kShort, hn::Min(hn::Max(a, b), c))

template <class T>
using Signed = std::make_signed_t<T>;

template <class T>
constexpr Entry kIntKernels[] = {
    {NW_EW_NEG, map_neg<Signed<T>>},
    {NW_EW_ABS, std::is_signed_v<T> ? map_abs<Signed<T>> : map_same<Unsigned<T>>},
    {NW_EW_SIGN, loop<T, Sign>},
    {NW_EW_SQUARE, loop<Unsigned<T>, Square>},
    {NW_EW_RELU, map_positive<T>},
    {NW_EW_FLOOR, map_same<Unsigned<T>>},
    {NW_EW_CEIL, map_same<Unsigned<T>>},
    {NW_EW_ROUND, map_same<Unsigned<T>>},
    {NW_EW_TRUNC, map_same<Unsigned<T>>},
    {NW_EW_BITWISE_NOT, map_not<Unsigned<T>>},
    {NW_EW_ADD, map_add<Unsigned<T>>},
    {NW_EW_SUB, map_sub<Unsigned<T>>},
    {NW_EW_MUL, loop<Unsigned<T>, Mul>},
    {NW_EW_DIV, loop<T, Div>},
    {NW_EW_POW, loop<T, Pow>},
    {NW_EW_MAXIMUM, map_max<T>},
    {NW_EW_MINIMUM, map_min<T>},
    {NW_EW_FMOD, loop<T, Fmod>},
    {NW_EW_REMAINDER, loop<T, Remainder>},
    {NW_EW_BITWISE_AND, map_and<Unsigned<T>>},
    {NW_EW_BITWISE_OR, map_or<Unsigned<T>>},
    {NW_EW_BITWISE_XOR, map_xor<Unsigned<T>>},
    {NW_EW_BITWISE_LEFT_SHIFT, loop<Unsigned<T>, LeftShift>},
    {NW_EW_BITWISE_RIGHT_SHIFT, loop<T, RightShift>},
    {NW_EW_FMA, loop<Unsigned<T>, Fma>},
    {NW_EW_WHERE, kernel<where_body<Unsigned<T>>, T, uint8_t, T, T>},
    {NW_EW_CLAMP, map_between<T>},
};

template <class T>
Kernel int_lookup(int function) {
  const Kernel kernel = find_kernel(kPredicates<T>, function);
  return kernel != nullptr ? kernel : find_kernel(kIntKernels<T>, function);
}

}  // namespace narrows::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
