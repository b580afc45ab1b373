// SPDX-License-Identifier: Apache-2.0
// program.glsl -- what the shader of a tensor program's kernel begins with: types, accesses, and the functions that
// backends/common/program_printer.h and ops/program/source.cpp write. The includer defines ix, the type of subscripts (i32 or i64),
// and NARROWS_FLOAT64 where the kernel has an f64. Of a kernel with cooperative matrices, too: NW_SUBGROUP, the threads of a subgroup,
// each of which holds a part of a matrix; NW_WARP, the threads that the program shares a product out to, of which the first subgroup
// computes it; NW_BF16_MATRICES where some are of bf16; NW_IN_STEP where a subgroup's threads run in step.
#ifdef NW_SUBGROUP
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#ifdef NW_BF16_MATRICES
#extension GL_EXT_bfloat16 : require
#endif
#endif
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_explicit_arithmetic_types_int8 : require
#extension GL_EXT_shader_explicit_arithmetic_types_int16 : require
#include "float_controls.glsl"
#include "common.glsl"
#include "elementwise/elementwise_words.glsl"
#include "bits.glsl"
#include "elementwise/elementwise_cast.glsl"
#include "math_f32.glsl"
#ifdef NARROWS_FLOAT64
#include "program/program_f64.glsl"
#endif

#define i8 int8_t
#define i16 int16_t
#define i32 int
#define i64 int64_t
#define u8 uint8_t
#define u16 uint16_t
#define u32 uint
#define u64 uint64_t
#define f32 float
#define f64 double

// ---- threads ----

#define NW_UNROLL [[unroll]]
#define NW_ALIGNED
#ifdef NW_SUBGROUP  // the threads of a subgroup are neighbours: Vulkan does not say so of gl_LocalInvocationID
#define nw_lane gl_SubgroupInvocationID
#define nw_thread (gl_SubgroupID * NW_SUBGROUP + nw_lane)
#define nw_warp (gl_SubgroupID / (NW_WARP / NW_SUBGROUP))
#define nw_is_first_subgroup (gl_SubgroupID % (NW_WARP / NW_SUBGROUP) == 0)
#ifdef NW_IN_STEP
#define nw_warp_barrier() subgroupMemoryBarrier()
#else
#define nw_warp_barrier() subgroupBarrier()
#endif
#else
#define nw_thread gl_LocalInvocationID.x
#endif
#define nw_block gl_WorkGroupID.x
#define nw_blocks gl_NumWorkGroups.x
// What a thread wrote, to shared memory or to a buffer, the others of its block see afterwards.
void nw_barrier() {
  groupMemoryBarrier();
  barrier();
}

// ---- elements in memory; `_c`: of buffers that a kernel with barriers both reads and writes ----

#define NW_BUFFER(T, bytes, name, coherent_name)                                          \
  layout(buffer_reference, std430, buffer_reference_align = bytes) buffer name { T x; }; \
  layout(buffer_reference, std430, buffer_reference_align = bytes) coherent buffer coherent_name { T x; };
