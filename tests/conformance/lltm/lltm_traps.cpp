// SPDX-License-Identifier: Apache-2.0
// lltm_traps.cpp -- the mistakes that the tutorial's implementations of this cell made, one test each.
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>

#include "lltm_case.h"

using namespace narrows::test;
using narrows::reference::elu;
using narrows::reference::elu_derivative;
using narrows::reference::sigmoid;
using narrows::reference::sigmoid_derivative;

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();
using Values = std::vector<double>;

// Two operations after functions that are good to 4 ulp; one rounding more, to 16 bits, needs half an ulp of that.
Tolerance activation_tolerance(DType dtype) { return {.ulps = item_size(dtype) == 2 ? 0.75 : 12.0}; }

// A batch of one whose gates are given: the weights are 0, the gates are the bias.
struct Cell {
  Cell(DType dtype, const Values& g0, const Values& g1, const Values& g2, const Values& cell)
      : c{.shape = {1, 1, static_cast<int64_t>(cell.size())}, .dtype = dtype}, rng("lltm cell"), t(c, rng), g(c, rng) {
    t.weights.set(Values(static_cast<size_t>(t.weights.size()), 0.0));
    Values bias = g0;
    bias.insert(bias.end(), g1.begin(), g1.end());
    bias.insert(bias.end(), g2.begin(), g2.end());
    t.bias.set(bias);
    t.old_cell.set(cell);
  }
  size_t states() const { return static_cast<size_t>(c.shape.states); }
  double gate(size_t which, size_t j) const { return t.bias.values()[which * states() + j]; }

  // new_h and new_cell against the scalar formulas.
  void check_forward() {
    Values cell, h;
    const Values old_cell = t.old_cell.values();
    for (size_t j = 0; j < states(); ++j) {
      cell.push_back(old_cell[j] + elu(gate(2, j)) * sigmoid(gate(0, j)));
      h.push_back(std::tanh(cell.back()) * sigmoid(gate(1, j)));
    }
    const Values gates = t.bias.values();
    for (const char* kernel : kernels("lltm")) {
      const Result result = run("lltm", t.forward_inputs(), {&t.new_h, &t.new_cell, &t.gates}, {}, kernel);
      if (result.was_declined()) continue;
      expect_close(result, t.gates, gates, {});
      expect_close(result, t.new_cell, cell, activation_tolerance(c.dtype));
      expect_close(result, t.new_h, h, activation_tolerance(c.dtype));
    }
  }

  // d_bias, which for a batch of one is the gradient of the gates, and d_old_cell, with old_cell as new_cell. `floor`: an absolute
  // error that is allowed as well, where a derivative is a difference of numbers near 1.
  void check_backward(const Values& grad_h, const Values& grad_cell, double floor) {
    g.grad_h.set(grad_h);
    g.grad_cell.set(grad_cell);
    t.gates.set(t.bias.values());  // a forward call may have written both
    t.new_cell.set(t.old_cell.values());
    const Values gates = t.gates.values(), new_cell = t.new_cell.values();
    const Values d_bias = narrows::reference::lltm_grad_gates(c.shape, grad_h, grad_cell, new_cell, gates);
    const auto all = narrows::reference::lltm_backward(c.shape, grad_h, grad_cell, t.inputs(), new_cell, gates);
    for (const char* kernel : kernels("lltm_backward")) {
      const Result result =
          run("lltm_backward",
              {&g.grad_h, &g.grad_cell, &t.input, &t.weights, &t.bias, &t.old_h, nullptr, nullptr, &t.new_cell, &t.gates}, g.all(),
              {}, kernel);
      if (result.was_declined()) continue;
      Tolerance tolerance = activation_tolerance(c.dtype);
      tolerance.ulps *= 2, tolerance.atol = floor;
      expect_close(result, g.bias, d_bias, tolerance);
      expect_close(result, g.old_cell, all.old_cell, tolerance);
    }
  }

  LltmCase c;
  Rng rng;
  LltmTensors t;
  LltmGradTensors g;
};

