// SPDX-License-Identifier: Apache-2.0
// split_products_test.cpp -- lltm_split.h with the products of lltm_backward, by the fake library (CMakeLists.txt has the
// environment).
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "fake_blaslt.h"
#include "ops/gemm/gemm_library.h"
#include "ops/lltm/lltm_split.h"

using namespace narrows::gpu;
using narrows::common::Dtype;

namespace {

constexpr float kZero = 0, kOne = 1;
constexpr int64_t kBatch = 24, kGates = 48, kColumns = 56;

template <class T>
constexpr Dtype kDtype = std::is_same_v<T, f16> ? Dtype::f16 : Dtype::bf16;

// From -1 to 1, the same everywhere.
double number(uint32_t& state) {
  state = state * 1664525u + 1013904223u;
  return static_cast<double>(state >> 8) / (1 << 23) - 1;
}

// Rows with a gap behind each.
template <class T>
struct Rows {
  Rows(int64_t rows, int64_t columns, int64_t gap, uint32_t seed)
      : pitch(columns + gap), elements(static_cast<size_t>(rows * pitch)) {
    for (T& element : elements) narrow(static_cast<float>(number(seed)), element);
  }
  double at(int64_t row, int64_t column) const {
    return static_cast<double>(widen(elements[static_cast<size_t>(row * pitch + column)]));
  }
  T* from(int64_t column) { return elements.data() + column; }
  int64_t pitch;
  std::vector<T> elements;
};

std::unique_ptr<const Gemm> planned(const GemmShape& shape) {
  std::string reason;
  auto gemm = plan_gemm(0, shape, &reason);
  INFO(reason);
  REQUIRE(gemm != nullptr);
  CHECK(reason.empty());
  return gemm;
}

void launch(const Gemm& gemm, const float* alpha, const void* left, const void* right, const float* beta, void* out) {
  std::vector<char> workspace(gemm.workspace_size);
  gemm.launch(alpha, left, right, beta, out, workspace.data(), nullptr);
}

// The products of lltm_backward, of gradients from 2^-20 to 1: each element as good as the split promises.
template <class T>
void check_backward() {
  uint32_t seed = 4;
  std::vector<float> grads(static_cast<size_t>(kBatch * kGates));
  float largest = 0;
  for (float& grad : grads) {
    grad = static_cast<float>(std::ldexp(number(seed), static_cast<int>(10 * number(seed)) - 10));
    largest = std::fmax(largest, std::fabs(grad));
  }
  const Scale scale = kDtype<T> == Dtype::f16 ? scale_for(largest) : Scale{1, 1};
  std::vector<T> halves(2 * grads.size());
  for (size_t i = 0; i < grads.size(); ++i) {
    const Halves<T> h = split<T>(grads[i] * scale.up);
    halves[i] = h.first, halves[grads.size() + i] = h.second;
  }
  const auto grad = [&](int64_t b, int64_t g) { return static_cast<double>(grads[static_cast<size_t>(b * kGates + g)]); };
  // Of the split, and of sums in f32; below it what the scale takes from the smallest of f16.
  const double bound = std::ldexp(1, kDtype<T> == Dtype::f16 ? -21 : -16), floor = std::ldexp(static_cast<double>(largest), -30);

  Rows<T> weights(kGates, kColumns, 8, 5);
  std::vector<float> sums(static_cast<size_t>(2 * kBatch * kColumns), NAN);
  launch(
      *planned(
          {kDtype<T>, Dtype::f32, 2 * kBatch, kColumns, kGates, {kGates, false}, {weights.pitch, false}, {kColumns, false}, false}),
      &kOne, halves.data(), weights.from(0), &kZero, sums.data());
  for (int64_t b = 0; b < kBatch; ++b)
    for (int64_t k = 0; k < kColumns; ++k) {
      double sum = 0, size = 0;
      for (int64_t g = 0; g < kGates; ++g) sum += grad(b, g) * weights.at(g, k), size += std::fabs(grad(b, g) * weights.at(g, k));
      const auto i = static_cast<size_t>(b * kColumns + k);
      const float got = add_second(sums[i], sums[static_cast<size_t>(kBatch * kColumns) + i]) * scale.down;
      REQUIRE(std::fabs(got - sum) <= bound * size + floor);
    }

  Rows<T> x(kBatch, kColumns, 0, 6);
  std::vector<T> stacked = x.elements;
  stacked.insert(stacked.end(), x.elements.begin(), x.elements.end());
  Rows<T> d_weights(kGates, kColumns, 24, 7);
  const std::vector<T> before = d_weights.elements;
  launch(
      *planned(
          {kDtype<T>, kDtype<T>, kGates, kColumns, 2 * kBatch, {kGates, true}, {kColumns, false}, {d_weights.pitch, false}, true}),
      on_fake_device(scale.down), halves.data(), stacked.data(), on_fake_device(kZero), d_weights.from(0));
  for (int64_t g = 0; g < kGates; ++g)
    for (int64_t k = 0; k < d_weights.pitch; ++k) {
      if (k >= kColumns) {  // the gap
        const auto i = static_cast<size_t>(g * d_weights.pitch + k);
        REQUIRE(std::memcmp(&d_weights.elements[i], &before[i], sizeof(T)) == 0);
        continue;
      }
      double sum = 0, size = 0;
      for (int64_t b = 0; b < kBatch; ++b) sum += grad(b, g) * x.at(b, k), size += std::fabs(grad(b, g) * x.at(b, k));
      const double rounding = std::ldexp(std::fabs(sum), kDtype<T> == Dtype::f16 ? -11 : -8);
      REQUIRE(std::fabs(d_weights.at(g, k) - sum) <= rounding + bound * size + floor + std::ldexp(1, -25));
    }
}

}  // namespace

TEST_CASE("there: products of split gradients", "[there]") {
  check_backward<f16>();
  check_backward<bf16>();
}
