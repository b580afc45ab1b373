// SPDX-License-Identifier: Apache-2.0
// prelude.cpp -- what the text of a program begins with, for CUDA's and HIP's run-time compilers, which have no headers.
#include "ops/program/source.h"
#include "program_texts.h"

namespace narrows::gpu {
namespace {

constexpr const char* kTypes = R"(
typedef signed char i8; typedef short i16; typedef int i32; typedef long long i64;
typedef unsigned char u8; typedef unsigned short u16; typedef unsigned int u32; typedef unsigned long long u64;
typedef float f32; typedef double f64;
#define NW_INLINE static __device__ __forceinline__
#define NW_RESTRICT __restrict__
#define NW_ALIGNED __attribute__((aligned(16)))
#define NW_SHARED(alignment) __shared__ __attribute__((aligned(alignment)))
#define NW_SHARED_OF_LAUNCH(name) extern __shared__ __attribute__((aligned(1024))) char name[]
#define NW_UNROLL _Pragma("unroll")
#define nw_thread threadIdx.x
#define nw_block blockIdx.x
#define nw_blocks gridDim.x
#define nw_barrier() __syncthreads()
#ifndef NW_KERNEL  // a runtime that plays a GPU has its own
#define NW_KERNEL(name, Args, threads) extern "C" __global__ void __launch_bounds__(threads) name(const Args A)
#endif
template <class To, class From> NW_INLINE To nw_bits_as(From from) {
  union { From from; To to; } both;
  both.from = from;
  return both.to;
}
NW_INLINE f32 nw_float(u32 bits) { return nw_bits_as<f32>(bits); }
NW_INLINE f64 nw_double(u64 bits) { return nw_bits_as<f64>(bits); }
NW_INLINE f32 nw_param_f32(i64 bits) { return nw_float((u32)bits); }
NW_INLINE f64 nw_param_f64(i64 bits) { return nw_bits_as<f64>(bits); }
NW_INLINE bool nw_param_bool(i64 bits) { return bits != 0; }
NW_INLINE i64 nw_param_i64(i64 bits) { return bits; }
)"
                               R"(
template <class T> NW_INLINE T nw_floor_div(T a, T b) {
  if (b == 0) return 0;
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}
template <class T> NW_INLINE T nw_remainder(T a, T b) {
  if (b == 0) return 0;
  T r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
template <class T> NW_INLINE T nw_maximum(T a, T b) { return a > b || a != a ? a : b; }
template <class T> NW_INLINE T nw_minimum(T a, T b) { return a < b || a != a ? a : b; }
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 900
// ptxas (12.9 to 13.5) fuses a sum and a maximum. Where it unrolls a loop and knows the terms, it may be wrong: max(2 - 1, 0) becomes
// max(1 - 2, 0). It does not fuse a comparison and a choice.
NW_INLINE i32 nw_maximum(i32 a, i32 b) {
  i32 out;
  asm("{ .reg .pred p; setp.gt.s32 p, %1, %2; selp.s32 %0, %1, %2, p; }" : "=r"(out) : "r"(a), "r"(b));
  return out;
}
NW_INLINE i32 nw_minimum(i32 a, i32 b) {
  i32 out;
  asm("{ .reg .pred p; setp.lt.s32 p, %1, %2; selp.s32 %0, %1, %2, p; }" : "=r"(out) : "r"(a), "r"(b));
  return out;
}
#endif
template <class T> NW_INLINE T nw_relu(T a) { return a <= 0 ? T(0) : a; }
template <class T> NW_INLINE T nw_square(T a) { return a * a; }
NW_INLINE i64 nw_clamp(i64 x, i64 low, i64 high) { return nw_minimum(nw_maximum(x, low), high); }
NW_INLINE i64 nw_of_u64(u64 x) { return x > 0x7fffffffffffffffULL ? 0x7fffffffffffffffLL : (i64)x; }
NW_INLINE f32 nw_fma32(f32 a, f32 b, f32 c) { return fmaf(a, b, c); }
NW_INLINE f64 nw_fma64(f64 a, f64 b, f64 c) { return fma(a, b, c); }
NW_INLINE f32 nw_copysign32(f32 a, f32 b) {
  return nw_float((nw_bits_as<u32>(a) & 0x7fffffffu) | (nw_bits_as<u32>(b) & 0x80000000u));
}
NW_INLINE f64 nw_copysign64(f64 a, f64 b) {
  return nw_double((nw_bits_as<u64>(a) & 0x7fffffffffffffffULL) | (nw_bits_as<u64>(b) & 0x8000000000000000ULL));
}
)"
                               R"(
NW_INLINE f32 nw_from_bf16(u16 h) { return nw_float((u32)h << 16); }
NW_INLINE u16 nw_bf16_bits(f32 x) {
  const u32 u = nw_bits_as<u32>(x);
  return x == x ? (u16)((u + 0x7fffu + (u >> 16 & 1u)) >> 16) : (u16)0x7fff;
}
#if defined(__CUDACC__)
NW_INLINE f32 nw_from_f16(u16 h) { f32 x; asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h)); return x; }
NW_INLINE u16 nw_to_f16(f32 x) { u16 h; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x)); return h; }
#if __CUDA_ARCH__ >= 800
NW_INLINE u16 nw_to_bf16(f32 x) { u16 h; asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(x)); return h; }
#else
NW_INLINE u16 nw_to_bf16(f32 x) { return nw_bf16_bits(x); }
#endif
#else
NW_INLINE f32 nw_from_f16(u16 h) { return (f32)nw_bits_as<_Float16>(h); }
NW_INLINE u16 nw_to_f16(f32 x) { return nw_bits_as<u16>((_Float16)x); }
NW_INLINE u16 nw_to_bf16(f32 x) { return nw_bf16_bits(x); }
#endif
NW_INLINE f32 nw_round_f16(f32 x) { return nw_from_f16(nw_to_f16(x)); }
NW_INLINE f32 nw_round_bf16(f32 x) { return nw_from_bf16(nw_to_bf16(x)); }
)"
                               R"(
