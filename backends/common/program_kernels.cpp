// SPDX-License-Identifier: Apache-2.0
// program_kernels.cpp -- see program_kernels.h. program_barriers.cpp has the barriers.
#include "program_kernels.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <optional>
#include <utility>

#include "core/program/expr.h"
#include "plugin.h"
#include "program_ahead.h"
#include "program_barriers.h"
#include "program_place.h"
#include "program_products.h"

namespace narrows::common {
namespace {

using ir::For;

constexpr const char* kOnce = "k.once";  // no name of a program has a dot

bool is_bound(const Node& node) { return node.kind == Node::Kind::loop && node.loop_kind == For::Kind::bind; }
bool is_of_threads(const std::string& thread) { return thread.rfind("thread", 0) == 0; }
bool has_bound(const Node& node) {
  return is_bound(node) || std::any_of(node.body.begin(), node.body.end(), [](const Node& child) { return has_bound(child); });
}

void for_each_stores(const Node& node, const std::function<void(const Node&)>& visit) {
  if (node.kind == Node::Kind::stores) return visit(node);
  for (const Node& child : node.body) for_each_stores(child, visit);
}

// ---- substitution ----

void substitute_all(Node* node, const ir::Substitution& values) {
  if (node->extent != nullptr) node->extent = ir::substitute(node->extent, values);
  for (ir::ExprPtr& condition : node->conditions) condition = ir::substitute(condition, values);
  for (ir::Store& store : node->stores) {
    for (ir::ExprPtr& index : store.indices) index = ir::substitute(index, values);
    store.value = ir::substitute(store.value, values);
  }
  for (Node& child : node->body) substitute_all(&child, values);
}

// ---- loops that nobody bound ----

// Each element of a buffer that the nest writes is used by one iteration of `loops` alone.
class Independence {
 public:
  explicit Independence(const Lowered& lowered) : lowered_(lowered) { collect_extents(lowered.body, &extents_); }

  bool holds(const Node& nest, const std::vector<std::string>& loops) {
    std::map<std::string, std::vector<const std::vector<ir::ExprPtr>*>> accesses;
    Names written, fixed;
    collect_fixed(nest, &fixed);
    for_each_stores(nest, [&](const Node& node) {
      const auto load = [&](const ir::Expr& expr) { accesses[expr.name].push_back(&expr.operands); };
      for (const ir::ExprPtr& condition : node.conditions) for_each_load(condition, load);
      for (const ir::Store& store : node.stores) {
        written.insert(store.buffer);
        accesses[store.buffer].push_back(&store.indices);
        for (const ir::ExprPtr& index : store.indices) for_each_load(index, load);
        for_each_load(store.value, load);
      }
    });
    for (const std::string& buffer : written) {
      if (is_own(buffer, loops)) continue;
      const auto& all = accesses.at(buffer);
      for (size_t i = 0; i < all.size(); ++i)
        for (size_t j = i; j < all.size(); ++j)
          if (!are_apart(*all[i], *all[j], loops, fixed, extents_)) return false;
    }
    return true;
  }

 private:
  // Sizes: names that are no loop of the nest.
  void collect_fixed(const Node& nest, Names* fixed) const {
    Names loops;
    const std::function<void(const Node&)> walk = [&](const Node& node) {
      if (node.kind == Node::Kind::loop) loops.insert(node.name);
      for (const Node& child : node.body) walk(child);
    };
    walk(nest);
    for_each_stores(nest, [&](const Node& node) {
      for (const ir::Store& store : node.stores) {
        for (const ir::ExprPtr& index : store.indices) collect_names(index, fixed);
        collect_names(store.value, fixed);
      }
    });
    for (const std::string& loop : loops) fixed->erase(loop);
  }

