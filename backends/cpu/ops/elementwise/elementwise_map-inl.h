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

// ---- memory ----

// Elements of one type.
template <class S>
struct Elements {
  using T = Accumulate<S>;
  using D = hn::ScalableTag<T>;
  static constexpr int64_t kSize = sizeof(S), kVectors = kVectorsStored<S>;
  HWY_INLINE hn::Vec<D> load(const uint8_t* p) const { return LoadAs(D(), reinterpret_cast<const S*>(p)); }
  HWY_INLINE void store(const hn::Vec<D>* x, uint8_t* p, bool streamed) const {
    StoreWhole(D(), x, reinterpret_cast<S*>(p), streamed);
  }
};
// f16 or bf16: a loop that takes both is compiled once. It asks which at each vector, which a long function hides.
struct Halves : Elements<f16> {
  bool is_bf16;
  HWY_INLINE hn::Vec<D> load(const uint8_t* p) const { return is_bf16 ? Elements<bf16>().load(p) : Elements<f16>::load(p); }
  HWY_INLINE void store(const hn::Vec<D>* x, uint8_t* p, bool streamed) const {
    is_bf16 ? Elements<bf16>().store(x, p, streamed) : Elements<f16>::store(x, p, streamed);
  }
};

// ---- the loop ----

// A run that is no whole number of `whole` bytes, or streamed from a place between two, by a kernel that knows wholes alone: the
// last elements, and those before the first whole one, go through a whole on the stack. Elements have `size` bytes.
HWY_NOINLINE inline void map_parts(const Run& run, unsigned reads, int64_t size, int64_t whole, Kernel kernel) {
  HWY_ALIGN uint8_t part[5][std::max<size_t>(HWY_LANES(uint8_t), sizeof(double))];
  const int64_t n = run.n * size;
  uint8_t* out = static_cast<uint8_t*>(run.out);
  const int64_t past = run.streamed ? static_cast<int64_t>(reinterpret_cast<uintptr_t>(out)) & (whole - 1) : 0;
  const auto wholes_of = [&](int64_t bytes) { return bytes < whole ? bytes : bytes & -whole; };
  int64_t bytes = past != 0 ? std::min(n, whole - past) : wholes_of(n);
  for (int64_t i = 0; i < n; i += bytes, bytes = wholes_of(n - i)) {
    const bool is_part = bytes < whole;
    Run piece = run;
    for (int k = 0; k < 4; ++k) {
      if (!(reads >> k & 1) || run.constant[k]) continue;
      piece.in[k] = static_cast<const uint8_t*>(run.in[k]) + i;
      if (!is_part) continue;
      std::memset(part[k], 0, static_cast<size_t>(whole));
      std::memcpy(part[k], piece.in[k], static_cast<size_t>(bytes));
      piece.in[k] = part[k];
    }
    piece.out = is_part ? part[4] : out + i;
    piece.n = (is_part ? whole : bytes) / size;
    piece.streamed = run.streamed && !is_part;
    kernel(piece);
    if (is_part) std::memcpy(out + i, part[4], static_cast<size_t>(bytes));
  }
}

// The run of kernel `self`: applies f to vectors of the inputs whose bits are in Reads, from left to right; the others are 0. It
// sees f32 for f16 and bf16. Fetch: so few vectors are under way at once that each would wait for memory; inputs are fetched ahead.
// f stands here once: each copy of it would be compiled for every dtype and target.
template <unsigned Reads, bool Fetch, class Memory, class F>
HWY_INLINE void map_vectors(const Run& run, Memory memory, F f, Kernel self) {
  constexpr typename Memory::D d;
  using V = hn::Vec<decltype(d)>;
  constexpr size_t kInputs = 4;
  constexpr int64_t kVectors = Memory::kVectors, kSize = Memory::kSize, kAhead = 2048;
  const int64_t vector = static_cast<int64_t>(hn::Lanes(d)) * kSize, whole = kVectors * vector, n = run.n * kSize;  // bytes
  uint8_t* out = static_cast<uint8_t*>(run.out);
  const bool streamed = run.streamed;
  if ((n & (whole - 1)) != 0 || (streamed && (reinterpret_cast<uintptr_t>(out) & static_cast<uintptr_t>(whole - 1)) != 0))
    return map_parts(run, Reads, kSize, whole, self);
  HWY_ALIGN uint8_t same[kInputs][kVectors * HWY_LANES(hn::TFromD<decltype(d)>) * kSize];
  const uint8_t* in[kInputs];
  int64_t step[kInputs];
  for (size_t k = 0; k < kInputs; ++k) {
    if (!(Reads >> k & 1)) continue;
    step[k] = run.constant[k] ? 0 : 1;
    in[k] = run.constant[k] ? same[k] : static_cast<const uint8_t*>(run.in[k]);
    if (run.constant[k]) repeat_element<kSize>(run.in[k], whole / kSize, same[k]);
  }
  for (int64_t i = 0; i < n; i += whole) {
    V result[kVectors];
    for (int64_t w = 0; w < kVectors; ++w) {
      V v[kInputs] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
      for (size_t k = 0; k < kInputs; ++k)
        if (Reads >> k & 1) {
          const uint8_t* p = in[k] + (i + w * vector) * step[k];
          if (Fetch && w == 0) hwy::Prefetch(p + kAhead * step[k]);
          v[k] = memory.load(p);
        }
      result[w] = f(v);
    }
    memory.store(result, out + i, streamed);
  }
}

// ---- kernels of functions of one, two, three vectors ----

// F<S>{alpha} is a function of vectors, of elements that are stored as S. Those that are long are the same for f16 and bf16.
template <class F>
HWY_NOINLINE void map_halves(const Run& run, bool is_bf16, Kernel self) {
  map_vectors<F::kReads, true>(run, Halves{{}, is_bf16}, F{run.alpha}, self);
}
template <template <class> class F, class S>
void map_kernel(const Run& run) {
  if constexpr (sizeof(S) == 2 && F<S>::kIsLong)
    map_halves<F<f16>>(run, std::is_same_v<S, bf16>, map_kernel<F, S>);
  else
    map_vectors<F<S>::kReads, F<S>::kIsLong || sizeof(S) < sizeof(Accumulate<S>)>(run, Elements<S>(), F<S>{run.alpha},
                                                                                  map_kernel<F, S>);
}

constexpr bool kShort = false, kLong = true;
#define NARROWS_MAP(Name, length, reads, expression)         \
  template <class Storage>                                   \
  struct Name##_function {                                   \
    using S = Storage;                                       \
    using V = VectorOf<S>;                                   \
    static constexpr unsigned kReads = reads;                \
    static constexpr bool kIsLong = length;                  \
    double alpha;                                            \
    HWY_INLINE V operator()(const V* v) const {              \
      [[maybe_unused]] const V a = v[0], b = v[1], c = v[2]; \
      return expression;                                     \
    }                                                        \
  };                                                         \
  template <class S>                                         \
  inline constexpr Kernel Name = map_kernel<Name##_function, S>;
#define NARROWS_MAP1(Name, length, expression) NARROWS_MAP(Name, length, 1, expression)
#define NARROWS_MAP2(Name, length, expression) NARROWS_MAP(Name, length, 3, expression)
#define NARROWS_MAP3(Name, length, expression) NARROWS_MAP(Name, length, 7, expression)

NARROWS_MAP1(map_neg, kShort, hn::Neg(a))
NARROWS_MAP1(map_abs, kShort, hn::Abs(a))
NARROWS_MAP2(map_add, kShort, hn::Add(a, b))
NARROWS_MAP2(map_sub, kShort, hn::Sub(a, b))

}  // namespace narrows::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
