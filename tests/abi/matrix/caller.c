/* SPDX-License-Identifier: Apache-2.0 */
/* caller.c -- the caller of the matrix. sides.h says what it is compiled against.
 *   caller pair  LIBRARY PLUGINS LIBRARY_NEXT PLUGIN_NEXT [CPU]   every function of narrows.h by way of the plugin in the folder
 * PLUGINS; the _NEXT are 1 where that side knows what next.py appends. CPU: the cpu backend's file, which knows nothing of it
 *   caller table LIBRARY PLUGINS STATUS [REASON]   the library lists the plugin with this status, and a reason that holds REASON
 * LIBRARY is the libnarrows that must turn out to be the one that was loaded. Every struct lies alone on the heap in exactly this
 * side's size, so that AddressSanitizer sees a library that reads or writes more. Exit code: 0 all as docs/abi.md says. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <narrows/narrows.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sides.h"

enum { kCount = 5, kPoison = -7777 };

static int checks, failures, library_next, plugin_next;
static nw_runtime* rt;
static nw_error* error;

#define CHECK(condition) check(condition, #condition, __LINE__)
static void check(int holds, const char* condition, int line) {
  ++checks;
  if (holds) return;
  ++failures;
  printf("caller.c:%d: %s; the last error: %s\n", line, condition, error->message);
}
#define REQUIRE(condition) require(condition, #condition, __LINE__) /* without it the rest makes no sense */
static void require(int holds, const char* condition, int line) {
  check(holds, condition, line);
  if (!holds) exit(1);
}
static int same(const char* a, const char* b) { return a != NULL && strcmp(a, b) == 0; }

/* ---- memory: blocks of an exact size, freed at the end ---- */

static void* blocks[4096];
static size_t num_blocks;
static void* fresh(size_t size, int fill) {
  void* const block = malloc(size);
  if (block == NULL || num_blocks == sizeof blocks / sizeof *blocks) abort();
  blocks[num_blocks++] = block;
  return memset(block, fill, size);
}
static void* fresh_struct(uint32_t size, int fill) { return memcpy(fresh(size, fill), &size, sizeof size); }
#define INPUT(type) ((type*)fresh_struct(sizeof(type), 0))
#define OUTPUT(type) ((type*)fresh_struct(sizeof(type), 0xEE)) /* what the callee leaves out is seen */

/* ---- one call ---- */

static double x[kCount] = {1, 2, 3, 4, 5}, y[kCount];
static int64_t shape[1] = {kCount};
static const DLTensor* tensors[2];

static const DLTensor* tensor_of(double* data, int device_type) {
  DLTensor* const tensor = (DLTensor*)fresh(sizeof *tensor, 0);
  tensor->data = data;
  tensor->device.device_type = (DLDeviceType)device_type;
  tensor->ndim = 1;
  tensor->dtype.code = kDLFloat, tensor->dtype.bits = 64, tensor->dtype.lanes = 1;
  tensor->shape = shape;
  return tensor;
}

static nw_call* new_call(const char* op, int device_type, const void* params, size_t params_size) {
  nw_call* const call = INPUT(nw_call);
  tensors[0] = tensor_of(x, device_type);
  tensors[1] = tensor_of(y, device_type);
  call->op = op;
  call->num_inputs = call->num_outputs = 1;
  call->inputs = &tensors[0];
  call->outputs = &tensors[1];
  call->params = params;
  call->params_size = params_size;
  return call;
}

static int32_t run(const nw_call* call) {
  for (int i = 0; i < kCount; ++i) y[i] = kPoison;
  error->message[0] = '\0';
  return nw_run(rt, call, error);
}

/* out[i] = square*x[i]^2 + factor*x[i] + offset, for all i */
static int gives(double square, double factor, double offset) {
  for (int i = 0; i < kCount; ++i)
    if (!(y[i] == square * x[i] * x[i] + factor * x[i] + offset)) return 0;
  return 1;
}
#ifdef NW_EW_NEXT
static int untouched(void) { return gives(0, 0, kPoison); }
#endif

static nw_elementwise_params* elementwise(int32_t function) {
  nw_elementwise_params* const params = (nw_elementwise_params*)fresh(sizeof *params, 0);
  params->function = function;
  return params;
}
static nw_call* elementwise_call(int device_type, const nw_elementwise_params* params) {
  return new_call("elementwise", device_type, params, sizeof *params);
}

/* ---- with zero tails: everything works ---- */

