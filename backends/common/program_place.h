// SPDX-License-Identifier: Apache-2.0
// program_place.h -- where the elements of an allocated buffer live, and how few of them have to.
#pragma once

#include "program_lower.h"

namespace narrows::common {

// Gives each allocation that is used to the innermost loop that its users share, and shrinks it there to what one iteration uses,
// where every element that an iteration reads was written by the same iteration before. Then it grows by its padding.
void place_allocations(Lowered* lowered);

}  // namespace narrows::common
