// SPDX-License-Identifier: Apache-2.0
// map.h -- what GPUs plan alike where a function is applied to tensors of any strides.
#pragma once

#include <narrows/plugin_space.hpp>

#include "plugin.h"

namespace narrows::common {

// The variants of elementwise and elementwise_backward, the fastest first.
enum Variant { kOwnChoice = -1, kVector, kStrided, kScalar, kNumVariants };
constexpr const char* kVariantNames[] = {"vector", "strided", "scalar", nullptr};

// The forced variant, or the fastest that the tensors suit; kOwnChoice: none is forced. Refuses, at tensor `out`, a forced one that
// they do not suit. vectors: elements lie side by side, in aligned rows; bytewise: some lie on no multiple of their size.
int choose_variant(const nw_sig& sig, int out, int forced, bool vectors, bool bytewise);

// Whether an operand of elements of `size` bytes lies along dimension d of the space, and far apart along the first: what a tile of
// both dimensions turns.
bool is_turned(const Space& space, int operand, int64_t size, int d);

}  // namespace narrows::common
