// SPDX-License-Identifier: Apache-2.0
// memory_kinds.cpp -- managed, pinned and device memory in one call; with NARROWS_CHECK=1, memory that is not what it is said to
// be.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <set>

#include "cuda.h"

using namespace narrows::test;

namespace {

constexpr int64_t kN = 1000;
constexpr DLDevice kManaged{kDLCUDAManaged, 0}, kPinned{kDLCUDAHost, 0};

bool is_checked() {
  const char* const value = std::getenv("NARROWS_CHECK");
  return value != nullptr && std::string(value) == "1";
}

// Memory of CUDA's own, of one kind, that holds what a tensor holds.
class Placed {
 public:
  Placed(const Tensor& t, DLDeviceType kind) : size_(static_cast<size_t>(t.size() * item_size(t.dtype()))), dl_(*t.dl()) {
    const size_t size = std::max<size_t>(size_, 1);
    kind_ = kind;
    CUDA_OK(kind == kDLCUDAHost      ? cudaMallocHost(&data_, size)
            : kind == kDLCUDAManaged ? cudaMallocManaged(&data_, size, cudaMemAttachGlobal)
                                     : cudaMalloc(&data_, size));
    const std::vector<unsigned char> bytes = t.element_bytes();
    if (size_ > 0) CUDA_OK(cudaMemcpy(data_, bytes.data(), size_, cudaMemcpyDefault));
    dl_.data = data_, dl_.strides = nullptr, dl_.byte_offset = 0;
    dl_.device.device_type = kind;
  }
  ~Placed() { (void)(kind_ == kDLCUDAHost ? cudaFreeHost(data_) : cudaFree(data_)); }
  Placed(const Placed&) = delete;
  Placed& operator=(const Placed&) = delete;
  const DLTensor* dl() const { return &dl_; }
  std::vector<unsigned char> bytes() const {
    std::vector<unsigned char> all(size_);
    if (size_ > 0) CUDA_OK(cudaMemcpy(all.data(), data_, size_, cudaMemcpyDefault));
    return all;
  }

 private:
  size_t size_;
  DLTensor dl_;
  DLDeviceType kind_;
  void* data_ = nullptr;
};

// The example's call with its tensors in these kinds of memory, taken in turn; its outputs' bytes.
std::vector<unsigned char> run_placed(const Example& e, const char* kernel, std::vector<DLDeviceType> kinds) {
  std::vector<std::unique_ptr<Placed>> placed;
  std::vector<const DLTensor*> pointers;
  size_t turn = 0;
  const auto place = [&](const Tensor* t) {
    placed.push_back(t == nullptr ? nullptr : std::make_unique<Placed>(*t, kinds[turn++ % kinds.size()]));
    pointers.push_back(t == nullptr ? nullptr : placed.back()->dl());
  };
  for (const auto& t : e.inputs) place(t.get());
  for (const auto& t : e.outputs) {
    if (t != nullptr) t->poison();
    place(t.get());
  }
  Call call(e.op, e.input_pointers(), e.output_pointers(), e.params);
  call.raw.kernel = kernel;
  call.raw.device = device();  // pinned tensors alone would be the CPU's
  call.raw.inputs = pointers.data(), call.raw.outputs = pointers.data() + e.inputs.size();
  nw_error error{};
  const int32_t status = nw_run(runtime(), &call.raw, &error);
  INFO(error.message);
  REQUIRE(status == NW_OK);
  CUDA_OK(cudaDeviceSynchronize());
  std::vector<unsigned char> all;
  for (size_t i = e.inputs.size(); i < placed.size(); ++i) {
    if (placed[i] == nullptr) continue;
    const auto more = placed[i]->bytes();
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
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

// What kernels do with addresses differs: plain loads, asynchronous copies, the tensor memory accelerator, a library.
TEST_CASE("memory: every op and kernel on managed and pinned memory gives the bits that it gives on the device's", "[kinds]") {
  const std::vector<std::vector<DLDeviceType>> all_kinds = {
      {kDLCUDAManaged}, {kDLCUDAHost}, {kDLCUDAManaged, kDLCUDAHost, kDLCUDA}, {kDLCUDA, kDLCUDAManaged, kDLCUDAHost}};
  std::set<std::string> ran;
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i32})
    for (const Example& e : examples(dtype))
      for (const char* kernel : kernels(e.op)) {
        const Result result = e.run(kernel);
        if (result.was_declined()) continue;
        expect_ok(result);
        const std::vector<unsigned char> expected = e.bytes();
        for (size_t i = 0; i < all_kinds.size(); ++i) {
          INFO(e.what << ", kernel " << (kernel == nullptr ? "-" : kernel) << ", kinds " << i);
          CHECK(run_placed(e, kernel, all_kinds[i]) == expected);
        }
        if (kernel != nullptr) ran.insert(std::string(e.op) + "/" + kernel);
      }
  expect_all_variants(ran);
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

TEST_CASE("memory: a workspace that is the host's, or leaves its allocation, is refused", "[kinds][checked]") {
  REQUIRE(is_checked());
  constexpr size_t kSize = 2 << 20;
  const Buffer buffer(kSize);
  std::vector<unsigned char> host(kSize);
  bool found = false;
  for (const Example& e : lltm_examples(DType::f32, 64, 128, 128)) {
    Call call(e.op, e.input_pointers(), e.output_pointers(), e.params);
    nw_plan_info info{};
    info.struct_size = sizeof info;
    REQUIRE(nw_plan_get(runtime(), &call.raw, nullptr, &info, nullptr) == NW_OK);
    if (info.workspace_size <= NW_WORKSPACE_ALIGN) continue;
    found = true;
    INFO(e.what);
    nw_error error{};
    call.raw.workspace_size = info.workspace_size;
    call.raw.workspace = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(host.data()) + 255) / 256 * 256);
    expect_status(nw_run(runtime(), &call.raw, &error), error, NW_INVALID, {"workspace", "no memory that the driver knows"});
    call.raw.workspace = static_cast<char*>(buffer.data()) + kSize - NW_WORKSPACE_ALIGN;
    expect_status(nw_run(runtime(), &call.raw, &error), error, NW_INVALID, {"workspace", "past the allocation"});
  }
  CHECK(found);
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
