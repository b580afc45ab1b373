// SPDX-License-Identifier: Apache-2.0
// program_place.cpp -- see program_place.h.
#include "program_place.h"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "core/program/dtype.h"
#include "core/program/expr.h"

namespace narrows::common {
namespace {

// One load or store of an allocation.
struct Access {
  std::vector<size_t> path;  // numbers of the nodes that lead to it, from the body on
  Names around;              // the loops around it
  const Node* stores;
  const std::vector<ir::ExprPtr>* indices;
  bool is_store;
};

// ---- collecting ----

class Collector {
 public:
  explicit Collector(const std::string& buffer) : buffer_(buffer) {}

  void body(const std::vector<Node>& nodes) {
    for (size_t i = 0; i < nodes.size(); ++i) {
      path_.push_back(i);
      if (nodes[i].kind == Node::Kind::loop) {
        around_.insert(nodes[i].name);
        body(nodes[i].body);
        around_.erase(nodes[i].name);
      } else {
        stores(nodes[i]);
      }
      path_.pop_back();
    }
  }

  std::vector<Access> accesses;

 private:
  void stores(const Node& node) {
    const auto load = [&](const ir::Expr& expr) {
      if (expr.name == buffer_) accesses.push_back({path_, around_, &node, &expr.operands, false});
    };
    for (const ir::ExprPtr& condition : node.conditions) for_each_load(condition, load);
    for (const ir::Store& store : node.stores) {
      for (const ir::ExprPtr& index : store.indices) for_each_load(index, load);
      for_each_load(store.value, load);
      if (store.buffer == buffer_) accesses.push_back({path_, around_, &node, &store.indices, true});
    }
  }

