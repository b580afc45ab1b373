// SPDX-License-Identifier: Apache-2.0
// program_ahead.cpp -- see program_ahead.h.
#include "program_ahead.h"

#include <algorithm>

#include "core/program/expr.h"
#include "program_place.h"
#include "program_products.h"
#include "program_tiles.h"

namespace narrows::common {
namespace {

// Loops around nothing but one load that is stored. NULL: it does more.
const ir::Store* copy_in(const Node& node) {
  const Node* at = &node;
  while (at->kind == Node::Kind::loop) {
    if (at->body.size() != 1) return nullptr;
    at = at->body.data();
  }
  const bool is_copy = at->stores.size() == 1 && at->stores[0].value->kind == ir::Expr::Kind::load;
  return is_copy ? at->stores.data() : nullptr;
}

class Planner {
 public:
  Planner(const Kernel& kernel, const KernelProgram& program, int64_t* used) : kernel_(kernel), program_(program), used_(used) {
    collect_extents(program.lowered.body, &extents_);
  }

  void plan(Node* node) {
    if (node->stages > 0) {
      node->why_in_order = why_in_order(node);
      if (!node->why_in_order.empty()) node->ahead.reset();
    }
    for (Node& child : node->body) plan(&child);
  }

 private:
  // "": its copies run ahead.
  std::string why_in_order(Node* loop) {
    if (!program_.limits.copies_ahead) return "there are no copies beside computing here";
    Ahead& out = loop->ahead.emplace();
    int64_t bytes = 0;
    for (; out.copies < loop->body.size(); ++out.copies) {
      const ir::Store* const copy = copy_in(loop->body[out.copies]);
      if (copy == nullptr || !is_shared(copy->buffer)) break;
      if (std::find(out.buffers.begin(), out.buffers.end(), copy->buffer) != out.buffers.end()) break;
      out.buffers.push_back(copy->buffer);
      bytes += bytes_of(copy->buffer);
    }
    if (out.copies == 0) return "its first nodes do not copy into shared memory";
    if (!waits_once(*loop, out.copies)) return "its threads do not wait for each other just once";
    int64_t sums = 0;
    for (const Tile& tile : tiles_kept_by(*loop, extents_)) {
      if (!holds_all(tile)) continue;
      out.overlaid.push_back(tile.parts.sum->buffer);
      sums += bytes_of(tile.parts.sum->buffer);
    }
    const int64_t others = *used_ - bytes - sums, room = program_.limits.shared_bytes - others;
    out.stages = std::min(loop->stages, room / std::max<int64_t>(bytes, 1));
    if (out.stages < 2) return "shared memory has no room for a second stage of " + std::to_string(bytes) + " bytes";
    *used_ = others + std::max(out.stages * bytes, sums);
    return "";
  }

  // Its sums are all elements of a buffer in shared memory. Where units take pairs, plain loops may compute the tile.
  bool holds_all(const Tile& tile) const {
    const std::string& buffer = tile.parts.sum->buffer;
    if (!is_shared(buffer) || program_.limits.has_pairs) return false;
    int64_t elements = 1;
    for (const ir::ExprPtr& extent : allocation(buffer).shape) elements *= *ir::constant(extent);
    return elements == kernel_.num_threads / std::max<int64_t>(1, program_.limits.unit_lanes) * count_of(tile.loops) * 16 * 8;
  }

  bool is_shared(const std::string& buffer) const {
    const auto found = program_.places.find(buffer);
    return found != program_.places.end() && found->second == Place::shared;
  }
  const ir::Buffer& allocation(const std::string& buffer) const {
    const auto& all = program_.lowered.allocations;
    return *std::find_if(all.begin(), all.end(), [&](const ir::Buffer& one) { return one.name == buffer; });
  }
  // As the placing of allocations counts them.
  int64_t bytes_of(const std::string& buffer) const { return (bytes_of_buffer(allocation(buffer)) + 15) / 16 * 16; }

  // Between the copies and what uses them, which is where the barrier of an iteration stands instead.
  static bool waits_once(const Node& loop, size_t copies) {
    if (copies == loop.body.size() || !loop.body[copies].has_barrier) return false;
    for (size_t i = 0; i < copies; ++i)
      if ((i > 0 && loop.body[i].has_barrier) || has_barrier_in(loop.body[i])) return false;
    return true;
  }

  const Kernel& kernel_;
  const KernelProgram& program_;
  int64_t* used_;
  Extents extents_;
};

}  // namespace

void plan_ahead(Kernel* kernel, const KernelProgram& program, int64_t* used) {
  Planner planner(*kernel, program, used);
  for (Node& node : kernel->body) planner.plan(&node);
}

}  // namespace narrows::common
