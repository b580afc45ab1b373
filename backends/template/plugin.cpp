// SPDX-License-Identifier: Apache-2.0
// plugin.cpp -- the table behind the one exported symbol. plugin.h says what each slot promises. No exception leaves this file, and
// nothing is done before create().
#include <narrows/plugin.h>

#include <cstdio>
#include <iterator>

#include "backend.h"

namespace narrows::template_backend {
namespace {

constexpr const Op* kOps[] = {&conv1d};

const Instance& instance_of(void* self) { return *static_cast<const Instance*>(self); }

// The device, once its number is right.
Device& device(void* self, int32_t device_id) {
  Device& found = *instance_of(self).device;
  found.check_number(device_id);
  return found;
}

// ---- the instance ----

// A real backend opens its driver here, by dlopen: the plugin loads where there is none. What is missing it says with
// NW_UNAVAILABLE, and what to install.
int32_t create(const nw_host* host, void** self, nw_error* error) {
  return guarded(error, [&] {
    static auto* const device = new Device(kDeviceType, "template");  // of the process, as a driver's devices are; never destroyed
    *self = new Instance{host, device};
  });
}

void destroy(void* self) { delete static_cast<Instance*>(self); }

int32_t device_count(void* /*self*/, int32_t* count, nw_error* /*error*/) {
  *count = 1;
  return NW_OK;
}

int32_t device_info(void* self, int32_t device_id, nw_device_info* out, nw_error* error) {
  return guarded(error, [&] {
    device(self, device_id);
    nw_device_info info{};
    std::snprintf(info.name, sizeof info.name, "a device that the CPU plays");
    std::snprintf(info.arch, sizeof info.arch, "plain loops");
    write_sized(out, info);
  });
}

// ---- memory ----

int32_t alloc(void* self, int32_t device_id, uint64_t size, void* stream, void** data, nw_error* error) {
  return guarded(error, [&] { *data = device(self, device_id).alloc(size, stream); });
}

int32_t free_memory(void* self, int32_t device_id, void* data, void* stream, nw_error* error) {
  return guarded(error, [&] { device(self, device_id).free(data, stream); });
}

int32_t copy(void* self, DLDevice to, void* dst, DLDevice from, const void* src, uint64_t size, void* stream, nw_error* error) {
  return guarded(error, [&] { instance_of(self).device->copy(to, dst, from, src, size, stream); });
}

// ---- streams ----

int32_t stream_create(void* self, int32_t device_id, void** stream, nw_error* error) {
  return guarded(error, [&] { *stream = device(self, device_id).create_stream(); });
}

int32_t stream_destroy(void* self, int32_t device_id, void* stream, nw_error* error) {
  return guarded(error, [&] { device(self, device_id).destroy_stream(stream); });
}

int32_t stream_sync(void* self, int32_t device_id, void* stream, nw_error* error) {
  return guarded(error, [&] { device(self, device_id).sync(stream); });
}

// What is on the signaler is done now, so that what the waiter gets comes after it. A real device puts an event on the one and a
// wait for it on the other, and the host goes on.
int32_t stream_wait(void* self, int32_t device_id, void* /*waiter*/, void* signaler, nw_error* error) {
  return stream_sync(self, device_id, signaler, error);
}

// ---- ops ----

int32_t plan(void* self, const nw_sig* sig, void** out, nw_plan_info* info, nw_error* error) {
  return guarded(error, [&] {
    const Op& op = find_op(kOps, *sig, kDeviceType);
    device(self, sig->device.device_id);
    plan_op<Instance>(op, instance_of(self), *sig, out, info);
  });
}

void plan_free(void* /*self*/, void* plan) { delete static_cast<Plan*>(plan); }

int32_t launch(void* /*self*/, const void* plan, const nw_call* call, nw_error* error) {
  return guarded(error, [&] { static_cast<const Plan*>(plan)->launch(*call); });
}

// ---- the table ----

const nw_plugin* table() {
  static const Declarations declarations(kOps);
  static const nw_plugin plugin = {
      .struct_size = sizeof(nw_plugin),
      .abi_major = NW_ABI_MAJOR,
      .name = "template",
      .version = NARROWS_BACKEND_VERSION,
      .device_type = kDeviceType,
      .pinned_type = 0,
      .managed_type = 0,
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
      .extension = nullptr,
      .plan_program = nullptr,
      .program_kernels = nullptr,
  };
  return &plugin;
}

}  // namespace
}  // namespace narrows::template_backend

extern "C" const nw_plugin* narrows_plugin_query(uint32_t host_major, nw_error* error) {
  using namespace narrows::template_backend;
  return query("template", host_major, error, table);
}
