// SPDX-License-Identifier: Apache-2.0
// conv1d_backward.cpp -- the conformance suite of conv1d_backward: against the reference, against finite differences of conv1d
// itself, every subset of outputs; and the determinism of both ops. Its layouts are in conv1d_layouts.cpp.
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <numeric>

#include "conformance/threads.h"
#include "conv1d_case.h"

using namespace narrows::test;
using narrows::reference::Conv1d;

namespace {

constexpr unsigned kAll = kGradX | kGradW | kGradBias;

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

// The derivative of <grad_y, conv1d(...)> by each element of `operand`, one of the tensors of `t`. conv1d is linear in each of
// them, so a step as large as 1 has no truncation error and the best rounding.
std::vector<double> finite_differences(const Conv1dCase& c, Conv1dTensors& t, Tensor& operand, const std::vector<double>& grad_y) {
  const std::vector<double> at = operand.values();
  std::vector<double> derivative;
  for (size_t i = 0; i < at.size(); ++i) {
    double value[2];
    for (const int side : {0, 1}) {
      std::vector<double> moved = at;
      moved[i] += side == 0 ? -1 : 1;
      operand.set(moved);
      expect_ok(run("conv1d", {&t.x, &t.w, &t.bias}, {&t.y}, c.params(), nullptr, 0, c.note()));
      value[side] = dot(t.y.values(), grad_y);
    }
    derivative.push_back((value[1] - value[0]) / 2);
  }
  operand.set(at);
  return derivative;
}

void check_by_finite_differences(const Conv1dCase& c) {
  Rng rng("conv1d finite differences");
  Conv1dTensors t(c, rng);
  Tensor gy(c.dtype, c.y_dims()), gx(c.dtype, c.x_dims()), gw(c.dtype, c.w_dims()), gbias(c.dtype, c.bias_dims());
  gy.fill_uniform(rng, -1, 1);
  const auto by_x = finite_differences(c, t, t.x, gy.values());
  const auto by_w = finite_differences(c, t, t.w, gy.values());
  const auto by_bias = finite_differences(c, t, t.bias, gy.values());
  for (const char* kernel : kernels("conv1d_backward")) {
    const Result result = run("conv1d_backward", {&gy, &t.x, &t.w, &t.bias}, {&gx, &gw, &gbias}, c.params(), kernel, 0, c.note());
    if (result.was_declined()) continue;
    // Differences of sums of about 100 products near 1: 100 * 100 * epsilon of f64 is 2e-12.
    const Tolerance tolerance{.rtol = 1e-12, .atol = 2e-12};
    expect_close(result, gx, by_x, tolerance);
    expect_close(result, gw, by_w, tolerance);
    expect_close(result, gbias, by_bias, tolerance);
  }
}

// Large enough that a backend spreads them over threads, one for each kind of kernel.
const Conv1d kShared[] = {
    {.length = 200003, .taps = 9, .pad_left = 8},
    {.batch = 3, .channels = 16, .length = 2001, .filters = 16, .taps = 4, .groups = 16, .pad_left = 3},
    {.batch = 3, .channels = 33, .length = 301, .filters = 34, .taps = 3, .pad_left = 1, .pad_right = 1},
    {.batch = 2, .channels = 64, .length = 203, .filters = 48, .taps = 5, .stride = 2, .dilation = 2, .groups = 2},
    {.batch = 2000, .channels = 2, .length = 11, .filters = 3, .taps = 3}};

}  // namespace

TEST_CASE("conv1d_backward: ranks, strides, dilations, groups, paddings", "[conv1d][backward]") {
  for (const DType dtype : kFloatDTypes) {
    Rng rng("conv1d_backward features");
    for (const Conv1dCase& c : conv1d_features(dtype)) check_conv1d_backward(c, rng);
  }
}

TEST_CASE("conv1d_backward: every subset of the outputs", "[conv1d][backward]") {
  for (const DType dtype : kFloatDTypes) {
    Rng rng("conv1d_backward subsets");
    for (unsigned wanted = 1; wanted <= kAll; ++wanted)
      for (const bool bias : {false, true}) {
        check_conv1d_backward(
            {.shape = {.batch = 3, .channels = 4, .length = 21, .filters = 6, .taps = 3, .stride = 2, .groups = 2},
             .dtype = dtype,
             .bias = bias},
            rng, wanted);
        check_conv1d_backward(
            {.shape = {.channels = 17, .length = 33, .filters = 20, .taps = 5}, .dtype = dtype, .rank = 2, .bias = bias}, rng,
            wanted);
        check_conv1d_backward({.shape = {.length = 40, .taps = 7, .pad_right = 6}, .dtype = dtype, .rank = 1, .bias = bias}, rng,
                              wanted);
        check_conv1d_backward(
            {.shape = {.batch = 2, .channels = 5, .length = 33, .filters = 5, .taps = 4, .groups = 5, .pad_left = 3},
             .dtype = dtype,
             .bias = bias},
            rng, wanted);
      }
  }
}

