// SPDX-License-Identifier: Apache-2.0
// gemm.cpp -- what the time of a matrix product on the CPU goes to: packing its operands, multiplying, storing. One thread, every
// instruction set that this machine has, operands row-major as in a conv1d of one tap. The tasks are the backend's own: where the
// first tile packs b's panels, that is within multiplying.
//   build/cpu/bin/bench_gemm [N ...]     products of N x N x N (default: 256 1024)
#include "ops/gemm/gemm.h"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "processor.h"
#include "targets.h"
#include "timing.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "gemm.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first.
#include "ops/gemm/gemm_task-inl.h"

HWY_BEFORE_NAMESPACE();
namespace narrows::cpu::HWY_NAMESPACE {

// Adds the microseconds of each stage of a task to us[stage].
void TimeTask(const GemmLayout& layout, const GemmProblem& problem, int64_t row_block, int64_t panel_group, void* scratch,
              double* us) {
  WithTask(layout, problem, row_block, panel_group, scratch, [&](auto& task) {
    task.Run([&](Stage stage, const auto& body) HWY_ATTR {
      const double begin = bench::now_us();
      body();
      us[static_cast<int>(stage)] += bench::now_us() - begin;
    });
  });
}

}  // namespace narrows::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace narrows::cpu {
namespace {

HWY_EXPORT(TimeTask);

constexpr int kStages = 4, kRuns = 21;
using Times = std::array<double, kStages>;

// `one` is 1: but for subnormal numbers, which bf16's instructions are not given, the operands' values decide nothing.
template <class T>
Times time_stages(const Instance& instance, Dtype dtype, int64_t n, T one) {
  const auto elements = static_cast<size_t>(n * n);
  std::vector<T> a(elements, one), b(elements, one), out(elements);
  GemmProblem problem;
  problem.rows = problem.columns = n;
  problem.segments[0] = {matrix_view(a.data(), dtype, 1, n), matrix_view(b.data(), dtype, n, 1), 0, n};
  problem.output.base = out.data(), problem.output.dtype = dtype;
  problem.output.row_stride = n, problem.output.column_stride = 1;
  const GemmLayout layout = gemm_layout(instance, dtype, 1, n, n, false, n);
  const std::unique_ptr<void, decltype(&std::free)> scratch(std::aligned_alloc(NW_WORKSPACE_ALIGN, layout.workspace_size),
                                                            std::free);
  std::vector<double> of_stage[kStages];
  for (int run = 0; run < kRuns; ++run) {
    Times us{};
    for (int64_t row_block = 0; row_block < layout.row_blocks; ++row_block)
      for (int64_t group = 0; group < layout.panel_groups; ++group)
        NARROWS_DISPATCH(instance, TimeTask)(layout, problem, row_block, group, scratch.get(), us.data());
    for (int stage = 0; stage < kStages; ++stage) of_stage[stage].push_back(us[static_cast<size_t>(stage)]);
  }
  Times medians;
  for (int stage = 0; stage < kStages; ++stage) medians[static_cast<size_t>(stage)] = bench::median(of_stage[stage]);
  return medians;
}

void print(const char* isa, const char* dtype, int64_t n, const Times& us) {
  const double all = us[0] + us[1] + us[2] + us[3], operations = 2.0 * static_cast<double>(n * n * n);
  std::printf("%-9s %-4s %6lld %12.1f us %8.1f GFLOP/s %8.1f alone ", isa, dtype, static_cast<long long>(n), all,
              operations / all / 1e3, operations / us[static_cast<int>(Stage::multiply)] / 1e3);
  for (const double stage : us) std::printf(" %6.1f %%", 100 * stage / all);
  std::printf("\n");
}

void report(int64_t n) {
  struct Isa {
    const char* name;
    int64_t bit;
  };
  constexpr Isa kIsas[] = {{"AVX-512", HWY_AVX3}, {"AVX2", HWY_AVX2}, {"SSE4", HWY_SSE4}, {"baseline", HWY_STATIC_TARGET}};
  nw_host host{};
  host.num_threads = 1;
  for (const Isa& isa : kIsas) {
    if (((HWY_SUPPORTED_TARGETS & HWY_TARGETS) & isa.bit) == 0 && isa.bit != HWY_STATIC_TARGET) continue;
    hwy::ChosenTarget chosen;
    chosen.Update(isa.bit);
    Instance instance{&host, static_cast<int>(chosen.GetIndex()), Bf16Products::f32, {}, {}};
    print(isa.name, "f32", n, time_stages(instance, Dtype::f32, n, 1.0F));
    print(isa.name, "f64", n, time_stages(instance, Dtype::f64, n, 1.0));
    if (isa.bit != HWY_AVX3) continue;
    for (const Bf16Products products : {Bf16Products::dots, Bf16Products::tiles}) {
      if (!multiplies(products)) continue;
      instance.bf16_products = products;
      print(products == Bf16Products::dots ? "BF16" : "AMX", "bf16", n, time_stages<uint16_t>(instance, Dtype::bf16, n, 0x3f80));
    }
  }
}

}  // namespace
}  // namespace narrows::cpu

int main(int argc, char** argv) {
  std::printf("%-9s %-4s %6s %15s %16s %14s  %8s %8s %8s %8s\n", "", "", "N", "time", "rate", "multiplying", "pack a", "pack b",
              "multiply", "store");
  if (argc == 1)
    for (const int64_t n : {256, 1024}) narrows::cpu::report(n);
  for (int i = 1; i < argc; ++i) {
    char* end;
    const int64_t n = std::strtoll(argv[i], &end, 10);
    if (*end != '\0' || n < 1 || n > 16384) {
      std::fprintf(stderr, "N is '%s'; expected a whole number from 1 to 16384\n", argv[i]);
      return 2;
    }
    narrows::cpu::report(n);
  }
  return 0;
}
#endif  // HWY_ONCE
