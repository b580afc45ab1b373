// SPDX-License-Identifier: Apache-2.0
// conv1d_traps.cpp -- the mistakes that other implementations of this convolution made, one test each.
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstring>
#include <limits>

#include "conv1d_case.h"

using namespace narrows::test;
using narrows::reference::Conv1d;

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();
using Values = std::vector<double>;

// Past the end of a signal of 5 in one step; sums with them overflow 32 and 64 bits.
constexpr int64_t kLargeStrides[] = {4,
                                     5,
                                     1000,
                                     int64_t{1} << 31,
                                     int64_t{1} << 33,
                                     int64_t{1} << 62,
                                     std::numeric_limits<int64_t>::max() - 1,
                                     std::numeric_limits<int64_t>::max()};

// A filter of ones over 0, 1, 2, ..., as puzzle 17 pads it: sums of small integers, exact in every dtype that holds them.
Values ramp(int64_t n, int64_t modulus) {
  Values values;
  for (int64_t i = 0; i < n; ++i) values.push_back(static_cast<double>(i % modulus));
  return values;
}

// y = conv1d(x, w) exactly, for every variant, on a signal that lies between NaNs: a load past its end shows.
void check_exact_signal(DType dtype, const Values& x, const Values& w, int64_t pad_left, int64_t pad_right) {
  const auto n = static_cast<int64_t>(x.size());
  const Conv1d s{.length = n, .taps = static_cast<int64_t>(w.size()), .pad_left = pad_left, .pad_right = pad_right};
  const Conv1dCase c{.shape = s, .dtype = dtype, .rank = 1};
  Tensor around(dtype, {n + 64}), filter(dtype, c.w_dims()), y(dtype, c.y_dims());
  Values with_nans(static_cast<size_t>(n + 64), kNaN);
  std::copy(x.begin(), x.end(), with_nans.begin() + 32);
  around.set(with_nans);
  const Tensor signal(around, dtype, {n}, {1}, 32 * item_size(dtype));
  filter.set(w);
  Values reference = narrows::reference::conv1d(s, x, w);
  for (double& value : reference) value = static_cast<double>(rounded(dtype, value));
  for (const char* kernel : kernels("conv1d")) {
    const Result result = run("conv1d", {&signal, &filter}, {&y}, c.params(), kernel, 0, c.note());
    if (!result.was_declined()) expect_close(result, y, reference, kExact);
  }
}

void check_exact_ramp(int64_t n, int64_t k) {
  for (const DType dtype : kFloatDTypes) {
    check_exact_signal(dtype, ramp(n, 7), ramp(k, 4), 0, k - 1);
    check_exact_signal(dtype, ramp(n, 7), ramp(k, 4), k - 1, 0);
  }
}

// One signal and filter, both given, through every variant.
void check_values(DType dtype, const Values& x, const Values& w, const Values& expected, const Tolerance& tolerance = kExact) {
  Tensor tx(dtype, {static_cast<int64_t>(x.size())}), tw(dtype, {static_cast<int64_t>(w.size())}),
      y(dtype, {static_cast<int64_t>(expected.size())});
  tx.set(x);
  tw.set(w);
  for (const char* kernel : kernels("conv1d")) {
    const Result result = run("conv1d", {&tx, &tw}, {&y}, {}, kernel);
    if (!result.was_declined()) expect_close(result, y, expected, tolerance);
  }
}

void copy_elements(void* device_base, int64_t first, const std::vector<uint16_t>& values) {
  nw_error error{};
  const int32_t status = nw_copy(runtime(), device(), static_cast<char*>(device_base) + first * 2, {kDLCPU, 0}, values.data(),
                                 values.size() * 2, nullptr, &error);
  INFO(error.message);
  REQUIRE(status == NW_OK);
}

// Of conv1d's largest params: with them each stride of these layouts overflows 64 bits, but is never taken.
constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
constexpr int64_t kLargeReaches[] = {1000, int64_t{1} << 31, int64_t{1} << 62, kMax - 5};
const Layout kSignalLayouts[] = {Layout::contiguous(), Layout::strided(3), Layout::reversed()};

Tensor signal(const Values& values, const Layout& layout) {
  Tensor t(DType::f32, {static_cast<int64_t>(values.size())}, layout);
  t.set(values);
  return t;
}

