// SPDX-License-Identifier: Apache-2.0
// elementwise_loops-inl.h -- whatever gives a bool, and integer functions that are no one or two vector instructions: plain loops,
// which the compiler vectorises for each target.
#if defined(NARROWS_ELEMENTWISE_LOOPS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef NARROWS_ELEMENTWISE_LOOPS_INL_H
#undef NARROWS_ELEMENTWISE_LOOPS_INL_H
#else
#define NARROWS_ELEMENTWISE_LOOPS_INL_H
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <cmath>
#include <cstring>
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
namespace hn = hwy::HWY_NAMESPACE;

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

// ---- plain loops as kernels ----

using Loop = void (*)(const void* const* in, void* out, int64_t n);

// Past the caches, by whole vectors; the ends as usual.
HWY_INLINE void stream_bytes(const uint8_t* from, uint8_t* to, int64_t size) {
  constexpr hn::ScalableTag<uint8_t> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = std::min(size, -static_cast<int64_t>(reinterpret_cast<uintptr_t>(to)) & (lanes - 1));
  std::memcpy(to, from, static_cast<size_t>(i));
  for (; i + lanes <= size; i += lanes) hn::Stream(hn::LoadU(d, from + i), d, to + i);
  std::memcpy(to + i, from + i, static_cast<size_t>(size - i));
}

HWY_INLINE void fetch_bytes(const uint8_t* from, int64_t size) {
  for (int64_t i = 0; i < size; i += 64) hwy::Prefetch(from + i);
}

// One element of Size bytes, over and over: n of them, and more up to a whole vector.
template <size_t Size>
HWY_INLINE void repeat_element(const void* element, int64_t n, void* to) {
  using Bits = hwy::UnsignedFromSize<Size>;
  constexpr hn::ScalableTag<Bits> d;
  Bits bits;
  std::memcpy(&bits, element, Size);
  const auto same = hn::Set(d, bits);
  for (int64_t i = 0; i < n; i += static_cast<int64_t>(hn::Lanes(d))) hn::StoreU(same, d, static_cast<Bits*>(to) + i);
}

HWY_INLINE void repeat_element(const void* element, int64_t size, int64_t n, void* to) {
  switch (size) {
    case 1: return repeat_element<1>(element, n, to);
    case 2: return repeat_element<2>(element, n, to);
    case 4: return repeat_element<4>(element, n, to);
    default: return repeat_element<8>(element, n, to);
  }
}

// A loop knows arrays in memory alone: what is constant is repeated in one, and what is streamed goes through one, which stay in
// the first cache. One function for all loops, so that each loop is compiled once.
HWY_NOINLINE inline void run_pieces(const Run& run, Loop body, size_t inputs, const int64_t* sizes, int64_t out_size) {
  constexpr int64_t kPiece = 256, kAhead = 512;
  constexpr size_t kMostInputs = 3;
  alignas(64) uint8_t same[kMostInputs][kPiece * 8], result[kPiece * 8];
  const void* in[kMostInputs];
  for (size_t k = 0; k < inputs; ++k)
    if (run.constant[k]) repeat_element(run.in[k], sizes[k], std::min(kPiece, run.n), same[k]);
  uint8_t* out = static_cast<uint8_t*>(run.out);
  // So that memory is read while a piece is written. Of one input the processor does that by itself, and better.
  const bool fetch = inputs > 1 && run.streamed && run.n > kAhead;
  for (int64_t i = 0, n; i < run.n; i += n) {
    n = std::min(kPiece, run.n - i);
    for (size_t k = 0; k < inputs; ++k) in[k] = run.constant[k] ? same[k] : static_cast<const uint8_t*>(run.in[k]) + i * sizes[k];
    uint8_t* to = out + i * out_size;
    if (fetch)
      for (size_t k = 0; k < inputs; ++k)
        if (!run.constant[k]) fetch_bytes(static_cast<const uint8_t*>(in[k]) + kAhead * sizes[k], n * sizes[k]);
    body(in, run.streamed ? result : to, n);
    if (run.streamed) stream_bytes(result, to, n * out_size);
  }
}
template <Loop body, class Out, class... In>
void kernel(const Run& run) {
  constexpr size_t kInputs = sizeof...(In);
  static constexpr int64_t kSizes[] = {sizeof(In)...};
  bool pieces = run.streamed;
  for (size_t k = 0; k < kInputs; ++k) pieces |= run.constant[k];
  if (!pieces) return body(run.in, run.out, run.n);
  run_pieces(run, body, kInputs, kSizes, sizeof(Out));
}

