// memory_kinds.cpp -- managed, pinned and device memory in one call; with NARROWS_CHECK=1, memory that is not what it is said to
// be.
#include <cstdlib>
#include <cstring>

#include "cuda.h"

using namespace narrows::test;

namespace {

constexpr int64_t kN = 1000;
constexpr DLDevice kManaged{kDLCUDAManaged, 0}, kPinned{kDLCUDAHost, 0};

bool is_checked() {
  const char* const value = std::getenv("NARROWS_CHECK");
  return value != nullptr && std::string(value) == "1";
}

struct Three {
  Buffer a{kN * 4}, b{kN * 4}, out{kN * 4};
};

}  // namespace

TEST_CASE("memory: managed and pinned tensors take part where they lie", "[kinds]") {
  float *managed = nullptr, *pinned = nullptr;
  CUDA_OK(cudaMallocManaged(&managed, kN * 4, cudaMemAttachGlobal));
  CUDA_OK(cudaMallocHost(&pinned, kN * 4));
  for (int i = 0; i < kN; ++i) managed[i] = static_cast<float>(i), pinned[i] = 1;
  const Buffer out(kN * 4);
  Addition call(device(), managed, pinned, out.data(), kN);
  call.tensors[0].device = kManaged;
  call.tensors[1].device = kPinned;
  nw_error error{};
  const int32_t status = call.run(&error);
  INFO(error.message);
  REQUIRE(status == NW_OK);
  CUDA_OK(cudaDeviceSynchronize());
  std::vector<float> got(kN);
  CUDA_OK(cudaMemcpy(got.data(), out.data(), kN * 4, cudaMemcpyDeviceToHost));
  for (int i = 0; i < kN; ++i) REQUIRE(got[static_cast<size_t>(i)] == static_cast<float>(i) + 1);
  // Managed memory alone, which is where the result goes too.
  Addition alone(kManaged, managed, managed, managed, kN);
  REQUIRE(alone.run(&error) == NW_OK);
  CUDA_OK(cudaDeviceSynchronize());
  CHECK(managed[21] == 42);
  CUDA_OK(cudaFree(managed));
  CUDA_OK(cudaFreeHost(pinned));
}

TEST_CASE("memory: a tensor of another kind than its device type says is refused", "[kinds][checked]") {
  REQUIRE(is_checked());  // narrows-conform and this program set it
  const Three t;
  std::vector<float> host(kN, 3);
  void *managed = nullptr, *pinned = nullptr;
  CUDA_OK(cudaMallocManaged(&managed, kN * 4, cudaMemAttachGlobal));
  CUDA_OK(cudaMallocHost(&pinned, kN * 4));
  nw_error error{};
  Addition call(device(), t.a.data(), t.b.data(), t.out.data(), kN);
  CUDA_OK(cudaMemset(t.out.data(), 0x5A, kN * 4));
  call.tensors[1].data = host.data();
  expect_status(call.run(&error), error, NW_INVALID, {"tensor 1", "no memory that the driver knows", "device 0"});
  CHECK(error.argument == 1);
  call.tensors[1].data = pinned;
  expect_status(call.run(&error), error, NW_INVALID, {"tensor 1", "pinned host memory", "device type is 2"});
  call.tensors[1].data = t.b.data();
  call.tensors[1].device = kPinned;
  expect_status(call.run(&error), error, NW_INVALID, {"tensor 1", "device memory", "device type is 3"});
  call.tensors[1].device = kManaged;
  expect_status(call.run(&error), error, NW_INVALID, {"tensor 1", "device memory", "device type is 13"});
  call.tensors[1].device = device();
  CUDA_OK(cudaDeviceSynchronize());
  std::vector<unsigned char> out(kN * 4);
  CUDA_OK(cudaMemcpy(out.data(), t.out.data(), out.size(), cudaMemcpyDeviceToHost));
  CHECK(out == std::vector<unsigned char>(kN * 4, 0x5A));
  CHECK(call.run(&error) == NW_OK);
  CUDA_OK(cudaDeviceSynchronize());
  CUDA_OK(cudaFree(managed));
  CUDA_OK(cudaFreeHost(pinned));
}

