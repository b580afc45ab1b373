// overlap.h -- do two strided views share a byte?
#pragma once

#include <narrows/abi.h>

namespace narrows {

// Views of one shape-independent stride vector (sa.strides equal sb.strides), whose first elements are `distance` bytes apart
// (b minus a). Exact, or true when it cannot be decided in a bounded number of steps.
bool may_share_byte(const nw_tensor_sig& a, const nw_tensor_sig& b, int64_t distance);

// Do two elements of one view share a place? Exact, or true likewise.
bool may_overlap_itself(const nw_tensor_sig& t);

}  // namespace narrows
