// SPDX-License-Identifier: Apache-2.0
// extension.cpp -- the functions of narrows/vulkan.h.
#include "backend.h"

namespace narrows::vulkan {
namespace {

Instance& instance_of(void* self) { return *static_cast<Instance*>(self); }
DeviceInUse device_of(void* self, int32_t id) { return DeviceInUse(instance_of(self).device(id)); }
// Non-dispatchable handles are pointers on 64-bit machines.
template <class Handle>
uint64_t number(Handle handle) {
  return reinterpret_cast<uint64_t>(handle);
}
VkSemaphore semaphore_of(uint64_t number) {
  if (number == 0) refuse(NW_INVALID, -1, "vulkan: semaphore is 0; expected a VkSemaphore");
  return reinterpret_cast<VkSemaphore>(number);
}
template <class T>
void need(const T* pointer, const char* argument) {
  if (pointer == nullptr) refuse(NW_INVALID, -1, "vulkan: %s is NULL", argument);
}

// ---- devices ----

int32_t device(void* self, int32_t id, nw_vulkan_device* out, nw_error* error) {
  return guarded(error, [&] {
    need(out, "out");
    const DeviceInUse device = device_of(self, id);
    nw_vulkan_device info{};
    info.queue_family = device->physical.queue_family;
    info.instance = device->instance;
    info.physical_device = device->physical.handle;
    info.device = device->handle;
    info.queue = device->queue();
    write_sized(out, info);
  });
}

// What the device was made with, out of a chain of the application's.
void take_features(PhysicalDevice& physical, const void* chain) {
  physical.features = {};
  physical.features11 = {};
  physical.features12 = {};
  bool has_matrices = false, has_full_subgroups = false, has_bf16 = false;
  for (auto* link = static_cast<const VkBaseInStructure*>(chain); link != nullptr; link = link->pNext) {
    switch (static_cast<uint32_t>(link->sType)) {  // with types that older headers lack
      case VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2:
        physical.features = reinterpret_cast<const VkPhysicalDeviceFeatures2*>(link)->features;
        break;
      case VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES:
        physical.features11 = *reinterpret_cast<const VkPhysicalDeviceVulkan11Features*>(link);
        break;
      case VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES:
        physical.features12 = *reinterpret_cast<const VkPhysicalDeviceVulkan12Features*>(link);
        break;
      case VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR:
        has_matrices = reinterpret_cast<const VkPhysicalDeviceCooperativeMatrixFeaturesKHR*>(link)->cooperativeMatrix == VK_TRUE;
        break;
      case VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_BFLOAT16_FEATURES_KHR: {
        const auto& bf16 = *reinterpret_cast<const VkPhysicalDeviceShaderBfloat16FeaturesKHR*>(link);
        has_bf16 = bf16.shaderBFloat16Type == VK_TRUE && bf16.shaderBFloat16CooperativeMatrix == VK_TRUE;
        break;
      }
      case VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES:
        has_full_subgroups =
            reinterpret_cast<const VkPhysicalDeviceSubgroupSizeControlFeatures*>(link)->computeFullSubgroups == VK_TRUE;
        break;
      case VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES:
        has_full_subgroups = reinterpret_cast<const VkPhysicalDeviceVulkan13Features*>(link)->computeFullSubgroups == VK_TRUE;
        break;
      default: break;
    }
  }
  if (!has_matrices || !has_full_subgroups || physical.features12.vulkanMemoryModel == VK_FALSE) physical.matrix_units = {};
  if (physical.features12.shaderFloat16 == VK_FALSE) physical.matrix_units.f16 = {};
  if (!has_bf16) physical.matrix_units.bf16 = {};
}

int32_t adopt_device(void* self, const nw_vulkan_device* given, int32_t* id, nw_error* error) {
  return guarded(error, [&] {
    need(given, "device");
    need(id, "device_id");
    nw_vulkan_device device{};
    std::memcpy(&device, given, std::min<size_t>(given->struct_size, sizeof(device)));
    need(device.instance, "device->instance");
    need(device.physical_device, "device->physical_device");
    need(device.device, "device->device");
    need(device.queue, "device->queue");
    need(device.features, "device->features");
    if ((device.lock == nullptr) != (device.unlock == nullptr))
      refuse(NW_INVALID, -1, "vulkan: device->%s is NULL, and device->%s is not; expected both or neither",
             device.lock == nullptr ? "lock" : "unlock", device.lock == nullptr ? "unlock" : "lock");
    PhysicalDevice physical(static_cast<VkInstance>(device.instance), static_cast<VkPhysicalDevice>(device.physical_device));
    if (!physical.computes(device.queue_family))
      refuse(NW_INVALID, -1, "vulkan: device->queue_family is %u; expected the number of a family of %s that computes",
             device.queue_family, physical.properties.deviceName);
    take_features(physical, device.features);
    physical.queue_family = device.queue_family;
    physical.queue_count = 1;
    if (const std::string why = physical.unfit(); !why.empty())
      refuse(NW_UNSUPPORTED, -1, "vulkan: device->features: %s", why.c_str());
    *id = instance_of(self).add(physical, &device);
  });
}

int32_t release_device(void* self, int32_t id, nw_error* error) {
  return guarded(error, [&] {
    Device& device = instance_of(self).device(id);
    if (!device.is_adopted()) refuse(NW_INVALID, -1, "vulkan: device %d is the backend's own; expected an adopted one", id);
    device.release();
  });
}

// ---- memory ----

int32_t add_memory(void* self, int32_t id, uint64_t buffer, uint64_t address, uint64_t size, nw_error* error) {
  return guarded(error, [&] {
    if (buffer == 0 || address == 0 || size == 0)
      refuse(NW_INVALID, -1, "vulkan: %s is 0", buffer == 0 ? "buffer" : address == 0 ? "address" : "size");
    const DeviceInUse device = device_of(self, id);
    device->memory().add_foreign(reinterpret_cast<VkBuffer>(buffer), address, size);
  });
}

int32_t remove_memory(void* self, int32_t id, uint64_t address, nw_error* error) {
  return guarded(error, [&] {
    const DeviceInUse device = device_of(self, id);
    device->memory().remove_foreign(address);
  });
}

int32_t import_host(void* self, int32_t id, void* pointer, uint64_t size, void** data, nw_error* error) {
  return guarded(error, [&] {
    need(data, "data");
    const DeviceInUse device = device_of(self, id);
    *data = reinterpret_cast<void*>(device->memory().import_host(pointer, size));
  });
}

int32_t alloc_exportable(void* self, int32_t id, uint64_t size, void** data, int32_t* fd, uint64_t* allocation_size,
                         nw_error* error) {
  return guarded(error, [&] {
    need(data, "data");
    need(fd, "fd");
    need(allocation_size, "allocation_size");
    if (size == 0) refuse(NW_INVALID, -1, "vulkan: size is 0; expected a positive number of bytes");
    const DeviceInUse device = device_of(self, id);
    *data = reinterpret_cast<void*>(device->memory().allocate_exportable(size, fd, allocation_size));
  });
}

// ---- streams and semaphores ----

int32_t stream_point(void* self, int32_t id, void* stream, uint64_t* semaphore, uint64_t* value, nw_error* error) {
  return guarded(error, [&] {
    need(semaphore, "semaphore");
    need(value, "value");
    const DeviceInUse device = device_of(self, id);
    const Point point = device->stream(stream)->point();
    *semaphore = number(point.semaphore);
    *value = point.value;
  });
}

int32_t stream_signal(void* self, int32_t id, void* stream, uint64_t semaphore, uint64_t value, nw_error* error) {
  return guarded(error, [&] { device_of(self, id)->stream(stream)->signal(semaphore_of(semaphore), value); });
}

int32_t stream_wait(void* self, int32_t id, void* stream, uint64_t semaphore, uint64_t value, nw_error* error) {
  return guarded(error, [&] { device_of(self, id)->stream(stream)->wait_for(semaphore_of(semaphore), value); });
}

bool exports_timelines(VkPhysicalDevice device) {
  VkSemaphoreTypeCreateInfo type{.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO};
  type.semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE;
  VkPhysicalDeviceExternalSemaphoreInfo info{.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_SEMAPHORE_INFO};
  info.pNext = &type;
  info.handleType = VK_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD_BIT;
  VkExternalSemaphoreProperties properties{.sType = VK_STRUCTURE_TYPE_EXTERNAL_SEMAPHORE_PROPERTIES};
  vkGetPhysicalDeviceExternalSemaphoreProperties(device, &info, &properties);
  return (properties.externalSemaphoreFeatures & VK_EXTERNAL_SEMAPHORE_FEATURE_EXPORTABLE_BIT) != 0;
}

int32_t semaphore_create(void* self, int32_t id, uint64_t* semaphore, int32_t* fd, nw_error* error) {
  return guarded(error, [&] {
    need(semaphore, "semaphore");
    need(fd, "fd");
    const DeviceInUse device = device_of(self, id);
    if (device->vk.vkGetSemaphoreFdKHR == nullptr || !exports_timelines(device->physical.handle))
      refuse(NW_UNSUPPORTED, -1, "vulkan: %s cannot export timeline semaphores (VK_KHR_external_semaphore_fd)",
             device->physical.properties.deviceName);
    VkExportSemaphoreCreateInfo exported{.sType = VK_STRUCTURE_TYPE_EXPORT_SEMAPHORE_CREATE_INFO};
    exported.handleTypes = VK_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD_BIT;
    VkSemaphoreTypeCreateInfo type{.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO};
    type.semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE;
    type.pNext = &exported;
    VkSemaphoreCreateInfo info{.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO};
    info.pNext = &type;
    VkSemaphore made = VK_NULL_HANDLE;
    device->check(device->vk.vkCreateSemaphore(device->handle, &info, nullptr, &made), "creating a semaphore");
    VkSemaphoreGetFdInfoKHR wanted{.sType = VK_STRUCTURE_TYPE_SEMAPHORE_GET_FD_INFO_KHR};
    wanted.semaphore = made;
    wanted.handleType = VK_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD_BIT;
    int descriptor = -1;
    const VkResult result = device->vk.vkGetSemaphoreFdKHR(device->handle, &wanted, &descriptor);
    if (result < 0) device->vk.vkDestroySemaphore(device->handle, made, nullptr);
    device->check(result, "exporting a semaphore");
    *fd = descriptor;
    *semaphore = number(made);
  });
}

int32_t semaphore_destroy(void* self, int32_t id, uint64_t semaphore, nw_error* error) {
  return guarded(error, [&] {
    const DeviceInUse device = device_of(self, id);
    device->vk.vkDestroySemaphore(device->handle, semaphore_of(semaphore), nullptr);
  });
}

}  // namespace

nw_vulkan make_extension(Instance& instance) {
  return {.struct_size = sizeof(nw_vulkan),
          .flags = 0,
          .self = &instance,
          .device = device,
          .adopt_device = adopt_device,
          .release_device = release_device,
          .add_memory = add_memory,
          .remove_memory = remove_memory,
          .import_host = import_host,
          .alloc_exportable = alloc_exportable,
          .stream_point = stream_point,
          .stream_signal = stream_signal,
          .stream_wait = stream_wait,
          .semaphore_create = semaphore_create,
          .semaphore_destroy = semaphore_destroy};
}

}  // namespace narrows::vulkan
