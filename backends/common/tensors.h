// SPDX-License-Identifier: Apache-2.0
// tensors.h -- tensors of two and of three dimensions: extents, and strides in elements.
#pragma once

#include "plugin.h"

namespace narrows::common {

// Of a (rows, columns) tensor. All are 0 for a tensor without elements, whose address may be NULL: nothing is ever added to it.
struct Strides2 {
  int64_t row = 0, column = 0;
};
inline Strides2 strides2(const nw_tensor_sig& t) {
  if (!has_elements(t)) return {};
  return {t.ndim == 2 ? t.strides[0] : 0, t.ndim > 0 ? t.strides[t.ndim - 1] : 0};
}

// Those of all tensors of a call; of an absent one 0.
template <size_t Inputs, size_t Outputs>
void read_strides(const nw_sig& sig, Strides2 (&inputs)[Inputs], Strides2 (&outputs)[Outputs]) {
  for (uint32_t i = 0; i < Inputs; ++i) inputs[i] = has_input(sig, i) ? strides2(input(sig, i)) : Strides2{};
  for (uint32_t i = 0; i < Outputs; ++i) outputs[i] = has_output(sig, i) ? strides2(output(sig, i)) : Strides2{};
}

// Likewise of an (outer, channel, position) tensor; the leading ones of a tensor of a lower rank are 0.
struct Strides3 {
  int64_t outer = 0, channel = 0, position = 0;
};
inline Strides3 strides3(const nw_tensor_sig& t) {
  if (!has_elements(t)) return {};
  const auto stride = [&](int32_t from_end) { return from_end <= t.ndim ? t.strides[t.ndim - from_end] : 0; };
  return {stride(3), stride(2), stride(1)};
}

struct Tensor3 {
  int64_t outer = 0, channels = 0, positions = 0;
  Strides3 strides;
  constexpr bool is_empty() const { return outer == 0 || channels == 0 || positions == 0; }  // the other extents may be huge
  constexpr int64_t size() const { return outer * channels * positions; }
};

}  // namespace narrows::common