std::string note(const Conv1dParams& p) {
  return "stride=" + std::to_string(p.stride) + " dilation=" + std::to_string(p.dilation) + " pad=" + std::to_string(p.pad_left) +
         "," + std::to_string(p.pad_right);
}

}  // namespace

TEST_CASE("conv1d trap: n = 20, k = 4 reads zeros past the end, not what lies there", "[conv1d][trap]") { check_exact_ramp(20, 4); }

TEST_CASE("conv1d trap: n = 10, k = 4 at the boundary of a block", "[conv1d][trap]") { check_exact_ramp(10, 4); }

TEST_CASE("conv1d trap: n is not a multiple of the block", "[conv1d][trap]") {
  for (int64_t n = 1; n <= 70; ++n) check_exact_ramp(n, 4);
}

TEST_CASE("conv1d trap: a guard that is always true stores past the end", "[conv1d][trap]") {
  // Every other element of y's memory is a canary, and so are 256 bytes on both sides of it: run() looks at them.
  for (const DType dtype : kFloatDTypes) {
    Rng rng("conv1d guard");
    for (int64_t n = 1; n <= 40; ++n)
      for (const Layout& layout : {Layout::contiguous(), Layout::strided(2), Layout::reversed()})
        check_conv1d({.shape = {.length = n, .taps = 3, .pad_left = 2}, .dtype = dtype, .rank = 1, .y_layout = layout}, rng);
  }
}

TEST_CASE("conv1d trap: a fixed grid leaves n > 30 unwritten", "[conv1d][trap]") {
  for (const int64_t n : {31, 32, 33, 60, 61, 1000, 1025, 65537, 131073}) check_exact_ramp(n, 4);
}

TEST_CASE("conv1d trap: k larger than the block, taps that are never loaded", "[conv1d][trap]") {
  for (const int64_t k : {8, 9, 15, 16, 17, 31, 33}) check_exact_ramp(15, k);
  // Ones, so that each missing tap is missing from the sum. bf16 could not tell 1025 from 1024.
  for (const DType dtype : {DType::f32, DType::f64, DType::f16})
    for (const int64_t k : {257, 600, 1025})
      check_exact_signal(dtype, Values(static_cast<size_t>(k + 10), 1), Values(static_cast<size_t>(k), 1), 0, 0);
}

TEST_CASE("conv1d trap: success with the output unwritten", "[conv1d][trap]") {
  for (const DType dtype : kFloatDTypes)
    for (const int64_t n : {1, 5, 30, 31, 1000}) check_values(dtype, ramp(n, 7), {0}, Values(static_cast<size_t>(n), 0.0), {});
}

TEST_CASE("conv1d trap: a dtype that is accepted and ignored", "[conv1d][trap]") {
  // Neither the values nor the sums survive a detour through a smaller dtype (tf32 has 11 bits, bf16 8).
  check_values(DType::f64, {1 + 0x1p-52, 0x1p-60, 3}, {1, 1}, {1 + 0x1p-52, 3});
  check_values(DType::f64, {0x1p-500, 1e300}, {1}, {0x1p-500, 1e300});
  check_values(DType::f32, {1 + 0x1p-23, 0x1p-100, 0x1p100}, {1}, {1 + 0x1p-23, 0x1p-100, 0x1p100});
  check_values(DType::bf16, {0x1p100, 1 + 0x1p-7}, {1}, {0x1p100, 1 + 0x1p-7});  // beyond the range of f16
  check_values(DType::f16, {1 + 0x1p-10, 2049 - 1}, {1}, {1 + 0x1p-10, 2048});   // beyond the precision of bf16
}

TEST_CASE("conv1d trap: 32-bit floats pass through a tensor core's 11 bits", "[conv1d][trap]") {
  // 96 times 1 + 2^-12: every partial sum has 19 bits at most, exact in f32 in any order; a factor of 11 bits loses the 2^-12.
  Rng rng("conv1d tf32");
  const Conv1dCase c{.shape = {.channels = 32, .length = 64, .filters = 32, .taps = 3}};
  Conv1dTensors t(c, rng);
  t.w.set(Values(static_cast<size_t>(t.w.size()), 1 + 0x1p-12));
  t.x.set(Values(static_cast<size_t>(t.x.size()), 1));
  for (const char* kernel : kernels("conv1d")) {
    const Result result = run("conv1d", {&t.x, &t.w}, {&t.y}, c.params(), kernel);
    if (!result.was_declined()) expect_close(result, t.y, Values(static_cast<size_t>(t.y.size()), 96 + 96 * 0x1p-12), kExact);
  }
}

