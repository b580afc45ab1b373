/* plugin.h -- the table behind the one symbol that a plugin exports. Step 4 of a tensor's path.
 * A plugin needs this header, abi.h, dlpack.h and, for the built-in ops, ops.h. It links nothing of Narrows.
 * Growth, borrowing and thread rules: abi.h. docs/abi.md has a plugin's life from query to destroy. */
#ifndef NARROWS_PLUGIN_H
#define NARROWS_PLUGIN_H

#include <narrows/abi.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Severity of a log message. */
#define NW_LOG_DEBUG 0
#define NW_LOG_INFO 1
#define NW_LOG_WARNING 2
#define NW_LOG_ERROR 3

/* What the host offers to an instance. Outlives the instance; no slot is NULL; every slot is thread-safe. */
typedef struct nw_host {
  uint32_t struct_size;
  uint32_t num_threads; /* the most threads that one parallel_for uses, the caller's own included; >= 1 */
  void* ctx;            /* first argument of the slots */
  void (*log)(void* ctx, int32_t level, const char* message);
  /* Runs body over pieces of [0, n), each at least `grain` long but the last (grain < 1 is read as 1), and returns when all
   * are done. Nested, or in a host that is busy, it runs serially. body may not throw and must not depend on how [0, n) is
   * cut: reductions go by shapes alone, and scratch is a range of num_threads slots at grain 1, each its own slice of the
   * workspace. */
  void (*parallel_for)(void* ctx, int64_t n, int64_t grain, void (*body)(void* arg, int64_t begin, int64_t end), void* arg);
} nw_host;

/* The plugin. Constant data. Every slot takes the instance that create() made, returns a status and fills `error` on failure. */
typedef struct nw_plugin {
  uint32_t struct_size;
  uint32_t abi_major;       /* NW_ABI_MAJOR at the plugin's build */
  const char* name;         /* "cpu"; the first plugin found of a name shadows the others */
  const char* version;      /* the plugin's own */
  int32_t device_type;      /* DLDeviceType served */
  int32_t pinned_type;      /* DLDeviceType of pinned host memory it can address; 0: none */
  int32_t managed_type;     /* DLDeviceType of managed memory it can address; 0: none */
  uint32_t num_ops;
  const nw_op* const* ops;  /* num_ops declarations */

  /* Opens drivers and devices; NW_UNAVAILABLE says what to install. `host` outlives the instance. Called once per runtime. */
  int32_t (*create)(const nw_host* host, void** self, nw_error* error);
  /* Every stream is idle and every plan freed when this is called. */
  void (*destroy)(void* self);

  int32_t (*device_count)(void* self, int32_t* count, nw_error* error);
  int32_t (*device_info)(void* self, int32_t device_id, nw_device_info* out, nw_error* error);

  /* Memory in the DLTensor.data convention of device_type, 256-byte aligned, ordered on `stream`. size 0 gives NULL.
   * alloc returns NW_NOT_CAPTURABLE while its stream is being captured. */
  int32_t (*alloc)(void* self, int32_t device_id, uint64_t size, void* stream, void** data, nw_error* error);
  int32_t (*free)(void* self, int32_t device_id, void* data, void* stream, nw_error* error); /* data may be NULL */
  /* size contiguous bytes; done when it returns if either side is host memory, else ordered on `stream`. */
  int32_t (*copy)(void* self, DLDevice to, void* dst, DLDevice from, const void* src, uint64_t size, void* stream,
                  nw_error* error);

  /* Streams. On the CPU the only stream is NULL: create gives it, sync and wait succeed. */
  int32_t (*stream_create)(void* self, int32_t device_id, void** stream, nw_error* error);
  int32_t (*stream_destroy)(void* self, int32_t device_id, void* stream, nw_error* error);
  int32_t (*stream_sync)(void* self, int32_t device_id, void* stream, nw_error* error);
  /* What is put on `waiter` from now on waits for what is on `signaler` now; the host does not wait. */
  int32_t (*stream_wait)(void* self, int32_t device_id, void* waiter, void* signaler, nw_error* error);

  /* Outputs of an op of the plugin's own: of one without a shape_rule all, of one with a shape_rule the dtypes alone (for that,
   * NW_UNSUPPORTED leaves input 0's dtype). A pure function of the signature, which holds inputs only. May be NULL. */
  int32_t (*infer)(void* self, const nw_sig* inputs_only, nw_spec* outputs, uint32_t num_outputs, nw_error* error);

  /* A pure function of the signature. plan == NULL asks "would you?" only, and `info` may then be NULL. A plan is immutable
   * host memory: what the device needs (modules, pipelines, packed tables) belongs to the instance and lives until destroy,
   * so that freeing a plan is safe while it runs or stands in a captured graph. Kernels are loaded here, not at launch. */
  int32_t (*plan)(void* self, const nw_sig* sig, void** plan, nw_plan_info* info, nw_error* error);
  void (*plan_free)(void* self, void* plan);
  /* `call` fits the plan and `call->workspace` is large enough: the host saw to both. Does not allocate or synchronise, and
   * leaves the caller's current device, last-error state and contexts as they were. */
  int32_t (*launch)(void* self, const void* plan, const nw_call* call, nw_error* error);

  /* "vulkan/1", ...: a struct that begins with struct_size, alive as long as the instance; NULL: unknown. May itself be NULL. */
  const void* (*extension)(void* self, const char* name);
} nw_plugin;

/* The one symbol that a plugin exports, and its type. Pure: touches no device, host or thread, may be called again, and gives
 * the same constant table; or NULL and the reason when a host of `host_major` cannot be served. */
#define NW_PLUGIN_QUERY "narrows_plugin_query"
typedef const nw_plugin* (*nw_plugin_query_fn)(uint32_t host_major, nw_error* error);
#if defined(__GNUC__)
__attribute__((visibility("default")))
#endif
const nw_plugin* narrows_plugin_query(uint32_t host_major, nw_error* error);

#ifdef __cplusplus
}
#endif
#endif
