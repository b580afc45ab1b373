// SPDX-License-Identifier: Apache-2.0
// contract.h -- what an op promises, checked once for every backend: its declaration, its shape rule, and for the built-in ops
// the rules that no declaration can say (ranges of params, dtypes). Step 2 of a tensor's path, on a plan-cache miss only.
#pragma once

#include <narrows/abi.h>
#include <narrows/ops.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/shape_rule.h"

namespace narrows {

struct Contract {
  nw_op op{};                     // complete; `kernels` is NULL
  std::optional<ShapeRule> rule;  // none: the plugin's infer() gives the shapes
  // Of a built-in op; NULL for a plugin's own. check() comes before the shape rule and must not rely on ranks.
  void (*check)(const nw_sig& sig) = nullptr;
  DLDataType (*output_dtype)(const nw_sig& sig, uint32_t output) = nullptr;
  // Of a program: for each output the one input that it may be, or -1. Empty: NW_OP_INPLACE says it of all.
  std::vector<int32_t> inplace;

  Contract() = default;
  explicit Contract(const nw_op& declaration);  // checks the declaration; throws Failure
};

// The built-in op of that name, or NULL.
const Contract* find_builtin(const std::string& name);
const std::vector<const Contract*>& builtins();

// The two declarations as a person would see them differ: "" if they agree (fields at the end of params may be more on either
// side).
std::string declaration_difference(const nw_op& a, const nw_op& b);

// Arity, absent tensors, flags, params tail, dtypes that exist; then check(). `sig` may hold inputs only.
void check_inputs(const Contract& contract, const nw_sig& sig);
// The outputs' shapes by the rule (which a contract without one has not). dtype: output_dtype, else the declared one, else input
// 0's.
std::vector<nw_spec> infer_by_rule(const Contract& contract, const nw_sig& sig);
// Do the call's outputs have these specs? Also: no two elements of one in one place, in place only where the op allows it.
void check_outputs(const Contract& contract, const nw_sig& sig, const std::vector<nw_spec>& specs);

// Failure.argument of output i: a signature lacks the absent inputs at the end of a call, so only the dispatcher knows its index.
inline constexpr int32_t kOutputArgument = 1 << 16;
inline int32_t output_argument(uint32_t i) { return kOutputArgument + static_cast<int32_t>(i); }

// Helpers for core/ops/*.cpp.

// What every built-in op declares; the lists of names end with NULL.
nw_op declare(const char* name, uint32_t min_inputs, const char* const* inputs, const char* const* outputs, const char* shape_rule);
inline bool has_input(const nw_sig& sig, uint32_t i) { return i < sig.num_inputs && sig.tensors[i].ndim >= 0; }
inline const nw_tensor_sig* find_output(const nw_sig& sig, uint32_t i) {
  return i < sig.num_outputs && sig.tensors[sig.num_inputs + i].ndim >= 0 ? &sig.tensors[sig.num_inputs + i] : nullptr;
}
template <class Params>
Params read_params(const nw_sig& sig) {
  Params params{};
  if (sig.params_size != 0) std::memcpy(&params, sig.params, std::min<uint64_t>(sig.params_size, sizeof params));
  return params;
}
inline bool same(DLDataType a, DLDataType b) { return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes; }
inline bool is_float(DLDataType t) {
  return (t.code == kDLFloat && (t.bits == 16 || t.bits == 32 || t.bits == 64)) || (t.code == kDLBfloat && t.bits == 16);
}
inline constexpr DLDataType kFloat32{kDLFloat, 32, 1};
inline constexpr DLDataType kInt64Field{kDLInt, 64, 1};

// Every present input has the dtype of the first present one of them, a floating-point one.
void check_float_inputs(const nw_op& op, const nw_sig& sig);

// <op>_contract() of core/ops/<op>.cpp.
#define NARROWS_OP(name) const Contract& name##_contract();
#include "core/ops/ops.inc"
#undef NARROWS_OP

}  // namespace narrows
