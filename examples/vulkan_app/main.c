/* SPDX-License-Identifier: Apache-2.0 */
/* An application with a Vulkan device of its own: Narrows runs an op between the application's own submissions, on its queue and in
 * its memory, ordered by the application's timeline semaphore, and the host waits once, at the end.
 *   cc -std=c99 -Wall -Wextra main.c -o vulkan_app $(pkg-config --cflags --libs narrows) -lvulkan && ./vulkan_app */
#include <narrows/narrows.h>
#include <narrows/ops.h>
#include <narrows/vulkan.h>
#include <stdio.h>
#include <stdlib.h>
#include <vulkan/vulkan.h>

#define COUNT 1000

static void need(int right, const char* what) {
  if (right) return;
  fprintf(stderr, "vulkan_app: %s failed\n", what);
  exit(1);
}
static void check(int32_t status, const nw_error* error) {
  if (status == NW_OK) return;
  fprintf(stderr, "vulkan_app: %s: %s\n", nw_status_name(status), error->message);
  exit(1);
}

/* ---- the application ---- */

typedef struct {
  VkInstance instance;
  VkPhysicalDevice physical;
  VkDevice device;
  VkQueue queue;
  VkCommandPool pool;
  VkPhysicalDeviceFeatures2 features; /* what the device was made with, with the next two in its chain */
  VkPhysicalDeviceVulkan11Features features11;
  VkPhysicalDeviceVulkan12Features features12;
} App;

typedef struct {
  VkBuffer buffer;
  VkDeviceMemory memory;
  VkDeviceAddress address;
} Block;

static void open_app(App* app) {
  VkApplicationInfo info = {VK_STRUCTURE_TYPE_APPLICATION_INFO, NULL, "vulkan_app", 1, NULL, 0, VK_API_VERSION_1_2};
  VkInstanceCreateInfo create = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO, .pApplicationInfo = &info};
  need(vkCreateInstance(&create, NULL, &app->instance) == VK_SUCCESS, "vkCreateInstance");
  uint32_t one = 1;
  need(vkEnumeratePhysicalDevices(app->instance, &one, &app->physical) >= 0 && one == 1, "vkEnumeratePhysicalDevices");

  /* All features that the device has; what Narrows cannot do without is in docs/vulkan.md. Queue family 0 computes nearly always.
   */
  app->features12.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES;
  app->features11.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES;
  app->features11.pNext = &app->features12;
  app->features.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2;
  app->features.pNext = &app->features11;
  vkGetPhysicalDeviceFeatures2(app->physical, &app->features);
  const float priority = 1;
  const VkDeviceQueueCreateInfo queue = {VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO, NULL, 0, 0, 1, &priority};
  const VkDeviceCreateInfo device = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                                     .pNext = &app->features,
                                     .queueCreateInfoCount = 1,
                                     .pQueueCreateInfos = &queue};
  need(vkCreateDevice(app->physical, &device, NULL, &app->device) == VK_SUCCESS, "vkCreateDevice");
  vkGetDeviceQueue(app->device, 0, 0, &app->queue);
  const VkCommandPoolCreateInfo pool = {VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO, NULL, 0, 0};
  need(vkCreateCommandPool(app->device, &pool, NULL, &app->pool) == VK_SUCCESS, "vkCreateCommandPool");
}

static Block make_block(const App* app, VkMemoryPropertyFlags wanted) {
  Block block;
  const VkBufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                                   .size = COUNT * sizeof(float),
                                   .usage = VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT | VK_BUFFER_USAGE_STORAGE_BUFFER_BIT |
                                            VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT};
  need(vkCreateBuffer(app->device, &info, NULL, &block.buffer) == VK_SUCCESS, "vkCreateBuffer");
  VkMemoryRequirements needs;
  vkGetBufferMemoryRequirements(app->device, block.buffer, &needs);
  VkPhysicalDeviceMemoryProperties memory;
  vkGetPhysicalDeviceMemoryProperties(app->physical, &memory);
  uint32_t type = 0;
  while (!(needs.memoryTypeBits >> type & 1) || (memory.memoryTypes[type].propertyFlags & wanted) != wanted) ++type;
  const VkMemoryAllocateFlagsInfo flags = {VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO, NULL,
                                           VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT, 0};
  const VkMemoryAllocateInfo allocate = {VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, &flags, needs.size, type};
  need(vkAllocateMemory(app->device, &allocate, NULL, &block.memory) == VK_SUCCESS, "vkAllocateMemory");
  need(vkBindBufferMemory(app->device, block.buffer, block.memory, 0) == VK_SUCCESS, "vkBindBufferMemory");
  const VkBufferDeviceAddressInfo asked = {VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO, NULL, block.buffer};
  block.address = vkGetBufferDeviceAddress(app->device, &asked);
  return block;
}

