// SPDX-License-Identifier: Apache-2.0
// lltm.cpp -- the conformance suite of lltm: every dtype, size, form of bias and layout, and every kernel variant, against the
// reference. Backward is in lltm_backward.cpp, the named mistakes are in lltm_traps.cpp.
#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "conformance/threads.h"
#include "lltm_case.h"

using namespace narrows::test;
using narrows::reference::Lltm;

namespace {

// Around the widths of vectors and of register blocks; primes.
constexpr int64_t kSizes[] = {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65};

std::vector<Layout> input_layouts(int ndim, DType dtype) {
  std::vector<Layout> layouts = all_layouts(ndim, dtype);
  for (const std::vector<bool>& axes : {std::vector<bool>{true, false}, {false, true}, {true, true}})
    layouts.push_back(Layout::broadcast(axes));
  return layouts;
}

}  // namespace

// B = 1, F = 1, S = 1; old_h 2, input 3. G0 = 2*1 + 3*(-1) + 1 = 0, G1 = 2*0.5 - 3*0.5 + 0.5 = 0, G2 = 2*1 + 3*1 - 1 = 4, so
// i = o = 1/2, c = 4, new_cell = 1 + 2 = 3, new_h = tanh(3)/2. Row order of weights and order of X both matter to this.
TEST_CASE("lltm: a cell computed by hand", "[lltm]") {
  const std::vector<double> gates{0, 0, 4};
  for (const DType dtype : kFloatDTypes)
    for (const bool row : {false, true})
      for (const char* kernel : kernels("lltm")) {
        Rng rng("lltm by hand");
        const LltmCase c{.shape = {1, 1, 1}, .dtype = dtype, .bias_row = row};
        LltmTensors t(c, rng);
        t.old_h.set(std::vector<double>{2});
        t.input.set(std::vector<double>{3});
        t.old_cell.set(std::vector<double>{1});
        t.weights.set(std::vector<double>{1, -1, 0.5, -0.5, 1, 1});
        t.bias.set(std::vector<double>{1, 0.5, -1});
        const Result result = run("lltm", t.forward_inputs(), {&t.new_h, &t.new_cell, &t.gates}, {}, kernel);
        if (result.was_declined()) continue;
        expect_close(result, t.gates, gates, {});
        expect_close(result, t.new_cell, std::vector<double>{3}, {.ulps = 2});
        expect_close(result, t.new_h, std::vector<double>{std::tanh(3.0) / 2}, {.ulps = 4});
      }
}

TEST_CASE("lltm reference: the same cell by hand", "[lltm][reference]") {
  const auto out = narrows::reference::lltm({1, 1, 1}, {{3}, {1, -1, 0.5, -0.5, 1, 1}, {1, 0.5, -1}, {2}, {1}});
  CHECK(out.gates == std::vector<double>{0, 0, 4});
  CHECK(out.new_cell == std::vector<double>{3});
  CHECK(std::fabs(out.new_h[0] - 0.4975273768433652) < 1e-15);
}

TEST_CASE("lltm: features and states around every block", "[lltm]") {
  for (const DType dtype : kFloatDTypes) {
    Rng rng("lltm sizes");
    for (const int64_t features : kSizes)
      for (const int64_t states : kSizes) {
        LltmCase c{.shape = {3, features, states}, .dtype = dtype};
        c.bias_row = (features & 1) != 0;
        c.with_gates = (states & 1) != 0;
        check_lltm(c, rng);
      }
  }
}

TEST_CASE("lltm: batches of 0, 1, 2 and around every block", "[lltm]") {
  for (const DType dtype : kFloatDTypes)
    for (const bool gates : {false, true}) {
      Rng rng("lltm batches");
      for (const int64_t batch : {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 15, 16, 17, 31, 32, 33, 64, 65, 100})
        for (const auto& [features, states] : {std::pair<int64_t, int64_t>{3, 5}, {17, 16}, {32, 33}})
          check_lltm({.shape = {batch, features, states}, .dtype = dtype, .with_gates = gates}, rng);
    }
}

TEST_CASE("lltm: many cells of few states, in whole tiles and with some left over", "[lltm]") {
  Rng rng("lltm tiles");
  for (const auto& [features, states] : {std::pair<int64_t, int64_t>{64, 128}, {70, 122}})
    check_lltm({.shape = {4100, features, states}, .dtype = DType::f16}, rng);
}

TEST_CASE("lltm: no features, no states", "[lltm]") {
  for (const DType dtype : kFloatDTypes) {
    Rng rng("lltm empty axes");
    check_lltm({.shape = {4, 0, 5}, .dtype = dtype}, rng);
    check_lltm({.shape = {4, 5, 0}, .dtype = dtype}, rng);
    check_lltm({.shape = {0, 0, 3}, .dtype = dtype}, rng);
  }
}

TEST_CASE("lltm: layers as they are used", "[lltm]") {
  for (const DType dtype : kFloatDTypes) {
    Rng rng("lltm layers");
    check_lltm({.shape = {16, 32, 128}, .dtype = dtype}, rng);
    check_lltm({.shape = {5, 300, 70}, .dtype = dtype, .with_gates = false}, rng);
    check_lltm({.shape = {130, 20, 32}, .dtype = dtype, .bias_row = true}, rng);
  }
}

