// SPDX-License-Identifier: Apache-2.0
// api.cpp -- the functions of narrows.h: arguments checked, exceptions turned into statuses. The work is in dispatcher and runtime.
#include <narrows/narrows.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "core/dispatcher.h"
#include "core/error.h"
#include "core/runtime.h"

using narrows::Backend;
using narrows::Failure;
using narrows::throw_failure;

namespace {

// The one place where core's exceptions end.
template <class Work>
int32_t guarded(nw_error* error, Work&& work) noexcept {
  try {
    work();
    return NW_OK;
  } catch (const Failure& failure) {
    return narrows::write_error(error, failure.status, failure.argument, failure.native_code, failure.message.c_str());
  } catch (const std::bad_alloc&) {
    return narrows::write_error(error, NW_OUT_OF_MEMORY, -1, 0, "out of host memory");
  } catch (const std::exception& thrown) {
    return narrows::write_error(error, NW_FAILED, -1, 0, thrown.what());
  } catch (...) {
    return narrows::write_error(error, NW_FAILED, -1, 0, "an exception of an unknown type");  // from the log callback
  }
}

template <class T>
T& needed(T* pointer, const char* name) {
  if (pointer == nullptr) throw_failure(NW_INVALID, -1, "%s is NULL; expected a non-NULL pointer", name);
  return *pointer;
}

// The caller's options, extended with zeros.
nw_options complete(const nw_options* given) {
  nw_options options{};
  if (given == nullptr) return options;
  if (given->struct_size < sizeof given->struct_size)
    throw_failure(NW_INVALID, -1, "nw_options.struct_size is %u; expected sizeof(nw_options)", given->struct_size);
  std::memcpy(&options, given, std::min<size_t>(given->struct_size, sizeof options));
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  for (size_t i = sizeof options; i < given->struct_size; ++i)
    if (bytes[i] != 0)
      throw_failure(NW_UNSUPPORTED, -1, "nw_options byte %zu is %d; this library knows %zu bytes and takes only 0 after them", i,
                    bytes[i], sizeof options);
  return options;
}

// Writes as much of an output struct as its owner has room for; what it has more is set to 0.
template <class Struct>
void write_out(Struct* out, const Struct& value, const char* name) {
  const uint32_t size = out->struct_size;
  if (size < sizeof size) throw_failure(NW_INVALID, -1, "%s.struct_size is %u; expected sizeof(%s)", name, size, name);
  std::memcpy(out, &value, std::min<size_t>(size, sizeof value));
  if (size > sizeof value) std::memset(reinterpret_cast<char*>(out) + sizeof value, 0, size - sizeof value);
  out->struct_size = size;
}

nw_backend_info describe(nw_runtime& runtime, Backend& backend) {
  nw_backend_info info{};
  info.struct_size = sizeof info;
  info.status = backend.status();
  info.name = backend.name().c_str();
  info.version = backend.version().c_str();
  info.path = backend.path().c_str();
  info.reason = backend.reason().c_str();
  if (!backend.accepted()) return info;
  info.device_type = backend.table().device_type;
  info.num_ops = static_cast<uint32_t>(backend.ops().size());
  info.ops = backend.ops().data();
  if (const Backend* other = backend.shadowed_by()) {
    info.flags = NW_BACKEND_SHADOWED;
    info.reason = other->path().c_str();
    return info;
  }
  try {
    info.device_count = backend.device_count(runtime.host());
  } catch (const Failure& failure) {
    if (failure.status == NW_OUT_OF_MEMORY) throw;  // says nothing of the plugin
    info.status = failure.status;
    info.reason = backend.failure();
  }
  return info;
}

// The plugin that copies between the two. One side chooses it: a device's own memory before pinned or managed memory, and that
// before the CPU's. The other side is the CPU's, or of a device of the same plugin.
Backend& copier(nw_runtime& runtime, DLDevice to, DLDevice from) {
  const auto home = [&](DLDevice at) {
    const Backend* owner = runtime.owner_of_shared(at.device_type);
    return owner == nullptr ? at : DLDevice{static_cast<DLDeviceType>(owner->table().device_type), at.device_id};
  };
  const auto rank = [&](DLDevice at) { return at.device_type == kDLCPU ? 0 : home(at).device_type != at.device_type ? 1 : 2; };
  const bool by_to = rank(to) >= rank(from);
  const DLDevice device = home(by_to ? to : from), other = home(by_to ? from : to);
  Backend& backend = runtime.serving(device);
  if (other.device_type == kDLCPU) return backend;
  if (other.device_type != device.device_type || &runtime.serving(other) != &backend)
    throw_failure(NW_UNSUPPORTED, -1, "nw_copy: from %s to %s; expected one side in host memory, or both on devices of one plugin",
                  narrows::show_device(from).c_str(), narrows::show_device(to).c_str());
  return backend;
}

Backend& with_stream(nw_runtime& runtime, DLDevice device, const void* stream) {
  Backend& backend = runtime.serving(device);
  if (device.device_type == kDLCPU && stream != nullptr)
    throw_failure(NW_INVALID, -1, "stream = %p; expected NULL on the CPU", stream);
  return backend;
}

}  // namespace

