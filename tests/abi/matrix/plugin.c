/* SPDX-License-Identifier: Apache-2.0 */
/* plugin.c -- the plugin of the matrix: elementwise (square, add, and the function to come), and an op of its own. sides.h says
 * what it is compiled against. It treats growing structs as docs/abi.md tells a plugin to: it reads what both sides know, and
 * refuses what it does not know of the params, the flags and the functions. OP_TAIL and OP_FLAGS: faults that only a newer plugin
 * can have. */
#include <narrows/ops.h>
#include <narrows/plugin.h>
/* After the headers: it looks for what they define. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sides.h"
#pragma GCC diagnostic ignored "-Wunused-parameter" /* a slot has its signature whether it reads all of it or not */

#ifndef OP_FLAGS
#define OP_FLAGS 0
#endif

static side_seen seen; /* one runtime, one thread */

/* A copy of a growing struct as this plugin knows it. */
#define KNOWN(type, name, given) \
  type name;                     \
  read_known(&name, sizeof name, given, (given)->struct_size)
static void read_known(void* out, size_t size, const void* given, size_t given_size) {
  memset(out, 0, size);
  if (given_size != 0) memcpy(out, given, given_size < size ? given_size : size);
}

/* Writes a struct of ours into one of the host's; its struct_size stays the host's. */
static void write_known(void* out, void* ours, size_t size) {
  uint32_t out_size;
  memcpy(&out_size, out, sizeof out_size);
  memcpy(ours, &out_size, sizeof out_size);
  memcpy(out, ours, out_size < size ? out_size : size);
}

static int32_t fail(nw_error* error, int32_t status, const char* format, ...) {
  va_list values;
  va_start(values, format);
  if (error != NULL) {
    error->status = status, error->argument = -1, error->native_code = 0;
    vsnprintf(error->message, sizeof error->message, format, values);
  }
  va_end(values);
  return status;
}

static int32_t read_params(const nw_sig* sig, void* out, size_t size, nw_error* error) {
  const unsigned char* const bytes = (const unsigned char*)sig->params;
  for (uint64_t i = size; i < sig->params_size; ++i)
    if (bytes[i] != 0) return fail(error, NW_UNSUPPORTED, "side: params byte %d is not 0", (int)i);
  read_known(out, size, sig->params, sig->params_size);
  return NW_OK;
}

/* out[i] = a[i] * (square ? a[i] : factor) + offset */
typedef struct side_plan {
  int64_t n;
  int square;
  double factor, offset;
} side_plan;

static int32_t plan_elementwise(const nw_sig* sig, side_plan* plan, nw_error* error) {
  nw_elementwise_params params;
  const int32_t status = read_params(sig, &params, sizeof params, error);
  if (status != NW_OK) return status;
  plan->factor = 1;
  if (params.function == NW_EW_SQUARE) {
    plan->square = 1;
  } else if (params.function == NW_EW_ADD && sig->num_inputs == 1) {
    plan->offset = params.b_real;
#ifdef NW_EW_NEXT
  } else if (params.function == NW_EW_NEXT) {
    plan->offset = SIDE_NEXT_ADDS;
#endif
  } else {
    return fail(error, NW_UNSUPPORTED, "side: function %d", (int)params.function);
  }
#ifdef NW_EW_NEXT
  plan->offset += (double)params.next_int + params.next_real;
#endif
  return NW_OK;
}

static int32_t plan_scale(const nw_sig* sig, side_plan* plan, nw_error* error) {
  side_scale_params params;
  const int32_t status = read_params(sig, &params, sizeof params, error);
  if (status != NW_OK) return status;
  plan->factor = params.factor == 0 ? 1 : params.factor;
#ifdef NW_EW_NEXT
  plan->offset = params.offset;
#endif
  return NW_OK;
}

static int32_t plan(void* self, const nw_sig* given, void** out, nw_plan_info* info, nw_error* error) {
  KNOWN(nw_sig, sig, given);
  seen.sig_size = given->struct_size;
  uint32_t flags = NW_DETERMINISTIC;
#ifdef NW_EW_NEXT
  seen.sig_number = sig.next_number;
  flags |= NW_NEXT_FLAG;
#endif
  if (sig.flags & ~flags) return fail(error, NW_UNSUPPORTED, "side: flags 0x%x; this plugin knows 0x%x", sig.flags, flags);
  const nw_tensor_sig* const a = sig.tensors;
  if (a->dtype.code != kDLFloat || a->dtype.bits != 64 || a->ndim != 1) return fail(error, NW_UNSUPPORTED, "side: f64 (n) only");
  side_plan made = {a->shape[0], 0, 0, 0};
  const int32_t status = strcmp(sig.op, "elementwise") == 0 ? plan_elementwise(&sig, &made, error) : plan_scale(&sig, &made, error);
  if (status != NW_OK) return status;
  if (info != NULL) {
    nw_plan_info known;
    memset(&known, 0, sizeof known);
    known.traits = NW_PLAN_CAPTURABLE;
    known.workspace_size = 512;
    known.kernel = "loop";
#ifdef NW_EW_NEXT
    known.next_number = PLAN_INFO_NUMBER;
#endif
    write_known(info, &known, sizeof known);
  }
  if (out == NULL) return NW_OK;
  side_plan* const kept = (side_plan*)malloc(sizeof *kept);
  if (kept == NULL) return fail(error, NW_OUT_OF_MEMORY, "side: no memory for a plan");
  *kept = made;
  *out = kept;
  return NW_OK;
}
static void plan_free(void* self, void* plan) { free(plan); }

