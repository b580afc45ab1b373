/* SPDX-License-Identifier: Apache-2.0 */
/* faulty.c -- a plugin that is right but for one thing, which -D names, so that each refusal of the loader has its own file:
 *   NAME "faulty"              its name
 *   PLUGIN=.field = value      overrides part of the table        OP=.field = value     overrides part of its one op
 *   SECOND=.field = value      a second op, equal but for this    QUERY=statement       what the query does instead
 *   SYMBOL=other_name          exports that and not narrows_plugin_query
 *   CREATE_STATUS=NW_...       what create() returns, with a message
 *   INSTANCE=NULL              the instance that it makes; destroy() then logs that it was called
 *   BEND                       a function of the test has the last word on its table; its address stands in NARROWS_TEST_BEND */
#include <narrows/ops.h>
#include <narrows/plugin.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* PLUGIN, OP and SECOND override what stands before them. */
#ifdef __clang__
#pragma clang diagnostic ignored "-Winitializer-overrides"
#else
#pragma GCC diagnostic ignored "-Woverride-init"
#endif

#ifndef NAME
#define NAME "faulty"
#endif
#ifndef INSTANCE
#define INSTANCE &instance
#endif
#ifndef CREATE_STATUS
#define CREATE_STATUS NW_OK
#endif

static const nw_host* creator;

static int32_t create(const nw_host* host, void** self, nw_error* error) {
  static int instance;
  (void)instance;
  *self = INSTANCE;
  creator = host;
  if (CREATE_STATUS != NW_OK && error != NULL) {
    error->status = CREATE_STATUS;
    error->argument = -1;
    strcpy(error->message, "libfaulty.so.1 is missing: install libfaulty1");
  }
  return CREATE_STATUS;
}
static void destroy(void* self) {
  if (self == NULL) creator->log(creator->ctx, NW_LOG_DEBUG, NAME " is destroyed");
}
static int32_t device_count(void* self, int32_t* count, nw_error* error) {
  (void)self, (void)error;
  *count = 1;
  return NW_OK;
}
static int32_t device_info(void* self, int32_t device_id, nw_device_info* out, nw_error* error) {
  (void)self, (void)device_id, (void)error;
  strcpy(out->name, NAME);
  return NW_OK;
}
static int32_t alloc_memory(void* self, int32_t device_id, uint64_t size, void* stream, void** data, nw_error* error) {
  (void)self, (void)device_id, (void)stream, (void)error;
  *data = size == 0 ? NULL : malloc(size);
  return NW_OK;
}
static int32_t free_memory(void* self, int32_t device_id, void* data, void* stream, nw_error* error) {
  (void)self, (void)device_id, (void)stream, (void)error;
  free(data);
  return NW_OK;
}
static int32_t copy(void* self, DLDevice to, void* dst, DLDevice from, const void* src, uint64_t size, void* stream,
                    nw_error* error) {
  (void)self, (void)to, (void)from, (void)stream, (void)error;
  memcpy(dst, src, size);
  return NW_OK;
}
static int32_t stream_create(void* self, int32_t device_id, void** stream, nw_error* error) {
  (void)self, (void)device_id, (void)error;
  *stream = NULL;
  return NW_OK;
}
static int32_t stream_destroy(void* self, int32_t device_id, void* stream, nw_error* error) {
  (void)self, (void)device_id, (void)stream, (void)error;
  return NW_OK;
}
static int32_t stream_sync(void* self, int32_t device_id, void* stream, nw_error* error) {
  (void)self, (void)device_id, (void)stream, (void)error;
  return NW_OK;
}
static int32_t stream_wait(void* self, int32_t device_id, void* waiter, void* signaler, nw_error* error) {
  (void)self, (void)device_id, (void)waiter, (void)signaler, (void)error;
  return NW_OK;
}
static int32_t plan(void* self, const nw_sig* sig, void** out, nw_plan_info* info, nw_error* error) {
  static int the_plan;
  (void)self, (void)sig, (void)info, (void)error;
  if (out != NULL) *out = &the_plan;
  return NW_OK;
}
static void plan_free(void* self, void* plan_) { (void)self, (void)plan_; }
static int32_t launch(void* self, const void* plan_, const nw_call* call, nw_error* error) {
  (void)self, (void)plan_, (void)call, (void)error;
  return NW_OK;
}

static const nw_param n_field = {"n", {kDLInt, 64, 1}, 0, NULL, 0};
static const nw_param* const fields[] = {&n_field, NULL};
static const char* const inputs[] = {"a", "b?", NULL};
static const char* const outputs[] = {"out", NULL};

