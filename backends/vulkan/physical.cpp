// SPDX-License-Identifier: Apache-2.0
// physical.cpp -- see physical.h.
#include "physical.h"

#include <algorithm>
#include <bit>

#define SPV_ENABLE_UTILITY_CODE
#include <spirv/unified1/spirv.h>

namespace narrows::vulkan {
namespace {

std::vector<VkQueueFamilyProperties> queue_families(VkPhysicalDevice device) {
  uint32_t count = 0;
  vkGetPhysicalDeviceQueueFamilyProperties(device, &count, nullptr);
  std::vector<VkQueueFamilyProperties> families(count);
  vkGetPhysicalDeviceQueueFamilyProperties(device, &count, families.data());
  return families;
}

// The device's kinds of matrices. The instance is the device's: a loader that does not know the function finds it for one at a
// time.
std::vector<VkCooperativeMatrixPropertiesKHR> matrix_kinds(VkInstance instance, VkPhysicalDevice device) {
  const auto list = reinterpret_cast<PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR>(
      vkGetInstanceProcAddr(instance, "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR"));
  if (list == nullptr) return {};
  uint32_t count = 0;
  check(list(device, &count, nullptr), "counting kinds of matrices");
  std::vector<VkCooperativeMatrixPropertiesKHR> kinds(count, {VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR});
  check(list(device, &count, kinds.data()), "listing kinds of matrices");
  return kinds;
}

// Subgroups of one size alone: how many make up a work group is known then.
MatrixUnits find_matrix_units(VkInstance instance, const PhysicalDevice& d) {
  if (!d.has(VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME) || !d.has(VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME)) return {};
  VkPhysicalDeviceShaderBfloat16FeaturesKHR bf16{.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_BFLOAT16_FEATURES_KHR};
  VkPhysicalDeviceSubgroupSizeControlFeatures full{.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES};
  if (d.has(VK_KHR_SHADER_BFLOAT16_EXTENSION_NAME)) full.pNext = &bf16;
  VkPhysicalDeviceCooperativeMatrixFeaturesKHR feature{.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR,
                                                       .pNext = &full};
  VkPhysicalDeviceFeatures2 features{.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2};
  features.pNext = &feature;
  vkGetPhysicalDeviceFeatures2(d.handle, &features);
  VkPhysicalDeviceSubgroupSizeControlProperties subgroup{.sType =
                                                             VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_PROPERTIES};
  VkPhysicalDeviceProperties2 properties{.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2};
  properties.pNext = &subgroup;
  vkGetPhysicalDeviceProperties2(d.handle, &properties);
  constexpr uint32_t kSubgroups = 8;  // of all tiles but the largest
  const uint32_t size = subgroup.maxSubgroupSize;
  if (d.features12.vulkanMemoryModel == VK_FALSE) return {};  // what the shaders need
  if (feature.cooperativeMatrix == VK_FALSE || full.computeFullSubgroups == VK_FALSE || subgroup.minSubgroupSize != size ||
      kSubgroups * size > kGroupThreads)
    return {};
  const std::vector<VkCooperativeMatrixPropertiesKHR> kinds = matrix_kinds(instance, d.handle);
  MatrixUnits units;
  if (d.features12.shaderFloat16 == VK_TRUE) units.f16 = pick_matrix_unit(kinds, size, VK_COMPONENT_TYPE_FLOAT16_KHR);
  if (bf16.shaderBFloat16Type == VK_TRUE && bf16.shaderBFloat16CooperativeMatrix == VK_TRUE)
    units.bf16 = pick_matrix_unit(kinds, size, VK_COMPONENT_TYPE_BFLOAT16_KHR);
  return units;
}

}  // namespace

Queues pick_queues(const std::vector<VkQueueFamilyProperties>& families) {
  constexpr uint32_t kMost = 8;
  for (const VkQueueFlags unwanted : {VkQueueFlags{VK_QUEUE_GRAPHICS_BIT}, VkQueueFlags{0}})
    for (uint32_t i = 0; i < families.size(); ++i)
      if ((families[i].queueFlags & VK_QUEUE_COMPUTE_BIT) != 0 && (families[i].queueFlags & unwanted) == 0)
        return {i, std::min(families[i].queueCount, kMost)};
  return {};
}

MatrixUnit pick_matrix_unit(const std::vector<VkCooperativeMatrixPropertiesKHR>& kinds, uint32_t subgroup,
                            VkComponentTypeKHR type) {
  MatrixUnit best;
  std::vector<MatrixUnit> all;
  for (const auto& kind : kinds) {
    const bool fits = kind.AType == type && kind.BType == type && kind.CType == VK_COMPONENT_TYPE_FLOAT32_KHR &&
                      kind.ResultType == kind.CType && kind.scope == VK_SCOPE_SUBGROUP_KHR &&
                      kind.saturatingAccumulation == VK_FALSE;
    const auto is_whole = [](uint32_t size) { return size == 8 || size == 16; };
    const bool halves_sums = std::any_of(kinds.begin(), kinds.end(), [&](const auto& other) {
      return other.MSize == kind.MSize && other.NSize == kind.NSize && other.ResultType == VK_COMPONENT_TYPE_FLOAT16_KHR &&
             other.scope == kind.scope;
    });
    const bool becomes_elements = type != VK_COMPONENT_TYPE_FLOAT16_KHR || halves_sums;
    const bool shares_loads = kind.MSize * 2 % subgroup == 0;  // 16 bytes of weights each, of the smallest tile's
    // A subgroup is whole rows of a matrix, and a matrix whole subgroups of elements.
    const bool is_rows = subgroup % kind.NSize == 0 && kind.MSize * kind.NSize % subgroup == 0;
    if (!fits || !becomes_elements || !shares_loads || !is_rows || !is_whole(kind.MSize) || !is_whole(kind.NSize) ||
        !is_whole(kind.KSize))
      continue;
    all.push_back({kind.MSize, kind.NSize, kind.KSize, subgroup});
    if (kind.MSize * kind.NSize * kind.KSize > best.m * best.n * best.k) best = all.back();
  }
  best.has_narrow = std::any_of(all.begin(), all.end(),
                                [&](const MatrixUnit& unit) { return unit.m == best.m && unit.n == 8 && unit.k == best.k; });
  return best;
}

PhysicalDevice::PhysicalDevice(VkInstance instance, VkPhysicalDevice device) : handle(device) {
  vkGetPhysicalDeviceProperties(handle, &properties);
  converts_halves = fma_rounds_once = fuses_unasked = false;
  properties11 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES};
  properties12 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_PROPERTIES};
  features11 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES};
  features12 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES};
  vkGetPhysicalDeviceMemoryProperties(handle, &memory);
  vkGetPhysicalDeviceFeatures(handle, &features);
  queue_family = queue_count = 0;
  host_import_alignment = 0;
  largest_buffer = UINT64_MAX;
  if (properties.apiVersion < VK_API_VERSION_1_2) return;  // the chains below are 1.2's; unfit() says it
  VkPhysicalDeviceProperties2 all_properties{.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2};
  all_properties.pNext = &properties11;
  properties11.pNext = &properties12;
  vkGetPhysicalDeviceProperties2(handle, &all_properties);
  converts_halves = fma_rounds_once = fuses_unasked = properties12.driverID == VK_DRIVER_ID_NVIDIA_PROPRIETARY;
  VkPhysicalDeviceFeatures2 all_features{.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2};
  all_features.pNext = &features11;
  features11.pNext = &features12;
  vkGetPhysicalDeviceFeatures2(handle, &all_features);
  properties11.pNext = features11.pNext = nullptr;  // this struct is copied
  uint32_t count = 0;
  check(vkEnumerateDeviceExtensionProperties(handle, nullptr, &count, nullptr), "counting a device's extensions");
  extensions.resize(count);
  check(vkEnumerateDeviceExtensionProperties(handle, nullptr, &count, extensions.data()), "listing a device's extensions");
  const Queues queues = pick_queues(queue_families(handle));
  queue_family = queues.family, queue_count = queues.count;
  matrix_units = find_matrix_units(instance, *this);
  if (has(VK_KHR_MAINTENANCE_4_EXTENSION_NAME)) {
    VkPhysicalDeviceMaintenance4Properties limits{.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_4_PROPERTIES};
    all_properties.pNext = &limits;
    vkGetPhysicalDeviceProperties2(handle, &all_properties);
    largest_buffer = limits.maxBufferSize;
  }
  if (!has(VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME)) return;
  VkPhysicalDeviceExternalMemoryHostPropertiesEXT host{.sType =
                                                           VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_MEMORY_HOST_PROPERTIES_EXT};
  all_properties.pNext = &host;
  vkGetPhysicalDeviceProperties2(handle, &all_properties);
  host_import_alignment = host.minImportedHostPointerAlignment;
}

