// SPDX-License-Identifier: Apache-2.0
// dispatch.cpp -- what nw_run costs above the kernel, and what each part of it costs: a cached plan, a kernel that does nothing.
// Where the cpu backend is built: the same call of a built-in op and of a tensor program. Built with core's own objects, so that
// the parts can be timed alone.
//   build/cpu/bin/bench_dispatch [--json], after ./run test
#include <narrows/narrows.h>
#include <narrows/ops.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <vector>

#include "core/dispatcher.h"
#include "core/signature.h"

namespace {

struct NoNames final : narrows::TensorNames {
  std::string tensor(uint32_t) const override { return ""; }
};

// Of this thread alone, so that others on the machine are not in it. Nanoseconds.
double now() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_nsec);
}

// Median over rounds of the mean over calls, in nanoseconds.
template <class Work>
double measure(Work&& work) {
  constexpr int kRounds = 31, kCalls = 20000;
  std::vector<double> rounds;
  for (int r = 0; r < kRounds; ++r) {
    const double begin = now();
    for (int i = 0; i < kCalls; ++i) work();
    rounds.push_back((now() - begin) / kCalls);
  }
  std::nth_element(rounds.begin(), rounds.begin() + kRounds / 2, rounds.end());
  return rounds[kRounds / 2];
}

void need(int32_t status, const nw_error& error) {
  if (status == NW_OK) return;
  std::fprintf(stderr, "bench_dispatch: %s\n", error.message);
  std::exit(1);
}

struct Row {
  const char* name;
  double ns;
};

#ifdef NARROWS_CPU_PLUGIN
// A sum of 16 elements by the cpu backend, as an op and as a program, in turns. nw_run of both.
void add_programs(nw_runtime* runtime, std::vector<Row>* rows) {
  const char* const text =
      "program 1 add(a: f32[16], b: f32[16], c: out f32[16]):\n  for i in 16:\n    block c(v: S(16) = i):\n      c[v] = a[v] + "
      "b[v]\n";
  nw_error error{};
  need(nw_load(runtime, NARROWS_CPU_PLUGIN, &error), error);
  const nw_op* program = nullptr;
  need(nw_load_program(runtime, text, nullptr, &program, &error), error);
  alignas(64) static float memory[3][16];
  int64_t shape[1] = {16};
  DLTensor t[3];
  for (int i = 0; i < 3; ++i) t[i] = {memory[i], {kDLCPU, 0}, 1, {kDLFloat, 32, 1}, shape, nullptr, 0};
  const DLTensor *inputs[2] = {&t[0], &t[1]}, *outputs[1] = {&t[2]};
  nw_elementwise_params params{};
  params.function = NW_EW_ADD;
  nw_call op{};
  op.struct_size = sizeof op;
  op.num_inputs = 2;
  op.num_outputs = 1;
  op.inputs = inputs;
  op.outputs = outputs;
  nw_call same = op;
  op.op = "elementwise";
  op.params = &params;
  op.params_size = sizeof params;
  same.op = program->name;
  need(nw_run(runtime, &op, &error), error);
  need(nw_run(runtime, &same, &error), error);
  rows->push_back({"nw_run, elementwise add of 16 on the cpu", measure([&] { nw_run(runtime, &op, &error); })});
  rows->push_back({"nw_run, the same sum as a tensor program", measure([&] { nw_run(runtime, &same, &error); })});
}
#endif

}  // namespace

int main(int argc, char** argv) {
  nw_error error{};
  nw_options options{};
  options.struct_size = sizeof options;
  options.plugin_path = "";
  options.log = [](void*, int32_t, const char*) {};
  nw_runtime* runtime = nullptr;
  need(nw_runtime_create(&options, &runtime, &error), error);
  need(nw_load(runtime, NARROWS_NOOP_PLUGIN, &error), error);

  alignas(256) static float memory[3][64 * 64];
  int64_t shape[2] = {64, 64}, strides[2] = {64, 1};
  DLTensor t[3];
  for (int i = 0; i < 3; ++i) t[i] = {memory[i], {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, shape, strides, 0};
  const DLTensor *inputs[2] = {&t[0], &t[1]}, *outputs[1] = {&t[2]};
  int64_t params[6] = {1, 1, 1};
  nw_call call{};
  call.struct_size = sizeof call;
  call.op = "bench.noop/1";
  call.num_inputs = 2;
  call.num_outputs = 1;
  call.inputs = inputs;
  call.outputs = outputs;
  call.params = params;
  call.params_size = sizeof params;

  nw_plan* plan = nullptr;
  need(nw_plan_get(runtime, &call, &plan, nullptr, &error), error);
  need(nw_run(runtime, &call, &error), error);
  const NoNames names;
  uint64_t sink = 0;
  const narrows::Signature signature(call, {kDLCPU, 0}, nullptr, narrows::Memory::needed, names);

  std::vector<Row> rows;
  rows.push_back({"nw_run, cached plan, 3 tensors (64, 64)", measure([&] { sink += nw_run(runtime, &call, &error); })});
  rows.push_back({"nw_launch, plan held by the caller", measure([&] { sink += nw_launch(plan, &call, &error); })});
  rows.push_back({"  of that: signature, checked and hashed", measure([&] {
                    const narrows::Signature s(call, {kDLCPU, 0}, nullptr, narrows::Memory::needed, names);
                    sink += s.key().hash;
                  })});
  rows.push_back({"  of that: look-up in the plan cache", measure([&] { sink += runtime->cache().find(signature.key())->refs; })});
  rows.push_back({"  of that: the plugin's launch through its slot", measure([&] { plan->backend->launch(plan->handle, call); })});
  rows.push_back({"nw_plan_get + nw_plan_release, cached", measure([&] {
                    nw_plan* again = nullptr;
                    sink += nw_plan_get(runtime, &call, &again, nullptr, &error);
                    nw_plan_release(again);
                  })});

#ifdef NARROWS_CPU_PLUGIN
  add_programs(runtime, &rows);
#endif

  const bool json = argc > 1 && std::strcmp(argv[1], "--json") == 0;
  if (json) std::printf("{");
  for (size_t i = 0; i < rows.size(); ++i) {
    if (json)
      std::printf("%s\"%s\": %.1f", i != 0 ? ", " : "", rows[i].name, rows[i].ns);
    else
      std::printf("%-50s %7.1f ns\n", rows[i].name, rows[i].ns);
  }
  if (json) std::printf("}\n");
  nw_plan_release(plan);
  nw_runtime_destroy(runtime);
  return sink == 1 ? 1 : 0;
}