static void check_results(void) {
  CHECK(run(elementwise_call(SIDE_DEVICE, elementwise(NW_EW_SQUARE))) == NW_OK && gives(1, 0, 0));
  nw_elementwise_params* const add = elementwise(NW_EW_ADD);
  add->b_real = 2.5;
  CHECK(run(elementwise_call(SIDE_DEVICE, add)) == NW_OK && gives(0, 1, 2.5));
  side_scale_params* const scale = (side_scale_params*)fresh(sizeof *scale, 0);
  scale->factor = 3;
  nw_call* const call = new_call(SIDE_SCALE, SIDE_DEVICE, scale, sizeof *scale);
  CHECK(run(call) == NW_OK && gives(0, 3, 0));
  call->backend = SIDE_NAME;
  call->kernel = "loop";
  call->flags = NW_DETERMINISTIC;
  CHECK(run(call) == NW_OK && gives(0, 3, 0));
}

static void check_plan(void) {
  const nw_call* const call = elementwise_call(SIDE_DEVICE, elementwise(NW_EW_SQUARE));
  nw_plan_info* const info = OUTPUT(nw_plan_info);
  nw_plan* plan = NULL;
  REQUIRE(nw_plan_get(rt, call, &plan, info, error) == NW_OK && plan != NULL);
  CHECK(info->struct_size == sizeof *info && info->traits == NW_PLAN_CAPTURABLE && info->workspace_size == 512);
  CHECK(same(info->kernel, "loop") && same(info->backend, SIDE_NAME));
#ifdef NW_EW_NEXT
  CHECK(info->next_number == (library_next && plugin_next ? PLAN_INFO_NUMBER : 0) && info->next_text == NULL);
#endif
  for (int i = 0; i < kCount; ++i) y[i] = kPoison;
  CHECK(nw_launch(plan, call, error) == NW_OK && gives(1, 0, 0));
  nw_plan_release(plan);
  CHECK(nw_plan_get(rt, call, NULL, info, error) == NW_OK);
  nw_spec* const spec = (nw_spec*)fresh(sizeof *spec, 0xEE);
  CHECK(nw_infer(rt, call, spec, 1, error) == NW_OK && spec->ndim == 1 && spec->shape[0] == kCount && spec->dtype.bits == 64);
  nw_plan_cache_clear(rt);
}

static nw_backend_info* find_backend(const char* name) {
  for (uint32_t i = 0; i < nw_backend_count(rt); ++i) {
    nw_backend_info* const info = OUTPUT(nw_backend_info);
    CHECK(nw_backend(rt, i, info, error) == NW_OK && info->struct_size == sizeof *info);
    if (same(info->name, name)) return info;
  }
  return NULL;
}

static void check_lists(void) {
  const nw_backend_info* const backend = find_backend(SIDE_NAME);
  REQUIRE(backend != NULL && backend->status == NW_OK);
  CHECK(backend->device_type == SIDE_DEVICE && backend->device_count == 1 && backend->flags == 0);
  CHECK(backend->num_ops == 2 && same(backend->ops[1]->name, SIDE_SCALE));
  nw_device_info* const device = OUTPUT(nw_device_info);
  const DLDevice at = {(DLDeviceType)SIDE_DEVICE, 0};
  CHECK(nw_device(rt, at, device, error) == NW_OK && device->struct_size == sizeof *device);
  CHECK(same(device->name, "a side") && same(device->arch, "C") && device->total_memory == 1 << 20);
#ifdef NW_EW_NEXT
  CHECK(backend->next_number == (library_next ? BACKEND_INFO_NUMBER : 0) && backend->next_text == NULL);
  CHECK(device->next_number == (library_next && plugin_next ? DEVICE_INFO_NUMBER : 0) && device->next_text == NULL);
#endif
  const nw_op* op = NULL;
  CHECK(nw_find_op(rt, SIDE_SCALE, &op, error) == NW_OK && same(op->shape_rule, "like 0") && op->params[0]->offset == 0);
  CHECK(nw_find_op(rt, "elementwise", &op, error) == NW_OK && op->params_size >= 48);
}

static void check_memory(void) {
  const DLDevice at = {(DLDeviceType)SIDE_DEVICE, 0}, host = {kDLCPU, 0};
  void *data = NULL, *stream = NULL;
  CHECK(nw_stream_create(rt, at, &stream, error) == NW_OK);
  CHECK(nw_alloc(rt, at, sizeof x, stream, &data, error) == NW_OK && data != NULL);
  CHECK(nw_copy(rt, at, data, host, x, sizeof x, stream, error) == NW_OK && memcmp(data, x, sizeof x) == 0);
  CHECK(nw_free(rt, at, data, stream, error) == NW_OK);
  CHECK(nw_stream_wait(rt, at, stream, stream, error) == NW_OK && nw_stream_sync(rt, at, stream, error) == NW_OK);
  CHECK(nw_stream_destroy(rt, at, stream, error) == NW_OK);
}