bool PhysicalDevice::has(const char* extension) const {
  return std::any_of(extensions.begin(), extensions.end(),
                     [&](const VkExtensionProperties& e) { return std::strcmp(e.extensionName, extension) == 0; });
}

bool PhysicalDevice::computes(uint32_t family) const {
  const std::vector<VkQueueFamilyProperties> families = queue_families(handle);
  return family < families.size() && (families[family].queueFlags & VK_QUEUE_COMPUTE_BIT) != 0;
}

std::vector<const char*> PhysicalDevice::wanted_extensions() const {
  std::vector<const char*> wanted;
  for (const char* name : {VK_KHR_EXTERNAL_MEMORY_FD_EXTENSION_NAME, VK_KHR_EXTERNAL_SEMAPHORE_FD_EXTENSION_NAME,
                           VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME})
    if (has(name)) wanted.push_back(name);
  if (matrix_units)
    wanted.insert(wanted.end(), {VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME, VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME});
  if (matrix_units.bf16) wanted.push_back(VK_KHR_SHADER_BFLOAT16_EXTENSION_NAME);
  return wanted;
}

bool PhysicalDevice::has_grid(int64_t columns, int64_t rows) const {
  const uint32_t* const most = properties.limits.maxComputeWorkGroupCount;
  return columns <= most[0] && rows <= most[1];
}

