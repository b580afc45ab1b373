// SPDX-License-Identifier: Apache-2.0
// device_lost.cpp -- after a kernel has touched an illegal address the device is lost for the process: sticky, an error, and never
// a crash, nor the fault of a caller's tensor or stream. Each of these is run in a process of its own; the first one with
// NARROWS_CHECK and without.
#include <cstdlib>
#include <cstring>

#include "cuda.h"

using namespace narrows::test;

constexpr uint64_t kWorkspace = uint64_t{1} << 27;  // more than any plan of the call below asks for

// A tensor that lies nowhere: the launch succeeds, and the device finds out later.
TEST_CASE("device lost: reported by the next call, as earlier work's, and by every one after it", "[.][lost]") {
  const Buffer a(400), b(400), out(400);
  const Stream stream;
  Addition good(device(), a.data(), b.data(), out.data(), 100);
  REQUIRE(good.run() == NW_OK);
  REQUIRE(nw_stream_sync(runtime(), device(), nullptr, nullptr) == NW_OK);
  // Of lltm every variant, with a workspace of the caller's: the library's own words would be the first to be heard.
  const Example lltm = std::move(lltm_examples(DType::f16, 256, 512, 512)[0]);
  const Buffer workspace(kWorkspace);
  Call large(lltm.op, lltm.input_pointers(), lltm.output_pointers(), lltm.params);
  large.raw.workspace = workspace.data(), large.raw.workspace_size = kWorkspace;
  std::vector<const char*> variants;
  for (const char* kernel : kernels(lltm.op)) {
    large.raw.kernel = kernel;
    if (nw_run(runtime(), &large.raw, nullptr) == NW_OK) variants.push_back(kernel);
  }
  REQUIRE(variants.size() > 1);
  REQUIRE(nw_stream_sync(runtime(), device(), nullptr, nullptr) == NW_OK);
  REQUIRE(setenv("NARROWS_CHECK", "0", 1) == 0);  // read when a runtime is made: this one does not find the address
  nw_runtime* const unchecked = new_runtime(1);
  Addition wild(device(), reinterpret_cast<void*>(uintptr_t{1} << 30), b.data(), out.data(), 100);
  nw_error error{};
  CHECK(nw_run(unchecked, &wild.call, &error) == NW_OK);
  expect_status(nw_stream_sync(runtime(), device(), nullptr, &error), error, NW_DEVICE_LOST,
                {"cudaErrorIllegalAddress", "earlier work"});
  CHECK(error.native_code == cudaErrorIllegalAddress);
  for (int i = 0; i < 3; ++i) expect_status(good.run(&error), error, NW_DEVICE_LOST, {"cudaErrorIllegalAddress", "earlier work"});
  good.call.stream = stream;
  expect_status(good.run(&error), error, NW_DEVICE_LOST, {"cudaErrorIllegalAddress", "earlier work"});
  for (const bool planned : {true, false}) {
    if (!planned) nw_plan_cache_clear(runtime());
    for (const char* kernel : variants)
      for (void* const on : {static_cast<void*>(nullptr), static_cast<void*>(stream)}) {
        large.raw.kernel = kernel, large.raw.stream = on;
        INFO("kernel " << (kernel == nullptr ? "-" : kernel) << (planned ? ", planned before" : ""));
        expect_status(nw_run(runtime(), &large.raw, &error), error, NW_DEVICE_LOST, {"cudaErrorIllegalAddress", "earlier work"});
      }
  }
  void* data = nullptr;
  expect_status(nw_alloc(runtime(), device(), 64, nullptr, &data, &error), error, NW_DEVICE_LOST, {"earlier work"});
}

// For compute-sanitizer: memcheck has to report it.
TEST_CASE("planted overrun: a tensor that ends past its allocation", "[.][overrun]") {
  const Buffer a(400), b(400), out(4);
  Addition call(device(), a.data(), b.data(), out.data(), 100);
  CHECK(call.run() == NW_OK);
  CUDA_OK(cudaDeviceSynchronize());
}
