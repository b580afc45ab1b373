// SPDX-License-Identifier: Apache-2.0
// bench.cpp -- see bench.h.
#include "bench.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstdio>
#include <memory>

#include "ceilings.h"
#include "cuda_graph.h"

namespace narrows::test {
namespace {

constexpr double kBatchSeconds = 0.01, kTotalSeconds = 0.5;
constexpr size_t kFewestBatches = 5;
constexpr int64_t kMostRuns = 100'000, kMostNodes = 5000;  // of a batch; of a graph

std::function<void(const Measurement&)>& sink() {
  static std::function<void(const Measurement&)> set;
  return set;
}

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// One call, again and again: as a graph where there are graphs, else launch by launch.
class Repeated {
 public:
  explicit Repeated(const nw_call& call) : call_(call) {
    nw_plan_info info{};
    info.struct_size = sizeof info;
    REQUIRE(nw_plan_get(runtime(), &call_, &plan_, &info, nullptr) == NW_OK);
    // Memory of our own, so that no launch allocates.
    REQUIRE(nw_alloc(runtime(), device(), info.workspace_size, nullptr, &call_.workspace, nullptr) == NW_OK);
    call_.workspace_size = info.workspace_size;
    if (device().device_type != kDLCPU) REQUIRE(nw_stream_create(runtime(), device(), &call_.stream, nullptr) == NW_OK);
  }
  ~Repeated() {
    graph_ = nullptr;
    if (device().device_type != kDLCPU) nw_stream_destroy(runtime(), device(), call_.stream, nullptr);
    nw_free(runtime(), device(), call_.workspace, nullptr, nullptr);
    nw_plan_release(plan_);
  }
  Repeated(const Repeated&) = delete;
  Repeated& operator=(const Repeated&) = delete;

  // From now on a batch is so many runs.
  void prepare(int64_t runs) {
    runs_ = runs;
    graph_ = CudaGraph::capture(call_.stream, [&] { return launch(); });
  }
  bool has_graph() const { return graph_ != nullptr; }
  // Seconds of a batch, the device's work included; < 0: a run failed.
  double batch() const {
    const double start = now();
    if (!(graph_ != nullptr ? graph_->launch(call_.stream) : launch())) return -1;
    if (nw_stream_sync(runtime(), device(), call_.stream, nullptr) != NW_OK) return -1;
    return now() - start;
  }

 private:
  bool launch() const {
    for (int64_t i = 0; i < runs_; ++i)
      if (nw_launch(plan_, &call_, nullptr) != NW_OK) return false;
    return true;
  }

  nw_call call_;
  nw_plan* plan_ = nullptr;
  int64_t runs_ = 1;
  std::unique_ptr<CudaGraph> graph_;
};

double ceiling(const nw_call& call, double operations) {
  if (operations == 0) return copy_ceiling();
  for (const DType dtype : kFloatDTypes)
    if (const DLDataType dl = dl_dtype(dtype); dl.code == call.inputs[0]->dtype.code && dl.bits == call.inputs[0]->dtype.bits)
      return matrix_ceiling(dtype);
  return 0;
}

}  // namespace

void set_bench_sink(std::function<void(const Measurement&)> to) { sink() = std::move(to); }

void measure(const std::string& name, const Call& call, double bytes, double operations) {
  Repeated repeated(call.raw);
  repeated.batch();
  const double once = std::max(repeated.batch(), 1e-9);
  const auto runs =
      std::clamp<int64_t>(static_cast<int64_t>(kBatchSeconds / once), 1, device().device_type == kDLCUDA ? kMostNodes : kMostRuns);
  repeated.prepare(runs);
  repeated.batch();
  std::vector<double> seconds;
  for (const double start = now(); now() - start < kTotalSeconds || seconds.size() < kFewestBatches;)
    seconds.push_back(repeated.batch() / static_cast<double>(runs));
  std::sort(seconds.begin(), seconds.end());
  REQUIRE(seconds.front() > 0);  // no launch failed
  const size_t n = seconds.size();
  const double median = seconds[n / 2];
  const Measurement m{name,
                      call.raw.kernel == nullptr ? "" : call.raw.kernel,
                      median,
                      (seconds[3 * n / 4] - seconds[n / 4]) / median,
                      static_cast<int64_t>(n) * runs,
                      repeated.has_graph(),
                      bytes,
                      operations,
                      ceiling(call.raw, operations)};
  if (sink())
    sink()(m);
  else
    std::printf("%-44s %-10s %.3g s%s\n", m.name.c_str(), m.kernel.c_str(), m.seconds, m.graphs ? ", in graphs" : "");
}

}  // namespace narrows::test
