// SPDX-License-Identifier: Apache-2.0
// lltm_sequence.cpp -- the conformance suite of lltm_sequence: sizes, layouts, lengths and directions against the reference, and
// against calls of lltm; and the mistakes that a loop over steps invites, as traps.
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>

#include "conformance/call_examples.h"
#include "conformance/threads.h"
#include "lltm_sequence_case.h"

using namespace narrows::test;
using narrows::reference::LltmSequence;

namespace {

using Values = std::vector<double>;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// For the tests that are about calls and not about numbers.
const LaterOp kExample([](DType dtype, int64_t rows, int64_t columns) {
  Rng rng("lltm_sequence example");
  const SequenceCase c{.shape = {3, rows, columns, std::min<int64_t>(columns, 33)}, .dtype = dtype};
  SequenceTensors t(c, rng);
  Example e{.what = "lltm_sequence", .op = "lltm_sequence", .inputs = {}, .outputs = {}, .params = c.params()};
  for (Tensor* in : {&t.input, &t.weights, &t.bias, &t.old_h, &t.old_cell})
    e.inputs.push_back(std::make_unique<Tensor>(std::move(*in)));
  for (Tensor* out : t.outputs()) e.outputs.push_back(std::make_unique<Tensor>(std::move(*out)));
  return e;
});

}  // namespace

// The cell that lltm.cpp computes by hand, twice: S = F = 1; weights rows (h, x). All gates of step 0 are 0, 0, 4 as there.
TEST_CASE("lltm_sequence: two steps computed by hand", "[lltm_sequence]") {
  const double cell0 = 3, h0 = std::tanh(3.0) / 2;
  for (const DType dtype : {DType::f32, DType::f64})
    for (const bool reverse : {false, true})
      for (const char* kernel : kernels("lltm_sequence")) {
        Rng rng("lltm_sequence by hand");
        SequenceTensors t({.shape = {2, 1, 1, 1, reverse}, .dtype = dtype}, rng);
        t.old_h.set(Values{2});
        t.old_cell.set(Values{1});
        t.input.set(reverse ? Values{-1, 3} : Values{3, -1});
        t.weights.set(Values{1, -1, 0.5, -0.5, 1, 1});
        t.bias.set(Values{1, 0.5, -1});
        const Result result = run("lltm_sequence", t.forward_inputs(), t.outputs(), t.c.params(), kernel);
        if (result.was_declined()) continue;
        const double i = 1 / (1 + std::exp(-(h0 + 2))), o = 1 / (1 + std::exp(-(h0 / 2 + 1))), c = std::expm1(h0 - 2);
        const double cell1 = cell0 + c * i, h1 = std::tanh(cell1) * o;
        const Tolerance tolerance{.ulps = 16};
        expect_close(result, t.h, reverse ? Values{h1, h0} : Values{h0, h1}, tolerance);
        expect_close(result, t.new_h, Values{h1}, tolerance);
        expect_close(result, t.new_cell, Values{cell1}, tolerance);
      }
}

TEST_CASE("lltm_sequence reference: T steps are T cells", "[lltm_sequence][reference]") {
  const narrows::reference::LltmSequenceInputs in{{3, -1}, {1, -1, 0.5, -0.5, 1, 1}, {1, 0.5, -1}, {2}, {1}, {}};
  const auto out = narrows::reference::lltm_sequence({2, 1, 1, 1, false}, in);
  const auto cell = narrows::reference::lltm({1, 1, 1}, {{-1}, in.weights, in.bias, {out.h[0]}, {out.cells[0]}});
  CHECK(out.gates[2] == 4);
  CHECK(out.cells[0] == 3);
  CHECK(out.new_h == cell.new_h);
  CHECK(out.new_cell == cell.new_cell);
}

TEST_CASE("lltm_sequence: sizes around every block", "[lltm_sequence]") {
  for (const DType dtype : kFloatDTypes) {
    Rng rng("lltm_sequence sizes");
    int number = 0;
    for (const int64_t states : {1, 3, 7, 8, 15, 16, 17, 33, 50, 200})
      for (const int64_t batch : {1, 2, 5, 8, 9, 17})
        for (const int64_t features : {1, 16, 33}) {
          if (states == 200 && (batch % 8 != 1 || features != 16)) continue;  // the reference takes its time
          ++number;
          check_sequence({.shape = {2 + number % 2, batch, features, states, number % 3 == 0},
                          .dtype = dtype,
                          .batch_first = number % 2 == 0,
                          .with_saved = number % 4 != 0,
                          .bias = static_cast<Bias>(number % 3)},
                         rng);
        }
  }
}

TEST_CASE("lltm_sequence: no steps, no rows, no features, no states", "[lltm_sequence]") {
  for (const DType dtype : kFloatDTypes) {
    Rng rng("lltm_sequence empty axes");
    for (const bool batch_first : {false, true})
      for (const LltmSequence& shape :
           {LltmSequence{0, 3, 4, 5}, {4, 0, 3, 5}, {4, 3, 0, 5}, {4, 3, 5, 0}, {0, 3, 0, 5}, {0, 0, 0, 0}, {1, 1, 1, 1}})
        check_sequence({.shape = shape, .dtype = dtype, .batch_first = batch_first}, rng);
  }
}

