/* abi.h -- what the host and a plugin share: statuses, errors, tensor signatures, calls, op declarations.
 * Step 1 of a tensor's path: the contract. 64-bit little-endian hosts only. docs/abi.md has the promises and the changelog.
 *
 * GROWTH   A struct that begins with struct_size grows at its end only. Whoever ALLOCATES it sets struct_size (so the
 *          caller does for output structs too); the other side reads or writes min(struct_size, its own sizeof) and
 *          takes what is absent as 0. Arrays of structs are arrays of pointers. Structs marked [frozen] never change.
 * MEANING  An unknown flag bit, mode or function number is refused with NW_UNSUPPORTED, never ignored.
 * BORROWED Every pointer passed in is read only until the call returns, except tensor and workspace MEMORY, which
 *          must stay alive, and not be used again on another stream, until `stream` has passed the call.
 * THREADS  Everything may be called from any thread at any time; one stream orders what is put on it.
 * NULL     A pointer may be NULL only where its comment says so. */
#ifndef NARROWS_ABI_H
#define NARROWS_ABI_H

#include <dlpack/dlpack.h> /* DLTensor, DLDevice, DLDataType only; their layout has not changed since DLPack 0.6 */
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define NW_ABI_MAJOR 1 /* a plugin and a host of different majors refuse each other */
#define NW_ABI_MINOR 1 /* counts additions; informative, nothing tests it */

#define NW_MAX_NDIM 16        /* dimensions of any tensor */
#define NW_MAX_TENSORS 32     /* inputs plus outputs of any call */
#define NW_WORKSPACE_ALIGN 256 /* bytes */

/* Status: what every int32_t function returns. After 1 to 5 nothing was enqueued and no output was touched. */
#define NW_OK 0
#define NW_INVALID 1        /* the caller's mistake: the message names the argument, its value, what was expected */
#define NW_UNSUPPORTED 2    /* legal, but not here; the dispatcher asks the next plugin after this one only */
#define NW_UNAVAILABLE 3    /* no driver, no device, or a process forked after the device was opened */
#define NW_OUT_OF_MEMORY 4
#define NW_NOT_CAPTURABLE 5 /* the stream is being captured: plan before capture, and pass a workspace */
#define NW_FAILED 6         /* outputs are undefined */
#define NW_DEVICE_LOST 7    /* sticky; may stem from earlier work on the device */

/* Why a call failed. [frozen] 512 bytes. The caller owns it; where a function takes one it may be NULL.
 * It is written on failure only; nothing in it needs to be freed. */
typedef struct nw_error {
  int32_t status;
  int32_t argument;    /* which tensor: 0 .. inputs, then outputs; -1: none */
  int64_t native_code; /* a cudaError_t, VkResult, errno, ...; 0: none */
  char message[496];   /* UTF-8, NUL-terminated */
} nw_error;

/* An inferred output. [frozen] */
typedef struct nw_spec {
  DLDataType dtype;
  int32_t ndim;               /* 0 .. NW_MAX_NDIM; -1: the gradient of an input that is absent */
  int64_t shape[NW_MAX_NDIM]; /* elements; the entries past ndim are 0 */
} nw_spec;

/* All that planning may know of a tensor: no address. [frozen] */
typedef struct nw_tensor_sig {
  DLDataType dtype;       /* lanes is 1 */
  int32_t ndim;           /* -1: an optional tensor that is absent; everything else is then 0 */
  uint16_t align_log2;    /* of data + byte_offset in bytes, capped at 8; 8 for a tensor without elements */
  uint16_t flags;         /* 0 */
  int32_t alias_of;       /* an output that is exactly an input: that input's index; else -1 */
  const int64_t* shape;   /* ndim extents */
  const int64_t* strides; /* ndim strides in elements, never NULL when ndim > 0; extents 0 and 1 carry the stride that a
                           * C-contiguous tensor would have there, and a tensor without elements carries those only */
} nw_tensor_sig;

/* The key of a plan: these contents by value and nothing else, so that nothing else can influence the plan. */
typedef struct nw_sig {
  uint32_t struct_size;
  uint32_t flags;               /* those of the call */
  uint32_t num_inputs;          /* absent inputs at the end are stripped */
  uint32_t num_outputs;
  const char* op;
  const char* kernel;           /* NULL: the backend chooses; else this variant, or NW_UNSUPPORTED */
  const nw_tensor_sig* tensors; /* inputs, then outputs */
  const void* params;           /* NULL when params_size is 0 */
  uint64_t params_size;         /* bytes, without trailing zero bytes: the reader extends the blob with zeros */
  DLDevice device;
} nw_sig;

/* Flags of a call. */
#define NW_DETERMINISTIC 1 /* refuse a plan that may give other bits when run again */
#define NW_FITS 2          /* nw_launch: the caller knows that the call fits its plan; all else refuses it. The tensors are not looked
                            * at: what a call that does not fit, overlaps or lacks memory then reads and writes is undefined. The
                            * other flags have to be the plan's */

