/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file vulkan.h
 * @brief The vulkan backend beside an application that has Vulkan objects of its own, and beside
 * plugins that have kernels of their own.
 *
 * With it an application shares its device, memory and semaphores with Narrows. It can also have
 * those of the backend:
 *
 * @code{.c}
 * const nw_vulkan* vulkan = nw_extension(rt, "vulkan", "vulkan/1");
 * int32_t device_id = 0;
 * if (vulkan != NULL) vulkan->adopt_device(vulkan->self, &my_device, &device_id, &error);
 * @endcode
 *
 * This header does not include Vulkan's. A dispatchable handle (VkInstance, VkPhysicalDevice,
 * VkDevice, VkQueue) is a `void*` here. Any other handle (VkBuffer, VkSemaphore) is a uint64_t.
 * That is what they are on a 64-bit machine.
 *
 * docs/vulkan.md has the conventions and an example. The rules for growth, borrowing, threads and
 * NULL are in abi.h.
 */
#ifndef NARROWS_VULKAN_H
#define NARROWS_VULKAN_H

#include <narrows/abi.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * @defgroup vulkan Vulkan
 * @{
 */

/** A Vulkan device, and the queue that work is put on. */
typedef struct nw_vulkan_device {
  /** sizeof(nw_vulkan_device), set by whoever allocates it. */
  uint32_t struct_size;
  /** Family of the queue. The queue can compute. */
  uint32_t queue_family;
  /** The VkInstance. */
  void* instance;
  /** The VkPhysicalDevice. */
  void* physical_device;
  /** The VkDevice. */
  void* device;
  /** The VkQueue. */
  void* queue;
  /**
   * The VkPhysicalDeviceFeatures2 with which the device was made, borrowed during the call.
   *
   * Its chain holds VkPhysicalDeviceVulkan11Features and VkPhysicalDeviceVulkan12Features. A
   * feature that none of the structs names is taken to be off.
   */
  const void* features;
  /** First argument of `lock` and `unlock`. May be NULL. */
  void* lock_ctx;
  /**
   * Called before every use of the queue.
   *
   * NULL: no other thread uses the queue while a call of Narrows runs.
   */
  void (*lock)(void* lock_ctx);
  /** Called after every use of the queue. NULL exactly when `lock` is NULL. */
  void (*unlock)(void* lock_ctx);
} nw_vulkan_device;

/**
 * The extension "vulkan/1", as nw_extension() returns it.
 *
 * Every slot takes `self` first. Any thread may call it. It returns a status, and fills in `error`
 * on failure; `error` may be NULL. A `stream` is a stream of the device. NULL: its default stream.
 */
typedef struct nw_vulkan {
  /** sizeof(nw_vulkan) on the backend's side. */
  uint32_t struct_size;
  /** 0: no flag is defined. */
  uint32_t flags;
  /** First argument of the slots. */
  void* self;

  /**
   * Gives the Vulkan objects behind a `device_id`. They live as long as the runtime.
   *
   * The caller sets the `struct_size` of `out`. `features`, `lock` and `unlock` become NULL: only
   * the backend may use the queue of its own device.
   */
  int32_t (*device)(void* self, int32_t device_id, nw_vulkan_device* out, nw_error* error);
  /**
   * Makes the application's device one more device of the backend, and gives its `device_id`.
   *
   * The application keeps the Vulkan objects. They must outlive the device of the backend.
   */
  int32_t (*adopt_device)(void* self, const nw_vulkan_device* device, int32_t* device_id,
                          nw_error* error);
  /**
   * Lets go of an adopted device.
   *
   * It first waits for running calls on the device and for what is on its streams. Later calls for
   * that `device_id` are refused, and so are launches of its plans. A second release is refused
   * too. The number is not used again.
   */
  int32_t (*release_device)(void* self, int32_t device_id, nw_error* error);

  /**
   * Makes memory of the application known: from now on, tensors may be in
   * [address, address + size) of `buffer`.
   *
   * `address` is the buffer's device address. The buffer was made with the usage
   * SHADER_DEVICE_ADDRESS, STORAGE_BUFFER, TRANSFER_SRC and TRANSFER_DST. If a byte of the range is
   * memory of the device already, the call is refused. Do not give this memory to nw_free().
   */
  int32_t (*add_memory)(void* self, int32_t device_id, uint64_t buffer, uint64_t address,
                        uint64_t size, nw_error* error);
  /** Undoes `add_memory`. The caller makes sure that no work uses the memory any more. */
  int32_t (*remove_memory)(void* self, int32_t device_id, uint64_t address, nw_error* error);
  /**
   * Lets the device read and write host memory in place. `data` is its address for tensors.
   *
   * `pointer` and `size` are multiples of the device's minImportedHostPointerAlignment. nw_free()
   * frees `data`. The memory stays the caller's, and must outlive `data`.
   *
   * A device may give the memory the address that it has on the host. If such a device has a byte
   * of it imported already, the call is refused.
   */
  int32_t (*import_host)(void* self, int32_t device_id, void* pointer, uint64_t size, void** data,
                         nw_error* error);
  /**
   * Allocates memory like nw_alloc() that other APIs can import. nw_free() frees `data`.
   *
   * `fd` is an opaque file descriptor that the caller owns. It stands for `allocation_size` bytes,
   * which begin with the tensor's.
   */
  int32_t (*alloc_exportable)(void* self, int32_t device_id, uint64_t size, void** data,
                              int32_t* fd, uint64_t* allocation_size, nw_error* error);

  /**
   * Submits what is on the stream, and says how to wait for it.
   *
   * It is done when `semaphore` has reached `value`. `semaphore` is the stream's own timeline
   * semaphore.
   */
  int32_t (*stream_point)(void* self, int32_t device_id, void* stream, uint64_t* semaphore,
                          uint64_t* value, nw_error* error);
  /**
   * Submits what is on the stream, and sets a timeline semaphore to `value` when it is done.
   *
   * If the semaphore has reached `value` already, the call is refused. The caller makes sure that
   * nothing else takes it there before. To wait for the value, wait for the semaphore itself:
   * nw_stream_sync() may return a moment earlier.
   */
  int32_t (*stream_signal)(void* self, int32_t device_id, void* stream, uint64_t semaphore,
                           uint64_t value, nw_error* error);
  /**
   * Makes what is put on the stream from now on wait until a timeline semaphore reaches `value`.
   *
   * The semaphore must live until then.
   */
  int32_t (*stream_wait)(void* self, int32_t device_id, void* stream, uint64_t semaphore,
                         uint64_t value, nw_error* error);
  /**
   * Makes a timeline semaphore that other APIs can import.
   *
   * `fd` is an opaque file descriptor that the caller owns.
   */
  int32_t (*semaphore_create)(void* self, int32_t device_id, uint64_t* semaphore, int32_t* fd,
                              nw_error* error);
  /** Destroys a semaphore of `semaphore_create`. */
  int32_t (*semaphore_destroy)(void* self, int32_t device_id, uint64_t semaphore, nw_error* error);
} nw_vulkan;

/** In nw_vulkan_dispatch.flags: it does not wait for the dispatches before it in its launch. */
#define NW_VULKAN_UNORDERED 1

/** A dispatch of nw_vulkan_kernels.launch. */
typedef struct nw_vulkan_dispatch {
  /** sizeof(nw_vulkan_dispatch), set by whoever allocates it. */
  uint32_t struct_size;
  /** #NW_VULKAN_UNORDERED, or 0. */
  uint32_t flags;
  /** What nw_vulkan_kernels.module gave. */
  const void* module;
  /** Values of the specialization constants 0, 1, 2, ... NULL if there are none. */
  const uint32_t* constants;
  /** The push constants. NULL if there are none. */
  const void* push;
  /** Length of `constants`: at most 16. Those that are not given keep their defaults. */
  uint32_t num_constants;
  /** Bytes at `push`: a multiple of 4, at most 128. */
  uint32_t push_size;
  /** Work groups along x, y and z. If one is 0, nothing runs. */
  uint32_t groups[3];
  /** 0. */
  uint32_t reserved;
} nw_vulkan_dispatch;

struct nw_plugin;

/**
 * The extension "vulkan_kernels/1": kernels of other plugins on the backend's devices.
 *
 * A plugin has it by nw_host.extension. plugin_vulkan.hpp of the C++ kit makes such a plugin. Any
 * thread may call the slots. They return a status, and fill in `error` on failure; `error` may be
 * NULL.
 */
typedef struct nw_vulkan_kernels {
  /** sizeof(nw_vulkan_kernels) on the backend's side. */
  uint32_t struct_size;
  /** 0: no flag is defined. */
  uint32_t flags;
  /** First argument of the slots here, and of those of `plugin`. */
  void* self;
  /** The backend's table. Its slots for devices, memory and streams are there to be passed on. */
  const struct nw_plugin* plugin;
  /**
   * Gives a handle of a SPIR-V module, which is copied. Same words, same handle. It lives as long
   * as the runtime.
   *
   * The module is a compute shader with an entry point `main`. It has no descriptors: tensors come
   * as addresses in the push constants (GL_EXT_buffer_reference). What is no such module is
   * #NW_INVALID.
   *
   * @param self   The field of that name.
   * @param words  The module.
   * @param size   Bytes at `words`: a multiple of 4.
   * @param out    The handle.
   * @param error  May be NULL.
   */
  int32_t (*module)(void* self, const uint32_t* words, uint64_t size, const void** out,
                    nw_error* error);
  /**
   * Puts dispatches on the stream of a call, for nw_plugin.launch. Each waits for what is on the
   * stream before it, unless it is #NW_VULKAN_UNORDERED. All are put there, or none.
   *
   * The tensors and the workspace of the call must lie in live allocations of its device. A module
   * that needs what the device lacks is #NW_UNSUPPORTED.
   *
   * @param self        The field of that name.
   * @param call        The call.
   * @param dispatches  The dispatches, borrowed during the call.
   * @param count       Length of `dispatches`.
   * @param error       May be NULL.
   */
  int32_t (*launch)(void* self, const nw_call* call, const nw_vulkan_dispatch* const* dispatches,
                    uint32_t count, nw_error* error);
} nw_vulkan_kernels;

/** @} */

#ifdef __cplusplus
}
#endif
#endif
