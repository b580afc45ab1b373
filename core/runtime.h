// SPDX-License-Identifier: Apache-2.0
// runtime.h -- what nw_runtime is: the plugins in search order, the pool, the plan cache. The dispatcher works on it.
#pragma once

#include <narrows/narrows.h>
#include <narrows/plugin.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/backend.h"
#include "core/plan_cache.h"
#include "core/program_op.h"
#include "core/thread_count.h"
#include "core/thread_pool.h"

struct nw_runtime {
 public:
  // Loads the plugins; throws Failure for options that cannot be. The caller owns one reference.
  static nw_runtime* create(const nw_options& options);
  ~nw_runtime();

  // One reference is the caller's until nw_runtime_destroy, and one that of each plan it holds: a plan that is released later is
  // harmless. The cache's plans have none, so that neither keeps the other alive.
  void retain() { refs_.fetch_add(1, std::memory_order_relaxed); }
  void release() {
    if (refs_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

  void load(const std::string& path);         // throws Failure when the plugin is refused
  void load_behind(const std::string& path);  // behind all others; refuses a file that is not named as its plugin is
  size_t num_backends() const;
  // The next usable plugin in search order, or NULL. Without a copy of the list, so that what gives memory back needs none. What is
  // loaded meanwhile stands in front and may shadow one that is still to come: then it begins anew, and a plugin may come twice.
  struct Place {
    size_t at = 0, of = 0;
  };
  narrows::Backend* next_usable(Place& place) const;
  // Snapshots, in search order. What is loaded meanwhile changes neither.
  std::vector<narrows::Backend*> backends() const;  // all that were found
  std::vector<narrows::Backend*> usable() const;    // neither refused nor shadowed

  // The contract by which an op is called, or NULL.
  const narrows::Contract* find_contract(const std::string& op) const;
  const nw_op* find_op(const std::string& op) const;
  std::vector<const nw_op*> ops() const;  // all that find_op() finds
  [[noreturn]] void refuse_unknown_op(const char* op) const;

  // Tensor programs. They live as long as the runtime. load and schedule throw Failure.
  const nw_op& load_program(const std::string& text, const char* backward);
  void schedule_program(const std::string& op, const std::string& backend, const char* scheduled);
  const narrows::ProgramOp* find_program(const std::string& op) const;  // NULL: there is none
  std::vector<const narrows::ProgramOp*> programs() const;
  narrows::ProgramTexts texts_of(const narrows::ProgramOp& program, const std::string& backend) const;

  // Is it a device type where tensors live that at least one usable plugin serves (not its pinned or managed memory)?
  bool is_served(int32_t device_type) const {
    return device_type > 0 && device_type < 64 && (served_types_.load(std::memory_order_relaxed) >> device_type & 1) != 0;
  }
  // The usable plugin whose pinned or managed memory that device type is, or NULL.
  narrows::Backend* owner_of_shared(int32_t device_type) const;
  // The first usable plugin that has the device, opened; throws Failure when there is none.
  narrows::Backend& serving(DLDevice device);
  // The plugin that says what the device is; throws as serving() does. One that brings ops of its own alone is a guest there, and
  // of those with built-in ops the last is Narrows' own: a plugin ahead changes nothing.
  narrows::Backend& describing(DLDevice device);

  void set_num_threads(int64_t num_threads);  // throws Failure where the pool has not as many
  const narrows::ThreadPool& pool() const { return pool_; }

  const nw_host& host() const { return host_; }
  narrows::PlanCache& cache() { return *cache_; }
  const std::string& preferred_backend() const { return preferred_; }  // NARROWS_BACKEND
  void log(int32_t level, const std::string& message) const;

 private:
  explicit nw_runtime(const nw_options& options);
  nw_runtime(const nw_runtime&) = delete;
  std::optional<narrows::Failure> add(std::unique_ptr<narrows::Backend> found, bool in_front);
  void add_folder(const std::string& folder);
  std::string find_clash(const narrows::Backend& backend) const;
  std::string refused_files() const;
  void warn_of_unused(const std::string& path) const;
  std::string find_missing_backward(const narrows::Backend& backend) const;
  void update_shadowing();
  uint32_t choose_capacity(uint32_t asked_for) const;
  static const int handles_fork_;  // 0, or an errno
  static void before_fork();
  static void after_fork_in_parent();
  static void after_fork_in_child();

  std::atomic<uint32_t> refs_{1};
  void (*log_)(void* ctx, int32_t level, const char* message);
  void* log_ctx_;
  uint32_t cache_capacity_;
  std::string preferred_;
  std::string searched_;  // the folders that are searched for plugins, ", " between
  narrows::ThreadPool pool_;
  nw_host host_;
  std::unique_ptr<narrows::PlanCache> cache_;
  std::atomic<uint64_t> served_types_{0};  // bit t: DLPack device type t
  mutable std::mutex mutex_;               // of the two lists and the programs; not held while a plugin loads
  std::vector<std::unique_ptr<narrows::Backend>> owned_;
  std::vector<narrows::Backend*> order_;
  std::map<std::string, std::unique_ptr<narrows::ProgramOp>> programs_;  // by the op's name
};

namespace narrows {

// The runtime that the bindings of a process share; made by the first call. Throws Failure as nw_runtime::create does.
nw_runtime& default_runtime();
bool is_default(const nw_runtime* runtime);

}  // namespace narrows
