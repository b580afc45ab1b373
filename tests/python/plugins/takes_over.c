/* takes_over.c -- offers elementwise on the devices of the DLPack number that TAKES_OVER says, and refuses each call when it is
 * planned. Its memory is the host's, which it never gives back; streams it has none. */
#define _POSIX_C_SOURCE 200112L
#include <narrows/plugin.h>
#include <stdio.h>
#include <stdlib.h>

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
static int32_t plan(void* self, const nw_sig* sig, void** out, nw_plan_info* info, nw_error* error) { return refuse(error); }
static void plan_free(void* self, void* what) {}
static int32_t launch(void* self, const void* what, const nw_call* call, nw_error* error) { return refuse(error); }

const nw_plugin* narrows_plugin_query(uint32_t host_major, nw_error* error) {
  static const nw_op elementwise = {.struct_size = sizeof(nw_op), .name = "elementwise"}, *const ops[] = {&elementwise};
  static nw_plugin table = {.struct_size = sizeof(nw_plugin),
                            .abi_major = NW_ABI_MAJOR,
                            .name = "takes_over",
                            .version = "1.0",
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
  table.device_type = atoi(getenv("TAKES_OVER"));
  return &table;
}
