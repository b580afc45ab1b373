// SPDX-License-Identifier: Apache-2.0
// lltm_bad_input.cpp -- what lltm and lltm_backward refuse: the status, the argument, and a message with the argument's name, its
// value and what was expected. run() sees to it that a refused call wrote nothing.
#include <catch2/catch_test_macros.hpp>

#include "lltm_case.h"

using namespace narrows::test;

namespace {

constexpr int32_t kInput = 0, kWeights = 1, kBias = 2, kOldH = 3, kOldCell = 4, kNewH = 5, kNewCell = 6, kGates = 7;
constexpr int64_t kB = 4, kF = 5, kS = 3;

Tensor zeros(DType dtype, std::vector<int64_t> shape) {
  Tensor t(dtype, std::move(shape));
  t.set(std::vector<double>(static_cast<size_t>(t.size()), 0.0));
  return t;
}

// All good at B = 4, F = 5, S = 3; a test replaces a tensor by its number.
struct Good {
  explicit Good(DType dtype = DType::f32) : c{.shape = {kB, kF, kS}, .dtype = dtype}, rng("lltm bad input"), t(c, rng) {}

  Result with(int32_t argument, const Tensor* other) {
    std::vector<const Tensor*> in = t.forward_inputs();
    in[static_cast<size_t>(argument)] = other;
    return run("lltm", in, {&t.new_h, &t.new_cell, &t.gates});
  }
  Result with(int32_t argument, const Tensor& other) { return with(argument, &other); }
  Result with_output(int32_t argument, Tensor* other) {
    std::vector<Tensor*> out{&t.new_h, &t.new_cell, &t.gates};
    out[static_cast<size_t>(argument - kNewH)] = other;
    return run("lltm", t.forward_inputs(), out);
  }

  LltmCase c;
  Rng rng;
  LltmTensors t;
};

constexpr int32_t kGradH = 0, kGradCell = 1, kSavedInput = 2, kSavedWeights = 3, kSavedOldH = 5, kSavedNewCell = 8, kSavedGates = 9,
                  kDInput = 10, kDWeights = 11, kDBias = 12, kDOldH = 13, kDOldCell = 14;

struct GoodBackward {
  explicit GoodBackward(DType dtype = DType::f32) : good(dtype), g(good.c, good.rng) {
    good.t.gates.fill_uniform(good.rng, -1, 1);
    good.t.new_cell.fill_uniform(good.rng, -1, 1);
    good.t.new_h.fill_uniform(good.rng, -1, 1);
    in = {&g.grad_h,     &g.grad_cell,     &good.t.input, &good.t.weights,  &good.t.bias,
          &good.t.old_h, &good.t.old_cell, &good.t.new_h, &good.t.new_cell, &good.t.gates};
    out = g.all();
  }
  Result with(int32_t argument, const Tensor* other) {
    auto changed = in;
    changed[static_cast<size_t>(argument)] = other;
    return run("lltm_backward", changed, out);
  }
  Result with(int32_t argument, const Tensor& other) { return with(argument, &other); }
  Result with_output(int32_t argument, Tensor& other) {
    auto changed = out;
    changed[static_cast<size_t>(argument) - in.size()] = &other;
    return run("lltm_backward", in, changed);
  }

  Good good;
  LltmGradTensors g;
  std::vector<const Tensor*> in;
  std::vector<Tensor*> out;
};

}  // namespace

TEST_CASE("lltm bad input: the calls that the others bend are good", "[lltm][bad]") {
  Good g;
  expect_ok(g.with(kInput, g.t.input));
  GoodBackward b;
  expect_ok(b.with(kGradH, b.g.grad_h));
}

TEST_CASE("lltm bad input: wrong ranks", "[lltm][bad]") {
  Good g;
  expect_refused(g.with(kInput, zeros(DType::f32, {})), NW_INVALID, kInput, {"lltm", "input ", "()", "expected", "(B, F)"});
  expect_refused(g.with(kInput, zeros(DType::f32, {kF})), NW_INVALID, kInput, {"input ", "(5,)", "expected", "(B, F)"});
  expect_refused(g.with(kInput, zeros(DType::f32, {1, kB, kF})), NW_INVALID, kInput, {"input ", "(1, 4, 5)", "expected"});
  expect_refused(g.with(kWeights, zeros(DType::f32, {72})), NW_INVALID, kWeights, {"weights ", "(72,)", "expected"});
  expect_refused(g.with(kBias, zeros(DType::f32, {})), NW_INVALID, kBias, {"bias ", "()", "expected"});
  expect_refused(g.with(kBias, zeros(DType::f32, {1, 1, 9})), NW_INVALID, kBias, {"bias ", "(1, 1, 9)", "expected"});
  expect_refused(g.with(kOldH, zeros(DType::f32, {kS})), NW_INVALID, kOldH, {"old_h ", "(3,)", "expected"});
  expect_refused(g.with(kOldCell, zeros(DType::f32, {kB, kS, 1})), NW_INVALID, kOldCell, {"old_cell ", "(4, 3, 1)", "expected"});
}

