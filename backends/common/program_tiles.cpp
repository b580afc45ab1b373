// SPDX-License-Identifier: Apache-2.0
// program_tiles.cpp -- see program_tiles.h.
#include "program_tiles.h"

#include <algorithm>
#include <utility>

#include "core/program/expr.h"

namespace narrows::common {
namespace {

using Path = std::vector<const Node*>;  // loops, each in the one before; the last one is a product

constexpr int64_t kMostProducts = 32;   // of a tile: 128 registers for their sums
constexpr int64_t kMostRegisters = 64;  // for one factor; a product's a takes 4 of them, its b 2

bool mentions_loop(const std::vector<ir::ExprPtr>& indices, const std::string& loop) {
  return std::any_of(indices.begin(), indices.end(), [&](const ir::ExprPtr& index) { return mentions(index, loop); });
}

int count_accesses(const Node& node, const std::string& buffer) {
  int out = 0;
  const auto load = [&](const ir::Expr& expr) { out += expr.name == buffer ? 1 : 0; };
  for (const ir::ExprPtr& condition : node.conditions) for_each_load(condition, load);
  if (node.extent != nullptr) for_each_load(node.extent, load);
  for (const ir::Store& store : node.stores) {
    out += store.buffer == buffer ? 1 : 0;
    for (const ir::ExprPtr& index : store.indices) for_each_load(index, load);
    for_each_load(store.value, load);
  }
  for (const Node& child : node.body) out += count_accesses(child, buffer);
  return out;
}

std::vector<Path> paths_to_products(const Node& node) {
  if (node.product.has_value() && node.product->is_joint) return {{&node}};
  std::vector<Path> out;
  for (const Node& child : node.body) {
    for (Path& path : paths_to_products(child)) {
      path.insert(path.begin(), &node);
      out.push_back(std::move(path));
    }
  }
  return out;
}

// No two of the tile's products have a sum in common.
bool are_other_sums(const Tile& tile, const Extents& extents) {
  std::vector<std::string> loops{tile.product->product->m, tile.product->product->n};
  for (const Node* loop : tile.loops) loops.push_back(loop->name);
  Names fixed;
  for (const ir::ExprPtr& index : tile.parts.sum->indices) collect_names(index, &fixed);
  for (const std::string& loop : loops) fixed.erase(loop);
  return are_apart(tile.parts.sum->indices, tile.parts.sum->indices, loops, fixed, extents);
}

// As many of the loops right around the path's product as fit into registers.
Tile tile_at_end(const Path& path, const Extents& extents) {
  Tile out{path.back(), parts_of(*path.back()), {}};
  for (size_t i = path.size() - 1; i-- > 0;) {
    const Node& loop = *path[i];
    const auto extent = ir::constant(loop.extent);
    if (loop.body.size() != 1 || loop.body[0].has_barrier || !extent.has_value() || *extent < 1 || *extent > kMostProducts) break;
    if (!mentions_loop(out.parts.sum->indices, loop.name)) break;
    Tile more = out;
    more.loops.insert(more.loops.begin(), &loop);
    if (count_of(more.loops) > kMostProducts || 4 * count_of(more.loops_of(*more.parts.a)) > kMostRegisters ||
        2 * count_of(more.loops_of(*more.parts.b)) > kMostRegisters || !are_other_sums(more, extents))
      break;
    out = std::move(more);
  }
  return out;
}

// Wherever n is added to a subscript, 8 times the loop is, too, and nowhere else.
bool goes_on(const std::vector<ir::ExprPtr>& indices, const std::string& n, const std::string& loop, const Extents& extents) {
  return std::all_of(indices.begin(), indices.end(), [&](const ir::ExprPtr& index) {
    const Linear sum = linear(index, extents);
    const ir::ExprPtr rest = expression(sum.without(n).without(loop));
    return sum.factor_of(loop) == 8 * sum.factor_of(n) && !mentions(rest, n) && !mentions(rest, loop);
  });
}

}  // namespace

const Node* pair_of(const Tile& tile, const Extents& extents) {
  const std::string& n = tile.product->product->n;
  const auto found = std::find_if(tile.loops.begin(), tile.loops.end(), [&](const Node* loop) {
    return *ir::constant(loop->extent) % 2 == 0 && goes_on(tile.parts.sum->indices, n, loop->name, extents) &&
           goes_on(tile.parts.b->operands, n, loop->name, extents) && !mentions_loop(tile.parts.a->operands, loop->name);
  });
  return found == tile.loops.end() ? nullptr : *found;
}

std::vector<const Node*> Tile::loops_of(const ir::Expr& load) const {
  std::vector<const Node*> out;
  for (const Node* loop : loops)
    if (mentions_loop(load.operands, loop->name)) out.push_back(loop);
  return out;
}

int64_t count_of(const std::vector<const Node*>& loops) {
  int64_t out = 1;
  for (const Node* loop : loops) out *= *ir::constant(loop->extent);
  return out;
}

std::vector<Tile> tiles_kept_by(const Node& loop, const Extents& extents) {
  std::vector<Tile> out;
  for (const Path& path : paths_to_products(loop)) {
    Tile tile = tile_at_end(path, extents);
    const std::vector<ir::ExprPtr>& indices = tile.parts.sum->indices;
    bool stays = count_accesses(loop, tile.parts.sum->buffer) == 2;  // a load and a store
    for (size_t i = 0; i + 1 + tile.loops.size() < path.size(); ++i) stays = stays && !mentions_loop(indices, path[i]->name);
    if (stays) out.push_back(std::move(tile));
  }
  return out;
}

}  // namespace narrows::common
