// loader.cpp -- see loader.h. volk is compiled in here: its function pointers are this plugin's own.
#define VOLK_IMPLEMENTATION
#include "loader.h"

#include <algorithm>
#include <cstdlib>
#include <mutex>

namespace narrows::vulkan {
namespace {

int rank_of(VkPhysicalDevice device) {
  VkPhysicalDeviceProperties properties;
  vkGetPhysicalDeviceProperties(device, &properties);
  switch (properties.deviceType) {
    case VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU: return 0;
    case VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU: return 1;
    case VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU: return 2;
    default: return 3;
  }
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

}  // namespace

std::shared_ptr<Loader> Loader::get() {
  static std::mutex mutex;
  static std::weak_ptr<Loader> last;
  const std::lock_guard lock(mutex);
  std::shared_ptr<Loader> loader = last.lock();
  if (loader == nullptr) last = loader = std::shared_ptr<Loader>(new Loader);
  return loader;
}

Loader::Loader() {
  if (volkInitialize() != VK_SUCCESS)
    refuse(NW_UNAVAILABLE, -1, "vulkan: there is no libvulkan.so.1; install the Vulkan loader (Debian: libvulkan1) and a driver");
  if (volkGetInstanceVersion() < VK_API_VERSION_1_2)
    refuse(NW_UNAVAILABLE, -1, "vulkan: the loader is of Vulkan 1.%u; expected 1.2 or newer",
           VK_API_VERSION_MINOR(volkGetInstanceVersion()));
  VkApplicationInfo application{.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO};
  application.pEngineName = "Narrows";
  application.apiVersion = VK_API_VERSION_1_2;
  VkInstanceCreateInfo info{.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO};
  info.pApplicationInfo = &application;
  const VkResult result = vkCreateInstance(&info, nullptr, &instance_);
  if (result == VK_ERROR_INCOMPATIBLE_DRIVER)
    refuse(NW_UNAVAILABLE, -1, "vulkan: the loader found no driver; install the GPU's, or Mesa's (Debian: mesa-vulkan-drivers)");
  check(result, "creating an instance");
  volkLoadInstanceOnly(instance_);
}

Loader::~Loader() { vkDestroyInstance(instance_, nullptr); }

std::vector<VkPhysicalDevice> Loader::physical_devices() const {
  uint32_t count = 0;
  check(vkEnumeratePhysicalDevices(instance_, &count, nullptr), "counting devices");
  std::vector<VkPhysicalDevice> devices(count);
  check(vkEnumeratePhysicalDevices(instance_, &count, devices.data()), "listing devices");
  devices.resize(count);
  std::stable_sort(devices.begin(), devices.end(), [](VkPhysicalDevice a, VkPhysicalDevice b) { return rank_of(a) < rank_of(b); });
  if (const char* text = std::getenv("NARROWS_VULKAN_DEVICE"); text != nullptr && *text != '\0') devices = {chosen(devices, text)};
  return devices;
}

}  // namespace narrows::vulkan
