// SPDX-License-Identifier: Apache-2.0
// lltm_sequence_backward.cpp -- the conformance suite of lltm_sequence_backward: against the reference, and what it must not read.
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

Example example(const SequenceCase& c) {
  Rng rng("lltm_sequence_backward example");
  SequenceTensors t(c, rng);
  Example e{.what = "lltm_sequence_backward", .op = "lltm_sequence_backward", .inputs = {}, .outputs = {}, .params = c.params()};
  const auto add = [&](DType dtype, std::vector<int64_t> dims) {
    e.inputs.push_back(std::make_unique<Tensor>(dtype, std::move(dims)));
    e.inputs.back()->fill_uniform(rng, -1, 1);
  };
  add(c.dtype, c.dims(c.shape.states)), add(c.dtype, c.state_dims()), add(c.dtype, c.state_dims());
  for (Tensor* in : {&t.input, &t.weights, &t.bias, &t.old_h, &t.old_cell})
    e.inputs.push_back(std::make_unique<Tensor>(std::move(*in)));
  e.inputs.push_back(nullptr);  // lengths
  if (!c.lengths.empty()) e.inputs.back() = std::make_unique<Tensor>(std::move(t.lengths));
  add(c.dtype, c.dims(c.shape.states));
  e.inputs.push_back(nullptr), e.inputs.push_back(nullptr);
  add(c.dtype, c.dims(c.shape.states, true)), add(accumulator(c.dtype), c.dims(3 * c.shape.states, true));
  for (size_t i = 3; i < 8; ++i) e.outputs.push_back(std::make_unique<Tensor>(c.dtype, e.inputs[i]->shape()));
  e.outputs.push_back(nullptr);
  return e;
}

const LaterOp kExample([](DType dtype, int64_t rows, int64_t columns) {
  return example({.shape = {3, rows, columns, std::min<int64_t>(columns, 33)}, .dtype = dtype});
});

}  // namespace

TEST_CASE("lltm_sequence_backward: sizes around every block", "[lltm_sequence][backward]") {
  for (const DType dtype : kFloatDTypes) {
    Rng rng("lltm_sequence_backward sizes");
    int number = 0;
    for (const int64_t states : {1, 3, 8, 15, 16, 17, 33, 100})
      for (const int64_t batch : {1, 2, 7, 8, 9, 17}) {
        ++number;
        check_sequence_backward({.shape = {2 + number % 3, batch, 1 + number % 20, states, number % 3 == 0},
                                 .dtype = dtype,
                                 .batch_first = number % 2 == 0,
                                 .recompute = number % 4 == 0,
                                 .bias = static_cast<Bias>(number % 3)},
                                rng);
      }
  }
}

TEST_CASE("lltm_sequence_backward: no steps, no rows, no features, no states", "[lltm_sequence][backward]") {
  for (const DType dtype : kFloatDTypes) {
    Rng rng("lltm_sequence_backward empty axes");
    for (const bool recompute : {false, true})
      for (const LltmSequence& shape :
           {LltmSequence{0, 3, 4, 5}, {4, 0, 3, 5}, {4, 3, 0, 5}, {4, 3, 5, 0}, {0, 3, 0, 5}, {0, 0, 0, 0}, {1, 1, 1, 1}})
        check_sequence_backward({.shape = shape, .dtype = dtype, .batch_first = recompute, .recompute = recompute}, rng);
  }
}

TEST_CASE("lltm_sequence_backward: layers as they are used, and a long sequence", "[lltm_sequence][backward]") {
  Rng rng("lltm_sequence_backward layers");
  for (const DType dtype : kFloatDTypes) check_sequence_backward({.shape = {6, 16, 32, 128}, .dtype = dtype}, rng);
  check_sequence_backward({.shape = {3, 150, 20, 32}, .dtype = DType::f32}, rng);
  check_sequence_backward({.shape = {600, 2, 3, 5}, .dtype = DType::f64, .batch_first = true}, rng);
}

TEST_CASE("lltm_sequence_backward: many states, many rows", "[lltm_sequence][backward][lengths]") {
  for (const DType dtype : kFloatDTypes)
    for (const LltmSequence& shape : {LltmSequence{4, 19, 9, 100, false}, {3, 300, 4, 40, true}, {3, 9, 4, 200, false}}) {
      Rng rng("lltm_sequence_backward many");
      SequenceCase c{.shape = shape, .dtype = dtype, .batch_first = shape.batch == 19};
      for (int64_t b = 0; b < shape.batch; ++b) c.lengths.push_back(rng.integer(0, shape.steps));
      check_sequence_backward(c, rng);
    }
}