template <int B> struct nw_piece;
template <> struct nw_piece<2> { typedef u16 type; };
template <> struct nw_piece<4> { typedef u32 type; };
template <> struct nw_piece<8> { typedef uint2 type; };
template <> struct nw_piece<16> { typedef uint4 type; };
template <int B> constexpr int nw_width = B % 16 == 0 ? 16 : B % 8 == 0 ? 8 : B % 4 == 0 ? 4 : 2;
template <class T, int N> NW_INLINE void nw_read_run(T (&to)[N], const T* from) {
  typedef typename nw_piece<nw_width<N * (int)sizeof(T)>>::type Piece;
#pragma unroll
  for (int i = 0; i < N * (int)sizeof(T) / (int)sizeof(Piece); ++i) ((Piece*)to)[i] = ((const Piece*)from)[i];
}
template <class T, int N> NW_INLINE void nw_write_run(T* to, const T (&from)[N]) {
  typedef typename nw_piece<nw_width<N * (int)sizeof(T)>>::type Piece;
#pragma unroll
  for (int i = 0; i < N * (int)sizeof(T) / (int)sizeof(Piece); ++i) ((Piece*)to)[i] = ((const Piece*)from)[i];
}
)"
                               R"(
// A matrix of 16-bit elements in panels of 64 columns, of which each row's 8 runs of 8 are exchanged by the row's number.
NW_INLINE ix nw_panel(ix row, ix column, ix rows) {
  return (column >> 6) * (rows * 64) + row * 64 + ((column ^ (row << 3)) & 56) + (column & 7);
}
#if defined(__CUDACC__)
NW_INLINE u32 nw_in_shared(const void* address) {
  u64 out;
  asm("cvta.to.shared.u64 %0, %1;" : "=l"(out) : "l"(address));
  return (u32)out;
}
#endif
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 800  // copies into shared memory while the threads compute
template <int N, class T> NW_INLINE void nw_copy_ahead(T* to, const T* from) {
  constexpr int kWidth = nw_width<N * (int)sizeof(T)>;
  typedef typename nw_piece<kWidth>::type Piece;
  NW_UNROLL for (int i = 0; i < N * (int)sizeof(T) / kWidth; ++i) {
    const u32 place = nw_in_shared((Piece*)to + i);
    if constexpr (kWidth == 16)
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" : : "r"(place), "l"((const Piece*)from + i) : "memory");
    else if constexpr (kWidth >= 4)
      asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" : : "r"(place), "l"((const Piece*)from + i), "n"(kWidth) : "memory");
    else
      ((Piece*)to)[i] = ((const Piece*)from)[i];
  }
}
NW_INLINE void nw_copies_commit() { asm volatile("cp.async.commit_group;" : : : "memory"); }
template <int N> NW_INLINE void nw_copies_wait() { asm volatile("cp.async.wait_group %0;" : : "n"(N) : "memory"); }
#else
template <int N, class T> NW_INLINE void nw_copy_ahead(T* to, const T* from) {
  NW_UNROLL for (int i = 0; i < N; ++i) to[i] = from[i];
}
NW_INLINE void nw_copies_commit() {}
template <int N> NW_INLINE void nw_copies_wait() {}
#endif
)"
                               R"(
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)  // products of four warps: factors in panels
NW_INLINE void nw_group_begin() { asm volatile("wgmma.fence.sync.aligned;" : : : "memory"); }
NW_INLINE void nw_group_commit() { asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory"); }
template <int N> NW_INLINE void nw_group_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" : : "n"(N) : "memory"); }
NW_INLINE void nw_group_fence() { asm volatile("fence.proxy.async.shared::cta;" : : : "memory"); }
// panel: bytes from one to the next. 8 rows are 1024 bytes, and the layout is that of 128 exchanged bytes.
NW_INLINE u64 nw_group_matrix(const u16* first, int panel) {
  return (u64)((nw_in_shared(first) & 0x3ffff) >> 4) | (u64)(panel >> 4) << 16 | (u64)(1024 >> 4) << 32 | (u64)1 << 62;
}
#endif
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 750  // products of a warp: 4 or 2 tiles of 8 x 8 elements of 16 bits, and m16n8k16
#define nw_lane ix(threadIdx.x & 31)
#define nw_warp_barrier() __syncwarp()
NW_INLINE u32 nw_pair(u16 low, u16 high) { return low | (u32)high << 16; }
NW_INLINE u32 nw_read_pair(const u16* from) { return *(const u32*)from; }
#define NW_READ_TILES(name, mode) \
  NW_INLINE void name(u32 (&to)[4], const u16* from) { \
    asm volatile("ldmatrix.sync.aligned.m8n8.x4" mode ".shared.b16 {%0, %1, %2, %3}, [%4];" \
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(nw_in_shared(from)) : "memory"); \
  } \
  NW_INLINE void name(u32 (&to)[2], const u16* from) { \
    asm volatile("ldmatrix.sync.aligned.m8n8.x2" mode ".shared.b16 {%0, %1}, [%2];" \
                 : "=r"(to[0]), "=r"(to[1]) : "r"(nw_in_shared(from)) : "memory"); \
  }
NW_READ_TILES(nw_read_tiles, "")
NW_READ_TILES(nw_read_tiles_across, ".trans")
#if __CUDA_ARCH__ >= 800
#define NW_MMA(type) \
  NW_INLINE void nw_mma_##type(f32 (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) { \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." #type "." #type ".f32 " \
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1])); \
  }
