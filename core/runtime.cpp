// SPDX-License-Identifier: Apache-2.0
// runtime.cpp -- see runtime.h.
#include "core/runtime.h"

#include <pthread.h>
#include <stdlib.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <new>
#include <optional>
#include <system_error>

#include "core/near.h"
#include "core/nvtx.h"
#include "core/plugin_loader.h"

using narrows::Backend;
using narrows::Contract;
using narrows::declaration_difference;
using narrows::format;
using narrows::throw_failure;

namespace {

void log_to_stderr(void*, int32_t level, const char* message) {
  if (level >= NW_LOG_WARNING) std::fprintf(stderr, "narrows: %s: %s\n", level == NW_LOG_WARNING ? "warning" : "error", message);
}

// Every live runtime, for the handlers around fork. The lists of a runtime are locked while the process is copied.
std::mutex registry_mutex;
std::vector<nw_runtime*>& registry() {
  // Never destroyed, and in memory of its own: a runtime that could not be made for want of memory is taken out of here too.
  alignas(std::vector<nw_runtime*>) static unsigned char memory[sizeof(std::vector<nw_runtime*>)];
  static auto* const all = new (memory) std::vector<nw_runtime*>;
  return *all;
}

// "'elementwise' with function = 'add'", where that is the name of a value that the op's declaration has; else "".
std::string as_value(const nw_op& op, const char* name) {
  for (const nw_param* const* field = op.params; field != nullptr && *field != nullptr; ++field)
    for (const char* const* value = (*field)->values; value != nullptr && *value != nullptr; ++value)
      if (**value != '\0' && std::strcmp(*value, name) == 0) return format("'%s' with %s = '%s'", op.name, (*field)->name, name);
  return "";
}

}  // namespace

nw_runtime::nw_runtime(const nw_options& options)
    : log_(options.log != nullptr ? options.log : log_to_stderr), log_ctx_(options.log_ctx),
      cache_capacity_(options.plan_cache_capacity), pool_(choose_capacity(options.num_threads)),
      cache_(new narrows::PlanCache(options.plan_cache_capacity)) {
  if (const char* name = secure_getenv("NARROWS_BACKEND")) preferred_ = name;
  host_.struct_size = sizeof host_;
  host_.num_threads = pool_.capacity();
  host_.ctx = this;
  host_.log = [](void* ctx, int32_t level, const char* message) {
    static_cast<nw_runtime*>(ctx)->log(level, message != nullptr ? message : "");
  };
  host_.parallel_for = [](void* ctx, int64_t n, int64_t grain, void (*body)(void*, int64_t, int64_t), void* arg) {
    static_cast<nw_runtime*>(ctx)->pool_.parallel_for(n, grain, body, arg);
  };
  host_.usable_threads = [](void* ctx) { return static_cast<nw_runtime*>(ctx)->pool_.usable_threads(); };
  host_.extension = [](void* ctx, const char* backend, const char* name) {
    return nw_extension(static_cast<nw_runtime*>(ctx), backend, name);
  };
}

// When the library is loaded: no fork finds this half done.
const int nw_runtime::handles_fork_ = pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);

nw_runtime* nw_runtime::create(const nw_options& options) {
  if (options.flags != 0) throw_failure(NW_UNSUPPORTED, -1, "nw_options.flags = 0x%x; this library knows none", options.flags);
  if (handles_fork_ != 0) throw_failure(NW_OUT_OF_MEMORY, -1, "out of memory: pthread_atfork: error %d", handles_fork_);
  {
    const std::lock_guard lock(registry_mutex);
    narrows::builtins();  // now, so that no fork finds them half made
  }
  std::unique_ptr<nw_runtime> runtime(new nw_runtime(options));
  {
    const std::lock_guard lock(registry_mutex);
    registry().push_back(runtime.get());
  }
  if (const char* const why = narrows::attach_nvtx())
    runtime->log(NW_LOG_WARNING,
                 format("NVTX_INJECTION64_PATH=%s: %s; no tool sees ranges", secure_getenv("NVTX_INJECTION64_PATH"), why));
  const char* const path = options.plugin_path != nullptr ? options.plugin_path : secure_getenv("NARROWS_PLUGIN_PATH");
  for (const std::string& folder : narrows::split_path(path != nullptr ? path : "")) runtime->add_folder(folder);
  const std::string own = narrows::own_folder();
  std::error_code ignored;
  if (std::filesystem::is_directory(own, ignored)) runtime->add_folder(own);
  return runtime.release();
}

namespace {
std::atomic<nw_runtime*> the_default{nullptr};
}

