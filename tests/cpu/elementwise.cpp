// SPDX-License-Identifier: Apache-2.0
// elementwise.cpp -- a gradient that is a sum has the same bits wherever its inputs lie, and however far apart their elements are.
#include <narrows/ops.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstring>
#include <narrows/narrows.hpp>
#include <random>
#include <vector>

namespace {

constexpr int64_t kTerms = 100002;  // of one row, in more blocks than one
constexpr DLDataType kDouble{kDLFloat, 64, 1};

// These numbers, `first` bytes into memory and `stride` elements apart.
class Placed {
 public:
  Placed(const std::vector<double>& values, size_t first, int64_t stride)
      : memory_(first + values.size() * static_cast<size_t>(stride) * sizeof(double)), first_(first), stride_(stride) {
    for (size_t i = 0; i < values.size(); ++i)
      std::memcpy(memory_.data() + first + i * static_cast<size_t>(stride) * sizeof(double), &values[i], sizeof(double));
  }
  narrows::Tensor tensor() { return {memory_.data() + first_, kDouble, {kTerms}, {stride_}}; }

 private:
  std::vector<unsigned char> memory_;
  size_t first_;
  int64_t stride_;
};

// The gradient of a in a * b, a being broadcast.
double gradient(const narrows::Runtime& runtime, const narrows::Tensor& g, const narrows::Tensor& b) {
  double a = 1, sum = 0;
  nw_elementwise_params params{};
  params.function = NW_EW_MUL;
  runtime.run("elementwise_backward", {g, narrows::Tensor(&a, {1}), b}, {narrows::Tensor(&sum, {1}), {}, {}}, params);
  return sum;
}

}  // namespace

TEST_CASE("a sum has the same bits wherever its terms lie") {
  // Each term cancels with another one: what is left is rounding, which another order would change.
  std::mt19937 random(1);
  std::normal_distribution<double> exponent(0, 20);
  std::vector<double> g(kTerms);
  for (size_t i = 0; i < g.size(); i += 2) g[i] = std::exp2(exponent(random)), g[i + 1] = -g[i];
  std::shuffle(g.begin(), g.end(), random);
  const std::vector<double> b(kTerms, 1);
  const narrows::Runtime runtime;
  const double expected = gradient(runtime, Placed(g, 0, 1).tensor(), Placed(b, 0, 1).tensor());
  CHECK(expected != 0);
  for (const size_t first : {8, 1})  // of no vector's alignment, and of not even an element's
    for (const int64_t stride : {1, 2, 3}) {
      INFO("the terms begin at byte " << first << " and are " << stride << " elements apart");
      CHECK(gradient(runtime, Placed(g, first, stride).tensor(), Placed(b, 0, 1).tensor()) == expected);
      CHECK(gradient(runtime, Placed(g, 0, 1).tensor(), Placed(b, first, stride).tensor()) == expected);
    }
}

TEST_CASE("the gradient of a square is twice its base, to the last bit") {
  // a^(b-1) itself: a^b / a would round twice more.
  std::mt19937 random(2);
  std::uniform_real_distribution<double> between(0.3, 3);
  std::vector<double> a(1000), g(a.size(), 1), b(a.size(), 2), grad(a.size());
  for (double& x : a) x = between(random);
  const auto of = [](std::vector<double>& v) { return narrows::Tensor(v.data(), {static_cast<int64_t>(v.size())}); };
  nw_elementwise_params params{};
  params.function = NW_EW_POW;
  narrows::Runtime().run("elementwise_backward", {of(g), of(a), of(b)}, {of(grad), {}, {}}, params);
  for (size_t i = 0; i < a.size(); ++i) REQUIRE(grad[i] == 2 * a[i]);
}
