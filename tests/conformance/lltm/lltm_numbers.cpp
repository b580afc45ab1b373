// SPDX-License-Identifier: Apache-2.0
// lltm_numbers.cpp -- traps for kernels that compute an f32 product by parts, as matrix units do. conv1d_numbers.cpp has the kinds;
// here the gates, which are sums of products and nothing else, are looked at.
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <functional>

#include "lltm_case.h"

using namespace narrows::test;

namespace {

using Values = std::vector<double>;
using Make = std::function<double(Rng&, size_t)>;  // the i-th element

void fill(Tensor& t, Rng& rng, const Make& make) {
  Values values(static_cast<size_t>(t.size()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(rounded(t.dtype(), make(rng, i)));
  t.set(values);
}

void check_gates(const narrows::reference::Lltm& shape, const Make& of_x, const Make& of_w) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    Rng rng("lltm numbers");
    const LltmCase c{.shape = shape, .dtype = dtype};
    LltmTensors t(c, rng);
    for (Tensor* x : {&t.input, &t.old_h}) fill(*x, rng, of_x);
    fill(t.weights, rng, of_w);
    for (Tensor* zero : {&t.bias, &t.old_cell}) fill(*zero, rng, [](Rng&, size_t) { return 0.0; });
    auto in = t.inputs();
    const Values gates = narrows::reference::lltm(shape, in).gates;
    for (Values* of : {&in.input, &in.old_h, &in.weights}) *of = absolute(*of);
    const Values bound = sum_bound(dtype, narrows::reference::lltm(shape, in).gates, c.depth());
    for (const char* kernel : kernels("lltm")) {
      const Result result = run("lltm", t.forward_inputs(), {&t.new_h, &t.new_cell, &t.gates}, {}, kernel);
      if (!result.was_declined()) expect_within(result, t.gates, gates, bound);
    }
  }
}

double signed_unit(Rng& rng, size_t) { return rng.uniform(-1, 1); }

}  // namespace

TEST_CASE("lltm trap: long sums of one sign are cut off, not rounded", "[lltm][trap]") {
  const Make positive = [](Rng& rng, size_t) { return rng.uniform(0.5, 1); };
  check_gates({20, 3000, 40}, positive, positive);
}

TEST_CASE("lltm trap: a number times 1 is another number", "[lltm][trap]") {
  // A gate has one weight that is not 0, and elements 24 significant bits: nothing is rounded.
  const narrows::reference::Lltm shape{70, 40, 56};
  const Make one = [](Rng&, size_t i) { return i % 96 == 7 * (i / 96) % 96 ? 1.0 : 0.0; };
  Rng rng("lltm times 1");
  LltmTensors t({.shape = shape}, rng);
  for (Tensor* x : {&t.input, &t.old_h})
    fill(*x, rng, [](Rng& r, size_t) { return 1 + static_cast<double>(r.integer(0, (1 << 23) - 1)) * 0x1p-23; });
  fill(t.weights, rng, one);
  fill(t.bias, rng, [](Rng&, size_t) { return 0.0; });
  const Values gates = narrows::reference::lltm(shape, t.inputs()).gates;
  for (const char* kernel : kernels("lltm")) {
    const Result result = run("lltm", t.forward_inputs(), {&t.new_h, &t.new_cell, &t.gates}, {}, kernel);
    if (!result.was_declined()) expect_close(result, t.gates, gates, kExact);
  }
}

TEST_CASE("lltm trap: rows and elements of very different sizes, large and subnormal ones", "[lltm][trap]") {
  const narrows::reference::Lltm shape{70, 40, 56};
  const Make rows = [](Rng& rng, size_t i) { return std::ldexp(rng.uniform(-1, 1), i / 96 % 2 == 0 ? 60 : -60); };
  const Make elements = [](Rng& rng, size_t) { return std::ldexp(rng.uniform(-1, 1), static_cast<int>(rng.integer(-20, 20))); };
  const Make large = [](Rng& rng, size_t) { return rng.integer(0, 1) == 0 ? 0x1.fffffep127 : -0x1.fffffep127; };
  const Make small = [](Rng& rng, size_t) { return rng.uniform(-1, 1) * 0x1p-12; };
  const Make subnormal = [](Rng& rng, size_t) { return static_cast<double>(rng.integer(-255, 255)) * 0x1p-149; };
  const Make whole = [](Rng& rng, size_t) { return static_cast<double>(rng.integer(-8, 8)); };
  check_gates(shape, signed_unit, rows);
  check_gates(shape, elements, elements);
  check_gates(shape, large, small);
  check_gates(shape, small, large);
  check_gates(shape, subnormal, whole);
  check_gates(shape, whole, subnormal);
}
