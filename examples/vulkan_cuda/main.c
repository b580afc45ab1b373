/* SPDX-License-Identifier: Apache-2.0 */
/* One GPU, CUDA and Vulkan on the same bytes: Narrows allocates memory and a timeline semaphore for others, CUDA maps both, writes,
 * and reads what Vulkan's op has made of it. Then the same with memory of CUDA's, which the application imports into Vulkan and
 * adds to Narrows'. Nothing is copied, and the host waits for results alone. CUDA's driver and Vulkan's loader are opened at run
 * time, so of both only Vulkan's headers are needed. Exit code 77: there is no GPU here that both drivers see. cc -std=c99 -Wall
 * -Wextra main.c -o vulkan_cuda $(pkg-config --cflags --libs narrows) -ldl && ./vulkan_cuda */
#include <dlfcn.h>
#include <narrows/narrows.h>
#include <narrows/ops.h>
#include <narrows/vulkan.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define VK_NO_PROTOTYPES
#include <vulkan/vulkan.h>

#define COUNT (1 << 24) /* floats: work enough that one side would overtake the other if nothing held it back */
#define ROUNDS 20

/* ---- of CUDA's driver API what is used here, as cuda.h has it ---- */

typedef unsigned long long CUdeviceptr;
typedef struct {
  int type; /* 1: CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD */
  union {
    int fd;
    void* others[2];
  } handle;
  unsigned long long size; /* of the whole allocation */
  unsigned flags, reserved[16];
} CUDA_EXTERNAL_MEMORY_HANDLE_DESC;
typedef struct {
  unsigned long long offset, size;
  unsigned flags, reserved[16];
} CUDA_EXTERNAL_MEMORY_BUFFER_DESC;
typedef struct {
  int type; /* 9: CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD */
  union {
    int fd;
    void* others[2];
  } handle;
  unsigned flags, reserved[16];
} CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC;
typedef struct { /* the parameters of a signal and of a wait differ in what is reserved only */
  unsigned long long value, others[2];
  unsigned reserved[12], flags, reserved_too[16];
} CUDA_EXTERNAL_SEMAPHORE_PARAMS;

typedef struct {
  int type, id; /* 1: CU_MEM_LOCATION_TYPE_DEVICE */
} CUmemLocation;
typedef struct {
  int type;    /* 1: CU_MEM_ALLOCATION_TYPE_PINNED */
  int handles; /* 1: CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR */
  CUmemLocation location;
  void* of_windows;
  unsigned char flags[8];
} CUmemAllocationProp;
typedef struct {
  CUmemLocation location;
  int flags; /* 3: CU_MEM_ACCESS_FLAGS_PROT_READWRITE */
} CUmemAccessDesc;

static struct {
  int (*cuInit)(unsigned);
  int (*cuGetErrorName)(int, const char**);
  int (*cuDeviceGetCount)(int*);
  int (*cuDeviceGet)(int*, int);
  int (*cuDeviceGetUuid)(uint8_t*, int);
  int (*cuDevicePrimaryCtxRetain)(void**, int);
  int (*cuDevicePrimaryCtxRelease)(int);
  int (*cuCtxSetCurrent)(void*);
  int (*cuImportExternalMemory)(void**, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC*);
  int (*cuExternalMemoryGetMappedBuffer)(CUdeviceptr*, void*, const CUDA_EXTERNAL_MEMORY_BUFFER_DESC*);
  int (*cuDestroyExternalMemory)(void*);
  int (*cuImportExternalSemaphore)(void**, const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC*);
  int (*cuDestroyExternalSemaphore)(void*);
  int (*cuSignalExternalSemaphoresAsync)(void* const*, const CUDA_EXTERNAL_SEMAPHORE_PARAMS*, unsigned, void*);
  int (*cuWaitExternalSemaphoresAsync)(void* const*, const CUDA_EXTERNAL_SEMAPHORE_PARAMS*, unsigned, void*);
  int (*cuStreamCreate)(void**, unsigned);
  int (*cuStreamSynchronize)(void*);
  int (*cuStreamDestroy)(void*);
  int (*cuMemsetD32Async)(CUdeviceptr, unsigned, size_t, void*);
  int (*cuMemcpyDtoHAsync)(void*, CUdeviceptr, size_t, void*);
  int (*cuMemFree)(CUdeviceptr);
  int (*cuMemGetAllocationGranularity)(size_t*, const CUmemAllocationProp*, int);
  int (*cuMemCreate)(unsigned long long*, size_t, const CUmemAllocationProp*, unsigned long long);
  int (*cuMemExportToShareableHandle)(void*, unsigned long long, int, unsigned long long);
  int (*cuMemAddressReserve)(CUdeviceptr*, size_t, size_t, CUdeviceptr, unsigned long long);
  int (*cuMemMap)(CUdeviceptr, size_t, size_t, unsigned long long, unsigned long long);
  int (*cuMemSetAccess)(CUdeviceptr, size_t, const CUmemAccessDesc*, size_t);
  int (*cuMemUnmap)(CUdeviceptr, size_t);
  int (*cuMemAddressFree)(CUdeviceptr, size_t);
  int (*cuMemRelease)(unsigned long long);
} cuda;