nw_runtime& narrows::default_runtime() {
  static nw_runtime& made = *nw_runtime::create({});  // tried again by the next call where this one throws
  the_default.store(&made, std::memory_order_relaxed);
  return made;
}

bool narrows::is_default(const nw_runtime* runtime) { return runtime == the_default.load(std::memory_order_relaxed); }

nw_runtime::~nw_runtime() {
  const std::lock_guard lock(registry_mutex);
  std::erase(registry(), this);
}

void nw_runtime::load(const std::string& path) {
  if (path.empty() || path[0] != '/') throw_failure(NW_INVALID, -1, "nw_load: '%s' is not an absolute path", path.c_str());
  std::optional<narrows::Failure> refusal = add(narrows::load_plugin(path), true);
  cache_->clear();  // the plugin may serve calls that were planned without it
  if (refusal) throw narrows::Failure(std::move(*refusal));
}

void nw_runtime::load_behind(const std::string& path) {
  if (path.empty() || path[0] != '/') throw_failure(NW_INVALID, -1, "nw_load_behind: '%s' is not an absolute path", path.c_str());
  std::unique_ptr<Backend> found = narrows::load_plugin(path);
  const std::string file = path.substr(path.rfind('/') + 1);
  if (found->accepted() && file != "narrows_" + found->name() + ".so") {
    std::string reason =
        format("its plugin is named '%s'; expected the file to be narrows_%s.so", found->name().c_str(), found->name().c_str());
    auto refused = std::make_unique<Backend>(path, NW_INVALID, std::move(reason));
    refused->set_names(found->table());
    found = std::move(refused);
  }
  if (std::optional<narrows::Failure> refusal = add(std::move(found), false)) throw narrows::Failure(std::move(*refusal));
  warn_of_unused(path);
  cache_->clear();  // of a device that had no plugin, "none" may have been planned
}

// That the plugin is not used, or not for one of its own ops, because others have its name or the op.
void nw_runtime::warn_of_unused(const std::string& path) const {
  const std::vector<Backend*> all = backends();
  const auto own = std::find_if(all.rbegin(), all.rend(), [&](const Backend* b) { return b->path() == path; });
  const Backend& added = **own;
  if (const Backend* const other = added.shadowed_by()) {
    log(NW_LOG_WARNING, format("%s: not used: plugin '%s' is also %s", path.c_str(), added.name().c_str(), other->path().c_str()));
    return;
  }
  for (const auto& contract : added.contracts()) {
    const char* const op = contract->op.name;
    const auto other = std::find_if(all.begin(), all.end(), [&](const Backend* b) {
      return b->accepted() && b->shadowed_by() == nullptr && b->table().device_type == added.table().device_type &&
             b->find_contract(op) != nullptr;
    });
    if (*other != &added)
      log(NW_LOG_WARNING, format("%s: not used for op '%s': %s has it too", path.c_str(), op, (*other)->path().c_str()));
  }
}

void nw_runtime::add_folder(const std::string& folder) {
  searched_ += (searched_.empty() ? "" : ", ") + folder;
  for (std::unique_ptr<Backend>& found : narrows::load_folder(folder))
    if (const std::optional<narrows::Failure> refusal = add(std::move(found), false)) log(NW_LOG_WARNING, refusal->message);
}

// Lists a plugin, refused if its declaration of an op contradicts one that was there first, or names a backward op that is nowhere.
// Gives why it was refused. Where memory runs out nothing is listed.
std::optional<narrows::Failure> nw_runtime::add(std::unique_ptr<Backend> found, bool in_front) {
  const std::string path = found->path();
  const std::string unknown = found->accepted() && !found->reason().empty() ? path + ": " + found->reason() : "";
  std::optional<narrows::Failure> refusal;
  {
    const std::lock_guard lock(mutex_);
    std::string fault = find_clash(*found);
    if (fault.empty()) fault = find_missing_backward(*found);
    if (!fault.empty()) {
      auto refused = std::make_unique<Backend>(path, NW_INVALID, std::move(fault));
      refused->set_names(found->table());
      found = std::move(refused);
    }
    if (!found->accepted()) refusal = narrows::Failure{found->status(), -1, 0, path + ": " + found->reason()};
    owned_.reserve(owned_.size() + 1);
    order_.reserve(order_.size() + 1);
    order_.insert(in_front ? order_.begin() : order_.end(), found.get());
    owned_.push_back(std::move(found));
    update_shadowing();
  }
  if (!unknown.empty()) log(NW_LOG_INFO, unknown);
  return refusal;
}