/* What a newer library appends to nw_sig and nw_host informs a newer plugin and is not looked at by an older one. */
static void check_seen(void) {
  const side_seen* const seen = (const side_seen*)nw_extension(rt, SIDE_NAME, "side/1");
  REQUIRE(seen != NULL);
  CHECK(run(elementwise_call(SIDE_DEVICE, elementwise(NW_EW_SQUARE))) == NW_OK && seen->launches != 0);
  CHECK(seen->sig_number == (library_next && plugin_next ? SIG_NUMBER : 0));
  CHECK(seen->host_number == (library_next && plugin_next ? HOST_NUMBER : 0));
  CHECK(seen->call_number == 0);
#ifdef NW_EW_NEXT
  CHECK((seen->call_size == sizeof(nw_call)) == library_next && seen->call_size <= sizeof(nw_call));
#endif
}

/* The cpu backend, which was built against the headers of now. */
static void check_cpu(const char* file) {
  if (find_backend("cpu") == NULL) CHECK(nw_load(rt, file, error) == NW_OK);
  CHECK(run(elementwise_call(kDLCPU, elementwise(NW_EW_SQUARE))) == NW_OK && gives(1, 0, 0));
  nw_conv1d_params* const params = (nw_conv1d_params*)fresh(sizeof *params, 0);
  nw_call* const call = new_call("conv1d", kDLCPU, params, sizeof *params);
  static double w[1] = {2};
  static int64_t taps[1] = {1};
  DLTensor* const weights = (DLTensor*)fresh(sizeof *weights, 0);
  *weights = *tensors[0];
  weights->data = w;
  weights->shape = taps;
  const DLTensor* const inputs[2] = {tensors[0], weights};
  call->inputs = inputs;
  call->num_inputs = 2;
  CHECK(run(call) == NW_OK && gives(0, 2, 0));
#ifdef NW_EW_NEXT
  params->next_int = 1;
  CHECK(run(call) == NW_UNSUPPORTED && untouched());
  nw_call* const next = elementwise_call(kDLCPU, elementwise(NW_EW_NEXT));
  CHECK(run(next) == NW_UNSUPPORTED && untouched());
  nw_call* const flagged = elementwise_call(kDLCPU, elementwise(NW_EW_SQUARE));
  flagged->flags = NW_NEXT_FLAG;
  CHECK(run(flagged) == NW_UNSUPPORTED && untouched());
#endif
}

/* ---- with set tails: refused by whoever does not know them ---- */

#ifdef NW_EW_NEXT
/* A call that works iff `known`, and then gives y = square*x^2 + factor*x + offset. */
#define CHECK_NEXT(call, known, square, factor, offset)                                    \
  do {                                                                                     \
    const int32_t status = run(call);                                                      \
    CHECK(status == ((known) ? NW_OK : NW_UNSUPPORTED));                                   \
    CHECK(status == NW_OK ? gives(square, factor, offset) : untouched());                  \
    CHECK(status == NW_OK || error->message[0] != '\0');                                   \
    CHECK(nw_plan_get(rt, call, NULL, NULL, error) == ((known) ? NW_OK : NW_UNSUPPORTED)); \
  } while (0)

static void check_set_call(void) {
  nw_call* call = elementwise_call(SIDE_DEVICE, elementwise(NW_EW_SQUARE));
  call->next_number = 5;
  CHECK_NEXT(call, library_next, 1, 0, 0);
  const side_seen* const seen = (const side_seen*)nw_extension(rt, SIDE_NAME, "side/1");
  CHECK(run(call) != NW_OK || seen->call_number == (plugin_next ? 5 : 0));
  nw_spec spec;
  CHECK(nw_infer(rt, call, &spec, 1, error) == (library_next ? NW_OK : NW_UNSUPPORTED));
  call = elementwise_call(SIDE_DEVICE, elementwise(NW_EW_SQUARE));
  call->next_text = "x";
  CHECK_NEXT(call, library_next, 1, 0, 0);
  call = elementwise_call(SIDE_DEVICE, elementwise(NW_EW_SQUARE));
  call->flags = NW_NEXT_FLAG;
  CHECK_NEXT(call, library_next && plugin_next, 1, 0, 0);
}