/* ---- failing, and what is missing here ---- */

static void skip(const char* why) {
  printf("skipped: %s\n", why);
  exit(77);
}
static void check(int32_t status, const nw_error* error) {
  if (status == NW_OK) return;
  fprintf(stderr, "vulkan_cuda: %s: %s\n", nw_status_name(status), error->message);
  exit(1);
}
static void need(int result, const char* what) {
  const char* name = "";
  if (result == 0) return;
  cuda.cuGetErrorName(result, &name);
  fprintf(stderr, "vulkan_cuda: %s: %s\n", what, name);
  exit(1);
}
#define CUDA(call) need(cuda.call, #call)

/* ---- both drivers, one GPU ---- */

static void open_cuda(void) {
  static const struct {
    const char* name;
    void* slot;
  } functions[] = {{"cuInit", &cuda.cuInit},
                   {"cuGetErrorName", &cuda.cuGetErrorName},
                   {"cuDeviceGetCount", &cuda.cuDeviceGetCount},
                   {"cuDeviceGet", &cuda.cuDeviceGet},
                   {"cuDeviceGetUuid", &cuda.cuDeviceGetUuid},
                   {"cuDevicePrimaryCtxRetain", &cuda.cuDevicePrimaryCtxRetain},
                   {"cuDevicePrimaryCtxRelease_v2", &cuda.cuDevicePrimaryCtxRelease},
                   {"cuCtxSetCurrent", &cuda.cuCtxSetCurrent},
                   {"cuImportExternalMemory", &cuda.cuImportExternalMemory},
                   {"cuExternalMemoryGetMappedBuffer", &cuda.cuExternalMemoryGetMappedBuffer},
                   {"cuDestroyExternalMemory", &cuda.cuDestroyExternalMemory},
                   {"cuImportExternalSemaphore", &cuda.cuImportExternalSemaphore},
                   {"cuDestroyExternalSemaphore", &cuda.cuDestroyExternalSemaphore},
                   {"cuSignalExternalSemaphoresAsync", &cuda.cuSignalExternalSemaphoresAsync},
                   {"cuWaitExternalSemaphoresAsync", &cuda.cuWaitExternalSemaphoresAsync},
                   {"cuStreamCreate", &cuda.cuStreamCreate},
                   {"cuStreamSynchronize", &cuda.cuStreamSynchronize},
                   {"cuStreamDestroy_v2", &cuda.cuStreamDestroy},
                   {"cuMemsetD32Async", &cuda.cuMemsetD32Async},
                   {"cuMemcpyDtoHAsync_v2", &cuda.cuMemcpyDtoHAsync},
                   {"cuMemFree_v2", &cuda.cuMemFree},
                   {"cuMemGetAllocationGranularity", &cuda.cuMemGetAllocationGranularity},
                   {"cuMemCreate", &cuda.cuMemCreate},
                   {"cuMemExportToShareableHandle", &cuda.cuMemExportToShareableHandle},
                   {"cuMemAddressReserve", &cuda.cuMemAddressReserve},
                   {"cuMemMap", &cuda.cuMemMap},
                   {"cuMemSetAccess", &cuda.cuMemSetAccess},
                   {"cuMemUnmap", &cuda.cuMemUnmap},
                   {"cuMemAddressFree", &cuda.cuMemAddressFree},
                   {"cuMemRelease", &cuda.cuMemRelease}};
  void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == NULL) skip("there is no libcuda.so.1");
  for (size_t i = 0; i < sizeof functions / sizeof *functions; ++i) {
    void* const function = dlsym(library, functions[i].name);
    if (function == NULL) skip("libcuda.so.1 is too old");
    memcpy(functions[i].slot, &function, sizeof function);
  }
  if (cuda.cuInit(0) != 0) skip("CUDA's driver finds no GPU");
}

