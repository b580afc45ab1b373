// SPDX-License-Identifier: Apache-2.0
// plan_cache.h -- step 3 of a tensor's path: the same signature, the same plan. Bounded; one thread plans a key while others wait
// for that key only; no lock is held while a plugin plans, launches or frees.
#pragma once

#include <narrows/narrows.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/signature.h"

namespace narrows {
class Backend;
}

// What a plugin planned, shared by the cache, the callers that hold it and each nw_run() under way.
struct nw_plan {
  explicit nw_plan(nw_runtime* runtime) : runtime(runtime) {}
  ~nw_plan();

  void retain() const { refs.fetch_add(1, std::memory_order_relaxed); }
  void release() const {
    if (refs.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

  nw_runtime* runtime;
  narrows::Backend* backend = nullptr;  // none until one has planned it
  void* handle = nullptr;               // the plugin's
  nw_plan_info info{};
  std::vector<uint64_t> key;  // of the signature that it was planned for
  uint32_t flags = 0;         // the rest is the signature's too: without absent inputs at the end, and zeros at the end of params
  uint32_t num_inputs = 0;
  uint64_t params_size = 0;
  DLDevice device{};
  mutable std::atomic<uint32_t> refs{1};
};

namespace narrows {

// Owns one reference.
class PlanRef {
 public:
  explicit PlanRef(const nw_plan* plan = nullptr) : plan_(plan) {}
  PlanRef(PlanRef&& other) noexcept : plan_(other.take()) {}
  PlanRef& operator=(PlanRef&& other) noexcept {
    std::swap(plan_, other.plan_);
    return *this;
  }
  ~PlanRef() {
    if (plan_ != nullptr) plan_->release();
  }
  const nw_plan* get() const { return plan_; }
  const nw_plan* operator->() const { return plan_; }
  const nw_plan* take() { return std::exchange(plan_, nullptr); }

 private:
  const nw_plan* plan_;
};

class PlanCache {
 public:
  explicit PlanCache(uint32_t capacity);

  // The plan of this key, or none.
  PlanRef find(const Key& key);
  // The same, made by `make` if there is none. A failure is thrown in every thread that waited for it, and not kept.
  PlanRef plan(const Key& key, const std::function<std::unique_ptr<nw_plan>()>& make);
  void clear();

 private:
  struct Entry {
    std::vector<uint64_t> words;
    uint64_t hash = 0;
    PlanRef plan;       // none while it is being planned
    bool used = false;  // since the last eviction looked
    bool done = false;
    std::optional<Failure> failure;
    Key key() const { return {hash, words.data(), words.size()}; }
  };
  using EntryRef = std::shared_ptr<Entry>;
  struct Hash {
    size_t operator()(const Key& key) const { return key.hash; }
  };
  struct Equal {
    bool operator()(const Key& a, const Key& b) const { return a.size == b.size && std::equal(a.words, a.words + a.size, b.words); }
  };
  struct Shard {
    std::mutex mutex;
    std::condition_variable planned;
    std::unordered_map<Key, std::list<EntryRef>::iterator, Hash, Equal> entries;
    std::list<EntryRef> clock;  // the next to be looked at for eviction stands first
  };

  Shard& shard(const Key& key) { return shards_[key.hash >> 32 & (shards_.size() - 1)]; }
  PlanRef wait(Shard& shard, std::unique_lock<std::mutex>& lock, const EntryRef& entry);
  std::list<EntryRef> evict(Shard& shard, const EntryRef& made);

  size_t shard_capacity_;
  std::vector<Shard> shards_;
};

}  // namespace narrows
