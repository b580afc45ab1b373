// SPDX-License-Identifier: Apache-2.0
// lltm_backward.cpp -- the conformance suite of lltm_backward: against the reference, against finite differences of lltm itself,
// every subset of outputs and of gradients given. The named mistakes are in lltm_traps.cpp.
#include <catch2/catch_test_macros.hpp>
#include <numeric>

#include "conformance/threads.h"
#include "lltm_case.h"

using namespace narrows::test;
using narrows::reference::Lltm;

namespace {

using Values = std::vector<double>;

double dot(const Values& a, const Values& b) { return std::inner_product(a.begin(), a.end(), b.begin(), 0.0); }

// <grad_h, new_h> + <grad_cell, new_cell>, whose gradient backward is.
double loss(LltmTensors& t, const LltmGradTensors& g) {
  expect_ok(run("lltm", t.forward_inputs(), {&t.new_h, &t.new_cell, nullptr}));
  return dot(t.new_h.values(), g.grad_h.values()) + dot(t.new_cell.values(), g.grad_cell.values());
}

Values finite_differences(LltmTensors& t, const LltmGradTensors& g, Tensor& operand) {
  constexpr double kStep = 0x1p-17;
  const Values at = operand.values();
  Values derivative;
  for (size_t i = 0; i < at.size(); ++i) {
    double value[2];
    for (const int side : {0, 1}) {
      Values moved = at;
      moved[i] += side == 0 ? -kStep : kStep;
      operand.set(moved);
      value[side] = loss(t, g);
    }
    derivative.push_back((value[1] - value[0]) / (2 * kStep));
  }
  operand.set(at);
  return derivative;
}

void check_by_finite_differences(const LltmCase& c) {
  Rng rng("lltm finite differences");
  LltmTensors t(c, rng);
  LltmGradTensors g(c, rng);
  const Values by_input = finite_differences(t, g, t.input), by_weights = finite_differences(t, g, t.weights),
               by_bias = finite_differences(t, g, t.bias), by_h = finite_differences(t, g, t.old_h),
               by_cell = finite_differences(t, g, t.old_cell);
  expect_ok(run("lltm", t.forward_inputs(), {&t.new_h, &t.new_cell, &t.gates}));
  for (Tensor* saved : {&t.new_h, &t.new_cell, &t.gates}) saved->accept();  // outputs become inputs
  for (const char* kernel : kernels("lltm_backward")) {
    const Result result =
        run("lltm_backward",
            {&g.grad_h, &g.grad_cell, &t.input, &t.weights, &t.bias, &t.old_h, &t.old_cell, &t.new_h, &t.new_cell, &t.gates},
            g.all(), {}, kernel);
    if (result.was_declined()) continue;
    // Truncation: step^2/6 times a third derivative of up to 100, 1e-9; rounding: sums near 10 times 2^-52 / step, 3e-10.
    const Tolerance tolerance{.rtol = 1e-8, .atol = 1e-8};
    expect_close(result, g.input, by_input, tolerance);
    expect_close(result, g.weights, by_weights, tolerance);
    expect_close(result, g.bias, by_bias, tolerance);
    expect_close(result, g.old_h, by_h, tolerance);
    expect_close(result, g.old_cell, by_cell, tolerance);
  }
}

}  // namespace

TEST_CASE("lltm_backward: features and states around every block", "[lltm][backward]") {
  for (const DType dtype : kFloatDTypes) {
    Rng rng("lltm_backward sizes");
    for (const int64_t features : {1, 2, 3, 5, 8, 15, 16, 17, 33, 64})
      for (const int64_t states : {1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 31, 33, 64})
        check_lltm_backward({.shape = {3, features, states}, .dtype = dtype, .bias_row = (states & 1) != 0}, rng);
  }
}

TEST_CASE("lltm_backward: batches of 0, 1, 2 and around every block", "[lltm][backward]") {
  for (const DType dtype : kFloatDTypes) {
    Rng rng("lltm_backward batches");
    for (const int64_t batch : {0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 65, 300})
      for (const auto& [features, states] : {std::pair<int64_t, int64_t>{3, 5}, {17, 16}, {32, 33}})
        check_lltm_backward({.shape = {batch, features, states}, .dtype = dtype}, rng);
  }
}