/* The first GPU that both see: two drivers number them as they like, and the UUID is the same. */
static int find_gpu(nw_runtime* runtime, int32_t* vulkan_id) {
  int count = 0;
  CUDA(cuDeviceGetCount(&count));
  nw_device_info info = {.struct_size = sizeof info};
  for (*vulkan_id = 0; nw_device(runtime, (DLDevice){kDLVulkan, *vulkan_id}, &info, NULL) == NW_OK; ++*vulkan_id) {
    for (int i = 0; i < count; ++i) {
      int gpu = 0;
      uint8_t uuid[16];
      CUDA(cuDeviceGet(&gpu, i));
      CUDA(cuDeviceGetUuid(uuid, gpu));
      if (memcmp(uuid, info.uuid, sizeof uuid) != 0) continue;
      printf("%s: device %d of Vulkan's, %d of CUDA's\n", info.name, *vulkan_id, i);
      return gpu;
    }
  }
  skip("no GPU is seen by Vulkan and by CUDA");
  return -1;
}

/* ---- what both have ---- */

typedef struct {
  void* vulkan;     /* a VkDeviceAddress: Narrows' `data` */
  CUdeviceptr cuda; /* the same bytes */
  void* import;
} Shared;

static Shared make_shared(const nw_vulkan* vulkan, int32_t id) {
  Shared shared;
  nw_error error;
  int32_t fd = -1;
  uint64_t allocated = 0;
  check(vulkan->alloc_exportable(vulkan->self, id, COUNT * sizeof(float), &shared.vulkan, &fd, &allocated, &error), &error);
  /* The import takes the descriptor over. */
  const CUDA_EXTERNAL_MEMORY_HANDLE_DESC handle = {.type = 1, .handle = {.fd = fd}, .size = allocated};
  const CUDA_EXTERNAL_MEMORY_BUFFER_DESC whole = {.size = COUNT * sizeof(float)};
  CUDA(cuImportExternalMemory(&shared.import, &handle));
  CUDA(cuExternalMemoryGetMappedBuffer(&shared.cuda, shared.import, &whole));
  return shared;
}

static void* import_semaphore(int fd) {
  void* semaphore = NULL;
  const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC handle = {.type = 9, .handle = {.fd = fd}};
  CUDA(cuImportExternalSemaphore(&semaphore, &handle));
  return semaphore;
}

static void drop_shared(nw_runtime* runtime, int32_t id, Shared shared) {
  nw_error error;
  CUDA(cuMemFree(shared.cuda));
  CUDA(cuDestroyExternalMemory(shared.import));
  check(nw_free(runtime, (DLDevice){kDLVulkan, id}, shared.vulkan, NULL, &error), &error);
}

/* ---- memory of CUDA's ---- */

