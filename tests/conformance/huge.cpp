// huge.cpp -- more than 2^31 elements in real memory, behind `narrows conform --huge`: what a 32-bit index anywhere breaks. Memory
// is the device's own, filled and read through a window; the harness's tensors remember every element and would not fit.
#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <functional>

#include "support/harness.h"

using namespace narrows::test;

namespace {

constexpr int64_t kMany = (int64_t{1} << 31) + 1029;
constexpr uint64_t kWindow = uint64_t{1} << 26;  // bytes

constexpr int kLowest = -256, kHighest = 511;  // of the values used here: all of them integers

// A tensor's memory; element i is a function of i alone.
class Huge {
 public:
  Huge(DType dtype, std::vector<int64_t> shape) : shape_(std::move(shape)), dtype_(dtype) {
    size_ = static_cast<uint64_t>(item_size(dtype));
    for (const int64_t n : shape_) size_ *= static_cast<uint64_t>(n);
    nw_error error{};
    const int32_t status = nw_alloc(runtime(), device(), size_, nullptr, &data_, &error);
    if (status == NW_OUT_OF_MEMORY) SKIP("the device has no " << size_ << " bytes");
    INFO(error.message);
    REQUIRE(status == NW_OK);
    for (int value = kLowest; value <= kHighest; ++value) store_code(value);
    dl = {data_, device(), static_cast<int32_t>(shape_.size()), dl_dtype(dtype), shape_.data(), nullptr, 0};
  }
  ~Huge() { nw_free(runtime(), device(), data_, nullptr, nullptr); }
  Huge(const Huge&) = delete;
  Huge& operator=(const Huge&) = delete;

  // at(i): the value of element i in C order, kLowest to kHighest.
  template <class At>
  void fill(At at) {
    const auto item = static_cast<size_t>(item_size(dtype_));
    each_window([&](std::vector<unsigned char>& bytes, int64_t first, int64_t count) {
      for (int64_t i = 0; i < count; ++i) std::memcpy(bytes.data() + i * item, code(at(first + i)), item);
      copy(bytes, first, count, true);
    });
  }
  // The number of elements that are not at(i).
  template <class At>
  int64_t wrong(At at) const {
    const auto item = static_cast<size_t>(item_size(dtype_));
    int64_t bad = 0;
    each_window([&](std::vector<unsigned char>& bytes, int64_t first, int64_t count) {
      copy(bytes, first, count, false);
      for (int64_t i = 0; i < count; ++i) bad += std::memcmp(bytes.data() + i * item, code(at(first + i)), item) != 0;
    });
    return bad;
  }

  DLTensor dl{};

 private:
  template <class Body>
  void each_window(Body body) const {
    std::vector<unsigned char> bytes(std::min(kWindow, size_));
    const int64_t total = static_cast<int64_t>(size_) / item_size(dtype_),
                  step = static_cast<int64_t>(bytes.size()) / item_size(dtype_);
    for (int64_t first = 0; first < total; first += step) body(bytes, first, std::min(step, total - first));
  }
  // The values' bytes are looked up: to convert thousands of millions of them one by one takes minutes.
  void store_code(int value) {
    if (is_signed_int(dtype_) && (value < lowest(dtype_) || value > largest(dtype_))) return;
    store(dtype_, value, codes_[value - kLowest]);
  }
  const unsigned char* code(int64_t value) const { return codes_[value - kLowest]; }

  void copy(std::vector<unsigned char>& bytes, int64_t first, int64_t count, bool up) const {
    void* const there = static_cast<char*>(data_) + first * item_size(dtype_);
    const auto size = static_cast<uint64_t>(count * item_size(dtype_));
    const DLDevice host{kDLCPU, 0};
    const int32_t status = up ? nw_copy(runtime(), device(), there, host, bytes.data(), size, nullptr, nullptr)
                              : nw_copy(runtime(), host, bytes.data(), device(), there, size, nullptr, nullptr);
    if (status != NW_OK) FAIL("nw_copy of a window: " << nw_status_name(status));
  }

