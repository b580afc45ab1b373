/* narrows.h -- the host's API, exported by libnarrows.so.1. Step 1 of a tensor's path: what a caller includes.
 * Growth, borrowing and thread rules: abi.h. Every function may be called from any thread; `error` may always be NULL.
 * Functions that return int32_t give a status (NW_OK ...); outputs are written on NW_OK only. */
#ifndef NARROWS_NARROWS_H
#define NARROWS_NARROWS_H

#include <narrows/abi.h>
#include <narrows/ops.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define NW_API __attribute__((visibility("default")))
#else
#define NW_API
#endif

/* A set of loaded plugins, their instances, one thread pool and one plan cache. Several may live in one process. */
typedef struct nw_runtime nw_runtime;
/* A planned call, reference-counted, usable by many threads at once. */
typedef struct nw_plan nw_plan;

typedef struct nw_options {
  uint32_t struct_size;
  uint32_t num_threads;    /* of the pool, the caller's own included; 0: NARROWS_NUM_THREADS, else the affinity mask's */
  const char* plugin_path; /* absolute folders, ':' between; NULL: NARROWS_PLUGIN_PATH. Search order: nw_load (latest first),
                            * this path, narrows/backends beside libnarrows; by file name within a folder */
  void (*log)(void* ctx, int32_t level, const char* message); /* called from any thread; NULL: stderr, warnings and errors. It may
                            * not call what opens a plugin or plans: a plugin that is being created or asked may be what logs */
  void* log_ctx;           /* first argument of log; may be NULL */
  uint32_t plan_cache_capacity; /* plans kept; 0: 1024 */
  uint32_t flags;          /* 0 */
} nw_options;

/* One plugin file that was found. Strings live as long as the runtime. Written by the callee. */
typedef struct nw_backend_info {
  uint32_t struct_size;
  int32_t status;       /* NW_OK; NW_UNAVAILABLE: a library or driver that it needs is missing; NW_INVALID, NW_UNSUPPORTED: the
                         * file was refused; else what its create() returned */
  const char* name;     /* "" when the file was refused before its name was known */
  const char* version;  /* likewise */
  const char* path;
  const char* reason;   /* why status is not NW_OK, or what shadows this plugin; "" otherwise */
  int32_t device_type;  /* DLDeviceType; 0: unknown */
  int32_t device_count;
  uint32_t num_ops;
  uint32_t flags;       /* NW_BACKEND_* */
  const nw_op* const* ops;
} nw_backend_info;
#define NW_BACKEND_SHADOWED 1 /* a plugin of this name was found earlier; this one is not used */

NW_API uint32_t nw_abi_major(void);
NW_API const char* nw_version(void);                   /* of the library: "0.1.0"; static */
NW_API const char* nw_status_name(int32_t status);     /* "invalid", ...; static, never NULL */

/* options may be NULL: all defaults. A plugin that is refused does not fail this call: see nw_backend. */
NW_API int32_t nw_runtime_create(const nw_options* options, nw_runtime** out, nw_error* error);
/* rt may be NULL. The caller has synchronised its streams and released its plans, and no other call is under way. */
NW_API void nw_runtime_destroy(nw_runtime* rt);

/* Loads one more plugin, ahead of those present. A refused one is an error here, and is listed by nw_backend too. Before it serves
 * a device, memory and streams of that device go back to the plugin that made them: afterwards they would go to this one. */
NW_API int32_t nw_load(nw_runtime* rt, const char* absolute_path, nw_error* error);
NW_API uint32_t nw_backend_count(nw_runtime* rt);
/* index < nw_backend_count, in search order. Creates the instance if that was not done before. */
NW_API int32_t nw_backend(nw_runtime* rt, uint32_t index, nw_backend_info* out, nw_error* error);
NW_API int32_t nw_device(nw_runtime* rt, DLDevice device, nw_device_info* out, nw_error* error);
/* The declaration by which the op is called; lives as long as the runtime. Its `kernels` is NULL: each plugin's own are in
 * nw_backend_info.ops. */
NW_API int32_t nw_find_op(nw_runtime* rt, const char* name, const nw_op** out, nw_error* error);
/* A plugin's extension struct, alive as long as the runtime; NULL: no such backend or extension. */
NW_API const void* nw_extension(nw_runtime* rt, const char* backend, const char* name);

/* Validates, plans (or finds the plan in the cache) and launches. */
NW_API int32_t nw_run(nw_runtime* rt, const nw_call* call, nw_error* error);

/* The outputs that a call needs. Reads the inputs' device, dtype, shape, strides; data, outputs, stream are ignored. */
NW_API int32_t nw_infer(nw_runtime* rt, const nw_call* call, nw_spec* outputs, uint32_t num_outputs, nw_error* error);
/* As nw_run without the launch; of data only the alignment is used, and which tensors overlap, and memory is not touched. out == NULL: would it run, and
 * if not why? `info` may be NULL. The plan belongs to the caller until nw_plan_release, and not beyond nw_runtime_destroy. */
NW_API int32_t nw_plan_get(nw_runtime* rt, const nw_call* call, nw_plan** out, nw_plan_info* info, nw_error* error);
/* NW_INVALID if the call does not fit the plan: tensors may be aligned better than planned, all else is as it was, but for
 * NW_FITS, which has this taken for true. */
NW_API int32_t nw_launch(const nw_plan* plan, const nw_call* call, nw_error* error);
NW_API void nw_plan_release(nw_plan* plan); /* may be NULL; once every nw_launch of it has returned, though a device runs it yet */
NW_API void nw_plan_cache_clear(nw_runtime* rt);

/* Memory and streams of a device, by the first plugin that serves its type. See nw_plugin for each. */
NW_API int32_t nw_alloc(nw_runtime* rt, DLDevice device, uint64_t size, void* stream, void** data, nw_error* error);
NW_API int32_t nw_free(nw_runtime* rt, DLDevice device, void* data, void* stream, nw_error* error);
NW_API int32_t nw_copy(nw_runtime* rt, DLDevice to, void* dst, DLDevice from, const void* src, uint64_t size, void* stream,
                       nw_error* error);
NW_API int32_t nw_stream_create(nw_runtime* rt, DLDevice device, void** stream, nw_error* error);
NW_API int32_t nw_stream_destroy(nw_runtime* rt, DLDevice device, void* stream, nw_error* error);
NW_API int32_t nw_stream_sync(nw_runtime* rt, DLDevice device, void* stream, nw_error* error);
NW_API int32_t nw_stream_wait(nw_runtime* rt, DLDevice device, void* waiter, void* signaler, nw_error* error);

#ifdef __cplusplus
}
#endif
#endif
