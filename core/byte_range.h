// SPDX-License-Identifier: Apache-2.0
// byte_range.h -- the bytes that a tensor may touch. For core, the backends that look at memory, and the bindings.
#pragma once

#include <dlpack/dlpack.h>

#include <algorithm>
#include <cstdint>

namespace narrows {

// Bytes [begin, end). Empty where a tensor has no elements.
struct ByteRange {
  uint64_t begin, end;

  bool is_empty() const { return begin == end; }
  bool meets(const ByteRange& other) const { return begin < other.end && other.begin < end; }
};

// From the lowest element's first byte to behind the highest one's last. The tensor is one that core has checked, or owns its
// elements: no product overflows.
inline ByteRange byte_range(const DLTensor& t) {
  const uint64_t first = reinterpret_cast<uintptr_t>(t.data) + t.byte_offset;
  if (std::count(t.shape, t.shape + t.ndim, 0) != 0) return {first, first};  // the other extents may be huge
  int64_t below = 0, above = 1, contiguous = 1;
  for (int32_t d = t.ndim - 1; d >= 0; --d) {
    const int64_t reach = (t.shape[d] - 1) * (t.strides == nullptr ? contiguous : t.strides[d]);
    (reach < 0 ? below : above) += reach;
    contiguous *= t.shape[d];
  }
  const int64_t item = (t.dtype.bits + 7) / 8;
  return {first + static_cast<uint64_t>(below * item), first + static_cast<uint64_t>(above * item)};
}

}  // namespace narrows
