/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file abi.h
 * @brief What the host and a plugin share: statuses, errors, tensors, calls and ops.
 *
 * Every other header of the ABI includes this one, except ops.h. Callers include narrows.h. Plugins
 * include plugin.h. docs/abi.md has the promises, the rules of growth as tables, and the changelog
 * of the ABI. This is step 1 of a tensor's path in docs/design.md.
 *
 * A call is a struct that the caller fills in. This one adds two vectors. nw_run() runs it:
 *
 * @code{.c}
 * const DLTensor *inputs[] = {&a, &b}, *outputs[] = {&out};
 * nw_elementwise_params params = {0};
 * params.function = NW_EW_ADD;
 * nw_call call = {0};
 * call.struct_size = sizeof call;
 * call.op = "elementwise";
 * call.num_inputs = 2;
 * call.num_outputs = 1;
 * call.inputs = inputs;
 * call.outputs = outputs;
 * call.params = &params;
 * call.params_size = sizeof params;
 * @endcode
 *
 * These rules hold for everything in these headers:
 *
 * - **Hosts** are 64-bit and little-endian.
 * - **Growth.** A struct that begins with `struct_size` grows at its end only. Whoever allocates
 *   the struct sets `struct_size`. So the caller sets it in output structs too. The other side
 *   reads or writes the smaller of `struct_size` and its own `sizeof`. It takes what is absent as
 *   0. Arrays of such structs are arrays of pointers. A struct marked "Frozen" never changes.
 * - **Unknown values.** An unknown flag bit, mode or function number is refused with
 *   #NW_UNSUPPORTED. Nothing is ignored.
 * - **Borrowing.** The callee reads a pointer that it is given only until the call returns. Memory
 *   of tensors and workspaces is the exception: it must stay alive until `stream` has passed the
 *   call. Until then no other stream may use it.
 * - **Threads.** Any thread may call anything at any time. A stream orders what is put on it.
 * - **NULL.** A pointer may be NULL only where its comment says so.
 */
#ifndef NARROWS_ABI_H
#define NARROWS_ABI_H