  const std::string& buffer_;
  std::vector<size_t> path_;
  Names around_;
};

// How many nodes two accesses share on their ways, the stores themselves not counted.
size_t shared_depth(const Access& a, const Access& b) {
  const size_t most = std::min(a.path.size(), b.path.size()) - 1;
  size_t depth = 0;
  while (depth < most && a.path[depth] == b.path[depth]) ++depth;
  return depth;
}

std::vector<Node*> nodes_on(Lowered* lowered, const std::vector<size_t>& path, size_t depth) {
  std::vector<Node*> out;
  std::vector<Node>* body = &lowered->body;
  for (size_t i = 0; i < depth; ++i) {
    out.push_back(&(*body)[path[i]]);
    body = &out.back()->body;
  }
  return out;
}

// ---- what one iteration reaches ----

// A subscript's part that does not change within an iteration of the shared loops, and the rest.
struct Parts {
  Linear fixed, moving;  // the constant belongs to `moving`
};
Parts split(const ir::ExprPtr& index, const Names& inner, const Extents& extents) {
  Parts out;
  const Linear sum = linear(index, extents);
  out.moving.constant = sum.constant;
  for (const Term& term : sum.terms) (mentions(term.atom, inner) ? out.moving : out.fixed).terms.push_back(term);
  return out;
}

Names inner_loops(const Access& access, const Names& shared) {
  Names out;
  std::set_difference(access.around.begin(), access.around.end(), shared.begin(), shared.end(), std::inserter(out, out.end()));
  return out;
}

// A loop, or a fused loop's quotient or remainder by a divisor of its extent: loop // 4, loop % 4.
struct LoopPart {
  std::string loop;
  int64_t divisor = 1;
  bool is_remainder = false;
  int64_t extent = 0;
};
std::optional<LoopPart> part_of(const Term& term, const Extents& extents) {
  const ir::Expr& atom = *term.atom;
  const bool is_part = atom.kind == ir::Expr::Kind::call && (atom.name == "floor_div" || atom.name == "remainder") &&
                       atom.operands[0]->kind == ir::Expr::Kind::name;
  const std::string& loop = is_part ? atom.operands[0]->name : term.key;
  const auto extent = extents.find(loop);
  if (extent == extents.end() || (!is_part && !term.is_name())) return std::nullopt;
  if (!is_part) return LoopPart{loop, 1, false, extent->second};
  const int64_t divisor = ir::constant(atom.operands[1]).value_or(0);
  if (divisor < 1 || extent->second % divisor != 0) return std::nullopt;
  const bool is_remainder = atom.name == "remainder";
  return LoopPart{loop, divisor, is_remainder, is_remainder ? divisor : extent->second / divisor};
}

// Each combination of the terms' values occurs: of one loop there is one term, or the two parts by one divisor.
bool are_independent(const std::vector<Term>& terms, const Extents& extents) {
  std::vector<LoopPart> seen;
  for (const Term& term : terms) {
    const auto part = part_of(term, extents);
    if (!part.has_value()) return false;
    for (const LoopPart& other : seen)
      if (other.loop == part->loop && (other.divisor != part->divisor || other.is_remainder == part->is_remainder)) return false;
    seen.push_back(*part);
  }
  return true;
}

// Every number of its range is reached: loops with factors 1, at most 1 + what came before, and so on.
bool is_gapless(const Linear& moving, const Extents& extents) {
  std::vector<Term> terms = moving.terms;
  if (!are_independent(terms, extents)) return false;
  std::sort(terms.begin(), terms.end(), [](const Term& a, const Term& b) { return a.factor < b.factor; });
  int64_t span = 1;
  for (const Term& term : terms) {
    if (term.factor < 1 || term.factor > span) return false;
    span += term.factor * (part_of(term, extents)->extent - 1);
  }
  return true;
}

// Loops of which each combination leads to another number, the least factor first: a term and its loop's extent. Nothing: other
// sums.
using Digits = std::vector<std::pair<Term, int64_t>>;
std::optional<Digits> digits_of(const Linear& moving, const Extents& extents) {
  Digits out;
  if (!are_independent(moving.terms, extents)) return std::nullopt;
  for (const Term& term : moving.terms) {
    if (term.factor < 1) return std::nullopt;
    const int64_t extent = part_of(term, extents)->extent;
    if (extent > 1) out.emplace_back(term, extent);
  }
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.first.factor < b.first.factor; });
  int64_t span = 0;
  for (const auto& [term, extent] : out) {
    if (term.factor <= span) return std::nullopt;
    span += term.factor * (extent - 1);
  }
  return out;
}
bool are_same_numbers(const Linear& a, const Linear& b, const Extents& extents) {
  const std::optional<Digits> x = digits_of(a, extents), y = digits_of(b, extents);
  const auto is_same = [](const auto& one, const auto& other) {
    return one.first.factor == other.first.factor && one.second == other.second;
  };
  return x.has_value() && y.has_value() && a.constant == b.constant &&
         std::equal(x->begin(), x->end(), y->begin(), y->end(), is_same);
}

bool is_bound_check(const ir::ExprPtr& condition, const Access& access, const ir::Buffer& buffer, const Extents& extents) {
  const std::optional<Linear> sum = as_inequality(condition, extents);
  if (!sum.has_value()) return false;
  for (size_t d = 0; d < access.indices->size(); ++d) {
    const Linear index = linear((*access.indices)[d], extents);
    Linear below = linear(buffer.shape[d], extents) + index * -1;
    below.constant -= 1;
    if (*sum == below || *sum == index) return true;
  }
  return false;
}

// A store reaches every element of its box: no loop leads to two dimensions, but for the two parts of a fused one, and only the
// buffer's own bounds hold it back.
bool fills_its_box(const Access& store, const ir::Buffer& buffer, const Extents& extents) {
  std::map<std::string, std::vector<Term>> terms;  // by the loop that they have
  for (const ir::ExprPtr& index : *store.indices) {
    for (const Term& term : linear(index, extents).terms) {
      Names names;
      collect_names(term.atom, &names);
      for (const std::string& name : names)
        if (store.around.count(name) != 0) terms[name].push_back(term);
    }
  }
  for (const auto& [loop, all] : terms)
    if (all.size() > 1 && !are_independent(all, extents)) return false;
  return std::all_of(store.stores->conditions.begin(), store.stores->conditions.end(),
                     [&](const ir::ExprPtr& condition) { return is_bound_check(condition, store, buffer, extents); });
}

class Iteration {
 public:
  Iteration(const ir::Buffer& buffer, const Extents& extents, const std::map<std::string, ir::ExprPtr>& sizes, const Names& threads)
      : buffer_(buffer), extents_(extents), sizes_(sizes), threads_(threads) {}

