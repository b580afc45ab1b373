// SPDX-License-Identifier: Apache-2.0
// threads.cpp -- from which size on a second thread pays: each op on one thread and on all, through the public API alone. What
// kWorthWaking and the grains of backends/cpu are chosen by.
//   build/cpu/bin/bench_threads [WORDS]     WORDS: in the names of rows
// Medians in microseconds, of one thread and of all: call after call, while the others still look for work; and after pauses, in
// which the others have gone to sleep and must be woken, and caches have cooled, as in a program that does something else between
// its calls.
#include <narrows/narrows.h>
#include <narrows/ops.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "timing.h"

namespace {

using narrows::bench::median, narrows::bench::need, narrows::bench::now_us;

using Shape = std::vector<int64_t>;

class Runtime {
 public:
  explicit Runtime(uint32_t num_threads) {
    nw_options options{};
    options.struct_size = sizeof options;
    options.num_threads = num_threads;
    nw_error error;
    need(nw_runtime_create(&options, &handle, &error), error);
  }
  ~Runtime() { nw_runtime_destroy(handle); }
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;
  nw_runtime* handle = nullptr;
};

struct Row {
  std::string name, op;
  std::vector<Shape> inputs, outputs;  // of f32
  std::vector<int64_t> params;
};

// A row's call on one runtime.
class Call {
 public:
  Call(const Runtime& runtime, const Row& row) : runtime_(runtime), shapes_(row.inputs) {
    shapes_.insert(shapes_.end(), row.outputs.begin(), row.outputs.end());
    for (Shape& shape : shapes_) {
      size_t count = 1;
      for (const int64_t extent : shape) count *= static_cast<size_t>(extent);
      uint32_t random = 1;
      for (float& x : memory_.emplace_back(count)) {
        random = random * 1664525 + 1013904223;
        x = static_cast<float>(random) / 4294967296.0F - 0.5F;
      }
      const auto rank = static_cast<int32_t>(shape.size());
      tensors_.push_back({memory_.back().data(), {kDLCPU, 0}, rank, {kDLFloat, 32, 1}, shape.data(), nullptr, 0});
    }
    for (const DLTensor& tensor : tensors_) pointers_.push_back(&tensor);
    call_.struct_size = sizeof call_;
    call_.op = row.op.c_str();
    call_.num_inputs = static_cast<uint32_t>(row.inputs.size());
    call_.num_outputs = static_cast<uint32_t>(row.outputs.size());
    call_.inputs = pointers_.data();
    call_.outputs = pointers_.data() + row.inputs.size();
    call_.params = row.params.empty() ? nullptr : row.params.data();
    call_.params_size = row.params.size() * sizeof(int64_t);
  }

  // Microseconds.
  double run() {
    nw_error error;
    const double begin = now_us();
    need(nw_run(runtime_.handle, &call_, &error), error);
    return now_us() - begin;
  }

 private:
  const Runtime& runtime_;
  std::vector<Shape> shapes_;
  std::vector<std::vector<float>> memory_;
  std::vector<DLTensor> tensors_;
  std::vector<const DLTensor*> pointers_;
  nw_call call_{};
};

double after_each_other(Call& call) {
  std::vector<double> times;
  for (int i = 0; i < 20; ++i) call.run();
  for (const double end = now_us() + 3e4; times.size() < 20 || now_us() < end;) times.push_back(call.run());
  return median(times);
}

double after_pauses(Call& call) {
  std::vector<double> times;
  for (int i = 0; i < 60; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const double awake = now_us() + 300;  // so that this core's own waking is no part of it
    while (now_us() < awake) continue;
    times.push_back(call.run());
  }
  return median(times);
}

std::vector<Row> rows() {
  std::vector<Row> list;
  for (const int64_t k : {4, 8, 16, 32, 64, 128, 256, 512}) {
    const int64_t n = k << 10;
    list.push_back({"add " + std::to_string(k) + " K", "elementwise", {{n}, {n}}, {{n}}, {NW_EW_ADD, 0, 0, 0, 0, 0}});
    list.push_back({"exp " + std::to_string(k) + " K", "elementwise", {{n}}, {{n}}, {NW_EW_EXP, 0, 0, 0, 0, 0}});
  }
  for (const int64_t s : {16, 32, 64, 96, 128, 192, 256}) {
    const int64_t b = 16, f = s / 2;
    const std::string name = " B16 F" + std::to_string(f) + " S" + std::to_string(s);
    list.push_back({"lltm" + name, "lltm", {{b, f}, {3 * s, s + f}, {1, 3 * s}, {b, s}, {b, s}}, {{b, s}, {b, s}, {b, 3 * s}}, {}});
    list.push_back({"lltm_backward" + name,
                    "lltm_backward",
                    {{b, s}, {b, s}, {b, f}, {3 * s, s + f}, {1, 3 * s}, {b, s}, {b, s}, {b, s}, {b, s}, {b, 3 * s}},
                    {{b, f}, {3 * s, s + f}, {1, 3 * s}, {b, s}, {b, s}},
                    {}});
  }
  for (const int64_t n : {32, 48, 64, 96, 128, 192, 256})
    list.push_back({"product " + std::to_string(n), "conv1d", {{1, n, n}, {n, n, 1}}, {{1, n, n}}, {1, 1, 1, 0, 0, 0}});
  for (const int64_t k : {4, 8, 16, 32, 64, 128, 256})
    list.push_back({"conv1d 1 channel " + std::to_string(k) + " K, 31 taps",
                    "conv1d",
                    {{1, 1, (k << 10) + 30}, {1, 1, 31}},
                    {{1, 1, k << 10}},
                    {1, 1, 1, 0, 0, 0}});
  return list;
}

}  // namespace

int main(int argc, char** argv) {
  const Runtime one(1), all(0);
  std::printf("%-34s %10s %10s   after pauses: %10s %10s\n", "microseconds", "one", "all", "one", "all");
  for (const Row& row : rows()) {
    bool wanted = true;
    for (int i = 1; i < argc; ++i) wanted = wanted && row.name.find(argv[i]) != std::string::npos;
    if (!wanted) continue;
    Call alone(one, row), together(all, row);
    const double times[] = {after_each_other(alone), after_each_other(together), after_pauses(alone), after_pauses(together)};
    std::printf("%-34s %10.1f %10.1f %26.1f %10.1f\n", row.name.c_str(), times[0], times[1], times[2], times[3]);
    std::fflush(stdout);
  }
}
