// SPDX-License-Identifier: Apache-2.0
// program_barriers.cpp -- see program_barriers.h.
#include "program_barriers.h"

#include <algorithm>
#include <functional>

#include "core/program/expr.h"
#include "plugin.h"

namespace narrows::common {
namespace {

struct Access {
  std::string buffer;
  bool is_store;
  const std::vector<ir::ExprPtr>* indices;
  const Node* node;
  bool is_older;  // of an iteration before this one of a loop around its loops of threads
};

class Barriers {
 public:
  Barriers(Kernel* kernel, const std::map<std::string, Place>& places) : kernel_(kernel), places_(places) {
    for (const KernelLoop& loop : kernel->threads) add_loop(loop, &threads_);
    for (const KernelLoop& loop : kernel->blocks) add_loop(loop, &blocks_);
    collect_extents(kernel->body, &extents_);
    collect_names_of(kernel->body);
    for (const std::string& loop : loops_) fixed_.erase(loop);
  }

  void require_independent_blocks() {
    std::vector<Access> all;
    collect(kernel_->body, &all);
    Names fixed = fixed_;
    for (const std::string& block : blocks_) fixed.erase(block);
    for (const Access& a : all) {
      if (!a.is_store || is_of_block(a.buffer)) continue;
      for (const Access& b : all)
        if (a.buffer == b.buffer && !are_apart(*a.indices, *b.indices, blocks_, fixed, extents_))
          refuse(NW_UNSUPPORTED, -1,
                 "a loop that is bound to blocks is in a loop that is not, and a block might use '%s' of another one",
                 a.buffer.c_str());
    }
  }

  void run() {
    std::vector<Access> pending;
    body(&kernel_->body, &pending, true);
  }

 private:
  void add_loop(const KernelLoop& loop, std::vector<std::string>* names) {
    names->push_back(loop.name);
    if (const auto extent = ir::constant(loop.extent); extent.has_value()) extents_[loop.name] = *extent;
    bound_.insert(loop.name);
  }

  void collect_names_of(const std::vector<Node>& nodes) {
    for (const Node& node : nodes) {
      if (node.kind == Node::Kind::loop) loops_.insert(node.name);
      for (const ir::Store& store : node.stores) {
        written_.insert(store.buffer);
        for (const ir::ExprPtr& index : store.indices) collect_names(index, &fixed_);
        collect_names(store.value, &fixed_);
      }
      collect_names_of(node.body);
    }
    for (const std::string& thread : threads_) fixed_.erase(thread);
  }

  bool is_of_block(const std::string& buffer) const {
    const auto place = places_.find(buffer);
    return place != places_.end() && place->second != Place::global;
  }
  // All threads of a block see it, and one of them writes it.
  bool counts(const std::string& buffer) const {
    if (written_.count(buffer) == 0) return false;
    const auto place = places_.find(buffer);
    return place == places_.end() || (place->second != Place::local && place->second != Place::of_thread);
  }

  void collect(const Node& node, std::vector<Access>* out) const {
    const auto load = [&](const ir::Expr& expr) {
      if (counts(expr.name)) out->push_back({expr.name, false, &expr.operands, &node, false});
    };
    for (const ir::ExprPtr& condition : node.conditions) for_each_load(condition, load);
    for (const ir::Store& store : node.stores) {
      for (const ir::ExprPtr& index : store.indices) for_each_load(index, load);
      for_each_load(store.value, load);
      if (counts(store.buffer)) out->push_back({store.buffer, true, &store.indices, &node, false});
    }
  }
  void collect(const std::vector<Node>& nodes, std::vector<Access>* out) const {
    for (const Node& node : nodes) {
      if (node.kind == Node::Kind::stores)
        collect(node, out);
      else
        collect(node.body, out);
    }
  }

  bool conflict(const Access& before, const Access& now) const {
    if (before.buffer != now.buffer || (!before.is_store && !now.is_store)) return false;
    // Within the same iteration of the same loops of threads, each iteration uses its own: that is proven.
    const bool same_loops = before.node->thread_loops == now.node->thread_loops && before.node->first_only == now.node->first_only;
    if (same_loops && !before.is_older) return false;
    if (before.node->first_only == now.node->first_only) {
      std::vector<std::string> run;
      for (const std::string& thread : threads_)
        if (now.node->first_only.count(thread) == 0) run.push_back(thread);
      return !are_apart(*before.indices, *now.indices, run, fixed_, extents_);
    }
    return true;
  }

  bool conflicts(const std::vector<Access>& before, const std::vector<Access>& now) const {
    return std::any_of(now.begin(), now.end(), [&](const Access& access) {
      return std::any_of(before.begin(), before.end(), [&](const Access& other) { return conflict(other, access); });
    });
  }

  void body(std::vector<Node>* nodes, std::vector<Access>* pending, bool is_uniform) {
    for (Node& node : *nodes) {
      if (node.kind == Node::Kind::loop) {
        loop(&node, pending, is_uniform);
        continue;
      }
      std::vector<Access> now;
      collect(node, &now);
      if (!node.has_barrier && conflicts(*pending, now)) {
        if (!is_uniform)
          refuse(NW_UNSUPPORTED, -1, "block '%s' would wait for other threads in a loop that not all of them run alike",
                 node.name.c_str());
        node.has_barrier = true;
      }
      if (node.has_barrier) pending->clear();
      pending->insert(pending->end(), now.begin(), now.end());
    }
  }

  void loop(Node* node, std::vector<Access>* pending, bool is_uniform) {
    std::vector<Access> inside;
    collect(node->body, &inside);
    if (is_uniform && conflicts(*pending, inside)) node->has_barrier = true;  // once, and not in each iteration
    if (node->has_barrier) pending->clear();
    const bool alike = is_uniform && !mentions(node->extent, bound_) && !reads_data(node->extent);
    const std::vector<Access> before = *pending;
    for (int pass = 0; pass < 3; ++pass) {
      body(&node->body, pending, alike);
      for (Access& access : *pending)  // the loops of threads that are in this loop, run again
        access.is_older = access.is_older || access.node->thread_loops.size() > node->thread_loops.size();
      keep_once(pending);
    }
    pending->insert(pending->end(), before.begin(), before.end());  // it may run no iteration
    keep_once(pending);
  }

  static bool reads_data(const ir::ExprPtr& extent) {
    bool out = false;
    for_each_load(extent, [&](const ir::Expr&) { out = true; });
    return out;
  }

  static void keep_once(std::vector<Access>* all) {
    std::vector<Access> out;
    for (const Access& access : *all) {
      const auto same = [&](const Access& other) {
        return other.indices == access.indices && other.is_store == access.is_store && other.is_older == access.is_older;
      };
      if (std::none_of(out.begin(), out.end(), same)) out.push_back(access);
    }
    *all = std::move(out);
  }

  Kernel* kernel_;
  const std::map<std::string, Place>& places_;
  std::vector<std::string> threads_, blocks_;
  Extents extents_;
  Names loops_, fixed_, written_, bound_;
};

}  // namespace

void add_barriers(Kernel* kernel, const std::map<std::string, Place>& places, bool blocks_are_independent) {
  Barriers barriers(kernel, places);
  if (!blocks_are_independent) barriers.require_independent_blocks();
  if (kernel->num_threads > 1) barriers.run();
}

}  // namespace narrows::common