TEST_CASE("memory: a freed tensor, and one that leaves its allocation, are refused", "[kinds][checked]") {
  REQUIRE(is_checked());
  const Three t;
  void* freed = nullptr;
  CUDA_OK(cudaMalloc(&freed, 64 << 20));
  CUDA_OK(cudaFree(freed));
  nw_error error{};
  Addition call(device(), t.a.data(), freed, t.out.data(), kN);
  expect_status(call.run(&error), error, NW_INVALID, {"tensor 1", "no memory that the driver knows"});
  // One element past the end of an allocation, by shape, by offset and by stride.
  void* exact = nullptr;
  CUDA_OK(cudaMalloc(&exact, 2 << 20));
  const int64_t whole = (2 << 20) / 4;
  Addition longer(device(), exact, exact, exact, whole + 1);
  const char* const words[] = {"past the allocation"};
  expect_status(longer.run(&error), error, NW_INVALID, {"tensor 0", "4 bytes", words[0]});
  Addition shifted(device(), exact, exact, t.out.data(), kN);
  shifted.tensors[0].byte_offset = static_cast<uint64_t>(whole - kN + 1) * 4;
  expect_status(shifted.run(&error), error, NW_INVALID, {"tensor 0", "4 bytes", words[0]});
  Addition strided(device(), exact, exact, t.out.data(), kN);
  int64_t stride = whole / (kN - 1) + 1;
  strided.tensors[0].strides = &stride;
  expect_status(strided.run(&error), error, NW_INVALID, {"tensor 0", words[0]});
  Addition fits(device(), exact, exact, exact, whole);
  fits.call.num_outputs = 1;
  CHECK(fits.run(&error) == NW_OK);
  CUDA_OK(cudaDeviceSynchronize());
  CUDA_OK(cudaFree(exact));
}

TEST_CASE("memory: more than the device has is refused, and the next call works", "[kinds]") {
  nw_error error{};
  nw_device_info info{};
  info.struct_size = sizeof info;
  REQUIRE(nw_device(runtime(), device(), &info, &error) == NW_OK);
  void* data = nullptr;
  for (const uint64_t size : {info.total_memory, info.total_memory + 1, uint64_t{1} << 62})
    expect_status(nw_alloc(runtime(), device(), size, nullptr, &data, &error), error, NW_OUT_OF_MEMORY,
                  {std::to_string(size).c_str(), "device 0"});
  CHECK(data == nullptr);
  const Three t;
  Addition call(device(), t.a.data(), t.b.data(), t.out.data(), kN);
  CHECK(call.run(&error) == NW_OK);
}

TEST_CASE("memory: a workspace that is not to be had is out of memory, before anything is written", "[kinds][full]") {
  const std::vector<Example> all = lltm_examples(DType::f32, 512, 700, 900);
  for (const Example& e : all) {
    Call call(e.op, e.input_pointers(), e.output_pointers(), e.params);
    nw_plan_info info{};
    info.struct_size = sizeof info;
    REQUIRE(nw_plan_get(runtime(), &call.raw, nullptr, &info, nullptr) == NW_OK);
    if (info.workspace_size < (4 << 20)) continue;
    for (const auto& t : e.outputs)
      if (t != nullptr) t->poison();
    std::vector<void*> held;  // all of the device's memory, down to a megabyte
    CUDA_OK(cudaDeviceSynchronize());
    for (uint64_t piece = uint64_t{1} << 36; piece >= uint64_t{1} << 20; piece /= 2)  // what the backend keeps for later included
      for (void* p = nullptr; nw_alloc(runtime(), device(), piece, nullptr, &p, nullptr) == NW_OK;) held.push_back(p);
    nw_error error{};
    const int32_t status = nw_run(runtime(), &call.raw, &error);
    for (void* p : held) CHECK(nw_free(runtime(), device(), p, nullptr, nullptr) == NW_OK);
    INFO(e.what);
    expect_status(status, error, NW_OUT_OF_MEMORY, {std::to_string(info.workspace_size).c_str()});
    for (const auto& t : e.outputs)
      if (t != nullptr) CHECK(t->is_stale(0));
    CHECK(nw_run(runtime(), &call.raw, &error) == NW_OK);
    return;
  }
  SKIP("no plan asks for a workspace of megabytes");
}
