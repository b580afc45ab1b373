// SPDX-License-Identifier: Apache-2.0
// plan_cache.cpp -- see plan_cache.h.
#include "core/plan_cache.h"

#include "core/backend.h"

nw_plan::~nw_plan() {
  if (backend != nullptr) backend->plan_free(handle);
}

namespace narrows {
namespace {

constexpr uint32_t kDefaultCapacity = 1024;
constexpr size_t kShards = 16;  // fewer locks met by two threads; a small cache has one, so that its bound is exact

PlanRef retained(const PlanRef& plan) {
  plan->retain();
  return PlanRef(plan.get());
}

}  // namespace

PlanCache::PlanCache(uint32_t capacity)
    : shard_capacity_(capacity == 0             ? kDefaultCapacity / kShards
                      : capacity < 16 * kShards ? capacity
                                                : capacity / kShards),
      shards_(capacity != 0 && capacity < 16 * kShards ? 1 : kShards) {}

PlanRef PlanCache::find(const Key& key) {
  Shard& s = shard(key);
  const std::lock_guard lock(s.mutex);
  const auto found = s.entries.find(key);
  if (found == s.entries.end()) return PlanRef();
  Entry& entry = **found->second;
  if (entry.plan.get() == nullptr) return PlanRef();
  entry.used = true;
  return retained(entry.plan);
}

PlanRef PlanCache::plan(const Key& key, const std::function<std::unique_ptr<nw_plan>()>& make) {
  Shard& s = shard(key);
  std::unique_lock lock(s.mutex);
  if (const auto found = s.entries.find(key); found != s.entries.end()) return wait(s, lock, *found->second);

  const auto entry = std::make_shared<Entry>();
  entry->words.assign(key.words, key.words + key.size);
  entry->hash = key.hash;
  std::list<EntryRef> node{entry};
  s.entries.emplace(entry->key(), node.begin());
  s.clock.splice(s.clock.end(), node);  // listed in both, or, where memory ran out, in neither
  lock.unlock();

  std::unique_ptr<nw_plan> made;
  std::optional<Failure> failure;
  try {
    made = make();
    made->key = entry->words;
  } catch (...) {
    failure = caught(nullptr, "planning");
  }

  // Nothing from the catch to notify_all() needs memory: whoever waits is woken.
  lock.lock();
  entry->done = true;
  entry->failure = std::move(failure);
  std::list<EntryRef> dropped;  // their plans are freed after the lock
  if (!entry->failure) {
    entry->plan = PlanRef(made.release());
    dropped = evict(s, entry);
  } else if (const auto mine = s.entries.find(key); mine != s.entries.end() && *mine->second == entry) {
    s.clock.erase(mine->second);  // unless clear() came in between
    s.entries.erase(mine);
  }
  PlanRef out = entry->failure ? PlanRef() : retained(entry->plan);
  lock.unlock();
  s.planned.notify_all();
  if (entry->failure) throw *entry->failure;
  return out;
}

PlanRef PlanCache::wait(Shard& s, std::unique_lock<std::mutex>& lock, const EntryRef& listed) {
  const EntryRef entry = listed;  // NOLINT(performance-unnecessary-copy-initialization): evict() may drop the listed one
  s.planned.wait(lock, [&] { return entry->done; });
  if (entry->failure) throw *entry->failure;
  entry->used = true;
  return retained(entry->plan);
}

// Second chance: an entry that was used since its last turn goes to the back of the queue once. The one just made is not among the
// candidates, and has to earn its mark by being used again: a run of new keys does not drive out what is in use.
std::list<PlanCache::EntryRef> PlanCache::evict(Shard& s, const EntryRef& made) {
  std::list<EntryRef> out;
  for (size_t turns = 2 * s.clock.size(); s.clock.size() > shard_capacity_ && turns != 0; --turns) {
    const EntryRef entry = s.clock.front();
    if (entry == made || !entry->done || std::exchange(entry->used, false)) {
      s.clock.splice(s.clock.end(), s.clock, s.clock.begin());
      continue;
    }
    s.entries.erase(entry->key());
    out.splice(out.end(), s.clock, s.clock.begin());
  }
  return out;
}

void PlanCache::clear() {
  for (Shard& s : shards_) {
    std::list<EntryRef> dropped;
    {
      const std::lock_guard lock(s.mutex);
      s.entries.clear();
      dropped.swap(s.clock);
    }
  }
}

}  // namespace narrows