TEST_CASE("conv1d trap: sums of 16-bit floats stop growing when they are kept in 16 bits", "[conv1d][trap]") {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    check_exact_signal(dtype, Values(3000, 1), Values(3000, 1), 0, 0);  // f16 would stop at 2048, bf16 at 256
    const Conv1dCase c{.shape = {.batch = 1, .channels = 1500, .length = 4, .filters = 20, .taps = 2}, .dtype = dtype};
    Tensor x(dtype, c.x_dims()), w(dtype, c.w_dims()), y(dtype, c.y_dims());
    x.set(Values(static_cast<size_t>(x.size()), 1));
    w.set(Values(static_cast<size_t>(w.size()), 1));
    for (const char* kernel : kernels("conv1d")) {
      const Result result = run("conv1d", {&x, &w}, {&y}, c.params(), kernel);
      if (!result.was_declined())
        expect_close(result, y, Values(static_cast<size_t>(y.size()), static_cast<double>(rounded(dtype, 3000))), kExact);
    }
  }
}

TEST_CASE("conv1d trap: a sum overflows 16 bits on its way to a small result", "[conv1d][trap]") {
  check_values(DType::f16, {60000, 60000, -60000}, {1, 1, 1}, {60000});
  check_values(DType::f16, {60000, 60000}, {1, 1}, {kInf});
  check_values(DType::f16, {256, 256}, {-256, 256}, {0}, {});
}

TEST_CASE("conv1d trap: results are rounded once, to nearest even", "[conv1d][trap]") {
  check_values(DType::f16, {1, 0x1p-11}, {1, 1}, {1});
  check_values(DType::f16, {1 + 0x1p-10, 0x1p-11}, {1, 1}, {1 + 0x1p-9});
  check_values(DType::f16, {65504, 15.99}, {1, 1}, {65504});
  check_values(DType::f16, {65504, 16}, {1, 1}, {kInf});
  check_values(DType::f16, {0x1p-12}, {0x1p-12}, {0x1p-24});  // the smallest subnormal
  check_values(DType::bf16, {1, 0x1p-8}, {1, 1}, {1});
  check_values(DType::bf16, {1 + 0x1p-7, 0x1p-8}, {1, 1}, {1 + 0x1p-6});
  check_values(DType::bf16, {1 + 0x1p-7, -0x1p-8}, {1, 1}, {1});
}

// Products that are subnormal in f32, of operands that are not, in the first 10 channels; so are their sums. All is exact.
void check_small_products(DType dtype, int64_t channels) {
  const Conv1d s{.channels = channels, .length = 70, .filters = 20, .taps = 3, .pad_left = 1, .pad_right = 1};
  const Conv1dCase c{.shape = s, .dtype = dtype};
  Tensor x(dtype, c.x_dims()), w(dtype, c.w_dims()), y(dtype, c.y_dims());
  Values signal(static_cast<size_t>(channels * s.length), 0.0);
  std::fill(signal.begin(), signal.begin() + 10 * s.length, 0x1p-66);
  x.set(signal);
  w.set(Values(static_cast<size_t>(s.filters * channels * s.taps), 0x1p-66));
  const Values reference = narrows::reference::conv1d(s, x.values(), w.values(), {});
  for (const char* kernel : kernels("conv1d")) {
    const Result result = run("conv1d", {&x, &w}, {&y}, c.params(), kernel, 0, c.note());
    if (!result.was_declined()) expect_close(result, y, reference, kExact);
  }
}

