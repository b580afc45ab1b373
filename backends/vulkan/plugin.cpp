// SPDX-License-Identifier: Apache-2.0
// plugin.cpp -- the table behind the one exported symbol: devices, memory, streams, and the way to the ops. No exception leaves
// this file, and Vulkan is not opened before create().
#include <narrows/plugin.h>
#include <narrows/program.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string_view>

#include "backend.h"
#include "copy.h"
#include "ops/program/compiler.h"
#include "ops/program/program.h"

namespace narrows::vulkan {
namespace {

const nw_plugin* table();

constexpr const char* kName = "vulkan";
#define NARROWS_OP(name) &name,
constexpr const Op* kOps[] = {
#include "ops.inc"
};
#undef NARROWS_OP

Instance& instance_of(void* self) { return *static_cast<Instance*>(self); }
DeviceInUse device_of(void* self, int32_t id) { return DeviceInUse(instance_of(self).device(id)); }
// The body of a slot. Messages begin with "vulkan: " for callers of the extension; the host says it of what comes from a slot
// itself.
template <class Body>
int32_t in_slot(nw_error* error, Body&& body) noexcept {
  constexpr std::string_view kSaid = "vulkan: ";
  const int32_t status = guarded(error, body);
  if (status != NW_OK && error != nullptr)
    if (const std::string_view message = error->message; message.substr(0, kSaid.size()) == kSaid)
      std::memmove(error->message, error->message + kSaid.size(), message.size() - kSaid.size() + 1);
  return status;
}
void* pointer(Address address) { return reinterpret_cast<void*>(address); }
Address address_of(const void* pointer) { return reinterpret_cast<Address>(pointer); }

// ---- slots: the instance and its devices ----

int32_t create(const nw_host* host, void** self, nw_error* error) {
  return in_slot(error, [&] {
    if (host == nullptr || self == nullptr) refuse(NW_INVALID, -1, "vulkan: create() needs a host and a place for the instance");
    const char* const checked = std::getenv("NARROWS_CHECK");
    auto instance = std::make_unique<Instance>();
    instance->host = host;
    instance->checked = checked != nullptr && std::string_view(checked) == "1";
    instance->loader = Loader::get();
    std::string unfit;
    for (const VkPhysicalDevice handle : instance->loader->physical_devices()) {
      const PhysicalDevice physical(instance->loader->instance(), handle);
      if (const std::string why = physical.unfit(); !why.empty())
        unfit += (unfit.empty() ? ": " : "; ") + why;
      else
        instance->add(physical);
    }
    if (!unfit.empty()) host->log(host->ctx, NW_LOG_INFO, ("vulkan leaves out" + unfit).c_str());
    if (instance->count() == 0)
      refuse(NW_UNAVAILABLE, -1, "vulkan: there is no device%s; install the GPU's driver, or Mesa's (Debian: mesa-vulkan-drivers)",
             unfit.c_str());
    instance->extension = make_extension(*instance);
    instance->kernels_extension = make_kernels_extension(*instance, *table());
    *self = instance.release();
  });
}

void destroy(void* self) { delete &instance_of(self); }

int32_t device_count(void* self, int32_t* count, nw_error*) {
  *count = instance_of(self).count();
  return NW_OK;
}

// Of what elements there are kernels for it, too.
const char* matrix_unit(const MatrixUnits& units) {
  const bool f16 = units.f16 && shaders::conv1d_coopmat_f16.is_there(),
             bf16 = units.bf16 && shaders::conv1d_coopmat_bf16.is_there();
  return f16 && bf16 ? "matrix unit of f16 and bf16, " : f16 ? "matrix unit of f16, " : bf16 ? "matrix unit of bf16, " : "";
}

int32_t device_info(void* self, int32_t id, nw_device_info* out, nw_error* error) {
  return in_slot(error, [&] {
    const PhysicalDevice& device = instance_of(self).slot(id).physical;
    const uint32_t version = device.properties.apiVersion;
    nw_device_info info{};
    std::snprintf(info.name, sizeof(info.name), "%.127s", device.properties.deviceName);
    std::snprintf(info.arch, sizeof(info.arch), "%sVulkan %u.%u, %.80s", matrix_unit(device.matrix_units),
                  VK_API_VERSION_MAJOR(version), VK_API_VERSION_MINOR(version), device.properties12.driverName);
    std::memcpy(info.uuid, device.properties11.deviceUUID, sizeof(info.uuid));
    info.total_memory = device.local_memory();
    write_sized(out, info);
  });
}

// ---- slots: memory ----

int32_t alloc(void* self, int32_t id, uint64_t size, void* stream, void** data, nw_error* error) {
  return in_slot(error, [&] {
    const DeviceInUse device = device_of(self, id);
    const auto on = device->stream(stream);
    const Address address = size == 0 ? 0 : on->allocate(size);
    if (size != 0 && address == 0)
      refuse(NW_OUT_OF_MEMORY, -1, "vulkan: cannot allocate %llu bytes on device %d; it promises allocations of up to %llu bytes",
             static_cast<unsigned long long>(size), id,
             static_cast<unsigned long long>(device->physical.properties11.maxMemoryAllocationSize));
    *data = pointer(address);
  });
}

int32_t free_memory(void* self, int32_t id, void* data, void* stream, nw_error* error) {
  return in_slot(error, [&] {
    const DeviceInUse device = device_of(self, id);
    const auto on = device->stream(stream);
    if (data != nullptr) on->free(address_of(data));
  });
}

int32_t copy(void* self, DLDevice to, void* dst, DLDevice from, const void* src, uint64_t size, void* stream, nw_error* error) {
  return in_slot(error, [&] {
    const bool to_host = to.device_type == kDLCPU, from_host = from.device_type == kDLCPU;
    if ((!to_host && to.device_type != kDLVulkan) || (!from_host && from.device_type != kDLVulkan) || (to_host && from_host))
      refuse(NW_UNSUPPORTED, -1, "vulkan: a copy from device type %d to %d; this backend copies between its memory and the host's",
             static_cast<int>(from.device_type), static_cast<int>(to.device_type));
    if (!to_host && !from_host && to.device_id != from.device_id)
      refuse(NW_UNSUPPORTED, -1, "vulkan: a copy from device %d to device %d; copy through host memory", from.device_id,
             to.device_id);
    const DeviceInUse device = device_of(self, to_host ? from.device_id : to.device_id);
    const auto on = device->stream(stream);
    if (size == 0) return;
    if (dst == nullptr || src == nullptr)
      refuse(NW_INVALID, -1, "vulkan: copy: %s is NULL; expected a non-NULL pointer", dst == nullptr ? "dst" : "src");
    if (to_host)
      on->copy_to_host(dst, address_of(src), size);
    else if (from_host)
      on->copy_from_host(address_of(dst), src, size);
    else
      copy_within(*device, *on, address_of(dst), address_of(src), size);
  });
}

// ---- slots: streams ----

int32_t stream_create(void* self, int32_t id, void** stream, nw_error* error) {
  return in_slot(error, [&] { *stream = device_of(self, id)->add_stream(); });
}

int32_t stream_destroy(void* self, int32_t id, void* stream, nw_error* error) {
  return in_slot(error, [&] { device_of(self, id)->remove_stream(stream); });
}

int32_t stream_sync(void* self, int32_t id, void* stream, nw_error* error) {
  return in_slot(error, [&] { device_of(self, id)->stream(stream)->sync(true); });
}

int32_t stream_wait(void* self, int32_t id, void* waiter, void* signaler, nw_error* error) {
  return in_slot(error, [&] {
    const DeviceInUse device = device_of(self, id);
    const auto waits = device->stream(waiter), signals = device->stream(signaler);
    waits->wait_for(*signals);
  });
}

// ---- slots: ops ----

int32_t plan(void* self, const nw_sig* sig, void** out, nw_plan_info* info, nw_error* error) {
  return in_slot(error, [&] {
    const Op& op = find_op(kOps, *sig, kDLVulkan);
    const DeviceInUse device = device_of(self, sig->device.device_id);
    plan_op<Instance>(op, instance_of(self), *sig, out, info);
  });
}

int32_t plan_a_program(void* self, const nw_program_text* program, const nw_sig* sig, void** out, nw_plan_info* info,
                       nw_error* error) {
  return in_slot(error, [&] {
    check_signature(*sig, kDLVulkan);
    const DeviceInUse device = device_of(self, sig->device.device_id);
    if (program->flags != 0)
      refuse(NW_UNSUPPORTED, -1, "%s: the program's flags are 0x%x; this backend knows none", sig->op, program->flags);
    const char* text = program->scheduled != nullptr ? program->scheduled : program->text;
    give_plan(plan_program(instance_of(self), text, *sig, out == nullptr), *sig, out, info);
  });
}

// Says nothing of a device, so that there is one for the process.
int32_t program_source(void*, const char* text, char* out, uint64_t size, uint64_t* needed, nw_error* error) {
  return in_slot(error, [&] {
    if (text == nullptr) refuse(NW_INVALID, -1, "'text' is NULL; expected the text of a program");
    give_text(source_of_program(text), out, size, needed);
  });
}
int32_t program_compiler(void*, char* out, uint64_t size, uint64_t* needed, nw_error* error) {
  return in_slot(error, [&] { give_text(compiler_description(), out, size, needed); });
}
constexpr nw_program_source kSource = {sizeof(nw_program_source), 0, nullptr, program_source, program_compiler};

void plan_free(void*, void* plan) { delete static_cast<Plan*>(plan); }

int32_t launch(void*, const void* handle, const nw_call* call, nw_error* error) {
  return in_slot(error, [&] {
    const auto& planned = *static_cast<const DevicePlan*>(static_cast<const Plan*>(handle));
    const DeviceInUse device(planned.device);
    require_live(*device, *call, planned.workspace_size);
    planned.launch(*call);
  });
}

const void* extension(void* self, const char* name) {
  const std::string_view asked = name;
  if (asked == "vulkan/1") return &instance_of(self).extension;
  if (asked == "vulkan_kernels/1") return &instance_of(self).kernels_extension;
  return asked == "program_source/1" ? &kSource : nullptr;
}

// ---- the table ----

const nw_plugin* table() {
  static const Declarations declarations(kOps);
  static const nw_plugin plugin = {
      .struct_size = sizeof(nw_plugin),
      .abi_major = NW_ABI_MAJOR,
      .name = kName,
      .version = NARROWS_BACKEND_VERSION,
      .device_type = kDLVulkan,
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
      .extension = extension,
      .plan_program = plan_a_program,
      .program_kernels = kProgramKernels,
  };
  return &plugin;
}

}  // namespace

}  // namespace narrows::vulkan

extern "C" const nw_plugin* narrows_plugin_query(uint32_t host_major, nw_error* error) {
  using namespace narrows::vulkan;
  return query(kName, host_major, error, table);
}
