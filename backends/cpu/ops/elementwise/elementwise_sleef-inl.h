// SPDX-License-Identifier: Apache-2.0
// elementwise_sleef-inl.h -- SLEEF's functions as functions of vectors, for each instruction set.
#if defined(NARROWS_ELEMENTWISE_SLEEF_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef NARROWS_ELEMENTWISE_SLEEF_INL_H
#undef NARROWS_ELEMENTWISE_SLEEF_INL_H
#else
#define NARROWS_ELEMENTWISE_SLEEF_INL_H
#endif

#include <hwy/highway.h>

#include <cstring>

// SLEEF's names: function, vector, bound of the error, instruction set. Declared here because sleef.h shows those of the
// compiler's own instruction set only. NARROWS_SLEEF_ALONE: how a function is called of which each lane is computed as if it were
// alone (SLEEF's "deterministic" ones); the usual ones of sin, cos and tan take for all lanes what the largest of them needs.
#undef NARROWS_SLEEF_F32
#undef NARROWS_SLEEF_F64
#undef NARROWS_SLEEF_ALONE
#if HWY_TARGET == HWY_AVX3
#define NARROWS_SLEEF_F32(name, bound) Sleef_##name##f16_##bound##avx512f
#define NARROWS_SLEEF_F64(name, bound) Sleef_##name##d8_##bound##avx512f
#elif HWY_TARGET == HWY_AVX2
#define NARROWS_SLEEF_F32(name, bound) Sleef_##name##f8_##bound##avx2
#define NARROWS_SLEEF_F64(name, bound) Sleef_##name##d4_##bound##avx2
#elif HWY_TARGET == HWY_SSE4
#define NARROWS_SLEEF_F32(name, bound) Sleef_##name##f4_##bound##sse4
#define NARROWS_SLEEF_F64(name, bound) Sleef_##name##d2_##bound##sse4
#elif HWY_TARGET == HWY_SCALAR
#define NARROWS_SLEEF_F32(name, bound) Sleef_##name##f1_##bound##purec
#define NARROWS_SLEEF_F64(name, bound) Sleef_##name##d1_##bound##purec
#elif HWY_ARCH_ARM_A64
#define NARROWS_SLEEF_F32(name, bound) Sleef_##name##f4_##bound##advsimd
#define NARROWS_SLEEF_F64(name, bound) Sleef_##name##d2_##bound##advsimd
#elif HWY_ARCH_X86  // the baseline, which Highway may emulate: SSE2
#define NARROWS_SLEEF_F32(name, bound) Sleef_##name##f4_##bound##sse2
#define NARROWS_SLEEF_F64(name, bound) Sleef_##name##d2_##bound##sse2
#else
#error "SLEEF's names for this instruction set are not known here"
#endif
#if HWY_NATIVE_FMA
#define NARROWS_SLEEF_ALONE(name) finz_##name
#else
#define NARROWS_SLEEF_ALONE(name) cinz_##name
#endif

HWY_BEFORE_NAMESPACE();
namespace narrows::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class T>
using Tag = hn::ScalableTag<T>;
template <class T>
using Vector = hn::Vec<Tag<T>>;

namespace sleef {
using F = Vector<float>;
using D = Vector<double>;
// What SLEEF takes: registers, also where Highway's emulated vectors are arrays of as many bytes.
#if HWY_TARGET == HWY_EMU128
using RawF = float __attribute__((vector_size(16)));
using RawD = double __attribute__((vector_size(16)));
#else
using RawF = decltype(F::raw);
using RawD = decltype(D::raw);
#endif
template <class To, class From>
HWY_INLINE To same_bits(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(static_cast<void*>(&to), &from, sizeof(to));  // a NEON vector is a class
  return to;
}
#define NARROWS_SLEEF1(ours, name, bound)                                                             \
  extern "C" RawF NARROWS_SLEEF_F32(name, bound)(RawF) __attribute__((const));                        \
  extern "C" RawD NARROWS_SLEEF_F64(name, bound)(RawD) __attribute__((const));                        \
  HWY_INLINE F ours(F a) { return same_bits<F>(NARROWS_SLEEF_F32(name, bound)(same_bits<RawF>(a))); } \
  HWY_INLINE D ours(D a) { return same_bits<D>(NARROWS_SLEEF_F64(name, bound)(same_bits<RawD>(a))); }
#define NARROWS_SLEEF2(ours, name, bound)                                                                                      \
  extern "C" RawF NARROWS_SLEEF_F32(name, bound)(RawF, RawF) __attribute__((const));                                           \
  extern "C" RawD NARROWS_SLEEF_F64(name, bound)(RawD, RawD) __attribute__((const));                                           \
  HWY_INLINE F ours(F a, F b) { return same_bits<F>(NARROWS_SLEEF_F32(name, bound)(same_bits<RawF>(a), same_bits<RawF>(b))); } \
  HWY_INLINE D ours(D a, D b) { return same_bits<D>(NARROWS_SLEEF_F64(name, bound)(same_bits<RawD>(a), same_bits<RawD>(b))); }
NARROWS_SLEEF1(cbrt_, cbrt, u10)
NARROWS_SLEEF1(exp_, exp, u10)
NARROWS_SLEEF1(exp2_, exp2, u10)
NARROWS_SLEEF1(expm1_, expm1, u10)
NARROWS_SLEEF1(log_, log, u10)
NARROWS_SLEEF1(log2_, log2, u10)
NARROWS_SLEEF1(log10_, log10, u10)
NARROWS_SLEEF1(log1p_, log1p, u10)
NARROWS_SLEEF1(sin_, NARROWS_SLEEF_ALONE(sin), u10)
NARROWS_SLEEF1(cos_, NARROWS_SLEEF_ALONE(cos), u10)
NARROWS_SLEEF1(tan_, NARROWS_SLEEF_ALONE(tan), u10)
NARROWS_SLEEF1(asin_, asin, u10)
NARROWS_SLEEF1(acos_, acos, u10)
NARROWS_SLEEF1(atan_, atan, u10)
NARROWS_SLEEF1(sinh_, sinh, u10)
NARROWS_SLEEF1(cosh_, cosh, u10)
NARROWS_SLEEF1(asinh_, asinh, u10)
NARROWS_SLEEF1(acosh_, acosh, u10)
NARROWS_SLEEF1(atanh_, atanh, u10)
NARROWS_SLEEF1(erfc_, erfc, u15)
NARROWS_SLEEF2(pow_, pow, u10)
NARROWS_SLEEF2(atan2_, atan2, u10)
NARROWS_SLEEF2(hypot_, hypot, u05)
#undef NARROWS_SLEEF1
#undef NARROWS_SLEEF2

// For f16 and bf16, which keep so much less than f32 that 3.5 units of it do not show.
#define NARROWS_SLEEF_HALF(function, name)                                   \
  extern "C" RawF NARROWS_SLEEF_F32(name, u35)(RawF) __attribute__((const)); \
  HWY_INLINE F function##_half(F a) { return same_bits<F>(NARROWS_SLEEF_F32(name, u35)(same_bits<RawF>(a))); }
NARROWS_SLEEF_HALF(tan, NARROWS_SLEEF_ALONE(tan))
NARROWS_SLEEF_HALF(asin, asin)
NARROWS_SLEEF_HALF(acos, acos)
NARROWS_SLEEF_HALF(atan, atan)
#undef NARROWS_SLEEF_HALF
}  // namespace sleef

}  // namespace narrows::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
