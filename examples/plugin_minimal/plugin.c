/* SPDX-License-Identifier: Apache-2.0 */
/* plugin.c -- a complete plugin: one op of its own, on the CPU. Copy it, then change the op.
 * It needs abi.h, plugin.h and dlpack.h, and links nothing of Narrows:
 *   cc -O3 -Wall -Wextra -fPIC -shared plugin.c -o narrows_example.so $(pkg-config --cflags narrows)
 * Any caller finds it once NARROWS_PLUGIN_PATH names its folder: use.c does. plugin.h says what each slot promises. */
#include <narrows/plugin.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#pragma GCC diagnostic ignored "-Wunused-parameter" /* a slot has its signature whether it reads all of it or not */

/* The op: A[i] = B[i % modulus] + C[i]; inputs B (modulus or more) and C (n), output A (n); f32; any strides. */
typedef struct mod_add_params {
  int64_t modulus; /* 1 to the length of B. The blob is plain: no pointers, no padding */
} mod_add_params;
/* A plan is immutable: many threads may launch it at once. launch() works on a copy, into which it puts the addresses. */
typedef struct mod_add_plan {
  int64_t n, modulus, stride[3]; /* strides of B, C, A in elements */
  float *b, *c, *a;
} mod_add_plan;

/* Fills in the caller's `error`, which may be NULL. A message names the argument, its value and what was expected. */
static int32_t fail(nw_error* error, int32_t status, int32_t argument, const char* format, ...) {
  va_list values;
  va_start(values, format);
  if (error != NULL) {
    *error = (nw_error){status, argument, 0, ""};
    vsnprintf(error->message, sizeof error->message, format, values);
  }
  va_end(values);
  return status;
}
static size_t common(uint64_t theirs, size_t ours) { return theirs < ours ? theirs : ours; } /* touch no byte past what both know */

/* The host has compared the call with the declaration below: two inputs, one output of C's shape and B's dtype. Check the rest.
 * Refuse what this code does not know (UNSUPPORTED: another plugin may) and what is wrong (INVALID); ignore nothing. */
static int32_t plan(void* self, const nw_sig* sig, void** out, nw_plan_info* info, nw_error* error) {
  mod_add_params p = {0};
  const unsigned char* blob = sig->params; /* any length and alignment: absent bytes are 0, bytes past ours must be 0 */
  if (sig->params_size != 0) memcpy(&p, blob, common(sig->params_size, sizeof p));
  for (uint64_t i = sizeof p; i < sig->params_size; ++i)
    if (blob[i] != 0) return fail(error, NW_UNSUPPORTED, -1, "params: byte %d is %d; expected 0 from byte 8 on", (int)i, blob[i]);
  if (sig->flags & ~NW_DETERMINISTIC) return fail(error, NW_UNSUPPORTED, -1, "flags are 0x%x; expected 0 or 1", sig->flags);
  if (sig->kernel != NULL) return fail(error, NW_UNSUPPORTED, -1, "kernel is %s; expected NULL, the only one", sig->kernel);
  const nw_tensor_sig* t = sig->tensors; /* B, C, A: inputs, then outputs */
  for (int32_t i = 0; i < 3; ++i) {
    if (t[i].dtype.code != kDLFloat || t[i].dtype.bits != 32)
      return fail(error, NW_UNSUPPORTED, i, "dtype is code %d, bits %d; expected 2, 32: f32", t[i].dtype.code, t[i].dtype.bits);
    if (t[i].ndim != 1) return fail(error, NW_INVALID, i, "ndim is %d; expected 1", t[i].ndim);
    if (t[i].align_log2 < 2) return fail(error, NW_UNSUPPORTED, i, "address is a multiple of %d; expected 4", 1 << t[i].align_log2);
  }
  const long long n = p.modulus, size = t[0].shape[0];
  if (n < 1 || n > size) return fail(error, NW_INVALID, -1, "modulus is %lld; expected 1 to %lld, the length of b", n, size);
  if (t[2].alias_of == 0) return fail(error, NW_UNSUPPORTED, 2, "a is b, which is read again; expected c or memory of its own");
  if (info != NULL) memset((char*)info + 4, 0, common(info->struct_size, sizeof *info) - 4); /* struct_size is the caller's */
  if (out == NULL) return NW_OK;                                                             /* the question was "would you?" */
  mod_add_plan* result = malloc(sizeof *result);
  if (result == NULL) return fail(error, NW_OUT_OF_MEMORY, -1, "no memory for a plan");
  *result = (mod_add_plan){t[1].shape[0], n, {t[0].strides[0], t[1].strides[0], t[2].strides[0]}, NULL, NULL, NULL};
  *out = result;
  return NW_OK;
}
static void plan_free(void* self, void* plan) { free(plan); }