  // Each iteration of the innermost of the loops has its own: all users are in it, and it keeps no value.
  bool is_own(const std::string& buffer, const std::vector<std::string>& loops) const {
    if (lowered_.fresh.count(buffer) == 0) return false;
    const Home home = home_of(lowered_, buffer);
    return std::find(home.loops.begin(), home.loops.end(), loops.back()) != home.loops.end();
  }

  const Lowered& lowered_;
  Extents extents_;
};

// The loops from the nest's outermost one inwards, as far as each has but one statement in it.
std::vector<Node*> chain_of(Node* nest) {
  std::vector<Node*> out;
  for (Node* node = nest; node->kind == Node::Kind::loop; node = node->body.data()) {
    out.push_back(node);
    if (node->body.size() != 1) break;
  }
  return out;
}

bool mentions_any(const ir::ExprPtr& extent, const std::vector<std::string>& names) {
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) { return mentions(extent, name); });
}

// Marks the loops of a nest whose iterations may run in any order and that none of the others' extents depend on; they become the
// outermost ones where the nest is a chain down to its stores, else they are the first ones of it.
void mark_flat(Independence* independence, Node* nest) {
  const std::vector<Node*> chain = chain_of(nest);
  const bool is_perfect = !chain.empty() && chain.back()->body.size() == 1 && chain.back()->body[0].kind == Node::Kind::stores;
  std::vector<std::string> flat, all;
  std::vector<Node*> outer, inner;
  for (Node* loop : chain) all.push_back(loop->name);
  for (Node* loop : chain) {
    std::vector<std::string> with = flat;
    with.push_back(loop->name);
    const bool is_proven = loop->loop_kind == For::Kind::parallel && inner.empty();
    const bool is_free = !mentions_any(loop->extent, all) && (is_proven || independence->holds(*nest, with));
    if (is_free && (is_perfect || inner.empty())) {
      flat.push_back(loop->name);
      outer.push_back(loop);
    } else {
      inner.push_back(loop);
    }
  }
  if (outer.empty()) return;
  // What each loop of the chain is, in the new order.
  struct Head {
    std::string name;
    ir::ExprPtr extent;
    For::Kind kind;
  };
  std::vector<Head> heads;
  heads.reserve(outer.size() + inner.size());
  for (const Node* loop : outer) heads.push_back({loop->name, loop->extent, For::Kind::bind});
  for (const Node* loop : inner) heads.push_back({loop->name, loop->extent, loop->loop_kind});
  for (size_t i = 0; i < chain.size(); ++i) {
    chain[i]->name = heads[i].name;
    chain[i]->extent = heads[i].extent;
    chain[i]->loop_kind = heads[i].kind;
    chain[i]->thread = heads[i].kind == For::Kind::bind ? "flat" : "";
  }
}

// ---- loops that are bound ----

// The loop of kernel `number` that all the nest's loops that are bound to this thread become.
std::string kernel_loop(size_t number, const std::string& thread) { return "k" + std::to_string(number) + "." + thread; }

class Hoist {
 public:
  Hoist(const GpuLimits& limits, size_t number) : limits_(limits), prefix_(kernel_loop(number, "")) {}

  Kernel run(Node nest) {
    Kernel out;
    collect(nest);
    for (const auto& [thread, extent] : extents_)
      (is_of_threads(thread) ? out.threads : out.blocks).push_back({prefix_ + thread, extent});
    for (const KernelLoop& loop : out.threads) {
      const auto extent = ir::constant(loop.extent);
      if (!extent.has_value() || *extent < 1 || out.num_threads * *extent > limits_.threads)
        refuse(NW_UNSUPPORTED, -1, "a loop of %s iterations is bound to '%s'; expected a number of threads, at most %lld in all",
               ir::constant(loop.extent).has_value() ? std::to_string(*extent).c_str() : "varying",
               loop.name.substr(prefix_.size()).c_str(), static_cast<long long>(limits_.threads));
      out.num_threads *= *extent;
    }
    out.is_bound = true;
    is_simple_ = chain_is_simple(nest);
    out.body = rewritten(std::move(nest), {});
    return out;
  }

