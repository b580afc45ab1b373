// SPDX-License-Identifier: Apache-2.0
// lltm_sequence_bad_input.cpp -- what lltm_sequence and lltm_sequence_backward refuse: the status, the argument, and a message with
// the argument's name, its value and what was expected. run() sees to it that a refused call wrote nothing.
#include <catch2/catch_test_macros.hpp>

#include "lltm_sequence_case.h"

using namespace narrows::test;

namespace {

Tensor zeros(DType dtype, std::vector<int64_t> shape) {
  Tensor t(dtype, std::move(shape));
  t.set(std::vector<double>(static_cast<size_t>(t.size()), 0.0));
  return t;
}

constexpr int32_t kInput = 0, kWeights = 1, kBias = 2, kOldH = 3, kOldCell = 4, kLengths = 5, kH = 6, kNewH = 7, kCells = 9,
                  kGates = 10;

// All good at T = 6, B = 4, F = 5, S = 3; a test replaces a tensor by its number.
struct Good {
  explicit Good(SequenceCase given = {.shape = {6, 4, 5, 3}, .lengths = {6, 1, 2, 3}})
      : c(std::move(given)), rng("lltm_sequence bad input"), t(c, rng) {}
  Result with(int32_t argument, const Tensor* other) {
    auto in = t.forward_inputs();
    in[static_cast<size_t>(argument)] = other;
    return run("lltm_sequence", in, t.outputs(), c.params());
  }
  Result with(int32_t argument, const Tensor& other) { return with(argument, &other); }
  Result with_output(int32_t argument, Tensor* other) {
    auto out = t.outputs();
    out[static_cast<size_t>(argument - kH)] = other;
    return run("lltm_sequence", t.forward_inputs(), out, c.params());
  }
  Result with_params(const nw_lltm_sequence_params& p) { return run("lltm_sequence", t.forward_inputs(), t.outputs(), Blob(p)); }

  SequenceCase c;
  Rng rng;
  SequenceTensors t;
};

}  // namespace

TEST_CASE("lltm_sequence bad input: the call that the others bend is good", "[lltm_sequence][bad]") {
  Good g;
  expect_ok(g.with(kInput, g.t.input));
  expect_ok(g.with(kLengths, nullptr));
  expect_ok(g.with(kBias, nullptr));
  expect_ok(g.with_output(kGates, nullptr));
}

TEST_CASE("lltm_sequence bad input: shapes", "[lltm_sequence][bad]") {
  Good g;
  expect_refused(g.with(kInput, zeros(DType::f32, {4, 5})), NW_INVALID, kInput, {"lltm_sequence", "input ", "(4, 5)", "expected"});
  expect_refused(g.with(kWeights, zeros(DType::f32, {9, 9})), NW_INVALID, kWeights, {"weights ", "(9, 9)", "expected", "8"});
  expect_refused(g.with(kBias, zeros(DType::f32, {8})), NW_INVALID, kBias, {"bias ", "(8,)", "expected", "9"});
  expect_refused(g.with(kOldH, zeros(DType::f32, {6, 3})), NW_INVALID, kOldH, {"old_h ", "(6, 3)", "expected", "4"});
  expect_refused(g.with(kOldCell, zeros(DType::f32, {4, 2})), NW_INVALID, kOldCell, {"old_cell ", "(4, 2)", "expected", "3"});
  expect_refused(g.with(kLengths, zeros(DType::i32, {6})), NW_INVALID, kLengths, {"lengths ", "(6,)", "expected", "4"});
  Tensor wide(DType::f32, {6, 4, 4}), flat(DType::f32, {3, 4});
  expect_refused(g.with_output(kH, &wide), NW_INVALID, kH, {"h ", "(6, 4, 4)", "expected (6, 4, 3)"});
  expect_refused(g.with_output(kNewH, &flat), NW_INVALID, kNewH, {"new_h ", "(3, 4)", "expected (4, 3)"});
}

// The batch is the second axis, or the first one: a state of the other one is refused.
TEST_CASE("lltm_sequence bad input: the batch of the other axis", "[lltm_sequence][bad]") {
  Good g({.shape = {6, 4, 5, 3}, .batch_first = true});
  expect_ok(g.with(kInput, g.t.input));
  expect_refused(g.with(kOldH, zeros(DType::f32, {6, 3})), NW_INVALID, kOldH,
                 {"old_h ", "(6, 3)", "expected a batch of 4", "batch_first = 1"});
}

TEST_CASE("lltm_sequence bad input: dtypes", "[lltm_sequence][bad]") {
  Good g;
  expect_refused(g.with(kWeights, zeros(DType::f64, {9, 8})), NW_INVALID, kWeights, {"weights ", "float64", "expected float32"});
  expect_refused(g.with(kInput, zeros(DType::i32, {6, 4, 5})), NW_INVALID, kInput, {"input ", "int32", "expected float32"});
  for (const DType dtype : {DType::i64, DType::u32, DType::f32})
    expect_refused(g.with(kLengths, zeros(dtype, {4})), NW_INVALID, kLengths, {"lengths ", "dtype", "expected int32"});
  Tensor h(DType::f64, {6, 4, 3}), gates(DType::f16, {6, 4, 9});
  expect_refused(g.with_output(kH, &h), NW_INVALID, kH, {"h ", "float64", "expected float32"});
  expect_refused(g.with_output(kGates, &gates), NW_INVALID, kGates, {"gates ", "float16", "expected float32"});
}