Values repeated(double value, const Values& like) { return Values(like.size(), value); }

}  // namespace

TEST_CASE("lltm trap: f32 fmax and fmin inside the f64 kernel", "[lltm][trap]") {
  // Candidates that f32 cannot hold: too many bits, too large, too small. The input gate is 1 to the last bit.
  const Values g2{1.0 / 3, -1.0 / 3, 1e-3, -1e-3, 1e60, 1e-60, -1e-60, 2.5 + 0x1p-50, -2.5 - 0x1p-50};
  Cell cell(DType::f64, repeated(100, g2), repeated(0.1, g2), g2, repeated(0, g2));
  cell.check_forward();
  cell.check_backward(repeated(1.0 / 3, g2), repeated(1.0 / 7, g2), 1e-15);
}

TEST_CASE("lltm trap: exp(z) - 1 instead of expm1", "[lltm][trap]") {
  const Values g2{-1e-7, -1.5e-7, -1e-6, -1e-5, -1e-4, -1e-3, -0.01, -0.1, -0.5, -1, -5, -20, -1e-12, -1e-30, 1e-7};
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    Cell cell(dtype, repeated(60, g2), repeated(60, g2), g2, repeated(0, g2));
    cell.check_forward();
    // The gradient of the input gate is proportional to the candidate: sigma'(0) = 1/4.
    Cell back(dtype, repeated(0, g2), repeated(0, g2), g2, repeated(0, g2));
    back.check_backward(repeated(0, g2), repeated(1, g2), 0);
  }
  const Values g2_half{-0x1p-20, -0x1p-14, -1e-3, -0.01, -0.1, -1, -5};
  Cell(DType::f16, repeated(60, g2_half), repeated(60, g2_half), g2_half, repeated(0, g2_half)).check_forward();
}

TEST_CASE("lltm trap: ELU(NaN) is 0", "[lltm][trap]") {
  for (const DType dtype : kFloatDTypes) {
    const Values one(1, 1.0), nan(1, kNaN);
    for (const auto& [g0, g1, g2, cell] :
         {std::tuple{one, one, nan, one}, {nan, one, one, one}, {one, nan, one, one}, {one, one, one, nan}})
      Cell(dtype, g0, g1, g2, cell).check_forward();
  }
}

TEST_CASE("lltm trap: a NaN in one row stays in that row, and fills it", "[lltm][trap]") {
  for (const DType dtype : kFloatDTypes)
    for (const bool in_h : {false, true})
      for (const char* kernel : kernels("lltm")) {
        Rng rng("lltm NaN row");
        const LltmCase c{.shape = {5, 9, 7}, .dtype = dtype};
        LltmTensors t(c, rng);
        Tensor& holder = in_h ? t.old_h : t.input;
        Values values = holder.values();
        values[static_cast<size_t>(3 * holder.shape()[1] + 2)] = kNaN;
        holder.set(values);
        const Result result = run("lltm", t.forward_inputs(), {&t.new_h, &t.new_cell, &t.gates}, {}, kernel);
        if (result.was_declined()) continue;
        expect_ok(result);
        for (const Tensor* out : {&t.new_h, &t.new_cell, &t.gates}) {
          const Values got = out->values();
          const auto columns = static_cast<size_t>(out->shape()[1]);
          size_t wrong = 0;
          for (size_t i = 0; i < got.size(); ++i) wrong += std::isnan(got[i]) != (i / columns == 3);
          INFO(result.what << ": " << out->describe());
          CHECK(wrong == 0);
        }
      }
}

TEST_CASE("lltm trap: infinite gates", "[lltm][trap]") {
  for (const DType dtype : kFloatDTypes) {
    //             g2 = inf   -inf   inf, i=0: NaN   -inf, i=0: 0   o=0   o=1
    const Values g0{2, 2, -kInf, -kInf, kInf, kInf}, g1{0, 0, 0, 0, -kInf, kInf}, g2{kInf, -kInf, kInf, -kInf, 1, 1};
    Cell(dtype, g0, g1, g2, repeated(0.5, g0)).check_forward();
  }
}