uint32_t nw_abi_major(void) { return NW_ABI_MAJOR; }
const char* nw_version(void) { return NARROWS_VERSION; }
const char* nw_status_name(int32_t status) { return narrows::status_name(status); }

int32_t nw_runtime_create(const nw_options* options, nw_runtime** out, nw_error* error) {
  return guarded(error, [&] {
    needed(out, "out");
    *out = nw_runtime::create(complete(options));
  });
}

int32_t nw_runtime_default(nw_runtime** out, nw_error* error) {
  return guarded(error, [&] {
    needed(out, "out");
    *out = &narrows::default_runtime();
  });
}

void nw_runtime_destroy(nw_runtime* rt) {
  if (rt == nullptr || narrows::is_default(rt)) return;
  rt->cache().clear();
  rt->release();
}

int32_t nw_load(nw_runtime* rt, const char* absolute_path, nw_error* error) {
  return guarded(error, [&] { needed(rt, "runtime").load(&needed(absolute_path, "absolute_path")); });
}

int32_t nw_load_behind(nw_runtime* rt, const char* absolute_path, nw_error* error) {
  return guarded(error, [&] { needed(rt, "runtime").load_behind(&needed(absolute_path, "absolute_path")); });
}

uint32_t nw_backend_count(nw_runtime* rt) {
  uint32_t count = 0;
  guarded(nullptr, [&] { count = static_cast<uint32_t>(needed(rt, "runtime").num_backends()); });
  return count;
}

int32_t nw_backend(nw_runtime* rt, uint32_t index, nw_backend_info* out, nw_error* error) {
  return guarded(error, [&] {
    const std::vector<Backend*> all = needed(rt, "runtime").backends();
    needed(out, "out");
    if (index >= all.size()) throw_failure(NW_INVALID, -1, "index = %u; there are %zu plugins", index, all.size());
    write_out(out, describe(*rt, *all[index]), "nw_backend_info");
  });
}

int32_t nw_set_num_threads(nw_runtime* rt, int64_t num_threads, nw_error* error) {
  return guarded(error, [&] { needed(rt, "runtime").set_num_threads(num_threads); });
}

uint32_t nw_get_num_threads(nw_runtime* rt) {
  uint32_t threads = 0;
  guarded(nullptr, [&] { threads = needed(rt, "runtime").pool().num_threads(); });
  return threads;
}

int32_t nw_device(nw_runtime* rt, DLDevice device, nw_device_info* out, nw_error* error) {
  return guarded(error, [&] {
    needed(out, "out");
    write_out(out, needed(rt, "runtime").describing(device).device_info(device.device_id), "nw_device_info");
  });
}

int32_t nw_find_op(nw_runtime* rt, const char* name, const nw_op** out, nw_error* error) {
  return guarded(error, [&] {
    needed(out, "out");
    const nw_op* op = needed(rt, "runtime").find_op(&needed(name, "name"));
    if (op == nullptr) rt->refuse_unknown_op(name);
    *out = op;
  });
}

const nw_op* nw_op_at(nw_runtime* rt, uint32_t index) {
  const nw_op* out = nullptr;
  guarded(nullptr, [&] {
    const std::vector<const nw_op*> ops = needed(rt, "runtime").ops();
    if (index < ops.size()) out = ops[index];
  });
  return out;
}

int32_t nw_load_program(nw_runtime* rt, const char* text, const char* backward, const nw_op** out, nw_error* error) {
  return guarded(error, [&] {
    needed(out, "out");
    *out = &needed(rt, "runtime").load_program(&needed(text, "text"), backward);
  });
}

int32_t nw_schedule_program(nw_runtime* rt, const char* op, const char* backend, const char* scheduled, nw_error* error) {
  return guarded(error, [&] { needed(rt, "runtime").schedule_program(&needed(op, "op"), &needed(backend, "backend"), scheduled); });
}

const void* nw_extension(nw_runtime* rt, const char* backend, const char* name) {
  const void* out = nullptr;
  guarded(nullptr, [&] {
    needed(backend, "backend");
    needed(name, "name");
    nw_runtime::Place place;
    while (Backend* candidate = needed(rt, "runtime").next_usable(place)) {
      if (candidate->name() != backend) continue;
      candidate->open(rt->host());
      out = candidate->extension(name);
    }
  });
  return out;
}

