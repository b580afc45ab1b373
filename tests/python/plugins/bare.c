/* SPDX-License-Identifier: Apache-2.0 */
/* bare.c -- a plugin of two ops, without plugin.hpp, on the devices of the DLPack number that BARE_DEVICE says. elementwise it
 * refuses each time a plan is asked for. test.aligned/1 is y = x + 1 of float32, in host memory, and fails where y is aligned worse
 * than its plan was told. Its memory is the host's, which it never gives back; streams it has none. */
#define _POSIX_C_SOURCE 200112L
#include <narrows/plugin.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int32_t refuse(nw_error* error) {
  if (error != NULL) {
    error->argument = -1;
    snprintf(error->message, sizeof error->message, "it was asked for a plan");
  }
  return NW_FAILED;
}

static int32_t create(const nw_host* host, void** self, nw_error* error) { return *self = (void*)host, NW_OK; }
static void destroy(void* self) {}
static int32_t device_count(void* self, int32_t* count, nw_error* error) { return *count = 1, NW_OK; }
static int32_t device_info(void* self, int32_t id, nw_device_info* out, nw_error* error) { return refuse(error); }
static int32_t alloc(void* self, int32_t id, uint64_t n, void* s, void** data, nw_error* error) {
  return posix_memalign(data, 256, n) == 0 ? NW_OK : NW_OUT_OF_MEMORY;
}
static int32_t end(void* self, int32_t id, void* what, nw_error* error) { return NW_OK; }
static int32_t free_memory(void* self, int32_t id, void* data, void* s, nw_error* error) { return NW_OK; }
static int32_t copy(void* self, DLDevice to, void* dst, DLDevice from, const void* src, uint64_t n, void* s, nw_error* error) {
  return refuse(error);
}
static int32_t stream_create(void* self, int32_t id, void** stream, nw_error* error) { return refuse(error); }
static int32_t stream_wait(void* self, int32_t id, void* s, void* t, nw_error* error) { return refuse(error); }
/* A plan of test.aligned/1 is y's alignment itself. */
static int32_t plan(void* self, const nw_sig* sig, void** out, nw_plan_info* info, nw_error* error) {
  if (strcmp(sig->op, "elementwise") == 0) return refuse(error);
  if (out != NULL) *out = (void*)((uintptr_t)1 << sig->tensors[1].align_log2);
  return NW_OK;
}
static void plan_free(void* self, void* what) {}
static int32_t launch(void* self, const void* what, const nw_call* call, nw_error* error) {
  const DLTensor *const in = call->inputs[0], *const out = call->outputs[0];
  const float* const x = (const float*)((const char*)in->data + in->byte_offset);
  float* const y = (float*)((char*)out->data + out->byte_offset);
  if ((uintptr_t)y % (uintptr_t)what != 0) {
    if (error != NULL) error->argument = 1, snprintf(error->message, sizeof error->message, "its plan was told of more alignment");
    return NW_FAILED;
  }
  for (int64_t i = 0; i < out->shape[0]; ++i) y[i] = x[i] + 1;
  return NW_OK;
}

const nw_plugin* narrows_plugin_query(uint32_t host_major, nw_error* error) {
  static const char *const inputs[] = {"x", NULL}, *const outputs[] = {"y", NULL};
  static const nw_op elementwise = {.struct_size = sizeof(nw_op), .name = "elementwise"};
  static const nw_op aligned = {.struct_size = sizeof(nw_op),
                                .name = "test.aligned/1",
                                .min_inputs = 1,
                                .max_inputs = 1,
                                .num_outputs = 1,
                                .inputs = inputs,
                                .outputs = outputs,
                                .shape_rule = "like 0"};
  static const nw_op* const ops[] = {&elementwise, &aligned};
  static nw_plugin table = {.struct_size = sizeof(nw_plugin),
                            .abi_major = NW_ABI_MAJOR,
                            .name = "bare",
                            .version = "1.0",
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
                            .stream_destroy = end,
                            .stream_sync = end,
                            .stream_wait = stream_wait,
                            .plan = plan,
                            .plan_free = plan_free,
                            .launch = launch};
  table.device_type = atoi(getenv("BARE_DEVICE"));
  return &table;
}
