// SPDX-License-Identifier: Apache-2.0
// order.cpp -- see order.h.
#include "core/program/order.h"

#include <algorithm>

namespace narrows::program {

Pair::Pair(const Part& first, const Part& second) : a(first), b(second) {
  common = std::min({common_loops(a.unit->path, b.unit->path), a.depth(), b.depth()});
  const int place_a = a.unit->path.at[common];
  const int place_b = b.unit->path.at[common];
  a_first = place_a < place_b;
  b_first = place_b < place_a;
}

void order_loops(Affine& affine, const std::vector<Linear>& keys, const std::vector<Linear>& later) {
  const int count = static_cast<int>(std::min(keys.size(), later.size()));
  const int differs = count == 1 ? 0 : affine.pick(count);
  for (int i = 0; i < differs; ++i) affine.system.equal(keys[i], later[i]);
  affine.system.less(keys[differs], later[differs]);
}

bool place_apart(Affine& affine, const Pair& pair, Runs& runs, int depth, const std::string& prefix_a,
                 const std::string& prefix_b) {
  runs.a = run(affine, pair.a, prefix_a);
  runs.b = run(affine, pair.b, prefix_b, &runs.a, depth);
  order_loops(affine, runs.a.keys[depth], runs.b.keys[depth]);
  return !affine.system.is_refuted();
}

bool place_before(Affine& affine, const Pair& pair, Runs& runs, const std::string& prefix_a, const std::string& prefix_b) {
  const int alternatives = pair.common + (pair.a_first ? 1 : 0);
  if (alternatives == 0) return false;
  const int depth = alternatives == 1 ? 0 : affine.pick(alternatives);
  if (depth < pair.common) return place_apart(affine, pair, runs, depth, prefix_a, prefix_b);
  runs.a = run(affine, pair.a, prefix_a);
  runs.b = run(affine, pair.b, prefix_b, &runs.a, pair.common);
  return !affine.system.is_refuted();
}

bool place_not_before(Affine& affine, const Pair& pair, Runs& runs, const std::string& prefix_a, const std::string& prefix_b) {
  const bool in_one = !pair.a_first && !pair.is_same();
  const int alternatives = pair.common + (in_one ? 1 : 0);
  if (alternatives == 0) return false;
  const int depth = alternatives == 1 ? 0 : affine.pick(alternatives);
  if (depth < pair.common) {
    runs.b = run(affine, pair.b, prefix_b);
    runs.a = run(affine, pair.a, prefix_a, &runs.b, depth);
    order_loops(affine, runs.b.keys[depth], runs.a.keys[depth]);
    return !affine.system.is_refuted();
  }
  runs.b = run(affine, pair.b, prefix_b);
  runs.a = run(affine, pair.a, prefix_a, &runs.b, pair.common);
  return !affine.system.is_refuted();
}

void equate_axes(Affine& affine, const Part& part, const Run& one, const Run& other) {
  for (const Axis& axis : part.unit->block().axes) {
    if (part.is_init && axis.kind != Axis::Kind::spatial) continue;
    affine.system.equal(*one.values.find(axis.name), *other.values.find(axis.name));
  }
}

void equate(Affine& affine, const std::vector<Linear>& one, const std::vector<Linear>& other) {
  for (size_t i = 0; i < one.size(); ++i) affine.system.equal(one[i], other[i]);
}

std::string at(const std::string& loops) { return loops.empty() ? "" : "at " + loops + " "; }

std::string tell_loops(const Part& part, const Run& run, const std::vector<int64_t>& point, int from) {
  std::string out;
  for (int d = from; d < static_cast<int>(run.loops.size()); ++d) {
    if (d >= part.depth() && !part.unit->feeds_spatial[d]) continue;
    std::string value = std::to_string(value_of(run.keys[d][0], point));
    for (size_t i = 1; i < run.keys[d].size(); ++i) value += "'" + std::to_string(value_of(run.keys[d][i], point));
    out += (out.empty() ? "" : " ") + part.unit->path.loops[d]->name + "=" + value;
  }
  return out;
}

std::string tell_element(const Access& access, const std::vector<Linear>& element, const std::vector<int64_t>& point) {
  std::string out = access.buffer->name + "[";
  for (size_t i = 0; i < element.size(); ++i) out += (i == 0 ? "" : ", ") + std::to_string(value_of(element[i], point));
  return out + "]";
}

std::string tell_sizes(const Program& program, const System& system, const std::vector<int64_t>& point) {
  const std::vector<std::string> sizes = size_names(program);
  std::string out;
  for (size_t i = 0; i < point.size(); ++i)
    if (std::binary_search(sizes.begin(), sizes.end(), system.names()[i]))
      out += (out.empty() ? " (" : ", ") + system.names()[i] + "=" + std::to_string(point[i]);
  return out.empty() ? out : out + ")";
}

std::vector<int> unknowns_of(const std::vector<Linear>& values) {
  std::vector<int> out;
  for (const Linear& value : values)
    for (auto term = value.terms.rbegin(); term != value.terms.rend(); ++term)
      out.push_back(term->first);  // the highest digit first
  return out;
}

}  // namespace narrows::program
