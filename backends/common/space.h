// SPDX-License-Identifier: Apache-2.0
// space.h -- one iteration space over tensors of any strides.
#pragma once

#include "plugin.h"

namespace narrows::common {

constexpr int kMaxOperands = 7;  // elementwise_backward: four inputs, three gradients

// Dimension 0 is the innermost; none has one element only.
struct Space {
  int ndim = 0;
  int64_t extent[NW_MAX_NDIM];
  int64_t stride[kMaxOperands][NW_MAX_NDIM];  // bytes
  int64_t offset[kMaxOperands];               // bytes from a tensor's first element to the space's
};

// Broadcasts the operands (nullptr: absent) to `shape`, drops dimensions of extent 1, flips those that operand `leader` walks
// backwards, orders them by its strides and merges what can be merged. sizes: bytes of an element of each operand.
void collapse(const nw_tensor_sig& shape, const nw_tensor_sig* const* operands, const int64_t* sizes, int num_operands, int leader,
              Space* space);
// The operand whose layout the walk follows: the first one that is broadcast along the fewest dimensions.
int choose_leader(const Space& space, const nw_tensor_sig* const* operands, int num_operands);

}  // namespace narrows::common