TEST_CASE("lltm bad input: shapes that do not fit", "[lltm][bad]") {
  Good g;
  expect_refused(g.with(kWeights, zeros(DType::f32, {9, 7})), NW_INVALID, kWeights, {"weights ", "(9, 7)", "expected", "8"});
  expect_refused(g.with(kWeights, zeros(DType::f32, {8, 9})), NW_INVALID, kWeights, {"weights ", "(8, 9)", "expected", "9"});
  expect_refused(g.with(kWeights, zeros(DType::f32, {8, 8})), NW_INVALID, kWeights, {"weights ", "(8, 8)", "expected", "9"});
  expect_refused(g.with(kBias, zeros(DType::f32, {8})), NW_INVALID, kBias, {"bias ", "(8,)", "expected", "9"});
  expect_refused(g.with(kBias, zeros(DType::f32, {2, 9})), NW_INVALID, kBias, {"bias ", "(2, 9)", "expected", "1"});
  expect_refused(g.with(kBias, zeros(DType::f32, {kB, 9})), NW_INVALID, kBias, {"bias ", "(4, 9)", "expected", "1"});
  expect_refused(g.with(kOldH, zeros(DType::f32, {5, kS})), NW_INVALID, kOldH, {"old_h ", "(5, 3)", "expected", "4"});
  expect_refused(g.with(kOldCell, zeros(DType::f32, {kB, 4})), NW_INVALID, kOldCell, {"old_cell ", "(4, 4)", "expected", "3"});
}

TEST_CASE("lltm bad input: dtypes", "[lltm][bad]") {
  Good g;
  expect_refused(g.with(kWeights, zeros(DType::f64, {9, 8})), NW_INVALID, kWeights, {"weights ", "float64", "expected float32"});
  expect_refused(g.with(kBias, zeros(DType::f16, {9})), NW_INVALID, kBias, {"bias ", "float16", "expected float32"});
  expect_refused(g.with(kOldH, zeros(DType::bf16, {kB, kS})), NW_INVALID, kOldH, {"old_h ", "bfloat16", "expected float32"});
  expect_refused(g.with(kOldCell, zeros(DType::f64, {kB, kS})), NW_INVALID, kOldCell, {"old_cell ", "float64", "expected float32"});
  for (const DType dtype :
       {DType::i8, DType::i16, DType::i32, DType::i64, DType::u8, DType::u16, DType::u32, DType::u64, DType::boolean})
    expect_refused(g.with(kInput, zeros(dtype, {kB, kF})), NW_INVALID, kInput, {"input ", "dtype", "expected float32"});
}

TEST_CASE("lltm bad input: dtypes that DLPack knows and no op takes", "[lltm][bad]") {
  Good g;
  for (const ForeignDType& foreign : kForeignDTypes) {
    Tensor input = zeros(foreign.memory, {kB, kF});
    input.dl()->dtype = foreign.dtype;
    expect_refused(g.with(kInput, input), NW_INVALID, kInput,
                   {"lltm: input has dtype", foreign.name, "expected float32, float64, float16 or bfloat16"});
  }
}

TEST_CASE("lltm bad input: outputs of another shape or dtype", "[lltm][bad]") {
  Good g;
  Tensor wide(DType::f32, {kB, 4}), flat(DType::f32, {kB * kS}), narrow(DType::f32, {kB, 2 * kS}), f64(DType::f64, {kB, kS});
  expect_refused(g.with_output(kNewH, &wide), NW_INVALID, kNewH, {"new_h ", "(4, 4)", "expected (4, 3)"});
  expect_refused(g.with_output(kNewH, &flat), NW_INVALID, kNewH, {"new_h ", "(12,)", "expected (4, 3)"});
  expect_refused(g.with_output(kNewCell, &f64), NW_INVALID, kNewCell, {"new_cell ", "float64", "expected float32"});
  expect_refused(g.with_output(kGates, &narrow), NW_INVALID, kGates, {"gates ", "(4, 6)", "expected (4, 9)"});
}

