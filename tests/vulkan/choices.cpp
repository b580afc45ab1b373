// SPDX-License-Identifier: Apache-2.0
// What is chosen of a device's tables: memory types, a queue family, the order of devices. Tables as drivers have them.
#include "opened.h"

namespace narrows::vulkan::test {
namespace {

constexpr VkMemoryPropertyFlags kLocal = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
constexpr VkMemoryPropertyFlags kVisible = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
constexpr VkMemoryPropertyFlags kCached = kVisible | VK_MEMORY_PROPERTY_HOST_CACHED_BIT;

constexpr VkMemoryPropertyFlags kOfDebuggers = VK_MEMORY_PROPERTY_DEVICE_COHERENT_BIT_AMD;

using Types = std::vector<uint32_t>;

TEST_CASE("choices: memory types of discrete and integrated GPUs and of a CPU, best first", "[choices]") {
  struct Table {
    const char* device;
    bool unified;
    std::vector<VkMemoryPropertyFlags> types;
    Types device_side, guarded, host, upload;
  };
  const Table tables[] = {
      {"NVIDIA H200", false, {0, kLocal, kVisible, kCached, kLocal | kVisible}, {1, 4}, {4}, {3, 2, 4}, {4, 2, 3}},
      {"AMD with a resizable BAR", false, {kLocal, kVisible, kLocal | kVisible, kCached}, {0, 2}, {2}, {3, 1, 2}, {2, 1, 3}},
      {"AMD with coherent types",
       false,
       {kLocal, kVisible, kLocal | kVisible, kCached, kLocal | kOfDebuggers, kVisible | kOfDebuggers,
        kLocal | kVisible | kOfDebuggers},
       {0, 2},
       {2},
       {3, 1, 2},
       {2, 1, 3}},
      {"a card without a window", false, {kLocal, kVisible, kCached}, {0}, {}, {2, 1}, {1, 2}},
      {"Intel, integrated", true, {kLocal, kLocal | kVisible, kLocal | kCached}, {2, 0, 1}, {2, 1}, {2, 1}, {1, 2}},
      {"lavapipe", true, {kLocal | kCached}, {0}, {0}, {0}, {0}},
      {"one that calls none its own", true, {kVisible, kCached}, {0, 1}, {}, {1, 0}, {0, 1}},
  };
  for (const Table& table : tables) {
    INFO(table.device);
    VkPhysicalDeviceMemoryProperties memory{};
    for (const VkMemoryPropertyFlags flags : table.types) memory.memoryTypes[memory.memoryTypeCount++].propertyFlags = flags;
    CHECK(memory_types(memory, table.unified, ~0u, Side::device) == table.device_side);
    CHECK(memory_types(memory, table.unified, ~0u, Side::guarded) == table.guarded);
    CHECK(memory_types(memory, table.unified, ~0u, Side::host) == table.host);
    CHECK(memory_types(memory, table.unified, ~0u, Side::upload) == table.upload);
    CHECK(memory_types(memory, table.unified, 0, Side::device).empty());
    Types without_best(table.device_side.begin() + 1, table.device_side.end());
    if (!without_best.empty())
      CHECK(memory_types(memory, table.unified, ~(1u << table.device_side[0]), Side::device) == without_best);
  }
}

TEST_CASE("choices: where the heap of the best type is full, the next type is taken", "[choices]") {
  Opened opened;
  VkPhysicalDeviceMemoryProperties& memory = opened.physical.memory;
  static uint32_t best = 0, other = 0;
  static int refused = 0;
  static PFN_vkAllocateMemory allocate = nullptr;
  static PFN_vkGetBufferMemoryRequirements requirements = nullptr;
  allocate = opened->vk.vkAllocateMemory, requirements = opened->vk.vkGetBufferMemoryRequirements;
  best = memory_types(memory, opened.physical.is_unified(), ~0u, Side::upload).at(0);
  other = memory.memoryTypeCount++;  // its like, of another heap
  refused = 0;
  memory.memoryTypes[other] = memory.memoryTypes[best];
  opened->vk.vkGetBufferMemoryRequirements = [](VkDevice device, VkBuffer buffer, VkMemoryRequirements* needs) {
    requirements(device, buffer, needs);
    needs->memoryTypeBits |= 1u << other;
  };
  opened->vk.vkAllocateMemory = [](VkDevice device, const VkMemoryAllocateInfo* info, const VkAllocationCallbacks* callbacks,
                                   VkDeviceMemory* made) -> VkResult {
    VkMemoryAllocateInfo of_driver = *info;
    if (info->memoryTypeIndex == best) return ++refused, VK_ERROR_OUT_OF_DEVICE_MEMORY;
    if (info->memoryTypeIndex == other) of_driver.memoryTypeIndex = best;
    return allocate(device, &of_driver, callbacks, made);
  };
  const Buffer buffer = opened->memory().create_buffer(1000, Side::upload);
  CHECK(refused == 1);
  REQUIRE(buffer.mapped != nullptr);
  opened->memory().destroy_buffer(buffer);
  opened->vk.vkAllocateMemory = allocate;
}

TEST_CASE("choices: a queue family that computes, without graphics if there is one, and no more queues than are used",
          "[choices]") {
  const auto family = [](VkQueueFlags flags, uint32_t count) {
    VkQueueFamilyProperties properties{};
    properties.queueFlags = flags, properties.queueCount = count;
    return properties;
  };
  constexpr VkQueueFlags kGraphics = VK_QUEUE_GRAPHICS_BIT, kCompute = VK_QUEUE_COMPUTE_BIT, kTransfer = VK_QUEUE_TRANSFER_BIT;
  const auto picks = [](const std::vector<VkQueueFamilyProperties>& families, uint32_t index, uint32_t count) {
    const Queues queues = pick_queues(families);
    CHECK(queues.family == index);
    CHECK(queues.count == count);
  };
  picks({family(kGraphics | kCompute | kTransfer, 16), family(kTransfer, 2), family(kCompute | kTransfer, 8)}, 2, 8);  // NVIDIA
  picks({family(kGraphics | kCompute | kTransfer, 1), family(kCompute | kTransfer, 4)}, 1, 4);                         // AMD
  picks({family(kGraphics | kCompute | kTransfer, 1)}, 0, 1);  // Intel, lavapipe
  picks({family(kTransfer, 2), family(kCompute, 64)}, 1, 8);
  picks({family(kTransfer, 2), family(kGraphics, 1)}, 0, 0);
}

TEST_CASE("choices: a kind of matrices that the shaders can use, the largest, of f16 and of bf16", "[choices]") {
  constexpr auto kHalf = VK_COMPONENT_TYPE_FLOAT16_KHR, kSingle = VK_COMPONENT_TYPE_FLOAT32_KHR,
                 kBfloat = VK_COMPONENT_TYPE_BFLOAT16_KHR;
  using Kinds = std::vector<VkCooperativeMatrixPropertiesKHR>;
  const auto kind = [](uint32_t m, uint32_t n, uint32_t k, VkComponentTypeKHR elements, VkComponentTypeKHR sums) {
    VkCooperativeMatrixPropertiesKHR made{VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR};
    made.MSize = m, made.NSize = n, made.KSize = k;
    made.AType = made.BType = elements, made.CType = made.ResultType = sums;
    made.scope = VK_SCOPE_SUBGROUP_KHR;
    return made;
  };
  const auto picks = [](const Kinds& kinds, uint32_t subgroup, VkComponentTypeKHR type, uint32_t size) {
    const MatrixUnit unit = pick_matrix_unit(kinds, subgroup, type);
    CHECK(bool(unit) == (size != 0));
    CHECK((unit.m == size && unit.n == size && unit.k == size));
    if (unit) CHECK(unit.subgroup == subgroup);
    return unit.has_narrow;
  };
  const Kinds large{kind(16, 8, 16, kHalf, kHalf),    kind(16, 16, 16, kHalf, kHalf),    kind(16, 8, 16, kHalf, kSingle),
                    kind(16, 16, 16, kHalf, kSingle), kind(16, 8, 16, kBfloat, kSingle), kind(16, 16, 16, kBfloat, kSingle)};
  CHECK(picks(large, 32, kHalf, 16));
  CHECK(picks(large, 32, kBfloat, 16));
  CHECK(!picks({large[1], large[3], kind(16, 8, 8, kHalf, kSingle)}, 32, kHalf, 16));
  const Kinds small{kind(8, 8, 8, kHalf, kHalf), kind(8, 8, 8, kHalf, kSingle)};  // lavapipe
  CHECK(picks(small, 8, kHalf, 8));
  picks(small, 8, kBfloat, 0);
  picks(small, 32, kHalf, 0);  // more threads than a stage's rows are eights
  // Sums have to be f32, and those of f16 become f16.
  picks({kind(16, 16, 16, kHalf, kHalf), kind(16, 16, 16, kBfloat, kBfloat)}, 32, kHalf, 0);
  picks({kind(16, 16, 16, kHalf, kHalf), kind(16, 16, 16, kBfloat, kBfloat)}, 32, kBfloat, 0);
  picks({kind(16, 16, 16, kHalf, kSingle), kind(16, 16, 16, kBfloat, kSingle)}, 32, kHalf, 0);
  picks({kind(16, 16, 16, kHalf, kSingle), kind(16, 16, 16, kBfloat, kSingle)}, 32, kBfloat, 16);
  Kinds others{kind(16, 16, 16, kBfloat, kSingle), kind(16, 16, 16, kBfloat, kSingle), kind(16, 16, 16, kBfloat, kSingle)};
  others[0].scope = static_cast<VkScopeKHR>(2);  // of a work group
  others[1].saturatingAccumulation = VK_TRUE;
  others[2].BType = kHalf;
  picks(others, 32, kBfloat, 0);
  picks({}, 32, kHalf, 0);
}

TEST_CASE("choices: real GPUs come first", "[choices]") {
  CHECK(rank_of(VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU) < rank_of(VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU));
  CHECK(rank_of(VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU) < rank_of(VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU));
  CHECK(rank_of(VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU) < rank_of(VK_PHYSICAL_DEVICE_TYPE_CPU));
  CHECK(rank_of(VK_PHYSICAL_DEVICE_TYPE_CPU) == rank_of(VK_PHYSICAL_DEVICE_TYPE_OTHER));
}

}  // namespace
}  // namespace narrows::vulkan::test
