/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file narrows.h
 * @brief The host's API, exported by libnarrows.so.1. This is what a caller includes.
 *
 * @code{.c}
 * nw_error error;
 * nw_runtime* rt = NULL;
 * if (nw_runtime_create(NULL, &rt, &error) != NW_OK) {
 *   fprintf(stderr, "%s\n", error.message);
 *   return 1;
 * }
 * nw_run(rt, &call, &error); // abi.h shows how a call is filled in
 * nw_runtime_destroy(rt);
 * @endcode
 * This is step 1 of a tensor's path in docs/design.md.
 * The rules for growth, borrowing, threads and NULL are in abi.h. These hold for every function:
 *
 * - Any thread may call it at any time.
 * - A function that returns int32_t returns a status: #NW_OK, or why it failed.
 * - Outputs are written on #NW_OK only.
 * - `error` may be NULL. On failure it receives the reason.
 */
#ifndef NARROWS_NARROWS_H
#define NARROWS_NARROWS_H

#include <narrows/abi.h>
#include <narrows/ops.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
/** Marks a function that libnarrows exports. */
#define NW_API __attribute__((visibility("default")))
#else
#define NW_API
#endif

/**
 * @defgroup runtime Runtime
 * @{
 */

/**
 * A set of loaded plugins with their instances, one thread pool and one plan cache.
 *
 * One process may have several.
 */
typedef struct nw_runtime nw_runtime;

/** @} */

/**
 * @addtogroup plans
 * @{
 */

/** A planned call. It is reference-counted, and many threads may use it at once. */
typedef struct nw_plan nw_plan;

/** @} */

/**
 * @addtogroup runtime
 * @{
 */

/** How nw_runtime_create() makes a runtime. In every field 0 or NULL is the default. */
typedef struct nw_options {
  /** sizeof(nw_options), set by the caller. */
  uint32_t struct_size;
  /**
   * Threads of the pool, the caller's own included. More than 1024 are read as 1024.
   *
   * 0: the smallest of the number in NARROWS_NUM_THREADS, the number in OMP_NUM_THREADS, the size
   * of the affinity mask, and the CPU quota of the process's cgroups, rounded up.
   */
  uint32_t num_threads;
  /**
   * Folders to search for plugins: absolute paths with ':' between them. NULL: the folders in
   * NARROWS_PLUGIN_PATH.
   *
   * Plugins are searched in this order: those of nw_load(), the latest first; those in these
   * folders; those in `narrows/backends` beside libnarrows; those of nw_load_behind(), the latest
   * last. Within a folder they go by file name.
   */
  const char* plugin_path;
  /**
   * Receives log messages. `level` is one of NW_LOG_DEBUG to NW_LOG_ERROR of plugin.h. NULL:
   * warnings and errors go to stderr.
   *
   * Any thread may call it, also while a plugin is being created or asked. So it must not call a
   * function that opens a plugin or plans.
   */
  void (*log)(void* ctx, int32_t level, const char* message);
  /** First argument of `log`. May be NULL. */
  void* log_ctx;
  /** How many plans the cache keeps. 0: 1024. */
  uint32_t plan_cache_capacity;
  /** 0: no flag is defined. */
  uint32_t flags;
} nw_options;

/**
 * One plugin file that was found. The caller allocates it and sets `struct_size`. nw_backend()
 * writes it.
 *
 * The strings and declarations live as long as the runtime.
 */
