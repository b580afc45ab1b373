// SPDX-License-Identifier: Apache-2.0
// program_lanes.h -- loops of lanes go inwards, so that what backends see as vectors are innermost loops.
#pragma once

#include "program_lower.h"

namespace narrows::common {

// Each `vectorize` loop becomes one around each part of its body, as far inside as it can go. No iteration of it uses what another
// one writes, so they may pass in any order. It stays outside of a loop that has allocations, whose elements would be one
// iteration's; of one whose extent it decides; and of another `vectorize` loop. One with allocations of its own stays where it is;
// so does one that holds an allocation that is not in `fresh`: it keeps values from one iteration of a loop to the next, and lanes
// would mix theirs. After place_allocations().
void move_lanes_inwards(Lowered* lowered);

}  // namespace narrows::common