#else  // sm_75 has no such unit: each thread asks others for their parts of its rows and columns
#define NW_MMA(type) \
  NW_INLINE void nw_mma_##type(f32 (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) { \
    const int g = threadIdx.x >> 2 & 7, t = threadIdx.x & 3; \
    NW_UNROLL for (int i = 0; i < 8; ++i) { \
      const u32 a0 = __shfl_sync(~0u, a[2 * (i >> 2)], 4 * g + (i & 3)), b0 = __shfl_sync(~0u, b[i >> 2], 8 * t + (i & 3)); \
      const u32 a1 = __shfl_sync(~0u, a[2 * (i >> 2) + 1], 4 * g + (i & 3)), b1 = __shfl_sync(~0u, b[i >> 2], 8 * t + 4 + (i & 3)); \
      NW_UNROLL for (int shift = 0; shift < 32; shift += 16) { \
        const f32 x0 = nw_from_##type((u16)(a0 >> shift)), x1 = nw_from_##type((u16)(a1 >> shift)); \
        const f32 y0 = nw_from_##type((u16)(b0 >> shift)), y1 = nw_from_##type((u16)(b1 >> shift)); \
        c[0] = fmaf(x0, y0, c[0]), c[1] = fmaf(x0, y1, c[1]), c[2] = fmaf(x1, y0, c[2]), c[3] = fmaf(x1, y1, c[3]); \
      } \
    } \
  }
#endif
NW_MMA(f16)
NW_MMA(bf16)
#endif
)"
                               R"(