// The same of the gradients: grad_y is small in the first 10 channels, and 0 in the others.
void check_small_gradients(DType dtype) {
  const Conv1d s{.channels = 20, .length = 70, .filters = 40, .taps = 3, .pad_left = 1, .pad_right = 1};
  const Conv1dCase c{.shape = s, .dtype = dtype};
  Tensor grad_y(dtype, c.y_dims()), x(dtype, c.x_dims()), w(dtype, c.w_dims()), grad_x(dtype, c.x_dims()),
      grad_w(dtype, c.w_dims());
  Values gradient(static_cast<size_t>(grad_y.size()), 0.0);
  std::fill(gradient.begin(), gradient.begin() + 10 * s.length, 0x1p-66);
  grad_y.set(gradient);
  x.set(Values(static_cast<size_t>(x.size()), 0x1p-66));
  w.set(Values(static_cast<size_t>(w.size()), 0x1p-66));
  const auto reference = narrows::reference::conv1d_backward(s, gradient, x.values(), w.values());
  for (const char* kernel : kernels("conv1d_backward")) {
    const Result result = run("conv1d_backward", {&grad_y, &x, &w}, {&grad_x, &grad_w, nullptr}, c.params(), kernel, 0, c.note());
    if (result.was_declined()) continue;
    expect_close(result, grad_x, reference.x, kExact);
    expect_close(result, grad_w, reference.w, kExact);
  }
}

TEST_CASE("conv1d trap: denormals are flushed to zero", "[conv1d][trap]") {
  check_values(DType::f32, Values(100, 0x1p-149), {1}, Values(100, 0x1p-149));
  check_values(DType::f32, Values(100, 0x1p-100), {0x1p-40}, Values(100, 0x1p-140));
  check_values(DType::f64, Values(100, 0x1p-1074), {1}, Values(100, 0x1p-1074));
  check_values(DType::bf16, Values(100, 0x1p-133), {1}, Values(100, 0x1p-133));
  check_values(DType::f16, Values(100, 0x1p-24), {1}, Values(100, 0x1p-24));
  // Instructions that multiply several at once may do so; also to a sum that later terms, 0 here, are added to.
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const int64_t channels : {40, 400}) check_small_products(dtype, channels);
  for (const DType dtype : {DType::f32, DType::bf16}) check_small_gradients(dtype);
}

TEST_CASE("conv1d trap: a NaN or an infinity reaches the outputs that read it, and no others", "[conv1d][trap]") {
  for (const DType dtype : kFloatDTypes)
    for (const double special : {kNaN, kInf, -kInf})
      for (const int place : {0, 1, 2})  // in x, w, bias
        for (const Conv1d& s :
             {Conv1d{.batch = 2, .length = 40, .taps = 5},
              Conv1d{.batch = 2, .channels = 4, .length = 40, .filters = 4, .taps = 4, .groups = 4},
              Conv1d{.batch = 2, .channels = 20, .length = 40, .filters = 18, .taps = 3, .stride = 2, .groups = 2},
              Conv1d{.batch = 2, .channels = 20, .length = 40, .filters = 70, .taps = 3}}) {
          Rng rng("conv1d special values");
          const Conv1dCase c{.shape = s, .dtype = dtype};
          Conv1dTensors t(c, rng);
          Tensor& holder = place == 0 ? t.x : place == 1 ? t.w : t.bias;
          Values values = holder.values();
          values[place == 0 ? static_cast<size_t>(s.channels * s.length / 2 + 17) : values.size() / 2] = special;
          holder.set(values);
          const Values reference = narrows::reference::conv1d(s, t.x.values(), t.w.values(), t.bias.values());
          const Tolerance tolerance{.rtol = 2 * static_cast<double>(epsilon(dtype)),
                                    .atol = 64 * static_cast<double>(epsilon(accumulator(dtype)))};
          for (const char* kernel : kernels("conv1d")) {
            const Result result = run("conv1d", {&t.x, &t.w, &t.bias}, {&t.y}, c.params(), kernel, 0, c.note());
            if (!result.was_declined()) expect_close(result, t.y, reference, tolerance);
          }
        }
}

