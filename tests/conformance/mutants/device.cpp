// SPDX-License-Identifier: Apache-2.0
// device.cpp -- a device for tests on machines that have none: the cpu backend's kernels, and memory of the host as far from the
// host as it can be. Whoever takes something for granted that is so on the CPU alone fails on it:
//
//   an address of the device is none of the host's: the host that touches it dies
//   what is put on a stream is done when somebody waits for it, and not before
//   memory is taken only if alloc() gave all of it and it was not freed since
#include <narrows/plugin.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "common/plugin.h"
#include "real_plugin.h"

namespace {

using narrows::common::guarded;
using narrows::common::Refusal;
using narrows::common::refuse;

constexpr int kDeviceType = kDLOneAPI;          // whose DLTensor.data is an address
constexpr uintptr_t kFar = uintptr_t{1} << 50;  // a bit that no address of a process has, on x86-64 and arm64

const nw_plugin* load_cpu(nw_error* error) { return mutants::load_plugin(NARROWS_REAL_PLUGIN, error); }
const nw_plugin& cpu() {
  static const nw_plugin& plugin = *load_cpu(nullptr);
  return plugin;
}

// What a slot of the cpu backend gave, as an exception.
void check(int32_t status, const nw_error& error) {
  if (status != NW_OK) throw Refusal{status, error.argument, error.message, error.native_code};
}

unsigned char* host_address(uintptr_t device_address) { return reinterpret_cast<unsigned char*>(device_address - kFar); }
uintptr_t number(const void* address) { return reinterpret_cast<uintptr_t>(address); }

// ---- the device: one of the process, which does one thing after the other ----

struct Stream {
  std::vector<std::function<void()>> work;  // in this order, whenever somebody waits for it
};

struct Device {
  std::mutex mutex;
  std::map<uintptr_t, uint64_t> memory;  // address and size of what is allocated
  std::set<Stream*> streams;             // that were created and not destroyed
  Stream default_stream;
};
Device& device() {
  static auto* const one = new Device;  // leaked: the runtimes of the tests are
  return *one;
}

// These are called with the device's mutex held.

Stream& stream_of(void* handle) {
  if (handle == nullptr) return device().default_stream;
  auto* const stream = static_cast<Stream*>(handle);
  if (device().streams.count(stream) == 0) refuse(NW_INVALID, -1, "device: stream %p is none of its own", handle);
  return *stream;
}

void finish(Stream& stream) {
  for (const auto& work : std::exchange(stream.work, {})) work();
}

void check_device(int32_t device_id) {
  if (device_id != 0) refuse(NW_INVALID, -1, "device: device %d; expected 0, the only one", device_id);
}

void check_memory(uintptr_t begin, uint64_t size, int32_t argument) {
  const auto& memory = device().memory;
  auto found = memory.upper_bound(begin);
  if (found == memory.begin() || (--found, begin - found->first > found->second || size > found->second - (begin - found->first)))
    refuse(NW_INVALID, argument, "device: %llu bytes at %#llx are not memory that it has allocated",
           static_cast<unsigned long long>(size), static_cast<unsigned long long>(begin));
}

void check_tensor(const DLTensor& t, int32_t argument) {
  if (t.device.device_type != kDeviceType) refuse(NW_INVALID, argument, "device: device type %d", t.device.device_type);
  int64_t low = 0, high = 0, contiguous = 1;
  for (int32_t d = t.ndim; d-- > 0;) {
    if (t.shape[d] == 0) return;
    const int64_t reach = (t.shape[d] - 1) * (t.strides == nullptr ? contiguous : t.strides[d]);
    (reach < 0 ? low : high) += reach;
    contiguous *= t.shape[d];
  }
  const int64_t item = t.dtype.bits / 8;
  check_memory(number(t.data) + t.byte_offset + static_cast<uint64_t>(low * item), static_cast<uint64_t>((high - low + 1) * item),
               argument);
}

// ---- slots: the instance ----

struct Instance {
  void* cpu = nullptr;
};
void* cpu_of(void* self) { return static_cast<Instance*>(self)->cpu; }

int32_t create(const nw_host* host, void** self, nw_error* error) {
  auto instance = std::make_unique<Instance>();
  const int32_t status = cpu().create(host, &instance->cpu, error);
  if (status == NW_OK) *self = instance.release();
  return status;
}

void destroy(void* self) {
  cpu().destroy(cpu_of(self));
  delete static_cast<Instance*>(self);
}

int32_t device_count(void*, int32_t* count, nw_error*) {
  *count = 1;
  return NW_OK;
}

int32_t device_info(void*, int32_t device_id, nw_device_info* out, nw_error* error) {
  return guarded(error, [&] {
    check_device(device_id);
    nw_device_info info{};
    std::snprintf(info.name, sizeof info.name, "host memory, far away");
    std::snprintf(info.arch, sizeof info.arch, "the cpu backend's kernels");
    narrows::common::write_sized(out, info);
  });
}

// ---- slots: memory ----

int32_t alloc(void* self, int32_t device_id, uint64_t size, void* stream, void** data, nw_error* error) {
  return guarded(error, [&] {
    check_device(device_id);
    const std::lock_guard hold(device().mutex);
    stream_of(stream);
    nw_error reason{};
    void* memory = nullptr;
    check(cpu().alloc(cpu_of(self), 0, size, nullptr, &memory, &reason), reason);
    if (memory != nullptr) device().memory[number(memory) + kFar] = size;
    *data = memory == nullptr ? nullptr : reinterpret_cast<void*>(number(memory) + kFar);
  });
}

int32_t free_memory(void*, int32_t device_id, void* data, void* stream, nw_error* error) {
  return guarded(error, [&] {
    check_device(device_id);
    const std::lock_guard hold(device().mutex);
    Stream& on = stream_of(stream);
    if (data == nullptr) return;
    if (device().memory.count(number(data)) == 0) refuse(NW_INVALID, -1, "device: %p was not allocated, or is free", data);
    on.work.emplace_back([data] {
      device().memory.erase(number(data));
      std::free(host_address(number(data)));
    });
  });
}

// The host's address of one side of a copy.
unsigned char* side(DLDevice where, const void* address, uint64_t size) {
  if (where.device_type == kDLCPU) return static_cast<unsigned char*>(const_cast<void*>(address));
  if (where.device_type != kDeviceType) refuse(NW_UNSUPPORTED, -1, "device: a copy with device type %d", where.device_type);
  check_device(where.device_id);
  check_memory(number(address), size, -1);
  return host_address(number(address));
}

int32_t copy(void*, DLDevice to, void* dst, DLDevice from, const void* src, uint64_t size, void* stream, nw_error* error) {
  return guarded(error, [&] {
    const std::lock_guard hold(device().mutex);
    Stream& on = stream_of(stream);
    if (size == 0) return;
    unsigned char *const there = side(to, dst, size), *const here = side(from, src, size);
    on.work.emplace_back([=] { std::memmove(there, here, size); });
    if (to.device_type == kDLCPU || from.device_type == kDLCPU) finish(on);
  });
}

// ---- slots: streams ----

int32_t stream_create(void*, int32_t device_id, void** stream, nw_error* error) {
  return guarded(error, [&] {
    check_device(device_id);
    const std::lock_guard hold(device().mutex);
    *stream = *device().streams.insert(new Stream).first;
  });
}

int32_t stream_destroy(void*, int32_t device_id, void* stream, nw_error* error) {
  return guarded(error, [&] {
    check_device(device_id);
    const std::lock_guard hold(device().mutex);
    finish(stream_of(stream));
    if (device().streams.erase(static_cast<Stream*>(stream)) != 0) delete static_cast<Stream*>(stream);
  });
}

int32_t stream_sync(void*, int32_t device_id, void* stream, nw_error* error) {
  return guarded(error, [&] {
    check_device(device_id);
    const std::lock_guard hold(device().mutex);
    finish(stream_of(stream));
  });
}

// What the waiter is given from now on comes after what is on the signaler: that is done now.
int32_t stream_wait(void* self, int32_t device_id, void* /*waiter*/, void* signaler, nw_error* error) {
  return stream_sync(self, device_id, signaler, error);
}

// ---- slots: ops ----

using Plan = std::shared_ptr<void>;  // the cpu backend's, which work on a stream keeps

int32_t plan(void* self, const nw_sig* given, void** out, nw_plan_info* info, nw_error* error) {
  return guarded(error, [&] {
    if (given->device.device_type != kDeviceType) refuse(NW_UNSUPPORTED, -1, "device: device type %d", given->device.device_type);
    check_device(given->device.device_id);
    nw_sig sig = *given;
    sig.struct_size = sizeof sig;
    sig.device = {kDLCPU, 0};
    nw_error reason{};
    void* planned = nullptr;
    check(cpu().plan(cpu_of(self), &sig, out == nullptr ? nullptr : &planned, info, &reason), reason);
    if (out != nullptr) *out = new Plan(planned, [instance = cpu_of(self)](void* plan) { cpu().plan_free(instance, plan); });
  });
}

void plan_free(void*, void* plan) { delete static_cast<Plan*>(plan); }

// A call that outlives the caller's, on the host's addresses.
class Work {
 public:
  explicit Work(const nw_call& call) : tensors_(call.num_inputs + call.num_outputs), dims_(tensors_.size()) {
    for (uint32_t i = 0; i < tensors_.size(); ++i) {
      const DLTensor* const t = i < call.num_inputs ? call.inputs[i] : call.outputs[i - call.num_inputs];
      if (t != nullptr) add(*t, static_cast<int32_t>(i));
      pointers_.push_back(t == nullptr ? nullptr : &tensors_[i]);
    }
    call_.struct_size = sizeof call_;
    call_.flags = call.flags;
    call_.device = {kDLCPU, 0};
    call_.num_inputs = call.num_inputs;
    call_.num_outputs = call.num_outputs;
    call_.inputs = pointers_.data();
    call_.outputs = pointers_.data() + call.num_inputs;
    call_.workspace_size = call.workspace_size;
    if (call.workspace == nullptr || call.workspace_size == 0) return;
    check_memory(number(call.workspace), call.workspace_size, -1);
    call_.workspace = host_address(number(call.workspace));
  }
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;
  const nw_call& call() const { return call_; }