TEST_CASE("conv1d_backward: lengths and taps around every block", "[conv1d][backward]") {
  for (const DType dtype : kFloatDTypes) {
    Rng rng("conv1d_backward sizes");
    for (const int64_t length : {1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 127, 128, 129, 256, 257})
      for (const int64_t taps : {1, 2, 3, 4, 5, 8, 9, 17, 33}) {
        Conv1d s{.length = length, .taps = taps, .pad_left = taps - 1};
        check_conv1d_backward({.shape = s, .dtype = dtype, .rank = 1}, rng);
        s.batch = 2, s.channels = 3, s.filters = 4;
        check_conv1d_backward({.shape = s, .dtype = dtype}, rng);
        s.channels = s.filters = s.groups = 3;
        check_conv1d_backward({.shape = s, .dtype = dtype}, rng);
      }
  }
}

TEST_CASE("conv1d_backward: few and many channels", "[conv1d][backward]") {
  for (const DType dtype : kFloatDTypes) {
    Rng rng("conv1d_backward channels");
    for (const int64_t channels : {1, 16, 17, 40, 80})
      for (const int64_t filters : {3, 16, 33, 70})
        for (const int64_t taps : {1, 3}) {
          Conv1d s{.batch = 2, .channels = channels, .length = 30, .filters = filters, .taps = taps, .pad_left = 1, .pad_right = 1};
          s.stride = (channels + filters) % 2 + 1;
          check_conv1d_backward({.shape = s, .dtype = dtype}, rng);
        }
  }
}

TEST_CASE("conv1d_backward: more taps than any block, a filter longer than the signal", "[conv1d][backward]") {
  for (const DType dtype : kFloatDTypes) {
    Rng rng("conv1d_backward taps");
    for (const int64_t taps : {300, 1025})
      for (const int64_t length : {1, 100, 1200}) {
        const int64_t right = std::max<int64_t>(0, taps - length);
        check_conv1d_backward(
            {.shape =
                 {.channels = 2, .length = length, .filters = 3, .taps = taps, .stride = 2, .pad_left = 17, .pad_right = right},
             .dtype = dtype},
            rng);
      }
  }
}

TEST_CASE("conv1d_backward: long signals and a wide layer on every thread", "[conv1d][backward]") {
  for (const DType dtype : kFloatDTypes) {
    Rng rng("conv1d_backward long");
    check_conv1d_backward({.shape = {.length = 100003, .taps = 5, .pad_left = 4}, .dtype = dtype, .rank = 1}, rng);
    check_conv1d_backward(
        {.shape = {.batch = 3, .channels = 35, .length = 201, .filters = 37, .taps = 3, .pad_left = 1, .pad_right = 1},
         .dtype = dtype},
        rng);
  }
}

TEST_CASE("conv1d_backward: tensors without elements; sums without terms are zero", "[conv1d][backward]") {
  for (const DType dtype : kFloatDTypes) {
    Rng rng("conv1d_backward empty");
    check_conv1d_backward({.shape = {.batch = 0, .channels = 3, .length = 9, .filters = 4, .taps = 3}, .dtype = dtype}, rng);
    check_conv1d_backward({.shape = {.batch = 2, .channels = 3, .length = 9, .filters = 0, .taps = 3}, .dtype = dtype}, rng);
    check_conv1d_backward(
        {.shape = {.batch = 2, .channels = 3, .length = 0, .filters = 4, .taps = 2, .pad_left = 2, .pad_right = 1}, .dtype = dtype},
        rng);
    check_conv1d_backward({.shape = {.batch = 2, .channels = 0, .length = 9, .filters = 4, .taps = 3}, .dtype = dtype}, rng);
  }
}

