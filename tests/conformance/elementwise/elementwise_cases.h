// SPDX-License-Identifier: Apache-2.0
// elementwise_cases.h -- what the elementwise test files share: the inputs that each function is tried on, how exact its
// results must be and why, and calls by function. The facts of each function (operands, dtypes) come from reference/elementwise.h.
#pragma once

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "reference/elementwise.h"
#include "support/harness.h"

namespace narrows::test {

using reference::Function;
using reference::functions;
using reference::Shape;

inline constexpr Exact kNaN = std::numeric_limits<Exact>::quiet_NaN();
inline constexpr Exact kInf = std::numeric_limits<Exact>::infinity();

// elu's alpha, so that a kernel is seen that takes 1 for it, or rounds it to fewer bits than it computes in; everything else is 0.
inline constexpr double kAlpha = 0.1;
nw_elementwise_params params_for(const Function& f);
// The operand's dtype in a call on `dtype`: bool for where's a.
DType operand_dtype(const Function& f, int operand, DType dtype);

Result run_function(const Function& f, const std::vector<const Tensor*>& operands, Tensor& out, const char* kernel = nullptr);
Result run_params(const nw_elementwise_params& params, const std::vector<const Tensor*>& operands, Tensor& out,
                  const char* kernel = nullptr);

// Numbers from the function's domain, every 17th one special (NaN, infinities, zeros, subnormals, extremes) unless `plain`.
// Integers: any bits, and as many near 0; shifts and exponents: around what is legal.
std::vector<Exact> sample(const Function& f, int operand, DType dtype, int64_t n, Rng& rng, bool plain = false);
const std::vector<Exact>& special_values(DType dtype);

// How far a result may be off, by core/ops/elementwise_functions.toml. Integers and bool: not at all.
Tolerance tolerance(const Function& f, DType dtype);

// The reference of a call, with the operands as the tensors hold them (before the call: in place changes them).
std::vector<Exact> expected(const Function& f, const std::vector<const Tensor*>& operands, const Shape& out);

// body(function, dtype) for every function but cast, and every dtype that it takes.
void for_each_function(const std::function<void(const Function&, DType)>& body);

// One call on tensors of one shape with the given layouts, compared with the reference; on every kernel variant.
struct Case {
  const Function& f;
  DType dtype;
  std::vector<Shape> shapes;  // of the operands
  Shape out;
  std::vector<Layout> layouts = {};  // of the operands; contiguous where missing
  Layout out_layout = {};
};
void check(const Case& c, const std::string& tag);

}  // namespace narrows::test