typedef struct nw_backend_info {
  /** sizeof(nw_backend_info), set by the caller. */
  uint32_t struct_size;
  /**
   * Whether the plugin can be used.
   *
   * - #NW_OK: it can.
   * - #NW_UNAVAILABLE: a library or driver that it needs is missing.
   * - #NW_INVALID or #NW_UNSUPPORTED: the file was refused.
   * - Another status: what nw_plugin.create returned.
   */
  int32_t status;
  /** Name of the plugin. "" if the file was refused before its name was known. */
  const char* name;
  /** The plugin's own version. "" if the file was refused before it was known. */
  const char* version;
  /** Path of the file. */
  const char* path;
  /**
   * Why `status` is not #NW_OK; which file shadows this plugin; or which of its ops are left out,
   * because this host lacks the built-in ops of these names. Otherwise "".
   */
  const char* reason;
  /** The DLDeviceType that the plugin serves. 0: unknown. */
  int32_t device_type;
  /** Number of its devices. */
  int32_t device_count;
  /** Length of `ops`. */
  uint32_t num_ops;
  /** #NW_BACKEND_SHADOWED, or 0. */
  uint32_t flags;
  /** The plugin's own declarations of its ops. */
  const nw_op* const* ops;
} nw_backend_info;

/** Flag: a plugin of this name was found earlier. This one is not used. */
#define NW_BACKEND_SHADOWED 1

/** Returns #NW_ABI_MAJOR of the library. */
NW_API uint32_t nw_abi_major(void);

/** Returns the version of the library: "0.1.0". Static memory. */
NW_API const char* nw_version(void);

/** Returns the name of a status: "invalid". Static memory, never NULL. */
NW_API const char* nw_status_name(int32_t status);

/**
 * Makes a runtime and looks for plugins.
 *
 * A plugin that is refused does not fail this call: nw_backend() lists it with the reason.
 *
 * @param options  May be NULL: all defaults.
 * @param out      The runtime. The caller destroys it with nw_runtime_destroy().
 * @param error    May be NULL.
 */
NW_API int32_t nw_runtime_create(const nw_options* options, nw_runtime** out, nw_error* error);

/**
 * Gives the runtime that the bindings of one process share.
 *
 * The first call makes it, with all defaults. If that fails, the call may be repeated. The runtime
 * is never destroyed: nw_runtime_destroy() ignores it.
 */
NW_API int32_t nw_runtime_default(nw_runtime** out, nw_error* error);

/**
 * Destroys a runtime.
 *
 * Before that, the caller synchronises its streams and releases its plans. No other call on this
 * runtime may be under way.
 *
 * @param rt  May be NULL: nothing happens then.
 */
NW_API void nw_runtime_destroy(nw_runtime* rt);

/**
 * Sets how many threads a call may use, the caller's own included.
 *
 * A runtime begins with all threads of its pool. A call that is under way keeps its threads. A
 * forked child inherits the number; what it sets is its own. Results do not depend on the number.
 *
 * @param rt           The runtime.
 * @param num_threads  1 to the size of the pool. Another number is refused with #NW_INVALID.
 * @param error        May be NULL.
 */
NW_API int32_t nw_set_num_threads(nw_runtime* rt, int64_t num_threads, nw_error* error);

/** Returns how many threads a call may use: what nw_set_num_threads() said last. */
NW_API uint32_t nw_get_num_threads(nw_runtime* rt);

/**
 * Loads one more plugin, ahead of those that are present.
 *
 * If the plugin is refused, the call fails, and nw_backend() lists the plugin too.
 *
 * Memory and streams are given back to the first plugin that serves their device. So before you
 * load a plugin for a device, give back what older plugins made for that device.
 */
NW_API int32_t nw_load(nw_runtime* rt, const char* absolute_path, nw_error* error);

/**
 * Loads one more plugin, behind those that are present: it takes no call from them. For a plugin
 * that was found and not named, as one that a package manager installed.
 *
 * The file is called narrows_NAME.so, where NAME is the plugin's. If the plugin is refused, the
 * call fails, and nw_backend() lists the plugin too.
 */
NW_API int32_t nw_load_behind(nw_runtime* rt, const char* absolute_path, nw_error* error);

/** Returns how many plugin files were found, refused ones included. */
NW_API uint32_t nw_backend_count(nw_runtime* rt);

/**
 * Describes one plugin file. Creates the plugin's instance if that was not done before.
 *
 * @param rt     The runtime.
 * @param index  Less than nw_backend_count(); plugins stand in search order.
 * @param out    Its `struct_size` is set by the caller.
 * @param error  May be NULL.
 */
