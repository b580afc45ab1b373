// SPDX-License-Identifier: Apache-2.0
// conv1d_numbers.cpp -- traps for kernels that compute an f32 product by parts, as matrix units do: operands and sums for which the
// parts lose what f32 keeps. Every kernel variant is tried, in f32 and f64.
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <functional>
#include <limits>

#include "conv1d_case.h"

using namespace narrows::test;
using narrows::reference::Conv1d;

namespace {

using Values = std::vector<double>;
using Make = std::function<double(Rng&, size_t)>;  // the i-th element
constexpr double kInf = std::numeric_limits<double>::infinity(), kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kLargest = 0x1.fffffep127;  // of f32

// Several tiles of positions and of filters, and channels that are no whole number of steps.
constexpr Conv1d kMiddle{.batch = 2, .channels = 40, .length = 140, .filters = 70, .taps = 3, .pad_left = 1, .pad_right = 1};
constexpr Conv1d kLong{.channels = 1000, .length = 140, .filters = 20, .taps = 8};
constexpr Conv1d kManyPositions{.batch = 8, .channels = 24, .length = 1024, .filters = 20, .taps = 3};

void fill(Tensor& t, Rng& rng, const Make& make) {
  Values values(static_cast<size_t>(t.size()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(rounded(t.dtype(), make(rng, i)));
  t.set(values);
}

double uniform(Rng& rng, double low, double high) { return rng.uniform(low, high); }
double signed_unit(Rng& rng, size_t) { return uniform(rng, -1, 1); }
double power(double x, int64_t exponent) { return std::ldexp(x, static_cast<int>(exponent)); }

// Forward and both gradients; results within the bound of sums. `of_y`: grad_y.
void check_sums(const Conv1d& s, DType dtype, const Make& of_x, const Make& of_w, const Make& of_y) {
  Rng rng("conv1d numbers");
  const Conv1dCase c{.shape = s, .dtype = dtype};
  Conv1dTensors t(c, rng);
  fill(t.x, rng, of_x);
  fill(t.w, rng, of_w);
  fill(t.y, rng, of_y);
  const Values x = t.x.values(), w = t.w.values(), grad_y = t.y.values();
  const Values sums = narrows::reference::conv1d(s, x, w, {}),
               magnitude = narrows::reference::conv1d(s, absolute(x), absolute(w), {});
  const auto grads = narrows::reference::conv1d_backward(s, grad_y, x, w),
             magnitudes = narrows::reference::conv1d_backward(s, absolute(grad_y), absolute(x), absolute(w));
  const Values bound = sum_bound(dtype, magnitude, s.group_channels() * s.taps),
               of_x_bound = sum_bound(dtype, magnitudes.x, s.group_filters() * s.taps),
               of_w_bound = sum_bound(dtype, magnitudes.w, s.batch * s.outputs());
  for (const char* kernel : kernels("conv1d_backward")) {
    Tensor grad_x(dtype, c.x_dims()), grad_w(dtype, c.w_dims());
    const Result result = run("conv1d_backward", {&t.y, &t.x, &t.w}, {&grad_x, &grad_w, nullptr}, c.params(), kernel, 0, c.note());
    if (result.was_declined()) continue;
    expect_within(result, grad_x, grads.x, of_x_bound);
    expect_within(result, grad_w, grads.w, of_w_bound);
  }
  for (const char* kernel : kernels("conv1d")) {
    const Result result = run("conv1d", {&t.x, &t.w}, {&t.y}, c.params(), kernel, 0, c.note());
    if (!result.was_declined()) expect_within(result, t.y, sums, bound);
  }
}

void check_sums(const Conv1d& s, const Make& of_x, const Make& of_w, const Make& of_y) {
  for (const DType dtype : {DType::f32, DType::f64}) check_sums(s, dtype, of_x, of_w, of_y);
}
void check_sums(const Conv1d& s, const Make& of_x, const Make& of_w) { check_sums(s, of_x, of_w, of_x); }

// The same where no rounding happens, in whatever order the terms are added.
void check_exact(const Conv1d& s, const Make& of_x, const Make& of_w) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    Rng rng("conv1d exact numbers");
    const Conv1dCase c{.shape = s, .dtype = dtype};
    Conv1dTensors t(c, rng);
    fill(t.x, rng, of_x);
    fill(t.w, rng, of_w);
    const Values reference = narrows::reference::conv1d(s, t.x.values(), t.w.values(), {});
    for (const char* kernel : kernels("conv1d")) {
      const Result result = run("conv1d", {&t.x, &t.w}, {&t.y}, c.params(), kernel, 0, c.note());
      if (!result.was_declined()) expect_close(result, t.y, reference, kExact);
    }
  }
}

}  // namespace

TEST_CASE("conv1d trap: long sums of one sign are cut off, not rounded", "[conv1d][trap]") {
  const Make positive = [](Rng& rng, size_t) { return uniform(rng, 0.5, 1); };
  check_sums(kLong, positive, positive);
  check_sums(kManyPositions, positive, positive);
}

