// threads.cpp -- see threads.h.
#include "threads.h"

#include <catch2/catch_test_macros.hpp>

namespace narrows::test {
namespace {

constexpr uint32_t kThreads[] = {1, 2, 5};

// One runtime for each number of threads, made at first use and leaked, as the harness's own.
const std::vector<nw_runtime*>& runtimes() {
  static const std::vector<nw_runtime*> all = [] {
    std::vector<nw_runtime*> made;
    for (const uint32_t threads : kThreads) made.push_back(new_runtime(threads));
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
    for (size_t i = 0; i < runtimes().size(); ++i)
      for (int again = 0; again < 2; ++again) {
        const std::string what = first.what + " in a runtime of " + std::to_string(kThreads[i]) + " threads";
        run_in(runtimes()[i], call.raw, outputs, what);
        if (all_bytes(outputs) != expected) FAIL_CHECK(what << ": other bits than before");
      }
  }
}

}  // namespace narrows::test
