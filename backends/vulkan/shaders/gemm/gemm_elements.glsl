// SPDX-License-Identifier: Apache-2.0
// gemm_elements.glsl -- what conv1d and lltm know of a dtype: how an element is read and written, and ACC, the type that sums are
// kept in: f64 of f64, f32 of the others. Addresses are those of bytes. One of DTYPE_F32, DTYPE_F64, DTYPE_F16 and DTYPE_BF16 is
// defined, and ALIGNED by a module that is never given tensors off their elements' size. Included after common.glsl.
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_explicit_arithmetic_types_int8 : require
#extension GL_EXT_shader_explicit_arithmetic_types_int16 : require
#ifdef DTYPE_F64
#define NARROWS_FLOAT64
#endif
#include "float_controls.glsl"
#include "bits.glsl"

#ifdef ALIGNED
const bool kBytewise = false;
#else
layout(constant_id = 0) const bool kBytewise = false;  // a tensor's address may be no multiple of its elements' size
#endif

layout(buffer_reference, std430, buffer_reference_align = 1) buffer Byte { uint8_t v; };
layout(buffer_reference, std430, buffer_reference_align = 2) buffer Short { uint16_t v; };
layout(buffer_reference, std430, buffer_reference_align = 4) buffer Word { uint v; };
layout(buffer_reference, std430, buffer_reference_align = 8) buffer TwoWords { uvec2 v; };
layout(buffer_reference, std430, buffer_reference_align = 16) buffer FourWords { uvec4 v; };

// ---- bits of 2, 4 and 8 bytes ----

uint bits_16(uint64_t at) {
  if (kBytewise) return uint(Byte(at).v) | uint(Byte(at + 1).v) << 8;
  return uint(Short(at).v);
}
uint bits_32(uint64_t at) { return kBytewise ? bits_16(at) | bits_16(at + 2) << 16 : Word(at).v; }
uvec2 bits_64(uint64_t at) { return kBytewise ? uvec2(bits_32(at), bits_32(at + 4)) : TwoWords(at).v; }

void put_16(uint64_t at, uint bits) {
  if (kBytewise) {
    Byte(at).v = uint8_t(bits);
    Byte(at + 1).v = uint8_t(bits >> 8);
  } else {
    Short(at).v = uint16_t(bits);
  }
}
void put_32(uint64_t at, uint bits) {
  if (kBytewise) {
    put_16(at, bits & 0xffffu);
    put_16(at + 2, bits >> 16);
  } else {
    Word(at).v = bits;
  }
}
void put_64(uint64_t at, uvec2 bits) {
  if (kBytewise) {
    put_32(at, bits.x);
    put_32(at + 4, bits.y);
  } else {
    TwoWords(at).v = bits;
  }
}

// ---- sums: one of a tensor, one of the workspace, and four side by side at an address that is a multiple of 16 ----

#ifdef DTYPE_F64
#define ACC double
#define ACC4 dvec4
const int kAccSize = 8;
ACC load_acc(uint64_t at) { return packDouble2x32(bits_64(at)); }
void store_acc(uint64_t at, ACC x) { put_64(at, unpackDouble2x32(x)); }
ACC load_sum(uint64_t at) { return packDouble2x32(TwoWords(at).v); }
void store_sum(uint64_t at, ACC x) { TwoWords(at).v = unpackDouble2x32(x); }
ACC4 load_acc4(uint64_t at) {
  const uvec4 low = FourWords(at).v, high = FourWords(at + 16).v;
  return ACC4(packDouble2x32(low.xy), packDouble2x32(low.zw), packDouble2x32(high.xy), packDouble2x32(high.zw));
}
void store_acc4(uint64_t at, ACC4 x) {
  FourWords(at).v = uvec4(unpackDouble2x32(x.x), unpackDouble2x32(x.y));
  FourWords(at + 16).v = uvec4(unpackDouble2x32(x.z), unpackDouble2x32(x.w));
}
#else
#define ACC float
#define ACC4 vec4
const int kAccSize = 4;
ACC load_acc(uint64_t at) { return uintBitsToFloat(bits_32(at)); }
void store_acc(uint64_t at, ACC x) { put_32(at, floatBitsToUint(x)); }
ACC load_sum(uint64_t at) { return uintBitsToFloat(Word(at).v); }
void store_sum(uint64_t at, ACC x) { Word(at).v = floatBitsToUint(x); }
ACC4 load_acc4(uint64_t at) { return uintBitsToFloat(FourWords(at).v); }
void store_acc4(uint64_t at, ACC4 x) { FourWords(at).v = floatBitsToUint(x); }
#endif

// ---- an element, and four side by side: these at an address that is a multiple of 4 elements, or of 16 bytes ----

#if defined(DTYPE_F16) || defined(DTYPE_BF16)
#ifdef DTYPE_F16
float widened(uint bits) { return f32_from_f16(bits); }
uint narrowed(float x) { return f16_from_f32(x); }
#else
float widened(uint bits) { return f32_from_bf16(bits); }
uint narrowed(float x) { return bf16_from_f32(x); }
#endif
const int kSize = 2;
ACC load(uint64_t at) { return widened(bits_16(at)); }
void store(uint64_t at, ACC x) { put_16(at, narrowed(x)); }
ACC4 load4(uint64_t at) {
  const uvec2 bits = TwoWords(at).v;
  return ACC4(widened(bits.x & 0xffffu), widened(bits.x >> 16), widened(bits.y & 0xffffu), widened(bits.y >> 16));
}
uvec2 narrowed4(ACC4 x) { return uvec2(narrowed(x.x) | narrowed(x.y) << 16, narrowed(x.z) | narrowed(x.w) << 16); }
void store4(uint64_t at, ACC4 x) { TwoWords(at).v = narrowed4(x); }
#define TWO_BYTES
void store8(uint64_t at, ACC4 x, ACC4 y) { FourWords(at).v = uvec4(narrowed4(x), narrowed4(y)); }  // a multiple of 16
#else
const int kSize = kAccSize;
ACC load(uint64_t at) { return load_acc(at); }
void store(uint64_t at, ACC x) { store_acc(at, x); }
ACC4 load4(uint64_t at) { return load_acc4(at); }
void store4(uint64_t at, ACC4 x) { store_acc4(at, x); }
#endif

// ---- sums in slices: number `i` of `slices` begins at this stage of `stages` ----

int slice_begin(int stages, int slices, int i) { return stages / slices * i + min(i, stages % slices); }
