// bench.cpp -- see bench.h.
#include "bench.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstdio>

namespace narrows::test {
namespace {

constexpr double kBatchSeconds = 0.01, kTotalSeconds = 0.5;
constexpr size_t kFewestBatches = 5;

std::function<void(const Measurement&)>& sink() {
  static std::function<void(const Measurement&)> set;
  return set;
}

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Seconds of so many launches, the device's work included; < 0: one failed.
double batch(const nw_plan* plan, const nw_call& call, int64_t runs) {
  const double start = now();
  for (int64_t i = 0; i < runs; ++i)
    if (nw_launch(plan, &call, nullptr) != NW_OK) return -1;
  if (nw_stream_sync(runtime(), device(), call.stream, nullptr) != NW_OK) return -1;
  return now() - start;
}

}  // namespace

void set_bench_sink(std::function<void(const Measurement&)> to) { sink() = std::move(to); }

void measure(const std::string& name, const Call& call, double bytes, double operations) {
  nw_plan* plan = nullptr;
  nw_plan_info info{};
  info.struct_size = sizeof info;
  REQUIRE(nw_plan_get(runtime(), &call.raw, &plan, &info, nullptr) == NW_OK);
  nw_call with_workspace = call.raw;  // so that no launch allocates
  nw_error error{};
  REQUIRE(nw_alloc(runtime(), device(), info.workspace_size, nullptr, &with_workspace.workspace, &error) == NW_OK);
  with_workspace.workspace_size = info.workspace_size;
  batch(plan, with_workspace, 1);
  const double once = std::max(batch(plan, with_workspace, 1), 1e-9);
  const auto runs = std::clamp<int64_t>(static_cast<int64_t>(kBatchSeconds / once), 1, 100'000);
  std::vector<double> seconds;
  for (const double start = now(); now() - start < kTotalSeconds || seconds.size() < kFewestBatches;)
    seconds.push_back(batch(plan, with_workspace, runs) / static_cast<double>(runs));
  nw_free(runtime(), device(), with_workspace.workspace, nullptr, nullptr);
  nw_plan_release(plan);
  std::sort(seconds.begin(), seconds.end());
  REQUIRE(seconds.front() > 0);  // no launch failed
  const size_t n = seconds.size();
  const double median = seconds[n / 2];
  const Measurement m{name,
                      call.raw.kernel == nullptr ? "" : call.raw.kernel,
                      median,
                      (seconds[3 * n / 4] - seconds[n / 4]) / median,
                      static_cast<int64_t>(n) * runs,
                      bytes,
                      operations};
  if (sink())
    sink()(m);
  else
    std::printf("%-44s %-10s %.3g s\n", m.name.c_str(), m.kernel.c_str(), m.seconds);
}

}  // namespace narrows::test