  std::vector<int64_t> shape_;
  DType dtype_;
  uint64_t size_ = 0;
  void* data_ = nullptr;
  unsigned char codes_[kHighest - kLowest + 1][8] = {};
};

// Runs it on every variant that takes it, the backend's choice first; check() looks at the outputs.
void run_huge(const char* op, std::vector<const DLTensor*> inputs, std::vector<const DLTensor*> outputs, const Blob& params,
              const std::function<void()>& check) {
  expect_offered(op);
  for (const char* kernel : kernels(op)) {
    Call call(op, {}, {}, params);
    call.note = "more than 2^31 elements";
    call.raw.kernel = kernel;
    call.raw.inputs = inputs.data(), call.raw.num_inputs = static_cast<uint32_t>(inputs.size());
    call.raw.outputs = outputs.data(), call.raw.num_outputs = static_cast<uint32_t>(outputs.size());
    const Result result = call.run();
    if (result.was_declined()) continue;
    expect_ok(result);
    INFO("kernel " << (kernel == nullptr ? "-" : kernel));
    check();
  }
}

}  // namespace

TEST_CASE("huge: elementwise over more than 2^31 bytes", "[.huge][elementwise]") {
  Huge a(DType::i8, {kMany}), out(DType::i8, {kMany});
  a.fill([](int64_t i) { return i % 251 - 125; });
  nw_elementwise_params p{};
  p.function = NW_EW_ADD;
  p.b_int = 1;
  run_huge("elementwise", {&a.dl, nullptr}, {&out.dl}, p, [&] { CHECK(out.wrong([](int64_t i) { return i % 251 - 124; }) == 0); });
}

TEST_CASE("huge: elementwise on a transposed matrix of more than 2^31 elements", "[.huge][elementwise]") {
  constexpr int64_t kRows = 65539, kColumns = 32771;
  Huge a(DType::i8, {kColumns, kRows}), out(DType::i8, {kRows, kColumns});
  a.fill([](int64_t i) { return i / kRows % 127 - i % kRows % 113; });
  int64_t shape[] = {kRows, kColumns}, strides[] = {1, kRows};
  DLTensor turned = a.dl;
  turned.shape = shape, turned.strides = strides;
  nw_elementwise_params p{};
  p.function = NW_EW_NEG;
  run_huge("elementwise", {&turned}, {&out.dl}, p,
           [&] { CHECK(out.wrong([](int64_t i) { return i / kColumns % 113 - i % kColumns % 127; }) == 0); });
}

TEST_CASE("huge: conv1d of a signal of more than 2^31 elements", "[.huge][conv1d]") {
  Huge x(DType::bf16, {kMany}), y(DType::bf16, {kMany});
  x.fill([](int64_t i) { return i % 61; });
  Tensor w(DType::bf16, {2});
  w.set(std::vector<double>{1, 2});
  nw_conv1d_params p{};
  p.pad_right = 1;
  run_huge("conv1d", {&x.dl, w.dl()}, {&y.dl}, p,
           [&] { CHECK(y.wrong([](int64_t i) { return i % 61 + (i + 1 < kMany ? 2 * ((i + 1) % 61) : 0); }) == 0); });
}

TEST_CASE("huge: lltm with an input of more than 2^31 elements", "[.huge][lltm]") {
  constexpr int64_t kFeatures = 64, kBatch = kMany / kFeatures + 1;
  Huge input(DType::f16, {kBatch, kFeatures}), state(DType::f16, {kBatch, 1}), new_h(DType::f16, {kBatch, 1}),
      new_cell(DType::f16, {kBatch, 1});
  input.fill([](int64_t i) { return i % kFeatures == 0 ? i / kFeatures % 7 : 0; });
  state.fill([](int64_t) { return 0; });
  Tensor weights(DType::f16, {3, 1 + kFeatures}), bias(DType::f16, {3});
  std::vector<double> w(3 * (1 + kFeatures), 0);
  w[2 * (1 + kFeatures) + 1] = 1;  // the candidate is input[:, 0]; both gates are open
  weights.set(w);
  bias.set(std::vector<double>{100, 100, 0});
  run_huge("lltm", {&input.dl, weights.dl(), bias.dl(), &state.dl, &state.dl}, {&new_h.dl, &new_cell.dl, nullptr}, {},
           [&] { CHECK(new_cell.wrong([](int64_t i) { return i % 7; }) == 0); });
}