TEST_CASE("lltm_sequence bad input: params", "[lltm_sequence][bad]") {
  Good g;
  expect_refused(g.with_params({2, 0, 0}), NW_INVALID, -1, {"batch_first = 2", "expected 0 or 1"});
  expect_refused(g.with_params({0, -1, 0}), NW_INVALID, -1, {"reverse = -1", "expected 0 or 1"});
  expect_refused(g.with_params({0, 0, 3}), NW_INVALID, -1, {"recompute = 3", "expected 0 or 1"});
  expect_refused(g.with_params({0, 0, 1}), NW_INVALID, kCells, {"cells ", "(6, 4, 3)", "expected (0, 4, 3)"});
  std::vector<unsigned char> longer(sizeof(nw_lltm_sequence_params) + 4);
  longer[sizeof(nw_lltm_sequence_params) + 2] = 1;
  expect_refused(run("lltm_sequence", g.t.forward_inputs(), g.t.outputs(), Blob(longer)), NW_UNSUPPORTED, -1,
                 {"params", "byte 26"});
  expect_refused(run("lltm_sequence", g.t.forward_inputs(), g.t.outputs(), {}, "no such kernel"), NW_UNSUPPORTED, -1,
                 {"no such kernel"});
}

TEST_CASE("lltm_sequence bad input: absent tensors, and shared memory", "[lltm_sequence][bad]") {
  Good g;
  for (const auto& [i, name] :
       {std::pair<int32_t, const char*>{kInput, "input "}, {kWeights, "weights "}, {kOldH, "old_h "}, {kOldCell, "old_cell "}})
    expect_refused(g.with(i, nullptr), NW_INVALID, i, {name, "absent", "expected"});
  expect_refused(g.with_output(kH, nullptr), NW_INVALID, kH, {"h ", "NULL", "expected"});
  Tensor on_old_h(g.t.old_h, DType::f32, {4, 3}, {3, 1}, 0), on_h(g.t.h, DType::f32, {4, 3}, {3, 1}, 8);
  expect_refused(g.with_output(kNewH, &on_old_h), NW_INVALID, kNewH, {"new_h ", "old_h"});
  expect_refused(g.with_output(kNewH, &on_h), NW_INVALID, kNewH, {"new_h ", "overlaps"});
}

TEST_CASE("lltm_sequence_backward bad input: what was saved, and lengths without a gradient", "[lltm_sequence][backward][bad]") {
  Good g;
  Tensor d_lengths(DType::i32, {4}), d_old_h(DType::f32, {4, 3}), f64_gates = zeros(DType::f64, {6, 4, 9});
  for (Tensor* saved : {&g.t.h, &g.t.cells, &g.t.gates}) saved->fill_uniform(g.rng, -1, 1);
  const auto call = [&](const Tensor* old_cell, const Tensor* cells, const Tensor* gates, Tensor* to_lengths, int64_t recompute) {
    const nw_lltm_sequence_params p{0, 0, recompute};
    return run("lltm_sequence_backward",
               {&g.t.h, nullptr, nullptr, &g.t.input, &g.t.weights, &g.t.bias, &g.t.old_h, old_cell, &g.t.lengths, &g.t.h, nullptr,
                nullptr, cells, gates},
               {nullptr, nullptr, nullptr, &d_old_h, nullptr, to_lengths}, Blob(p));
  };
  expect_ok(call(nullptr, &g.t.cells, &g.t.gates, nullptr, 0));
  expect_ok(call(&g.t.old_cell, nullptr, nullptr, nullptr, 1));
  expect_refused(call(nullptr, nullptr, &g.t.gates, nullptr, 0), NW_INVALID, 12, {"cells ", "absent", "recompute = 0"});
  expect_refused(call(nullptr, &g.t.cells, nullptr, nullptr, 0), NW_INVALID, 13, {"gates ", "absent", "recompute = 0"});
  expect_refused(call(nullptr, nullptr, nullptr, nullptr, 1), NW_INVALID, 7, {"old_cell ", "absent", "recompute = 1"});
  expect_refused(call(&g.t.old_cell, &g.t.cells, &g.t.gates, nullptr, 1), NW_INVALID, 12, {"cells ", "(6, 4, 3)", "expected"});
  expect_refused(call(nullptr, &g.t.cells, &f64_gates, nullptr, 0), NW_INVALID, 13, {"gates ", "float64", "expected float32"});
  expect_refused(call(nullptr, &g.t.cells, &g.t.gates, &d_lengths, 0), NW_INVALID, 19,
                 {"d_lengths", "no gradient", "expected NULL"});
}