TEST_CASE("lltm bad input: gates of 16-bit tensors are float32, those of float64 float64", "[lltm][bad]") {
  for (const DType dtype : {DType::f16, DType::bf16, DType::f64}) {
    Good g(dtype);
    const char* const expected = dtype == DType::f64 ? "expected float64" : "expected float32";
    for (const DType wrong : {dtype == DType::f64 ? DType::f32 : dtype, DType::i32}) {
      Tensor gates(wrong, {kB, 3 * kS});
      expect_refused(g.with_output(kGates, &gates), NW_INVALID, kGates, {"gates ", "dtype", expected});
    }
    GoodBackward b(dtype);
    expect_refused(b.with(kSavedGates, zeros(dtype == DType::f64 ? DType::f32 : dtype, {kB, 3 * kS})), NW_INVALID, kSavedGates,
                   {"gates ", "dtype", expected});
  }
}

TEST_CASE("lltm bad input: absent tensors, too many, too few", "[lltm][bad]") {
  Good g;
  const char* const names[] = {"input ", "weights ", "bias ", "old_h ", "old_cell "};
  for (int32_t i = kInput; i <= kOldCell; ++i) expect_refused(g.with(i, nullptr), NW_INVALID, i, {names[i], "absent", "expected"});
  expect_refused(g.with_output(kNewH, nullptr), NW_INVALID, kNewH, {"new_h ", "NULL", "expected"});
  expect_refused(g.with_output(kNewCell, nullptr), NW_INVALID, kNewCell, {"new_cell ", "NULL", "expected"});
  expect_ok(g.with_output(kGates, nullptr));
  auto in = g.t.forward_inputs();
  expect_refused(run("lltm", {in.begin(), in.begin() + 4}, {&g.t.new_h, &g.t.new_cell, &g.t.gates}), NW_INVALID, -1,
                 {"old_cell ", "absent"});
  expect_refused(run("lltm", in, {&g.t.new_h, &g.t.new_cell}), NW_INVALID, -1, {"2 outputs", "expected 3"});
  in.push_back(&g.t.input);
  expect_refused(run("lltm", in, {&g.t.new_h, &g.t.new_cell, &g.t.gates}), NW_INVALID, 5, {"6 inputs", "expected", "5"});
}

TEST_CASE("lltm bad input: outputs that share memory with inputs or each other", "[lltm][bad]") {
  Good g;
  Tensor on_cell(g.t.old_cell, DType::f32, {kB, kS}, {kS, 1}, 0), beside_cell(g.t.old_cell, DType::f32, {kB, kS}, {kS, 1}, 4);
  expect_refused(g.with_output(kNewCell, &on_cell), NW_INVALID, kNewCell, {"new_cell ", "old_cell"});
  expect_refused(g.with_output(kNewCell, &beside_cell), NW_INVALID, kNewCell, {"new_cell ", "overlaps", "old_cell"});
  Tensor base(DType::f32, {64});
  Tensor first(base, DType::f32, {kB, kS}, {kS, 1}, 0), second(base, DType::f32, {kB, kS}, {kS, 1}, 11 * 4);
  expect_refused(run("lltm", g.t.forward_inputs(), {&first, &second, &g.t.gates}), NW_INVALID, kNewCell,
                 {"new_cell ", "overlaps", "new_h"});
  Tensor folded(base, DType::f32, {kB, kS}, {0, 1}, 0);
  expect_refused(g.with_output(kNewH, &folded), NW_INVALID, kNewH, {"new_h ", "strides"});
}

TEST_CASE("lltm bad input: params, which it has none of, kernels and flags", "[lltm][bad]") {
  Good g;
  const std::vector<Tensor*> out{&g.t.new_h, &g.t.new_cell, &g.t.gates};
  expect_ok(run("lltm", g.t.forward_inputs(), out, Blob(std::vector<unsigned char>(16, 0))));
  expect_refused(run("lltm", g.t.forward_inputs(), out, Blob(std::vector<unsigned char>{0, 0, 1, 0})), NW_UNSUPPORTED, -1,
                 {"params", "byte 2"});
  Call null_params("lltm", g.t.forward_inputs(), out);
  null_params.raw.params_size = 8;
  expect_refused(null_params.run(), NW_INVALID, -1, {"params", "NULL", "8"});
  expect_refused(run("lltm", g.t.forward_inputs(), out, {}, "no such kernel"), NW_UNSUPPORTED, -1, {"no such kernel"});
  expect_refused(run("lltm", g.t.forward_inputs(), out, {}, nullptr, 2), NW_UNSUPPORTED, -1, {"flags", "0x2"});
}

