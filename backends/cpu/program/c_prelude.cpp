// SPDX-License-Identifier: Apache-2.0
// c_prelude.cpp -- see c_prelude.h.
#include "program/c_prelude.h"

#include "core/program/dtype.h"

namespace narrows::cpu {
namespace {

constexpr const char* kTypes = R"(typedef signed char i8; typedef short i16; typedef int i32; typedef long long i64;
typedef unsigned char u8; typedef unsigned short u16; typedef unsigned int u32; typedef unsigned long long u64;
typedef float f32; typedef double f64;
#define NW_ANY __attribute__((aligned(1), may_alias))
typedef i8 i8u NW_ANY; typedef i16 i16u NW_ANY; typedef i32 i32u NW_ANY; typedef i64 i64u NW_ANY;
typedef u8 u8u NW_ANY; typedef u16 u16u NW_ANY; typedef u32 u32u NW_ANY; typedef u64 u64u NW_ANY;
typedef f32 f32u NW_ANY; typedef f64 f64u NW_ANY;
#define NW_VECTOR(T, N) \
  typedef T T##x##N __attribute__((vector_size(N * sizeof(T)))); \
  typedef T T##x##N##u __attribute__((vector_size(N * sizeof(T)), aligned(1), may_alias));
#define NW_ALIGNED __attribute__((aligned(64)))
#define NW_INLINE static inline __attribute__((always_inline, unused))
#if defined(__clang__)
#define NW_SHUFFLE(a, b, MASK, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define NW_SHUFFLE(a, b, MASK, ...) __builtin_shuffle(a, b, (MASK){__VA_ARGS__})
#endif
#if defined(__AVX__)
#define NW_WRITE_PAST(p, x) __asm__("vmovntdq %1, %0" : "=m"(*p) : "v"(x))
#elif defined(__x86_64__)
#define NW_WRITE_PAST(p, x) __asm__("movntdq %1, %0" : "=m"(*p) : "x"(x))
#else
#define NW_WRITE_PAST(p, x) *p = x
#endif
#if defined(__x86_64__)
#define NW_FENCE __asm__ volatile("sfence" ::: "memory")
#else
#define NW_FENCE
#endif
#define NW_LANES(begin, end) ((end) > (begin) ? (~(u64)0 >> (64 - (end))) & (~(u64)0 << (begin)) : 0)
#define NW_PIN_PART(x) __asm__("" : "+m"(x))
#if defined(__AVX512F__)
#define NW_PIN(x) __asm__("" : "+v"(x))
#elif defined(__x86_64__)
#define NW_PIN(x) __asm__("" : "+x"(x))
#else
#define NW_PIN(x) __asm__("" : "+w"(x))
#endif
struct services {
  void* context;
  void (*parallel)(void*, i64, f64, void (*)(void*, i64, i64, i64), void*);
  void (*enter)(void*, i64, char**);
  void (*call)(const void*, const void*, const void*, const void*, void*, i64, f64);
  const void* const* functions;
};
struct frame { char* const* base; const i64* numbers; const struct services* services; i64 loops[32]; };
NW_INLINE i64 nw_floor_div(i64 a, i64 b) {
  if (b == 0) return 0;
  if (b == -1) return (i64)(0 - (u64)a);
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}
NW_INLINE i64 nw_remainder(i64 a, i64 b) {
  if (b == 0 || b == -1) return 0;
  i64 r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
NW_INLINE i64 nw_minimum(i64 a, i64 b) { return a < b ? a : b; }
NW_INLINE i64 nw_maximum(i64 a, i64 b) { return a > b ? a : b; }
NW_INLINE i64 nw_clamp(i64 x, i64 low, i64 high) { return nw_minimum(nw_maximum(x, low), high); }
NW_INLINE i64 nw_of_u64(u64 x) { return x > 0x7fffffffffffffffULL ? 0x7fffffffffffffffLL : (i64)x; }
)";

// The elements [begin, end) of a vector at p: TYPE, of ITEM. Lanes that are not read are 0.
constexpr const char* kParts = R"(
NW_INLINE TYPE nw_load_TYPE(const TYPEu* p, i64 begin, i64 end) {
  TYPE out = {0};
  for (i64 i = begin; i < end; ++i) out[i] = ((const ITEMu*)p)[i];
  return out;
}
NW_INLINE void nw_store_TYPE(TYPEu* p, TYPE x, i64 begin, i64 end) {
  for (i64 i = begin; i < end; ++i) ((ITEMu*)p)[i] = x[i];
}
)";
// Past the caches where p is aligned and `kept` is 0.
constexpr const char* kStream = R"(
NW_INLINE void nw_stream_TYPE(TYPEu* p, TYPE x, i64 kept) {
  if ((((u64)p | (u64)kept) & (sizeof(TYPE) - 1)) == 0) NW_WRITE_PAST(p, x);
  else *p = x;
}
)";
// By AVX-512, whose masks leave elements out of an access. BITS is the size of an element.
constexpr const char* kMaskedParts = R"(
NW_INLINE TYPE nw_load_TYPE(const TYPEu* p, i64 begin, i64 end) {
  TYPE out;
  __asm__("vmovdquBITS %1, %0%{%2%}%{z%}" : "=v"(out) : "m"(*p), "Yk"((MASK)NW_LANES(begin, end)));
  return out;
}
NW_INLINE void nw_store_TYPE(TYPEu* p, TYPE x, i64 begin, i64 end) {
  __asm__("vmovdquBITS %1, %0%{%2%}" : "+m"(*p) : "v"(x), "Yk"((MASK)NW_LANES(begin, end)));
}
)";