TEST_CASE("lltm_sequence: layers as they are used, and a long sequence", "[lltm_sequence]") {
  Rng rng("lltm_sequence layers");
  for (const DType dtype : kFloatDTypes) check_sequence({.shape = {9, 16, 32, 128}, .dtype = dtype}, rng);
  check_sequence({.shape = {5, 150, 20, 32}, .dtype = DType::f32}, rng);
  check_sequence({.shape = {3000, 2, 3, 5}, .dtype = DType::f32, .batch_first = true}, rng);
}

TEST_CASE("lltm_sequence: every length, in both directions", "[lltm_sequence][lengths]") {
  for (const DType dtype : kFloatDTypes)
    for (const bool reverse : {false, true})
      for (const bool batch_first : {false, true}) {
        Rng rng("lltm_sequence lengths");
        check_sequence(
            {.shape = {5, 9, 6, 17, reverse}, .dtype = dtype, .batch_first = batch_first, .lengths = {5, 0, 1, 2, 3, 4, 5, 3, 1}},
            rng);
        check_sequence({.shape = {4, 2, 3, 5, reverse}, .dtype = dtype, .batch_first = batch_first, .lengths = {0, 0}}, rng);
      }
}

// A kernel may share the states of a row, and the rows of a batch, among groups that go their own ways through the steps.
TEST_CASE("lltm_sequence: many states, many rows, many features", "[lltm_sequence][lengths]") {
  for (const DType dtype : kFloatDTypes)
    for (const LltmSequence& shape : {LltmSequence{5, 37, 33, 100, false}, {4, 300, 8, 40, true}, {3, 9, 600, 65, true}}) {
      Rng rng("lltm_sequence many");
      SequenceCase c{.shape = shape, .dtype = dtype, .batch_first = shape.batch == 37};
      check_sequence(c, rng);
      for (int64_t b = 0; b < shape.batch; ++b) c.lengths.push_back(rng.integer(0, shape.steps));
      check_sequence(c, rng);
    }
}

TEST_CASE("lltm_sequence: lengths outside of the sequence count as its ends", "[lltm_sequence][lengths]") {
  for (const bool reverse : {false, true}) {
    Rng rng("lltm_sequence clamped");
    check_sequence({.shape = {4, 4, 3, 5, reverse}, .lengths = {-1, 5, 2147483647, -2147483648}}, rng);
  }
}

TEST_CASE("lltm_sequence: every layout of each tensor in turn", "[lltm_sequence][layout]") {
  for (const DType dtype : kFloatDTypes) {
    Rng rng("lltm_sequence layouts");
    for (const bool batch_first : {false, true}) {
      const SequenceCase plain{.shape = {3, 5, 6, 18}, .dtype = dtype, .batch_first = batch_first};
      for (auto member : {&SequenceLayouts::input, &SequenceLayouts::sequence, &SequenceLayouts::gates, &SequenceLayouts::weights,
                          &SequenceLayouts::state}) {
        const bool matrix = member == &SequenceLayouts::weights || member == &SequenceLayouts::state;
        for (const Layout& layout : all_layouts(matrix ? 2 : 3, dtype)) {
          SequenceCase c = plain;
          c.layouts.*member = layout;
          check_sequence(c, rng);
        }
      }
      for (const Layout& layout : all_layouts(1, DType::i32)) {
        SequenceCase c = plain;
        c.lengths = {1, 3, 0, 2, 3}, c.layouts.lengths = layout;
        check_sequence(c, rng);
      }
    }
  }
}

TEST_CASE("lltm_sequence: 60 seeded sizes with layouts of every kind", "[lltm_sequence]") {
  Rng rng("lltm_sequence sweep");
  for (int i = 0; i < 60; ++i) check_sequence(random_sequence(rng, kFloatDTypes[i % 4]), rng);
}

TEST_CASE("lltm_sequence: what T calls of lltm give", "[lltm_sequence]") {
  for (const DType dtype : kFloatDTypes)
    for (const char* kernel : kernels("lltm_sequence")) {
      Rng rng("lltm_sequence calls");
      SequenceTensors t({.shape = {6, 10, 12, 40}, .dtype = dtype}, rng);
      const Result result = run("lltm_sequence", t.forward_inputs(), t.outputs(), t.c.params(), kernel);
      if (result.was_declined()) continue;
      Tensor input(dtype, {10, 12}), h(dtype, {10, 40}), cell(dtype, {10, 40}), new_h(dtype, {10, 40}), new_cell(dtype, {10, 40});
      h.set(t.old_h.values()), cell.set(t.old_cell.values());
      const Values sequence = t.input.values();
      Values all;
      for (int64_t step = 0; step < 6; ++step) {
        input.set(Values(sequence.begin() + step * 120, sequence.begin() + (step + 1) * 120));
        expect_ok(run("lltm", {&input, &t.weights, &t.bias, &h, &cell}, {&new_h, &new_cell, nullptr}));
        const Values next = new_h.values();
        all.insert(all.end(), next.begin(), next.end());
        h.set(next), cell.set(new_cell.values());
      }
      const double eps = static_cast<double>(epsilon(dtype));
      expect_close(result, t.h, all, {.atol = 64 * eps, .l2 = 16 * eps});
      expect_close(result, t.new_cell, cell.values(), {.rtol = 64 * eps, .atol = 64 * eps, .l2 = 16 * eps});
    }
}