/* Vulkan's functions, of the device that Narrows works on. */
static struct {
  VkDevice device;
  VkPhysicalDeviceMemoryProperties memory;
  PFN_vkCreateBuffer vkCreateBuffer;
  PFN_vkGetBufferMemoryRequirements vkGetBufferMemoryRequirements;
  PFN_vkAllocateMemory vkAllocateMemory;
  PFN_vkBindBufferMemory vkBindBufferMemory;
  PFN_vkGetBufferDeviceAddress vkGetBufferDeviceAddress;
  PFN_vkDestroyBuffer vkDestroyBuffer;
  PFN_vkFreeMemory vkFreeMemory;
} vk;
#define VULKAN(call)                                                \
  do {                                                              \
    const VkResult result = vk.call;                                \
    if (result != VK_SUCCESS) {                                     \
      fprintf(stderr, "vulkan_cuda: %s: %d\n", #call, (int)result); \
      exit(1);                                                      \
    }                                                               \
  } while (0)

static void open_vulkan(const nw_vulkan* vulkan, int32_t id) {
  nw_error error;
  nw_vulkan_device found = {.struct_size = sizeof found};
  check(vulkan->device(vulkan->self, id, &found, &error), &error);
  vk.device = found.device;
  void* const library = dlopen("libvulkan.so.1", RTLD_NOW);
  if (library == NULL) skip("there is no libvulkan.so.1");
  PFN_vkGetInstanceProcAddr of_instance;
  void* const function = dlsym(library, "vkGetInstanceProcAddr");
  memcpy(&of_instance, &function, sizeof function);
  const PFN_vkGetDeviceProcAddr get = (PFN_vkGetDeviceProcAddr)of_instance(found.instance, "vkGetDeviceProcAddr");
  const PFN_vkGetPhysicalDeviceMemoryProperties memory =
      (PFN_vkGetPhysicalDeviceMemoryProperties)of_instance(found.instance, "vkGetPhysicalDeviceMemoryProperties");
  memory(found.physical_device, &vk.memory);
  vk.vkCreateBuffer = (PFN_vkCreateBuffer)get(vk.device, "vkCreateBuffer");
  vk.vkGetBufferMemoryRequirements = (PFN_vkGetBufferMemoryRequirements)get(vk.device, "vkGetBufferMemoryRequirements");
  vk.vkAllocateMemory = (PFN_vkAllocateMemory)get(vk.device, "vkAllocateMemory");
  vk.vkBindBufferMemory = (PFN_vkBindBufferMemory)get(vk.device, "vkBindBufferMemory");
  vk.vkGetBufferDeviceAddress = (PFN_vkGetBufferDeviceAddress)get(vk.device, "vkGetBufferDeviceAddress");
  vk.vkDestroyBuffer = (PFN_vkDestroyBuffer)get(vk.device, "vkDestroyBuffer");
  vk.vkFreeMemory = (PFN_vkFreeMemory)get(vk.device, "vkFreeMemory");
}

typedef struct {
  Shared shared; /* without an import: the memory is CUDA's */
  unsigned long long handle;
  size_t size;
  VkBuffer buffer;
  VkDeviceMemory memory;
} Brought;

/* The GPU's own memory, of which CUDA gives a file descriptor. */
static int create_in_cuda(Brought* brought, int gpu) {
  const CUmemAllocationProp kind = {.type = 1, .handles = 1, .location = {1, gpu}};
  const CUmemAccessDesc access = {{1, gpu}, 3};
  size_t unit = 0;
  int fd = -1;
  CUDA(cuMemGetAllocationGranularity(&unit, &kind, 0));
  brought->size = (COUNT * sizeof(float) + unit - 1) / unit * unit;
  CUDA(cuMemCreate(&brought->handle, brought->size, &kind, 0));
  CUDA(cuMemAddressReserve(&brought->shared.cuda, brought->size, 0, 0, 0));
  CUDA(cuMemMap(brought->shared.cuda, brought->size, 0, brought->handle, 0));
  CUDA(cuMemSetAccess(brought->shared.cuda, brought->size, &access, 1));
  CUDA(cuMemExportToShareableHandle(&fd, brought->handle, 1, 0));
  return fd;
}

/* The first type of the device's own that the buffer may lie in. */
static uint32_t own_type(uint32_t of_buffer) {
  for (uint32_t i = 0; i < vk.memory.memoryTypeCount; ++i)
    if ((of_buffer >> i & 1) && (vk.memory.memoryTypes[i].propertyFlags & VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT)) return i;
  skip("the GPU imports no memory of its own");
  return 0;
}

/* A buffer of the application's over that memory, which Narrows then takes tensors in. */
static Brought bring(const nw_vulkan* vulkan, int32_t id, int gpu) {
  Brought brought = {.buffer = VK_NULL_HANDLE};
  const int fd = create_in_cuda(&brought, gpu);
  const VkExternalMemoryBufferCreateInfo external = {.sType = VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO,
                                                     .handleTypes = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT};
  const VkBufferCreateInfo buffer = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                                     .pNext = &external,
                                     .size = brought.size,
                                     .usage = VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT | VK_BUFFER_USAGE_STORAGE_BUFFER_BIT |
                                              VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT};
  VULKAN(vkCreateBuffer(vk.device, &buffer, NULL, &brought.buffer));
  VkMemoryRequirements needs;
  vk.vkGetBufferMemoryRequirements(vk.device, brought.buffer, &needs);
  const VkMemoryAllocateFlagsInfo flags = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO,
                                           .flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT};
  const VkImportMemoryFdInfoKHR import = {.sType = VK_STRUCTURE_TYPE_IMPORT_MEMORY_FD_INFO_KHR,
                                          .pNext = &flags,
                                          .handleType = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT,
                                          .fd = fd}; /* which it takes over */
  const VkMemoryAllocateInfo memory = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                       .pNext = &import,
                                       .allocationSize = brought.size,
                                       .memoryTypeIndex = own_type(needs.memoryTypeBits)};
  VULKAN(vkAllocateMemory(vk.device, &memory, NULL, &brought.memory));
  VULKAN(vkBindBufferMemory(vk.device, brought.buffer, brought.memory, 0));
  const VkBufferDeviceAddressInfo of = {.sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO, .buffer = brought.buffer};
  const VkDeviceAddress address = vk.vkGetBufferDeviceAddress(vk.device, &of);
  brought.shared.vulkan = (void*)(uintptr_t)address;
  nw_error error;
  check(vulkan->add_memory(vulkan->self, id, (uint64_t)(uintptr_t)brought.buffer, address, brought.size, &error), &error);
  return brought;
}

