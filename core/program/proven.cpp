// SPDX-License-Identifier: Apache-2.0
// proven.cpp -- see proven.h.
#include "core/program/proven.h"

namespace narrows::program {

Basis::Basis(const Pair& pair, int depth) {
  add(*pair.a.unit);
  add(*pair.b.unit);
  numbers_.insert(numbers_.end(), {pair.common, pair.a_first, pair.b_first, pair.a.is_init, pair.b.is_init, depth,
                                   common_loops(pair.a.unit->path, pair.b.unit->path)});
}

void Basis::add(const Unit& unit) {
  for (const ForPtr& loop : unit.path.loops) {
    loops_.push_back(loop->name);
    parts_.push_back(loop->extent);
  }
  numbers_.push_back(static_cast<int>(unit.path.loops.size()));
  for (const Axis& axis : unit.block().axes) {
    parts_.push_back(axis.binding);
    parts_.push_back(axis.extent);
  }
  parts_.push_back(unit.block().predicate);
}

}  // namespace narrows::program
