// SPDX-License-Identifier: Apache-2.0
// overlap.h -- do two strided views share a byte?
#pragma once

#include <narrows/abi.h>

namespace narrows {

// Bytes of an element. Lanes do not count: a call with other than 1 is refused as that.
inline int64_t item_size(DLDataType dtype) { return (dtype.bits + 7) / 8; }

// Views of equal rank, strides and item size, whose first elements are `distance` bytes apart (b minus a). Exact, or true when it
// cannot be decided in a bounded number of steps.
bool may_share_byte(const nw_tensor_sig& a, const nw_tensor_sig& b, int64_t distance);

// Do two elements of one view share a place? Exact, or true likewise.
bool may_overlap_itself(const nw_tensor_sig& t);

}  // namespace narrows