TEST_CASE("conv1d_backward: an absent grad_y is zero", "[conv1d][backward]") {
  const auto check = [](const Conv1dCase& c) {
    Rng rng("conv1d_backward absent");
    const Conv1dTensors t(c, rng);
    Tensor gx(c.dtype, c.x_dims(), c.x_layout), gw(c.dtype, c.w_dims(), c.w_layout), gbias(c.dtype, c.bias_dims(), c.bias_layout);
    for (const char* kernel : kernels("conv1d_backward")) {
      const Result result = run("conv1d_backward", {nullptr, &t.x, &t.w}, {&gx, &gw, &gbias}, c.params(), kernel, 0, c.note());
      if (result.was_declined()) continue;
      for (const Tensor* gradient : {&gx, &gw, &gbias})
        expect_close(result, *gradient, std::vector<double>(static_cast<size_t>(gradient->size()), 0.0), kExact);
    }
  };
  const Conv1d grouped{.batch = 3, .channels = 6, .length = 21, .filters = 4, .taps = 3, .stride = 2, .groups = 2};
  const Conv1d dense{.batch = 2, .channels = 17, .length = 35, .filters = 9, .taps = 3, .pad_left = 1, .pad_right = 1};
  for (const DType dtype : kFloatDTypes) {
    for (const int rank : {1, 2, 3}) check({.shape = {.length = 12, .taps = 3}, .dtype = dtype, .rank = rank});
    for (const Conv1d& s : {grouped, dense})
      check({.shape = s,
             .dtype = dtype,
             .x_layout = Layout::strided(2),
             .w_layout = Layout::reversed(),
             .bias_layout = Layout::strided(3)});
  }
}

TEST_CASE("conv1d_backward: bias and y may be given and do not matter", "[conv1d][backward]") {
  Rng rng("conv1d_backward extra inputs");
  const Conv1dCase c{.shape = {.batch = 2, .channels = 3, .length = 12, .filters = 4, .taps = 3}};
  Conv1dTensors t(c, rng);
  Tensor gy(c.dtype, c.y_dims()), gx(c.dtype, c.x_dims()), gw(c.dtype, c.w_dims()), gbias(c.dtype, c.bias_dims());
  gy.fill_uniform(rng, -1, 1);
  t.y.fill_bits(rng);
  expect_ok(run("conv1d_backward", {&gy, &t.x, &t.w}, {&gx, &gw, &gbias}, c.params()));
  const auto expected = gx.element_bytes();
  expect_ok(run("conv1d_backward", {&gy, &t.x, &t.w, &t.bias, &t.y}, {&gx, &gw, &gbias}, c.params()));
  CHECK(gx.element_bytes() == expected);
}

TEST_CASE("conv1d_backward: is the derivative of conv1d, by finite differences in f64", "[conv1d][backward][gradcheck]") {
  for (const Conv1d& s :
       {Conv1d{.length = 15, .taps = 4, .pad_right = 3}, Conv1d{.length = 14, .taps = 3, .stride = 3, .dilation = 2, .pad_left = 5},
        Conv1d{.batch = 2, .channels = 4, .length = 9, .filters = 6, .taps = 3, .stride = 2, .groups = 2, .pad_left = 1},
        Conv1d{.batch = 2, .channels = 3, .length = 8, .filters = 3, .taps = 4, .groups = 3, .pad_left = 3},
        Conv1d{.batch = 1, .channels = 17, .length = 5, .filters = 9, .taps = 2, .dilation = 3, .pad_right = 2}})
    check_by_finite_differences({.shape = s, .dtype = DType::f64});
}

TEST_CASE("conv1d_backward: 200 seeded shapes with layouts and subsets of every kind", "[conv1d][backward]") {
  Rng rng("conv1d_backward sweep");
  for (int i = 0; i < 200; ++i) {
    const Conv1dCase c = random_conv1d(rng, kFloatDTypes[i % 4]);
    check_conv1d_backward(c, rng, static_cast<unsigned>(rng.integer(1, kAll)));
  }
}

TEST_CASE("conv1d: the same bits again, and on any number of threads", "[conv1d][determinism]") {
  for (const DType dtype : kFloatDTypes)
    for (const Conv1d& s : kShared) {
      Rng rng("conv1d determinism");
      const Conv1dCase c{.shape = s, .dtype = dtype};
      Conv1dTensors t(c, rng);
      expect_same_bits("conv1d", {&t.x, &t.w, &t.bias}, {&t.y}, c.params());
    }
}

TEST_CASE("conv1d_backward: the same bits again, and on any number of threads", "[conv1d][backward][determinism]") {
  for (const DType dtype : kFloatDTypes)
    for (const Conv1d& s : kShared) {
      Rng rng("conv1d_backward determinism");
      const Conv1dCase c{.shape = s, .dtype = dtype};
      Conv1dTensors t(c, rng);
      t.y.fill_uniform(rng, -1, 1);
      Tensor gx(dtype, c.x_dims()), gw(dtype, c.w_dims()), gbias(dtype, c.bias_dims());
      expect_same_bits("conv1d_backward", {&t.y, &t.x, &t.w}, {&gx, &gw, &gbias}, c.params());
    }
}
