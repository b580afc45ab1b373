/* SPDX-License-Identifier: Apache-2.0 */
/* no_instance.c -- a libvulkan.so.1 that has no memory for an instance. */
#include <string.h>
#define VK_NO_PROTOTYPES
#include <vulkan/vulkan.h>

static VKAPI_ATTR VkResult VKAPI_CALL version(uint32_t* out) {
  *out = VK_API_VERSION_1_2;
  return VK_SUCCESS;
}

static VKAPI_ATTR VkResult VKAPI_CALL create(const VkInstanceCreateInfo* info, const VkAllocationCallbacks* callbacks,
                                             VkInstance* instance) {
  (void)info, (void)callbacks, (void)instance;
  return VK_ERROR_OUT_OF_HOST_MEMORY;
}

VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL vkGetInstanceProcAddr(VkInstance instance, const char* name) {
  (void)instance;
  if (strcmp(name, "vkEnumerateInstanceVersion") == 0) return (PFN_vkVoidFunction)version;
  if (strcmp(name, "vkCreateInstance") == 0) return (PFN_vkVoidFunction)create;
  return NULL;
}