  // The store has written what the load reads, in the same iteration of the loops that they share.
  bool provides(const Access& store, const Access& load) const {
    if (!store.is_store || store.path >= load.path || !fills_its_box(store, buffer_, extents_)) return false;
    Names shared;
    std::set_intersection(store.around.begin(), store.around.end(), load.around.begin(), load.around.end(),
                          std::inserter(shared, shared.end()));
    for (const std::string& thread : threads_) shared.erase(thread);
    for (size_t d = 0; d < store.indices->size(); ++d) {
      const Parts to = split((*store.indices)[d], inner_loops(store, shared), extents_);
      const Parts from = split((*load.indices)[d], inner_loops(load, shared), extents_);
      if (is_whole(to, d)) continue;
      if (!(to.fixed == from.fixed)) return false;
      if (are_same_numbers(to.moving, from.moving, extents_)) continue;
      if (!is_gapless(to.moving, extents_)) return false;
      const std::optional<Range> written = range(to.moving, extents_), read = range(from.moving, extents_);
      if (!written.has_value() || !read.has_value()) return false;
      if (read->least < written->least || read->greatest > written->greatest) return false;
    }
    return true;
  }

 private:
  // One loop over the whole dimension.
  bool is_whole(const Parts& parts, size_t d) const {
    if (!parts.fixed.terms.empty() || parts.moving.constant != 0 || parts.moving.terms.size() != 1) return false;
    const Term& term = parts.moving.terms[0];
    const auto size = sizes_.find(term.key);
    return term.factor == 1 && size != sizes_.end() && ir::same(size->second, buffer_.shape[d]);
  }

  const ir::Buffer& buffer_;
  const Extents& extents_;
  const std::map<std::string, ir::ExprPtr>& sizes_;  // of all loops
  const Names& threads_;                             // loops whose iterations share the buffer
};

// ---- shrinking ----

struct Shrunk {
  bool done = false;
  bool counts_digits = false;  // only the numbers that the loops lead to are kept, beside each other
  int64_t least = 0, extent = 0;
};

// What one iteration of the shared loops uses of dimension d.
Shrunk shrink(const std::vector<Access>& accesses, size_t d, const ir::Buffer& buffer, const Names& shared,
              const Extents& extents) {
  Shrunk out;
  Range both{0, 0};
  Linear fixed;
  bool are_same = true;
  const Linear first = split((*accesses[0].indices)[d], inner_loops(accesses[0], shared), extents).moving;
  for (size_t i = 0; i < accesses.size(); ++i) {
    const Parts parts = split((*accesses[i].indices)[d], inner_loops(accesses[i], shared), extents);
    const std::optional<Range> one = range(parts.moving, extents);
    if (!one.has_value() || (i != 0 && !(parts.fixed == fixed))) return out;
    if (i == 0) both = *one;
    fixed = parts.fixed;
    both = {std::min(both.least, one->least), std::max(both.greatest, one->greatest)};
    are_same = are_same && are_same_numbers(parts.moving, first, extents);
  }
  out.least = both.least;
  if (__builtin_sub_overflow(both.greatest, both.least, &out.extent) || out.extent > (int64_t{1} << 40)) return out;
  out.extent += 1;
  int64_t count = 1;
  const Digits digits = are_same ? *digits_of(first, extents) : Digits{};
  for (const auto& [term, extent] : digits) count *= extent;
  if (are_same && count < out.extent) {
    out.counts_digits = true;
    out.extent = count;
  }
  const auto whole = ir::constant(buffer.shape[d]);
  out.done = whole.has_value() ? out.extent < *whole : !fixed.terms.empty() || out.extent == 1;
  if (fixed.terms.empty() && out.least < 0) out.done = false;  // a guard holds it back
  return out;
}

// The number of a combination of digits among all of them.
Linear counted(const Linear& moving, const Extents& extents) {
  Linear out;
  int64_t factor = 1;
  const Digits digits = *digits_of(moving, extents);
  for (const auto& [term, extent] : digits) {
    out.terms.push_back(term);
    out.terms.back().factor = factor;
    factor *= extent;
  }
  std::sort(out.terms.begin(), out.terms.end(), [](const Term& a, const Term& b) { return a.key < b.key; });
  return out;
}

