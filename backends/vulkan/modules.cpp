// SPDX-License-Identifier: Apache-2.0
// modules.cpp -- see modules.h.
#include "modules.h"

#include "backend.h"
#include "spirv.h"

namespace narrows::vulkan {

const Shader& Modules::get(const uint32_t* words, uint64_t size) {
  std::vector<uint32_t> copy(words, words + size / sizeof(uint32_t));
  check_module(copy);
  const std::lock_guard lock(mutex_);
  const auto at = shaders_.try_emplace(std::move(copy), Shader{"of a plugin", nullptr, size}).first;
  at->second.words = at->first.data();
  handles_.insert(&at->second);
  return at->second;
}

bool Modules::has(const void* shader) const {
  const std::lock_guard lock(mutex_);
  return handles_.count(shader) != 0;
}

namespace {

constexpr uint32_t kMostConstants = 16;

Instance& instance_of(void* self) { return *static_cast<Instance*>(self); }

template <class T>
const T& needed(const T* pointer, const char* argument) {
  if (pointer == nullptr) refuse(NW_INVALID, -1, "vulkan: %s is NULL", argument);
  return *pointer;
}

int32_t module(void* self, const uint32_t* words, uint64_t size, const void** out, nw_error* error) {
  return guarded(error, [&] {
    needed(words, "words");
    needed(out, "out");
    if (size % sizeof(uint32_t) != 0)
      refuse(NW_INVALID, -1, "vulkan: size is %llu; expected a multiple of 4", static_cast<unsigned long long>(size));
    *out = &instance_of(self).modules.get(words, size);
  });
}

void check_dispatch(const Instance& instance, const nw_vulkan_dispatch& d, uint32_t i) {
  if (d.struct_size < sizeof d)
    refuse(NW_INVALID, -1, "vulkan: dispatches[%u]->struct_size is %u; expected %zu or more", i, d.struct_size, sizeof d);
  if ((d.flags & ~uint32_t{NW_VULKAN_UNORDERED}) != 0 || d.reserved != 0)
    refuse(NW_UNSUPPORTED, -1, "vulkan: dispatches[%u]: flags are 0x%x, reserved is %u; this backend knows 0x%x and 0", i, d.flags,
           d.reserved, NW_VULKAN_UNORDERED);
  if (!instance.modules.has(d.module))
    refuse(NW_INVALID, -1, "vulkan: dispatches[%u]->module is %p; expected one that this instance gave", i, d.module);
  if (d.num_constants > kMostConstants)
    refuse(NW_INVALID, -1, "vulkan: dispatches[%u]->num_constants is %u; expected at most %u", i, d.num_constants, kMostConstants);
  if (d.push_size % 4 != 0 || d.push_size > kPushBytes)
    refuse(NW_INVALID, -1, "vulkan: dispatches[%u]->push_size is %u; expected a multiple of 4 up to %u", i, d.push_size,
           kPushBytes);
  if ((d.constants == nullptr && d.num_constants != 0) || (d.push == nullptr && d.push_size != 0))
    refuse(NW_INVALID, -1, "vulkan: dispatches[%u]->%s is NULL", i,
           d.constants == nullptr && d.num_constants != 0 ? "constants" : "push");
}

int32_t launch(void* self, const nw_call* given, const nw_vulkan_dispatch* const* dispatches, uint32_t count, nw_error* error) {
  return guarded(error, [&] {
    const nw_call& call = needed(given, "call");
    const Instance& instance = instance_of(self);
    if (call.device.device_type != kDLVulkan)
      refuse(NW_INVALID, -1, "vulkan: call->device is of type %d; expected %d", static_cast<int>(call.device.device_type),
             static_cast<int>(kDLVulkan));
    if (count != 0) needed(dispatches, "dispatches");
    for (uint32_t i = 0; i < count; ++i) check_dispatch(instance, needed(dispatches[i], "a dispatch"), i);
    const DeviceInUse device(instance.device(call.device.device_id));
    require_live(*device, call, call.workspace_size);
    std::vector<Kernel> kernels;
    for (uint32_t i = 0; i < count; ++i) {
      const nw_vulkan_dispatch& d = *dispatches[i];
      const std::vector<uint32_t> constants(d.constants, d.constants + d.num_constants);
      kernels.push_back(device->kernels().get(*static_cast<const Shader*>(d.module), constants));
    }
    device->stream(call.stream)->record([&](Recorder& recorder) {
      for (uint32_t i = 0; i < count; ++i) {
        const nw_vulkan_dispatch& d = *dispatches[i];
        recorder.dispatch_grid(kernels[i], d.push, d.push_size, d.groups, (d.flags & NW_VULKAN_UNORDERED) == 0);
      }
    });
  });
}

}  // namespace

nw_vulkan_kernels make_kernels_extension(Instance& instance, const nw_plugin& table) {
  return {.struct_size = sizeof(nw_vulkan_kernels),
          .flags = 0,
          .self = &instance,
          .plugin = &table,
          .module = module,
          .launch = launch};
}

}  // namespace narrows::vulkan
