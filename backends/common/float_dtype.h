// SPDX-License-Identifier: Apache-2.0
// float_dtype.h -- the four dtypes of conv1d and lltm.
#pragma once

#include "plugin.h"

namespace narrows::common {

enum class Dtype : int { f32, f64, f16, bf16 };

constexpr const char* name_of(Dtype t) {
  constexpr const char* kNames[] = {"f32", "f64", "f16", "bf16"};
  return kNames[static_cast<int>(t)];
}
constexpr int64_t size_of(Dtype t) { return t == Dtype::f64 ? 8 : t == Dtype::f32 ? 4 : 2; }
// Dtype of the sums.
constexpr Dtype accumulate_dtype(Dtype t) { return t == Dtype::f64 ? Dtype::f64 : Dtype::f32; }

// The dtype of tensor `argument`, or a refusal.
inline Dtype float_dtype(const nw_sig& sig, uint32_t argument) {
  const DLDataType t = sig.tensors[argument].dtype;
  if (is(t, kDLFloat, 32)) return Dtype::f32;
  if (is(t, kDLFloat, 64)) return Dtype::f64;
  if (is(t, kDLFloat, 16)) return Dtype::f16;
  if (is(t, kDLBfloat, 16)) return Dtype::bf16;
  refuse(NW_UNSUPPORTED, static_cast<int32_t>(argument), "%s: dtype code %d with %d bits; this backend has f32, f64, f16 and bf16",
         sig.op, t.code, t.bits);
}

}  // namespace narrows::common
