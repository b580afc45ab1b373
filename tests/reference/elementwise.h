// SPDX-License-Identifier: Apache-2.0
// elementwise.h -- reference of elementwise and elementwise_backward: every function of ops.h by its formula, one element at a
// time, in long double for the floating dtypes and in 128-bit integers for the others. Shares no code with core or a backend.
#pragma once

#include <cstdint>
#include <vector>

#include "reference.h"
#include "support/dtype.h"

namespace narrows::reference {

using test::DType;
using test::Exact;
__extension__ typedef __int128 Wide;

// Which dtypes a function takes.
enum class Domain {
  floating,    // f32 f64 f16 bf16
  numbers,     // and the integers
  everything,  // and bool
  bits,        // integers and bool
  integers,
};
bool allows(Domain domain, DType dtype);

struct Reals {
  Exact a = 0, b = 0, c = 0, alpha = 1;
};
struct Integers {
  Wide a = 0, b = 0, c = 0;
  int bits = 64;
  bool is_signed = true;
};
struct Partials {
  Exact a = 0, b = 0, c = 0;  // d out / d a, ...
};

struct Function {
  int32_t number;  // NW_EW_*
  const char* name;
  int operands;
  Domain domain;
  bool gives_bool;
  Exact (*real)(const Reals&);         // unrounded; IEEE special values. NULL: no floating dtype
  Wide (*integer)(const Integers&);    // before it wraps. NULL: no integer dtype
  Partials (*gradient)(const Reals&);  // NULL: none
};
// All functions in the order of their numbers, from 1; functions()[NW_EW_ADD - 1] is add. cast and where are in it for their
// facts; use cast() for the first.
const std::vector<Function>& functions();
inline const Function& function(int32_t number) { return functions().at(number - 1); }

DType out_dtype(const Function& f, DType in);

// One element of any dtype. Floating results are not rounded to it; integers are wrapped.
Exact apply(const Function& f, DType dtype, const Reals& x);
Exact cast(DType from, DType to, Exact value);

// a, b and c are broadcast to `shape` already.
std::vector<Exact> elementwise(const Function& f, DType dtype, const std::vector<Exact>& a, const std::vector<Exact>& b,
                               const std::vector<Exact>& c, Exact alpha = 1);

}  // namespace narrows::reference
