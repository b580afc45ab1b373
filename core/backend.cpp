// SPDX-License-Identifier: Apache-2.0
// backend.cpp -- see backend.h.
#include "core/backend.h"

#include <algorithm>
#include <cstring>
#include <new>

namespace narrows {
namespace {

// A copy of a growing struct as we know it: shorter ones are extended with zeros.
template <class Struct>
Struct known_part(const Struct& given) {
  Struct out{};
  std::memcpy(&out, &given, std::min<size_t>(given.struct_size, sizeof out));
  out.struct_size = sizeof out;
  return out;
}

bool has_tail(const void* given, size_t known, size_t size) {
  const auto* bytes = static_cast<const unsigned char*>(given);
  return std::any_of(bytes + known, bytes + std::max(known, size), [](unsigned char b) { return b != 0; });
}

void check_table(const nw_plugin& t) {
  if (t.name == nullptr || t.name[0] == '\0') throw_failure(NW_INVALID, -1, "the table has no name");
  if (t.device_type <= 0) throw_failure(NW_INVALID, -1, "device_type = %d; expected a DLDeviceType", t.device_type);
  const std::pair<const char*, bool> slots[] = {
      {"create", t.create},
      {"destroy", t.destroy},
      {"device_count", t.device_count},
      {"device_info", t.device_info},
      {"alloc", t.alloc},
      {"free", t.free},
      {"copy", t.copy},
      {"stream_create", t.stream_create},
      {"stream_destroy", t.stream_destroy},
      {"stream_sync", t.stream_sync},
      {"stream_wait", t.stream_wait},
      {"plan", t.plan},
      {"plan_free", t.plan_free},
      {"launch", t.launch},
  };
  for (const auto& [name, present] : slots)
    if (!present) throw_failure(NW_INVALID, -1, "slot '%s' of the table is NULL", name);
  if (t.num_ops != 0 && t.ops == nullptr) throw_failure(NW_INVALID, -1, "num_ops = %u, but ops is NULL", t.num_ops);
}

// The parts of a built-in op's declaration that a plugin repeats must be the host's.
void check_builtin(const nw_op& given, const nw_op& known) {
  nw_op merged = given;
  if (merged.params_size == 0) merged.params_size = known.params_size;
  if (merged.max_inputs == 0 && merged.min_inputs == 0) merged.min_inputs = known.min_inputs, merged.max_inputs = known.max_inputs;
  if (merged.num_outputs == 0) merged.num_outputs = known.num_outputs, merged.num_aux = known.num_aux;
  if (merged.flags == 0) merged.flags = known.flags;
  if (merged.shape_rule == nullptr) merged.shape_rule = known.shape_rule;
  if (merged.backward == nullptr) merged.backward = known.backward;
  if (merged.saved == 0) merged.saved = known.saved;
  if (merged.inputs == nullptr) merged.inputs = known.inputs;
  if (merged.outputs == nullptr) merged.outputs = known.outputs;
  const Contract checked(merged);  // its names and fields can be read
  const std::string difference = declaration_difference(checked.op, known);
  if (!difference.empty())
    throw_failure(NW_INVALID, -1, "op '%s' is declared differently from the host: %s", given.name, difference.c_str());
}

constexpr const char* kForked = "this process was forked after the device was opened; open it in the child only, or use spawn";

// Of a name with a '.' or a '/' in it: no built-in op has either.
bool is_own_name(const std::string& name) {
  const size_t dot = name.find('.'), slash = name.rfind('/');
  return dot != 0 && dot != std::string::npos && slash != std::string::npos && slash > dot + 1 && slash + 1 < name.size() &&
         std::all_of(name.begin() + static_cast<std::ptrdiff_t>(slash) + 1, name.end(),
                     [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

Backend::Backend(std::string path, int32_t status, std::string reason)
    : path_(std::move(path)), status_(status), reason_(std::move(reason)) {}

Backend::Backend(std::string path, const nw_plugin& table) : path_(std::move(path)), status_(NW_OK) {
  if (table.struct_size < offsetof(nw_plugin, launch) + sizeof table.launch)
    throw_failure(NW_INVALID, -1, "the table's struct_size is %u; expected %zu or more", table.struct_size,
                  offsetof(nw_plugin, launch) + sizeof table.launch);
  if (table.abi_major != NW_ABI_MAJOR)
    throw_failure(NW_UNSUPPORTED, -1, "built for ABI major %u; this host speaks %d", table.abi_major, NW_ABI_MAJOR);
  table_ = known_part(table);
  check_table(table_);
  set_names(table_);
  for (uint32_t i = 0; i < table_.num_ops; ++i) declare(table_.ops[i]);
  if (!unknown_ops_.empty()) reason_ = "built-in ops of a newer host are left out: " + unknown_ops_;
}

void Backend::set_names(const nw_plugin& table) {
  const auto has = [&](size_t end) { return table.struct_size >= end; };
  if (has(offsetof(nw_plugin, name) + sizeof table.name) && table.name != nullptr) name_ = table.name;
  if (has(offsetof(nw_plugin, version) + sizeof table.version) && table.version != nullptr) version_ = table.version;
}

Backend::~Backend() {
  if (state_ == State::open && !forked_) destroy(self_);  // a device opened before the fork belongs to the parent
}

void Backend::declare(const nw_op* given) {
  if (given == nullptr) throw_failure(NW_INVALID, -1, "the table's ops hold a NULL");
  if (given->struct_size < offsetof(nw_op, name) + sizeof given->name)
    throw_failure(NW_INVALID, -1, "an op's struct_size is %u; expected %zu or more", given->struct_size,
                  offsetof(nw_op, name) + sizeof given->name);
  auto op = std::make_unique<nw_op>(known_part(*given));
  if (op->name == nullptr || op->name[0] == '\0') throw_failure(NW_INVALID, -1, "an op has no name");
  if (has_tail(given, sizeof(nw_op), given->struct_size))
    throw_failure(NW_UNSUPPORTED, -1, "op '%s' declares more than this host knows: its nw_op is not 0 past byte %zu", op->name,
                  sizeof(nw_op));
  if (find_op(op->name) != nullptr) throw_failure(NW_INVALID, -1, "two ops are named '%s'", op->name);
  const char* const* const kernels = op->kernels;
  if (const Contract* builtin = find_builtin(op->name)) {
    check_builtin(*op, builtin->op);
    *op = builtin->op;
  } else {
    if (std::strpbrk(op->name, "./") == nullptr) {
      unknown_ops_ += (unknown_ops_.empty() ? "" : ", ") + std::string(op->name);
      return;
    }
    if (!is_own_name(op->name))
      throw_failure(NW_INVALID, -1, "op '%s' is not named like 'vendor.name/1'%s", op->name,
                    std::strchr(op->name, '.') == nullptr ? ": it has no vendor" : "");
    if (is_program_name(op->name))
      throw_failure(NW_INVALID, -1, "op '%s' is named like a tensor program; '%s' is no vendor", op->name, kProgramPrefix);
    contracts_.push_back(std::make_unique<Contract>(*op));
    if (op->shape_rule == nullptr && table_.infer == nullptr)
      throw_failure(NW_INVALID, -1, "op '%s' has no shape_rule, and the table has no infer", op->name);
  }
  op->kernels = kernels;
  ops_.push_back(op.get());
  declarations_.push_back(std::move(op));
}

const nw_op* Backend::find_op(const std::string& name) const {
  for (const nw_op* op : ops_)
    if (name == op->name) return op;
  return nullptr;
}

const Contract* Backend::find_contract(const std::string& name) const {
  for (const auto& contract : contracts_)
    if (name == contract->op.name) return contract.get();
  return nullptr;
}

template <class Slot>
void Backend::slot(const char* what, Slot&& call, const char* op) const {
  nw_error error;
  error.message[0] = '\0';
  error.argument = -1;
  error.native_code = 0;
  int32_t status = NW_OK;
  try {
    status = call(&error);
  } catch (...) {
    throw caught(name_.c_str(), what);
  }
  if (__builtin_expect(status != NW_OK, 0)) refuse_slot(status, error, name_, op);
}

void Backend::open(const nw_host& host) {
  check_process();
  std::unique_lock lock(mutex_);
  if (state_ == State::opening && opener_ == std::this_thread::get_id())
    throw_failure(NW_FAILED, -1, "%s: create() made a call that needs this plugin; expected create() to return first",
                  name_.c_str());
  opened_.wait(lock, [&] { return state_ != State::opening; });
  if (state_ == State::open) return;
  if (state_ == State::failed) throw failure_;
  state_ = State::opening;
  opener_ = std::this_thread::get_id();
  lock.unlock();
  std::optional<Failure> failure;
  try {
    create(host);
  } catch (...) {
    failure = caught(name_.c_str(), "create");
  }
  lock.lock();
  const bool again = failure && failure->status == NW_OUT_OF_MEMORY;  // there may be some the next time
  state_ = !failure ? State::open : again ? State::closed : State::failed;
  if (state_ == State::failed) failure_ = std::move(*failure);
  lock.unlock();
  opened_.notify_all();
  if (again) throw Failure(std::move(*failure));
  if (failure) throw failure_;
}

void Backend::create(const nw_host& host) {
  void* self = nullptr;
  slot("create", [&](nw_error* error) { return table_.create(&host, &self, error); });
  int32_t count = 0;
  try {
    slot("device_count", [&](nw_error* error) { return table_.device_count(self, &count, error); });
  } catch (...) {
    destroy(self);
    throw;
  }
  self_ = self;
  device_count_ = count;
}

void Backend::destroy(void* self) noexcept {
  try {
    table_.destroy(self);
  } catch (...) {
    // Nobody is left to be told.
  }
}

int32_t Backend::device_count(const nw_host& host) {
  open(host);
  int32_t count = 0;
  try {
    slot("device_count", [&](nw_error* error) { return table_.device_count(self_, &count, error); });
  } catch (const Failure& failure) {
    const std::lock_guard lock(mutex_);
    if (failure_.message.empty()) failure_.message = failure.message;
    throw;
  }
  device_count_.store(count, std::memory_order_relaxed);
  return count;
}

bool Backend::has(const nw_host& host, DLDevice device) {
  bool is_open = false;  // asked here, so that open() need not: memory is given and taken by this way
  {
    const std::lock_guard lock(mutex_);
    if (forked_ || (state_ == State::failed && failure_.status == NW_UNAVAILABLE)) return false;
    is_open = state_ == State::open;
  }
  try {
    if (!is_open) open(host);
    const auto exists = [&](int32_t count) { return device.device_id >= 0 && device.device_id < count; };
    // Since create() a plugin may have been given more.
    return exists(device_count_.load(std::memory_order_relaxed)) || exists(device_count(host));
  } catch (const Failure& failure) {
    if (failure.status != NW_UNAVAILABLE) throw;
    return false;
  }
}

Failure Backend::missing_device(const nw_host& host, DLDevice device) {
  try {
    const int32_t count = device_count(host);
    return Failure{
        NW_INVALID, -1, 0,
        format("%s does not exist: %s has %d device%s", show_device(device).c_str(), name_.c_str(), count, count == 1 ? "" : "s")};
  } catch (const Failure& failure) {
    return failure;
  }
}

const char* Backend::failure() {
  const std::lock_guard lock(mutex_);
  return failure_.message.c_str();
}

void Backend::fail_forked() const { throw_failure(NW_UNAVAILABLE, -1, "%s: %s", name_.c_str(), kForked); }

void Backend::after_fork_in_child() {
  new (&opened_) std::condition_variable;                // whoever waited is not here,
  if (state_ == State::opening) state_ = State::closed;  // nor is whoever was opening it
  mutex_.unlock();
  if (state_ != State::open || table_.device_type == kDLCPU) return;
  forked_ = true;
  failure_.message = kForked;
}

nw_device_info Backend::device_info(int32_t device_id) {
  nw_device_info info{};
  info.struct_size = sizeof info;
  slot("device_info", [&](nw_error* error) { return table_.device_info(self_, device_id, &info, error); });
  info.name[sizeof info.name - 1] = info.arch[sizeof info.arch - 1] = '\0';
  return info;
}

void* Backend::alloc(int32_t device_id, uint64_t size, void* stream) {
  void* data = nullptr;
  slot("alloc", [&](nw_error* error) { return table_.alloc(self_, device_id, size, stream, &data, error); });
  return data;
}

void Backend::free(int32_t device_id, void* data, void* stream) {
  slot("free", [&](nw_error* error) { return table_.free(self_, device_id, data, stream, error); });
}

void Backend::copy(DLDevice to, void* dst, DLDevice from, const void* src, uint64_t size, void* stream) {
  slot("copy", [&](nw_error* error) { return table_.copy(self_, to, dst, from, src, size, stream, error); });
}

void* Backend::stream_create(int32_t device_id) {
  void* stream = nullptr;
  slot("stream_create", [&](nw_error* error) { return table_.stream_create(self_, device_id, &stream, error); });
  return stream;
}

void Backend::stream_destroy(int32_t device_id, void* stream) {
  slot("stream_destroy", [&](nw_error* error) { return table_.stream_destroy(self_, device_id, stream, error); });
}

void Backend::stream_sync(int32_t device_id, void* stream) {
  slot("stream_sync", [&](nw_error* error) { return table_.stream_sync(self_, device_id, stream, error); });
}

void Backend::stream_wait(int32_t device_id, void* waiter, void* signaler) {
  slot("stream_wait", [&](nw_error* error) { return table_.stream_wait(self_, device_id, waiter, signaler, error); });
}

std::vector<nw_spec> Backend::infer(const nw_sig& inputs, uint32_t num_outputs) {
  if (table_.infer == nullptr) throw_failure(NW_UNSUPPORTED, -1, "%s: the plugin has no infer()", name_.c_str());
  std::vector<nw_spec> specs(num_outputs);
  slot("infer", [&](nw_error* error) { return table_.infer(self_, &inputs, specs.data(), num_outputs, error); }, inputs.op);
  for (const nw_spec& spec : specs) {
    const bool sane = spec.ndim >= -1 && spec.ndim <= NW_MAX_NDIM &&
                      std::all_of(spec.shape, spec.shape + std::max(spec.ndim, 0), [](int64_t extent) { return extent >= 0; });
    if (!sane)
      throw_failure(
          NW_FAILED, -1,
          "%s: infer() of '%s' gave an output with ndim %d or a negative extent; expected ndim -1 to %d, extents of 0 or more",
          name_.c_str(), inputs.op, spec.ndim, NW_MAX_NDIM);
  }
  return specs;
}

void Backend::plan(const nw_sig& sig, void** handle, nw_plan_info* info) {
  slot("plan", [&](nw_error* error) { return table_.plan(self_, &sig, handle, info, error); }, sig.op);
}

void Backend::plan_program(const ProgramTexts& program, const nw_sig& sig, void** handle, nw_plan_info* info) {
  nw_program_text text{};
  text.struct_size = sizeof text;
  text.text = program.text->c_str();
  text.scheduled = program.scheduled == nullptr ? nullptr : program.scheduled->c_str();
  slot("plan_program", [&](nw_error* error) { return table_.plan_program(self_, &text, &sig, handle, info, error); }, sig.op);
}

void Backend::plan_free(void* handle) noexcept {
  if (forked_) return;
  try {
    table_.plan_free(self_, handle);
  } catch (...) {
    // Freeing host memory cannot be reported to anyone.
  }
}

void Backend::launch(const void* handle, const nw_call& call) {
  slot("launch", [&](nw_error* error) { return table_.launch(self_, handle, &call, error); }, call.op);
}

const void* Backend::extension(const char* name) {
  const void* out = nullptr;
  if (table_.extension != nullptr)
    slot("extension", [&](nw_error*) {
      out = table_.extension(self_, name);
      return NW_OK;
    });
  return out;
}

}  // namespace narrows