std::string nw_runtime::find_clash(const Backend& backend) const {
  for (const auto& contract : backend.contracts()) {
    for (const auto& other : owned_) {
      const Contract* known = other->accepted() ? other->find_contract(contract->op.name) : nullptr;
      if (known == nullptr) continue;
      const std::string difference = declaration_difference(contract->op, known->op);
      if (!difference.empty())
        return format("op '%s' is declared differently by %s, which was loaded before: %s", contract->op.name,
                      other->path().c_str(), difference.c_str());
    }
  }
  return "";
}

// An op is differentiated by one of the same plugin, by a built-in one, or by one that was there first.
std::string nw_runtime::find_missing_backward(const Backend& backend) const {
  for (const auto& contract : backend.contracts()) {
    const char* const name = contract->op.backward;
    if (name == nullptr || backend.find_op(name) != nullptr || narrows::find_builtin(name) != nullptr) continue;
    const auto has = [&](const auto& other) { return other->accepted() && other->find_contract(name) != nullptr; };
    if (std::any_of(owned_.begin(), owned_.end(), has)) continue;
    std::vector<std::string> own;
    for (const nw_op* op : backend.ops()) own.emplace_back(op->name);
    return format("op '%s' declares backward '%s', an op that neither this plugin nor one that was loaded before has%s",
                  contract->op.name, name, narrows::did_you_mean(name, own).c_str());
  }
  return "";
}

// Who shadows whom, and which device types are served.
void nw_runtime::update_shadowing() {
  uint64_t served = 0;
  for (auto at = order_.begin(); at != order_.end(); ++at) {
    if (!(*at)->accepted()) continue;
    const auto first = std::find_if(order_.begin(), at, [&](Backend* b) { return b->accepted() && b->name() == (*at)->name(); });
    (*at)->set_shadowed_by(first != at ? *first : nullptr);
    if (first == at && (*at)->table().device_type < 64) served |= uint64_t{1} << (*at)->table().device_type;
  }
  served_types_ = served;
}

// Of the pool: as many as the options ask for, else as the process is granted.
uint32_t nw_runtime::choose_capacity(uint32_t asked_for) const {
  if (asked_for != 0) return std::min(asked_for, narrows::kMaxThreads);
  const narrows::ThreadCount count = narrows::count_threads();
  for (const std::string& ignored : count.ignored) log(NW_LOG_WARNING, ignored);
  return count.threads;
}

void nw_runtime::set_num_threads(int64_t num_threads) {
  if (num_threads < 1 || num_threads > pool_.capacity())
    throw_failure(NW_INVALID, -1, "num_threads = %lld; expected 1 to %u, the threads that the runtime was made with",
                  static_cast<long long>(num_threads), pool_.capacity());
  pool_.set_num_threads(static_cast<uint32_t>(num_threads));
}

size_t nw_runtime::num_backends() const {
  const std::lock_guard lock(mutex_);
  return order_.size();
}

Backend* nw_runtime::next_usable(Place& place) const {
  const std::lock_guard lock(mutex_);
  if (place.of != order_.size()) place = {0, order_.size()};
  while (place.at < order_.size()) {
    Backend* const backend = order_[place.at++];
    if (backend->accepted() && backend->shadowed_by() == nullptr) return backend;
  }
  return nullptr;
}

std::vector<Backend*> nw_runtime::backends() const {
  const std::lock_guard lock(mutex_);
  return order_;
}

std::vector<Backend*> nw_runtime::usable() const {
  const std::lock_guard lock(mutex_);
  std::vector<Backend*> out;
  for (Backend* backend : order_)
    if (backend->accepted() && backend->shadowed_by() == nullptr) out.push_back(backend);
  return out;
}

const Contract* nw_runtime::find_contract(const std::string& op) const {
  if (const Contract* builtin = narrows::find_builtin(op)) return builtin;
  for (const Backend* backend : usable())
    if (const Contract* own = backend->find_contract(op)) return own;
  const narrows::ProgramOp* const program = find_program(op);
  return program != nullptr ? &program->contract() : nullptr;
}

const nw_op* nw_runtime::find_op(const std::string& op) const {
  const Contract* contract = find_contract(op);
  return contract != nullptr ? &contract->op : nullptr;
}

std::vector<const nw_op*> nw_runtime::ops() const {
  std::vector<const nw_op*> found;
  const auto add_new = [&](const nw_op& op) {
    const auto same = [&](const nw_op* known) { return std::strcmp(known->name, op.name) == 0; };
    if (std::none_of(found.begin(), found.end(), same)) found.push_back(&op);
  };
  for (const Contract* contract : narrows::builtins()) add_new(contract->op);
  for (const Backend* backend : usable())
    for (const auto& contract : backend->contracts()) add_new(contract->op);
  for (const narrows::ProgramOp* program : programs()) add_new(program->contract().op);
  return found;
}