#if defined(__gfx1100__) || defined(__gfx1101__) || defined(__gfx1102__) || defined(__gfx1103__)  // RDNA 3: 16 x 16 x 16 by a wave
#define NW_WAVE 32
#define NW_FACTORS 16
#define NW_SUMS 8
#define nw_depth(e) ix(e)
#define nw_row(e) ix(2 * (e) + (nw_lane >> 4))
#define NW_MULTIPLY_F16(a, b, c) __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(a, b, c)
#define NW_MULTIPLY_BF16(a, b, c) __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(a, b, c)
#elif defined(__gfx908__) || defined(__gfx90a__) || defined(__gfx940__) || defined(__gfx941__) || defined(__gfx942__)  // CDNA
#define NW_WAVE 64
#define NW_FACTORS 4
#define NW_SUMS 4
#define nw_depth(e) ix(4 * (nw_lane >> 4) + (e))
#define nw_row(e) nw_depth(e)
#define NW_MULTIPLY_F16(a, b, c) __builtin_amdgcn_mfma_f32_16x16x16f16(a, b, c, 0, 0, 0)
#ifndef __gfx908__
#define NW_MULTIPLY_BF16(a, b, c) __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(a, b, c, 0, 0, 0)
#endif
#endif
#ifdef NW_WAVE
#define nw_lane ix(threadIdx.x & (NW_WAVE - 1))
NW_INLINE void nw_warp_barrier() {
  __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "wavefront");
  __builtin_amdgcn_wave_barrier();
}
typedef f32 nw_sums __attribute__((ext_vector_type(NW_SUMS)));
typedef u16 nw_factor __attribute__((ext_vector_type(NW_FACTORS)));
typedef _Float16 nw_factor_f16 __attribute__((ext_vector_type(NW_FACTORS)));
typedef short nw_factor_bf16 __attribute__((ext_vector_type(NW_FACTORS)));
typedef nw_factor nw_factor_in_memory __attribute__((aligned(NW_FACTORS == 4 ? 8 : 16)));
NW_INLINE void nw_read_factor(nw_factor& to, const u16* from) { to = *(const nw_factor_in_memory*)from; }
NW_INLINE nw_sums nw_multiply_f16(nw_factor a, nw_factor b, nw_sums c) {
  return NW_MULTIPLY_F16(__builtin_bit_cast(nw_factor_f16, a), __builtin_bit_cast(nw_factor_f16, b), c);
}
#ifdef NW_MULTIPLY_BF16
NW_INLINE nw_sums nw_multiply_bf16(nw_factor a, nw_factor b, nw_sums c) {
  return NW_MULTIPLY_BF16(__builtin_bit_cast(nw_factor_bf16, a), __builtin_bit_cast(nw_factor_bf16, b), c);
}
#endif
#endif
)";

