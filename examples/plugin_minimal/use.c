/* SPDX-License-Identifier: Apache-2.0 */
/* use.c -- calls the op of plugin.c by its name: find the declaration, infer the output, run.
 *   cc -std=c99 -Wall -Wextra use.c -o use $(pkg-config --cflags --libs narrows) && NARROWS_PLUGIN_PATH=$PWD ./use */
#include <narrows/narrows.h>
#include <stdio.h>
#include <stdlib.h>

static void check(int32_t status, const nw_error* error) {
  if (status == NW_OK) return;
  fprintf(stderr, "use: %s: %s\n", nw_status_name(status), error->message);
  exit(1);
}

static void list_backends(nw_runtime* runtime) {
  for (uint32_t i = 0; i < nw_backend_count(runtime); ++i) {
    nw_backend_info info = {.struct_size = sizeof info};
    nw_error error;
    check(nw_backend(runtime, i, &info, &error), &error);
    printf("%s %s, %s: %s%s%s\n", info.name, info.version, info.path, nw_status_name(info.status), *info.reason ? ": " : "",
           info.reason);
  }
}

int main(void) {
  nw_runtime* runtime = NULL;
  nw_error error;
  check(nw_runtime_create(NULL, &runtime, &error), &error);
  list_backends(runtime);

  const nw_op* op = NULL; /* what a binding needs in order to offer an op that it has never heard of */
  check(nw_find_op(runtime, "example.mod_add/1", &op, &error), &error);
  printf("%s(%s, %s; %s = %g) -> %s\n", op->name, op->inputs[0], op->inputs[1], op->params[0]->name, op->params[0]->initial,
         op->outputs[0]);

  float b[4] = {0, 100, 200, 300}, c[10] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  const DLDevice cpu = {kDLCPU, 0};
  const DLDataType f32 = {kDLFloat, 32, 1};
  int64_t b_shape[1] = {4}, c_shape[1] = {10};
  const DLTensor b_tensor = {b, cpu, 1, f32, b_shape, NULL, 0}, c_tensor = {c, cpu, 1, f32, c_shape, NULL, 0};
  const DLTensor* inputs[] = {&b_tensor, &c_tensor};
  int64_t modulus = 4; /* the params of this op: one int64 */
  nw_call call = {.struct_size = sizeof call, .op = op->name, .num_inputs = 2, .inputs = inputs};
  call.params = &modulus, call.params_size = sizeof modulus;

  nw_spec spec;
  check(nw_infer(runtime, &call, &spec, 1, &error), &error);
  float* a = malloc((size_t)spec.shape[0] * sizeof *a);
  if (a == NULL) return 1;
  const DLTensor a_tensor = {a, cpu, spec.ndim, spec.dtype, spec.shape, NULL, 0};
  const DLTensor* outputs[] = {&a_tensor};
  call.num_outputs = 1, call.outputs = outputs;
  check(nw_run(runtime, &call, &error), &error);
  for (int64_t i = 0; i < spec.shape[0]; ++i) printf("%g%c", a[i], i + 1 < spec.shape[0] ? ' ' : '\n');

  modulus = 5; /* one more than b has */
  if (nw_run(runtime, &call, &error) == NW_OK) return 1;
  printf("%s: %s\n", nw_status_name(error.status), error.message);

  free(a);
  nw_runtime_destroy(runtime);
  return 0;
}
