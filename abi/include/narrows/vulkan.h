/* vulkan.h -- the vulkan backend beyond the ABI: its Vulkan objects, and an application's own device, memory and semaphores.
 *   const nw_vulkan* vulkan = nw_extension(rt, "vulkan", "vulkan/1");
 * Vulkan's handles stand here as what they are on a 64-bit machine: dispatchable ones (VkInstance, VkPhysicalDevice, VkDevice,
 * VkQueue) as void*, all others (VkBuffer, VkSemaphore) as uint64_t. docs/vulkan.md has the conventions and an example.
 * Growth, borrowing and thread rules: abi.h. */
#ifndef NARROWS_VULKAN_H
#define NARROWS_VULKAN_H

#include <narrows/abi.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A device, and the queue that work is put on. */
typedef struct nw_vulkan_device {
  uint32_t struct_size;
  uint32_t queue_family;  /* of the queue; it can compute */
  void* instance;         /* VkInstance */
  void* physical_device;  /* VkPhysicalDevice */
  void* device;           /* VkDevice */
  void* queue;            /* VkQueue */
  const void* features;   /* the VkPhysicalDeviceFeatures2 with which the device was made, with Vulkan11Features and Vulkan12Features
                           * in its chain: a feature that stands in none is taken for off. Borrowed during the call */
  void* lock_ctx;         /* first argument of the next two */
  void (*lock)(void* lock_ctx);   /* around every use of the queue; NULL: no other thread uses it while a call of Narrows runs */
  void (*unlock)(void* lock_ctx); /* NULL exactly when lock is */
} nw_vulkan_device;

/* The extension. Every slot takes `self`, is thread-safe, returns a status and fills `error`, which may be NULL, on failure.
 * `stream` is a stream of the device; NULL: its default stream. */
typedef struct nw_vulkan {
  uint32_t struct_size;
  uint32_t flags; /* 0 */
  void* self;

  /* The Vulkan objects behind a device_id, alive as long as the runtime. features, lock and unlock are NULL: the queue of an own
   * device is the backend's alone. */
  int32_t (*device)(void* self, int32_t device_id, nw_vulkan_device* out, nw_error* error);
  /* The application's device becomes one more device of the backend, with a device_id of its own. Its objects stay the
   * application's, and outlive it there. */
  int32_t (*adopt_device)(void* self, const nw_vulkan_device* device, int32_t* device_id, nw_error* error);
  /* Waits for the calls under way on it and for what is on its streams, and lets go of it. Later calls for that device_id, this one
   * too, are refused, as are launches of its plans; ids are not used again. */
  int32_t (*release_device)(void* self, int32_t device_id, nw_error* error);

  /* Memory of the application: [address, address + size) of `buffer`, whose device address is `address`, may hold tensors from now
   * on. The buffer was made with SHADER_DEVICE_ADDRESS, STORAGE_BUFFER, TRANSFER_SRC and TRANSFER_DST usage. Not for nw_free. A
   * range of which a byte is memory of the device already is refused. */
  int32_t (*add_memory)(void* self, int32_t device_id, uint64_t buffer, uint64_t address, uint64_t size, nw_error* error);
  /* No work uses it any more: the caller has seen to that. */
  int32_t (*remove_memory)(void* self, int32_t device_id, uint64_t address, nw_error* error);
  /* Host memory that the device reads and writes in place; pointer and size are multiples of the device's
   * minImportedHostPointerAlignment. `data` is freed by nw_free; the memory stays the caller's, and outlives it. Where a device gives
   * it the address that it has on the host, bytes that are imported already are refused. */
  int32_t (*import_host)(void* self, int32_t device_id, void* pointer, uint64_t size, void** data, nw_error* error);
  /* Memory as of nw_alloc that other APIs can have: `fd`, the caller's, is an opaque file descriptor of `allocation_size` bytes
   * which begin with the tensor's. `data` is freed by nw_free. */
  int32_t (*alloc_exportable)(void* self, int32_t device_id, uint64_t size, void** data, int32_t* fd, uint64_t* allocation_size,
                              nw_error* error);

  /* What is on the stream now is done when the timeline semaphore, the stream's own, has reached `value`. Submits it. */
  int32_t (*stream_point)(void* self, int32_t device_id, void* stream, uint64_t* semaphore, uint64_t* value, nw_error* error);
  /* Sets a timeline semaphore to `value` when what is on the stream now is done. Submits it. Refused where the semaphore has reached
   * that already; that it will not have by then is the caller's to see to. Who waits for it waits for the semaphore: nw_stream_sync
   * may come back a moment before. */
  int32_t (*stream_signal)(void* self, int32_t device_id, void* stream, uint64_t semaphore, uint64_t value, nw_error* error);
  /* What is put on the stream from now on waits until the timeline semaphore has reached `value`. It outlives that. */
  int32_t (*stream_wait)(void* self, int32_t device_id, void* stream, uint64_t semaphore, uint64_t value, nw_error* error);
  /* A timeline semaphore that other APIs can have, by `fd`, an opaque file descriptor of the caller's. */
  int32_t (*semaphore_create)(void* self, int32_t device_id, uint64_t* semaphore, int32_t* fd, nw_error* error);
  int32_t (*semaphore_destroy)(void* self, int32_t device_id, uint64_t semaphore, nw_error* error);
} nw_vulkan;

#ifdef __cplusplus
}
#endif
#endif