  // Each block loop is there once, with nothing but such loops around it: its iterations are proven to be independent.
  bool is_simple() const { return is_simple_; }

 private:
  void collect(const Node& node) {
    if (is_bound(node)) {
      const auto [entry, is_new] = extents_.insert({node.thread, node.extent});
      if (!is_new && !ir::same(entry->second, node.extent))
        refuse(NW_UNSUPPORTED, -1, "loops of different extents are bound to '%s' in one nest", node.thread.c_str());
      Names loops(around_.begin(), around_.end());
      if (mentions(node.extent, loops))
        refuse(NW_UNSUPPORTED, -1, "the extent of loop '%s', which is bound to '%s', depends on a loop around it",
               node.name.c_str(), node.thread.c_str());
    }
    if (node.kind != Node::Kind::loop) return;
    around_.push_back(node.name);
    for (const Node& child : node.body) collect(child);
    around_.pop_back();
  }

  static size_t count_blocks(const Node& node) {
    size_t out = is_bound(node) && !is_of_threads(node.thread) ? 1 : 0;
    for (const Node& child : node.body) out += count_blocks(child);
    return out;
  }
  static bool chain_is_simple(const Node& nest) {
    size_t found = 0;
    const size_t all = count_blocks(nest);
    for (const Node* node = &nest; is_bound(*node); node = node->body.data()) {
      found += is_of_threads(node->thread) ? 0 : 1;
      if (found == all) return true;
      if (node->body.size() != 1) return false;
    }
    return found == all;
  }

  std::vector<Node> rewritten(Node node, Names present) {
    if (node.kind == Node::Kind::stores) {
      for (const auto& [thread, extent] : extents_) {
        if (present.count(thread) != 0 || ir::constant(extent) == 1) continue;
        if (!is_of_threads(thread))
          refuse(NW_UNSUPPORTED, -1, "block '%s' is in no loop that is bound to '%s', as others of its nest are", node.name.c_str(),
                 thread.c_str());
        node.first_only.insert(prefix_ + thread);
      }
      node.thread_loops = thread_loops_;
      std::vector<Node> out;
      out.push_back(std::move(node));
      return out;
    }
    const bool bound = is_bound(node);
    if (bound && is_of_threads(node.thread)) thread_loops_.push_back(++count_);
    std::vector<Node> inside;
    if (bound) {
      if (!present.insert(node.thread).second)
        refuse(NW_UNSUPPORTED, -1, "loop '%s' is bound to '%s' within a loop that is, too", node.name.c_str(), node.thread.c_str());
      for (Node& child : node.body) substitute_all(&child, {{node.name, ir::make_name(prefix_ + node.thread)}});
    }
    for (Node& child : node.body)
      for (Node& part : rewritten(std::move(child), present)) inside.push_back(std::move(part));
    node.thread_loops = thread_loops_;
    if (bound && is_of_threads(node.thread)) thread_loops_.pop_back();
    if (bound) return inside;
    node.body = std::move(inside);
    std::vector<Node> out;
    out.push_back(std::move(node));
    return out;
  }

  const GpuLimits& limits_;
  const std::string prefix_;
  std::map<std::string, ir::ExprPtr> extents_;  // by thread: block.x, block.y, …
  std::vector<std::string> around_;
  std::vector<size_t> thread_loops_;
  size_t count_ = 0;
  bool is_simple_ = false;
};

Kernel flat_kernel(Node nest) {
  Kernel out;
  Node* node = &nest;
  while (is_bound(*node)) {
    out.flat.push_back({node->name, node->extent});
    if (node->body.size() != 1 || !is_bound(node->body[0])) {
      std::vector<Node> body = std::move(node->body);
      out.body = std::move(body);
      return out;
    }
    Node next = std::move(node->body[0]);
    nest = std::move(next);
    node = &nest;
  }
  out.body.push_back(std::move(nest));
  return out;
}

