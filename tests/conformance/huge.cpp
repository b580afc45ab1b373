// SPDX-License-Identifier: Apache-2.0
// huge.cpp -- more than 2^31 elements in real memory, behind `narrows conform --huge`: what a 32-bit index anywhere breaks. Memory
// is the device's own, filled and read through a window; the harness's tensors remember every element and would not fit.
#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <functional>
#include <thread>

#include "support/harness.h"

using namespace narrows::test;

namespace {

constexpr int64_t kMany = (int64_t{1} << 31) + 1029;
constexpr int64_t kStep = kMany / 16 - 64;  // elements 5, kStep + 5, ..., 16 * kStep + 5, which is beyond 2^31
bool is_marked(int64_t i) { return i % kStep == 5; }
constexpr uint64_t kWindow = uint64_t{1} << 26;  // bytes

constexpr int kLowest = -256, kHighest = 511;  // of the values used here: all of them integers

// body(begin, end) for parts of [0, count), one on each core.
template <class Body>
void in_parts(int64_t count, const Body& body) {
  const auto parts = static_cast<int64_t>(std::max(1u, std::thread::hardware_concurrency()));
  std::vector<std::jthread> threads;
  for (int64_t p = 0; p < parts; ++p) threads.emplace_back(body, count * p / parts, count * (p + 1) / parts);
}

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
      in_parts(count, [&, first](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) std::memcpy(bytes.data() + i * item, code(at(first + i)), item);
      });
      copy(bytes, first, count, true);
    });
  }
  void poison() {
    each_window([&](std::vector<unsigned char>& bytes, int64_t first, int64_t count) {
      std::fill(bytes.begin(), bytes.end(), static_cast<unsigned char>(0xC3));
      copy(bytes, first, count, true);
    });
  }
  // The number of elements that are not at(i).
  template <class At>
  int64_t wrong(At at) const {
    const auto item = static_cast<size_t>(item_size(dtype_));
    std::atomic<int64_t> bad = 0;
    each_window([&](std::vector<unsigned char>& bytes, int64_t first, int64_t count) {
      copy(bytes, first, count, false);
      in_parts(count, [&, first](int64_t begin, int64_t end) {
        int64_t here = 0;
        for (int64_t i = begin; i < end; ++i) here += std::memcmp(bytes.data() + i * item, code(at(first + i)), item) != 0;
        bad += here;
      });
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

// An output, in its own memory or in the harness's; nullptr: not wanted.
struct Output {
  Output(std::nullptr_t) {}
  Output(Huge* large) : dl(&large->dl), poison([large] { large->poison(); }) {}
  Output(Tensor* small) : dl(small->dl()), poison([small] { small->poison(); }) {}
  const DLTensor* dl = nullptr;
  std::function<void()> poison = [] {};
};

// Runs it on every variant that takes it, the backend's choice first; check() looks at the outputs. Says which those were.
void run_huge(const char* op, std::vector<const DLTensor*> inputs, const std::vector<Output>& written, const Blob& params,
              const std::function<void()>& check) {
  expect_offered(op);
  std::string ran;
  bool some = false;
  std::vector<const DLTensor*> outputs;
  for (const Output& output : written) outputs.push_back(output.dl);
  for (const char* kernel : kernels(op)) {
    for (const Output& output : written) output.poison();
    Call call(op, {}, {}, params);
    call.note = "more than 2^31 elements";
    call.raw.kernel = kernel;
    call.raw.inputs = inputs.data(), call.raw.num_inputs = static_cast<uint32_t>(inputs.size());
    call.raw.outputs = outputs.data(), call.raw.num_outputs = static_cast<uint32_t>(outputs.size());
    const Result result = call.run();
    if (result.was_declined()) continue;
    ran += std::string(" ") + (kernel == nullptr ? "-" : kernel);
    if (result.status == NW_OUT_OF_MEMORY) {
      ran += " (not: no memory for its workspace)";
      continue;
    }
    expect_ok(result);
    some = true;
    INFO("kernel " << (kernel == nullptr ? "-" : kernel));
    check();
  }
  WARN(op << " ran on:" << ran);
  if (!some) SKIP("the device has no memory for any workspace");
}

// What a tensor of the harness holds.
void expect_values(const Tensor& got, const std::vector<double>& expected) {
  const std::string text = difference(got, expected, kExact);
  INFO(text);
  CHECK(text.empty());
}

constexpr int64_t kLength = 1 << 20;  // of a dense convolution's rows

// y[n, f, l] = x[n, channel(f), l + 2] by a tap of 1 among zeros: every output shows which input it read.
void check_dense(DType dtype, int64_t channels, int64_t filters) {
  constexpr int64_t kTaps = 3;
  const int64_t batch = kMany / (std::max(channels, filters) * kLength) + 1;
  const auto channel = [=](int64_t f) { return (f * 5 + 3) % channels; };
  Huge x(dtype, {batch, channels, kLength}), y(dtype, {batch, filters, kLength});
  x.fill([](int64_t i) { return i % 509; });
  Tensor w(dtype, {filters, channels, kTaps});
  std::vector<double> taps(static_cast<size_t>(w.size()), 0);
  for (int64_t f = 0; f < filters; ++f) taps[static_cast<size_t>((f * channels + channel(f)) * kTaps + 2)] = 1;
  w.set(taps);
  nw_conv1d_params p{};
  p.pad_right = kTaps - 1;
  const auto expected = [=](int64_t i) {
    const int64_t l = i % kLength, row = i / kLength, n = row / filters, f = row % filters;
    return l + 2 < kLength ? ((n * channels + channel(f)) * kLength + l + 2) % 509 : 0;
  };
  run_huge("conv1d", {&x.dl, w.dl()}, {&y}, p, [&] { CHECK(y.wrong(expected) == 0); });
}

// Each row of positions has gradients at a few of them, each of one filter alone. A gradient alone is on the variant that was
// forced, or on none.
void check_dense_backward(int64_t channels, int64_t filters) {
  constexpr int64_t kTaps = 3, kMarks = 4, kApart = kLength / kMarks, kFirst = 5;
  const int64_t batch = kMany / (std::max(channels, filters) * kLength) + 1;
  const auto filter = [=](int64_t n, int64_t mark) { return (n + 17 * mark) % filters; };  // of position kFirst + mark * kApart
  const auto tap = [](int64_t f, int64_t c, int64_t k) { return (f * 5 + c * 3 + k * 2) % 7; };
  const auto value = [](int64_t i) { return i % 7; };
  const auto grad = [=](int64_t i) -> int64_t {
    const int64_t l = i % kLength;
    return l % kApart == kFirst && filter(i / kLength / filters, l / kApart) == i / kLength % filters ? 1 : 0;
  };
  const auto grad_of_x = [=](int64_t i) -> int64_t {
    const int64_t l = i % kLength, row = i / kLength, k = l % kApart - kFirst;
    return k < 0 || k >= kTaps ? 0 : tap(filter(row / channels, l / kApart), row % channels, k);
  };
  Huge grad_y(DType::f16, {batch, filters, kLength}), x(DType::f16, {batch, channels, kLength}),
      grad_x(DType::f16, {batch, channels, kLength});
  grad_y.fill(grad);
  x.fill(value);
  Tensor w(DType::f16, {filters, channels, kTaps}), grad_w(DType::f16, {filters, channels, kTaps}),
      grad_bias(DType::f16, {filters});
  std::vector<double> taps, sums(static_cast<size_t>(w.size()), 0), counts(static_cast<size_t>(filters), 0);
  for (int64_t i = 0; i < w.size(); ++i)
    taps.push_back(static_cast<double>(tap(i / kTaps / channels, i / kTaps % channels, i % kTaps)));
  w.set(taps);
  for (int64_t n = 0; n < batch; ++n)
    for (int64_t mark = 0; mark < kMarks; ++mark) {
      const int64_t f = filter(n, mark), l = kFirst + mark * kApart;
      ++counts[static_cast<size_t>(f)];
      for (int64_t c = 0; c < channels; ++c)
        for (int64_t k = 0; k < kTaps; ++k)
          sums[static_cast<size_t>((f * channels + c) * kTaps + k)] +=
              static_cast<double>(value((n * channels + c) * kLength + l + k));
    }
  nw_conv1d_params p{};
  p.pad_right = kTaps - 1;
  run_huge("conv1d_backward", {&grad_y.dl, &x.dl, w.dl()}, {&grad_x, nullptr, nullptr}, p,
           [&] { CHECK(grad_x.wrong(grad_of_x) == 0); });
  run_huge("conv1d_backward", {&grad_y.dl, &x.dl, w.dl()}, {nullptr, &grad_w, &grad_bias}, p, [&] {
    expect_values(grad_w, sums);
    expect_values(grad_bias, counts);
  });
}

}  // namespace

TEST_CASE("huge: elementwise over more than 2^31 bytes", "[.huge][elementwise]") {
  Huge a(DType::i8, {kMany}), out(DType::i8, {kMany});
  a.fill([](int64_t i) { return i % 251 - 125; });
  nw_elementwise_params p{};
  p.function = NW_EW_ADD;
  p.b_int = 1;
  run_huge("elementwise", {&a.dl, nullptr}, {&out}, p, [&] { CHECK(out.wrong([](int64_t i) { return i % 251 - 124; }) == 0); });
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
  run_huge("elementwise", {&turned}, {&out}, p,
           [&] { CHECK(out.wrong([](int64_t i) { return i / kColumns % 113 - i % kColumns % 127; }) == 0); });
}

TEST_CASE("huge: conv1d of a signal of more than 2^31 elements", "[.huge][conv1d]") {
  Huge x(DType::bf16, {kMany}), y(DType::bf16, {kMany});
  x.fill([](int64_t i) { return i % 61; });
  Tensor w(DType::bf16, {2});
  w.set(std::vector<double>{1, 2});
  nw_conv1d_params p{};
  p.pad_right = 1;
  run_huge("conv1d", {&x.dl, w.dl()}, {&y}, p,
           [&] { CHECK(y.wrong([](int64_t i) { return i % 61 + (i + 1 < kMany ? 2 * ((i + 1) % 61) : 0); }) == 0); });
}

// Nine taps: where filters of f32 have a kernel of their own.
TEST_CASE("huge: conv1d of nine taps over a signal of more than 2^31 elements of f32", "[.huge][conv1d]") {
  constexpr int64_t kTaps = 9;
  const auto value = [](int64_t i) { return i % 11; };
  const auto sum = [=](int64_t i) {
    int64_t all = 0;
    for (int64_t k = 0; k < kTaps; ++k) all += i + k < kMany ? (k + 1) * value(i + k) : 0;
    return all;
  };
  int64_t sums[11];
  for (int64_t i = 0; i < 11; ++i) sums[i] = sum(i);
  Huge x(DType::f32, {kMany}), y(DType::f32, {kMany});
  x.fill(value);
  Tensor w(DType::f32, {kTaps});
  w.set(std::vector<double>{1, 2, 3, 4, 5, 6, 7, 8, 9});
  nw_conv1d_params p{};
  p.pad_right = kTaps - 1;
  run_huge("conv1d", {&x.dl, w.dl()}, {&y}, p,
           [&] { CHECK(y.wrong([&](int64_t i) { return i + kTaps <= kMany ? sums[i % 11] : sum(i); }) == 0); });
}

TEST_CASE("huge: dense conv1d of more than 2^31 inputs", "[.huge][conv1d]") { check_dense(DType::f16, 64, 8); }
TEST_CASE("huge: dense conv1d of more than 2^31 outputs", "[.huge][conv1d]") { check_dense(DType::f16, 8, 64); }
TEST_CASE("huge: dense conv1d of f32, of more than 2^31 inputs and outputs", "[.huge][conv1d]") {
  check_dense(DType::f32, 72, 72);  // more than 64 filters are what products of f32 by wide tiles take
}
TEST_CASE("huge: dense conv1d_backward of more than 2^31 inputs", "[.huge][conv1d][backward]") { check_dense_backward(64, 8); }
TEST_CASE("huge: dense conv1d_backward of more than 2^31 outputs", "[.huge][conv1d][backward]") { check_dense_backward(8, 64); }

TEST_CASE("huge: conv1d_backward of a signal of more than 2^31 elements", "[.huge][conv1d][backward]") {
  const auto grad = [](int64_t i) -> int64_t { return i >= 0 && is_marked(i) ? 1 : 0; };
  const auto signal = [](int64_t i) -> int64_t { return i < kMany ? i % 7 : 0; };
  Huge grad_y(DType::bf16, {kMany}), x(DType::bf16, {kMany}), grad_x(DType::bf16, {kMany});
  grad_y.fill(grad);
  x.fill(signal);
  Tensor w(DType::bf16, {2}), grad_w(DType::bf16, {2}), grad_bias(DType::bf16, {1});
  w.set(std::vector<double>{1, 2});
  nw_conv1d_params p{};
  p.pad_right = 1;
  std::vector<double> sums(2, 0);  // y[i] = x[i] + 2 x[i + 1]
  double count = 0;
  for (int64_t i = 5; i < kMany; i += kStep) {
    sums[0] += static_cast<double>(signal(i)), sums[1] += static_cast<double>(signal(i + 1));
    ++count;
  }
  run_huge("conv1d_backward", {&grad_y.dl, &x.dl, w.dl()}, {&grad_x, &grad_w, &grad_bias}, p, [&] {
    CHECK(grad_x.wrong([&](int64_t i) { return grad(i) + 2 * grad(i - 1); }) == 0);
    expect_values(grad_w, sums);
    expect_values(grad_bias, {count});
  });
}

// mul: the gradient of b, one row for all, is a sum over rows.
TEST_CASE("huge: elementwise_backward, a sum over a matrix of more than 2^31 elements", "[.huge][elementwise][backward]") {
  constexpr int64_t kColumns = 32768, kRows = kMany / kColumns + 1;
  const auto grad = [](int64_t i) -> int64_t { return i / kColumns % (kRows / 8) == 0 ? 1 : 0; };
  const auto value = [](int64_t i) { return (i / kColumns + i % kColumns) % 7; };
  Huge grad_out(DType::bf16, {kRows, kColumns}), a(DType::bf16, {kRows, kColumns}), grad_a(DType::bf16, {kRows, kColumns});
  grad_out.fill(grad);
  a.fill(value);
  Tensor b(DType::bf16, {kColumns}), grad_b(DType::bf16, {kColumns});
  b.set(std::vector<double>(kColumns, 2));
  nw_elementwise_params p{};
  p.function = NW_EW_MUL;
  std::vector<double> sums(kColumns, 0);
  for (int64_t row = 0; row < kRows; row += kRows / 8)
    for (int64_t column = 0; column < kColumns; ++column)
      sums[static_cast<size_t>(column)] += static_cast<double>(value(row * kColumns + column));
  run_huge("elementwise_backward", {&grad_out.dl, &a.dl, b.dl(), nullptr, nullptr}, {&grad_a, &grad_b, nullptr}, p, [&] {
    CHECK(grad_a.wrong([&](int64_t i) { return 2 * grad(i); }) == 0);
    expect_values(grad_b, sums);
  });
}

namespace {

// States and features in eights, and rows of contiguous elements: what matrix units and the vendor's library take. Long rows keep
// what lies in the workspace small.
constexpr int64_t kFeatures = 1024, kStates = 8, kRows = kMany / kFeatures + 1, kWeightRow = kStates + kFeatures;
constexpr int64_t column_of(int64_t state) { return state * (kFeatures - 1) / (kStates - 1); }  // of input, the last one included
constexpr size_t weight_of(int64_t state, int64_t k) {                                          // of the candidate of a state
  return static_cast<size_t>((2 * kStates + state) * kWeightRow + k);
}

}  // namespace

// Both gates are open and elu passes the candidate on: the gradient of the new cell goes to the candidate's row as it is.
TEST_CASE("huge: lltm_backward with an input of more than 2^31 elements", "[.huge][lltm][backward]") {
  constexpr int64_t kEvery = kRows / 16;
  const auto marked = [](int64_t row) { return row % kEvery == 5 || row == kRows - 1; };
  const auto grad = [&](int64_t i) -> int64_t { return marked(i / kStates) ? 1 + i % kStates : 0; };
  const auto value = [](int64_t i) { return (i / kFeatures + i % kFeatures) % 7; };
  Huge grad_cell(DType::f16, {kRows, kStates}), input(DType::f16, {kRows, kFeatures}), old_h(DType::f16, {kRows, kStates}),
      new_cell(DType::f16, {kRows, kStates}), gates(DType::f32, {kRows, 3 * kStates});
  grad_cell.fill(grad);
  input.fill(value);
  old_h.fill([](int64_t i) { return i % 3; });
  new_cell.fill([](int64_t) { return 1; });
  gates.fill([](int64_t i) { return i % (3 * kStates) >= 2 * kStates ? 1 : 200; });
  Tensor weights(DType::f16, {3 * kStates, kWeightRow});
  std::vector<double> w(static_cast<size_t>(weights.size()), 0);
  std::vector<int64_t> state_of(kFeatures, -1);
  for (int64_t s = 0; s < kStates; ++s) {
    w[weight_of(s, s)] = 3, w[weight_of(s, kStates + column_of(s))] = 2;
    state_of[static_cast<size_t>(column_of(s))] = s;
  }
  weights.set(w);
  Huge d_input(DType::f16, {kRows, kFeatures}), d_old_h(DType::f16, {kRows, kStates}), d_old_cell(DType::f16, {kRows, kStates});
  Tensor d_weights(DType::f16, {3 * kStates, kWeightRow}), d_bias(DType::f16, {3 * kStates});
  std::vector<double> dw(w.size(), 0), db(3 * kStates, 0);
  for (int64_t row = 0; row < kRows; ++row) {
    if (!marked(row)) continue;
    for (int64_t s = 0; s < kStates; ++s) {
      const auto of_cell = static_cast<double>(grad(row * kStates + s));
      db[static_cast<size_t>(2 * kStates + s)] += of_cell;
      for (int64_t k = 0; k < kStates; ++k) dw[weight_of(s, k)] += of_cell * static_cast<double>((row * kStates + k) % 3);
      for (int64_t k = 0; k < kFeatures; ++k)
        dw[weight_of(s, kStates + k)] += of_cell * static_cast<double>(value(row * kFeatures + k));
    }
  }
  run_huge("lltm_backward",
           {nullptr, &grad_cell.dl, &input.dl, weights.dl(), nullptr, &old_h.dl, nullptr, nullptr, &new_cell.dl, &gates.dl},
           {&d_input, &d_weights, &d_bias, &d_old_h, &d_old_cell}, {}, [&] {
             CHECK(d_input.wrong([&](int64_t i) -> int64_t {
               const int64_t row = i / kFeatures, state = state_of[static_cast<size_t>(i % kFeatures)];
               return state < 0 ? 0 : 2 * grad(row * kStates + state);
             }) == 0);
             CHECK(d_old_h.wrong([&](int64_t i) { return 3 * grad(i); }) == 0);
             CHECK(d_old_cell.wrong(grad) == 0);
             expect_values(d_weights, dw);
             expect_values(d_bias, db);
           });
}

// The input gate is open and the output gate shut; the candidates are old_h + input[:, column_of(state)].
TEST_CASE("huge: lltm with an input of more than 2^31 elements", "[.huge][lltm]") {
  const auto value = [](int64_t i) { return (i / kFeatures + i % kFeatures) % 7; };
  Huge input(DType::f16, {kRows, kFeatures}), state(DType::f16, {kRows, kStates}), new_h(DType::f16, {kRows, kStates}),
      new_cell(DType::f16, {kRows, kStates});
  input.fill(value);
  state.fill([](int64_t i) { return i % 3; });
  Tensor weights(DType::f16, {3 * kStates, kWeightRow}), bias(DType::f16, {3 * kStates});
  std::vector<double> w(static_cast<size_t>(weights.size()), 0), b(3 * kStates, 0);
  for (int64_t s = 0; s < kStates; ++s) {
    w[weight_of(s, s)] = 1, w[weight_of(s, kStates + column_of(s))] = 1;
    b[static_cast<size_t>(s)] = 100, b[static_cast<size_t>(kStates + s)] = -100;
  }
  weights.set(w);
  bias.set(b);
  run_huge("lltm", {&input.dl, weights.dl(), bias.dl(), &state.dl, &state.dl}, {&new_h, &new_cell, nullptr}, {}, [&] {
    CHECK(new_cell.wrong([&](int64_t i) { return 2 * (i % 3) + value(i / kStates * kFeatures + column_of(i % kStates)); }) == 0);
    CHECK(new_h.wrong([](int64_t) { return 0; }) == 0);
  });
}