TEST_CASE("lltm_backward: no features, no states", "[lltm][backward]") {
  for (const DType dtype : kFloatDTypes) {
    Rng rng("lltm_backward empty axes");
    for (const Lltm& shape : {Lltm{4, 0, 5}, Lltm{4, 5, 0}, Lltm{300, 500, 0}, Lltm{4, 0, 0}})
      for (const unsigned outputs : {1u, 31u}) check_lltm_backward({.shape = shape, .dtype = dtype}, rng, {.outputs = outputs});
  }
}

TEST_CASE("lltm_backward: a huge batch of no states", "[lltm][backward]") {
  constexpr int64_t kBatch = int64_t{1} << 58;
  const Tensor none(DType::f32, {kBatch, 0}), weights(DType::f32, {0, 0});
  Tensor d_none(DType::f32, {kBatch, 0}), d_weights(DType::f32, {0, 0}), d_bias(DType::f32, {0}), d_h(DType::f32, {kBatch, 0}),
      d_cell(DType::f32, {kBatch, 0});
  for (const char* kernel : kernels("lltm_backward"))
    for (const Tensor* grad : {&none, static_cast<const Tensor*>(nullptr)}) {
      const Result result = run("lltm_backward", {grad, grad, &none, &weights, nullptr, &none, nullptr, nullptr, &none, &none},
                                {&d_none, &d_weights, &d_bias, &d_h, &d_cell}, {}, kernel);
      if (!result.was_declined()) expect_ok(result);
    }
}

TEST_CASE("lltm_backward: every subset of the outputs", "[lltm][backward]") {
  for (const DType dtype : kFloatDTypes) {
    Rng rng("lltm_backward subsets");
    for (unsigned outputs = 1; outputs < 32; ++outputs)
      for (const bool unread : {false, true}) {
        check_lltm_backward({.shape = {5, 6, 7}, .dtype = dtype, .bias_row = unread}, rng, {.outputs = outputs, .unread = unread});
        check_lltm_backward({.shape = {18, 17, 16}, .dtype = dtype}, rng, {.outputs = outputs, .unread = unread});
      }
  }
}

TEST_CASE("lltm_backward: an absent gradient is zero", "[lltm][backward]") {
  for (const DType dtype : kFloatDTypes) {
    Rng rng("lltm_backward absent");
    for (const bool grad_h : {false, true})
      for (const bool grad_cell : {false, true})
        for (const bool unread : {false, true})
          check_lltm_backward({.shape = {9, 8, 7}, .dtype = dtype}, rng,
                              {.grad_h = grad_h, .grad_cell = grad_cell, .unread = unread});
  }
}

TEST_CASE("lltm_backward: both gradients absent, all outputs are zero", "[lltm][backward]") {
  for (const DType dtype : kFloatDTypes)
    for (const char* kernel : kernels("lltm_backward")) {
      Rng rng("lltm_backward both absent");
      const LltmCase c{.shape = {4, 3, 5}, .dtype = dtype};
      LltmTensors t(c, rng);
      LltmGradTensors g(c, rng);
      t.gates.set(Values(static_cast<size_t>(t.gates.size()), 0.5));
      t.new_cell.set(Values(static_cast<size_t>(t.new_cell.size()), 0.5));
      const Result result =
          run("lltm_backward", {nullptr, nullptr, &t.input, &t.weights, nullptr, &t.old_h, nullptr, nullptr, &t.new_cell, &t.gates},
              g.all(), {}, kernel);
      if (result.was_declined()) continue;
      for (const Tensor* out : g.all()) expect_close(result, *out, Values(static_cast<size_t>(out->size()), 0.0), {});
    }
}

TEST_CASE("lltm_backward: layers as they are used", "[lltm][backward]") {
  for (const DType dtype : kFloatDTypes) {
    Rng rng("lltm_backward layers");
    check_lltm_backward({.shape = {16, 32, 128}, .dtype = dtype}, rng);
    check_lltm_backward({.shape = {130, 20, 32}, .dtype = dtype, .bias_row = true}, rng);
  }
}