std::vector<ir::ExprPtr> moved(const std::vector<ir::ExprPtr>& indices, const std::vector<Shrunk>& dims, const Names& inner,
                               const Extents& extents) {
  std::vector<ir::ExprPtr> out = indices;
  for (size_t d = 0; d < out.size(); ++d) {
    if (!dims[d].done) continue;
    Linear moving = split(indices[d], inner, extents).moving;
    moving.constant -= dims[d].least;
    out[d] = expression(dims[d].counts_digits ? counted(moving, extents) : moving);
  }
  return out;
}

// The expression with other indices in its loads of a buffer.
template <class Change>  // of indices
ir::ExprPtr with_loads(const ir::ExprPtr& expr, const std::string& buffer, const Change& change) {
  if (expr == nullptr || expr->operands.empty()) return expr;
  ir::Expr out = *expr;
  for (ir::ExprPtr& operand : out.operands) operand = with_loads(operand, buffer, change);
  if (out.kind == ir::Expr::Kind::load && out.name == buffer) out.operands = change(out.operands);
  return out.operands == expr->operands ? expr : std::make_shared<const ir::Expr>(std::move(out));
}
template <class Change>
void change_accesses(Node* stores, const std::string& buffer, const Change& change) {
  for (ir::ExprPtr& condition : stores->conditions) condition = with_loads(condition, buffer, change);
  for (ir::Store& store : stores->stores) {
    for (ir::ExprPtr& index : store.indices) index = with_loads(index, buffer, change);
    store.value = with_loads(store.value, buffer, change);
    if (store.buffer == buffer) store.indices = change(store.indices);
  }
}

void move_accesses(std::vector<Node>* body, const std::string& buffer, const std::vector<Shrunk>& dims, const Names& shared,
                   const Names& inner, const Extents& extents) {
  for (Node& node : *body) {
    if (node.kind == Node::Kind::loop) {
      Names within = inner;
      if (shared.count(node.name) == 0) within.insert(node.name);
      move_accesses(&node.body, buffer, dims, shared, within, extents);
      continue;
    }
    const auto change = [&](const std::vector<ir::ExprPtr>& indices) { return moved(indices, dims, inner, extents); };
    change_accesses(&node, buffer, change);
  }
}

void expand_accesses(std::vector<Node>* body, const std::string& buffer, const std::vector<ir::ExprPtr>& iteration) {
  const auto change = [&](std::vector<ir::ExprPtr> indices) {
    indices.insert(indices.begin(), iteration.begin(), iteration.end());
    return indices;
  };
  for (Node& node : *body) {
    expand_accesses(&node.body, buffer, iteration);
    change_accesses(&node, buffer, change);
  }
}

void collect_sizes(const std::vector<Node>& body, std::map<std::string, ir::ExprPtr>* sizes) {
  for (const Node& node : body) {
    if (node.kind != Node::Kind::loop) continue;
    (*sizes)[node.name] = node.extent;
    collect_sizes(node.body, sizes);
  }
}

class Placer {
 public:
  explicit Placer(Lowered* lowered) : lowered_(lowered) {
    collect_extents(lowered->body, &extents_);
    collect_sizes(lowered->body, &sizes_);
  }

  void place(size_t number) {
    ir::Buffer& buffer = lowered_->allocations[number];
    Collector found(buffer.name);
    found.body(lowered_->body);
    if (found.accesses.empty()) return;
    size_t depth = found.accesses[0].path.size() - 1;
    for (const Access& access : found.accesses) depth = std::min(depth, shared_depth(access, found.accesses[0]));
    const std::vector<Node*> around = nodes_on(lowered_, found.accesses[0].path, depth);
    (around.empty() ? lowered_->outermost : around.back()->allocations).push_back(number);
    Names shared;
    for (const Node* loop : around) shared.insert(loop->name);
    shrink_all(&buffer, found.accesses, shared, {});
  }

