// SPDX-License-Identifier: Apache-2.0
// map.cpp -- chooses vector, strided or scalar.
#include "map.h"

#include <cstdlib>

namespace narrows::common {

int choose_variant(const nw_sig& sig, int out, int forced, bool vectors, bool bytewise) {
  if (forced == kVector && !vectors)
    refuse(NW_UNSUPPORTED, out, "%s: kernel 'vector' needs operands whose elements lie side by side, in aligned rows", sig.op);
  if (forced == kStrided && bytewise)
    refuse(NW_UNSUPPORTED, out, "%s: kernel 'strided' needs tensors that are aligned to their elements", sig.op);
  return forced != kOwnChoice ? forced : vectors ? kVector : bytewise ? kScalar : kStrided;
}

bool is_turned(const Space& space, int operand, int64_t size, int d) {
  constexpr int64_t kLeastSide = 16;  // of a tile
  const int64_t across = std::abs(space.stride[operand][0]), along = std::abs(space.stride[operand][d]);
  return space.extent[0] >= kLeastSide && space.extent[d] >= kLeastSide && along != 0 && along <= 2 * size && across >= 4 * along;
}

}  // namespace narrows::common