static int32_t launch(void* self, const void* planned, const nw_call* given, nw_error* error) {
  KNOWN(nw_call, call, given);
  const side_plan* const plan = (const side_plan*)planned;
  seen.call_size = given->struct_size;
#ifdef NW_EW_NEXT
  seen.call_number = call.next_number;
#endif
  seen.launches += 1;
  if (call.workspace == NULL || call.workspace_size < 512) return fail(error, NW_FAILED, "side: the workspace is missing");
  memset(call.workspace, 1, 512);
  const double* const a = (const double*)((const char*)call.inputs[0]->data + call.inputs[0]->byte_offset);
  double* const out = (double*)((char*)call.outputs[0]->data + call.outputs[0]->byte_offset);
  for (int64_t i = 0; i < plan->n; ++i) out[i] = a[i] * (plan->square ? a[i] : plan->factor) + plan->offset;
  return NW_OK;
}

/* The device: host memory under a device type of its own, and one stream, NULL. */
static int32_t create(const nw_host* host, void** self, nw_error* error) {
  KNOWN(nw_host, known, host);
  memset(&seen, 0, sizeof seen);
  seen.host_size = host->struct_size;
#ifdef NW_EW_NEXT
  seen.host_number = known.next_number;
#endif
  *self = NULL;
  return known.num_threads >= 1 && known.parallel_for != NULL ? NW_OK : fail(error, NW_FAILED, "side: the host is not whole");
}
static void destroy(void* self) {}
static int32_t device_count(void* self, int32_t* count, nw_error* error) {
  *count = 1;
  return NW_OK;
}
static int32_t device_info(void* self, int32_t id, nw_device_info* out, nw_error* error) {
  nw_device_info known;
  memset(&known, 0, sizeof known);
  strcpy(known.name, "a side");
  strcpy(known.arch, "C");
  known.total_memory = 1 << 20;
#ifdef NW_EW_NEXT
  known.next_number = DEVICE_INFO_NUMBER;
#endif
  write_known(out, &known, sizeof known);
  return NW_OK;
}
static int32_t alloc(void* self, int32_t id, uint64_t size, void* stream, void** data, nw_error* error) {
  *data = NULL;
  return size == 0 || posix_memalign(data, 256, size) == 0 ? NW_OK : fail(error, NW_OUT_OF_MEMORY, "side: no memory");
}
static int32_t free_memory(void* self, int32_t id, void* data, void* stream, nw_error* error) {
  free(data);
  return NW_OK;
}
static int32_t copy(void* self, DLDevice to, void* dst, DLDevice from, const void* src, uint64_t size, void* stream,
                    nw_error* error) {
  memcpy(dst, src, size);
  return NW_OK;
}
static int32_t stream_create(void* self, int32_t id, void** stream, nw_error* error) {
  *stream = NULL;
  return NW_OK;
}
static int32_t stream_nothing(void* self, int32_t id, void* stream, nw_error* error) { return NW_OK; }
static int32_t stream_wait(void* self, int32_t id, void* waiter, void* signaler, nw_error* error) { return NW_OK; }
static const void* extension(void* self, const char* name) { return strcmp(name, "side/1") == 0 ? &seen : NULL; }
#ifdef NW_EW_NEXT
static int32_t next_slot(void* self) { return NW_OK; }
#endif

static const char* const kernels[] = {"loop", NULL};
static const char* const inputs[] = {"a", NULL};
static const char* const outputs[] = {"out", NULL};
#define FIELD(name, at) {name, {kDLFloat, 64, 1}, at, NULL, 0}
static const nw_param factor = FIELD("factor", 0);
#ifdef NW_EW_NEXT
static const nw_param offset = FIELD("offset", 8);
#endif
static const nw_param* const fields[] = {&factor,
#ifdef NW_EW_NEXT
                                         &offset,
#endif
                                         NULL};

static const nw_op elementwise = {.struct_size = sizeof(nw_op), .name = "elementwise", .kernels = kernels};
static const nw_op scale = {.struct_size = sizeof(nw_op),
                            .flags = OP_FLAGS,
                            .name = SIDE_SCALE,
                            .min_inputs = 1,
                            .max_inputs = 1,
                            .num_outputs = 1,
                            .inputs = inputs,
                            .outputs = outputs,
                            .params_size = sizeof(side_scale_params),
                            .shape_rule = "like 0",
                            .kernels = kernels,
                            .params = fields,
#ifdef OP_TAIL
                            OP_TAIL
#endif
};
static const nw_op* const ops[] = {&elementwise, &scale};

/* Alone in memory and of exactly this side's size: under AddressSanitizer a host that reads further is noticed. */
static const nw_plugin table = {
    .struct_size = sizeof(nw_plugin),
    .abi_major = NW_ABI_MAJOR,
    .name = SIDE_NAME,
    .version = "1",
    .device_type = SIDE_DEVICE,
    .num_ops = 2,
    .ops = ops,
    .create = create,
    .destroy = destroy,
    .device_count = device_count,
    .device_info = device_info,
    .alloc = alloc,
    .free = free_memory,
    .copy = copy,
    .stream_create = stream_create,
    .stream_destroy = stream_nothing,
    .stream_sync = stream_nothing,
    .stream_wait = stream_wait,
    .plan = plan,
    .plan_free = plan_free,
    .launch = launch,
    .extension = extension,
#ifdef NW_EW_NEXT
    .next_number = 1, /* a table's tail is not looked at, so a newer plugin may always fill it in */
    .next_text = "next",
    .next_slot = next_slot,
#endif
};

const nw_plugin* narrows_plugin_query(uint32_t host_major, nw_error* error) {
  if (host_major != NW_ABI_MAJOR) {
    fail(error, NW_UNSUPPORTED, "side: host major %u; this plugin speaks %d", host_major, NW_ABI_MAJOR);
    return NULL;
  }
  return &table;
}