NW_API int32_t nw_backend(nw_runtime* rt, uint32_t index, nw_backend_info* out, nw_error* error);

/** @} */

/**
 * @addtogroup devices
 * @{
 */

/** Describes a device. The caller sets the `struct_size` of `out`. */
NW_API int32_t nw_device(nw_runtime* rt, DLDevice device, nw_device_info* out, nw_error* error);

/** @} */

/**
 * @addtogroup op_declarations
 * @{
 */

/**
 * Finds the declaration by which an op is called.
 *
 * The declaration lives as long as the runtime. Its `kernels` is NULL: each plugin has kernels of
 * its own, which nw_backend_info.ops lists.
 */
NW_API int32_t nw_find_op(nw_runtime* rt, const char* name, const nw_op** out, nw_error* error);
/**
 * Gives every op that nw_find_op() finds, each once: the built-in ones, then those of plugins in
 * search order, then programs by name. NULL: `index` is past the last.
 *
 * Unlike nw_backend() it opens no plugin and no device.
 */
NW_API const nw_op* nw_op_at(nw_runtime* rt, uint32_t index);

/** @} */

/**
 * @defgroup programs Tensor programs
 *
 * A tensor program is text that says what to compute. docs/programs.md describes it. Loaded into a
 * runtime it is an op, which the plugins that serve programs compile. program.h reads, changes and
 * prints programs.
 * @{
 */

/**
 * Makes a tensor program an op of the runtime.
 *
 * The op is named "program.<name>_<digest>/1". The digest is that of nw_program_digest(), or with
 * `backward` of both. A program that was loaded before gives the same op. The op has the program's
 * inputs, outputs, params, dtypes and shapes, and is called as every other one.
 *
 * The text is not verified: a program that reads out of bounds does so. nw_program_load() has
 * verified it.
 *
 * @param rt        The runtime.
 * @param text      The program, without the steps of a schedule. UTF-8, NUL-terminated.
 * @param backward  Name of the loaded program that differentiates this one: nw_op.backward has its
 *                  inputs and outputs. What it reads of the forward call is `saved`. NULL: the op
 *                  is not differentiable.
 * @param out       The declaration. It lives as long as the runtime.
 * @param error     May be NULL. Its message has line and column of a mistake in the text.
 */
NW_API int32_t nw_load_program(nw_runtime* rt, const char* text, const char* backward,
                               const nw_op** out, nw_error* error);

/**
 * Sets how the plugins of one name run a program. Calls that are planned from now on heed it.
 *
 * The caller answers for it that both texts compute the same. nw_program_load() does so: it has
 * verified every step.
 *
 * @param rt         The runtime.
 * @param op         Name of the op that nw_load_program() gave.
 * @param backend    Name of the plugins, of which one was found: "cpu".
 * @param scheduled  A text of the same name, tensors and params. NULL: the plugin chooses again.
 * @param error      May be NULL.
 */
NW_API int32_t nw_schedule_program(nw_runtime* rt, const char* op, const char* backend,
                                   const char* scheduled, nw_error* error);

/** @} */

/**
 * @addtogroup runtime
 * @{
 */

/**
 * Returns a plugin's extension struct, for example "vulkan/1".
 *
 * It lives as long as the runtime. NULL: there is no such backend or extension.
 */
NW_API const void* nw_extension(nw_runtime* rt, const char* backend, const char* name);

/** @} */

/**
 * @addtogroup calls
 * @{
 */

/** Validates a call, plans it or finds its plan in the cache, and launches it. */
NW_API int32_t nw_run(nw_runtime* rt, const nw_call* call, nw_error* error);

/**
 * Gives dtype and shape of the outputs that a call needs.
 *
 * Of the inputs it reads device, dtype, shape and strides. It ignores their data, the call's
 * outputs and its stream.
 *
 * @param rt           The runtime.
 * @param call         The call.
 * @param outputs      Memory for `num_outputs` specs.
 * @param num_outputs  As many as the op has outputs.
 * @param error        May be NULL.
 */
