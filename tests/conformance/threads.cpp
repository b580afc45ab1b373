// SPDX-License-Identifier: Apache-2.0
// threads.cpp -- see threads.h.
#include "threads.h"

#include <catch2/catch_test_macros.hpp>

namespace narrows::test {
namespace {

struct Again {
  nw_runtime* rt;
  std::string where;
};

// One runtime for each number of threads, made at first use and leaked, as the harness's own. On another device than the CPU the
// harness's alone: memory may mean something within one runtime only, and no thread of the host computes.
const std::vector<Again>& runtimes() {
  static const std::vector<Again> all = [] {
    if (device().device_type != kDLCPU) return std::vector<Again>{{runtime(), "again"}};
    std::vector<Again> made;
    for (const uint32_t threads : {1, 2, 5})
      made.push_back({new_runtime(threads), "in a runtime of " + std::to_string(threads) + " threads"});
    return made;
  }();
  return all;
}

std::vector<unsigned char> all_bytes(const std::vector<Tensor*>& outputs) {
  std::vector<unsigned char> bytes;
  for (const Tensor* t : outputs) {
    if (t == nullptr) continue;
    const auto more = t->element_bytes();
    bytes.insert(bytes.end(), more.begin(), more.end());
  }
  return bytes;
}

void run_in(nw_runtime* rt, const nw_call& call, const std::vector<Tensor*>& outputs, const std::string& what) {
  for (Tensor* t : outputs)
    if (t != nullptr) t->poison();
  nw_error error{};
  if (nw_run(rt, &call, &error) != NW_OK || nw_stream_sync(rt, device(), nullptr, &error) != NW_OK)
    FAIL_CHECK(what << ": " << error.message);
}

}  // namespace

void expect_same_bits(const char* op, const std::vector<const Tensor*>& inputs, const std::vector<Tensor*>& outputs,
                      const Blob& params) {
  for (const char* kernel : kernels(op)) {
    Call call(op, inputs, outputs, params);
    call.raw.kernel = kernel;
    call.raw.flags = NW_DETERMINISTIC;
    const Result first = call.run();
    if (first.was_declined()) continue;
    expect_ok(first);
    const std::vector<unsigned char> expected = all_bytes(outputs);
    for (const Again& again : runtimes())
      for (int time = 0; time < 2; ++time) {
        const std::string what = first.what + " " + again.where;
        run_in(again.rt, call.raw, outputs, what);
        if (all_bytes(outputs) != expected) FAIL_CHECK(what << ": other bits than before");
      }
  }
}

}  // namespace narrows::test
