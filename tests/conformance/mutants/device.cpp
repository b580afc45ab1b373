// SPDX-License-Identifier: Apache-2.0
// device.cpp -- a device for tests on machines that have none: the cpu backend's kernels on the device of backends/template, whose
// memory is as far from the host as it can be. Whoever takes something for granted that is so on the CPU alone fails on it.
#include <narrows/plugin.h>

#include <cstdio>
#include <memory>
#include <vector>

#include "real_plugin.h"
#include "template/device.h"

namespace {

using narrows::common::guarded;
using narrows::common::Refusal;
using narrows::common::refuse;
using narrows::template_backend::Device;

constexpr DLDeviceType kDeviceType = kDLOneAPI;  // whose DLTensor.data is an address

const nw_plugin* load_cpu(nw_error* error) { return mutants::load_plugin(NARROWS_REAL_PLUGIN, error); }
const nw_plugin& cpu() {
  static const nw_plugin& plugin = *load_cpu(nullptr);
  return plugin;
}

// What a slot of the cpu backend gave, as an exception.
void check(int32_t status, const nw_error& error) {
  if (status != NW_OK) throw Refusal{status, error.argument, error.message, error.native_code};
}

Device& device() {
  static auto* const one = new Device(kDeviceType, "device");  // leaked: the runtimes of the tests are
  return *one;
}
Device& device(int32_t device_id) {
  device().check_number(device_id);
  return device();
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
    device(device_id);
    nw_device_info info{};
    std::snprintf(info.name, sizeof info.name, "host memory, far away");
    std::snprintf(info.arch, sizeof info.arch, "the cpu backend's kernels");
    narrows::common::write_sized(out, info);
  });
}

// ---- slots: memory ----

int32_t alloc(void*, int32_t device_id, uint64_t size, void* stream, void** data, nw_error* error) {
  return guarded(error, [&] { *data = device(device_id).alloc(size, stream); });
}

int32_t free_memory(void*, int32_t device_id, void* data, void* stream, nw_error* error) {
  return guarded(error, [&] { device(device_id).free(data, stream); });
}

int32_t copy(void*, DLDevice to, void* dst, DLDevice from, const void* src, uint64_t size, void* stream, nw_error* error) {
  return guarded(error, [&] { device().copy(to, dst, from, src, size, stream); });
}

// ---- slots: streams ----

int32_t stream_create(void*, int32_t device_id, void** stream, nw_error* error) {
  return guarded(error, [&] { *stream = device(device_id).create_stream(); });
}

int32_t stream_destroy(void*, int32_t device_id, void* stream, nw_error* error) {
  return guarded(error, [&] { device(device_id).destroy_stream(stream); });
}

int32_t stream_sync(void*, int32_t device_id, void* stream, nw_error* error) {
  return guarded(error, [&] { device(device_id).sync(stream); });
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
    device(given->device.device_id);
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
    call_.workspace = device().host_address(reinterpret_cast<uintptr_t>(call.workspace), call.workspace_size, -1);
  }
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;
  const nw_call& call() const { return call_; }

 private:
  void add(const DLTensor& t, int32_t i) {
    unsigned char* const first = device().host_address(&t, i);
    const auto ndim = static_cast<size_t>(t.ndim);
    std::vector<int64_t>& dims = dims_[static_cast<size_t>(i)];
    dims.assign(t.shape, t.shape + ndim);
    if (t.strides != nullptr) dims.insert(dims.end(), t.strides, t.strides + ndim);
    DLTensor& mine = tensors_[static_cast<size_t>(i)] = t;
    mine.device = {kDLCPU, 0};
    mine.data = first == nullptr ? nullptr : first - t.byte_offset;
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
    device().launch(call->stream, [work = std::make_shared<Work>(*call), plan = *static_cast<const Plan*>(plan), self] {
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