static void check_set_params(void) {
  nw_elementwise_params* params = elementwise(NW_EW_SQUARE);
  params->next_int = 7;
  CHECK_NEXT(elementwise_call(SIDE_DEVICE, params), library_next && plugin_next, 1, 0, 7);
  params = elementwise(NW_EW_SQUARE);
  params->next_real = 0.5;
  CHECK_NEXT(elementwise_call(SIDE_DEVICE, params), library_next && plugin_next, 1, 0, 0.5);
  CHECK_NEXT(elementwise_call(SIDE_DEVICE, elementwise(NW_EW_NEXT)), library_next && plugin_next, 0, 1, SIDE_NEXT_ADDS);
  /* The params of its own op are the plugin's affair: the library reads how many bytes they have from the declaration. */
  side_scale_params* const scale = (side_scale_params*)fresh(sizeof *scale, 0);
  scale->factor = 3;
  scale->offset = 9;
  CHECK_NEXT(new_call(SIDE_SCALE, SIDE_DEVICE, scale, sizeof *scale), plugin_next, 0, 3, 9);
}

static void check_set_options(void) {
  for (int which = 0; which < 2; ++which) {
    nw_options* const options = INPUT(nw_options);
    if (which == 0) options->next_number = 1;
    if (which == 1) options->next_text = "x";
    nw_runtime* other = NULL;
    const int32_t status = nw_runtime_create(options, &other, error);
    CHECK(status == (library_next ? NW_OK : NW_UNSUPPORTED) && (other != NULL) == (status == NW_OK));
    nw_runtime_destroy(other);
  }
}
#endif

/* ---- main ---- */

/* The library that was loaded is the one that this run is about: else all of it would be vacuous. */
static void check_library(const char* expected) {
  Dl_info info;
  char *loaded = NULL, *named = realpath(expected, NULL);
  if (dladdr((void*)&nw_version, &info) != 0) loaded = realpath(info.dli_fname, NULL);
  CHECK(loaded != NULL && named != NULL && strcmp(loaded, named) == 0);
  printf("%s, ABI %u.x; headers %d.%d, nw_call of %zu bytes\n", loaded, nw_abi_major(), NW_ABI_MAJOR, NW_ABI_MINOR,
         sizeof(nw_call));
  free(loaded);
  free(named);
}

static void quiet(void* ctx, int32_t level, const char* message) {
  (void)ctx, (void)level;
  printf("  log: %s\n", message);
}

static void open_runtime(const char* plugins) {
  nw_options* const options = INPUT(nw_options);
  options->plugin_path = plugins;
  options->num_threads = 2;
  options->log = quiet;
  REQUIRE(nw_runtime_create(options, &rt, error) == NW_OK && rt != NULL);
}

static void check_table(const char* plugins, int32_t status, const char* reason) {
  int found = 0;
  for (uint32_t i = 0; i < nw_backend_count(rt); ++i) {
    nw_backend_info* const info = OUTPUT(nw_backend_info);
    CHECK(nw_backend(rt, i, info, error) == NW_OK);
    if (strncmp(info->path, plugins, strlen(plugins)) != 0) continue;
    ++found;
    printf("  %s: status %d, '%s'\n", info->name, info->status, info->reason);
    CHECK(same(info->name, SIDE_NAME) && info->status == status && strstr(info->reason, reason) != NULL);
  }
  CHECK(found == 1);
}

int main(int argc, char** argv) {
  if (argc < 5) return fprintf(stderr, "caller: %d arguments; see the head of caller.c\n", argc - 1), 2;
  const int pair = strcmp(argv[1], "pair") == 0 && argc > 5;
  error = (nw_error*)fresh(sizeof *error, 0);
  check_library(argv[2]);
  open_runtime(argv[3]);
  if (pair) {
    library_next = atoi(argv[4]);
    plugin_next = atoi(argv[5]);
    check_lists();
    check_results();
    check_plan();
    check_memory();
    check_seen();
    if (argc > 6) check_cpu(argv[6]);
#ifdef NW_EW_NEXT
    check_set_call();
    check_set_params();
    check_set_options();
#endif
  } else {
    check_table(argv[3], atoi(argv[4]), argc > 5 ? argv[5] : "");
  }
  nw_runtime_destroy(rt);
  while (num_blocks != 0) free(blocks[--num_blocks]);
  printf("%d checks, %d failed\n", checks, failures);
  return failures != 0;
}
