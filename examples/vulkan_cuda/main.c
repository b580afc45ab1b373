/* One GPU, CUDA and Vulkan on the same bytes: Narrows allocates memory and a timeline semaphore for others, CUDA maps both, writes,
 * and reads what Vulkan's op has made of it. Nothing is copied, and the host waits once, at the end. CUDA's driver is opened at run
 * time, so no toolkit is needed. Exit code 77: there is no GPU here that both drivers see.
 *   cc -std=c99 -Wall -Wextra main.c -o vulkan_cuda $(pkg-config --cflags --libs narrows) -ldl && ./vulkan_cuda */
#include <dlfcn.h>
#include <narrows/narrows.h>
#include <narrows/ops.h>
#include <narrows/vulkan.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
                   {"cuMemFree_v2", &cuda.cuMemFree}};
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

int main(void) {
  open_cuda();
  nw_runtime* runtime = NULL;
  nw_error error;
  check(nw_runtime_create(NULL, &runtime, &error), &error);
  const nw_vulkan* const vulkan = nw_extension(runtime, "vulkan", "vulkan/1");
  if (vulkan == NULL) skip("the vulkan backend is not here");
  int32_t id = 0;
  const int gpu = find_gpu(runtime, &id);
  void *context = NULL, *stream = NULL;
  CUDA(cuDevicePrimaryCtxRetain(&context, gpu));
  CUDA(cuCtxSetCurrent(context));
  CUDA(cuStreamCreate(&stream, 1 /* CU_STREAM_NON_BLOCKING */));

  const Shared sum = make_shared(vulkan, id), term = make_shared(vulkan, id);
  uint64_t timeline = 0;
  int32_t fd = -1;
  check(vulkan->semaphore_create(vulkan->self, id, &timeline, &fd, &error), &error);
  void* const in_cuda = import_semaphore(fd);

  /* A round: CUDA writes the term and sets the timeline to an odd number; Vulkan adds and sets it to the next one, for which CUDA
   * waits before it writes again. The host only puts all that on the two streams. */
  fill(&sum, 0, stream);
  float expected = 0;
  for (int round = 1; round <= ROUNDS; ++round) {
    const CUDA_EXTERNAL_SEMAPHORE_PARAMS written = {.value = 2 * (unsigned)round - 1}, added = {.value = 2 * (unsigned)round};
    fill(&term, (float)round, stream);
    CUDA(cuSignalExternalSemaphoresAsync(&in_cuda, &written, 1, stream));
    check(vulkan->stream_wait(vulkan->self, id, NULL, timeline, written.value, &error), &error);
    add(runtime, id, &sum, &term);
    check(vulkan->stream_signal(vulkan->self, id, NULL, timeline, added.value, &error), &error);
    CUDA(cuWaitExternalSemaphoresAsync(&in_cuda, &added, 1, stream));
    expected += (float)round;
  }
  const int wrong = count_wrong(&sum, expected, stream);
  printf("1 + 2 + ... + %d = %g in %d of %d floats\n", ROUNDS, expected, COUNT - wrong, COUNT);

  CUDA(cuDestroyExternalSemaphore(in_cuda));
  CUDA(cuStreamDestroy(stream));
  check(nw_stream_sync(runtime, (DLDevice){kDLVulkan, id}, NULL, &error), &error);
  check(vulkan->semaphore_destroy(vulkan->self, id, timeline, &error), &error);
  drop_shared(runtime, id, sum);
  drop_shared(runtime, id, term);
  CUDA(cuDevicePrimaryCtxRelease(gpu));
  nw_runtime_destroy(runtime);
  return wrong != 0;
}