uint32_t PhysicalDevice::row_shift() const {
  return static_cast<uint32_t>(std::bit_width(properties.limits.maxComputeWorkGroupCount[0])) - 1;
}

uint64_t PhysicalDevice::local_memory() const {
  uint64_t most = 0;
  for (uint32_t i = 0; i < memory.memoryHeapCount; ++i)
    if ((memory.memoryHeaps[i].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT) != 0) most = std::max(most, memory.memoryHeaps[i].size);
  return most;
}

std::string PhysicalDevice::unfit() const {
  const std::string device = properties.deviceName;
  if (properties.apiVersion < VK_API_VERSION_1_2)
    return device + " has Vulkan 1." + std::to_string(VK_API_VERSION_MINOR(properties.apiVersion)) + "; expected 1.2 or newer";
  if (queue_count == 0) return device + " has no queue that computes";
  const VkPhysicalDeviceLimits& limits = properties.limits;
  const uint32_t threads = std::min(limits.maxComputeWorkGroupInvocations, limits.maxComputeWorkGroupSize[0]);
  if (limits.maxComputeSharedMemorySize < kSharedMemory || threads < kGroupThreads)
    return device + " runs work groups of " + std::to_string(threads) + " threads with " +
           std::to_string(limits.maxComputeSharedMemorySize) + " bytes of shared memory; expected " +
           std::to_string(kGroupThreads) + " and " + std::to_string(kSharedMemory);
  const struct {
    VkBool32 has;
    const char* name;
  } needs[] = {{features12.bufferDeviceAddress, "bufferDeviceAddress"},
               {features12.timelineSemaphore, "timelineSemaphore"},
               {features.shaderInt64, "shaderInt64"},
               {features11.storageBuffer16BitAccess, "storageBuffer16BitAccess"},
               {features12.storageBuffer8BitAccess, "storageBuffer8BitAccess"},
               {features12.shaderInt8, "shaderInt8"},
               {features.shaderInt16, "shaderInt16"}};
  for (const auto& need : needs)
    if (need.has == VK_FALSE) return device + " lacks the feature " + need.name;
  return "";
}

