/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file plugin.h
 * @brief The table behind the one symbol that a plugin exports.
 *
 * A plugin needs this header, abi.h and DLPack's dlpack.h. For the built-in ops it needs ops.h too.
 * It links nothing of Narrows. A plugin is a file `narrows_<name>.so` like this:
 *
 * @code{.c}
 * static const nw_plugin plugin = {
 *     .struct_size = sizeof(nw_plugin),
 *     .abi_major = NW_ABI_MAJOR,
 *     .name = "mine",
 *     // and the other fields: examples/plugin_minimal/plugin.c is a whole one
 * };
 *
 * const nw_plugin* narrows_plugin_query(uint32_t host_major, nw_error* error) {
 *   if (host_major == NW_ABI_MAJOR) return &plugin;
 *   // fill in *error: status NW_UNSUPPORTED, argument -1, a message
 *   return NULL;
 * }
 * @endcode
 * This is step 4 of a tensor's path in docs/design.md.
 * The rules for growth, borrowing, threads and NULL are in abi.h. docs/abi.md tells a plugin's life
 * from query to destroy. plugin.hpp makes the table from C++ functions.
 */
#ifndef NARROWS_PLUGIN_H
#define NARROWS_PLUGIN_H

#include <narrows/abi.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * @defgroup plugins Plugins
 * @{
 */

/** Severity of a log message: details for developers. */
#define NW_LOG_DEBUG 0
/** Severity of a log message: what happens. */
#define NW_LOG_INFO 1
/** Severity of a log message: something may be wrong. */
#define NW_LOG_WARNING 2
/** Severity of a log message: something failed. */
#define NW_LOG_ERROR 3

/**
 * What the host offers to an instance of a plugin.
 *
 * It outlives the instance. No slot is NULL. Any thread may call any slot.
 */
typedef struct nw_host {
  /** sizeof(nw_host) on the host's side. */
  uint32_t struct_size;
  /** Most threads that a `parallel_for` ever uses, the caller's own included. At least 1. */
  uint32_t num_threads;
  /** First argument of the slots. */
  void* ctx;
  /** Logs a message. `level` is one of #NW_LOG_DEBUG to #NW_LOG_ERROR. */
  void (*log)(void* ctx, int32_t level, const char* message);
  /**
   * Runs `body` over pieces of [0, n), and returns when all are done.
   *
   * Each piece has at least `grain` indices; the last one may have fewer. A `grain` below 1 is read
   * as 1. If the call is nested, or the host is busy, the pieces run one after the other.
   *
   * - `body` must not throw.
   * - `body` must not depend on how [0, n) is cut. So a reduction divides its work by shapes alone.
   * - For scratch memory, run over `num_threads` slots with `grain` 1. Each slot has its own slice
   *   of the workspace.
   */
  void (*parallel_for)(void* ctx, int64_t n, int64_t grain,
                       void (*body)(void* arg, int64_t begin, int64_t end), void* arg);
  /**
   * Returns how many threads a `parallel_for` would use if this thread called it now.
   *
   * It is 1 to `num_threads`. nw_set_num_threads() and nw_call.max_threads lower it. A launch asks
   * if it has threads of its own, such as OpenMP's.
   */
  uint32_t (*usable_threads)(void* ctx);
  /**
   * Returns another plugin's extension struct, as nw_extension() does. Hosts since ABI 1.2.
   *
   * It opens that plugin, also within `create`. It lives as long as the runtime; do not call it in
   * `destroy`. NULL: there is no such plugin or extension, or the plugin is being opened by this
   * thread. Two plugins must not ask for each other in `create`.
   */
  const void* (*extension)(void* ctx, const char* backend, const char* name);
} nw_host;

/**
 * A tensor program that is to be planned. docs/programs.md describes its text.
 *
 * The texts live until nw_plugin.plan_program returns.
 */
typedef struct nw_program_text {
  /** sizeof(nw_program_text) on the host's side. */
  uint32_t struct_size;
  /** 0: no flag is defined. */
  uint32_t flags;
  /** What is computed: the canonical text, before any step of a schedule. NUL-terminated. */
  const char* text;
  /**
   * How this plugin is to run it: a text of the same tensors and params that computes the same.
   * NULL: the plugin chooses.
   */
  const char* scheduled;
} nw_program_text;

/**
 * The plugin: a table of constant data.
 *
 * Every slot takes the instance `self` that `create` made. A slot that returns int32_t returns a
 * status, and fills in `error` on failure. A slot may be NULL only where its comment says so.
 */
typedef struct nw_plugin {
  /** sizeof(nw_plugin) on the plugin's side. */
  uint32_t struct_size;
  /** #NW_ABI_MAJOR when the plugin was built. */
  uint32_t abi_major;
  /** Name of the plugin: "cpu". The first plugin found of a name shadows the others. */
  const char* name;
  /** The plugin's own version. May be NULL. */
  const char* version;
  /** The DLDeviceType that it serves. */
  int32_t device_type;
  /** The DLDeviceType of pinned host memory that it can address. 0: none. */
  int32_t pinned_type;
  /** The DLDeviceType of managed memory that it can address. 0: none. */
  int32_t managed_type;
  /** Length of `ops`. */
  uint32_t num_ops;
  /** The declarations of its ops. */
  const nw_op* const* ops;

  /**
   * Makes an instance: opens drivers and devices. Called once per runtime.
   *
   * `host` outlives the instance. If a driver or library is missing, return #NW_UNAVAILABLE and let
   * the message say what to install.
   */
  int32_t (*create)(const nw_host* host, void** self, nw_error* error);
  /** Destroys the instance. Every stream is idle and every plan is freed before. */
  void (*destroy)(void* self);

  /** Gives the number of devices. */
  int32_t (*device_count)(void* self, int32_t* count, nw_error* error);
  /** Describes a device. */
  int32_t (*device_info)(void* self, int32_t device_id, nw_device_info* out, nw_error* error);

  /**
   * Allocates `size` bytes, aligned to 256 bytes and ordered on `stream`. `size` 0 gives NULL.
   *
   * The address is what DLTensor.data holds for `device_type`. While the stream is being captured,
   * return #NW_NOT_CAPTURABLE.
   */
  int32_t (*alloc)(void* self, int32_t device_id, uint64_t size, void* stream, void** data,
                   nw_error* error);
  /** Frees memory of `alloc`, ordered on `stream`. `data` may be NULL. */
  int32_t (*free)(void* self, int32_t device_id, void* data, void* stream, nw_error* error);
  /**
   * Copies `size` contiguous bytes.
   *
   * If either side is host memory, the copy is done when this returns. Otherwise it is ordered on
   * `stream`.
   */
  int32_t (*copy)(void* self, DLDevice to, void* dst, DLDevice from, const void* src, uint64_t size,
                  void* stream, nw_error* error);

  /** Makes a stream. The only stream of the CPU is NULL, so a CPU plugin gives NULL. */
  int32_t (*stream_create)(void* self, int32_t device_id, void** stream, nw_error* error);
  /** Destroys a stream. */
  int32_t (*stream_destroy)(void* self, int32_t device_id, void* stream, nw_error* error);
  /** Waits until everything on the stream is done. On the CPU it succeeds at once. */
  int32_t (*stream_sync)(void* self, int32_t device_id, void* stream, nw_error* error);
  /**
   * Makes what is put on `waiter` from now on wait for what is on `signaler` now.
   *
   * The host does not wait. On the CPU it succeeds at once.
   */
  int32_t (*stream_wait)(void* self, int32_t device_id, void* waiter, void* signaler,
                         nw_error* error);

  /**
   * Gives the outputs of an op of the plugin's own. May be NULL if every such op has a
   * `shape_rule`.
   *
   * For an op without a `shape_rule` it gives dtypes and shapes. For an op with one it gives dtypes
   * only; if it returns #NW_UNSUPPORTED, the outputs have the dtype of input 0.
   *
   * It must be a pure function of the signature, which holds inputs only.
   */
  int32_t (*infer)(void* self, const nw_sig* inputs_only, nw_spec* outputs, uint32_t num_outputs,
                   nw_error* error);

  /**
   * Plans a call. It must be a pure function of the signature.
   *
   * If `plan` is NULL, the host only asks whether the plugin would take the call. Then `info` may
   * be NULL too.
   *
   * A plan is immutable host memory. What the device needs, such as modules, pipelines and packed
   * tables, belongs to the instance and lives until `destroy`. So a plan may be freed while it runs
   * or is part of a captured graph. Load kernels here, not in `launch`.
   */
  int32_t (*plan)(void* self, const nw_sig* sig, void** plan, nw_plan_info* info, nw_error* error);
  /** Frees a plan. */
  void (*plan_free)(void* self, void* plan);
  /**
   * Puts a planned call on its stream.
   *
   * The host has checked that `call` fits the plan and that its workspace is large enough. This
   * slot must not allocate or synchronise. It leaves the caller's current device, last error and
   * contexts as they were.
   */
  int32_t (*launch)(void* self, const void* plan, const nw_call* call, nw_error* error);

  /**
   * Returns an extension such as "vulkan/1", or NULL if `name` is unknown. The slot may be NULL.
   *
   * An extension is a struct that begins with `struct_size`. It lives as long as the instance.
   */
  const void* (*extension)(void* self, const char* name);

  /**
   * Plans a call of a tensor program, by the rules of `plan`. `plan_free` and `launch` then take
   * the plan. NULL: the plugin serves no programs.
   *
   * - Inputs and outputs stand in the order of the text. An `inout` tensor is an input and an
   *   output. Where the output is not the input itself, it begins as a copy of the input.
   * - The params hold a field of 8 bytes for each param, in the order of the text: a double for one
   *   of floating point, else an int64_t.
   * - The host has checked presence, dtypes and shapes, and that no output but an `inout` one is an
   *   input.
   * - A plan may depend on `program` and `sig` alone. With `plan` NULL nothing is compiled.
   */
  int32_t (*plan_program)(void* self, const nw_program_text* program, const nw_sig* sig,
                          void** plan, nw_plan_info* info, nw_error* error);
  /**
   * Names of the kernel variants of programs, NULL-terminated. NULL: one variant without a name.
   */
  const char* const* program_kernels;
} nw_plugin;

/** Name of the one symbol that a plugin exports. */
#define NW_PLUGIN_QUERY "narrows_plugin_query"

/** Type of narrows_plugin_query(). */
typedef const nw_plugin* (*nw_plugin_query_fn)(uint32_t host_major, nw_error* error);

/**
 * Returns the plugin's table. Every plugin defines and exports this function.
 *
 * It must be pure: it touches no device, host or thread. It may be called again, and then returns
 * the same constant table. If it cannot serve a host of `host_major`, it returns NULL and fills in
 * `error` with #NW_UNSUPPORTED; if its own declarations are wrong, with #NW_INVALID.
 */
#if defined(__GNUC__)
__attribute__((visibility("default")))
#endif
const nw_plugin*
narrows_plugin_query(uint32_t host_major, nw_error* error);

/** @} */

#ifdef __cplusplus
}
#endif
#endif
