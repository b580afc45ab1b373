/* SPDX-License-Identifier: Apache-2.0 */
/* Puzzle 17 of MAX, a 1-D convolution, from C.
 *   cc -std=c99 -Wall -Wextra main.c -o caller_c $(pkg-config --cflags --libs narrows) && ./caller_c */
#include <narrows/narrows.h>
#include <stdio.h>
#include <stdlib.h>

static void check(int32_t status, const nw_error* error) {
  if (status == NW_OK) return;
  fprintf(stderr, "caller_c: %s: %s\n", nw_status_name(status), error->message);
  exit(1);
}

int main(void) {
  float x[15], w[4] = {0, 1, 2, 3}, y[15];
  for (int i = 0; i < 15; ++i) x[i] = (float)i;

  /* Tensors are DLPack's. NULL strides: C-contiguous. */
  const DLDevice cpu = {kDLCPU, 0};
  const DLDataType f32 = {kDLFloat, 32, 1};
  int64_t length[1] = {15}, taps[1] = {4};
  const DLTensor tx = {x, cpu, 1, f32, length, NULL, 0}, tw = {w, cpu, 1, f32, taps, NULL, 0},
                 ty = {y, cpu, 1, f32, length, NULL, 0};
  const DLTensor *inputs[] = {&tx, &tw}, *outputs[] = {&ty};
  const nw_conv1d_params params = {.pad_right = 3};
  const nw_call call = {.struct_size = sizeof call,
                        .op = "conv1d",
                        .num_inputs = 2,
                        .inputs = inputs,
                        .num_outputs = 1,
                        .outputs = outputs,
                        .params = &params,
                        .params_size = sizeof params};

  /* nw_run does it in one step; a plan says what will run, and runs again without being looked up. */
  nw_runtime* runtime = NULL;
  nw_plan* plan = NULL;
  nw_plan_info info = {.struct_size = sizeof info};
  nw_device_info device = {.struct_size = sizeof device};
  nw_error error;
  check(nw_runtime_create(NULL, &runtime, &error), &error);
  check(nw_plan_get(runtime, &call, &plan, &info, &error), &error);
  check(nw_launch(plan, &call, &error), &error);
  check(nw_device(runtime, cpu, &device, &error), &error);

  for (int i = 0; i < 15; ++i) printf("%g%c", y[i], i < 14 ? ' ' : '\n');
  printf("conv1d ran on %s, kernel %s: %s, %s\n", info.backend, info.kernel ? info.kernel : "unnamed", device.name, device.arch);
  nw_plan_release(plan);
  nw_runtime_destroy(runtime);
  return 0;
}