static void drop_block(const App* app, Block block) {
  vkDestroyBuffer(app->device, block.buffer, NULL);
  vkFreeMemory(app->device, block.memory, NULL);
}

static VkSemaphore make_timeline(const App* app) {
  const VkSemaphoreTypeCreateInfo type = {VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO, NULL, VK_SEMAPHORE_TYPE_TIMELINE, 0};
  const VkSemaphoreCreateInfo info = {VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, &type, 0};
  VkSemaphore timeline;
  need(vkCreateSemaphore(app->device, &info, NULL, &timeline) == VK_SUCCESS, "vkCreateSemaphore");
  return timeline;
}

static VkCommandBuffer begin(const App* app) {
  const VkCommandBufferAllocateInfo info = {VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO, NULL, app->pool,
                                            VK_COMMAND_BUFFER_LEVEL_PRIMARY, 1};
  const VkCommandBufferBeginInfo start = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
  VkCommandBuffer commands;
  need(vkAllocateCommandBuffers(app->device, &info, &commands) == VK_SUCCESS, "vkAllocateCommandBuffers");
  need(vkBeginCommandBuffer(commands, &start) == VK_SUCCESS, "vkBeginCommandBuffer");
  return commands;
}

/* Submits: the commands start when the timeline is at `wait` and set it to `signal`. */
static void submit(const App* app, VkCommandBuffer commands, VkSemaphore timeline, uint64_t wait, uint64_t signal) {
  need(vkEndCommandBuffer(commands) == VK_SUCCESS, "vkEndCommandBuffer");
  const VkTimelineSemaphoreSubmitInfo values = {VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO, NULL, 1, &wait, 1, &signal};
  const VkPipelineStageFlags stage = VK_PIPELINE_STAGE_ALL_COMMANDS_BIT;
  const VkSubmitInfo info = {VK_STRUCTURE_TYPE_SUBMIT_INFO, &values, 1, &timeline, &stage, 1, &commands, 1, &timeline};
  need(vkQueueSubmit(app->queue, 1, &info, VK_NULL_HANDLE) == VK_SUCCESS, "vkQueueSubmit");
}

/* ---- Narrows in it ---- */

static int32_t adopt(const nw_vulkan* vulkan, const App* app) {
  const nw_vulkan_device mine = {.struct_size = sizeof mine,
                                 .queue_family = 0,
                                 .instance = app->instance,
                                 .physical_device = app->physical,
                                 .device = app->device,
                                 .queue = app->queue, /* used by this thread alone: no lock */
                                 .features = &app->features};
  int32_t id = -1;
  nw_error error;
  check(vulkan->adopt_device(vulkan->self, &mine, &id, &error), &error);
  return id;
}

static void add_tensors(nw_runtime* runtime, int32_t device_id, const Block* a, const Block* b, const Block* sum) {
  int64_t shape[1] = {COUNT};
  const Block* blocks[] = {a, b, sum};
  DLTensor tensors[3];
  for (int i = 0; i < 3; ++i) {
    const DLTensor tensor = {(void*)(uintptr_t)blocks[i]->address, {kDLVulkan, device_id}, 1, {kDLFloat, 32, 1}, shape, NULL, 0};
    tensors[i] = tensor;
  }
  const DLTensor *inputs[] = {&tensors[0], &tensors[1]}, *outputs[] = {&tensors[2]};
  const nw_elementwise_params add = {.function = NW_EW_ADD};
  const nw_call call = {.struct_size = sizeof call,
                        .op = "elementwise",
                        .num_inputs = 2,
                        .inputs = inputs,
                        .num_outputs = 1,
                        .outputs = outputs,
                        .params = &add,
                        .params_size = sizeof add};
  nw_error error;
  check(nw_run(runtime, &call, &error), &error);
}