/* DLTensor, DLDevice and DLDataType only. Their layout has not changed since DLPack 0.6. */
#include <dlpack/dlpack.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * @defgroup limits Version and limits
 * @{
 */

/** Major version of the ABI. A plugin and a host of different majors refuse each other. */
#define NW_ABI_MAJOR 1
/** Minor version of the ABI. It counts additions, for information only: nothing tests it. */
#define NW_ABI_MINOR 2

/** Most dimensions of a tensor. */
#define NW_MAX_NDIM 16
/** Most tensors of a call: inputs plus outputs. */
#define NW_MAX_TENSORS 32
/** Alignment of a workspace, in bytes. */
#define NW_WORKSPACE_ALIGN 256

/** @} */

/**
 * @defgroup statuses Statuses and errors
 *
 * Functions that can fail return a status as int32_t. After statuses 1 to 5 nothing was enqueued
 * and no output was touched.
 * @{
 */

/** Done, or enqueued on the stream. */
#define NW_OK 0
/** The caller made a mistake. The message names the argument, its value and what was expected. */
#define NW_INVALID 1
/**
 * The call is legal, but not supported here. This is the only status after which the dispatcher
 * asks the next plugin.
 */
#define NW_UNSUPPORTED 2
/** There is no driver or no device, or the process was forked after the device was opened. */
#define NW_UNAVAILABLE 3
/** The host or the device is out of memory. */
#define NW_OUT_OF_MEMORY 4
/** The stream is being captured. Plan before the capture, and pass a workspace. */
#define NW_NOT_CAPTURABLE 5
/** The work failed. The outputs are undefined. */
#define NW_FAILED 6
/**
 * The device is lost, and stays lost. Earlier work on it may be the cause. The outputs are
 * undefined.
 */
#define NW_DEVICE_LOST 7

/**
 * Why a call failed. Frozen at 512 bytes.
 *
 * The caller owns the struct. It is written on failure only. Nothing in it needs to be freed.
 * Wherever a function takes one, the pointer may be NULL.
 */
typedef struct nw_error {
  /** The status that the function returned. */
  int32_t status;
  /** Which tensor is at fault: inputs count from 0, then outputs. -1: none. */
  int32_t argument;
  /** The platform's own error: a cudaError_t, a VkResult, an errno. 0: none. */
  int64_t native_code;
  /** The reason as a sentence. UTF-8, NUL-terminated. */
  char message[496];
} nw_error;

/** @} */

/**
 * @defgroup calls Calls
 * @{
 */

/** Dtype and shape of an output, as nw_infer() gives them. Frozen. */
typedef struct nw_spec {
  /** Dtype of the elements. */
  DLDataType dtype;
  /** Dimensions: 0 to #NW_MAX_NDIM. -1: the gradient of an input that is absent. */
  int32_t ndim;
  /** Extents, in elements. The entries past `ndim` are 0. */
  int64_t shape[NW_MAX_NDIM];
} nw_spec;

/** @} */

/**
 * @defgroup signatures Signatures
 *
 * What a plugin sees of a call when it plans. There are no addresses in it.
 * @{
 */

/** All that planning may know of one tensor. Frozen. */
typedef struct nw_tensor_sig {
  /** Dtype of the elements; `lanes` is 1. */
  DLDataType dtype;
  /** Dimensions. -1: an optional tensor that is absent; every other field is then 0. */
  int32_t ndim;
  /**
   * Base-2 logarithm of the alignment of `data + byte_offset` in bytes, at most 8. It is 8 for a
   * tensor without elements.
   */
  uint16_t align_log2;
  /** 0: no flag is defined. */
  uint16_t flags;
  /** For an output that is exactly an input: the index of that input. Otherwise -1. */
  int32_t alias_of;
  /** `ndim` extents, in elements. */
  const int64_t* shape;
  /**
   * `ndim` strides, in elements. Never NULL when `ndim` > 0.
   *
   * Where an extent is 0 or 1, the stride is that of a C-contiguous tensor. A tensor without
   * elements has such strides only.
   */
  const int64_t* strides;
} nw_tensor_sig;

/** The key of a plan. These contents, by value, are all that a plan may depend on. */
typedef struct nw_sig {
  /** sizeof(nw_sig) on the side that allocates it. */
  uint32_t struct_size;
  /** The flags of the call. */
  uint32_t flags;
  /** Number of inputs. Absent inputs at the end are not counted. */
  uint32_t num_inputs;
  /** Number of outputs. */
  uint32_t num_outputs;
  /** Name of the op. */
  const char* op;
  /**
   * Name of the kernel variant to use. A plugin that lacks it returns #NW_UNSUPPORTED.
   *
   * NULL: the backend chooses.
   */
  const char* kernel;
  /** The tensors: inputs, then outputs. */
  const nw_tensor_sig* tensors;
  /** The op's params. NULL when `params_size` is 0. */
  const void* params;
  /** Bytes of `params`, without zero bytes at the end. The reader extends the blob with zeros. */
  uint64_t params_size;
  /** The device of the call. */
  DLDevice device;
} nw_sig;

/** @} */

/**
 * @addtogroup calls
 * @{
 */

/** Flag of a call: refuse a plan that may give other bits when it is run again. */
#define NW_DETERMINISTIC 1
/**
 * Flag of a call: skip validation, because the caller knows that the call fits its plan.
 *
 * Only nw_launch() accepts this flag. The tensors are not looked at. If the call does not fit its
 * plan, overlaps, or lacks memory, then what it reads and writes is undefined. The other flags must
 * be those of the plan.
 */
#define NW_FITS 2

/** One call of one op. The caller owns it and all that it points to. */
typedef struct nw_call {
  /** sizeof(nw_call), set by the caller. */
  uint32_t struct_size;
  /** Bits #NW_DETERMINISTIC and #NW_FITS, or 0. */
  uint32_t flags;
  /** Length of `inputs`. */
  uint32_t num_inputs;
  /** Length of `outputs`. */
  uint32_t num_outputs;
  /** Name of the op: "conv1d". An op of a plugin's own has a name like "vendor.name/1". */
  const char* op;
  /**
   * `num_inputs` pointers. An optional tensor that is absent is NULL.
   *
   * A tensor whose `strides` is NULL is C-contiguous.
   */
  const DLTensor* const* inputs;
  /** `num_outputs` pointers to tensors with memory of the caller's. NULL: not wanted. */
  const DLTensor* const* outputs;
  /**
   * The op's params struct. NULL when `params_size` is 0.
   *
   * A short blob is extended with zeros. Bytes past what the reader knows must be 0.
   */
  const void* params;
  /** Bytes of `params`. */
  uint64_t params_size;
  /**
   * The stream that the call is put on: the backend's native handle. NULL: its default stream.
   *
   * CUDA's special handles 0x1 and 0x2 are accepted. On the CPU the stream must be NULL, and the
   * call is done when it returns.
   */
  void* stream;
  /**
   * Memory of the device, aligned to #NW_WORKSPACE_ALIGN.
   *
   * NULL: it is allocated around the launch in stream order. That is refused while the stream is
   * being captured.
   */
  void* workspace;
  /** Bytes of `workspace`; at least nw_plan_info.workspace_size. */
  uint64_t workspace_size;
  /**
   * The device to run on. A call without tensors must name it.
   *
   * {0, 0}: where the tensors live. Tensors in pinned memory alone count as the CPU's.
   */
  DLDevice device;
  /**
   * Name of the plugin to use.
   *
   * NULL: the one that NARROWS_BACKEND names. If that is not set, the first in search order that
   * supports the call.
   */
  const char* backend;
  /** Name of the kernel variant to use. NULL: the backend chooses. */
  const char* kernel;
  /**
   * Most threads of the runtime's pool that this launch uses, the caller's own included.
   *
   * 0: as many as nw_set_num_threads() allows. A larger number than that allows is no error, and
   * does not raise it. Plans and results do not depend on this field.
   */
  uint64_t max_threads;
} nw_call;

/** @} */

/**
 * @defgroup op_declarations Op declarations
 *
 * Constant data that describes an op: its tensors, params, shape rule and gradient.
 * @{
 */

/** One field of an op's params. A binding fills the field in by name. Frozen. */
typedef struct nw_param {
  /** Name of the field. */
  const char* name;
  /** Dtype of the field. With `lanes` > 1 it is an array of that many. */
  DLDataType dtype;
  /** Where the field begins: bytes from the start of the params. */
  uint32_t offset;
  /**
   * For a numbered field: the names of 0, 1, 2 and so on, NULL-terminated. A number without a name
   * has "". NULL: a plain number.
   */
  const char* const* values;
  /** What a binding fills in when its user gives nothing. A caller from C states every field. */
  double initial;
} nw_param;

/** Flag of an op: an output may be exactly an input. */
#define NW_OP_INPLACE 1
/**
 * Flag of an op: vmap may put one leading axis on every tensor. Before that it pads the shapes of
 * inputs on the left with 1s to equal rank.
 */
#define NW_OP_BATCHABLE 2
/** Flag of an op: torch.autocast casts its floating-point inputs to the dtype of lower precision.
 * ABI 1.2. */
#define NW_OP_AUTOCAST 4

/**
 * The declaration of an op: constant data, alive as long as the plugin is loaded.
 *
 * A built-in op has a name without '.'. Names that begin with "program." are those of tensor
 * programs (nw_load_program()). A plugin that offers a built-in op fills in `name` and `kernels`;
 * the host knows the rest.
 *
 * Two plugins may declare one op of their own by the same name. They must then agree in everything
 * except `kernels` and the fields at the end of `params`. Otherwise the second plugin is refused.
 */
typedef struct nw_op {
  /** sizeof(nw_op), set by whoever allocates it. */
  uint32_t struct_size;
  /** Bits #NW_OP_INPLACE, #NW_OP_BATCHABLE and #NW_OP_AUTOCAST, or 0. */
  uint32_t flags;
  /** Name of the op: "conv1d", or "vendor.name/1". */
  const char* name;
  /** Fewest inputs of a call. */
  uint32_t min_inputs,
      /** Most inputs of a call. */
      max_inputs;
  /** Number of outputs. */
  uint32_t num_outputs;
  /** How many outputs, counted from the last, exist for backward only. They may be NULL. */
  uint32_t num_aux;
  /** `max_inputs` names, NULL-terminated. A '?' at the end of a name: it may be absent. */
  const char* const* inputs;
  /** `num_outputs` names, NULL-terminated. A '?' at the end of a name: it may be NULL. */
  const char* const* outputs;
  /** Bytes of the longest params that the declaration knows. */
  uint64_t params_size;
  /** The shapes of the outputs: docs/abi.md, "Shape rules". NULL: nw_plugin.infer is asked. */
  const char* shape_rule;
  /**
   * Name of the op that differentiates this one. NULL: not differentiable.
   *
   * - Its inputs are, in this order: the gradient of every output that is not aux, NULL for zero;
   *   every forward input; every forward output, NULL where `saved` lacks it.
   * - Its outputs are the gradient of each forward input, of that input's shape and dtype. NULL:
   *   not wanted.
   * - Its params are those of the forward op.
   */
  const char* backward;
  /** What the backward op reads: bit i for input i, bit 32 + j for output j. */
  uint64_t saved;
  /** Names of the kernel variants, NULL-terminated. NULL: one variant without a name. */
  const char* const* kernels;
  /** The fields of the params, NULL-terminated. NULL: the op has no params. */
  const nw_param* const* params;
  /**
   * `max_inputs` dtypes. The host refuses an input of another one. Where `bits` is 0, or this is
   * NULL, the plugin checks the dtype.
   */
  const DLDataType* input_dtypes;
  /**
   * `num_outputs` dtypes. Where `bits` is 0, or this is NULL, an output has the dtype of the first
   * present input, unless nw_plugin.infer says otherwise.
   */
  const DLDataType* output_dtypes;
  /**
   * The sizes of the shape rule along which a call is a batch of calls, such as "N": docs/abi.md,
   * "Batches". vmap and splits over devices follow it. NULL: nothing is said. ABI 1.2.
   */
  const char* batch;
} nw_op;

/** @} */

/**
 * @defgroup plans Plans
 *
 * A plan is a call whose checks and choices are made. A launch needs addresses and a stream only.
 * @{
 */

/** Trait of a plan: it may be launched while its stream is being captured. */
#define NW_PLAN_CAPTURABLE 1
/** Trait of a plan: it may give other bits when it is launched again. */
#define NW_PLAN_NONDETERMINISTIC 2

/** What planning found. The caller allocates it and sets `struct_size`. The callee writes it. */
typedef struct nw_plan_info {
  /** sizeof(nw_plan_info), set by the caller. */
  uint32_t struct_size;
  /** Bits #NW_PLAN_CAPTURABLE and #NW_PLAN_NONDETERMINISTIC, or 0. */
  uint32_t traits;
  /** Bytes of workspace that a launch needs. 0: none. */
  uint64_t workspace_size;
  /** Name of the kernel variant that was chosen, alive as long as the plan. NULL: it has none. */
  const char* kernel;
  /** Name of the plugin that was chosen, alive as long as the runtime. The host fills it in. */
  const char* backend;
} nw_plan_info;

/** @} */

/**
 * @defgroup devices Devices, memory and streams
 * @{
 */

/** A device of a backend. The caller allocates it and sets `struct_size`. The callee writes it. */
typedef struct nw_device_info {
  /** sizeof(nw_device_info), set by the caller. */
  uint32_t struct_size;
  /** 0: no flag is defined. */
  uint32_t flags;
  /** Name of the device. UTF-8, NUL-terminated. */
  char name[128];
  /** What kernels are chosen by: "AVX-512, 2 threads", "sm_90". UTF-8, NUL-terminated. */
  char arch[128];
  /** Equal for one device that is seen through two backends. All zeros: unknown. */
  uint8_t uuid[16];
  /** Memory of the device, in bytes. */
  uint64_t total_memory;
} nw_device_info;

/** @} */

#ifdef __cplusplus
}
#endif
#endif