// The kernel's nest with its loops of blocks and threads outermost.
Node whole_nest(const Kernel& kernel, std::vector<Node> body) {
  std::vector<KernelLoop> loops;
  for (const auto* part : {&kernel.blocks, &kernel.threads, &kernel.flat}) loops.insert(loops.end(), part->begin(), part->end());
  for (size_t i = loops.size(); i-- > 0;) {
    Node loop;
    loop.kind = Node::Kind::loop;
    loop.name = loops[i].name;
    loop.extent = loops[i].extent;
    loop.loop_kind = For::Kind::bind;
    loop.body = std::move(body);
    body.clear();
    body.push_back(std::move(loop));
  }
  if (body.size() == 1) return std::move(body[0]);
  Node loop;  // of one iteration, so that a kernel is one node
  loop.kind = Node::Kind::loop;
  loop.name = kOnce;
  loop.extent = ir::make_integer(1);
  loop.body = std::move(body);
  return loop;
}

size_t loops_around(const Kernel& kernel, const Node& nest) {
  const size_t out = kernel.blocks.size() + kernel.threads.size() + kernel.flat.size();
  return out == 0 && nest.name == kOnce ? 1 : out;
}

// ---- allocations ----

class Placer {
 public:
  Placer(KernelProgram* program, const Lowered& original, const GpuLimits& limits)
      : program_(program), original_(original), limits_(limits) {}

  void run() {
    for (size_t i = 0; i < program_->lowered.allocations.size(); ++i) place(i);
  }

 private:
  void place(size_t number) {
    const ir::Buffer buffer = program_->lowered.allocations[number];
    const Home home = home_of(program_->lowered, buffer.name);
    if (!home.is_used) return;
    Place& out = program_->places[buffer.name];
    out = usual_place(buffer.name);
    const size_t kernel = kernel_of(buffer.name);
    if (kernel == program_->kernels.size()) return;  // more than one
    using Scope = ir::Buffer::Scope;
    const bool is_alike = runs_alike(kernel, buffer.name) && !is_of_warp(kernel, buffer.name);
    if (out == Place::of_thread && !is_alike) {  // what some threads write others read
      std::vector<std::string> own;
      for (const std::string& loop : thread_loops_around(buffer.name)) own.push_back(kernel_loop(kernel, threads.at(loop)));
      expand_allocation(&program_->lowered, number, own);
      out = usual_place(buffer.name, false);
    }
    if (buffer.scope != Scope::shared && is_alike && try_place(number, {}, limits_.local_bytes, &local_[kernel])) {
      out = Place::local;
      return;
    }
    if ((buffer.scope == Scope::local && is_alike) || !program_->kernels[kernel].is_bound) return;
    Names threads;
    for (const KernelLoop& loop : program_->kernels[kernel].threads) threads.insert(loop.name);
    if (try_place(number, threads, limits_.shared_bytes, &shared_[kernel])) out = Place::shared;
  }

  bool try_place(size_t number, const Names& threads, int64_t most, int64_t* used) {
    const Lowered before = program_->lowered;
    if (shrink_allocation(&program_->lowered, number, threads)) {
      const int64_t bytes = bytes_of_buffer(program_->lowered.allocations[number]);
      if (bytes >= 0 && *used + bytes <= most) {
        *used += (bytes + 15) / 16 * 16;
        return true;
      }
    }
    program_->lowered = before;
    return false;
  }

