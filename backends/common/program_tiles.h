// SPDX-License-Identifier: Apache-2.0
// program_tiles.h -- a matrix unit's products side by side: a tile. Its factors are read once, and its sums stay in registers
// through the loops that only add to them.
#pragma once

#include <string>
#include <vector>

#include "program_products.h"

namespace narrows::common {

struct Tile {
  const Node* product;
  ProductParts parts;
  std::vector<const Node*> loops;  // around the product, and each with nothing else in it
  std::string sums = "";           // an array of the text
  std::string warp = "";           // the loop of warps, of which four compute together; "": each its own

  const Node* head() const { return loops.empty() ? product : loops[0]; }
  // Those that lead to other elements of a factor.
  std::vector<const Node*> loops_of(const ir::Expr& load) const;
};

int64_t count_of(const std::vector<const Node*>& loops);  // iterations of all of them together

// Where a unit's product is 16 columns wide: the loop of which two iterations have their columns side by side. NULL: there is none.
const Node* pair_of(const Tile& tile, const Extents& extents);

// The tiles in a loop whose sums may stay in registers all the while: nothing in it uses them but its products, and each iteration
// adds to the same ones.
std::vector<Tile> tiles_kept_by(const Node& loop, const Extents& extents);

}  // namespace narrows::common