const char* PhysicalDevice::lacks(uint32_t capability) const {
  const auto unless = [](VkBool32 has, const char* feature) { return has == VK_TRUE ? nullptr : feature; };
  const auto subgroup = [&](VkSubgroupFeatureFlags operation, const char* feature) {
    return unless((properties11.subgroupSupportedOperations & operation) != 0, feature);
  };
  switch (capability) {
    case SpvCapabilityShader:
    case SpvCapabilityMatrix:
    case SpvCapabilityInt64:
    case SpvCapabilityInt16:
    case SpvCapabilityInt8:
    case SpvCapabilityStorageBuffer16BitAccess:
    case SpvCapabilityStorageBuffer8BitAccess:
    case SpvCapabilityPhysicalStorageBufferAddresses: return nullptr;  // unfit() asked
    case SpvCapabilityFloat64: return unless(features.shaderFloat64, "shaderFloat64");
    case SpvCapabilityFloat16: return unless(features12.shaderFloat16, "shaderFloat16");
    case SpvCapabilityUniformAndStorageBuffer16BitAccess:
      return unless(features11.uniformAndStorageBuffer16BitAccess, "uniformAndStorageBuffer16BitAccess");
    case SpvCapabilityUniformAndStorageBuffer8BitAccess:
      return unless(features12.uniformAndStorageBuffer8BitAccess, "uniformAndStorageBuffer8BitAccess");
    case SpvCapabilityVulkanMemoryModel: return unless(features12.vulkanMemoryModel, "vulkanMemoryModel");
    case kCooperativeMatrix: return unless(matrix_units ? VK_TRUE : VK_FALSE, "matrices of f16 or bf16 with sums in f32");
    case kBfloat16Type:
    case kBfloat16Matrix: return unless(matrix_units.bf16 ? VK_TRUE : VK_FALSE, "matrices of bf16 with sums in f32");
    case SpvCapabilityGroupNonUniform: return subgroup(VK_SUBGROUP_FEATURE_BASIC_BIT, "subgroup operations");
    case SpvCapabilityGroupNonUniformArithmetic: return subgroup(VK_SUBGROUP_FEATURE_ARITHMETIC_BIT, "subgroup arithmetic");
    case SpvCapabilityGroupNonUniformShuffle: return subgroup(VK_SUBGROUP_FEATURE_SHUFFLE_BIT, "subgroup shuffles");
    case SpvCapabilityDenormPreserve:
    case SpvCapabilityDenormFlushToZero:
    case SpvCapabilitySignedZeroInfNanPreserve:
    case SpvCapabilityRoundingModeRTE: return nullptr;  // has_float_control()
    default: return "a SPIR-V capability that this backend does not know";
  }
}

bool PhysicalDevice::has_float_control(uint32_t mode, uint32_t width) const {
  const auto& p = properties12;
  const auto by_width = [&](VkBool32 f16, VkBool32 f32, VkBool32 f64) {
    return (width == 16 ? f16 : width == 32 ? f32 : f64) == VK_TRUE;
  };
  switch (mode) {
    case SpvExecutionModeDenormPreserve:
      return by_width(p.shaderDenormPreserveFloat16, p.shaderDenormPreserveFloat32, p.shaderDenormPreserveFloat64);
    case SpvExecutionModeSignedZeroInfNanPreserve:
      return by_width(p.shaderSignedZeroInfNanPreserveFloat16, p.shaderSignedZeroInfNanPreserveFloat32,
                      p.shaderSignedZeroInfNanPreserveFloat64);
    case SpvExecutionModeRoundingModeRTE:
      return by_width(p.shaderRoundingModeRTEFloat16, p.shaderRoundingModeRTEFloat32, p.shaderRoundingModeRTEFloat64);
    default: return false;
  }
}

}  // namespace narrows::vulkan
