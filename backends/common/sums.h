// SPDX-License-Identifier: Apache-2.0
// sums.h -- how a GPU divides sums over the dimensions that an operand was broadcast along.
#pragma once

#include <narrows/plugin_space.hpp>

#include "plugin.h"

namespace narrows::common {

// Of a space: one sum for each of `kept` elements of the result, over `summed` terms. The kept dimensions come first.
struct SumDims {
  int64_t kept = 1, summed = 1;
  int kept_dims = 0, dims = 0;
  int64_t extent[NW_MAX_NDIM];
  int64_t stride[kMaxOperands][NW_MAX_NDIM];  // bytes; of the space's operands

  bool is_wide(int64_t most) const { return kept > most || summed > most; }  // beyond numbers of up to `most`
};

// How a group of threads divides them: `lanes` sums side by side, each by `rows` threads. `slices` groups share a sum, and a second
// kernel adds up what they found.
struct SumGroups {
  bool lanes_first = false;  // neighbouring threads have neighbouring sums, not terms
  int lanes = 1, rows = 1;
  int64_t slices = 1;
};

// The space of the operands and, last, of the result, in the order of the operand that is broadcast along the fewest dimensions.
// `operands`, `sizes`: as collapse() takes them; NULL: a number, or absent.
Space space_of_sums(const nw_tensor_sig& shape, const nw_tensor_sig* const* operands, const int64_t* sizes, int num_operands);
// `result`: the operand whose dimensions are kept.
SumDims sum_dims(const Space& space, int result);
// By shapes alone: the same sums on every GPU. `threads`: of a group, a power of two; `most_groups`: that a grid has.
SumGroups sum_groups(const SumDims& dims, bool first_is_kept, int threads, int64_t most_groups);
// Of the kernel that adds up the slices.
SumGroups finishing_groups(const SumGroups& groups, int threads);

}  // namespace narrows::common