TEST_CASE("conv1d_backward trap: a NaN or an infinity reaches the gradients that read it, and no others",
          "[conv1d][backward][trap]") {
  for (const DType dtype : kFloatDTypes)
    for (const double special : {kNaN, kInf, -kInf})
      for (const bool in_x : {false, true})
        for (const Conv1d& s : {Conv1d{.batch = 2, .length = 40, .taps = 5},
                                Conv1d{.batch = 2, .channels = 4, .length = 40, .filters = 4, .taps = 4, .groups = 4},
                                Conv1d{.batch = 2, .channels = 20, .length = 40, .filters = 18, .taps = 3, .groups = 2},
                                Conv1d{.batch = 2, .channels = 70, .length = 40, .filters = 70, .taps = 3},
                                Conv1d{.batch = 2, .channels = 70, .length = 48, .filters = 70, .taps = 9}}) {
          Rng rng("conv1d_backward special values");
          const Conv1dCase c{.shape = s, .dtype = dtype};
          Conv1dTensors t(c, rng);
          Tensor gy(dtype, c.y_dims()), gx(dtype, c.x_dims()), gw(dtype, c.w_dims()), gbias(dtype, c.bias_dims());
          gy.fill_uniform(rng, -1, 1);
          Tensor& holder = in_x ? t.x : gy;
          Values values = holder.values();
          values[in_x ? static_cast<size_t>(s.length - 1) : values.size() / 2 + 7] = special;  // x: the first channel's last
          holder.set(values);
          const auto reference = narrows::reference::conv1d_backward(s, gy.values(), t.x.values(), t.w.values());
          const Tolerance tolerance{.rtol = 16 * static_cast<double>(epsilon(dtype)),  // of up to 210 terms
                                    .atol = 256 * static_cast<double>(epsilon(accumulator(dtype)))};
          for (const char* kernel : kernels("conv1d_backward")) {
            const Result result = run("conv1d_backward", {&gy, &t.x, &t.w}, {&gx, &gw, &gbias}, c.params(), kernel, 0, c.note());
            if (result.was_declined()) continue;
            expect_close(result, gx, reference.x, tolerance);
            expect_close(result, gw, reference.w, tolerance);
            expect_close(result, gbias, reference.bias, tolerance);
          }
        }
}

TEST_CASE("conv1d trap: a batch on a grid axis of 65535", "[conv1d][trap]") {
  for (const DType dtype : {DType::f32, DType::f16}) {
    Rng rng("conv1d batch");
    check_conv1d({.shape = {.batch = 65538, .channels = 1, .length = 3, .filters = 2, .taps = 2}, .dtype = dtype}, rng);
    check_conv1d({.shape = {.channels = 65538, .length = 3, .filters = 65538, .taps = 2, .groups = 65538}, .dtype = dtype}, rng);
  }
}

TEST_CASE("conv1d trap: int indices, in a signal of more than 2^31 elements", "[conv1d][trap][large]") {
  // f16, 4 GiB; what no tap reads is never touched, so that an operating system which commits lazily gives it for nothing.
  const int64_t length = (int64_t{1} << 31) + 64;
  void* memory = nullptr;
  nw_error error{};
  if (nw_alloc(runtime(), device(), static_cast<uint64_t>(length) * 2, nullptr, &memory, &error) == NW_OUT_OF_MEMORY)
    SKIP("no 4 GiB: " << error.message);
  const uint16_t one = 0x3C00, two = 0x4000, three = 0x4200;
  Tensor w(DType::f16, {2}), y_few(DType::f16, {4}), y_many(DType::f16, {64});
  w.set(Values{1, 10});
  Tensor small(DType::f16, {1});
  Tensor x(std::move(small));
  DLTensor* const dl = x.dl();
  const int64_t shape[] = {length}, strides[] = {1};
  const DLTensor saved = *dl;
  dl->data = memory, dl->byte_offset = 0;
  dl->shape = const_cast<int64_t*>(shape), dl->strides = const_cast<int64_t*>(strides);
  const int64_t apart = (int64_t{1} << 31) / 3;
  for (int64_t t = 0; t < 4; ++t) copy_elements(memory, t * apart, {one, static_cast<uint16_t>(t % 2 == 0 ? two : three)});
  for (const char* kernel : kernels("conv1d")) {
    const Result few = run("conv1d", {&x, &w}, {&y_few}, Conv1dParams{.stride = apart}.blob(), kernel, 0, "stride 2^31/3");
    if (!few.was_declined()) expect_close(few, y_few, Values{21, 31, 21, 31}, kExact);
  }
  copy_elements(memory, 0, std::vector<uint16_t>(64, two));
  copy_elements(memory, length - 64, std::vector<uint16_t>(64, three));
  for (const char* kernel : kernels("conv1d")) {
    const Result many =
        run("conv1d", {&x, &w}, {&y_many}, Conv1dParams{.dilation = length - 64}.blob(), kernel, 0, "dilation 2^31");
    if (!many.was_declined()) expect_close(many, y_many, Values(64, 32), kExact);
  }
  *dl = saved;
  CHECK(nw_free(runtime(), device(), memory, nullptr, &error) == NW_OK);
}

