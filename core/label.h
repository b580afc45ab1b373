// SPDX-License-Identifier: Apache-2.0
// label.h -- what tools show of a call: the op's name, behind it the named values of its params that are not the initial ones:
// "conv1d", "elementwise(mul)", "elementwise(cast, float32)".
#pragma once

#include <narrows/abi.h>

#include <algorithm>
#include <cstring>
#include <string>

namespace narrows {

// The name of a numbered field's value in a blob that may end before it; "": it has none, or it is the initial one.
inline std::string shown_value(const nw_param& field, const void* params, uint64_t size) {
  const uint64_t width = field.dtype.bits / 8;
  int64_t number = 0;
  if (field.values == nullptr || field.dtype.lanes != 1 || width > sizeof number) return "";
  if (size > field.offset)
    std::memcpy(&number, static_cast<const unsigned char*>(params) + field.offset, std::min(width, size - field.offset));
  if (number < 0 || number == static_cast<int64_t>(field.initial)) return "";
  for (int64_t i = 0; field.values[i] != nullptr; ++i)
    if (i == number) return field.values[i];
  return "";
}

inline std::string label_of(const nw_op& op, const void* params, uint64_t size) {
  std::string label = op.name, values;
  for (const nw_param* const* field = op.params; field != nullptr && *field != nullptr; ++field)
    if (const std::string value = shown_value(**field, params, size); !value.empty())
      values += (values.empty() ? "" : ", ") + value;
  return values.empty() ? label : label + "(" + values + ")";
}

}  // namespace narrows