TEST_CASE("lltm trap: ELU' at 0", "[lltm][trap]") {
  for (const DType dtype : kFloatDTypes) {
    const Values g2{0.0, -0.0, 0x1p-20, -0x1p-20, 0x1p-14, -0x1p-14};
    Cell(dtype, repeated(0, g2), repeated(0, g2), g2, repeated(0, g2)).check_backward(repeated(0, g2), repeated(1, g2), 0);
  }
}

// Gradients of 16 bits whose tensors `change` spoils: matrix units take them in two parts, which keep less of what is small beside
// the largest, and of what is infinite.
template <class Change>
void check_halves(const char* what, Change&& change) {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    Rng rng(what);
    const LltmCase c{.shape = {40, 72, 64}, .dtype = dtype};
    LltmTensors t(c, rng);
    LltmGradTensors g(c, rng);
    t.new_cell.fill_uniform(rng, -1, 1);
    t.gates.fill_uniform(rng, -2, 2);
    change(t, g);
    const auto expected = narrows::reference::lltm_backward(c.shape, g.grad_h.values(), g.grad_cell.values(), t.inputs(),
                                                            t.new_cell.values(), t.gates.values());
    const Values* const references[] = {&expected.input, &expected.weights, &expected.bias, &expected.old_h, &expected.old_cell};
    for (const char* kernel : kernels("lltm_backward")) {
      const Result result =
          run("lltm_backward",
              {&g.grad_h, &g.grad_cell, &t.input, &t.weights, nullptr, &t.old_h, nullptr, nullptr, &t.new_cell, &t.gates}, g.all(),
              {}, kernel);
      if (result.was_declined()) continue;
      INFO(what);
      for (size_t i = 0; i < g.all().size(); ++i) {
        double largest = 0;
        for (const double v : *references[i])
          if (std::isfinite(v)) largest = std::fmax(largest, std::fabs(v));
        expect_close(result, *g.all()[i], *references[i], {.atol = largest * 0x1p-14, .ulps = 2});
      }
    }
  }
}
Values scaled(Values values, double factor) {
  for (double& v : values) v *= factor;
  return values;
}
void spoil(Tensor& t, size_t i, double value) {
  Values values = t.values();
  values[i] = value;
  t.set(values);
}

TEST_CASE("lltm_backward trap: gradients of gates that 16 bits do not hold, small ones beside large ones",
          "[lltm][backward][trap]") {
  check_halves("plain", [](LltmTensors&, LltmGradTensors&) {});
  for (const double factor : {0.0, 0x1p-20, 0x1p-12, 0x1p8})
    check_halves("scaled", [&](LltmTensors&, LltmGradTensors& g) {
      for (Tensor* grad : {&g.grad_h, &g.grad_cell}) grad->set(scaled(grad->values(), factor));
    });
  // elu passes large candidates on, to the gradient of the input gate alone.
  check_halves("large candidates", [](LltmTensors& t, LltmGradTensors& g) {
    Values gates = t.gates.values();
    for (size_t i = 0; i < gates.size(); ++i)
      if (i % 192 >= 128) gates[i] *= 0x1p20;
    t.gates.set(gates);
    for (Tensor* grad : {&g.grad_h, &g.grad_cell}) grad->set(scaled(grad->values(), 0x1p-12));
  });
}

TEST_CASE("lltm_backward trap: what is infinite or NaN in an operand, beside gradients of either sign", "[lltm][backward][trap]") {
  for (const double value : {kInf, -kInf, kNaN}) {
    check_halves("in grad_cell", [&](LltmTensors&, LltmGradTensors& g) { spoil(g.grad_cell, 3 * 64 + 5, value); });
    check_halves("in old_h", [&](LltmTensors& t, LltmGradTensors&) { spoil(t.old_h, 7 * 64 + 9, value); });
    check_halves("in weights", [&](LltmTensors& t, LltmGradTensors&) { spoil(t.weights, 11 * 136 + 70, value); });
  }
}

