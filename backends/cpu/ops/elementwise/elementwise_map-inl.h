// SPDX-License-Identifier: Apache-2.0
// elementwise_map-inl.h -- a function of vectors over a run: the loop of all kernels that give a floating-point type, and of
// integer functions that are an instruction or two.
#if defined(NARROWS_ELEMENTWISE_MAP_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef NARROWS_ELEMENTWISE_MAP_INL_H
#undef NARROWS_ELEMENTWISE_MAP_INL_H
#else
#define NARROWS_ELEMENTWISE_MAP_INL_H
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "elementwise_loops-inl.h"
#include "ops/convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace narrows::cpu::HWY_NAMESPACE {

template <class S>
using VectorOf = hn::Vec<hn::ScalableTag<Accumulate<S>>>;

// Applies f to vectors of the inputs whose bits are in Reads, from left to right; the others are 0. S is how an element is stored;
// f sees f32 for f16 and bf16. What is less than a vector goes through a vector's worth of stack. Where f is Long, or elements are
// converted, so few vectors are under way at once that each would wait for memory: the inputs are fetched ahead, which is work for
// nothing where f is an instruction or two.
constexpr bool kShort = false, kLong = true;
template <unsigned Reads, class S, bool Long = kShort, class F>
HWY_INLINE void map_vectors(const Run& run, F f) {
  using T = Accumulate<S>;
  constexpr hn::ScalableTag<T> d;
  using V = VectorOf<S>;
  constexpr size_t kInputs = 4;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), n = run.n;
  const S* a[kInputs];
  int64_t step[kInputs];
  HWY_ALIGN S same[kInputs][HWY_LANES(S)];
  for (size_t k = 0; k < kInputs; ++k) {
    a[k] = run.constant[k] ? same[k] : static_cast<const S*>(run.in[k]);
    step[k] = run.constant[k] ? 0 : 1;
    if (run.constant[k]) repeat_element<sizeof(S)>(run.in[k], 1, same[k]);
  }
  S* o = static_cast<S*>(run.out);
  const auto map_parts = [&](int64_t begin, int64_t end) HWY_ATTR {
    for (int64_t count; begin < end; begin += count) {
      count = std::min(lanes, end - begin);
      HWY_ALIGN S last[HWY_LANES(T)] = {};
      V v[kInputs] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
      for (size_t k = 0; k < kInputs; ++k) {
        if (!(Reads >> k & 1)) continue;
        std::copy_n(a[k] + begin * step[k], count, last);
        v[k] = LoadAs(d, last);
      }
      StoreAs(d, f(v), last);
      std::copy_n(last, count, o + begin);
    }
  };
  constexpr bool kFetch = Long || sizeof(S) < sizeof(T);
  constexpr int64_t kWhole = kVectorsStored<S>, kAhead = 2048 / static_cast<int64_t>(sizeof(S));
  int64_t i = 0;
  const auto map_wholes = [&](auto streamed) HWY_ATTR {
    for (; i + kWhole * lanes <= n; i += kWhole * lanes) {
      V result[kWhole];
      for (int64_t w = 0; w < kWhole; ++w) {
        V v[kInputs] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
        for (size_t k = 0; k < kInputs; ++k)
          if (Reads >> k & 1) {
            const S* p = a[k] + (i + w * lanes) * step[k];
            if (kFetch && w == 0) hwy::Prefetch(p + kAhead * step[k]);
            v[k] = LoadAs(d, p);
          }
        result[w] = f(v);
      }
      StoreWhole<streamed()>(d, result, o + i);
    }
  };
  if (run.streamed) {
    const int64_t past = static_cast<int64_t>(reinterpret_cast<uintptr_t>(o) / sizeof(S)) & (kWhole * lanes - 1);
    if (past != 0) map_parts(0, i = std::min(n, kWhole * lanes - past));
    map_wholes(std::true_type());
  } else {
    map_wholes(std::false_type());
  }
  map_parts(i, n);
}

// Kernels of functions of one, two, three vectors.
#define NARROWS_MAP1(Name, length, expression)                                \
  template <class S>                                                          \
  void Name(const Run& run) {                                                 \
    using V = VectorOf<S>;                                                    \
    map_vectors<1, S, length>(run, [alpha = run.alpha](const V* v) HWY_ATTR { \
      const V a = v[0];                                                       \
      (void)alpha;                                                            \
      return expression;                                                      \
    });                                                                       \
  }
#define NARROWS_MAP2(Name, length, expression)               \
  template <class S>                                         \
  void Name(const Run& run) {                                \
    using V = VectorOf<S>;                                   \
    map_vectors<3, S, length>(run, [](const V* v) HWY_ATTR { \
      const V a = v[0], b = v[1];                            \
      return expression;                                     \
    });                                                      \
  }
#define NARROWS_MAP3(Name, length, expression)               \
  template <class S>                                         \
  void Name(const Run& run) {                                \
    using V = VectorOf<S>;                                   \
    map_vectors<7, S, length>(run, [](const V* v) HWY_ATTR { \
      const V a = v[0], b = v[1], c = v[2];                  \
      return expression;                                     \
    });                                                      \
  }

NARROWS_MAP1(map_neg, kShort, hn::Neg(a))
NARROWS_MAP1(map_abs, kShort, hn::Abs(a))
NARROWS_MAP2(map_add, kShort, hn::Add(a, b))
NARROWS_MAP2(map_sub, kShort, hn::Sub(a, b))

}  // namespace narrows::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
