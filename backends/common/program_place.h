// SPDX-License-Identifier: Apache-2.0
// program_place.h -- where the elements of an allocated buffer live, and how few of them have to.
#pragma once

#include "program_lower.h"

namespace narrows::common {

// Gives each allocation that is used to the innermost loop that its users share, and shrinks it there to what one iteration uses,
// where every element that an iteration reads was written by the same iteration before. Then it grows by its padding.
void place_allocations(Lowered* lowered);

// Where all accesses of an allocation are.
struct Home {
  std::vector<std::string> loops;  // that all of them share, from the outermost
  bool is_used = false;
};
Home home_of(const Lowered& lowered, const std::string& buffer);

// Shrinks one allocation to what one iteration of the loops that all its users share uses, where every element that is read was
// written by the same iteration before; `threads` are loops whose iterations share the memory, and so count as loops inside. False:
// that could not be shown, and nothing has changed. Padding is not added.
bool shrink_allocation(Lowered* lowered, size_t number, const Names& threads);

// Makes an allocation hold a copy of its elements for each iteration of `loops`, which are around all its uses: its first axes.
void expand_allocation(Lowered* lowered, size_t number, const std::vector<std::string>& loops);

// The padding becomes a part of the shape.
void add_padding(ir::Buffer* buffer);

int64_t bytes_of_buffer(const ir::Buffer& buffer);  // with its padding; -1: not a number

}  // namespace narrows::common
