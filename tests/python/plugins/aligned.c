/* aligned.c -- the op test.aligned/1 on the CPU: y = x + 1 of float32, and a failure where y is aligned worse than its plan was
 * told. */
#define _POSIX_C_SOURCE 200112L
#include <narrows/plugin.h>
#include <stdio.h>
#include <stdlib.h>

static int32_t create(const nw_host* host, void** self, nw_error* error) { return *self = (void*)host, NW_OK; }
static void destroy(void* self) {}
static int32_t device_count(void* self, int32_t* count, nw_error* error) { return *count = 1, NW_OK; }
static int32_t device_info(void* self, int32_t id, nw_device_info* out, nw_error* error) { return NW_OK; }
static int32_t alloc(void* self, int32_t id, uint64_t n, void* s, void** data, nw_error* error) {
  return *data = NULL, n == 0 || posix_memalign(data, NW_WORKSPACE_ALIGN, n) == 0 ? NW_OK : NW_OUT_OF_MEMORY;
}
static int32_t free_memory(void* self, int32_t id, void* data, void* s, nw_error* error) { return free(data), NW_OK; }
static int32_t copy(void* self, DLDevice to, void* dst, DLDevice from, const void* src, uint64_t n, void* s, nw_error* error) {
  return NW_UNSUPPORTED;
}
static int32_t stream_create(void* self, int32_t id, void** stream, nw_error* error) { return *stream = NULL, NW_OK; }
static int32_t end(void* self, int32_t id, void* what, nw_error* error) { return NW_OK; }
static int32_t stream_wait(void* self, int32_t id, void* s, void* t, nw_error* error) { return NW_OK; }

/* A plan is the alignment itself. */
static int32_t plan(void* self, const nw_sig* sig, void** out, nw_plan_info* info, nw_error* error) {
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
  static const nw_op aligned = {.struct_size = sizeof(nw_op),
                                .name = "test.aligned/1",
                                .min_inputs = 1,
                                .max_inputs = 1,
                                .num_outputs = 1,
                                .inputs = inputs,
                                .outputs = outputs,
                                .shape_rule = "like 0"};
  static const nw_op* const ops[] = {&aligned};
  static const nw_plugin table = {.struct_size = sizeof(nw_plugin),
                                  .abi_major = NW_ABI_MAJOR,
                                  .name = "aligned",
                                  .version = "1",
                                  .device_type = kDLCPU,
                                  .num_ops = 1,
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
  return &table;
}