template <class T, class F>
HWY_NOINLINE void loop_body(const void* const* in, void* out, int64_t n) {
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
template <class T, class F>
void loop(const Run& run) {
  if constexpr (std::is_invocable_v<F, T>)
    kernel<loop_body<T, F>, decltype(F()(T())), T>(run);
  else if constexpr (std::is_invocable_v<F, T, T>)
    kernel<loop_body<T, F>, decltype(F()(T(), T())), T, T>(run);
  else
    kernel<loop_body<T, F>, decltype(F()(T(), T(), T())), T, T, T>(run);
}

// ---- functions ----

// Arithmetic that wraps: on an unsigned type that is not promoted to int.
template <class T>
using Wrap = std::common_type_t<std::make_unsigned_t<T>, unsigned>;

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

NARROWS_UNARY(Neg, T, { return static_cast<T>(Wrap<T>{0} - static_cast<Wrap<T>>(a)); })
NARROWS_UNARY(Sign, T, { return static_cast<T>((a > 0) - (a < 0)); })
NARROWS_UNARY(Square, T, { return static_cast<T>(static_cast<Wrap<T>>(a) * static_cast<Wrap<T>>(a)); })
NARROWS_UNARY(LogicalNot, bool, { return a == 0; })
NARROWS_UNARY(IsNan, bool, { return a != a; })
NARROWS_UNARY(IsInf, bool, {
  if constexpr (std::is_integral_v<T>)
    return false;
  else
    return std::abs(a) == std::numeric_limits<T>::infinity();
})
NARROWS_UNARY(IsFinite, bool, {
  if constexpr (std::is_integral_v<T>)
    return true;
  else
    return std::abs(a) < std::numeric_limits<T>::infinity();
})

NARROWS_BINARY(Add, T, { return static_cast<T>(static_cast<Wrap<T>>(a) + static_cast<Wrap<T>>(b)); })
NARROWS_BINARY(Sub, T, { return static_cast<T>(static_cast<Wrap<T>>(a) - static_cast<Wrap<T>>(b)); })
NARROWS_BINARY(Mul, T, { return static_cast<T>(static_cast<Wrap<T>>(a) * static_cast<Wrap<T>>(b)); })
NARROWS_BINARY(Equal, bool, { return a == b; })
NARROWS_BINARY(NotEqual, bool, { return a != b; })
NARROWS_BINARY(Less, bool, { return a < b; })
NARROWS_BINARY(LessEqual, bool, { return a <= b; })
NARROWS_BINARY(Greater, bool, { return a > b; })
NARROWS_BINARY(GreaterEqual, bool, { return a >= b; })
NARROWS_BINARY(LogicalAnd, bool, { return (a != 0) & (b != 0); })
NARROWS_BINARY(LogicalOr, bool, { return (a != 0) | (b != 0); })
NARROWS_BINARY(LogicalXor, bool, { return (a != 0) ^ (b != 0); })

NARROWS_TERNARY(Fma, T, { return static_cast<T>(static_cast<Wrap<T>>(a) * static_cast<Wrap<T>>(b) + static_cast<Wrap<T>>(c)); })

// a ? b : c, by the width of b and c alone.
template <class Bits>
HWY_NOINLINE void where_body(const void* const* in, void* out, int64_t n) {
  const auto* a = static_cast<const uint8_t*>(in[0]);
  const auto *b = static_cast<const Bits*>(in[1]), *c = static_cast<const Bits*>(in[2]);
  auto* o = static_cast<Bits*>(out);
  NARROWS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {  // without a choice, for which the compiler finds no vectors of 16 bits
    const auto mask = static_cast<Bits>(-static_cast<Bits>(a[i] != 0));
    o[i] = static_cast<Bits>((b[i] & mask) | (c[i] & static_cast<Bits>(~mask)));
  }
}

// What gives a bool, of integers and floating point.
// For what is the same with a sign and without: one kernel for both.
template <class T>
using Unsigned = typename std::conditional_t<std::is_integral_v<T>, std::make_unsigned<T>, std::type_identity<T>>::type;
template <class T>
inline constexpr Entry kPredicates[] = {
    {NW_EW_LOGICAL_NOT, loop<Unsigned<T>, LogicalNot>},
    {NW_EW_ISNAN, loop<Unsigned<T>, IsNan>},
    {NW_EW_ISINF, loop<Unsigned<T>, IsInf>},
    {NW_EW_ISFINITE, loop<Unsigned<T>, IsFinite>},
    {NW_EW_EQ, loop<Unsigned<T>, Equal>},
    {NW_EW_NE, loop<Unsigned<T>, NotEqual>},
    {NW_EW_LT, loop<T, Less>},
    {NW_EW_LE, loop<T, LessEqual>},
    {NW_EW_GT, loop<T, Greater>},
    {NW_EW_GE, loop<T, GreaterEqual>},
    {NW_EW_LOGICAL_AND, loop<Unsigned<T>, LogicalAnd>},
    {NW_EW_LOGICAL_OR, loop<Unsigned<T>, LogicalOr>},
    {NW_EW_LOGICAL_XOR, loop<Unsigned<T>, LogicalXor>},
};

}  // namespace narrows::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
