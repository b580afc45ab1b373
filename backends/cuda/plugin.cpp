// SPDX-License-Identifier: Apache-2.0
// plugin.cpp -- the table behind the one exported symbol: devices, memory, streams, and the way to the ops. No exception leaves
// this file, and no driver is opened before create().
#include <narrows/plugin.h>
#include <narrows/program.h>

#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <string_view>

#include "backend.h"
#include "memory_check.h"
#include "ops/program/compiler.h"
#include "ops/program/program.h"

namespace narrows::gpu {
namespace {

#define NARROWS_OP(name) &name,
constexpr const common::Op<Instance>* kOps[] = {
#include "ops.inc"
};
#undef NARROWS_OP

const Instance& instance_of(void* self) { return *static_cast<const Instance*>(self); }

const Device& device_of(void* self, int32_t device_id) {
  const auto& devices = instance_of(self).devices;
  if (device_id < 0 || static_cast<size_t>(device_id) >= devices.size())
    refuse(NW_INVALID, -1, "%s: device %d was asked for; there are %zu, from 0", kPluginName, device_id, devices.size());
  return devices[static_cast<size_t>(device_id)];
}

bool is_capturing(gpuStream_t stream) {
  gpuStreamCaptureStatus status = gpuStreamCaptureStatusNone;
  check(gpuStreamIsCapturing(stream, &status), "asking whether a stream is being captured");
  return status != gpuStreamCaptureStatusNone;
}

void refuse_capture(gpuStream_t stream, const char* what) {
  if (is_capturing(stream)) refuse(NW_NOT_CAPTURABLE, -1, "%s: %s while the stream is being captured", kPluginName, what);
}

// Whether the call that this thread makes has put something on a stream. (Not of the initial-exec model: with the thread-local
// memory of CUDA's static runtime it would not fit into what the C library keeps free for plugins.)
thread_local bool enqueued = false;

// The body of a slot that may fail with a part of its work enqueued.
template <class Body>
int32_t enqueuing(nw_error* error, Body&& body) noexcept {
  enqueued = false;
  const int32_t status = guarded(error, body);
  if (!enqueued || status == NW_OK || status > NW_NOT_CAPTURABLE) return status;
  if (error != nullptr) error->status = NW_FAILED;
  return NW_FAILED;
}

// ---- slots: the instance and its devices ----

int32_t create(const nw_host* host, void** self, nw_error* error) {
  return guarded(error, [&] {
    if (host == nullptr || self == nullptr)
      refuse(NW_INVALID, -1, "%s: create() needs a host and a place for the instance", kPluginName);
    const ForeseenErrors foreseen;
    int count = 0;
    if (const gpuError_t found = gpuGetDeviceCount(&count); found != gpuSuccess || count == 0)
      throw Refusal{NW_UNAVAILABLE, -1,
                    std::string(found == gpuSuccess ? "there is no device" : advice(found)) + " (" + gpuGetErrorString(found) + ")",
                    static_cast<int64_t>(found)};
    const char* const checked = std::getenv("NARROWS_CHECK");
    auto instance = std::make_unique<Instance>();
    instance->host = host;
    instance->checked = checked != nullptr && std::string_view(checked) == "1";
    for (int id = 0; id < count; ++id) {
      gpuDeviceProp properties;
      if (const gpuError_t told = gpuGetDeviceProperties(&properties, id); told != gpuSuccess)
        throw Refusal{NW_UNAVAILABLE, -1,
                      "device " + std::to_string(id) + " of " + std::to_string(count) + " does not tell its properties (" +
                          gpuGetErrorName(told) + ", " + gpuGetErrorString(told) + ")",
                      static_cast<int64_t>(told)};
      instance->devices.push_back({.id = id,
                                   .compute_capability = compute_capability(properties),
                                   .generation = generation(properties),
                                   .multiprocessors = properties.multiProcessorCount,
                                   .threads_per_multiprocessor = properties.maxThreadsPerMultiProcessor,
                                   .warp_size = properties.warpSize,
                                   .shared_memory = max_shared_memory(id, properties),
                                   .l2_cache = static_cast<size_t>(properties.l2CacheSize),
                                   .total_memory = properties.totalGlobalMem});
    }
    instance->pools = std::make_unique<Pool[]>(static_cast<size_t>(count));
    instance->peers = std::make_unique<std::once_flag[]>(static_cast<size_t>(count) * static_cast<size_t>(count));
    *self = instance.release();
  });
}

void destroy(void* self) {
  auto* instance = static_cast<Instance*>(self);
  for (size_t i = 0; i < instance->devices.size(); ++i)
    if (const gpuMemPool_t pool = instance->pools[i].handle) (void)gpuMemPoolDestroy(pool);
  delete instance;
}

int32_t device_count(void* self, int32_t* count, nw_error*) {
  *count = static_cast<int32_t>(instance_of(self).devices.size());
  return NW_OK;
}

int32_t device_info(void* self, int32_t device_id, nw_device_info* out, nw_error* error) {
  return guarded(error, [&] {
    gpuDeviceProp properties;
    check(gpuGetDeviceProperties(&properties, device_of(self, device_id).id), "reading a device's properties");
    nw_device_info info{};
    std::snprintf(info.name, sizeof(info.name), "%.127s", properties.name);
    write_arch(properties, info.arch, sizeof(info.arch));
    write_uuid(device_id, properties, info.uuid);
    info.total_memory = properties.totalGlobalMem;
    write_sized(out, info);
  });
}

// ---- slots: memory ----

// What stays with the process after it was freed, for the next workspace.
constexpr uint64_t kKeptMemory = uint64_t{256} << 20;

gpuMemPool_t pool_of(void* self, int32_t device_id) {
  Pool& pool = instance_of(self).pools[static_cast<size_t>(device_id)];
  std::call_once(pool.made, [&] { pool.handle = create_pool(device_id, kKeptMemory); });
  return pool.handle;
}

gpuError_t allocate(gpuMemPool_t pool, uint64_t size, gpuStream_t stream, void** data) {
  return pool == nullptr ? gpuMalloc(data, size) : gpuMallocFromPoolAsync(data, size, pool, stream);
}

int32_t alloc(void* self, int32_t device_id, uint64_t size, void* stream_handle, void** data, nw_error* error) {
  return guarded(error, [&] {
    const Device& device = device_of(self, device_id);
    const DeviceScope scope(device.id);
    const auto stream = static_cast<gpuStream_t>(stream_handle);
    refuse_capture(stream, "memory cannot be allocated");
    if (size == 0) {
      *data = nullptr;
      return;
    }
    const ForeseenErrors foreseen;
    const gpuMemPool_t pool = pool_of(self, device_id);
    void* memory = nullptr;
    gpuError_t result = size > device.total_memory ? gpuErrorMemoryAllocation : allocate(pool, size, stream, &memory);
    if (status_of(result) == NW_OUT_OF_MEMORY && pool != nullptr &&
        size <= device.total_memory) {  // what was freed and kept may be in the way
      (void)gpuStreamSynchronize(stream);
      (void)gpuMemPoolTrimTo(pool, 0);
      result = allocate(pool, size, stream, &memory);
    }
    if (status_of(result) == NW_OUT_OF_MEMORY)
      throw Refusal{NW_OUT_OF_MEMORY, -1,
                    std::string(kPluginName) + ": " + std::to_string(size) + " bytes cannot be allocated on device " +
                        std::to_string(device_id),
                    static_cast<int64_t>(result)};
    check(result, "allocating memory");
    *data = memory;
  });
}

int32_t free_memory(void* self, int32_t device_id, void* data, void* stream, nw_error* error) {
  return guarded(error, [&] {
    const DeviceScope scope(device_of(self, device_id).id);
    if (data == nullptr) return;
    if (pool_of(self, device_id) == nullptr) return check(gpuFree(data), "freeing memory");
    check(gpuFreeAsync(data, static_cast<gpuStream_t>(stream)), "freeing memory");
  });
}

bool is_pinned(DLDevice device) { return static_cast<int>(device.device_type) == kPinnedType; }
bool is_host(DLDevice device) { return device.device_type == kDLCPU || is_pinned(device); }
bool is_ours(DLDevice device) {
  const int type = static_cast<int>(device.device_type);
  return type == kDeviceType || (kManagedType != 0 && type == kManagedType);
}

// The device that a copy is made from: its tensors'; between host tensors the stream's, else the pinned one's.
int32_t copying_device(DLDevice to, DLDevice from, gpuStream_t stream) {
  if (is_ours(to)) return to.device_id;
  if (is_ours(from)) return from.device_id;
  if (const int owner = stream_device(stream); owner >= 0) return owner;
  return is_pinned(to) ? to.device_id : is_pinned(from) ? from.device_id : 0;
}

// Before a copy between two devices, which both have memory, and so a context.
void reach(void* self, int device, int other) {
  const Instance& instance = instance_of(self);
  const size_t pair = static_cast<size_t>(device) * instance.devices.size() + static_cast<size_t>(other);
  std::call_once(instance.peers[pair], [&] {
    const ForeseenErrors foreseen;
    const gpuMemPool_t pool = pool_of(self, other);
    const DeviceScope scope(device);
    reach_peer(device, other, pool);
  });
}

int32_t copy(void* self, DLDevice to, void* dst, DLDevice from, const void* src, uint64_t size, void* stream_handle,
             nw_error* error) {
  return enqueuing(error, [&] {
    if (!(is_ours(to) || is_host(to)) || !(is_ours(from) || is_host(from)))
      refuse(NW_UNSUPPORTED, -1, "%s: a copy from device type %d to %d; this backend copies between its memory and the host's",
             kPluginName, static_cast<int>(from.device_type), static_cast<int>(to.device_type));
    const auto stream = static_cast<gpuStream_t>(stream_handle);
    const Device& device = device_of(self, copying_device(to, from, stream));
    if (is_ours(from)) (void)device_of(self, from.device_id);
    if (size == 0) return;
    if (dst == nullptr || src == nullptr)
      refuse(NW_INVALID, -1, "%s: copy: %s is NULL; expected a non-NULL pointer", kPluginName, dst == nullptr ? "dst" : "src");
    if (size > PTRDIFF_MAX)
      refuse(NW_INVALID, -1, "%s: a copy of %llu bytes leaves the address space", kPluginName,
             static_cast<unsigned long long>(size));
    const DeviceScope scope(device.id);
    const bool waits = is_host(to) || is_host(from);
    if (is_ours(to) && is_ours(from) && to.device_id != from.device_id && !is_capturing(stream)) {
      reach(self, to.device_id, from.device_id);
      reach(self, from.device_id, to.device_id);
    }
    if (waits) refuse_capture(stream, "a copy from or to host memory waits for the stream, which it cannot");
    check(gpuMemcpyAsync(dst, src, size, gpuMemcpyDefault, stream), "copying memory");
    mark_enqueued();
    if (waits) check(gpuStreamSynchronize(stream), "waiting for a copy");
  });
}

// ---- slots: streams ----

int32_t stream_create(void* self, int32_t device_id, void** stream, nw_error* error) {
  return guarded(error, [&] {
    const DeviceScope scope(device_of(self, device_id).id);
    gpuStream_t made = nullptr;
    check(gpuStreamCreateWithFlags(&made, gpuStreamNonBlocking), "creating a stream");
    *stream = made;
  });
}

int32_t stream_destroy(void* self, int32_t device_id, void* stream, nw_error* error) {
  return guarded(error, [&] {
    const DeviceScope scope(device_of(self, device_id).id);
    if (is_default_stream(static_cast<gpuStream_t>(stream)))
      refuse(NW_INVALID, -1, "%s: stream %p is a default stream; expected one that nw_stream_create() made", kPluginName, stream);
    check(gpuStreamDestroy(static_cast<gpuStream_t>(stream)), "destroying a stream");
  });
}

int32_t stream_sync(void* self, int32_t device_id, void* stream, nw_error* error) {
  return guarded(error, [&] {
    const DeviceScope scope(device_of(self, device_id).id);
    check(gpuStreamSynchronize(static_cast<gpuStream_t>(stream)), "waiting for a stream");
  });
}

int32_t stream_wait(void* self, int32_t device_id, void* waiter, void* signaler, nw_error* error) {
  return guarded(error, [&] {
    const DeviceScope scope(device_of(self, device_id).id);
    gpuEvent_t event = nullptr;
    check(gpuEventCreateWithFlags(&event, gpuEventDisableTiming), "creating an event");
    gpuError_t result = gpuEventRecord(event, static_cast<gpuStream_t>(signaler));
    if (result == gpuSuccess) result = gpuStreamWaitEvent(static_cast<gpuStream_t>(waiter), event, 0);
    (void)gpuEventDestroy(event);  // after the wait it is the driver's until the streams have passed it
    check(result, "letting a stream wait for another");
  });
}

// ---- slots: ops ----

int32_t plan(void* self, const nw_sig* sig, void** out, nw_plan_info* info, nw_error* error) {
  return guarded(error, [&] {
    const auto& op = find_op(kOps, *sig, kDeviceType);
    const DeviceScope scope(device_of(self, sig->device.device_id).id);
    plan_op<Instance>(op, instance_of(self), *sig, out, info);
  });
}

int32_t plan_a_program(void* self, const nw_program_text* program, const nw_sig* sig, void** out, nw_plan_info* info,
                       nw_error* error) {
  return guarded(error, [&] {
    check_signature(*sig, kDeviceType);
    const DeviceScope scope(device_of(self, sig->device.device_id).id);
    if (program->flags != 0)
      refuse(NW_UNSUPPORTED, -1, "%s: the program's flags are 0x%x; this backend knows none", sig->op, program->flags);
    const char* text = program->scheduled != nullptr ? program->scheduled : program->text;
    give_plan(plan_program(instance_of(self), text, *sig, out == nullptr), *sig, out, info);
  });
}

// Says nothing of a device, so that there is one for the process.
int32_t program_source(void*, const char* text, char* out, uint64_t size, uint64_t* needed, nw_error* error) {
  return guarded(error, [&] {
    if (text == nullptr) refuse(NW_INVALID, -1, "'text' is NULL; expected the text of a program");
    give_text(source_of_program(text), out, size, needed);
  });
}
int32_t program_compiler(void*, char* out, uint64_t size, uint64_t* needed, nw_error* error) {
  return guarded(error, [&] { give_text(compiler_description(), out, size, needed); });
}
constexpr nw_program_source kSource = {sizeof(nw_program_source), 0, nullptr, program_source, program_compiler};

const void* extension(void*, const char* name) { return std::string_view(name) == "program_source/1" ? &kSource : nullptr; }

void plan_free(void*, void* plan) { delete static_cast<Plan*>(plan); }

int32_t launch(void* self, const void* handle, const nw_call* call, nw_error* error) {
  return enqueuing(error, [&] {
    const auto& planned = *static_cast<const Plan*>(handle);
    const DeviceScope scope(planned.device_id);
    if (instance_of(self).checked) check_memory(*call, planned.workspace_size, planned.device_id);
    planned.launch(*call);
  });
}

// ---- the table ----

const nw_plugin* table() {
  static const Declarations declarations(kOps);
  static const nw_plugin plugin = {
      .struct_size = sizeof(nw_plugin),
      .abi_major = NW_ABI_MAJOR,
      .name = kPluginName,
      .version = NARROWS_BACKEND_VERSION,
      .device_type = kDeviceType,
      .pinned_type = kPinnedType,
      .managed_type = kManagedType,
      .num_ops = std::size(kOps),
      .ops = declarations.pointers.data(),
      .create = create,
      .destroy = destroy,
      .device_count = device_count,
      .device_info = device_info,
      .alloc = alloc,
      .free = free_memory,
      .copy = copy,
      .stream_create = stream_create,
      .stream_destroy = stream_destroy,
      .stream_sync = stream_sync,
      .stream_wait = stream_wait,
      .infer = nullptr,
      .plan = plan,
      .plan_free = plan_free,
      .launch = launch,
      .extension = extension,
      .plan_program = plan_a_program,
      .program_kernels = kProgramKernels,
  };
  return &plugin;
}

}  // namespace

// ---- what the ops use: see backend.h ----

void check(gpuError_t error, const char* doing) {
  if (error == gpuSuccess) return;
  const int32_t status = status_of(error);
  std::string message = std::string(kPluginName) + ": " + doing + ": " + gpuGetErrorName(error) + ", " + gpuGetErrorString(error);
  if (status == NW_DEVICE_LOST) message += "; earlier work on the device may have caused it";
  throw Refusal{status, -1, std::move(message), static_cast<int64_t>(error)};
}

void mark_enqueued() { enqueued = true; }

// This question brings what earlier work did, and breaks no capture off: a query of any stream would, in the global mode.
void refuse_lost_device(gpuStream_t stream) {
  const ForeseenErrors foreseen;
  gpuStreamCaptureStatus status = gpuStreamCaptureStatusNone;
  const gpuError_t error = gpuStreamIsCapturing(stream, &status);
  if (status_of(error) == NW_DEVICE_LOST) check(error, "asking whether the device lives");
}

// Plans of one kernel may ask for different sizes: what one was allowed is never taken back.
gpuFunction_t load_kernel(const void* kernel, size_t shared) {
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  gpuFuncAttributes attributes;
  check(gpuFuncGetAttributes(&attributes, kernel), "loading a kernel");
  constexpr size_t kAlwaysAllowed = 48 << 10;
  if (shared + attributes.sharedSizeBytes > kAlwaysAllowed)
    check(gpuFuncSetAttribute(kernel, gpuFuncAttributeMaxDynamicSharedMemorySize,
                              std::max(static_cast<int>(shared), attributes.maxDynamicSharedSizeBytes)),
          "allowing a kernel its shared memory");
  return find_function(kernel);
}

}  // namespace narrows::gpu

extern "C" const nw_plugin* narrows_plugin_query(uint32_t host_major, nw_error* error) {
  using namespace narrows::gpu;
  return query(kPluginName, host_major, error, table);
}