// "An unchecked new_cell": the tutorial's backward trusts what it is given.
TEST_CASE("lltm_backward bad input: saved tensors are checked", "[lltm][backward][bad][trap]") {
  GoodBackward b;
  expect_refused(b.with(kSavedNewCell, nullptr), NW_INVALID, kSavedNewCell, {"new_cell ", "absent", "expected"});
  expect_refused(b.with(kSavedNewCell, zeros(DType::f32, {kB, 4})), NW_INVALID, kSavedNewCell,
                 {"new_cell ", "(4, 4)", "expected", "3"});
  expect_refused(b.with(kSavedNewCell, zeros(DType::f32, {kB * kS})), NW_INVALID, kSavedNewCell,
                 {"new_cell ", "(12,)", "expected"});
  expect_refused(b.with(kSavedNewCell, zeros(DType::f64, {kB, kS})), NW_INVALID, kSavedNewCell,
                 {"new_cell ", "float64", "expected float32"});
  expect_refused(b.with(kSavedGates, nullptr), NW_INVALID, kSavedGates, {"gates ", "absent", "expected"});
  expect_refused(b.with(kSavedGates, zeros(DType::f32, {kB, 2 * kS})), NW_INVALID, kSavedGates,
                 {"gates ", "(4, 6)", "expected", "9"});
  expect_refused(b.with(kSavedInput, nullptr), NW_INVALID, kSavedInput, {"input ", "absent"});
  expect_refused(b.with(kSavedWeights, nullptr), NW_INVALID, kSavedWeights, {"weights ", "absent"});
  expect_refused(b.with(kSavedWeights, zeros(DType::f32, {8, 9})), NW_INVALID, kSavedWeights, {"weights ", "(8, 9)", "expected"});
  expect_refused(b.with(kSavedOldH, nullptr), NW_INVALID, kSavedOldH, {"old_h ", "absent"});
}

TEST_CASE("lltm_backward bad input: gradients", "[lltm][backward][bad]") {
  GoodBackward b;
  expect_refused(b.with(kGradH, zeros(DType::f32, {kB, 2})), NW_INVALID, kGradH, {"grad_h ", "(4, 2)", "expected", "3"});
  expect_refused(b.with(kGradCell, zeros(DType::f32, {3, kS})), NW_INVALID, kGradCell, {"grad_cell ", "(3, 3)", "expected", "4"});
  expect_refused(b.with(kGradCell, zeros(DType::f64, {kB, kS})), NW_INVALID, kGradCell,
                 {"grad_cell ", "float64", "expected float32"});
  Tensor d_input(DType::f32, {kB, 4}), d_weights(DType::f64, {9, 8}), d_bias(DType::f32, {1, 9}), d_old_h(DType::f32, {kS, kB}),
      d_old_cell(DType::f32, {kB});
  expect_refused(b.with_output(kDInput, d_input), NW_INVALID, kDInput, {"d_input ", "(4, 4)", "expected (4, 5)"});
  expect_refused(b.with_output(kDWeights, d_weights), NW_INVALID, kDWeights, {"d_weights ", "float64", "expected float32"});
  expect_refused(b.with_output(kDBias, d_bias), NW_INVALID, kDBias, {"d_bias ", "(1, 9)", "expected (9,)"});
  expect_refused(b.with_output(kDOldH, d_old_h), NW_INVALID, kDOldH, {"d_old_h ", "(3, 4)", "expected (4, 3)"});
  expect_refused(b.with_output(kDOldCell, d_old_cell), NW_INVALID, kDOldCell, {"d_old_cell ", "(4,)", "expected (4, 3)"});
}

TEST_CASE("lltm_backward bad input: outputs that share memory with inputs or each other", "[lltm][backward][bad]") {
  GoodBackward b;
  Tensor on_grad(b.g.grad_cell, DType::f32, {kB, kS}, {kS, 1}, 0), on_weights(b.good.t.weights, DType::f32, {9, 8}, {8, 1}, 4);
  expect_refused(b.with_output(kDOldCell, on_grad), NW_INVALID, kDOldCell, {"d_old_cell ", "grad_cell"});
  expect_refused(b.with_output(kDWeights, on_weights), NW_INVALID, kDWeights, {"d_weights ", "overlaps", "weights"});
  Tensor on_old_h(b.g.old_h, DType::f32, {kB, kS}, {kS, 1}, 0);
  expect_refused(b.with_output(kDOldCell, on_old_h), NW_INVALID, kDOldCell, {"d_old_cell ", "overlaps", "d_old_h"});
}