TEST_CASE("conv1d trap: strides, dilations and paddings as large as 64 bits hold", "[conv1d][trap]") {
  for (const Layout& layout : kSignalLayouts) {
    const Tensor x = signal({1, 2, 3, 4, 5}, layout), w = signal({1, 10}, layout), w1 = signal({7}, layout);
    Tensor one(DType::f32, {1}), three(DType::f32, {3}), five(DType::f32, {5}, layout);
    for (const char* kernel : kernels("conv1d")) {
      const auto check = [&](const Tensor& filter, const Conv1dParams& params, Tensor& y, const Values& expected) {
        const Result result = run("conv1d", {&x, &filter}, {&y}, params.blob(), kernel, 0, note(params));
        if (!result.was_declined()) expect_close(result, y, expected, {});
      };
      for (const int64_t stride : kLargeStrides) check(w, {.stride = stride}, one, {21});
      check(w1, {.dilation = kMax}, five, {7, 14, 21, 28, 35});
      for (const int64_t reach : kLargeReaches) {  // one of the two taps reads padding only
        check(w, {.dilation = reach, .pad_left = reach}, five, {10, 20, 30, 40, 50});
        check(w, {.dilation = reach, .pad_right = reach}, five, {1, 2, 3, 4, 5});
      }
      check(w1, {.stride = int64_t{1} << 60, .pad_left = int64_t{1} << 61}, three, {0, 0, 7});
    }
  }
}

TEST_CASE("conv1d_backward trap: strides, dilations and paddings as large as 64 bits hold", "[conv1d][backward][trap]") {
  for (const Layout& layout : kSignalLayouts) {
    const Tensor x = signal({1, 2, 3, 4, 5}, layout), w = signal({1, 10}, layout), w1 = signal({7}, layout);
    const Tensor one = signal({3}, layout), three = signal({100, 10, 1}, layout), five = signal({1, 2, 3, 4, 5}, layout);
    Tensor gx(DType::f32, {5}, layout), gw(DType::f32, {2}, layout), gw1(DType::f32, {1}, layout), gbias(DType::f32, {1});
    for (const char* kernel : kernels("conv1d_backward")) {
      const auto check = [&](const Tensor& gy, const Tensor& filter, const Conv1dParams& params, const Values& by_x,
                             const Values& by_w, double by_bias) {
        Tensor& gfilter = by_w.size() == 1 ? gw1 : gw;
        const Result result =
            run("conv1d_backward", {&gy, &x, &filter}, {&gx, &gfilter, &gbias}, params.blob(), kernel, 0, note(params));
        if (result.was_declined()) return;
        expect_close(result, gx, by_x, {});
        expect_close(result, gfilter, by_w, {});
        expect_close(result, gbias, Values{by_bias}, {});
      };
      for (const int64_t stride : kLargeStrides) check(one, w, {.stride = stride}, {3, 30, 0, 0, 0}, {3, 6}, 3);
      check(five, w1, {.dilation = kMax}, {7, 14, 21, 28, 35}, {55}, 15);
      for (const int64_t reach : kLargeReaches) {
        check(five, w, {.dilation = reach, .pad_left = reach}, {10, 20, 30, 40, 50}, {0, 55}, 15);
        check(five, w, {.dilation = reach, .pad_right = reach}, {1, 2, 3, 4, 5}, {55, 0}, 15);
      }
      check(three, w1, {.stride = int64_t{1} << 60, .pad_left = int64_t{1} << 61}, {7, 0, 0, 0, 0}, {1}, 111);
    }
  }
}

// Where positions are counted in 32 bits one that is a multiple of 2^32 away would be there again.
TEST_CASE("conv1d trap: positions a multiple of 2^32 outside of rows that are read at once", "[conv1d][trap]") {
  Rng rng("conv1d far");
  for (const int64_t reach : {int64_t{1} << 31, int64_t{1} << 32, int64_t{1} << 62})
    for (const bool left : {true, false})
      check_conv1d({.shape = {.channels = 8,
                              .length = 64,
                              .filters = 80,
                              .taps = 2,
                              .dilation = reach,
                              .pad_left = left ? reach : 0,
                              .pad_right = left ? 0 : reach},
                    .dtype = DType::f16},
                   rng);
}