  bool shrink_one(size_t number, const Names& threads) {
    ir::Buffer& buffer = lowered_->allocations[number];
    Collector found(buffer.name);
    found.body(lowered_->body);
    if (found.accesses.empty()) return false;
    Names shared;
    for (const std::string& name : home_of(*lowered_, buffer.name).loops)
      if (threads.count(name) == 0) shared.insert(name);
    return shrink_all(&buffer, found.accesses, shared, threads);
  }

 private:
  bool shrink_all(ir::Buffer* buffer, const std::vector<Access>& accesses, const Names& shared, const Names& threads) {
    const Iteration iteration(*buffer, extents_, sizes_, threads);
    for (const Access& load : accesses) {
      if (load.is_store) continue;
      const auto provides = [&](const Access& store) { return iteration.provides(store, load); };
      if (std::none_of(accesses.begin(), accesses.end(), provides)) return false;
    }
    lowered_->fresh.insert(buffer->name);
    std::vector<Shrunk> dims;
    dims.reserve(buffer->shape.size());
    for (size_t d = 0; d < buffer->shape.size(); ++d) dims.push_back(shrink(accesses, d, *buffer, shared, extents_));
    if (std::none_of(dims.begin(), dims.end(), [](const Shrunk& dim) { return dim.done; })) return true;
    const std::string name = buffer->name;
    move_accesses(&lowered_->body, name, dims, shared, {}, extents_);
    for (size_t d = 0; d < dims.size(); ++d)
      if (dims[d].done) buffer->shape[d] = ir::make_integer(dims[d].extent);
    return true;
  }

  Lowered* lowered_;
  Extents extents_;
  std::map<std::string, ir::ExprPtr> sizes_;
};

}  // namespace

Home home_of(const Lowered& lowered, const std::string& buffer) {
  Collector found(buffer);
  found.body(lowered.body);
  Home out;
  out.is_used = !found.accesses.empty();
  if (!out.is_used) return out;
  size_t depth = found.accesses[0].path.size() - 1;
  for (const Access& access : found.accesses) depth = std::min(depth, shared_depth(access, found.accesses[0]));
  const std::vector<Node>* body = &lowered.body;
  for (size_t i = 0; i < depth; ++i) {
    const Node& node = (*body)[found.accesses[0].path[i]];
    out.loops.push_back(node.name);
    body = &node.body;
  }
  return out;
}

bool shrink_allocation(Lowered* lowered, size_t number, const Names& threads) {
  return Placer(lowered).shrink_one(number, threads);
}

void expand_allocation(Lowered* lowered, size_t number, const std::vector<std::string>& loops) {
  ir::Buffer& buffer = lowered->allocations[number];
  std::map<std::string, ir::ExprPtr> sizes;
  collect_sizes(lowered->body, &sizes);
  std::vector<ir::ExprPtr> shape, iteration;
  for (const std::string& loop : loops) {
    shape.push_back(sizes.at(loop));
    iteration.push_back(ir::make_name(loop));
  }
  expand_accesses(&lowered->body, buffer.name, iteration);
  buffer.shape.insert(buffer.shape.begin(), shape.begin(), shape.end());
  if (!buffer.padding.empty()) buffer.padding.insert(buffer.padding.begin(), loops.size(), 0);
}

// Behind what the buffer shrank to: its elements are then that far from each other.
void add_padding(ir::Buffer* buffer) {
  for (size_t d = 0; d < buffer->padding.size(); ++d) buffer->shape[d] = buffer->shape[d] + buffer->padding[d];
}

int64_t bytes_of_buffer(const ir::Buffer& buffer) {
  int64_t out = ir::bits_of(buffer.dtype) / 8;
  for (size_t d = 0; d < buffer.shape.size(); ++d) {
    const auto extent = ir::constant(buffer.shape[d]);
    const int64_t padding = buffer.padding.empty() ? 0 : buffer.padding[d];
    if (!extent.has_value() || __builtin_mul_overflow(out, std::max<int64_t>(*extent + padding, 1), &out)) return -1;
  }
  return out;
}

void place_allocations(Lowered* lowered) {
  Placer placer(lowered);
  for (size_t i = 0; i < lowered->allocations.size(); ++i) placer.place(i);
  for (ir::Buffer& buffer : lowered->allocations) add_padding(&buffer);
}

}  // namespace narrows::common
