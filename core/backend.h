// SPDX-License-Identifier: Apache-2.0
// backend.h -- one plugin file as core sees it: accepted or refused, its table, its declarations, its instance.
// Every call into a plugin goes through here; an exception that one throws becomes a status here. Step 4 of a tensor's path.
#pragma once

#include <narrows/narrows.h>
#include <narrows/plugin.h>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/contract.h"
#include "core/error.h"
#include "core/program_op.h"

namespace narrows {

class Backend {
 public:
  // A file that was refused: it is listed, and serves nothing.
  Backend(std::string path, int32_t status, std::string reason);
  void set_names(const nw_plugin& table);  // as far as a refused table has them
  // Checks the table and its declarations; throws Failure when the plugin must be refused.
  Backend(std::string path, const nw_plugin& table);
  ~Backend();
  Backend(const Backend&) = delete;

  const std::string& path() const { return path_; }
  const std::string& name() const { return name_; }
  const std::string& version() const { return version_; }
  bool accepted() const { return status_ == NW_OK; }
  int32_t status() const { return status_; }
  // Why it was refused; or which ops are left out, since their names have no '.' and this host knows no built-in ones of these
  // names.
  const std::string& reason() const { return reason_; }
  // The plugin of the same name that stands before this one in search order, or NULL.
  const Backend* shadowed_by() const { return shadowed_by_.load(std::memory_order_acquire); }
  void set_shadowed_by(const Backend* other) { shadowed_by_.store(other, std::memory_order_release); }
  const nw_plugin& table() const { return table_; }

  const std::vector<const nw_op*>& ops() const { return ops_; }  // complete declarations, with this plugin's kernels
  const nw_op* find_op(const std::string& name) const;
  bool serves_programs() const { return table_.plan_program != nullptr; }
  const Contract* find_contract(const std::string& name) const;  // of an op of the plugin's own
  const std::vector<std::unique_ptr<Contract>>& contracts() const { return contracts_; }

  // Makes the instance at the first call; throws Failure when it cannot be had, then and, unless memory ran out, ever after.
  // Thread-safe.
  void open(const nw_host& host);
  int32_t device_count(const nw_host& host);  // opens, asks
  // Opens; whether it can serve the device: else another plugin may be asked. Once it is open, or is known to be unavailable, that
  // takes no memory.
  bool has(const nw_host& host, DLDevice device);
  Failure missing_device(const nw_host& host, DLDevice device);  // why has() says no: unavailable, or no device of that number
  // Why open() failed, or device_count() first did, as a string that lives as long as this does.
  const char* failure();
  // Throws NW_UNAVAILABLE in a process forked after open() of a device other than the CPU.
  void check_process() const {
    if (forked_.load(std::memory_order_relaxed)) fail_forked();
  }
  void before_fork() { mutex_.lock(); }
  void after_fork_in_parent() { mutex_.unlock(); }
  void after_fork_in_child();

  // The slots, for an instance that is open. They throw Failure.
  nw_device_info device_info(int32_t device_id);
  void* alloc(int32_t device_id, uint64_t size, void* stream);
  void free(int32_t device_id, void* data, void* stream);
  void copy(DLDevice to, void* dst, DLDevice from, const void* src, uint64_t size, void* stream);
  void* stream_create(int32_t device_id);
  void stream_destroy(int32_t device_id, void* stream);
  void stream_sync(int32_t device_id, void* stream);
  void stream_wait(int32_t device_id, void* waiter, void* signaler);
  std::vector<nw_spec> infer(const nw_sig& inputs, uint32_t num_outputs);
  void plan(const nw_sig& sig, void** handle, nw_plan_info* info);                                       // handle == NULL asks only
  void plan_program(const ProgramTexts& program, const nw_sig& sig, void** handle, nw_plan_info* info);  // of one that serves them
  void plan_free(void* handle) noexcept;
  void launch(const void* handle, const nw_call& call);
  const void* extension(const char* name);

 private:
  enum class State { closed, opening, open, failed };

  void declare(const nw_op* declaration);
  template <class Slot>
  void slot(const char* what, Slot&& call, const char* op = nullptr) const;
  void create(const nw_host& host);
  void destroy(void* self) noexcept;
  [[noreturn]] void fail_forked() const;

  std::string path_, name_, version_;
  int32_t status_;
  std::string reason_, unknown_ops_;
  std::atomic<const Backend*> shadowed_by_{nullptr};
  nw_plugin table_{};
  std::vector<std::unique_ptr<nw_op>> declarations_;
  std::vector<const nw_op*> ops_;
  std::vector<std::unique_ptr<Contract>> contracts_;

  std::mutex mutex_;  // of state_; not held while the plugin works
  std::condition_variable opened_;
  State state_ = State::closed;
  std::thread::id opener_;  // who opens it, while it is being opened
  Failure failure_{};
  void* self_ = nullptr;
  std::atomic<int32_t> device_count_{0};  // grows where an extension of the plugin's adds devices
  std::atomic<bool> forked_{false};
};

}  // namespace narrows