TEST_CASE("lltm_backward trap: a NaN among the gates reaches the gradients of its state, and no others", "[lltm][backward][trap]") {
  for (const DType dtype : kFloatDTypes)
    for (int gate = 0; gate < 3; ++gate) {
      const Values plain{0.5, -0.5, 0.25, 1, -2, 0.125, 2}, half = repeated(0.5, plain);
      Values z = plain;
      z[3] = kNaN;
      Cell cell(dtype, gate == 0 ? z : plain, gate == 1 ? z : plain, gate == 2 ? z : plain, half);
      cell.check_backward(half, half, 32 * static_cast<double>(epsilon(accumulator(dtype))));
    }
}

TEST_CASE("lltm trap: NaN for z of 89 and more", "[lltm][trap]") {
  for (const DType dtype : kFloatDTypes) {
    Values z{-60, -30, -15, 15, 30, 60, 87, 88, 88.5, 89, 90, 100, 104, 200, 1000, 20000};
    if (dtype != DType::f16) z.push_back(1e5), z.push_back(1e20);
    if (dtype == DType::f64) z.push_back(709), z.push_back(710), z.push_back(745), z.push_back(1e200);
    const double floor = 32 * static_cast<double>(epsilon(accumulator(dtype)));
    const Values one = repeated(1, z), half = repeated(0.5, z), zero = repeated(0, z);
    for (int gate = 0; gate < 3; ++gate) {
      Cell cell(dtype, gate == 0 ? z : one, gate == 1 ? z : one, gate == 2 ? z : one, half);
      cell.check_forward();
      Cell back(dtype, gate == 0 ? z : zero, gate == 1 ? z : zero, gate == 2 ? z : zero, half);
      back.check_backward(one, half, floor);
    }
  }
}

TEST_CASE("lltm trap: gates far below 0 underflow to nothing, not to NaN", "[lltm][trap]") {
  for (const DType dtype : kFloatDTypes) {
    Values z{-87, -88, -89, -100, -104, -200, -1000, -20000};
    if (dtype == DType::f64) z.push_back(-709), z.push_back(-746), z.push_back(-1e200);
    const Values one = repeated(1, z), half = repeated(0.5, z);
    for (int gate = 0; gate < 3; ++gate) {
      Cell cell(dtype, gate == 0 ? z : one, gate == 1 ? z : one, gate == 2 ? z : one, half);
      for (const char* kernel : kernels("lltm")) {
        const Result result = run("lltm", cell.t.forward_inputs(), {&cell.t.new_h, &cell.t.new_cell, &cell.t.gates}, {}, kernel);
        if (result.was_declined()) continue;
        Values expected_cell, expected_h;
        for (size_t j = 0; j < z.size(); ++j) {
          expected_cell.push_back(0.5 + elu(cell.gate(2, j)) * sigmoid(cell.gate(0, j)));
          expected_h.push_back(std::tanh(expected_cell.back()) * sigmoid(cell.gate(1, j)));
        }
        Tolerance tolerance = activation_tolerance(dtype);
        tolerance.atol = 1e-36;  // results below f32's normal numbers may be flushed by a function
        expect_close(result, cell.t.new_cell, expected_cell, tolerance);
        expect_close(result, cell.t.new_h, expected_h, tolerance);
      }
      cell.check_backward(one, half, 32 * static_cast<double>(epsilon(accumulator(dtype))));
    }
  }
}

TEST_CASE("lltm trap: a batch on a grid axis of 65535", "[lltm][trap]") {
  for (const DType dtype : {DType::f32, DType::f16}) {
    Rng rng("lltm large batch");
    check_lltm({.shape = {65539, 1, 1}, .dtype = dtype}, rng);
    check_lltm_backward({.shape = {65539, 1, 1}, .dtype = dtype}, rng);
  }
}