/* One call of one op. */
typedef struct nw_call {
  uint32_t struct_size;
  uint32_t flags;
  uint32_t num_inputs;
  uint32_t num_outputs;
  const char* op;                 /* "conv1d"; a plugin's own: "vendor.name/1" */
  const DLTensor* const* inputs;  /* num_inputs pointers; an absent optional tensor is NULL. NULL strides: C-contiguous */
  const DLTensor* const* outputs; /* num_outputs pointers, memory allocated by the caller; NULL: not wanted */
  const void* params;             /* the op's params struct; NULL when params_size is 0. Short blobs are extended with zeros;
                                   * bytes past what the reader knows must be 0 */
  uint64_t params_size;           /* bytes */
  void* stream;                   /* the backend's native handle (for CUDA also 0x1 and 0x2); NULL: its default stream.
                                   * On the CPU NULL, and the call is done when it returns */
  void* workspace;                /* memory of the device, aligned to NW_WORKSPACE_ALIGN; NULL: allocated around the launch in
                                   * stream order, which is refused while the stream is captured */
  uint64_t workspace_size;        /* bytes; at least the plan's */
  DLDevice device;                /* {0,0}: where the tensors live, pinned memory alone counting as CPU; needed without tensors */
  const char* backend;            /* a plugin's name; NULL: NARROWS_BACKEND, else the first in search order that supports it */
  const char* kernel;             /* a kernel variant's name; NULL: the backend chooses */
} nw_call;

/* One field of an op's params, so that a binding can fill it by name. [frozen] */
typedef struct nw_param {
  const char* name;
  DLDataType dtype;          /* of the field; lanes > 1: that many in a row */
  uint32_t offset;           /* bytes from the start of the blob */
  const char* const* values; /* of a numbered field: the names of 0, 1, 2, ... ("" where a number has none), NULL-terminated;
                              * NULL: a plain number */
  double initial;            /* what a binding fills in when its user gives nothing; a C caller states every field */
} nw_param;

/* Flags of an op. */
#define NW_OP_INPLACE 1   /* an output may be exactly an input */
#define NW_OP_BATCHABLE 2 /* vmap may put one leading axis on every tensor, after padding inputs on the left with 1s to equal rank */

/* The declaration of an op: constant data, alive as long as the plugin is loaded.
 * A plugin that offers a built-in op (a name without '.') fills in `name` and `kernels`; the host knows the rest.
 * For an op of the plugin's own, two plugins that declare one name must agree in everything but `kernels` and the fields
 * at the end of `params`; else the second plugin is refused. */
typedef struct nw_op {
  uint32_t struct_size;
  uint32_t flags;
  const char* name;
  uint32_t min_inputs, max_inputs;
  uint32_t num_outputs;
  uint32_t num_aux;            /* this many outputs, the last ones, exist for backward only and may be NULL */
  const char* const* inputs;   /* max_inputs names, NULL-terminated; a '?' at the end of a name: may be absent */
  const char* const* outputs;  /* num_outputs names, NULL-terminated; a '?' at the end of a name: may be NULL */
  uint64_t params_size;        /* bytes of the longest blob it knows */
  const char* shape_rule;      /* see docs/abi.md, "Shape rules"; NULL: the plugin's infer() is asked */
  const char* backward;        /* name of the op that differentiates this one (its inputs: the gradient of every output that is
                                * not aux, NULL for zero; every forward input; every forward output, NULL where `saved` lacks
                                * it. Its outputs: the gradient of each forward input, of its shape and dtype, NULL where not
                                * wanted. Its params: the forward blob). NULL: not differentiable */
  uint64_t saved;              /* what backward reads: bit i for input i, bit 32 + j for output j */
  const char* const* kernels;  /* names of the variants, NULL-terminated; NULL: one variant without a name */
  const nw_param* const* params; /* the fields of the blob, NULL-terminated; NULL: no params */
} nw_op;

/* Traits of a plan. */
#define NW_PLAN_CAPTURABLE 1
#define NW_PLAN_NONDETERMINISTIC 2

/* What planning found. Written by the callee. */
typedef struct nw_plan_info {
  uint32_t struct_size;
  uint32_t traits;         /* NW_PLAN_* */
  uint64_t workspace_size; /* bytes that a launch needs; 0: none */
  const char* kernel;      /* the variant chosen, alive as long as the plan; NULL: it has no name */
  const char* backend;     /* the plugin chosen, filled in by the host, alive as long as the runtime */
} nw_plan_info;

/* A device of a backend. Written by the callee. */
typedef struct nw_device_info {
  uint32_t struct_size;
  uint32_t flags;        /* 0 */
  char name[128];        /* UTF-8, NUL-terminated */
  char arch[128];        /* what kernels are chosen by: "AVX-512, 2 threads", "sm_90"; UTF-8, NUL-terminated */
  uint8_t uuid[16];      /* equal for one device seen through two backends; zeros: unknown */
  uint64_t total_memory; /* bytes */
} nw_device_info;

#ifdef __cplusplus
}
#endif
#endif