/* Other arrays, for PLUGIN and OP to name. */
extern const nw_op* const null_op[];
const nw_op* const null_op[] = {NULL};
extern const char* const one_name[];
const char* const one_name[] = {"a", NULL};
extern const char* const other_inputs[];
const char* const other_inputs[] = {"a", "bias?", NULL};
extern const char two_outputs_rule[];
const char two_outputs_rule[] = "like 0 ; like 0";
static const nw_param m_field = {"m", {kDLInt, 64, 1}, 8, NULL, 0};
extern const nw_param* const more_fields[];
const nw_param* const more_fields[] = {&n_field, &m_field, NULL};
static const nw_param other_field = {"n", {kDLInt, 32, 1}, 0, NULL, 0};
extern const nw_param* const other_fields[];
const nw_param* const other_fields[] = {&other_field, NULL};
static const nw_param initial_field = {"n", {kDLInt, 64, 1}, 0, NULL, 7};
extern const nw_param* const initial_fields[];
const nw_param* const initial_fields[] = {&initial_field, NULL};
static const char* const values[] = {"none", "some", NULL};
static const nw_param valued_field = {"n", {kDLInt, 64, 1}, 0, values, 0};
extern const nw_param* const valued_fields[];
const nw_param* const valued_fields[] = {&valued_field, NULL};
/* Of the built-in conv1d: its inputs by another name, and by fewer; a field that it has not, and one without a name. */
extern const char* const conv1d_other_inputs[];
const char* const conv1d_other_inputs[] = {"x", "w", "offset?", NULL};
extern const char* const conv1d_few_inputs[];
const char* const conv1d_few_inputs[] = {"x", NULL};
static const nw_param nameless_field = {NULL, {kDLInt, 64, 1}, 0, NULL, 0};
extern const nw_param* const nameless_fields[];
const nw_param* const nameless_fields[] = {&nameless_field, NULL};

#define THE_OP                                                                                                               \
  .struct_size = sizeof(nw_op), .name = "faulty.op/1", .min_inputs = 1, .max_inputs = 2, .num_outputs = 1, .inputs = inputs, \
  .outputs = outputs, .params_size = 8, .shape_rule = "like 0", .params = fields
/* Only the name, and what else SECOND names: the host fills in the rest. */
#define BUILTIN                                                                                                        \
  .flags = 0, .min_inputs = 0, .max_inputs = 0, .num_outputs = 0, .inputs = NULL, .outputs = NULL, .shape_rule = NULL, \
  .params = NULL
#ifdef OP
static const nw_op first_op = {THE_OP, OP};
#else
static const nw_op first_op = {THE_OP};
#endif
#ifdef SECOND
static const nw_op second_op = {THE_OP, SECOND};
#define NUM_OPS 2
static const nw_op* const ops[] = {&first_op, &second_op};
#else
#define NUM_OPS 1
static const nw_op* const ops[] = {&first_op};
#endif
#define THE_PLUGIN                                                                                                                \
  .struct_size = sizeof(nw_plugin), .abi_major = NW_ABI_MAJOR, .name = NAME, .version = "0.0.1", .device_type = kDLExtDev,        \
  .num_ops = NUM_OPS, .ops = ops, .create = create, .destroy = destroy, .device_count = device_count, .device_info = device_info, \
  .alloc = alloc_memory, .free = free_memory, .copy = copy, .stream_create = stream_create, .stream_destroy = stream_destroy,     \
  .stream_sync = stream_sync, .stream_wait = stream_wait, .plan = plan, .plan_free = plan_free, .launch = launch
#ifdef PLUGIN
static const nw_plugin table = {THE_PLUGIN, PLUGIN};
#else
static const nw_plugin table = {THE_PLUGIN};
#endif

/* Other tables, for QUERY to return; and functions that may be missing. */
extern const nw_plugin zero_table, null_table;
const nw_plugin zero_table = {0};
const nw_plugin null_table = {.struct_size = sizeof(nw_plugin), .abi_major = NW_ABI_MAJOR};
const nw_plugin* narrows_ghost(void);
int narrows_ghost_driver(void);

#ifdef BEND
static const nw_plugin* bent(void) {
  static nw_plugin copy;
  const uintptr_t address = strtoull(getenv("NARROWS_TEST_BEND"), NULL, 0);
  copy = table;
  ((void (*)(nw_plugin*))address)(&copy);
  return &copy;
}
#endif

#ifdef SYMBOL
#define narrows_plugin_query SYMBOL
__attribute__((visibility("default"))) const nw_plugin* narrows_plugin_query(uint32_t host_major, nw_error* error);
#endif

const nw_plugin* narrows_plugin_query(uint32_t host_major, nw_error* error) {
  (void)host_major, (void)error;
#ifdef QUERY
  QUERY;
#endif
  return &table;
}
