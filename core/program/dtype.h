// SPDX-License-Identifier: Apache-2.0
// dtype.h -- the types of a program's values: their names in the text, and the arithmetic of their constants.
#pragma once

#include <dlpack/dlpack.h>

#include <optional>
#include <string_view>

#include "core/program/ir.h"

namespace narrows::program {

const char* name_of(DType dtype);                   // "index", "f32", "bool"
std::optional<DType> find_dtype(std::string_view);  // by its name in the text; not `index`, which no buffer holds
int bits_of(DType dtype);                           // of an element: 8 of bool, 64 of index
bool is_float(DType dtype);
bool is_integer(DType dtype);  // i8 to u64; neither `index` nor bool
bool is_signed(DType dtype);   // of the integers

// As a tensor has it; not of `index`.
DLDataType dlpack_of(DType dtype);

// A number rounded to a floating-point type, to nearest even; past its range an infinity. Every NaN becomes one and the same.
double round_real(DType dtype, double value);

// The low bits of `value` as a number of the integer type. One of u64 stays as it is: Expr::integer holds its bits.
int64_t wrap_integer(DType dtype, int64_t value);

// Is the integer with this sign and magnitude one of the type's (of `index`: of 64 signed bits)?
bool holds(DType dtype, bool negative, uint64_t magnitude);

}  // namespace narrows::program