int32_t nw_run(nw_runtime* rt, const nw_call* call, nw_error* error) {
  return guarded(error, [&] { narrows::run(needed(rt, "runtime"), needed(call, "call")); });
}

int32_t nw_infer(nw_runtime* rt, const nw_call* call, nw_spec* outputs, uint32_t num_outputs, nw_error* error) {
  return guarded(error, [&] {
    const std::vector<nw_spec> specs = narrows::infer(needed(rt, "runtime"), needed(call, "call"));
    if (num_outputs != specs.size())
      throw_failure(NW_INVALID, -1, "%s: num_outputs = %u; expected %zu", call->op, num_outputs, specs.size());
    std::copy(specs.begin(), specs.end(), &needed(outputs, "outputs"));
  });
}

int32_t nw_plan_get(nw_runtime* rt, const nw_call* call, nw_plan** out, nw_plan_info* info, nw_error* error) {
  return guarded(error, [&] {
    nw_plan_info found{};
    narrows::PlanRef plan = narrows::get_plan(needed(rt, "runtime"), needed(call, "call"), out == nullptr, &found);
    if (info != nullptr) write_out(info, found, "nw_plan_info");
    if (out == nullptr) return;
    rt->retain();
    *out = const_cast<nw_plan*>(plan.take());
  });
}

int32_t nw_launch(const nw_plan* plan, const nw_call* call, nw_error* error) {
  return guarded(error, [&] { narrows::launch(needed(plan, "plan"), needed(call, "call")); });
}

void nw_plan_release(nw_plan* plan) {
  if (plan == nullptr) return;
  nw_runtime* const runtime = plan->runtime;
  plan->release();
  runtime->release();
}

void nw_plan_cache_clear(nw_runtime* rt) {
  if (rt != nullptr) rt->cache().clear();
}

int32_t nw_alloc(nw_runtime* rt, DLDevice device, uint64_t size, void* stream, void** data, nw_error* error) {
  return guarded(error, [&] {
    needed(data, "data");
    *data = with_stream(needed(rt, "runtime"), device, stream).alloc(device.device_id, size, stream);
  });
}

int32_t nw_free(nw_runtime* rt, DLDevice device, void* data, void* stream, nw_error* error) {
  return guarded(error, [&] { with_stream(needed(rt, "runtime"), device, stream).free(device.device_id, data, stream); });
}

int32_t nw_copy(nw_runtime* rt, DLDevice to, void* dst, DLDevice from, const void* src, uint64_t size, void* stream,
                nw_error* error) {
  return guarded(error, [&] {
    Backend& backend = copier(needed(rt, "runtime"), to, from);
    if (size == 0) return;
    if (dst == nullptr || src == nullptr)
      throw_failure(NW_INVALID, -1, "nw_copy: %s is NULL, and size = %llu; expected memory", dst == nullptr ? "dst" : "src",
                    static_cast<unsigned long long>(size));
    if (size > PTRDIFF_MAX)
      throw_failure(NW_INVALID, -1, "nw_copy: size = %llu bytes; expected %lld at most", static_cast<unsigned long long>(size),
                    static_cast<long long>(PTRDIFF_MAX));
    if (backend.table().device_type == kDLCPU && stream != nullptr)
      throw_failure(NW_INVALID, -1, "nw_copy: stream = %p; expected NULL on the CPU", stream);
    backend.copy(to, dst, from, src, size, stream);
  });
}

int32_t nw_stream_create(nw_runtime* rt, DLDevice device, void** stream, nw_error* error) {
  return guarded(error, [&] {
    needed(stream, "stream");
    *stream = needed(rt, "runtime").serving(device).stream_create(device.device_id);
  });
}

int32_t nw_stream_destroy(nw_runtime* rt, DLDevice device, void* stream, nw_error* error) {
  return guarded(error, [&] { with_stream(needed(rt, "runtime"), device, stream).stream_destroy(device.device_id, stream); });
}

int32_t nw_stream_sync(nw_runtime* rt, DLDevice device, void* stream, nw_error* error) {
  return guarded(error, [&] { with_stream(needed(rt, "runtime"), device, stream).stream_sync(device.device_id, stream); });
}

int32_t nw_stream_wait(nw_runtime* rt, DLDevice device, void* waiter, void* signaler, nw_error* error) {
  return guarded(error, [&] {
    with_stream(needed(rt, "runtime"), device, waiter != nullptr ? waiter : signaler)
        .stream_wait(device.device_id, waiter, signaler);
  });
}
