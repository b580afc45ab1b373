// SPDX-License-Identifier: Apache-2.0
// test_reference.cpp -- tools/demo/reference.cpp, which the demo trusts: known results, and gradients against differences.
#include "demo/reference.h"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>
#include <random>

using namespace narrows::tools;

namespace {

std::vector<float> noise(std::mt19937& random, size_t count) {
  std::vector<float> values(count);
  for (float& v : values) v = static_cast<float>(2.0 * random() / 4294967296.0 - 1);
  return values;
}

LltmStep random_step() {
  std::mt19937 random(3);
  const int64_t B = 2, F = 3, S = 4;
  return {B,
          F,
          S,
          noise(random, B * F),
          noise(random, 3 * S * (S + F)),
          noise(random, 3 * S),
          noise(random, B * S),
          noise(random, B * S)};
}

}  // namespace

TEST_CASE("puzzle 17 by the reference") {
  const std::vector<float> x = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}, w = {0, 1, 2, 3};
  CHECK(reference_conv1d(x, w, 0, 3) == std::vector<double>{14, 20, 26, 32, 38, 44, 50, 56, 62, 68, 74, 80, 41, 14, 0});
  CHECK(reference_conv1d(x, w, 0, 0).size() == 12);
  CHECK(reference_conv1d(std::vector<float>{1, 2}, w, 3, 0) == std::vector<double>{3, 8});
}

TEST_CASE("the soft clip is tanh") {
  CHECK(reference_soft_clip(std::vector<float>{0, 1}, 2) == std::vector<double>{0, std::tanh(2.0)});
}

TEST_CASE("one LLTM cell by hand") {
  // All weights 0: the gates are the biases.
  const LltmStep step{1, 1, 1, {5}, {0, 0, 0, 0, 0, 0}, {0, 0, -1}, {7}, {0.5}};
  const LltmResult r = reference_lltm(step);
  const double cell = 0.5 + std::expm1(-1.0) * 0.5;
  CHECK(r.gates == std::vector<double>{0, 0, -1});
  CHECK(std::abs(r.new_cell[0] - cell) < 1e-15);
  CHECK(std::abs(r.new_h[0] - std::tanh(cell) * 0.5) < 1e-15);
}

TEST_CASE("the LLTM's gradients are the slopes of its outputs") {
  const LltmStep step = random_step();
  std::mt19937 random(4);
  const auto grad_h = noise(random, step.old_h.size()), grad_cell = noise(random, step.old_h.size());
  const LltmGradients gradients = reference_lltm_backward(step, grad_h, grad_cell);
  const auto weighted_sum = [&](const LltmStep& s) {
    const LltmResult r = reference_lltm(s);
    double sum = 0;
    for (size_t i = 0; i < grad_h.size(); ++i) sum += grad_h[i] * r.new_h[i] + grad_cell[i] * r.new_cell[i];
    return sum;
  };
  const auto check = [&](std::vector<float> LltmStep::* member, const std::vector<double>& gradient) {
    REQUIRE(gradient.size() == (step.*member).size());
    for (size_t i = 0; i < gradient.size(); ++i) {
      LltmStep above = step, below = step;
      (above.*member)[i] += 1e-3f, (below.*member)[i] -= 1e-3f;
      const double distance = double{(above.*member)[i]} - (below.*member)[i];
      CAPTURE(i, gradient[i]);
      CHECK(std::abs((weighted_sum(above) - weighted_sum(below)) / distance - gradient[i]) < 1e-5);
    }
  };
  check(&LltmStep::input, gradients.input);
  check(&LltmStep::weights, gradients.weights);
  check(&LltmStep::bias, gradients.bias);
  check(&LltmStep::old_h, gradients.old_h);
  check(&LltmStep::old_cell, gradients.old_cell);
}

TEST_CASE("a linear layer's gradients by hand") {
  // Two rows, two inputs, one output.
  const LinearGradients g =
      reference_linear_backward(std::vector<float>{1, 2}, std::vector<float>{3, 4, 5, 6}, std::vector<float>{7, 8}, 2);
  CHECK(g.x == std::vector<double>{7, 8, 14, 16});
  CHECK(g.w == std::vector<double>{13, 16});
  CHECK(g.bias == std::vector<double>{3});
}

TEST_CASE("a comparison fails on a wrong element, a wrong size, nothing, and NaN") {
  const std::vector<double> want = {1, 2, 3};
  CHECK(compare("", std::vector<float>{1, 2, 3}, want, 1e-6, 1e-6).ok);
  CHECK_FALSE(compare("", std::vector<float>{1, 2.1f, 3}, want, 1e-6, 1e-6).ok);
  CHECK_FALSE(compare("", std::vector<float>{1, 2}, want, 1, 1).ok);
  CHECK_FALSE(compare("", {}, {}, 1, 1).ok);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Agreement a = compare("", std::vector<float>{1, nan, 3}, want, 1e9, 1e9);
  CHECK_FALSE(a.ok);
  CHECK(std::isnan(a.largest_error));
  CHECK_FALSE(compare("", std::vector<float>{1, std::numeric_limits<float>::infinity(), 3}, want, 1e-6, 1e-6).ok);
}

TEST_CASE("many small errors fail together") {
  // Each within its atol, but as a whole 1 % off.
  const std::vector<double> want(100, 1e-4);
  CHECK_FALSE(compare("", std::vector<float>(100, 1.01e-4f), want, 1e-5, 1e-5).ok);
}