  // By the loop that all users share in the program itself: each iteration of a loop that is bound has its own.
  Place usual_place(const std::string& buffer, bool heeds_threads = true) const {
    if (heeds_threads && !thread_loops_around(buffer).empty()) return Place::of_thread;
    const std::vector<std::string> loops = home_of(original_, buffer).loops;
    const bool is_of_block = std::any_of(loops.begin(), loops.end(), [&](const std::string& name) {
      return threads.count(name) != 0 && !is_bound_to_threads(name);
    });
    return is_of_block ? Place::of_block : Place::global;
  }
  // The loops that all users share and that are bound to threads.
  std::vector<std::string> thread_loops_around(const std::string& buffer) const {
    std::vector<std::string> out = home_of(original_, buffer).loops;
    std::erase_if(out, [&](const std::string& name) { return !is_bound_to_threads(name); });
    return out;
  }
  bool is_bound_to_threads(const std::string& loop) const {
    const auto thread = threads.find(loop);
    return thread != threads.end() && (is_of_threads(thread->second) || thread->second == "flat");
  }

  size_t kernel_of(const std::string& buffer) const {
    const std::vector<Node>& body = program_->lowered.body;
    size_t out = body.size();
    for (size_t i = 0; i < body.size(); ++i) {
      bool found = false;
      for_each_stores(body[i], [&](const Node& node) { found = found || uses(node, buffer); });
      if (found && out != body.size()) return body.size();
      if (found) out = i;
    }
    return out;
  }
  static bool uses(const Node& node, const std::string& buffer) {
    bool out = false;
    const auto load = [&](const ir::Expr& expr) { out = out || expr.name == buffer; };
    for (const ir::ExprPtr& condition : node.conditions) for_each_load(condition, load);
    for (const ir::Store& store : node.stores) {
      out = out || store.buffer == buffer;
      for (const ir::ExprPtr& index : store.indices) for_each_load(index, load);
      for_each_load(store.value, load);
    }
    return out;
  }
  // A product that a warp's threads compute together uses it.
  bool is_of_warp(size_t kernel, const std::string& buffer) const {
    bool out = false;
    for_each_joint(program_->lowered.body[kernel], [&](const Node& product) {
      for_each_stores(product, [&](const Node& node) { out = out || uses(node, buffer); });
    });
    return out;
  }
  // The same threads run all that uses it.
  bool runs_alike(size_t kernel, const std::string& buffer) const {
    std::optional<Names> first;
    bool out = true;
    for_each_stores(program_->lowered.body[kernel], [&](const Node& node) {
      if (!uses(node, buffer)) return;
      out = out && (!first.has_value() || *first == node.first_only);
      first = node.first_only;
    });
    return out;
  }

 public:
  int64_t& shared_bytes(size_t kernel) { return shared_[kernel]; }  // that are taken

  std::map<std::string, std::string> threads;  // of the original's loops that are bound, what they are bound to

 private:
  KernelProgram* program_;
  const Lowered& original_;
  const GpuLimits& limits_;
  std::map<size_t, int64_t> local_, shared_;
};

void collect_threads(const std::vector<Node>& body, std::map<std::string, std::string>* out) {
  for (const Node& node : body) {
    if (is_bound(node)) (*out)[node.name] = node.thread;
    collect_threads(node.body, out);
  }
}

}  // namespace

