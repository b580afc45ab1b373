// SPDX-License-Identifier: Apache-2.0
// plans.cpp -- what plans of GPUs are made by: division by a multiplication, sums cut into slices, the search for a variant, and
// the kinds of gradients.
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <random>

#include "common/conv1d.h"
#include "common/elementwise.h"
#include "common/integers.h"
#include "common/plugin.h"

using namespace narrows::common;

namespace {

uint32_t quotient(const Divider& by, uint32_t n) {
  const auto high = static_cast<uint32_t>((uint64_t{n} * by.multiplier) >> 32);
  return static_cast<uint32_t>((uint64_t{n} + high) >> by.shift);
}

TEST_CASE("integers: a divider divides") {
  std::mt19937 random(1);
  const auto below = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
  constexpr uint32_t kMost = (1u << 31) - 1;
  for (uint32_t i = 0; i < 20'000; ++i) {
    const uint32_t d = i < 300 ? i + 1 : 1 + (below(kMost) >> below(31)), multiple = kMost / d * d;
    const Divider by(d);
    for (const uint32_t n : {0u, 1u, d - 1, d, multiple, multiple - 1, kMost, below(kMost)}) {
      CAPTURE(n, d);
      REQUIRE(quotient(by, n) == n / d);
    }
  }
}

TEST_CASE("integers: slices of a reduction keep workers busy, and are not short") {
  for (int64_t tiles = 0; tiles < 40; ++tiles)
    for (int64_t stages = 0; stages < 200; ++stages) {
      const int64_t slices = num_slices(tiles, stages, 32);
      CAPTURE(tiles, stages, slices);
      REQUIRE(slices >= 1);
      if (slices == 1) continue;
      CHECK(tiles < 32);
      CHECK(stages / slices >= 4);
      CHECK(tiles * slices <= 64);
    }
}

TEST_CASE("conv1d: slices of sums cover the positions, and none is empty") {
  for (const int64_t batch : {1, 3, 64})
    for (const int64_t out_length : {1, 2047, 5000, 1'000'000})
      for (const int64_t rows : {1, 40, 100'000}) {
        ConvGeometry g{};
        g.batch = batch, g.out_length = out_length;
        const Tensor3 to{rows, 1, 3, {}};
        const SumSlices slices = slices_of_sums(g, to, 1, 1024);
        CAPTURE(batch, out_length, rows, slices.count, slices.length);
        CHECK(slices.count * slices.length >= batch * out_length);
        CHECK((slices.count - 1) * slices.length < batch * out_length);
        CHECK((slices.count == 1 || slices.length >= 1024));
        CHECK((slices.count == 1 || slices.count * to.size() <= int64_t{1} << 21));
      }
}

// A part says which variant it is of; a problem, from which on they take it.
using Part = int;
using Problem = int;
struct Variant {
  std::unique_ptr<Part> (*forward)(const Problem&);
  std::unique_ptr<Part> (*backward)(const Problem&);
};
template <int number>
std::unique_ptr<Part> plan(const Problem& problem) {
  return number < problem ? nullptr : std::make_unique<Part>(number);
}

TEST_CASE("conv1d: a part is planned by the first variant that takes it") {
  constexpr std::array<Variant, 4> kVariants = {{{plan<0>, nullptr}, {plan<1>, nullptr}, {nullptr, plan<2>}, {plan<3>, plan<3>}}};
  VariantSearch<Variant> search{kVariants.data(), 0, 3};
  CHECK(*search.plan(&Variant::forward, 2) == 3);
  CHECK(search.used == 3);
  CHECK(*search.plan(&Variant::backward, 0) == 2);
  CHECK(search.used == 2);
  CHECK(*search.plan(&Variant::forward, 0) == 0);
  CHECK(*search.plan(&Variant::forward, 3) == 3);
  CHECK(search.used == 0);  // the first of all
  VariantSearch<Variant> later{kVariants.data(), 1, 3};
  CHECK(*later.plan(&Variant::forward, 0) == 1);
}

TEST_CASE("elementwise_backward: an input that is not floating point is refused by its number") {
  const std::array<int64_t, 1> shape = {4}, strides = {1};
  for (uint32_t odd = 0; odd < 4; ++odd) {
    std::array<nw_tensor_sig, 7> tensors;
    tensors.fill({{kDLFloat, 32, 1}, 1, 8, 0, -1, shape.data(), strides.data()});
    tensors[odd].dtype = {kDLInt, 32, 1};
    nw_elementwise_params params{};
    params.function = NW_EW_CLAMP;
    nw_sig sig{};
    sig.op = "elementwise_backward", sig.num_inputs = 4, sig.num_outputs = 3, sig.tensors = tensors.data();
    sig.params = &params, sig.params_size = sizeof params;
    int32_t argument = -1;
    try {
      read_elementwise_backward(sig);
    } catch (const Refusal& refusal) {
      argument = refusal.argument;
    }
    CHECK(argument == static_cast<int32_t>(odd));
  }
}

TEST_CASE("a plan knows the device that it is for") {
  struct Nothing : Plan {
    void launch(const nw_call&) const override {}
  };
  nw_sig sig{};
  sig.device = {kDLCUDA, 3};
  void* out = nullptr;
  give_plan(std::make_unique<Nothing>(), sig, &out, nullptr);
  const std::unique_ptr<Plan> plan(static_cast<Plan*>(out));
  CHECK(plan->device_id == 3);
}

TEST_CASE("elementwise_backward: the kind of each gradient") {
  const std::array<int64_t, 2> shape = {4, 3}, strides = {3, 1}, row = {1, 3};
  const nw_tensor_sig whole{{kDLFloat, 32, 1}, 2, 8, 0, -1, shape.data(), strides.data()};
  nw_tensor_sig one_row = whole, absent = whole;
  one_row.shape = row.data(), absent.ndim = -1;
  const auto kind = [](int function, nw_tensor_sig grad_out, nw_tensor_sig by, uint32_t operand) {
    std::array<nw_tensor_sig, 7> tensors;  // grad_out, a, b, c, and their gradients
    tensors.fill(by);
    tensors[0] = grad_out;
    nw_elementwise_params params{};
    params.function = function;
    nw_sig sig{};
    sig.op = "elementwise_backward", sig.num_inputs = 4, sig.num_outputs = 3, sig.tensors = tensors.data();
    sig.params = &params, sig.params_size = sizeof params;
    return gradient_kind(read_elementwise_backward(sig), operand);
  };
  CHECK(kind(NW_EW_TANH, whole, whole, 0) == GradientKind::map);
  CHECK(kind(NW_EW_MUL, whole, one_row, 1) == GradientKind::sum);
  CHECK(kind(NW_EW_MUL, absent, whole, 1) == GradientKind::zero);
  CHECK(kind(NW_EW_FLOOR, whole, whole, 0) == GradientKind::zero);
  CHECK(kind(NW_EW_COPYSIGN, whole, whole, 0) == GradientKind::map);
  CHECK(kind(NW_EW_COPYSIGN, whole, whole, 1) == GradientKind::zero);
  CHECK(kind(NW_EW_CAST, whole, whole, 0) == GradientKind::copy);
  CHECK(kind(NW_EW_WHERE, whole, whole, 2) == GradientKind::map);
  CHECK_THROWS_AS(kind(NW_EW_WHERE, whole, whole, 0), Refusal);
  CHECK_THROWS_AS(kind(NW_EW_TANH, whole, whole, 1), Refusal);
  CHECK_THROWS_AS(kind(NW_EW_EQ, whole, whole, 0), Refusal);
}

}  // namespace
