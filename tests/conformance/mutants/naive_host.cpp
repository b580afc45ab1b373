// SPDX-License-Identifier: Apache-2.0
// naive_host.cpp -- the host as a device of the naive plugin: its memory, and its one stream, NULL. See naive.h.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "naive.h"

namespace naive {
namespace {

void check_device(int32_t device_id) {
  if (device_id != 0) throw Refusal{NW_INVALID, -1, "naive: device " + std::to_string(device_id) + "; expected 0, the only one"};
}
void check_stream(const void* stream) {
  if (stream != nullptr) throw Refusal{NW_INVALID, -1, "naive: a stream was given; expected NULL on the CPU"};
}

int32_t create(const nw_host* /*host*/, void** self, nw_error* /*error*/) {
  *self = nullptr;
  return NW_OK;
}
void destroy(void* /*self*/) {}

int32_t device_count(void* /*self*/, int32_t* count, nw_error* /*error*/) {
  *count = 1;
  return NW_OK;
}

// Of our own naive_plugin.cpp alone, which gives a whole struct.
int32_t device_info(void* /*self*/, int32_t device_id, nw_device_info* out, nw_error* error) {
  return guarded(error, [&] {
    check_device(device_id);
    std::snprintf(out->name, sizeof out->name, "host memory");
    std::snprintf(out->arch, sizeof out->arch, "scalar loops");
    out->total_memory = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  });
}

int32_t alloc(void* /*self*/, int32_t device_id, uint64_t size, void* stream, void** data, nw_error* error) {
  return guarded(error, [&] {
    check_device(device_id);
    check_stream(stream);
    const bool too_large = size > PTRDIFF_MAX - NW_WORKSPACE_ALIGN;
    const uint64_t rounded = (size + NW_WORKSPACE_ALIGN - 1) / NW_WORKSPACE_ALIGN * NW_WORKSPACE_ALIGN;
    void* const memory = size == 0 || too_large ? nullptr : std::aligned_alloc(NW_WORKSPACE_ALIGN, rounded);
    if (size != 0 && memory == nullptr)
      throw Refusal{NW_OUT_OF_MEMORY, -1, "naive: no memory for " + std::to_string(size) + " bytes"};
    *data = memory;
  });
}

int32_t free_memory(void* /*self*/, int32_t device_id, void* data, void* stream, nw_error* error) {
  return guarded(error, [&] {
    check_device(device_id);
    check_stream(stream);
    std::free(data);
  });
}

int32_t copy(void* /*self*/, DLDevice to, void* dst, DLDevice from, const void* src, uint64_t size, void* stream, nw_error* error) {
  return guarded(error, [&] {
    check_stream(stream);
    if (to.device_type != kDLCPU || from.device_type != kDLCPU)
      throw Refusal{NW_UNSUPPORTED, -1, "naive: copies from CPU memory to CPU memory only"};
    if (size != 0) std::memmove(dst, src, size);
  });
}

int32_t stream_create(void* /*self*/, int32_t device_id, void** stream, nw_error* error) {
  return guarded(error, [&] {
    check_device(device_id);
    *stream = nullptr;
  });
}
int32_t stream_check(void* /*self*/, int32_t device_id, void* stream, nw_error* error) {
  return guarded(error, [&] {
    check_device(device_id);
    check_stream(stream);
  });
}
int32_t stream_wait(void* self, int32_t device_id, void* waiter, void* signaler, nw_error* error) {
  return stream_check(self, device_id, waiter == nullptr ? signaler : waiter, error);
}

}  // namespace

const nw_plugin host_plugin = {
    .struct_size = sizeof(nw_plugin),
    .abi_major = NW_ABI_MAJOR,
    .name = "host",
    .version = "1.0",
    .device_type = kDLCPU,
    .pinned_type = 0,
    .managed_type = 0,
    .num_ops = 0,
    .ops = nullptr,
    .create = create,
    .destroy = destroy,
    .device_count = device_count,
    .device_info = device_info,
    .alloc = alloc,
    .free = free_memory,
    .copy = copy,
    .stream_create = stream_create,
    .stream_destroy = stream_check,
    .stream_sync = stream_check,
    .stream_wait = stream_wait,
    .infer = nullptr,
    .plan = nullptr,
    .plan_free = nullptr,
    .launch = nullptr,
    .extension = nullptr,
    .plan_program = nullptr,
    .program_kernels = nullptr,
};

}  // namespace naive