TEST_CASE("lltm_backward: a gradient of weights of 16 MB", "[lltm][backward]") {
  Rng rng("lltm_backward large");
  // Its columns of states begin at whole lines of a cache, those of features between them.
  check_lltm_backward({.shape = {2, 180, 1100}, .dtype = DType::f32}, rng, {.outputs = 2});
}

TEST_CASE("lltm_backward: every layout of each tensor in turn", "[lltm][backward][layout]") {
  for (const DType dtype : kFloatDTypes)
    for (const Lltm& shape : {Lltm{5, 6, 7}, Lltm{18, 17, 16}}) {
      Rng rng("lltm_backward layouts");
      for (auto member : {&LltmLayouts::input, &LltmLayouts::weights, &LltmLayouts::old_h, &LltmLayouts::old_cell,
                          &LltmLayouts::new_h, &LltmLayouts::new_cell, &LltmLayouts::gates, &LltmLayouts::bias}) {
        const int ndim = member == &LltmLayouts::bias ? 1 : 2;
        std::vector<Layout> layouts = all_layouts(ndim, dtype);
        if (member != &LltmLayouts::gates && ndim == 2) {
          layouts.push_back(Layout::broadcast({true, false}));
          layouts.push_back(Layout::broadcast({true, true}));
        }
        for (const Layout& layout : layouts) {
          LltmCase c{.shape = shape, .dtype = dtype};
          // grad_h and grad_cell lie as new_h and new_cell do; new_cell itself is an output of forward.
          c.layouts.*member = layout;
          check_lltm_backward(c, rng);
        }
      }
    }
}

TEST_CASE("lltm_backward: every layout of all tensors at once", "[lltm][backward][layout]") {
  for (const DType dtype : kFloatDTypes)
    for (const Lltm& shape : {Lltm{5, 6, 7}, Lltm{18, 17, 16}, Lltm{1, 33, 20}}) {
      Rng rng("lltm_backward all layouts");
      for (const Layout& layout : all_layouts(2, dtype))
        check_lltm_backward({.shape = shape, .dtype = dtype, .layouts = everywhere(layout)}, rng);
    }
}

TEST_CASE("lltm_backward: is the derivative of lltm, by finite differences in f64", "[lltm][backward][gradcheck]") {
  for (const Lltm& shape : {Lltm{1, 1, 1}, Lltm{2, 3, 4}, Lltm{5, 2, 3}, Lltm{3, 9, 5}}) {
    check_by_finite_differences({.shape = shape, .dtype = DType::f64});
    check_by_finite_differences(
        {.shape = shape, .dtype = DType::f64, .bias_row = true, .layouts = everywhere(Layout::transposed())});
  }
}

TEST_CASE("lltm_backward: 100 seeded sizes with layouts and subsets of every kind", "[lltm][backward]") {
  Rng rng("lltm_backward sweep");
  for (int i = 0; i < 100; ++i) {
    const LltmCase c = random_lltm(rng, kFloatDTypes[i % 4]);
    check_lltm_backward(c, rng,
                        {.outputs = static_cast<unsigned>(rng.integer(1, 31)),
                         .grad_h = rng.integer(0, 3) != 0,
                         .grad_cell = rng.integer(0, 3) != 0,
                         .unread = rng.integer(0, 1) == 1});
  }
}

TEST_CASE("lltm_backward: the same bits again, and on any number of threads", "[lltm][backward][determinism]") {
  for (const DType dtype : kFloatDTypes)
    for (const Lltm& shape : {Lltm{64, 70, 65}, Lltm{1, 300, 200}, Lltm{3000, 5, 6}, Lltm{130, 64, 32}}) {
      Rng rng("lltm_backward determinism");
      const LltmCase c{.shape = shape, .dtype = dtype};
      LltmTensors t(c, rng);
      LltmGradTensors g(c, rng);
      t.new_cell.fill_uniform(rng, -1, 1);
      t.gates.fill_uniform(rng, -1, 1);
      expect_same_bits("lltm_backward",
                       {&g.grad_h, &g.grad_cell, &t.input, &t.weights, nullptr, &t.old_h, nullptr, nullptr, &t.new_cell, &t.gates},
                       g.all(), {});
    }
}