// In these $ is the ending of a type's name, "x16" or none; both kinds of types keep their bits in BITS and FLOAT.
constexpr const char* kScalarBits = R"(
NW_INLINE u32 nw_bits(f32 x) { u32 u; __builtin_memcpy(&u, &x, 4); return u; }
NW_INLINE f32 nw_float(u32 u) { f32 x; __builtin_memcpy(&x, &u, 4); return x; }
)";
constexpr const char* kVectorBits = R"(
NW_INLINE u32$ nw_bits$(f32$ x) { return (u32$)x; }
NW_INLINE f32$ nw_float$(u32$ u) { return (f32$)u; }
)";
constexpr const char* kFromBf16 = R"(NW_INLINE f32$ nw_from_bf16$(u16$ h) { return nw_float$(WIDEN(h) << 16); }
)";
constexpr const char* kToBf16 = R"(NW_INLINE u16$ nw_to_bf16$(f32$ x) {
  u32$ u = nw_bits$(x), nan = MASK((u & 0x7fffffffu) > 0x7f800000u);
  u32$ even = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  return NARROW((nan & ((u >> 16) | 0x40u)) | (~nan & even));
}
)";
// A number times 2^112 has f16's exponent as f32's; subnormal numbers become normal by it.
constexpr const char* kFromF16 = R"(NW_INLINE f32$ nw_from_f16$(u16$ h) {
  u32$ u = WIDEN(h), low = (u & 0x7fffu) << 13, special = MASK((u & 0x7c00u) == 0x7c00u);
  u32$ finite = nw_bits$(nw_float$(low) * 0x1p112f);
  return nw_float$(((u & 0x8000u) << 16) | (special & (low | 0x7f800000u)) | (~special & finite));
}
)";
// Below 2^-14 the last place is 2^-24, as that of 0.5 is: adding 0.5 rounds.
constexpr const char* kToF16 = R"(NW_INLINE u16$ nw_to_f16$(f32$ x) {
  u32$ u = nw_bits$(x), sign = u & 0x80000000u;
  u ^= sign;
  u32$ large = MASK(u >= 0x47800000u), small = MASK(u < 0x38800000u), nan = MASK(u > 0x7f800000u);
  u32$ normal = (u - 0x38000000u + 0xfffu + ((u >> 13) & 1u)) >> 13;
  u32$ subnormal = nw_bits$(nw_float$(u) + 0.5f) - 0x3f000000u;
  u32$ infinite = 0x7c00u | (nan & 0x200u);
  return NARROW((large & infinite) | (small & subnormal) | (~large & ~small & normal) | (sign >> 16));
}
)";

std::string replace_all(std::string text, const std::string& what, const std::string& by) {
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size()) text.replace(at, what.size(), by);
  return text;
}

std::string helper_text(const std::string& name, int lanes) {
  const std::string ending = lanes == 1 ? "" : "x" + std::to_string(lanes);
  const char* text = name == "nw_from_bf16"  ? kFromBf16
                     : name == "nw_to_bf16"  ? kToBf16
                     : name == "nw_from_f16" ? kFromF16
                                             : kToF16;
  std::string out = text;
  out = replace_all(out, "WIDEN(h)", lanes == 1 ? "((u32)h)" : "__builtin_convertvector(h, u32$)");
  out = replace_all(out, "NARROW(", lanes == 1 ? "(u16)(" : "NW_NARROW" + ending + "(");
  out = replace_all(out, "MASK(", lanes == 1 ? "-(u32)(" : "(u32$)(");
  return replace_all(out, "$", ending);
}

std::string parts_text(program::DType dtype, int lanes) {
  const std::string item = program::name_of(dtype);
  const int bits = program::bits_of(dtype), bytes = lanes * bits / 8;
  const auto of = [&](const char* text) {
    std::string out = replace_all(replace_all(text, "TYPE", item + "x" + std::to_string(lanes)), "ITEM", item);
    return replace_all(replace_all(out, "BITS", std::to_string(bits)), "MASK", lanes > 32 ? "u64" : "u32");
  };
  if (bytes < 16) return of(kParts);
  return "#if defined(__AVX512BW__) && defined(__AVX512VL__)" + of(kMaskedParts) + "#else" + of(kParts) + "#endif" + of(kStream);
}

}  // namespace

std::string c_prelude(const std::set<std::pair<program::DType, int>>& types, const std::set<std::pair<program::DType, int>>& parts,
                      const std::set<std::pair<std::string, int>>& helpers) {
  std::string out = kTypes;
  for (const auto& [dtype, lanes] : types) {
    if (lanes < 2 || dtype == program::DType::index || dtype == program::DType::boolean || dtype == program::DType::f16 ||
        dtype == program::DType::bf16)
      continue;
    out += std::string("NW_VECTOR(") + program::name_of(dtype) + ", " + std::to_string(lanes) + ")\n";
  }
  for (const auto& [dtype, lanes] : parts) out += parts_text(dtype, lanes);
  std::set<int> with_bits;
  for (const auto& [name, lanes] : helpers) {
    const std::string ending = lanes == 1 ? "" : "x" + std::to_string(lanes);
    if (with_bits.insert(lanes).second) {
      out += replace_all(lanes == 1 ? kScalarBits : kVectorBits, "$", ending);
      if (lanes > 1) out += replace_all("#define NW_NARROW$(v) __builtin_convertvector(v, u16$)\n", "$", ending);
    }
    out += helper_text(name, lanes);
  }
  return out;
}

}  // namespace narrows::cpu
