// SPDX-License-Identifier: Apache-2.0
// vk.h -- Vulkan's functions, loaded at run time by volk: nothing of Vulkan is needed to load the plugin.
#pragma once

#include <volk.h>

#include "common/integers.h"
#include "common/plugin.h"

namespace narrows::vulkan {

using namespace common;

const char* name_of(VkResult result);
[[noreturn]] void fail_with(VkResult result, const char* doing);

// Throws Refusal for what is an error: out of memory, device lost, failed. `doing`: "creating a buffer".
inline void check(VkResult result, const char* doing) {
  if (result < 0) fail_with(result, doing);
}

// Vulkan's own names keep their form.
// NOLINTBEGIN(readability-identifier-naming)

// Of VK_KHR_cooperative_matrix, which headers older than 1.3.255 lack: these are their names and numbers there.
#ifndef VK_KHR_cooperative_matrix
#define VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME "VK_KHR_cooperative_matrix"
constexpr auto VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR = static_cast<VkStructureType>(1000506000);
constexpr auto VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR = static_cast<VkStructureType>(1000506001);
enum VkComponentTypeKHR {
  VK_COMPONENT_TYPE_FLOAT16_KHR = 0,
  VK_COMPONENT_TYPE_FLOAT32_KHR = 1,
  VK_COMPONENT_TYPE_MAX_ENUM_KHR = 0x7fffffff
};
enum VkScopeKHR { VK_SCOPE_SUBGROUP_KHR = 3, VK_SCOPE_MAX_ENUM_KHR = 0x7fffffff };
struct VkPhysicalDeviceCooperativeMatrixFeaturesKHR {
  VkStructureType sType;
  void* pNext;
  VkBool32 cooperativeMatrix, cooperativeMatrixRobustBufferAccess;
};
struct VkCooperativeMatrixPropertiesKHR {
  VkStructureType sType;
  void* pNext;
  uint32_t MSize, NSize, KSize;
  VkComponentTypeKHR AType, BType, CType, ResultType;
  VkBool32 saturatingAccumulation;
  VkScopeKHR scope;
};
using PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR = VkResult(VKAPI_PTR*)(VkPhysicalDevice, uint32_t*,
                                                                                   VkCooperativeMatrixPropertiesKHR*);
#endif

// Of VK_KHR_shader_bfloat16, which older headers lack: likewise.
#ifndef VK_KHR_shader_bfloat16
#define VK_KHR_SHADER_BFLOAT16_EXTENSION_NAME "VK_KHR_shader_bfloat16"
constexpr auto VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_BFLOAT16_FEATURES_KHR = static_cast<VkStructureType>(1000141000);
constexpr auto VK_COMPONENT_TYPE_BFLOAT16_KHR = static_cast<VkComponentTypeKHR>(1000141000);
struct VkPhysicalDeviceShaderBfloat16FeaturesKHR {
  VkStructureType sType;
  void* pNext;
  VkBool32 shaderBFloat16Type, shaderBFloat16DotProduct, shaderBFloat16CooperativeMatrix;
};
#endif
// NOLINTEND(readability-identifier-naming)

inline uint64_t round_up(uint64_t n, uint64_t unit) { return (n + unit - 1) / unit * unit; }

}  // namespace narrows::vulkan