TEST_CASE("lltm: every layout of each tensor in turn", "[lltm][layout]") {
  for (const DType dtype : kFloatDTypes)
    for (const Lltm& shape : {Lltm{5, 6, 7}, Lltm{18, 17, 16}}) {
      Rng rng("lltm layouts");
      for (auto member : {&LltmLayouts::input, &LltmLayouts::weights, &LltmLayouts::old_h, &LltmLayouts::old_cell,
                          &LltmLayouts::new_h, &LltmLayouts::new_cell, &LltmLayouts::gates, &LltmLayouts::bias})
        for (const bool row : {false, true}) {
          if (row && member != &LltmLayouts::bias) continue;
          for (const Layout& layout : input_layouts(member == &LltmLayouts::bias && !row ? 1 : 2, dtype)) {
            LltmCase c{.shape = shape, .dtype = dtype, .bias_row = row};
            c.layouts.*member = layout;
            check_lltm(c, rng);
          }
        }
    }
}

TEST_CASE("lltm: every layout of all tensors at once", "[lltm][layout]") {
  for (const DType dtype : kFloatDTypes)
    for (const Lltm& shape : {Lltm{5, 6, 7}, Lltm{18, 17, 16}, Lltm{1, 33, 20}}) {
      Rng rng("lltm all layouts");
      for (const Layout& layout : all_layouts(2, dtype))
        check_lltm({.shape = shape, .dtype = dtype, .layouts = everywhere(layout)}, rng);
    }
}

TEST_CASE("lltm: weights as a view of a larger, transposed matrix", "[lltm][layout]") {
  for (const DType dtype : kFloatDTypes)
    for (const char* kernel : kernels("lltm")) {
      Rng rng("lltm weights view");
      const LltmCase c{.shape = {6, 9, 8}, .dtype = dtype};
      LltmTensors t(c, rng);
      Tensor matrix(dtype, {c.depth() + 3, 3 * c.shape.states + 5});  // holds weights transposed from row 1, column 2 on
      matrix.fill_uniform(rng, -1, 1);
      const int64_t columns = matrix.shape()[1];
      const Tensor view(matrix, dtype, c.weights_dims(), {1, columns}, (columns + 2) * item_size(dtype));
      t.weights.set(view.values());
      const Result plain = run("lltm", t.forward_inputs(), {&t.new_h, &t.new_cell, &t.gates}, {}, kernel);
      if (plain.was_declined()) continue;
      const std::vector<double> gates = t.gates.values(), cell = t.new_cell.values();
      const Result viewed =
          run("lltm", {&t.input, &view, &t.bias, &t.old_h, &t.old_cell}, {&t.new_h, &t.new_cell, &t.gates}, {}, kernel);
      // The order of the sums may differ with the layout: 17 terms up to 1.
      const double eps = static_cast<double>(epsilon(accumulator(dtype)));
      expect_close(viewed, t.gates, gates, {.atol = 32 * eps, .l2 = 32 * eps});
      expect_close(viewed, t.new_cell, cell, {.atol = 64 * eps, .ulps = 1});
    }
}

TEST_CASE("lltm: 100 seeded sizes with layouts of every kind", "[lltm]") {
  Rng rng("lltm sweep");
  for (int i = 0; i < 100; ++i) check_lltm(random_lltm(rng, kFloatDTypes[i % 4]), rng);
}

TEST_CASE("lltm: the same bits again, and on any number of threads", "[lltm][determinism]") {
  for (const DType dtype : kFloatDTypes)
    for (const Lltm& shape : {Lltm{64, 70, 65}, Lltm{1, 300, 200}, Lltm{3000, 5, 6}, Lltm{130, 64, 32}}) {
      Rng rng("lltm determinism");
      LltmTensors t({.shape = shape, .dtype = dtype}, rng);
      expect_same_bits("lltm", t.forward_inputs(), {&t.new_h, &t.new_cell, &t.gates}, {});
    }
}

// The gates are for backward only: that they are wanted changes nothing else.
TEST_CASE("lltm: the same state with gates and without", "[lltm]") {
  for (const DType dtype : kFloatDTypes)
    for (const char* kernel : kernels("lltm")) {
      Rng rng("lltm with and without gates");
      LltmTensors t({.shape = {17, 20, 21}, .dtype = dtype}, rng);
      const Result with = run("lltm", t.forward_inputs(), {&t.new_h, &t.new_cell, &t.gates}, {}, kernel);
      if (with.was_declined()) continue;
      expect_ok(with);
      const auto h = t.new_h.values(), cell = t.new_cell.values();
      const double eps = static_cast<double>(epsilon(dtype));
      const Result without = run("lltm", t.forward_inputs(), {&t.new_h, &t.new_cell, nullptr}, {}, kernel);
      if (without.was_declined()) continue;
      expect_close(without, t.new_h, h, {.rtol = 4 * eps, .atol = 4 * eps});
      expect_close(without, t.new_cell, cell, {.rtol = 4 * eps, .atol = 4 * eps});
    }
}
