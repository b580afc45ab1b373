// SPDX-License-Identifier: Apache-2.0
// check_block.h -- what a block must be. Part of types.h's check.
#pragma once

#include <set>
#include <string>

#include "core/program/check_expr.h"
#include "core/program/ir.h"

namespace narrows::program {

// `loops` are those around the block. Throws Failure that begins with the block's name.
void check_block(const Block& block, const std::set<std::string>& loops, Names& names);

void check_extent(const ExprPtr& extent, const Place& place, Names& names);  // index, and no negative constant
void check_notes(const std::vector<std::pair<std::string, std::string>>& notes, const std::string& what);

}  // namespace narrows::program