int main(void) {
  App app = {0};
  open_app(&app);
  const Block a = make_block(&app, VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT), b = make_block(&app, VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT);
  const Block sum = make_block(&app, VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT);
  const Block seen = make_block(&app, VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT);
  const VkSemaphore timeline = make_timeline(&app);

  nw_runtime* runtime = NULL;
  nw_error error;
  check(nw_runtime_create(NULL, &runtime, &error), &error);
  const nw_vulkan* vulkan = nw_extension(runtime, "vulkan", "vulkan/1");
  need(vulkan != NULL, "finding the vulkan backend");
  const int32_t id = adopt(vulkan, &app);
  const Block* shared[] = {&a, &b, &sum};
  for (int i = 0; i < 3; ++i)
    check(vulkan->add_memory(vulkan->self, id, (uint64_t)shared[i]->buffer, shared[i]->address, COUNT * sizeof(float), &error),
          &error);

  /* 1: the application fills a with 1 and b with 2. 2: Narrows adds them. 3: the application takes the sum where it sees it. */
  VkCommandBuffer fill = begin(&app);
  vkCmdFillBuffer(fill, a.buffer, 0, VK_WHOLE_SIZE, 0x3f800000);
  vkCmdFillBuffer(fill, b.buffer, 0, VK_WHOLE_SIZE, 0x40000000);
  submit(&app, fill, timeline, 0, 1);

  check(vulkan->stream_wait(vulkan->self, id, NULL, (uint64_t)timeline, 1, &error), &error);
  add_tensors(runtime, id, &a, &b, &sum);
  check(vulkan->stream_signal(vulkan->self, id, NULL, (uint64_t)timeline, 2, &error), &error);

  VkCommandBuffer take = begin(&app);
  const VkBufferCopy all = {0, 0, COUNT * sizeof(float)};
  vkCmdCopyBuffer(take, sum.buffer, seen.buffer, 1, &all);
  const VkMemoryBarrier to_host = {VK_STRUCTURE_TYPE_MEMORY_BARRIER, NULL, VK_ACCESS_TRANSFER_WRITE_BIT, VK_ACCESS_HOST_READ_BIT};
  vkCmdPipelineBarrier(take, VK_PIPELINE_STAGE_TRANSFER_BIT, VK_PIPELINE_STAGE_HOST_BIT, 0, 1, &to_host, 0, NULL, 0, NULL);
  submit(&app, take, timeline, 2, 3);

  const uint64_t done = 3;
  const VkSemaphoreWaitInfo wait = {VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO, NULL, 0, 1, &timeline, &done};
  need(vkWaitSemaphores(app.device, &wait, 60000000000u) == VK_SUCCESS, "vkWaitSemaphores");
  float* values = NULL;
  need(vkMapMemory(app.device, seen.memory, 0, VK_WHOLE_SIZE, 0, (void**)&values) == VK_SUCCESS, "vkMapMemory");
  int wrong = 0;
  for (int i = 0; i < COUNT; ++i) wrong += values[i] != 3;
  printf("1 + 2 = %g, %g, ..., %g; %d of %d are wrong\n", values[0], values[1], values[COUNT - 1], wrong, COUNT);

  for (int i = 0; i < 3; ++i) check(vulkan->remove_memory(vulkan->self, id, shared[i]->address, &error), &error);
  check(vulkan->release_device(vulkan->self, id, &error), &error);
  nw_runtime_destroy(runtime);
  vkDeviceWaitIdle(app.device); /* a value that has been reached does not say that the driver has let go of the semaphore */
  for (int i = 0; i < 3; ++i) drop_block(&app, *shared[i]);
  drop_block(&app, seen);
  vkDestroySemaphore(app.device, timeline, NULL);
  vkDestroyCommandPool(app.device, app.pool, NULL);
  vkDestroyDevice(app.device, NULL);
  vkDestroyInstance(app.instance, NULL);
  return wrong != 0;
}
