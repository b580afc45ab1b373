// SPDX-License-Identifier: Apache-2.0
// program_lanes.cpp -- see program_lanes.h.
#include "program_lanes.h"

#include <algorithm>
#include <utility>

namespace narrows::common {
namespace {

bool is_of_lanes(const Node& node) { return node.kind == Node::Kind::loop && node.loop_kind == ir::For::Kind::vectorize; }

bool may_enter(const Node& lanes, const Node& inner) {
  return inner.kind == Node::Kind::loop && !is_of_lanes(inner) && inner.allocations.empty() && !mentions(inner.extent, lanes.name);
}

// The loop around each part of a body, its own or that of a loop in it. What stands side by side and is no loop stays in one.
std::vector<Node> around_each(const Node& lanes, std::vector<Node> body, bool is_own) {
  std::vector<Node> out;
  bool goes_on = false;  // the last one takes more stores
  for (Node& child : body) {
    const bool is_loop = child.kind == Node::Kind::loop;
    if (may_enter(lanes, child)) {
      child.body = around_each(lanes, std::move(child.body), false);
      out.push_back(std::move(child));
    } else {
      if (is_loop || !goes_on) out.push_back(lanes);
      out.back().moved_in = !is_own;
      out.back().body.push_back(std::move(child));
    }
    goes_on = !is_loop;
  }
  return out;
}

// Some allocation in it has elements that outlive an iteration.
bool keeps_values(const Lowered& lowered, const Node& node) {
  const auto is_kept = [&](size_t number) { return lowered.fresh.count(lowered.allocations[number].name) == 0; };
  const auto keeps = [&](const Node& child) { return keeps_values(lowered, child); };
  return std::any_of(node.allocations.begin(), node.allocations.end(), is_kept) ||
         std::any_of(node.body.begin(), node.body.end(), keeps);
}

void move_all(const Lowered& lowered, std::vector<Node>* body) {
  std::vector<Node> out;
  for (Node& node : *body) {
    move_all(lowered, &node.body);
    if (!is_of_lanes(node) || !node.allocations.empty() || keeps_values(lowered, node)) {
      out.push_back(std::move(node));
      continue;
    }
    std::vector<Node> inside = std::exchange(node.body, {});
    for (Node& part : around_each(node, std::move(inside), true)) out.push_back(std::move(part));
  }
  *body = std::move(out);
}

}  // namespace

void move_lanes_inwards(Lowered* lowered) { move_all(*lowered, &lowered->body); }

}  // namespace narrows::common
