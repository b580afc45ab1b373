// SPDX-License-Identifier: Apache-2.0
// driver.cpp -- see driver.h. volk's pointers are this program's own: vkGetDeviceProcAddr, through which every device's table is
// filled, and the instance's functions are replaced, and put back.
#include "driver.h"

#include <array>
#include <atomic>
#include <cstring>
#include <mutex>
#include <string_view>
#include <utility>

namespace narrows::vulkan::test {
namespace {

// Functions of a device that can fail, and of which calls are counted.
#define NARROWS_FALLIBLE(X)   \
  X(vkCreateBuffer)           \
  X(vkAllocateMemory)         \
  X(vkBindBufferMemory)       \
  X(vkMapMemory)              \
  X(vkCreatePipelineLayout)   \
  X(vkCreatePipelineCache)    \
  X(vkCreateShaderModule)     \
  X(vkCreateComputePipelines) \
  X(vkCreateCommandPool)      \
  X(vkAllocateCommandBuffers) \
  X(vkBeginCommandBuffer)     \
  X(vkCreateSemaphore) X(vkQueueSubmit) X(vkGetMemoryFdKHR) X(vkGetSemaphoreFdKHR) X(vkGetMemoryHostPointerPropertiesEXT)
// Those that fail only where they are named: what they say ends a device, or they are asked over and over.
#define NARROWS_NAMED(X) X(vkEndCommandBuffer) X(vkWaitSemaphores) X(vkGetSemaphoreCounterValue) X(vkDeviceWaitIdle)
// Functions that destroy what another one created, and those that are only counted.
#define NARROWS_DESTROYING(X)                        \
  X(vkDestroyBuffer, vkCreateBuffer)                 \
  X(vkFreeMemory, vkAllocateMemory)                  \
  X(vkDestroyPipelineLayout, vkCreatePipelineLayout) \
  X(vkDestroyPipelineCache, vkCreatePipelineCache)   \
  X(vkDestroyShaderModule, vkCreateShaderModule)     \
  X(vkDestroyPipeline, vkCreateComputePipelines)     \
  X(vkDestroyCommandPool, vkCreateCommandPool) X(vkDestroySemaphore, vkCreateSemaphore)
#define NARROWS_COUNTED(X) X(vkCmdPipelineBarrier) X(vkCmdDispatch) X(vkCmdCopyBuffer)

struct State {
  std::mutex mutex;
  int good_calls = -1;  // before the one that fails; -1: none does
  VkResult result = VK_SUCCESS;
  std::string name;
  bool has_failed = false;
  Said said;
  std::string left_out;
  int folded = 0;
  uint64_t specialized = 0;
  size_t kept_pipelines = 0;
  std::set<std::string> failed;
  // What is noted of each call takes no memory: a test may let that run out too.
  std::array<uint32_t, 32> constants{};                 // of the newest pipeline, by id
  std::map<std::string, int, std::less<>> calls, made;  // of every function
};
State g;

bool fails(const char* name, bool if_named) {
  const std::lock_guard lock(g.mutex);
  ++g.calls.find(name)->second;
  if (g.good_calls < 0 || (g.name.empty() ? if_named : g.name != name) || g.good_calls-- > 0) return false;
  g.has_failed = true;
  g.failed.insert(name);
  return true;
}

void count(const char* name, int n) {
  const std::lock_guard lock(g.mutex);
  g.made.find(name)->second += n;
}

template <class... Arguments>
bool is_too_large(const Arguments&...) {
  return false;
}
bool is_too_large(VkDevice, const VkMemoryAllocateInfo* info, const VkAllocationCallbacks*, VkDeviceMemory*) {
  return g.said.largest != 0 && info->allocationSize > g.said.largest;
}

template <class... Arguments>
void look_at(const Arguments&...) {}
void look_at(VkDevice, const VkPipelineCacheCreateInfo* info, const VkAllocationCallbacks*, VkPipelineCache*) {
  g.kept_pipelines = info->initialDataSize;
}
void look_at(VkDevice, VkPipelineCache, uint32_t, const VkComputePipelineCreateInfo* info, const VkAllocationCallbacks*,
             VkPipeline*) {
  const VkSpecializationInfo& constants = *info->stage.pSpecializationInfo;
  const std::string_view bytes(static_cast<const char*>(constants.pData), constants.dataSize);
  const std::lock_guard lock(g.mutex);
  g.specialized += std::hash<std::string_view>()(bytes);
  g.constants = {};
  for (uint32_t i = 0; i < constants.mapEntryCount; ++i)
    std::memcpy(&g.constants.at(constants.pMapEntries[i].constantID), bytes.data() + constants.pMapEntries[i].offset,
                sizeof(uint32_t));
}
void look_at(VkCommandBuffer, uint32_t, uint32_t rows, uint32_t) {
  const std::lock_guard lock(g.mutex);
  g.folded += rows > 1;
}

enum class Kind { fallible, named, counted };

// One function of the driver: `of` tells those of one type apart.
template <class Of, class Function>
struct Hand;
template <class Of, class Result, class... Arguments>
struct Hand<Of, Result(VKAPI_PTR*)(Arguments...)> {
  inline static Result(VKAPI_PTR* real)(Arguments...) = nullptr;
  static Result VKAPI_PTR call(Arguments... arguments) {
    if constexpr (Of::kind == Kind::counted) {
      const std::lock_guard lock(g.mutex);
      ++g.calls.find(Of::name)->second;
      if (g.left_out == Of::name) return;
    } else if (fails(Of::name, Of::kind == Kind::named)) {
      return g.result;
    } else if (is_too_large(arguments...)) {
      return VK_ERROR_OUT_OF_DEVICE_MEMORY;
    }
    look_at(arguments...);
    if constexpr (std::is_void_v<Result>) {
      real(arguments...);
    } else {
      const Result result = real(arguments...);
      if (result >= 0 && Of::creates) count(Of::name, 1);
      return result;
    }
  }
};

template <class Of, class Handle>
struct Destroy {
  inline static void(VKAPI_PTR* real)(VkDevice, Handle, const VkAllocationCallbacks*) = nullptr;
  static void VKAPI_PTR call(VkDevice device, Handle handle, const VkAllocationCallbacks* callbacks) {
    if (handle != VK_NULL_HANDLE) count(Of::created_by, -1);
    real(device, handle, callbacks);
  }
};
template <class Of, class Handle>
Destroy<Of, Handle> destroy_of(void(VKAPI_PTR*)(VkDevice, Handle, const VkAllocationCallbacks*));

bool is_destroyed(const char* creates) {
#define X(destroys, created_by) \
  if (std::strcmp(creates, #created_by) == 0) return true;
  NARROWS_DESTROYING(X)
#undef X
  return std::strcmp(creates, "vkCreateDevice") == 0;
}

#define OF(function, its_kind)                                  \
  struct Of_##function {                                        \
    static constexpr const char* name = #function;              \
    static constexpr Kind kind = Kind::its_kind;                \
    inline static const bool creates = is_destroyed(#function); \
  };
#define X(function) OF(function, fallible)
NARROWS_FALLIBLE(X)
X(vkCreateDevice)
X(vkEnumeratePhysicalDevices)
X(vkEnumerateDeviceExtensionProperties)
#undef X
#define X(function) OF(function, named)
NARROWS_NAMED(X)
#undef X
#define X(function) OF(function, counted)
NARROWS_COUNTED(X)
#undef X
#define X(function, creator)                            \
  struct Of_##function {                                \
    static constexpr const char* created_by = #creator; \
  };
NARROWS_DESTROYING(X)
#undef X

struct Real {
  PFN_vkGetDeviceProcAddr get;
  PFN_vkCreateDevice create_device;
  PFN_vkDestroyDevice destroy_device;
  PFN_vkEnumeratePhysicalDevices enumerate;
  PFN_vkEnumerateDeviceExtensionProperties extensions;
  PFN_vkGetPhysicalDeviceFeatures features;
  PFN_vkGetPhysicalDeviceProperties properties;
  PFN_vkGetPhysicalDeviceProperties2 properties2;
} real;

template <class Its, class Function>
PFN_vkVoidFunction put_between(PFN_vkVoidFunction found) {
  Its::real = reinterpret_cast<Function>(found);
  return found == nullptr ? nullptr : reinterpret_cast<PFN_vkVoidFunction>(Its::call);
}

PFN_vkVoidFunction VKAPI_PTR get(VkDevice device, const char* name) {
  const PFN_vkVoidFunction found = real.get(device, name);
#define X(function) \
  if (std::strcmp(name, #function) == 0) return put_between<Hand<Of_##function, PFN_##function>, PFN_##function>(found);
  NARROWS_FALLIBLE(X)
  NARROWS_NAMED(X)
  NARROWS_COUNTED(X)
#undef X
#define X(function, creator)             \
  if (std::strcmp(name, #function) == 0) \
    return put_between<decltype(destroy_of<Of_##function>(PFN_##function{})), PFN_##function>(found);
  NARROWS_DESTROYING(X)
#undef X
  if (std::strcmp(name, "vkDestroyDevice") != 0) return found;
  real.destroy_device = reinterpret_cast<PFN_vkDestroyDevice>(found);
  return reinterpret_cast<PFN_vkVoidFunction>(+[](VkDevice gone, const VkAllocationCallbacks* callbacks) {
    count("vkCreateDevice", -1);
    real.destroy_device(gone, callbacks);
  });
}

void VKAPI_PTR said_features(VkPhysicalDevice device, VkPhysicalDeviceFeatures* features) {
  real.features(device, features);
  if (g.said.without_f64) features->shaderFloat64 = VK_FALSE;
}

void VKAPI_PTR said_properties(VkPhysicalDevice device, VkPhysicalDeviceProperties* properties) {
  real.properties(device, properties);
  if (g.said.as_discrete) properties->deviceType = VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU;
  uint32_t* const most = properties->limits.maxComputeWorkGroupCount;
  if (g.said.columns != 0) most[0] = g.said.columns;
  if (g.said.rows != 0) most[1] = g.said.rows;
}

void VKAPI_PTR said_properties2(VkPhysicalDevice device, VkPhysicalDeviceProperties2* properties) {
  real.properties2(device, properties);
  for (auto* link = static_cast<VkBaseOutStructure*>(properties->pNext); link != nullptr; link = link->pNext) {
    if (g.said.largest != 0 && link->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES)
      reinterpret_cast<VkPhysicalDeviceVulkan11Properties*>(link)->maxMemoryAllocationSize = g.said.largest;
    if (g.said.as_nvidia && link->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_PROPERTIES)
      reinterpret_cast<VkPhysicalDeviceVulkan12Properties*>(link)->driverID = VK_DRIVER_ID_NVIDIA_PROPRIETARY;
  }
}

}  // namespace

Driver::Driver(const Said& said) : loader_(Loader::get()) {
  g.said = said;
  g.folded = 0;
  g.specialized = 0;
  g.constants = {};
#define X(function) g.calls[#function] = g.made[#function] = 0;
  NARROWS_FALLIBLE(X)
  NARROWS_NAMED(X)
  NARROWS_COUNTED(X)
  X(vkCreateDevice)
  X(vkEnumeratePhysicalDevices)
  X(vkEnumerateDeviceExtensionProperties)
#undef X
  g.failed.clear();
  calm();
  real.get = std::exchange(vkGetDeviceProcAddr, get);
#define X(function, its)                                                    \
  its = std::exchange(function, Hand<Of_##function, PFN_##function>::call); \
  Hand<Of_##function, PFN_##function>::real = its;
  X(vkCreateDevice, real.create_device)
  X(vkEnumeratePhysicalDevices, real.enumerate)
  X(vkEnumerateDeviceExtensionProperties, real.extensions)
#undef X
  real.features = std::exchange(vkGetPhysicalDeviceFeatures, said_features);
  real.properties = std::exchange(vkGetPhysicalDeviceProperties, said_properties);
  real.properties2 = std::exchange(vkGetPhysicalDeviceProperties2, said_properties2);
}

Driver::~Driver() {
  calm();
  vkGetDeviceProcAddr = real.get;
  vkCreateDevice = real.create_device;
  vkEnumeratePhysicalDevices = real.enumerate;
  vkEnumerateDeviceExtensionProperties = real.extensions;
  vkGetPhysicalDeviceFeatures = real.features;
  vkGetPhysicalDeviceProperties = real.properties;
  vkGetPhysicalDeviceProperties2 = real.properties2;
}

void Driver::fail(int call, VkResult result, const std::string& name) {
  const std::lock_guard lock(g.mutex);
  g.good_calls = call;
  g.result = result;
  g.name = name;
  g.has_failed = false;
}

bool Driver::has_failed() {
  const std::lock_guard lock(g.mutex);
  return g.has_failed;
}

void Driver::calm() {
  const std::lock_guard lock(g.mutex);
  g.good_calls = -1;
  g.has_failed = false;
  g.left_out.clear();
}

void Driver::leave_out(const std::string& name) {
  const std::lock_guard lock(g.mutex);
  g.left_out = name;
}

int Driver::folded() const {
  const std::lock_guard lock(g.mutex);
  return g.folded;
}

uint64_t Driver::specialized() const {
  const std::lock_guard lock(g.mutex);
  return g.specialized;
}

uint32_t Driver::constant(uint32_t id) const {
  const std::lock_guard lock(g.mutex);
  return g.constants.at(id);
}

const std::set<std::string>& Driver::failed() const { return g.failed; }

std::set<std::string> Driver::functions() {
#define X(function) #function,
  return {NARROWS_FALLIBLE(X) "vkCreateDevice", "vkEnumeratePhysicalDevices", "vkEnumerateDeviceExtensionProperties"};
#undef X
}

size_t Driver::kept_pipelines() const { return g.kept_pipelines; }

int Driver::calls(const std::string& name) const {
  const std::lock_guard lock(g.mutex);
  return g.calls.at(name);
}

std::map<std::string, int> Driver::left_over() const {
  const std::lock_guard lock(g.mutex);
  std::map<std::string, int> left(g.made.begin(), g.made.end());
  std::erase_if(left, [](const auto& entry) { return entry.second == 0; });
  return left;
}

}  // namespace narrows::vulkan::test