// X = [old_h, input] and G = [input gate, output gate, candidate], each S wide: exact numbers that any other order changes.
TEST_CASE("lltm trap: a gate layout that differs between backends", "[lltm][trap]") {
  const Values weights{1, 0, 0, 0, 1, 0, 0, 0, 1, 2, 0, 0, 0, 2, 0, 0, 0, 2};  // 6 rows of (h0, h1, input)
  const Values gates{10 + 1, 20 + 2, 30 + 4, 40 + 2, 50 + 4, 60 + 8,           // h = (1, 2), input 4
                     10 - 1, 20 - 2, 30 - 4, 40 - 2, 50 - 4, 60 - 8};
  for (const DType dtype : kFloatDTypes)
    for (const char* kernel : kernels("lltm")) {
      Rng rng("lltm golden layout");
      LltmTensors t({.shape = {2, 1, 2}, .dtype = dtype}, rng);
      t.weights.set(weights);
      t.bias.set(Values{10, 20, 30, 40, 50, 60});
      t.old_h.set(Values{1, 2, -1, -2});
      t.input.set(Values{4, -4});
      t.old_cell.set(Values{1, 2, 3, 4});
      const Result result = run("lltm", t.forward_inputs(), {&t.new_h, &t.new_cell, &t.gates}, {}, kernel);
      if (result.was_declined()) continue;
      expect_close(result, t.gates, gates, {});
      // The input gates are 1 but for 1e-4 (sigma(9)), the candidates 54, 68, 46, 52.
      expect_close(result, t.new_cell,
                   Values{1 + 54 * sigmoid(11), 2 + 68 * sigmoid(22), 3 + 46 * sigmoid(9), 4 + 52 * sigmoid(18)},
                   activation_tolerance(dtype));
      expect_close(result, t.new_h, Values{1, 1, 1, 1}, {.atol = 1e-11, .ulps = 4, .l2 = 1e-6});
    }
}

// S = 2, F = 1, B = 1; gates i = (0, 100), o = (-100, 0), c = (2, 3); new_cell (1, 3); both gradients 1. By hand: dcell =
// (1, 1 + (1 - tanh^2 3)/2); dG = [c/4, 0 | 0, tanh(3)/4 | 1/2, dcell_1]; its products with the rows of weights below.
TEST_CASE("lltm trap: backward reads the layout that forward wrote", "[lltm][trap]") {
  const double t3 = std::tanh(3.0), dcell = 1 + (1 - t3 * t3) / 2;
  const Values dg{0.5, 0, 0, t3 / 4, 0.5, dcell};
  for (const DType dtype : {DType::f32, DType::f64})
    for (const char* kernel : kernels("lltm_backward")) {
      Rng rng("lltm golden backward");
      const LltmCase c{.shape = {1, 1, 2}, .dtype = dtype};
      LltmTensors t(c, rng);
      LltmGradTensors g(c, rng);
      t.weights.set(Values{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18});
      t.gates.set(Values{0, 100, -100, 0, 2, 3});
      t.new_cell.set(Values{1, 3});
      t.old_h.set(Values{2, -3});
      t.input.set(Values{5});
      g.grad_h.set(Values{1, 1});
      g.grad_cell.set(Values{1, 1});
      const Result result =
          run("lltm_backward",
              {&g.grad_h, &g.grad_cell, &t.input, &t.weights, nullptr, &t.old_h, nullptr, nullptr, &t.new_cell, &t.gates}, g.all(),
              {}, kernel);
      if (result.was_declined()) continue;
      Values d_weights;
      for (const double d : dg) d_weights.insert(d_weights.end(), {2 * d, -3 * d, 5 * d});
      const Tolerance tolerance{.atol = 1e-30, .ulps = 32};
      expect_close(result, g.bias, dg, tolerance);
      expect_close(result, g.weights, d_weights, tolerance);
      expect_close(result, g.old_h,
                   Values{1 * dg[0] + 10 * dg[3] + 13 * dg[4] + 16 * dg[5], 2 * dg[0] + 11 * dg[3] + 14 * dg[4] + 17 * dg[5]},
                   tolerance);
      expect_close(result, g.input, Values{3 * dg[0] + 12 * dg[3] + 15 * dg[4] + 18 * dg[5]}, tolerance);
      expect_close(result, g.old_cell, Values{1, dcell}, tolerance);
    }
}