 private:
  void add(const DLTensor& t, int32_t i) {
    check_tensor(t, i);
    const auto ndim = static_cast<size_t>(t.ndim);
    std::vector<int64_t>& dims = dims_[static_cast<size_t>(i)];
    dims.assign(t.shape, t.shape + ndim);
    if (t.strides != nullptr) dims.insert(dims.end(), t.strides, t.strides + ndim);
    DLTensor& mine = tensors_[static_cast<size_t>(i)] = t;
    mine.device = {kDLCPU, 0};
    mine.data = t.data == nullptr ? nullptr : host_address(number(t.data));
    mine.shape = dims.data();
    mine.strides = t.strides == nullptr ? nullptr : dims.data() + ndim;
  }

  std::vector<DLTensor> tensors_;
  std::vector<std::vector<int64_t>> dims_;
  std::vector<const DLTensor*> pointers_;
  nw_call call_{};
};

int32_t launch(void* self, const void* plan, const nw_call* call, nw_error* error) {
  return guarded(error, [&] {
    const std::lock_guard hold(device().mutex);
    Stream& on = stream_of(call->stream);
    on.work.emplace_back([work = std::make_shared<Work>(*call), plan = *static_cast<const Plan*>(plan), self] {
      nw_error reason{};
      check(cpu().launch(cpu_of(self), plan.get(), &work->call(), &reason), reason);
    });
  });
}

const nw_plugin* table() {
  static const nw_plugin plugin = {
      .struct_size = sizeof(nw_plugin),
      .abi_major = NW_ABI_MAJOR,
      .name = "device",
      .version = "1.0",
      .device_type = kDeviceType,
      .pinned_type = 0,
      .managed_type = 0,
      .num_ops = cpu().num_ops,
      .ops = cpu().ops,
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
      .extension = nullptr,
      .plan_program = nullptr,
      .program_kernels = nullptr,
  };
  return &plugin;
}

}  // namespace

const nw_plugin* narrows_plugin_query(uint32_t host_major, nw_error* error) {
  return narrows::common::query("device", host_major, error, [&] { return load_cpu(error) != nullptr ? table() : nullptr; });
}