bool are_apart(const std::vector<ir::ExprPtr>& a, const std::vector<ir::ExprPtr>& b, const std::vector<std::string>& loops,
               const Names& fixed, const Extents& extents) {
  Names left(loops.begin(), loops.end()), all = left;
  for (const std::string& loop : loops)
    if (const auto extent = extents.find(loop); extent != extents.end() && extent->second <= 1) left.erase(loop);
  for (size_t d = 0; d < a.size() && !left.empty(); ++d) {
    Linear x = linear(a[d], extents), y = linear(b[d], extents);
    std::vector<std::pair<int64_t, std::string>> factors;  // of the loops
    bool decides = true;
    for (const std::string& loop : loops) {
      const int64_t factor = x.factor_of(loop);
      decides = decides && factor == y.factor_of(loop);
      if (factor != 0) factors.emplace_back(std::abs(factor), loop);
      x = x.without(loop);
      y = y.without(loop);
    }
    decides = decides && !mentions(expression(x), all) && !mentions(expression(y), all);
    if (!decides || factors.empty()) continue;
    for (const Term& term : std::vector<Term>(x.terms)) {  // what both have alike
      if (!term.is_name() || y.factor_of(term.key) != term.factor) continue;
      if (fixed.count(term.key) == 0) {
        if (extents.count(term.key) == 0) continue;
        factors.emplace_back(std::abs(term.factor), term.key);  // another loop, of which each has an iteration of its own
      }
      x = x.without(term.key);
      y = y.without(term.key);
    }
    const std::optional<Range> from = range(x, extents), to = range(y, extents);
    if (!from.has_value() || !to.has_value()) continue;
    int64_t span = 0, other = 0;
    if (__builtin_sub_overflow(from->greatest, to->least, &span) || __builtin_sub_overflow(to->greatest, from->least, &other))
      continue;
    span = std::max(std::abs(span), std::abs(other));
    std::sort(factors.begin(), factors.end());
    std::vector<int64_t> spans;  // what the terms before one may differ by, all together
    for (const auto& [factor, loop] : factors) {
      spans.push_back(span);
      const auto extent = extents.find(loop);
      int64_t more = 0;
      if (extent == extents.end() || __builtin_mul_overflow(factor, extent->second - 1, &more) ||
          __builtin_add_overflow(span, more, &span))
        span = INT64_MAX;
    }
    for (size_t i = factors.size(); i > 0 && spans[i - 1] < factors[i - 1].first; --i) left.erase(factors[i - 1].second);
  }
  return left.empty();
}

KernelProgram make_kernels(const ir::Program& program, const GpuLimits& limits) {
  KernelProgram out;
  out.limits = limits;
  Lowered original = lower_loops(program);
  Lowered placed = original;
  place_allocations(&placed);
  Independence independence(placed);
  for (size_t i = 0; i < original.body.size(); ++i)
    if (!has_bound(original.body[i])) mark_flat(&independence, &original.body[i]);
  out.lowered = original;
  std::vector<bool> is_simple;
  for (size_t i = 0; i < original.body.size(); ++i) {
    Node& nest = out.lowered.body[i];
    const bool is_flat = !has_bound(nest) || nest.thread == "flat";
    const std::vector<std::string> remarks = is_flat ? plain_products(&nest) : std::vector<std::string>{};
    Hoist hoist(limits, i);
    Kernel kernel = is_flat ? flat_kernel(std::move(nest)) : hoist.run(std::move(nest));
    kernel.remarks = remarks;
    if (!is_flat) mark_joint(&kernel, limits);
    is_simple.push_back(is_flat || hoist.is_simple());
    out.lowered.body[i] = whole_nest(kernel, std::move(kernel.body));
    kernel.body.clear();
    out.kernels.push_back(std::move(kernel));
  }
  Placer placer(&out, original, limits);
  collect_threads(original.body, &placer.threads);
  placer.run();
  for (size_t i = 0; i < out.kernels.size(); ++i) {
    Kernel& kernel = out.kernels[i];
    const Node* node = &out.lowered.body[i];
    for (size_t depth = loops_around(kernel, *node); depth > 1; --depth) node = node->body.data();
    kernel.body = loops_around(kernel, out.lowered.body[i]) == 0 ? std::vector<Node>{out.lowered.body[i]} : node->body;
    if (kernel.is_bound) add_barriers(&kernel, out.places, is_simple[i]);
    unmark_waiting(&kernel.body);
    if (kernel.is_bound) plan_ahead(&kernel, out, &placer.shared_bytes(i));
  }
  for (ir::Buffer& buffer : out.lowered.allocations) add_padding(&buffer);
  for (size_t i = 0; i < out.lowered.allocations.size(); ++i)
    if (out.places.count(out.lowered.allocations[i].name) != 0) out.lowered.outermost.push_back(i);
  return out;
}

}  // namespace narrows::common