// What the functions of elementwise take from the standard library and from platform/.
constexpr const char* kLibrary = R"(
namespace nws {
#define NW_MATH1(name) \
  NW_INLINE f32 name(f32 x) { return ::name##f(x); } \
  NW_INLINE f64 name(f64 x) { return ::name(x); }
#define NW_MATH2(name) \
  NW_INLINE f32 name(f32 x, f32 y) { return ::name##f(x, y); } \
  NW_INLINE f64 name(f64 x, f64 y) { return ::name(x, y); }
NW_MATH1(fabs) NW_MATH1(sqrt) NW_MATH1(cbrt) NW_MATH1(exp) NW_MATH1(exp2) NW_MATH1(expm1) NW_MATH1(log) NW_MATH1(log2)
NW_MATH1(log10) NW_MATH1(log1p) NW_MATH1(sin) NW_MATH1(cos) NW_MATH1(tan) NW_MATH1(asin) NW_MATH1(acos) NW_MATH1(atan)
NW_MATH1(sinh) NW_MATH1(cosh) NW_MATH1(tanh) NW_MATH1(asinh) NW_MATH1(acosh) NW_MATH1(atanh) NW_MATH1(erf) NW_MATH1(erfc)
NW_MATH1(floor) NW_MATH1(ceil) NW_MATH1(rint) NW_MATH1(trunc)
NW_MATH2(pow) NW_MATH2(atan2) NW_MATH2(hypot) NW_MATH2(fmod)
NW_INLINE f32 fma(f32 x, f32 y, f32 z) { return ::fmaf(x, y, z); }
NW_INLINE f64 fma(f64 x, f64 y, f64 z) { return ::fma(x, y, z); }
NW_INLINE f32 copysign(f32 x, f32 y) { return nw_copysign32(x, y); }
NW_INLINE f64 copysign(f64 x, f64 y) { return nw_copysign64(x, y); }
NW_INLINE bool signbit(f32 x) { return nw_bits_as<u32>(x) >> 31 != 0; }
NW_INLINE bool signbit(f64 x) { return nw_bits_as<u64>(x) >> 63 != 0; }
template <class A, class B> constexpr bool is_same_v = false;
template <class A> constexpr bool is_same_v<A, A> = true;
template <class T> constexpr bool is_floating_point_v = is_same_v<T, f32> || is_same_v<T, f64>;
template <class T> constexpr bool is_integral_v = !is_floating_point_v<T>;
template <class T> constexpr bool is_signed_v = T(-1) < T(0);
template <class T> constexpr bool is_unsigned_v = is_integral_v<T> && !is_signed_v<T>;
template <class T> struct make_unsigned;
template <> struct make_unsigned<i8> { typedef u8 type; };
template <> struct make_unsigned<i16> { typedef u16 type; };
template <> struct make_unsigned<i32> { typedef u32 type; };
template <> struct make_unsigned<i64> { typedef u64 type; };
template <> struct make_unsigned<u8> { typedef u8 type; };
template <> struct make_unsigned<u16> { typedef u16 type; };
template <> struct make_unsigned<u32> { typedef u32 type; };
template <> struct make_unsigned<u64> { typedef u64 type; };
template <class T> using make_unsigned_t = typename make_unsigned<T>::type;
template <class A, class B> using common_type_t = decltype(true ? A() : B());
)"
                                 R"(
template <class T> struct numeric_limits {
  static constexpr bool kSigned = is_signed_v<T>;
  static __device__ constexpr T max() { return kSigned ? (T)(((u64)1 << (8 * sizeof(T) - 1)) - 1) : (T)~(u64)0; }
  static __device__ constexpr T min() { return kSigned ? (T)((u64)1 << (8 * sizeof(T) - 1)) : (T)0; }
};
template <> struct numeric_limits<f32> {
  static __device__ constexpr f32 max() { return 0x1.fffffep127f; }
  static __device__ constexpr f32 min() { return 0x1p-126f; }
  static __device__ constexpr f32 infinity() { return __builtin_bit_cast(f32, 0x7f800000u); }
  static __device__ constexpr f32 quiet_NaN() { return __builtin_bit_cast(f32, 0x7fc00000u); }
};
template <> struct numeric_limits<f64> {
  static __device__ constexpr f64 max() { return 0x1.fffffffffffffp1023; }
  static __device__ constexpr f64 min() { return 0x1p-1022; }
  static __device__ constexpr f64 infinity() { return __builtin_bit_cast(f64, 0x7ff0000000000000ULL); }
  static __device__ constexpr f64 quiet_NaN() { return __builtin_bit_cast(f64, 0x7ff8000000000000ULL); }
};
}
namespace nw {
typedef i8 int8_t; typedef i16 int16_t; typedef i32 int32_t; typedef i64 int64_t;
typedef u8 uint8_t; typedef u16 uint16_t; typedef u32 uint32_t; typedef u64 uint64_t;
struct f16 {};
struct bf16 {};
#if defined(__CUDACC__)
NW_INLINE f32 fast_reciprocal(f32 x) { f32 y; asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
NW_INLINE f32 fast_exp2(f32 x) { f32 y; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
#else
NW_INLINE f32 fast_reciprocal(f32 x) { return __builtin_amdgcn_rcpf(x); }
NW_INLINE f32 fast_exp2(f32 x) { return ::exp2f(x); }
#endif
NW_INLINE f32 square_root(f32 x) { return ::sqrtf(x); }
NW_INLINE f64 square_root(f64 x) { return ::sqrt(x); }
NW_INLINE uint4 load_16_bytes(const void* from) { return *(const uint4*)from; }
}
)";

constexpr const char* kCalls = R"(
namespace nw {
template <class S> struct Computed { typedef S type; };
template <> struct Computed<f16> { typedef f32 type; };
template <> struct Computed<bf16> { typedef f32 type; };
// R: the result's type. S: the operands' dtype, by which functions of 16 bits are chosen.
template <class F, class R, class S, class... A> NW_INLINE R call(A... a) {
  typedef typename Computed<S>::type C;
  constexpr bool is_half = nws::is_same_v<S, f16> || nws::is_same_v<S, bf16>;
  if constexpr (!is_half || nws::is_same_v<R, bool>) {
    return (R)F::apply((C)a...);
  } else {
    f32 y;
    if constexpr (nws::is_same_v<S, f16> && requires { F::apply_f16(0.f); }) y = F::apply_f16(a...);
    else if constexpr (requires { F::apply_half(0.f); }) y = F::apply_half(a...);
    else if constexpr (requires { F::template apply_to_halves<S>(0.f, 0.f, 0.f); }) y = F::template apply_to_halves<S>(a...);
    else y = (f32)F::apply(a...);
    return nws::is_same_v<S, f16> ? nw_round_f16(y) : nw_round_bf16(y);
  }
}
}
)";

}  // namespace

std::string gpu_prelude(bool with_functions) {
  std::string out = kTypes;
  if (!with_functions) return out;
  for (const char* part :
       {kLibrary, static_cast<const char*>(kElementwise_half), static_cast<const char*>(kElementwise_math),
        static_cast<const char*>(kElementwise_functions), static_cast<const char*>(kElementwise_convert), kCalls})
    out += part;
  return out;
}

}  // namespace narrows::gpu