/* The call fits the plan: the host saw to it. Nothing is allocated here, and threads are the host's. */
static void mod_add_piece(void* task, int64_t begin, int64_t end) {
  const mod_add_plan t = *(const mod_add_plan*)task;
  for (int64_t i = begin, j = begin % t.modulus; i < end; ++i, j = j + 1 < t.modulus ? j + 1 : 0)
    t.a[i * t.stride[2]] = t.b[j * t.stride[0]] + t.c[i * t.stride[1]];
}
static float* first(const DLTensor* t) { return (float*)((char*)t->data + t->byte_offset); } /* never leave out byte_offset */
static int32_t launch(void* self, const void* plan, const nw_call* call, nw_error* error) {
  const nw_host* host = self;
  mod_add_plan task = *(const mod_add_plan*)plan;
  task.b = first(call->inputs[0]);
  task.c = first(call->inputs[1]);
  task.a = first(call->outputs[0]);
  host->parallel_for(host->ctx, task.n, 16384, mod_add_piece, &task);
  return NW_OK;
}

/* The device: number 0, host memory, and one stream, NULL, on which everything is done when the call returns. */
static int32_t known(int32_t id, const void* stream, nw_error* error) {
  if (id != 0) return fail(error, NW_INVALID, -1, "device_id is %d; expected 0", id);
  return stream == NULL ? NW_OK : fail(error, NW_INVALID, -1, "stream is %p; expected NULL: the CPU has no other", stream);
}
static int32_t create(const nw_host* host, void** self, nw_error* error) {
  *self = (void*)host;
  return NW_OK;
}
static void destroy(void* self) {} /* the instance was the host's own table */
static int32_t device_count(void* self, int32_t* count, nw_error* error) {
  *count = 1;
  return NW_OK;
}
static int32_t device_info(void* self, int32_t id, nw_device_info* out, nw_error* error) {
  const nw_device_info info = {out->struct_size, 0, "host memory", "any", {0}, 0};
  if (known(id, NULL, error) != NW_OK) return NW_INVALID;
  memcpy(out, &info, common(out->struct_size, sizeof info));
  return NW_OK;
}
static int32_t alloc_memory(void* self, int32_t id, uint64_t size, void* stream, void** data, nw_error* error) {
  if (known(id, stream, error) != NW_OK) return NW_INVALID;
  *data = NULL;
  if (size == 0 || posix_memalign(data, 256, size) == 0) return NW_OK;
  return fail(error, NW_OUT_OF_MEMORY, -1, "no memory for %zu bytes", (size_t)size);
}
static int32_t free_memory(void* self, int32_t id, void* data, void* stream, nw_error* error) {
  if (known(id, stream, error) != NW_OK) return NW_INVALID;
  free(data);
  return NW_OK;
}
static int32_t copy(void* self, DLDevice to, void* dst, DLDevice from, const void* src, uint64_t n, void* s, nw_error* error) {
  if (to.device_type != kDLCPU || from.device_type != kDLCPU) return fail(error, NW_UNSUPPORTED, -1, "copy: expected CPU memory");
  if (known(to.device_id | from.device_id, s, error) != NW_OK) return NW_INVALID;
  memmove(dst, src, n);
  return NW_OK;
}
static int32_t stream_create(void* self, int32_t id, void** s, nw_error* error) {
  *s = NULL;
  return known(id, NULL, error);
}
static int32_t stream_end(void* self, int32_t id, void* s, nw_error* error) { return known(id, s, error); }
static int32_t stream_wait(void* self, int32_t id, void* s, void* t, nw_error* error) { return known(id, s ? s : t, error); }

/* clang-format off */
/* The declaration: vendor.name/version, so that a changed contract is a new name. What is left out is 0. A binding fills in 128. */
static const nw_param modulus = {"modulus", {kDLInt, 64, 1}, 0, NULL, 128}, *const fields[] = {&modulus, NULL};
static const char *const inputs[] = {"b", "c", NULL}, *const outputs[] = {"a", NULL};
static const nw_op mod_add = {.struct_size = sizeof(nw_op), .name = "example.mod_add/1", .flags = NW_OP_INPLACE /* a may be c */,
    .min_inputs = 2, .max_inputs = 2, .inputs = inputs, .num_outputs = 1, .outputs = outputs, .shape_rule = "like 1" /* c */,
    .params_size = sizeof(mod_add_params), .params = fields}, *const ops[] = {&mod_add};
static const nw_plugin table = {.struct_size = sizeof(nw_plugin), .abi_major = NW_ABI_MAJOR, .name = "example", .version = "1.0",
    .device_type = kDLCPU, .num_ops = 1, .ops = ops, .create = create, .destroy = destroy, .device_count = device_count,
    .device_info = device_info, .alloc = alloc_memory, .free = free_memory, .copy = copy, .stream_create = stream_create,
    .stream_destroy = stream_end, .stream_sync = stream_end, .stream_wait = stream_wait, .plan = plan, .plan_free = plan_free,
    .launch = launch};
/* clang-format on */
const nw_plugin* narrows_plugin_query(uint32_t host_major, nw_error* error) { /* the one symbol that the host looks up */
  if (host_major == NW_ABI_MAJOR) return &table;
  fail(error, NW_UNSUPPORTED, -1, "ABI major is %u; expected %d: rebuild the plugin", host_major, NW_ABI_MAJOR);
  return NULL;
}