static void take_back(const nw_vulkan* vulkan, int32_t id, Brought brought) {
  nw_error error;
  check(vulkan->remove_memory(vulkan->self, id, (uint64_t)(uintptr_t)brought.shared.vulkan, &error), &error);
  vk.vkDestroyBuffer(vk.device, brought.buffer, NULL);
  vk.vkFreeMemory(vk.device, brought.memory, NULL);
  CUDA(cuMemUnmap(brought.shared.cuda, brought.size));
  CUDA(cuMemAddressFree(brought.shared.cuda, brought.size));
  CUDA(cuMemRelease(brought.handle));
}

/* ---- the work ---- */

/* sum += term, on the device's default stream. */
static void add(nw_runtime* runtime, int32_t id, const Shared* sum, const Shared* term) {
  int64_t shape[1] = {COUNT};
  const DLTensor tensors[] = {{sum->vulkan, {kDLVulkan, id}, 1, {kDLFloat, 32, 1}, shape, NULL, 0},
                              {term->vulkan, {kDLVulkan, id}, 1, {kDLFloat, 32, 1}, shape, NULL, 0}};
  const DLTensor *inputs[] = {&tensors[0], &tensors[1]}, *outputs[] = {&tensors[0]};
  const nw_elementwise_params params = {.function = NW_EW_ADD};
  const nw_call call = {.struct_size = sizeof call,
                        .op = "elementwise",
                        .num_inputs = 2,
                        .inputs = inputs,
                        .num_outputs = 1,
                        .outputs = outputs,
                        .params = &params,
                        .params_size = sizeof params};
  nw_error error;
  check(nw_run(runtime, &call, &error), &error);
}

static void fill(const Shared* shared, float value, void* stream) {
  unsigned bits;
  memcpy(&bits, &value, sizeof bits);
  CUDA(cuMemsetD32Async(shared->cuda, bits, COUNT, stream));
}

/* Floats of `shared` that are others than `expected`, as CUDA reads them. */
static int count_wrong(const Shared* shared, float expected, void* stream) {
  float* const values = malloc(COUNT * sizeof(float));
  if (values == NULL) exit(1);
  CUDA(cuMemcpyDtoHAsync(values, shared->cuda, COUNT * sizeof(float), stream));
  CUDA(cuStreamSynchronize(stream));
  int wrong = 0;
  for (int i = 0; i < COUNT; ++i) wrong += values[i] != expected;
  free(values);
  return wrong;
}

