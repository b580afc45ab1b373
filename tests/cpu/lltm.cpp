// SPDX-License-Identifier: Apache-2.0
// lltm.cpp -- lltm_backward does the work of the gradients that are wanted, and no other.
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <narrows/narrows.hpp>

using narrows::Tensor;

TEST_CASE("the gradient of few states is had beside features without end") {
  constexpr int64_t kFeatures = int64_t{1} << 50;
  float one = 1, gates[] = {0, 0, 0}, grad = -1;
  const Tensor cell(&one, {1, 1}), input(&one, {1, kFeatures}, {0, 0}), weights(&one, {3, 1 + kFeatures}, {0, 0});
  const narrows::Runtime runtime;
  runtime.run("lltm_backward", {cell, cell, input, weights, {}, cell, cell, cell, cell, Tensor(gates, {1, 3})},
              {Tensor(), Tensor(), Tensor(), Tensor(&grad, {1, 1}), Tensor()});
  // The gates' gradients 0, tanh(1)/4 and (1 + (1 - tanh(1)^2)/2)/2, all of weight 1.
  CHECK(std::abs(grad - 0.795392F) < 1e-5F);
}