NW_BUFFER(i8, 1, Ref_i8, Coherent_i8)
NW_BUFFER(u8, 1, Ref_u8, Coherent_u8)
NW_BUFFER(i16, 2, Ref_i16, Coherent_i16)
NW_BUFFER(u16, 2, Ref_u16, Coherent_u16)
NW_BUFFER(i32, 4, Ref_i32, Coherent_i32)
NW_BUFFER(u32, 4, Ref_u32, Coherent_u32)
NW_BUFFER(f32, 4, Ref_f32, Coherent_f32)
NW_BUFFER(i64, 8, Ref_i64, Coherent_i64)
NW_BUFFER(u64, 8, Ref_u64, Coherent_u64)
#define nw_at(address, offset, bytes) ((address) + u64(i64(offset)) * bytes)
#define at_i8(address, offset) Ref_i8(nw_at(address, offset, 1ul)).x
#define at_u8(address, offset) Ref_u8(nw_at(address, offset, 1ul)).x
#define at_i16(address, offset) Ref_i16(nw_at(address, offset, 2ul)).x
#define at_u16(address, offset) Ref_u16(nw_at(address, offset, 2ul)).x
#define at_i32(address, offset) Ref_i32(nw_at(address, offset, 4ul)).x
#define at_u32(address, offset) Ref_u32(nw_at(address, offset, 4ul)).x
#define at_f32(address, offset) Ref_f32(nw_at(address, offset, 4ul)).x
#define at_i64(address, offset) Ref_i64(nw_at(address, offset, 8ul)).x
#define at_u64(address, offset) Ref_u64(nw_at(address, offset, 8ul)).x
#define at_i8_c(address, offset) Coherent_i8(nw_at(address, offset, 1ul)).x
#define at_u8_c(address, offset) Coherent_u8(nw_at(address, offset, 1ul)).x
#define at_i16_c(address, offset) Coherent_i16(nw_at(address, offset, 2ul)).x
#define at_u16_c(address, offset) Coherent_u16(nw_at(address, offset, 2ul)).x
#define at_i32_c(address, offset) Coherent_i32(nw_at(address, offset, 4ul)).x
#define at_u32_c(address, offset) Coherent_u32(nw_at(address, offset, 4ul)).x
#define at_f32_c(address, offset) Coherent_f32(nw_at(address, offset, 4ul)).x
#define at_i64_c(address, offset) Coherent_i64(nw_at(address, offset, 8ul)).x
#define at_u64_c(address, offset) Coherent_u64(nw_at(address, offset, 8ul)).x
#ifdef NARROWS_FLOAT64
NW_BUFFER(f64, 8, Ref_f64, Coherent_f64)
#define at_f64(address, offset) Ref_f64(nw_at(address, offset, 8ul)).x
#define at_f64_c(address, offset) Coherent_f64(nw_at(address, offset, 8ul)).x
#endif

// ---- the bits of a value, for casts and runs of elements ----

u64 nw_bits(i8 x) { return u64(u8(x)); }
u64 nw_bits(u8 x) { return u64(x); }
u64 nw_bits(i16 x) { return u64(u16(x)); }
u64 nw_bits(u16 x) { return u64(x); }
u64 nw_bits(i32 x) { return u64(u32(x)); }
u64 nw_bits(u32 x) { return u64(x); }
u64 nw_bits(i64 x) { return u64(x); }
u64 nw_bits(u64 x) { return x; }
u64 nw_bits(f32 x) { return u64(floatBitsToUint(x)); }
#define nw_of_bits_i8(bits) i8(bits)
#define nw_of_bits_u8(bits) u8(bits)
#define nw_of_bits_i16(bits) i16(bits)
#define nw_of_bits_u16(bits) u16(bits)
#define nw_of_bits_i32(bits) i32(bits)
#define nw_of_bits_u32(bits) u32(bits)
#define nw_of_bits_i64(bits) i64(bits)
#define nw_of_bits_u64(bits) u64(bits)
#define nw_of_bits_f32(bits) uintBitsToFloat(u32(bits))

// Of eight elements of 16 bits.
#define nw_half(words, i) u16(word_of(words, (i) / 2) >> (i) % 2 * 16)
#define nw_float(bits) uintBitsToFloat(bits)
#define nw_param_f32(bits) uintBitsToFloat(u32(bits))
#define nw_param_bool(bits) ((bits) != 0ul)
#define nw_param_i64(bits) i64(bits)

// ---- f16 and bf16, held as f32 ----

#define nw_from_f16(h) f32_from_f16(u32(h))
#define nw_from_bf16(h) f32_from_bf16(u32(h))
#define nw_to_f16(x) u16(f16_from_f32(x))
#define nw_to_bf16(x) u16(bf16_from_f32(x))
// By integers: NVIDIA's compiler takes a conversion to f16 and back by the device's own for none.
f32 nw_round_f16(f32 x) { return f32_from_f16_by_integers(f16_from_f32(x)); }
f32 nw_round_bf16(f32 x) { return f32_from_bf16(bf16_from_f32(x)); }
// a*b + c, to be rounded once to 16 bits.
precise f32 nw_fma_short(f32 a, f32 b, f32 c) {
  const bool is_plain = !is_finite(a) || !is_finite(b) || !is_finite(c) || is_zero(a) || is_zero(b) || is_zero(c);
  return is_plain ? a * b + c : fma_by_digits(a, b, c, true);
}

// ---- integers ----

