// SPDX-License-Identifier: Apache-2.0
// dtype.h -- the thirteen dtypes as the tests see them: names, sizes, and conversions of their own that no backend shares.
// It governs how every test value is rounded and read back.
#pragma once

#include <dlpack/dlpack.h>

#include <cfloat>
#include <cstdint>
#include <vector>

namespace narrows::test {

// Holds every value of every dtype exactly: 64 bits of significand, and the range of f64.
using Exact = long double;
static_assert(LDBL_MANT_DIG >= 64, "the tests need a long double with 64 bits of significand");

enum class DType : int32_t { f32 = 1, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64, boolean };  // NW_DTYPE_*

inline constexpr DType kAllDTypes[] = {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i8,  DType::i16,    DType::i32,
                                       DType::i64, DType::u8,  DType::u16, DType::u32,  DType::u64, DType::boolean};
inline constexpr DType kFloatDTypes[] = {DType::f32, DType::f64, DType::f16, DType::bf16};
inline constexpr DType kIntDTypes[] = {DType::i8, DType::i16, DType::i32, DType::i64,
                                       DType::u8, DType::u16, DType::u32, DType::u64};

const char* name(DType dtype);
DLDataType dl_dtype(DType dtype);
int64_t item_size(DType dtype);
bool is_float(DType dtype);
bool is_signed_int(DType dtype);
bool is_int(DType dtype);  // not bool

// Dtypes that DLPack knows and no built-in op takes: what they are called in messages, and a dtype of ours that has room for them.
struct ForeignDType {
  DLDataType dtype;
  const char* name;
  DType memory;
};
inline constexpr ForeignDType kForeignDTypes[] = {
    {{kDLComplex, 64, 1}, "complex64", DType::f64},     {{kDLFloat, 8, 1}, "float8", DType::u8},
    {{kDLBfloat, 32, 1}, "bfloat32", DType::f32},       {{kDLInt, 24, 1}, "int24", DType::i32},
    {{kDLUInt, 40, 1}, "uint40", DType::u64},           {{kDLBool, 16, 1}, "bool16", DType::i16},
    {{kDLOpaqueHandle, 64, 1}, "handle64", DType::u64}, {{kDLFloat8_e4m3fn, 8, 1}, "float8_e4m3fn", DType::u8}};

// Format of a floating dtype, IEEE style: precision counts the hidden bit.
struct FloatFormat {
  int precision;
  int min_exponent;  // of the smallest normal number, 2^min_exponent
  int max_exponent;  // of the largest power of two
};
FloatFormat float_format(DType dtype);
Exact largest(DType dtype);  // finite; bool: 1, though any byte but 0 is true
Exact lowest(DType dtype);
Exact smallest_subnormal(DType dtype);
Exact epsilon(DType dtype);           // distance from 1 to the next number; integers: 0
Exact ulp(DType dtype, Exact value);  // distance between neighbours at |value|; integers: 1

// To nearest, ties to even, overflow to infinity; the value that a tensor of this dtype would hold. Floating dtypes only.
Exact rounded(DType dtype, Exact value);

// One element, at any address. Integers and bool: the value is representable.
void store(DType dtype, Exact value, unsigned char* to);
Exact load(DType dtype, const unsigned char* from);

}  // namespace narrows::test