TEST_CASE("conv1d trap: steps as large as 64 bits hold, in products of whole tiles", "[conv1d][backward][trap]") {
  const auto filled = [](std::vector<int64_t> shape, double value) {
    Tensor tensor(DType::f32, std::move(shape));
    tensor.set(Values(static_cast<size_t>(tensor.size()), value));
    return tensor;
  };
  const Tensor x = filled({1, 8, 64}, 1), w1 = filled({8, 8, 1}, 2), w64 = filled({8, 8, 64}, 2), gy1 = filled({1, 8, 1}, 3);
  Tensor y(DType::f32, {1, 8, 64}), gx(DType::f32, {1, 8, 64}), gw(DType::f32, {8, 8, 64}), gbias(DType::f32, {8});
  for (const char* kernel : kernels("conv1d")) {
    const Conv1dParams params{.dilation = kMax};  // of one tap
    const Result result = run("conv1d", {&x, &w1}, {&y}, params.blob(), kernel, 0, note(params));
    if (!result.was_declined()) expect_close(result, y, Values(512, 16), {});
  }
  // The second of two taps reads the last 20 elements, the first one padding alone.
  const Tensor x_long = filled({1, 8, 1000}, 1), w2 = filled({8, 8, 2}, 2), gy20 = filled({1, 8, 20}, 3);
  Tensor gx_long(DType::f32, {1, 8, 1000}), gw2(DType::f32, {8, 8, 2});
  Values by_x, by_w;
  for (int i = 0; i < 8000; ++i) by_x.push_back(i % 1000 < 980 ? 0 : 48);
  for (int i = 0; i < 128; ++i) by_w.push_back(i % 2 == 0 ? 0 : 60);
  for (const char* kernel : kernels("conv1d_backward")) {
    const Conv1dParams one{.stride = kMax}, far{.dilation = kMax - 20, .pad_left = kMax - 1000};
    const Result of_one = run("conv1d_backward", {&gy1, &x, &w64}, {&gx, &gw, &gbias}, one.blob(), kernel, 0, note(one));
    if (of_one.was_declined()) continue;
    expect_close(of_one, gx, Values(512, 48), {});
    expect_close(of_one, gw, Values(4096, 3), {});
    expect_close(of_one, gbias, Values(8, 3), {});
    const Result of_far = run("conv1d_backward", {&gy20, &x_long, &w2}, {&gx_long, &gw2, &gbias}, far.blob(), kernel, 0, note(far));
    if (of_far.was_declined()) continue;
    expect_close(of_far, gx_long, by_x, {});
    expect_close(of_far, gw2, by_w, {});
    expect_close(of_far, gbias, Values(8, 60), {});
  }
}

TEST_CASE("conv1d trap: an extent of 0 beside one as large as 64 bits hold", "[conv1d][backward][trap]") {
  const Tensor x(DType::f32, {0, 1, kMax}), gy(DType::f32, {0, 1, kMax});
  Tensor y(DType::f32, {0, 1, kMax}), gx(DType::f32, {0, 1, kMax}), w(DType::f32, {1, 1, 1}), gw(DType::f32, {1, 1, 1}),
      gbias(DType::f32, {1});
  w.set(Values{7});
  const Tensor no_length(DType::f32, {int64_t{1} << 61, 1, 0});
  Tensor no_length_gx(DType::f32, {int64_t{1} << 61, 1, 0});
  for (const char* kernel : kernels("conv1d"))
    if (const Result result = run("conv1d", {&x, &w}, {&y}, {}, kernel); !result.was_declined()) expect_ok(result);
  for (const char* kernel : kernels("conv1d_backward")) {
    const Result no_batch = run("conv1d_backward", {&gy, &x, &w}, {&gx, &gw, &gbias}, {}, kernel);
    if (no_batch.was_declined()) continue;
    expect_close(no_batch, gw, Values{0}, {});
    expect_close(no_batch, gbias, Values{0}, {});
    const Result absent =
        run("conv1d_backward", {nullptr, &no_length, &w}, {&no_length_gx, &gw, &gbias}, Conv1dParams{.pad_left = 1}.blob(), kernel);
    expect_close(absent, gw, Values{0}, {});
  }
}