// "; refused there: PATH (why), ...", or "". The file that declares an op may be among them.
std::string nw_runtime::refused_files() const {
  std::string out;
  for (const Backend* backend : backends())
    if (!backend->accepted()) out += (out.empty() ? "; refused: " : ", ") + backend->path() + " (" + backend->reason() + ")";
  return out;
}

void nw_runtime::refuse_unknown_op(const char* op) const {
  std::vector<std::string> known;
  std::string builtin, function;
  for (const Contract* contract : narrows::builtins()) {
    known.emplace_back(contract->op.name);
    builtin += (builtin.empty() ? "" : ", ") + known.back();
    if (function.empty()) function = as_value(contract->op, op);
  }
  for (const Backend* backend : usable())
    for (const auto& contract : backend->contracts()) known.emplace_back(contract->op.name);
  for (const narrows::ProgramOp* program : programs()) known.push_back(program->name());
  const std::string hint = function.empty() ? narrows::did_you_mean(op, known) : "; did you mean " + function + "?";
  const std::string folders = searched_.empty() ? "no folder (NARROWS_PLUGIN_PATH is empty)" : searched_;
  if (narrows::is_program_name(op))
    throw_failure(NW_INVALID, -1, "unknown op '%s'%s%s no program of that name was loaded", op, hint.c_str(),
                  hint.empty() ? ";" : "");
  if (std::strchr(op, '.') != nullptr)  // a plugin's
    throw_failure(NW_INVALID, -1, "unknown op '%s'%s%s no loaded plugin declares it. Plugins were looked for in %s%s", op,
                  hint.c_str(), hint.empty() ? ";" : "", folders.c_str(), refused_files().c_str());
  throw_failure(NW_INVALID, -1, "unknown op '%s'%s%s built in: %s; no loaded plugin declares it", op, hint.c_str(),
                hint.empty() ? ";" : "", builtin.c_str());
}

Backend* nw_runtime::owner_of_shared(int32_t device_type) const {
  if (device_type == 0) return nullptr;  // in a table: none
  Place place;
  while (Backend* backend = next_usable(place))
    if (backend->table().pinned_type == device_type || backend->table().managed_type == device_type) return backend;
  return nullptr;
}

Backend& nw_runtime::serving(DLDevice device) {
  Place place;
  while (Backend* backend = next_usable(place))
    if (backend->table().device_type == device.device_type && backend->has(host_, device)) return *backend;
  place = {};
  while (Backend* backend = next_usable(place))  // why the first of them does not
    if (backend->table().device_type == device.device_type) throw backend->missing_device(host_, device);
  throw_failure(NW_UNAVAILABLE, -1, "%s", narrows::no_plugin_serves(device).c_str());
}

Backend& nw_runtime::describing(DLDevice device) {
  const auto has_builtin = [](const Backend& backend) {
    return std::any_of(backend.ops().begin(), backend.ops().end(),
                       [](const nw_op* op) { return narrows::find_builtin(op->name) != nullptr; });
  };
  Backend* last = nullptr;
  for (Backend* backend : usable())
    if (backend->table().device_type == device.device_type && has_builtin(*backend) && backend->has(host_, device)) last = backend;
  return last != nullptr ? *last : serving(device);
}

void nw_runtime::log(int32_t level, const std::string& message) const { log_(log_ctx_, level, message.c_str()); }

void nw_runtime::before_fork() {
  registry_mutex.lock();
  for (nw_runtime* runtime : registry()) {
    runtime->mutex_.lock();
    for (const auto& backend : runtime->owned_) backend->before_fork();
  }
}

void nw_runtime::after_fork_in_parent() {
  for (nw_runtime* runtime : registry()) {
    for (const auto& backend : runtime->owned_) backend->after_fork_in_parent();
    runtime->mutex_.unlock();
  }
  registry_mutex.unlock();
}

// The child has this one thread. The cache may have been copied in the middle of a change, so it is left behind and replaced.
void nw_runtime::after_fork_in_child() {
  for (nw_runtime* runtime : registry()) {
    runtime->pool_.after_fork_in_child();
    [[maybe_unused]] const auto* left_behind = runtime->cache_.release();
    runtime->cache_.reset(new narrows::PlanCache(runtime->cache_capacity_));
    for (const auto& backend : runtime->owned_) backend->after_fork_in_child();
    runtime->mutex_.unlock();
  }
  registry_mutex.unlock();
}
