// SPDX-License-Identifier: Apache-2.0
// dispatch.cpp -- what nw_run costs above the kernel, and what each part of it costs: a cached plan, a kernel that does nothing.
// Built with core's own objects, so that the parts can be timed alone.
//   build/cpu/bin/bench_dispatch [--json], after ./run test
#include <narrows/narrows.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

#include "core/dispatcher.h"
#include "core/signature.h"

namespace {

struct NoNames final : narrows::TensorNames {
  std::string tensor(uint32_t) const override { return ""; }
};

// Median over rounds of the mean over calls, in nanoseconds.
template <class Work>
double measure(Work&& work) {
  constexpr int kRounds = 31, kCalls = 20000;
  std::vector<double> rounds;
  for (int r = 0; r < kRounds; ++r) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kCalls; ++i) work();
    rounds.push_back(std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count() / kCalls);
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