NW_API int32_t nw_infer(nw_runtime* rt, const nw_call* call, nw_spec* outputs, uint32_t num_outputs,
                        nw_error* error);

/** @} */

/**
 * @addtogroup plans
 * @{
 */

/**
 * Validates and plans a call as nw_run() does, but does not launch it.
 *
 * It does not touch the tensors' memory. Of their addresses it uses the alignment, and which
 * tensors overlap.
 *
 * @param rt     The runtime.
 * @param call   The call.
 * @param out    The plan. The caller releases it with nw_plan_release(), before
 *               nw_runtime_destroy(). NULL: no plan is made. The status then says whether the call
 *               would run, and `error` why not.
 * @param info   What was found. Its `struct_size` is set by the caller. May be NULL.
 * @param error  May be NULL.
 */
NW_API int32_t nw_plan_get(nw_runtime* rt, const nw_call* call, nw_plan** out, nw_plan_info* info,
                           nw_error* error);

/**
 * Launches a planned call.
 *
 * If the call does not fit the plan, the status is #NW_INVALID. Tensors may be aligned better than
 * planned. Everything else must be as it was planned, except addresses, stream and workspace. With
 * #NW_FITS the call is taken to fit, and is not checked.
 */
NW_API int32_t nw_launch(const nw_plan* plan, const nw_call* call, nw_error* error);

/**
 * Releases a plan.
 *
 * Every nw_launch() of it must have returned. The device may still run what was launched.
 *
 * @param plan  May be NULL: nothing happens then.
 */
NW_API void nw_plan_release(nw_plan* plan);

/** Empties the plan cache. Plans that the caller holds stay valid. */
NW_API void nw_plan_cache_clear(nw_runtime* rt);

/** @} */

/**
 * @addtogroup devices
 *
 * The first plugin that serves the device's type provides memory and streams.
 * @{
 */

/**
 * Allocates memory on a device, aligned to 256 bytes.
 *
 * @param rt      The runtime.
 * @param device  The device.
 * @param size    Bytes. 0: `data` becomes NULL.
 * @param stream  The memory may be used on this stream at once. NULL: the default stream.
 * @param data    The address, as DLTensor.data has it. The caller frees it with nw_free().
 * @param error   May be NULL.
 * @return #NW_NOT_CAPTURABLE while the stream is being captured.
 */
NW_API int32_t nw_alloc(nw_runtime* rt, DLDevice device, uint64_t size, void* stream, void** data,
                        nw_error* error);

/**
 * Frees memory of nw_alloc(), once `stream` has passed what was put on it. Freeing never allocates.
 *
 * `data` may be NULL.
 */
NW_API int32_t nw_free(nw_runtime* rt, DLDevice device, void* data, void* stream, nw_error* error);

/**
 * Copies `size` contiguous bytes from `src` to `dst`.
 *
 * If either side is host memory, the copy is done when this returns. Otherwise it is ordered on
 * `stream`. One side must be host memory, or both must be on devices of one plugin.
 */
NW_API int32_t nw_copy(nw_runtime* rt, DLDevice to, void* dst, DLDevice from, const void* src,
                       uint64_t size, void* stream, nw_error* error);

/** Makes a stream of a device. The caller destroys it. On the CPU it is NULL: there is no other. */
NW_API int32_t nw_stream_create(nw_runtime* rt, DLDevice device, void** stream, nw_error* error);

/** Destroys a stream of nw_stream_create(). */
NW_API int32_t nw_stream_destroy(nw_runtime* rt, DLDevice device, void* stream, nw_error* error);

/** Waits until everything on the stream is done. */
NW_API int32_t nw_stream_sync(nw_runtime* rt, DLDevice device, void* stream, nw_error* error);

/**
 * Makes what is put on `waiter` from now on wait for what is on `signaler` now.
 *
 * The host does not wait.
 */
NW_API int32_t nw_stream_wait(nw_runtime* rt, DLDevice device, void* waiter, void* signaler,
                              nw_error* error);

/** @} */

#ifdef __cplusplus
}
#endif
#endif