typedef struct {
  nw_runtime* runtime;
  const nw_vulkan* vulkan;
  int32_t id;
  uint64_t timeline, reached; /* the semaphore for Vulkan, and its value */
  void* in_cuda;              /* for CUDA */
  void* stream;               /* CUDA's */
} Work;

/* A round: CUDA writes the term and sets the timeline to the next number; Vulkan adds and sets it to the one after that, for which
 * CUDA waits before it writes again. The host only puts all that on the two streams. Returns how many floats are wrong. */
static int take_turns(Work* w, const Shared* sum, const Shared* term) {
  nw_error error;
  float expected = 0;
  fill(sum, 0, w->stream);
  for (int round = 1; round <= ROUNDS; ++round) {
    const CUDA_EXTERNAL_SEMAPHORE_PARAMS written = {.value = ++w->reached}, added = {.value = ++w->reached};
    fill(term, (float)round, w->stream);
    CUDA(cuSignalExternalSemaphoresAsync(&w->in_cuda, &written, 1, w->stream));
    check(w->vulkan->stream_wait(w->vulkan->self, w->id, NULL, w->timeline, written.value, &error), &error);
    add(w->runtime, w->id, sum, term);
    check(w->vulkan->stream_signal(w->vulkan->self, w->id, NULL, w->timeline, added.value, &error), &error);
    CUDA(cuWaitExternalSemaphoresAsync(&w->in_cuda, &added, 1, w->stream));
    expected += (float)round;
  }
  const int wrong = count_wrong(sum, expected, w->stream);
  printf("1 + 2 + ... + %d = %g in %d of %d floats\n", ROUNDS, expected, COUNT - wrong, COUNT);
  return wrong;
}

static int in_memory_of_narrows(Work* w) {
  const Shared sum = make_shared(w->vulkan, w->id), term = make_shared(w->vulkan, w->id);
  printf("in memory of Narrows': ");
  const int wrong = take_turns(w, &sum, &term);
  nw_error error;
  check(nw_stream_sync(w->runtime, (DLDevice){kDLVulkan, w->id}, NULL, &error), &error);
  drop_shared(w->runtime, w->id, sum);
  drop_shared(w->runtime, w->id, term);
  return wrong;
}

static int in_memory_of_cuda(Work* w, int gpu) {
  open_vulkan(w->vulkan, w->id);
  const Brought sum = bring(w->vulkan, w->id, gpu), term = bring(w->vulkan, w->id, gpu);
  printf("in memory of CUDA's: ");
  const int wrong = take_turns(w, &sum.shared, &term.shared);
  nw_error error;
  check(nw_stream_sync(w->runtime, (DLDevice){kDLVulkan, w->id}, NULL, &error), &error);
  take_back(w->vulkan, w->id, sum);
  take_back(w->vulkan, w->id, term);
  return wrong;
}

int main(void) {
  open_cuda();
  Work w = {.runtime = NULL};
  nw_error error;
  check(nw_runtime_create(NULL, &w.runtime, &error), &error);
  w.vulkan = nw_extension(w.runtime, "vulkan", "vulkan/1");
  if (w.vulkan == NULL) skip("the vulkan backend is not here");
  const int gpu = find_gpu(w.runtime, &w.id);
  void* context = NULL;
  CUDA(cuDevicePrimaryCtxRetain(&context, gpu));
  CUDA(cuCtxSetCurrent(context));
  CUDA(cuStreamCreate(&w.stream, 1 /* CU_STREAM_NON_BLOCKING */));
  int32_t fd = -1;
  check(w.vulkan->semaphore_create(w.vulkan->self, w.id, &w.timeline, &fd, &error), &error);
  w.in_cuda = import_semaphore(fd);

  int wrong = in_memory_of_narrows(&w);
  wrong += in_memory_of_cuda(&w, gpu);

  CUDA(cuDestroyExternalSemaphore(w.in_cuda));
  CUDA(cuStreamDestroy(w.stream));
  check(w.vulkan->semaphore_destroy(w.vulkan->self, w.id, w.timeline, &error), &error);
  CUDA(cuDevicePrimaryCtxRelease(gpu));
  nw_runtime_destroy(w.runtime);
  return wrong != 0;
}
