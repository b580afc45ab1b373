// SPDX-License-Identifier: Apache-2.0
// loader.cpp -- see loader.h. volk is compiled in here: its function pointers are this plugin's own.
#define VOLK_IMPLEMENTATION
#include "loader.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <new>
#include <string_view>

namespace narrows::vulkan {
namespace {

VkPhysicalDeviceType type_of(VkPhysicalDevice device) {
  VkPhysicalDeviceProperties properties;
  vkGetPhysicalDeviceProperties(device, &properties);
  return properties.deviceType;
}

// The one that NARROWS_VULKAN_DEVICE names.
VkPhysicalDevice chosen(const std::vector<VkPhysicalDevice>& devices, const char* text) {
  char* end = nullptr;
  const long index = std::strtol(text, &end, 10);
  if (end == text || *end != '\0' || index < 0 || static_cast<size_t>(index) >= devices.size())
    refuse(NW_UNAVAILABLE, -1, "NARROWS_VULKAN_DEVICE is '%s'; expected an index below %zu, the number of Vulkan devices", text,
           devices.size());
  return devices[static_cast<size_t>(index)];
}

// Drivers stay once they are loaded. libvulkan would unload them with the last instance, and NVIDIA's can be loaded some thirty
// times by a process: the C library does not get all of its thread-local memory back.
void keep_drivers() {
  std::vector<std::string> names;
  const auto add_name = [](dl_phdr_info* object, size_t, void* to) {
    try {
      if (*object->dlpi_name != '\0') static_cast<std::vector<std::string>*>(to)->emplace_back(object->dlpi_name);
    } catch (const std::bad_alloc&) {  // these functions are C's
      return 1;
    }
    return 0;
  };
  dl_iterate_phdr(add_name, &names);
  for (const std::string& name : names) {
    void* const library = dlopen(name.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    if (library != nullptr && dlsym(library, "vk_icdGetInstanceProcAddr") == nullptr) dlclose(library);  // a driver stays open
  }
}

// What newer layers say where `gpu` has them change their settings, or a limit that the device is asked for.
bool is_of_itself(const char* id) {
  const std::string_view name = id != nullptr ? id : "";
  return name == "VALIDATION-SETTINGS" || name == "WARNING-Setting-Limit-Adjusted";
}

}  // namespace

int rank_of(VkPhysicalDeviceType type) {
  switch (type) {
    case VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU: return 0;
    case VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU: return 1;
    case VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU: return 2;
    default: return 3;
  }
}

std::shared_ptr<Loader> Loader::get() {
  // Of volk's pointers too, which one that goes still uses. It may go in here, where it cannot be opened.
  static std::recursive_mutex mutex;
  static std::weak_ptr<Loader> last;
  const std::lock_guard lock(mutex);
  std::shared_ptr<Loader> loader = last.lock();
  if (loader != nullptr) return loader;
  loader.reset(new Loader, [](const Loader* gone) {
    const std::lock_guard end(mutex);
    delete gone;
  });
  loader->open();
  last = loader;
  return loader;
}

void Loader::open() {
  if (volkInitialize() != VK_SUCCESS)
    refuse(NW_UNAVAILABLE, -1, "vulkan: there is no libvulkan.so.1; install the Vulkan loader (Debian: libvulkan1) and a driver");
  if (volkGetInstanceVersion() < VK_API_VERSION_1_2)
    refuse(NW_UNAVAILABLE, -1, "vulkan: the loader is of Vulkan 1.%u; expected 1.2 or newer",
           VK_API_VERSION_MINOR(volkGetInstanceVersion()));
  const char* const validation = std::getenv("NARROWS_VULKAN_VALIDATION");
  create(validation != nullptr ? validation : "");
  volkLoadInstanceOnly(instance_);
  if (validation != nullptr && *validation != '\0') listen();
}

void Loader::create(const char* validation) {
  const std::string_view mode = validation;
  if (!mode.empty() && mode != "api" && mode != "gpu")
    refuse(NW_UNAVAILABLE, -1, "NARROWS_VULKAN_VALIDATION is '%s'; expected 'api' or 'gpu'", validation);
  VkApplicationInfo application{.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO};
  application.pEngineName = "Narrows";
  application.apiVersion = VK_API_VERSION_1_2;
  VkInstanceCreateInfo info{.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO};
  info.pApplicationInfo = &application;
  const char* const layer = "VK_LAYER_KHRONOS_validation";
  const char* const extensions[] = {VK_EXT_DEBUG_UTILS_EXTENSION_NAME, VK_EXT_VALIDATION_FEATURES_EXTENSION_NAME};
  const VkValidationFeatureEnableEXT gpu[] = {VK_VALIDATION_FEATURE_ENABLE_GPU_ASSISTED_EXT};
  VkValidationFeaturesEXT features{.sType = VK_STRUCTURE_TYPE_VALIDATION_FEATURES_EXT};
  features.enabledValidationFeatureCount = mode == "gpu" ? 1 : 0;
  features.pEnabledValidationFeatures = gpu;
  const VkDebugUtilsMessengerCreateInfoEXT at_the_end = listener();  // and at the beginning, of the instance itself
  if (!mode.empty()) {
    features.pNext = &at_the_end;
    info.pNext = &features;
    info.enabledLayerCount = 1;
    info.ppEnabledLayerNames = &layer;
    info.enabledExtensionCount = static_cast<uint32_t>(std::size(extensions));
    info.ppEnabledExtensionNames = extensions;
  }
  const VkResult result = vkCreateInstance(&info, nullptr, &instance_);
  if (result == VK_ERROR_INCOMPATIBLE_DRIVER)
    refuse(NW_UNAVAILABLE, -1, "vulkan: the loader found no driver; install the GPU's, or Mesa's (Debian: mesa-vulkan-drivers)");
  if (result == VK_ERROR_LAYER_NOT_PRESENT || result == VK_ERROR_EXTENSION_NOT_PRESENT)
    refuse(NW_UNAVAILABLE, -1, "NARROWS_VULKAN_VALIDATION is '%s', and the layer is not there; install it (Debian: %s)", validation,
           "vulkan-validationlayers");
  check(result, "creating an instance");
  keep_drivers();
}

VkDebugUtilsMessengerCreateInfoEXT Loader::listener() {
  VkDebugUtilsMessengerCreateInfoEXT info{.sType = VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT};
  info.messageSeverity = VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT | VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT;
  info.messageType = VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT;
  info.pfnUserCallback = [](VkDebugUtilsMessageSeverityFlagBitsEXT, VkDebugUtilsMessageTypeFlagsEXT,
                            const VkDebugUtilsMessengerCallbackDataEXT* said, void* self) -> VkBool32 {
    if (!is_of_itself(said->pMessageIdName)) static_cast<Loader*>(self)->add_message(said->pMessage);
    return VK_FALSE;
  };
  info.pUserData = this;
  return info;
}

void Loader::listen() {
  const VkDebugUtilsMessengerCreateInfoEXT info = listener();
  check(vkCreateDebugUtilsMessengerEXT(instance_, &info, nullptr, &messenger_), "listening to the validation layer");
}

Loader::~Loader() {
  if (messenger_ != VK_NULL_HANDLE) vkDestroyDebugUtilsMessengerEXT(instance_, messenger_, nullptr);
  if (instance_ != VK_NULL_HANDLE && !keeps_instance_) vkDestroyInstance(instance_, nullptr);
  if (has_message_) std::fprintf(stderr, "narrows: vulkan: validation, after the last call: %s\n", message_.c_str());
}

void Loader::add_message(const char* message) {
  const std::lock_guard lock(message_mutex_);
  if (!has_message_.exchange(true)) message_ = message;
}

void Loader::refuse_if_invalid() {
  if (!has_message_.load(std::memory_order_relaxed)) return;
  const std::lock_guard lock(message_mutex_);
  has_message_.store(false);
  refuse(NW_FAILED, -1, "vulkan: validation: %s", message_.c_str());
}

std::vector<VkPhysicalDevice> Loader::physical_devices() const {
  uint32_t count = 0;
  check(vkEnumeratePhysicalDevices(instance_, &count, nullptr), "counting devices");
  std::vector<VkPhysicalDevice> devices(count);
  check(vkEnumeratePhysicalDevices(instance_, &count, devices.data()), "listing devices");
  devices.resize(count);
  std::stable_sort(devices.begin(), devices.end(),
                   [](VkPhysicalDevice a, VkPhysicalDevice b) { return rank_of(type_of(a)) < rank_of(type_of(b)); });
  const char* const text = std::getenv("NARROWS_VULKAN_DEVICE");
  if (text != nullptr && *text != '\0' && !devices.empty()) devices = {chosen(devices, text)};
  return devices;
}

}  // namespace narrows::vulkan