TEST_CASE("lltm_sequence: with `recompute` nothing is saved", "[lltm_sequence]") {
  for (const char* kernel : kernels("lltm_sequence")) {
    Rng rng("lltm_sequence recompute");
    SequenceTensors saving({.shape = {4, 3, 5, 7}}, rng);
    SequenceTensors not_saving({.shape = {4, 3, 5, 7}, .recompute = true}, rng);
    const Result result = run("lltm_sequence", saving.forward_inputs(), saving.outputs(), saving.c.params(), kernel);
    if (result.was_declined()) continue;
    expect_ok(result);
    CHECK(not_saving.cells.size() == 0);
    const Result again = run("lltm_sequence", saving.forward_inputs(), not_saving.outputs(), not_saving.c.params(), kernel);
    expect_close(again, not_saving.h, saving.h.values(), {.atol = 1e-6, .l2 = 1e-6});
    expect_close(again, not_saving.new_cell, saving.new_cell.values(), {.atol = 1e-6, .l2 = 1e-6});
  }
}

TEST_CASE("lltm_sequence: the same bits again, and on any number of threads", "[lltm_sequence][determinism]") {
  for (const DType dtype : kFloatDTypes)
    for (const LltmSequence& shape : {LltmSequence{3, 64, 70, 65}, {2, 1, 300, 200}, {5, 300, 5, 6}}) {
      Rng rng("lltm_sequence determinism");
      SequenceTensors t({.shape = shape, .dtype = dtype}, rng);
      expect_same_bits("lltm_sequence", t.forward_inputs(), t.outputs(), t.c.params());
    }
}

TEST_CASE("lltm_sequence trap: what padding holds reaches nothing", "[lltm_sequence][lengths][trap]") {
  for (const DType dtype : kFloatDTypes)
    for (const bool reverse : {false, true})
      for (const char* kernel : kernels("lltm_sequence")) {
        Rng rng("lltm_sequence padding");
        SequenceTensors t({.shape = {4, 3, 5, 7, reverse}, .dtype = dtype, .lengths = {2, 4, 0}}, rng);
        const Result clean = run("lltm_sequence", t.forward_inputs(), t.outputs(), t.c.params(), kernel);
        if (clean.was_declined()) continue;
        expect_ok(clean);
        const Values h = t.h.values(), new_h = t.new_h.values(), cells = t.cells.values(), gates = t.gates.values();
        Values input = t.input.values();
        for (int64_t step = 0; step < 4; ++step)
          for (int64_t b = 0; b < 3; ++b)
            for (int64_t f = 0; f < 5 && step >= t.c.lengths[static_cast<size_t>(b)]; ++f)
              input[static_cast<size_t>((step * 3 + b) * 5 + f)] = kNaN;
        t.input.set(input);
        const Result result = run("lltm_sequence", t.forward_inputs(), t.outputs(), t.c.params(), kernel);
        expect_close(result, t.h, h, {});
        expect_close(result, t.new_h, new_h, {});
        expect_close(result, t.cells, cells, {});
        expect_close(result, t.gates, gates, {});
      }
}

TEST_CASE("lltm_sequence trap: a NaN in one row stays in that row, from its step on", "[lltm_sequence][trap]") {
  for (const DType dtype : kFloatDTypes)
    for (const char* kernel : kernels("lltm_sequence")) {
      Rng rng("lltm_sequence NaN");
      SequenceTensors t({.shape = {4, 9, 5, 7}, .dtype = dtype}, rng);
      Values input = t.input.values();
      input[(2 * 9 + 3) * 5 + 1] = kNaN;  // step 2, row 3
      t.input.set(input);
      const Result result = run("lltm_sequence", t.forward_inputs(), t.outputs(), t.c.params(), kernel);
      if (result.was_declined()) continue;
      expect_ok(result);
      const Values h = t.h.values();
      size_t wrong = 0;
      for (size_t i = 0; i < h.size(); ++i) wrong += std::isnan(h[i]) != (i / 63 >= 2 && i / 7 % 9 == 3);
      CHECK(wrong == 0);
    }
}

// h is small beside the cell; a state that is kept in more digits than h and new_cell have gives other gates at the next step.
TEST_CASE("lltm_sequence trap: a state of 16 bits that is carried on in 32", "[lltm_sequence][trap]") {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    Rng rng("lltm_sequence carried");
    check_sequence({.shape = {24, 4, 3, 24}, .dtype = dtype}, rng);
  }
}
