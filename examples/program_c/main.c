/* SPDX-License-Identifier: Apache-2.0 */
/* A tensor program from C: a matrix product with relu, read from its text, scheduled by steps, run as an op.
 *   cc -std=c99 -Wall -Wextra main.c -o program_c $(pkg-config --cflags --libs narrows) -lnarrows_program -lm && ./program_c */
#include <math.h>
#include <narrows/program.h>
#include <stdio.h>
#include <stdlib.h>

enum { N = 128 };

static const char text[] =
    "program 1 mm_relu(A: f32[128, 128], B: f32[128, 128], C: out f32[128, 128]):\n"
    "  alloc Y: f32[128, 128]\n"
    "  for i in 128:\n"
    "    for j in 128:\n"
    "      for k in 128:\n"
    "        block Y(vi: S(128) = i, vj: S(128) = j, vk: R(128) = k):\n"
    "          init:\n"
    "            Y[vi, vj] = f32(0)\n"
    "          Y[vi, vj] = Y[vi, vj] + A[vi, vk] * B[vk, vj]\n"
    "  for i1 in 128:\n"
    "    for j1 in 128:\n"
    "      block C(vi: S(128) = i1, vj: S(128) = j1):\n"
    "        C[vi, vj] = maximum(Y[vi, vj], f32(0))\n";

static const char* const steps[] = {"split(loop=\"j\", factors=[None, 8])", "parallel(loop=\"i\")", "parallel(loop=\"i1\")"};

static float a[N][N], b[N][N], c[N][N];

static void check(int32_t status, const nw_error* error) {
  if (status == NW_OK) return;
  fprintf(stderr, "program_c: %s: %s\n", nw_status_name(status), error->message);
  exit(1);
}

/* What the program computes, as plain loops in double. */
static double largest_difference(void) {
  double largest = 0;
  for (int i = 0; i < N; ++i) {
    for (int j = 0; j < N; ++j) {
      double sum = 0;
      for (int k = 0; k < N; ++k) sum += (double)a[i][k] * b[k][j];
      largest = fmax(largest, fabs(fmax(sum, 0) - c[i][j]));
    }
  }
  return largest;
}

static void run(nw_runtime* runtime, const nw_op* op) {
  const DLDevice cpu = {kDLCPU, 0};
  const DLDataType f32 = {kDLFloat, 32, 1};
  int64_t shape[2] = {N, N};
  const DLTensor ta = {a, cpu, 2, f32, shape, NULL, 0}, tb = {b, cpu, 2, f32, shape, NULL, 0},
                 tc = {c, cpu, 2, f32, shape, NULL, 0};
  const DLTensor *inputs[] = {&ta, &tb}, *outputs[] = {&tc};
  const nw_call call = {
      .struct_size = sizeof call, .op = op->name, .num_inputs = 2, .inputs = inputs, .num_outputs = 1, .outputs = outputs};
  nw_plan* plan = NULL;
  nw_plan_info info = {.struct_size = sizeof info};
  nw_error error;
  check(nw_plan_get(runtime, &call, &plan, &info, &error), &error);
  check(nw_launch(plan, &call, &error), &error);
  printf("%s\nran on %s, kernel %s; the largest difference from loops in double is below 1e-4: %s\n", op->name, info.backend,
         info.kernel ? info.kernel : "unnamed", largest_difference() < 1e-4 ? "yes" : "no");
  nw_plan_release(plan);
}

int main(void) {
  for (int i = 0; i < N; ++i) {
    for (int j = 0; j < N; ++j) {
      a[i][j] = (float)((i * 7 + j * 3) % 11) / 11 - 0.5F;
      b[i][j] = (float)((i * 5 + j * 2) % 13) / 13 - 0.5F;
    }
  }
  nw_runtime* runtime = NULL;
  nw_program* program = NULL;
  const nw_op* op = NULL;
  const char* printed = NULL;
  nw_error error;
  check(nw_runtime_create(NULL, &runtime, &error), &error);
  check(nw_program_parse(text, &program, &error), &error);
  for (size_t i = 0; i < sizeof steps / sizeof *steps; ++i) check(nw_program_step(program, steps[i], NULL, &error), &error);
  check(nw_program_print(program, &printed, &error), &error);
  fputs(printed, stdout);

  /* A step that would change what is computed is refused, with the reason. */
  if (nw_program_step(program, "parallel(loop=\"k\")", NULL, &error) == NW_OK) return 1;
  printf("\nrefused: %s\n\n", error.message);

  check(nw_program_load(runtime, program, NULL, "cpu", &op, &error), &error);
  nw_program_free(program);
  run(runtime, op);
  nw_runtime_destroy(runtime);
  return 0;
}