TEST_CASE("lltm_sequence_backward: every length, in both directions", "[lltm_sequence][backward][lengths]") {
  for (const DType dtype : kFloatDTypes)
    for (const bool reverse : {false, true})
      for (const bool recompute : {false, true}) {
        Rng rng("lltm_sequence_backward lengths");
        check_sequence_backward({.shape = {5, 9, 6, 17, reverse},
                                 .dtype = dtype,
                                 .batch_first = reverse != recompute,
                                 .recompute = recompute,
                                 .lengths = {5, 0, 1, 2, 3, 4, 5, 3, 1}},
                                rng);
        check_sequence_backward({.shape = {4, 4, 3, 5, reverse}, .dtype = dtype, .recompute = recompute, .lengths = {0, 0, -1, 9}},
                                rng);
      }
}

TEST_CASE("lltm_sequence_backward: every subset of the outputs and of the gradients given", "[lltm_sequence][backward]") {
  for (const DType dtype : {DType::f32, DType::f16}) {
    Rng rng("lltm_sequence_backward subsets");
    const SequenceCase c{.shape = {3, 5, 6, 7}, .dtype = dtype};
    for (unsigned outputs = 1; outputs < 32; ++outputs) check_sequence_backward(c, rng, {.outputs = outputs});
    for (unsigned grads = 0; grads < 8; ++grads) check_sequence_backward(c, rng, {.grads = grads});
  }
}

TEST_CASE("lltm_sequence_backward: every layout of each tensor in turn", "[lltm_sequence][backward][layout]") {
  for (const DType dtype : kFloatDTypes) {
    Rng rng("lltm_sequence_backward layouts");
    for (const bool batch_first : {false, true})
      for (auto member : {&SequenceLayouts::input, &SequenceLayouts::sequence, &SequenceLayouts::gates, &SequenceLayouts::weights,
                          &SequenceLayouts::state}) {
        const bool matrix = member == &SequenceLayouts::weights || member == &SequenceLayouts::state;
        for (const Layout& layout : all_layouts(matrix ? 2 : 3, dtype)) {
          SequenceCase c{.shape = {3, 5, 6, 18}, .dtype = dtype, .batch_first = batch_first};
          if (batch_first) c.lengths = {3, 1, 2, 0, 3};
          c.layouts.*member = layout;
          check_sequence_backward(c, rng);
        }
      }
  }
}

TEST_CASE("lltm_sequence_backward: 60 seeded sizes with layouts and subsets of every kind", "[lltm_sequence][backward]") {
  Rng rng("lltm_sequence_backward sweep");
  for (int i = 0; i < 60; ++i) {
    SequenceCase c = random_sequence(rng, kFloatDTypes[i % 4]);
    c.recompute = rng.integer(0, 2) == 0;
    check_sequence_backward(
        c, rng, {.outputs = static_cast<unsigned>(rng.integer(1, 31)), .grads = static_cast<unsigned>(rng.integer(0, 7))});
  }
}

TEST_CASE("lltm_sequence_backward: the same bits again, and on any number of threads", "[lltm_sequence][backward][determinism]") {
  for (const DType dtype : kFloatDTypes)
    for (const LltmSequence& shape : {LltmSequence{3, 64, 70, 65}, {2, 1, 100, 120}, {5, 300, 5, 6}}) {
      const Example e = example({.shape = shape, .dtype = dtype});
      expect_same_bits("lltm_sequence_backward", e.input_pointers(), e.output_pointers(), e.params);
    }
}

TEST_CASE("lltm_sequence_backward trap: what padding holds reaches no gradient", "[lltm_sequence][backward][lengths][trap]") {
  for (const DType dtype : kFloatDTypes)
    for (const bool reverse : {false, true})
      for (const char* kernel : kernels("lltm_sequence_backward")) {
        const SequenceCase c{.shape = {4, 3, 5, 7, reverse}, .dtype = dtype, .lengths = {2, 4, 0}};
        const Example e = example(c);
        const Result clean = e.run(kernel);
        if (clean.was_declined()) continue;
        expect_ok(clean);
        const auto expected = output_values(e);
        for (const size_t i : {0, 3, 9, 12, 13}) {  // grad_h, input, h, cells, gates
          Values values = e.inputs[i]->values();
          const int64_t columns = e.inputs[i]->shape()[2];
          for (size_t at = 0; at < values.size(); ++at) {
            const auto row = static_cast<int64_t>(at) / columns;
            if (row / 3 >= c.lengths[static_cast<size_t>(row % 3)]) values[at] = std::numeric_limits<double>::quiet_NaN();
          }
          e.inputs[i]->set(values);
        }
        const Result result = e.run(kernel);
        for (size_t i = 0; i < 5; ++i) expect_close(result, *e.outputs[i], expected[i], {});
      }
}