TEST_CASE("conv1d trap: a number times 1 is another number", "[conv1d][trap]") {
  // A filter has one weight that is not 0. Elements have 24 significant bits.
  const auto filter = static_cast<size_t>(kMiddle.channels * kMiddle.taps);
  const Make one = [=](Rng&, size_t i) { return i % filter == 7 * (i / filter) % filter ? 1.0 : 0.0; };
  check_exact(kMiddle, [](Rng& rng, size_t) { return 1 + static_cast<double>(rng.integer(0, (1 << 23) - 1)) * 0x1p-23; }, one);
}

TEST_CASE("conv1d trap: sums that cancel leave what their parts lost", "[conv1d][trap]") {
  // Integers: every partial sum is below 2^24.
  const Make wide = [](Rng& rng, size_t) { return static_cast<double>(rng.integer(-4095, 4095)); };
  const Make narrow = [](Rng& rng, size_t) { return static_cast<double>(rng.integer(-34, 34)); };
  check_exact(kMiddle, wide, narrow);
  check_exact(kMiddle, narrow, wide);
}

TEST_CASE("conv1d trap: filters, signals and elements of very different sizes", "[conv1d][trap]") {
  const auto filter = static_cast<size_t>(kMiddle.channels * kMiddle.taps);
  const auto row = static_cast<size_t>(kMiddle.length);
  const Make filters = [=](Rng& rng, size_t i) { return power(signed_unit(rng, i), i / filter % 2 == 0 ? 60 : -60); };
  const Make signals = [=](Rng& rng, size_t i) { return power(signed_unit(rng, i), i / row % 3 == 0 ? 40 : -40); };
  const Make elements = [](Rng& rng, size_t i) { return power(signed_unit(rng, i), rng.integer(-20, 20)); };
  check_sums(kMiddle, signed_unit, filters);
  check_sums(kMiddle, signals, signed_unit);
  check_sums(kMiddle, elements, elements);
}

TEST_CASE("conv1d trap: operands near the largest number", "[conv1d][trap]") {
  // Rounded to fewer bits, the last two are infinite; so are unscaled sums of the first.
  const Make large = [](Rng& rng, size_t) { return uniform(rng, 0.5, 1) * kLargest; };
  const Make largest = [](Rng& rng, size_t) { return rng.integer(0, 1) == 0 ? kLargest : -kLargest; };
  const Make small = [](Rng& rng, size_t) { return uniform(rng, -1, 1) * 0x1p-12; };
  for (const Make& of_x : {large, largest}) {
    check_sums(kMiddle, of_x, small, small);
    check_sums(kMiddle, small, of_x, small);
    check_sums(kMiddle, small, small, of_x);
  }
}

TEST_CASE("conv1d trap: subnormal operands, and products of them", "[conv1d][trap]") {
  // A few bits each, so that sums are exact where no part of them is lost.
  const Make subnormal = [](Rng& rng, size_t) { return static_cast<double>(rng.integer(-255, 255)) * 0x1p-149; };
  const Make rare = [](Rng& rng, size_t i) { return i % 97 == 0 ? static_cast<double>(rng.integer(1, 4095)) * 0x1p-140 : 0.0; };
  for (const double scale : {1.0, 0x1p60, 0x1p-4}) {
    const Make whole = [=](Rng& rng, size_t) { return static_cast<double>(rng.integer(-8, 8)) * scale; };
    if (scale >= 1) check_exact(kMiddle, subnormal, whole);
    if (scale >= 1) check_exact(kMiddle, whole, subnormal);
    check_sums(kMiddle, rare, whole);
  }
  // In one filter beside weights that are none. Signals are 0 but for a few channels, so that some sums have subnormal weights
  // alone.
  const Make often_zero = [](Rng& rng, size_t i) {
    const auto channel = i / static_cast<size_t>(kMiddle.length) % static_cast<size_t>(kMiddle.channels);
    return channel == 3 || channel == 31 ? signed_unit(rng, i) * 0x1p20 : 0.0;
  };
  for (const double large : {1.0, 0x1p100})
    check_sums(
        kMiddle, often_zero,
        [=](Rng& rng, size_t i) { return i % 7 == 0 ? large : static_cast<double>(rng.integer(-255, 255)) * 0x1p-149; },
        signed_unit);
}

TEST_CASE("conv1d trap: infinities, NaN and sums that overflow, each where it belongs", "[conv1d][trap]") {
  const Conv1dCase c{.shape = kMiddle};
  for (const double special : {kInf, -kInf, kNaN, kLargest, -kLargest})
    for (const bool in_x : {true, false}) {
      Rng rng("conv1d infinities");
      Conv1dTensors t(c, rng);
      // Small integers, of which many are 0: times an infinity they are NaN.
      for (Tensor* const of : {&t.x, &t.w}) fill(*of, rng, [](Rng& r, size_t) { return static_cast<double>(r.integer(-2, 2)); });
      Tensor& holder = in_x ? t.x : t.w;
      Values values = holder.values();
      values[values.size() / 3] = special;
      holder.set(values);
      const Values reference = narrows::reference::conv1d(kMiddle, t.x.values(), t.w.values(), {});
      for (const char* kernel : kernels("conv1d")) {
        const Result result = run("conv1d", {&t.x, &t.w}, {&t.y}, c.params(), kernel, 0, c.note());
        if (!result.was_declined())
          expect_within(result, t.y, reference, Values(reference.size(), std::fabs(special) < kInf ? kLargest * 0x1p-20 : 0));
      }
    }
}
