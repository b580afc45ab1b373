// device_lost.cpp -- after a kernel has touched an illegal address the device is lost for the process: sticky, an error, and never
// a crash, nor the fault of a caller's tensor or stream. Each of these is run in a process of its own; the first one with
// NARROWS_CHECK and without.
#include <cstdlib>
#include <cstring>

#include "cuda.h"

using namespace narrows::test;

// A tensor that lies nowhere: the launch succeeds, and the device finds out later.
TEST_CASE("device lost: reported by the next call, as earlier work's, and by every one after it", "[.][lost]") {
  const Buffer a(400), b(400), out(400);
  const Stream stream;
  Addition good(device(), a.data(), b.data(), out.data(), 100);
  REQUIRE(good.run() == NW_OK);
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