TEST_CASE("lltm trap: sums of 16-bit floats stop growing when they are kept in 16 bits", "[lltm][trap]") {
  for (const DType dtype : {DType::f16, DType::bf16})
    for (const char* kernel : kernels("lltm")) {
      Rng rng("lltm 16-bit sums");
      LltmTensors t({.shape = {3, 2992, 8}, .dtype = dtype}, rng);
      for (Tensor* one : {&t.input, &t.old_h, &t.weights, &t.bias}) one->set(Values(static_cast<size_t>(one->size()), 1));
      const Result result = run("lltm", t.forward_inputs(), {&t.new_h, &t.new_cell, &t.gates}, {}, kernel);
      if (result.was_declined()) continue;
      expect_close(result, t.gates, Values(static_cast<size_t>(t.gates.size()), 3001),
                   kExact);  // f16 would stop at 2048, bf16 at 256
    }
}

TEST_CASE("lltm trap: sums over the batch stop growing when they are kept in 16 bits", "[lltm][trap]") {
  for (const DType dtype : {DType::f16, DType::bf16})
    for (const char* kernel : kernels("lltm_backward")) {
      Rng rng("lltm 16-bit batch sums");
      const LltmCase c{.shape = {4096, 3, 2}, .dtype = dtype};
      LltmTensors t(c, rng);
      LltmGradTensors g(c, rng);
      for (Tensor* one : {&t.input, &t.old_h, &g.grad_cell}) one->set(Values(static_cast<size_t>(one->size()), 1));
      for (Tensor* zero : {&t.gates, &t.new_cell, &g.grad_h}) zero->set(Values(static_cast<size_t>(zero->size()), 0));
      const Result result =
          run("lltm_backward",
              {&g.grad_h, &g.grad_cell, &t.input, &t.weights, nullptr, &t.old_h, nullptr, nullptr, &t.new_cell, &t.gates}, g.all(),
              {}, kernel);
      if (result.was_declined()) continue;
      // dG = [0, 0, i * dcell * ELU'(0)] = [0, 0, 1/2], 4096 times.
      expect_close(result, g.bias, Values{0, 0, 0, 0, 2048, 2048}, {});
      expect_close(result, g.weights, Values{0, 0, 0, 0, 0, 0,    0,    0,    0,    0,    0,    0,    0,    0,    0,
                                             0, 0, 0, 0, 0, 2048, 2048, 2048, 2048, 2048, 2048, 2048, 2048, 2048, 2048},
                   {});
    }
}

TEST_CASE("lltm trap: activations saved in 16 bits spoil the derivatives", "[lltm][trap]") {
  // One row, so that each gradient of bias is one gate's: rounded once, it shows which activations it was made of.
  for (const DType dtype : {DType::f16, DType::bf16}) {
    Rng rng("lltm saved gates");
    check_lltm_backward({.shape = {1, 1, 200}, .dtype = dtype}, rng);
  }
}

// Gates that are subnormal in f32, of operands that are not. The gates that are saved are f32, and show them.
TEST_CASE("lltm trap: products of bf16 that are subnormal are flushed to zero", "[lltm][trap]") {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const char* kernel : kernels("lltm")) {
      Rng rng("lltm subnormal products");
      LltmTensors t({.shape = {20, 40, 24}, .dtype = dtype}, rng);
      for (Tensor* small : {&t.input, &t.old_h, &t.weights}) small->set(Values(static_cast<size_t>(small->size()), 0x1p-68));
      for (Tensor* zero : {&t.bias, &t.old_cell}) zero->set(Values(static_cast<size_t>(zero->size()), 0.0));
      const Result result = run("lltm", t.forward_inputs(), {&t.new_h, &t.new_cell, &t.gates}, {}, kernel);
      if (result.was_declined()) continue;
      expect_close(result, t.gates, Values(static_cast<size_t>(t.gates.size()), 64 * 0x1p-136), kExact);
    }
}
