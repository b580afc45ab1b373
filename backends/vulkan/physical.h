// SPDX-License-Identifier: Apache-2.0
// physical.h -- what a Vulkan device is and can do, read before it is opened.
#pragma once

#include <string>
#include <vector>

#include "vk.h"

namespace narrows::vulkan {

// What every shader may count on: more than Vulkan promises, less than any GPU of ten years has.
inline constexpr uint32_t kSharedMemory = 32 << 10;  // bytes of a work group
inline constexpr uint32_t kGroupThreads = 256;

// SPIR-V's capabilities CooperativeMatrixKHR, BFloat16TypeKHR and BFloat16CooperativeMatrixKHR, which older headers lack.
inline constexpr uint32_t kCooperativeMatrix = 6022, kBfloat16Type = 5116, kBfloat16Matrix = 5118;

// What the device multiplies by a unit of its own: matrices of m x k and k x n elements, each held by a subgroup, with sums in f32.
struct MatrixUnit {
  uint32_t m = 0, n = 0, k = 0;  // 0: there is none that this backend can use
  uint32_t subgroup = 0;         // threads
  bool has_narrow = false;       // m x k times k x 8, too
  explicit operator bool() const { return m != 0; }
};
// The largest of the listed kinds that the shaders can use, of elements of that type. Sums of f16 have to be able to become f16
// where they are.
MatrixUnit pick_matrix_unit(const std::vector<VkCooperativeMatrixPropertiesKHR>& kinds, uint32_t subgroup, VkComponentTypeKHR type);
// By the type of their elements.
struct MatrixUnits {
  MatrixUnit f16, bf16;
  explicit operator bool() const { return f16 || bf16; }
};

// A queue family that computes, one without graphics first, and how many of its queues are used; 0: there is none.
struct Queues {
  uint32_t family = 0, count = 0;
};
Queues pick_queues(const std::vector<VkQueueFamilyProperties>& families);

// Immutable once read.
struct PhysicalDevice {
  PhysicalDevice(VkInstance instance, VkPhysicalDevice device);  // of that instance

  VkPhysicalDevice handle;
  VkPhysicalDeviceProperties properties;
  VkPhysicalDeviceVulkan11Properties properties11;
  VkPhysicalDeviceVulkan12Properties properties12;
  VkPhysicalDeviceFeatures features;
  VkPhysicalDeviceVulkan11Features features11;
  VkPhysicalDeviceVulkan12Features features12;
  MatrixUnits matrix_units;
  VkPhysicalDeviceMemoryProperties memory;
  std::vector<VkExtensionProperties> extensions;
  uint64_t largest_buffer;         // bytes; more are not to be asked for
  uint64_t host_import_alignment;  // bytes, of pointers and sizes; 0: host memory cannot be imported
  uint32_t queue_family;           // one that computes, if there is one without graphics too: its submissions cost less
  uint32_t queue_count;
  // packHalf2x16() rounds to nearest even, and it and its inverse keep subnormal numbers: Vulkan cannot be asked, it is known of
  // drivers.
  bool converts_halves;
  // fma() of f32 rounds once where neither its terms nor its result are subnormal numbers: likewise.
  bool fma_rounds_once;
  // Makes one instruction of a product and a sum only in modules that do not ask for SignedZeroInfNanPreserve, and preserves all of
  // these there too: likewise known of drivers.
  bool fuses_unasked;

  bool has(const char* extension) const;
  bool computes(uint32_t family) const;                // there is such a queue family, and it does
  std::vector<const char*> wanted_extensions() const;  // those that this backend uses, as far as the device has them
  // A CPU that plays a device: its memory is the host's.
  bool is_cpu() const { return properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU; }
  // GPU and host share the memory.
  bool is_unified() const { return is_cpu() || properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU; }
  bool has_grid(int64_t columns, int64_t rows) const;  // of work groups: whether there may be one
  uint32_t row_shift() const;                          // of the longest rows that are a power of two: its logarithm
  uint64_t local_memory() const;                       // bytes of the device's own memory

  // What this backend cannot do without and the device lacks: a sentence; "": nothing.
  std::string unfit() const;
  // The feature that SPIR-V's capability stands for, if the device lacks it; nullptr: it has it.
  const char* lacks(uint32_t capability) const;
  // Whether a SPIR-V execution mode of float controls may stand in a module.
  bool has_float_control(uint32_t mode, uint32_t width) const;
};

}  // namespace narrows::vulkan
