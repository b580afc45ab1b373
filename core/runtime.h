// runtime.h -- what nw_runtime is: the plugins in search order, the pool, the plan cache. The dispatcher works on it.
#pragma once

#include <narrows/narrows.h>
#include <narrows/plugin.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/backend.h"
#include "core/plan_cache.h"
#include "core/thread_pool.h"

struct nw_runtime : std::enable_shared_from_this<nw_runtime> {
 public:
  // Loads the plugins; throws Failure for options that cannot be.
  static std::shared_ptr<nw_runtime> create(const nw_options& options);
  ~nw_runtime();

  // The caller's own hold on the runtime; plans that it still has after letting go keep the runtime alive.
  void hold(std::shared_ptr<nw_runtime> self) { self_ = std::move(self); }
  std::shared_ptr<nw_runtime> let_go() { return std::exchange(self_, nullptr); }

  void load(const std::string& path);               // throws Failure when the plugin is refused
  std::vector<narrows::Backend*> backends() const;  // a snapshot, in search order, refused ones too

  // The contract by which an op is called, or NULL.
  const narrows::Contract* find_contract(const std::string& op) const;
  const nw_op* find_op(const std::string& op) const;

  // Is it a device type where tensors live that at least one usable plugin serves (not its pinned or managed memory)?
  bool is_home(int32_t device_type) const {
    return device_type > 0 && device_type < 64 && (homes_.load(std::memory_order_relaxed) >> device_type & 1) != 0;
  }
  // The first usable plugin of that device type, opened; throws Failure (NW_UNAVAILABLE) when there is none.
  narrows::Backend& serving(int32_t device_type);
  narrows::Backend& serving(DLDevice device);  // and the device exists

  const nw_host& host() const { return host_; }
  narrows::PlanCache& cache() { return *cache_; }
  const std::string& preferred_backend() const { return preferred_; }  // NARROWS_BACKEND
  void log(int32_t level, const std::string& message) const;

 private:
  explicit nw_runtime(const nw_options& options);
  nw_runtime(const nw_runtime&) = delete;
  narrows::Backend& add(std::unique_ptr<narrows::Backend> found, bool in_front);
  void add_folder(const std::string& folder);
  std::string find_clash(const narrows::Backend& backend) const;
  void settle();
  static void before_fork();
  static void after_fork_in_parent();
  static void after_fork_in_child();

  std::shared_ptr<nw_runtime> self_;
  void (*log_)(void* ctx, int32_t level, const char* message);
  void* log_ctx_;
  uint32_t cache_capacity_;
  std::string preferred_;
  narrows::ThreadPool pool_;
  nw_host host_;
  std::unique_ptr<narrows::PlanCache> cache_;
  std::atomic<uint64_t> homes_{0};
  mutable std::mutex mutex_;  // of the two lists; not held while a plugin loads
  std::vector<std::unique_ptr<narrows::Backend>> owned_;
  std::vector<narrows::Backend*> order_;
};
