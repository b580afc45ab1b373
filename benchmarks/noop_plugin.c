/* SPDX-License-Identifier: Apache-2.0 */
/* noop_plugin.c -- the op "bench.noop/1": two inputs, one output, a kernel that does nothing. What remains is the dispatcher. */
#define _POSIX_C_SOURCE 200112L
#include <narrows/plugin.h>
#include <stdlib.h>
#include <string.h>

static const char* const inputs[] = {"a", "b", NULL};
static const char* const outputs[] = {"out", NULL};
static const nw_op noop = {.struct_size = sizeof(nw_op),
                           .name = "bench.noop/1",
                           .min_inputs = 2,
                           .max_inputs = 2,
                           .num_outputs = 1,
                           .inputs = inputs,
                           .outputs = outputs,
                           .params_size = 64,
                           .shape_rule = "like 0"};
static const nw_op* const ops[] = {&noop};

static int32_t create(const nw_host* host, void** self, nw_error* error) {
  (void)error;
  *self = (void*)host;
  return NW_OK;
}
static void destroy(void* self) { (void)self; }
static int32_t device_count(void* self, int32_t* count, nw_error* error) {
  (void)self, (void)error;
  *count = 1;
  return NW_OK;
}
static int32_t device_info(void* self, int32_t id, nw_device_info* out, nw_error* error) {
  (void)self, (void)id, (void)error;
  strcpy(out->name, "nothing");
  return NW_OK;
}
static int32_t alloc(void* self, int32_t id, uint64_t size, void* stream, void** data, nw_error* error) {
  (void)self, (void)id, (void)stream, (void)error;
  *data = NULL;
  return size == 0 || posix_memalign(data, NW_WORKSPACE_ALIGN, size) == 0 ? NW_OK : NW_OUT_OF_MEMORY;
}
static int32_t release(void* self, int32_t id, void* data, void* stream, nw_error* error) {
  (void)self, (void)id, (void)stream, (void)error;
  free(data);
  return NW_OK;
}
static int32_t copy(void* self, DLDevice to, void* dst, DLDevice from, const void* src, uint64_t size, void* stream,
                    nw_error* error) {
  (void)self, (void)to, (void)from, (void)stream, (void)error;
  memcpy(dst, src, size);
  return NW_OK;
}
static int32_t stream_create(void* self, int32_t id, void** stream, nw_error* error) {
  (void)self, (void)id, (void)error;
  *stream = NULL;
  return NW_OK;
}
static int32_t stream_any(void* self, int32_t id, void* stream, nw_error* error) {
  (void)self, (void)id, (void)stream, (void)error;
  return NW_OK;
}
static int32_t stream_wait(void* self, int32_t id, void* waiter, void* signaler, nw_error* error) {
  (void)self, (void)id, (void)waiter, (void)signaler, (void)error;
  return NW_OK;
}
static int32_t plan(void* self, const nw_sig* sig, void** out, nw_plan_info* info, nw_error* error) {
  (void)sig, (void)info, (void)error;
  if (out != NULL) *out = self;
  return NW_OK;
}
static void plan_free(void* self, void* plan_) { (void)self, (void)plan_; }
static int32_t launch(void* self, const void* plan_, const nw_call* call, nw_error* error) {
  (void)self, (void)plan_, (void)call, (void)error;
  return NW_OK;
}

static const nw_plugin table = {.struct_size = sizeof(nw_plugin),
                                .abi_major = NW_ABI_MAJOR,
                                .name = "noop",
                                .version = "1",
                                .device_type = kDLCPU,
                                .num_ops = 1,
                                .ops = ops,
                                .create = create,
                                .destroy = destroy,
                                .device_count = device_count,
                                .device_info = device_info,
                                .alloc = alloc,
                                .free = release,
                                .copy = copy,
                                .stream_create = stream_create,
                                .stream_destroy = stream_any,
                                .stream_sync = stream_any,
                                .stream_wait = stream_wait,
                                .plan = plan,
                                .plan_free = plan_free,
                                .launch = launch};

const nw_plugin* narrows_plugin_query(uint32_t host_major, nw_error* error) {
  (void)error;
  return host_major == NW_ABI_MAJOR ? &table : NULL;
}