// By words: Mesa 22.3.6 takes an i64 that was an i32 for unsigned where it is compared.
i64 nw_i64(i32 x) { return i64(pack64(uvec2(x, x >> 31))); }
i64 nw_i64(i16 x) { return nw_i64(i32(x)); }
i64 nw_i64(i8 x) { return nw_i64(i32(x)); }
i64 nw_i64(u32 x) { return i64(x); }
i64 nw_i64(u16 x) { return i64(x); }
i64 nw_i64(u8 x) { return i64(x); }
i64 nw_i64(i64 x) { return x; }

#define NW_ORDER(T)                                   \
  T nw_maximum(T a, T b) { return a > b ? a : b; }    \
  T nw_minimum(T a, T b) { return a < b ? a : b; }    \
  T nw_relu(T a) { return a > T(0) ? a : T(0); }      \
  T nw_abs(T a) { return a < T(0) ? T(T(0) - a) : a; }
NW_ORDER(i8)
NW_ORDER(u8)
NW_ORDER(i16)
NW_ORDER(u16)
NW_ORDER(i32)
NW_ORDER(u32)
NW_ORDER(i64)
NW_ORDER(u64)
bool nw_maximum(bool a, bool b) { return a || b; }
bool nw_minimum(bool a, bool b) { return a && b; }
#define NW_DIVISION(T)                                                      \
  T nw_floor_div(T a, T b) {                                                \
    if (b == T(0)) return T(0);                                             \
    const T q = a / b, r = a - q * b;                                       \
    return r != T(0) && (a < T(0)) != (b < T(0)) ? q - T(1) : q;            \
  }                                                                         \
  T nw_remainder(T a, T b) { return b == T(0) ? T(0) : a - nw_floor_div(a, b) * b; }
NW_DIVISION(i32)
NW_DIVISION(i64)
i64 nw_clamp(i64 x, i64 low, i64 high) { return nw_minimum(nw_maximum(x, low), high); }
i64 nw_of_u64(u64 x) { return x > 0x7ffffffffffffffful ? 0x7fffffffffffffffl : i64(x); }

// ---- floating point: each sum and product is rounded on its own, but for nw_fma32 and nw_fma64 ----

precise f32 nw_add(f32 a, f32 b) { return a + b; }
precise f32 nw_sub(f32 a, f32 b) { return a - b; }
precise f32 nw_mul(f32 a, f32 b) { return a * b; }
f32 nw_square(f32 a) { return nw_mul(a, a); }
f32 nw_maximum(f32 a, f32 b) { return larger(a, b); }
f32 nw_minimum(f32 a, f32 b) { return smaller(a, b); }
f32 nw_relu(f32 a) { return is_nan(a) || order_of(a) > 0 ? a : 0.0; }
#define nw_fma32(a, b, c) fma(a, b, c)
#define nw_copysign32(a, b) with_sign(a, b)

#ifdef NARROWS_FLOAT64
u64 nw_bits(f64 x) { return doubleBitsToUint64(x); }
#define nw_of_bits_f64(bits) uint64BitsToDouble(bits)
#define nw_double(bits) uint64BitsToDouble(bits)
#define nw_param_f64(bits) uint64BitsToDouble(bits)
precise f64 nw_add(f64 a, f64 b) { return a + b; }
precise f64 nw_sub(f64 a, f64 b) { return a - b; }
precise f64 nw_mul(f64 a, f64 b) { return a * b; }
f64 nw_square(f64 a) { return nw_mul(a, a); }
f64 nw_maximum(f64 a, f64 b) { return larger(a, b); }
f64 nw_minimum(f64 a, f64 b) { return smaller(a, b); }
f64 nw_relu(f64 a) { return is_nan(a) || order_of(a) > 0l ? a : f64(0); }
#define nw_fma64(a, b, c) fma(a, b, c)
#define nw_copysign64(a, b) with_sign(a, b)
#endif

// ---- the rest of the functions of integers, where the includer asks for them ----

#ifdef NW_INTEGERS
#define INTEGER int
#define UNSIGNED uint
#define WIDTH 32
#define SIGNED 1
#include "integers.glsl"
#undef INTEGER
#undef SIGNED
#define INTEGER uint
#define SIGNED 0
#include "integers.glsl"
#undef INTEGER
#undef UNSIGNED
#undef WIDTH
#undef SIGNED
#define INTEGER int64_t
#define UNSIGNED uint64_t
#define WIDTH 64
#define SIGNED 1
#include "integers.glsl"
#undef INTEGER
#undef SIGNED
#define INTEGER uint64_t
#define SIGNED 0
#include "integers.glsl"
#endif
