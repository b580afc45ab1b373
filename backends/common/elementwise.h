// SPDX-License-Identifier: Apache-2.0
// elementwise.h -- the functions and dtypes of elementwise by number, and what its two ops read of a signature.
#pragma once

#include "plugin.h"

namespace narrows::common {

// ---- functions ----

constexpr unsigned kFloat = 1, kInt = 2, kBool = 4;  // kinds of dtypes
struct Function {
  const char* name;
  int number;  // NW_EW_*
  int arity;
  unsigned kinds;     // dtypes that it takes
  bool to_bool;       // its result is bool; else it has the operands' dtype
  bool has_gradient;  // by its operands
  bool heavy;         // costs tens of cycles an element
};
// Refuses a number that this backend does not know.
const Function& find_function(const nw_sig& sig, int number);
// a > b is b < a: the function that stands for it where operands 0 and 1 are exchanged; others stand for themselves.
int without_mirrors(int function);

// ---- dtypes by number (NW_DTYPE_*) ----

int dtype_of(const nw_sig& sig, uint32_t tensor);  // refuses a dtype that is none of the 13
const char* name_of(int dtype);
int64_t size_of(int dtype);
unsigned kind_of(int dtype);

int compute_dtype(int dtype);  // f32 for halves, the dtype itself otherwise
bool is_aligned(const nw_tensor_sig& tensor, int64_t size);
int bits_dtype(int dtype);  // unsigned integers of the same width; bool stays bool, since any byte but 0 is true
// where and copysign: on a GPU they run on bits_dtype(), since a conversion may lose a NaN's sign.
bool moves_bits(int function);

// ---- numbers that stand for operands ----

// A real number, or an integer, taken in a dtype and then brought to the type that it is computed in.
uint64_t number_of(int dtype, double real, int64_t integer);
// The same as it is stored, for kernels that move bits alone.
uint64_t stored_number_of(int dtype, double real, int64_t integer);

// ---- a call ----

// What elementwise reads: dtypes are checked against the function.
struct ElementwiseRequest {
  const nw_sig& sig;
  nw_elementwise_params params;
  const Function& function;
  int dtype;    // of the operands; of where's b and c
  int compute;  // the dtype in which a kernel works
};
ElementwiseRequest read_elementwise(const nw_sig& sig);

// What elementwise_backward reads; its inputs are grad_out, a, b, c.
struct ElementwiseGradRequest {
  const nw_sig& sig;
  nw_elementwise_params params;
  const Function& function;
  int compute;  // f32 or f64

  int scalar_dtype() const;  // the dtype in which a number that stands for an operand is taken
};
ElementwiseGradRequest read_elementwise_backward(const nw_sig& sig);

// How a GPU makes the gradient by an operand: zeros; grad_out in the gradient's dtype; a derivative for each element; or sums of
// those, where the operand was broadcast. Refuses an operand that has no gradient.
enum class GradientKind { zero, copy, map, sum };
GradientKind gradient_kind(const ElementwiseGradRequest& request, uint32_t operand);

// Whether a tensor lacks some of the extent of `shape`.
bool is_broadcast(const nw_tensor_sig& shape, const nw_tensor_sig& tensor);
bool is_empty(const nw_tensor_sig& tensor);

}  // namespace narrows::common
