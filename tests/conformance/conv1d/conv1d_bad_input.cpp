// SPDX-License-Identifier: Apache-2.0
// conv1d_bad_input.cpp -- what conv1d and conv1d_backward refuse: the status, the argument, and a message with the argument's
// name, its value and what was expected. run() sees to it that a refused call wrote nothing.
#include <catch2/catch_test_macros.hpp>
#include <limits>

#include "conv1d_case.h"

using namespace narrows::test;

namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
constexpr int32_t kX = 0, kW = 1, kBias = 2, kY = 3;

// x (2,4,10) * w (6,2,3) in 2 groups + bias (6) -> y (2,6,8), all good; a test replaces what it is about.
struct Good {
  Tensor x{DType::f32, {2, 4, 10}}, w{DType::f32, {6, 2, 3}}, bias{DType::f32, {6}}, y{DType::f32, {2, 6, 8}};
  Conv1dParams params{.stride = 1, .dilation = 1, .groups = 2};

  Good() {
    Rng rng("conv1d bad input");
    for (Tensor* t : {&x, &w, &bias}) t->fill_uniform(rng, -1, 1);
  }
  Result run_with(const Tensor& other_x, const Tensor& other_w, const Tensor& other_bias, Tensor& other_y) const {
    return run("conv1d", {&other_x, &other_w, &other_bias}, {&other_y}, params.blob());
  }
  Result with_x(const Tensor& t) { return run_with(t, w, bias, y); }
  Result with_w(const Tensor& t) { return run_with(x, t, bias, y); }
  Result with_bias(const Tensor& t) { return run_with(x, w, t, y); }
  Result with_y(Tensor& t) { return run_with(x, w, bias, t); }
  Result with_params(const Conv1dParams& p) { return run("conv1d", {&x, &w, &bias}, {&y}, p.blob()); }
};

Tensor zeros(DType dtype, std::vector<int64_t> shape) {
  Tensor t(dtype, std::move(shape));
  t.set(std::vector<double>(static_cast<size_t>(t.size()), 0.0));
  return t;
}

}  // namespace

TEST_CASE("conv1d bad input: the call that the others bend is good", "[conv1d][bad]") {
  Good g;
  expect_ok(g.with_x(g.x));
}

TEST_CASE("conv1d bad input: wrong ranks", "[conv1d][bad]") {
  Good g;
  expect_refused(g.with_x(zeros(DType::f32, {})), NW_INVALID, kX, {"conv1d", "x ", "()", "expected", "(N, C, L)"});
  expect_refused(g.with_x(zeros(DType::f32, {1, 2, 4, 10})), NW_INVALID, kX,
                 {"x ", "(1, 2, 4, 10)", "expected", "(N, C, L)", "(C, L)", "(L)"});
  expect_refused(g.with_w(zeros(DType::f32, {})), NW_INVALID, kW, {"w ", "()", "expected"});
  expect_refused(g.with_w(zeros(DType::f32, {2, 3})), NW_INVALID, kW, {"w ", "(2, 3)", "expected"});
  expect_refused(g.with_w(zeros(DType::f32, {3})), NW_INVALID, kW, {"w ", "(3,)", "expected"});
  expect_refused(g.with_bias(zeros(DType::f32, {})), NW_INVALID, kBias, {"bias ", "()", "expected"});
  expect_refused(g.with_bias(zeros(DType::f32, {1, 6})), NW_INVALID, kBias, {"bias ", "(1, 6)", "expected"});
  Tensor flat = zeros(DType::f32, {96});
  expect_refused(g.with_y(flat), NW_INVALID, kY, {"y ", "(96,)", "expected (2, 6, 8)"});
}

TEST_CASE("conv1d bad input: a signal with a filter of three axes, and the reverse", "[conv1d][bad]") {
  const Tensor signal = zeros(DType::f32, {10}), filter = zeros(DType::f32, {3}), filters = zeros(DType::f32, {1, 1, 3});
  Tensor y(DType::f32, {8});
  expect_refused(run("conv1d", {&signal, &filters}, {&y}), NW_INVALID, kW, {"w ", "(1, 1, 3)", "expected", "(K)"});
  const Tensor rows = zeros(DType::f32, {1, 10});
  Tensor y_rows(DType::f32, {1, 8});
  expect_refused(run("conv1d", {&rows, &filter}, {&y_rows}), NW_INVALID, kW, {"w ", "(3,)", "expected"});
}

TEST_CASE("conv1d bad input: groups that do not divide", "[conv1d][bad]") {
  Good g;
  g.params.groups = 3;
  expect_refused(g.with_x(g.x), NW_INVALID, kX, {"groups = 3", "4 channels"});
  g.params.groups = 4;
  expect_refused(g.with_x(g.x), NW_INVALID, kW, {"groups = 4", "6 filters"});
  g.params.groups = 2;
  expect_refused(g.with_w(zeros(DType::f32, {6, 3, 3})), NW_INVALID, kW, {"w ", "(6, 3, 3)", "expected", "2"});
  g.params.groups = kMax;
  expect_refused(g.with_x(g.x), NW_INVALID, kX, {"groups", "9223372036854775807", "4 channels"});
  const Tensor signal = zeros(DType::f32, {10}), filter = zeros(DType::f32, {3});
  Tensor y(DType::f32, {8});
  expect_refused(run("conv1d", {&signal, &filter}, {&y}, Conv1dParams{.groups = 2}.blob()), NW_INVALID, -1,
                 {"groups = 2", "1 channel"});
}

TEST_CASE("conv1d bad input: negative params", "[conv1d][bad]") {
  Good g;
  expect_refused(g.with_params({.stride = -1, .groups = 2}), NW_INVALID, -1, {"stride = -1", "expected"});
  expect_refused(g.with_params({.dilation = -2, .groups = 2}), NW_INVALID, -1, {"dilation = -2", "expected"});
  expect_refused(g.with_params({.groups = -2}), NW_INVALID, -1, {"groups = -2", "expected"});
  expect_refused(g.with_params({.groups = 2, .pad_left = -1}), NW_INVALID, -1, {"pad_left = -1", "expected"});
  expect_refused(g.with_params({.groups = 2, .pad_right = -kMax - 1}), NW_INVALID, -1,
                 {"pad_right = -9223372036854775808", "expected"});
}

TEST_CASE("conv1d bad input: params that overflow 64 bits", "[conv1d][bad]") {
  Good g;
  expect_refused(g.with_params({.groups = 2, .pad_left = kMax}), NW_INVALID, -1, {"pad_left = 9223372036854775807", "overflow"});
  expect_refused(g.with_params({.groups = 2, .pad_left = kMax / 2, .pad_right = kMax / 2 + 1}), NW_INVALID, -1,
                 {"pad_right", "overflow"});
  expect_refused(g.with_params({.dilation = kMax, .groups = 2}), NW_INVALID, -1, {"dilation = 9223372036854775807", "overflow"});
  expect_refused(g.with_params({.dilation = kMax / 2 + 1, .groups = 2}), NW_INVALID, -1, {"dilation", "overflow"});
}

TEST_CASE("conv1d bad input: huge params that give another output than the call's", "[conv1d][bad]") {
  Good g;
  expect_refused(g.with_params({.stride = kMax, .groups = 2}), NW_INVALID, kY, {"y ", "(2, 6, 8)", "expected (2, 6, 1)"});
  expect_refused(g.with_params({.groups = 2, .pad_left = int64_t{1} << 62}), NW_INVALID, kY,
                 {"y ", "expected (2, 6, 4611686018427387912)"});
}

TEST_CASE("conv1d bad input: an output shorter than 1, the sum is stated", "[conv1d][bad]") {
  Good g;
  expect_refused(g.with_params({.dilation = 5, .groups = 2}), NW_INVALID, -1,
                 {"L + pad_left + pad_right - dilation*(K-1) - 1", "10 + 0 + 0 - 5*2 - 1 = -1"});
  expect_refused(g.with_params({.dilation = kMax / 2, .groups = 2, .pad_left = 3}), NW_INVALID, -1,
                 {"10 + 3 + 0 - 4611686018427387903*2 - 1"});
  expect_refused(g.with_w(zeros(DType::f32, {6, 2, 11})), NW_INVALID, -1, {"10 + 0 + 0 - 1*10 - 1 = -1"});
  const Tensor empty = zeros(DType::f32, {2, 4, 0});
  expect_refused(g.with_x(empty), NW_INVALID, -1, {"0 + 0 + 0 - 1*2 - 1 = -3"});
}

TEST_CASE("conv1d bad input: a filter without taps", "[conv1d][bad]") {
  Good g;
  expect_refused(g.with_w(zeros(DType::f32, {6, 2, 0})), NW_INVALID, kW, {"w has 0 taps", "expected 1"});
}

TEST_CASE("conv1d bad input: an unknown padding mode", "[conv1d][bad]") {
  Good g;
  expect_refused(g.with_params({.groups = 2, .padding_mode = 1}), NW_UNSUPPORTED, -1, {"padding_mode = 1", "zeros"});
  expect_refused(g.with_params({.groups = 2, .padding_mode = -1}), NW_UNSUPPORTED, -1, {"padding_mode = -1"});
}

TEST_CASE("conv1d bad input: dtypes", "[conv1d][bad]") {
  Good g;
  expect_refused(g.with_w(zeros(DType::f64, {6, 2, 3})), NW_INVALID, kW, {"w ", "float64", "expected float32"});
  expect_refused(g.with_bias(zeros(DType::f16, {6})), NW_INVALID, kBias, {"bias ", "float16", "expected float32"});
  Tensor y(DType::f64, {2, 6, 8});
  expect_refused(g.with_y(y), NW_INVALID, kY, {"y ", "float64", "expected float32"});
  for (const DType dtype :
       {DType::i8, DType::i16, DType::i32, DType::i64, DType::u8, DType::u16, DType::u32, DType::u64, DType::boolean}) {
    const Tensor x = zeros(dtype, {2, 4, 10}), w = zeros(dtype, {6, 2, 3}), bias = zeros(dtype, {6});
    Tensor out(dtype, {2, 6, 8});
    expect_refused(g.run_with(x, w, bias, out), NW_INVALID, kX, {"x ", "dtype", "expected float32"});
  }
}

TEST_CASE("conv1d bad input: dtypes that DLPack knows and no op takes", "[conv1d][bad]") {
  Good g;
  for (const ForeignDType& foreign : kForeignDTypes) {
    Tensor x = zeros(foreign.memory, {2, 4, 10}), w = zeros(foreign.memory, {6, 2, 3}), y(foreign.memory, {2, 6, 8});
    for (Tensor* t : {&x, &w, &y}) t->dl()->dtype = foreign.dtype;
    expect_refused(run("conv1d", {&x, &w}, {&y}, g.params.blob()), NW_INVALID, kX,
                   {"conv1d: x has dtype", foreign.name, "expected float32, float64, float16 or bfloat16"});
    expect_refused(run("conv1d_backward", {&y, &x, &w}, {nullptr, nullptr, nullptr}, g.params.blob()), NW_INVALID, 0,
                   {"conv1d_backward: grad_y has dtype", foreign.name, "expected float32"});
  }
}

TEST_CASE("conv1d bad input: shapes that do not fit", "[conv1d][bad]") {
  Good g;
  expect_refused(g.with_bias(zeros(DType::f32, {5})), NW_INVALID, kBias, {"bias ", "(5,)", "expected", "6"});
  expect_refused(g.with_bias(zeros(DType::f32, {1})), NW_INVALID, kBias, {"bias ", "(1,)", "expected", "6"});
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{2, 6, 7}, {2, 6, 9}, {1, 6, 8}, {2, 5, 8}, {6, 8}, {2, 6, 8, 1}, {0, 6, 8}}) {
    Tensor y(DType::f32, shape);
    expect_refused(g.with_y(y), NW_INVALID, kY, {"y ", "shape", "expected (2, 6, 8)"});
  }
}

TEST_CASE("conv1d bad input: the output lies in an input", "[conv1d][bad]") {
  const Tensor w = [] {
    Tensor t(DType::f32, {1});
    t.set(std::vector<double>{2});
    return t;
  }();
  Tensor base(DType::f32, {32});
  base.set(std::vector<double>(32, 1));
  base.accept();
  const Tensor x(base, DType::f32, {10}, {1}, 0);
  for (const int64_t first : {0, 4, -4 + 40, 9 * 4, 2}) {
    Tensor y(base, DType::f32, {10}, {1}, first);
    expect_refused(run("conv1d", {&x, &w}, {&y}), NW_INVALID, 2, {"y ", first == 0 ? "same memory as x" : "overlaps x of shape"});
  }
  Tensor behind(base, DType::f32, {10}, {1}, 40);
  expect_ok(run("conv1d", {&x, &w}, {&behind}));
}

TEST_CASE("conv1d bad input: interleaved, the output's gaps being the input: no byte is shared", "[conv1d][bad]") {
  const Tensor w = [] {
    Tensor t(DType::f32, {1});
    t.set(std::vector<double>{2});
    return t;
  }();
  Tensor base(DType::f32, {32});
  base.set(std::vector<double>(32, 1));
  const Tensor x(base, DType::f32, {10}, {2}, 0);
  Tensor y(base, DType::f32, {10}, {2}, 4);
  expect_close(run("conv1d", {&x, &w}, {&y}), y, std::vector<double>(10, 2), kExact);
}

TEST_CASE("conv1d bad input: an output whose elements share a place", "[conv1d][bad]") {
  Good g;
  for (const std::vector<int64_t>& strides :
       {std::vector<int64_t>{0, 8, 1}, {48, 0, 1}, {48, 8, 0}, {48, 7, 1}, {1, 8, 1}, {-48, 8, 0}}) {
    Tensor base(DType::f32, {256});
    Tensor y(base, DType::f32, {2, 6, 8}, strides, 4 * 128);
    expect_refused(g.with_y(y), NW_INVALID, kY, {"y ", "(2, 6, 8)", "strides"});
  }
}

TEST_CASE("conv1d bad input: too many, too few, absent tensors", "[conv1d][bad]") {
  Good g;
  expect_refused(run("conv1d", {&g.x, &g.w, &g.bias, &g.bias}, {&g.y}, g.params.blob()), NW_INVALID, 3,
                 {"4 inputs", "expected", "3"});
  expect_refused(run("conv1d", {&g.x}, {&g.y}, g.params.blob()), NW_INVALID, -1, {"w ", "absent", "expected"});
  expect_refused(run("conv1d", {nullptr, &g.w, &g.bias}, {&g.y}, g.params.blob()), NW_INVALID, kX, {"x ", "absent", "expected"});
  expect_refused(run("conv1d", {&g.x, nullptr, &g.bias}, {&g.y}, g.params.blob()), NW_INVALID, kW, {"w ", "absent", "expected"});
  expect_refused(run("conv1d", {&g.x, &g.w, &g.bias}, {nullptr}, g.params.blob()), NW_INVALID, kY, {"y ", "NULL", "expected"});
  expect_refused(run("conv1d", {&g.x, &g.w, &g.bias}, {}, g.params.blob()), NW_INVALID, -1, {"0 outputs", "expected 1"});
  Tensor second(DType::f32, {2, 6, 8});
  expect_refused(run("conv1d", {&g.x, &g.w, &g.bias}, {&g.y, &second}, g.params.blob()), NW_INVALID, -1,
                 {"2 outputs", "expected 1"});
}

TEST_CASE("conv1d bad input: an output is counted after the inputs that the call has, absent ones too", "[conv1d][bad]") {
  Good g;
  Tensor y(DType::f32, {2, 6, 9});
  expect_refused(run("conv1d", {&g.x, &g.w}, {&y}, g.params.blob()), NW_INVALID, 2, {"y ", "(2, 6, 9)"});
  expect_refused(run("conv1d", {&g.x, &g.w, nullptr}, {&y}, g.params.blob()), NW_INVALID, 3, {"y ", "(2, 6, 9)"});
}

TEST_CASE("conv1d bad input: params blobs", "[conv1d][bad]") {
  Good g;
  Call null_params("conv1d", {&g.x, &g.w, &g.bias}, {&g.y}, g.params.blob());
  null_params.raw.params = nullptr;
  expect_refused(null_params.run(), NW_INVALID, -1, {"params", "NULL", "48"});
  std::vector<unsigned char> tail = g.params.blob().bytes;
  tail.resize(64, 0);
  tail[56] = 1;
  expect_refused(run("conv1d", {&g.x, &g.w, &g.bias}, {&g.y}, Blob(tail)), NW_UNSUPPORTED, -1, {"params", "56", "48"});
}

TEST_CASE("conv1d bad input: an unknown kernel or flag", "[conv1d][bad]") {
  Good g;
  expect_refused(run("conv1d", {&g.x, &g.w, &g.bias}, {&g.y}, g.params.blob(), "no such kernel"), NW_UNSUPPORTED, -1,
                 {"no such kernel"});
  expect_refused(run("conv1d", {&g.x, &g.w, &g.bias}, {&g.y}, g.params.blob(), ""), NW_UNSUPPORTED, -1, {"kernel"});
  expect_refused(run("conv1d", {&g.x, &g.w, &g.bias}, {&g.y}, g.params.blob(), nullptr, 1u << 31), NW_UNSUPPORTED, -1,
                 {"flags", "80000000"});
}

TEST_CASE("conv1d_backward bad input", "[conv1d][backward][bad]") {
  Good g;
  Tensor gy = zeros(DType::f32, {2, 6, 8}), gx(DType::f32, {2, 4, 10}), gw(DType::f32, {6, 2, 3}), gbias(DType::f32, {6});
  const auto backward = [&](std::vector<const Tensor*> in, std::vector<Tensor*> out) {
    return run("conv1d_backward", std::move(in), std::move(out), g.params.blob());
  };
  expect_ok(backward({&gy, &g.x, &g.w, &g.bias, &g.y}, {&gx, &gw, &gbias}));

  Tensor longer = zeros(DType::f32, {2, 6, 9}), f64 = zeros(DType::f64, {2, 6, 8});
  expect_refused(backward({&longer, &g.x, &g.w}, {&gx, &gw, &gbias}), NW_INVALID, 0, {"grad_y", "(2, 6, 9)", "expected", "8"});
  expect_refused(backward({&gy, nullptr, &g.w}, {&gx, &gw, &gbias}), NW_INVALID, 1, {"x ", "absent"});
  expect_refused(backward({&gy, &g.x}, {&gx, &gw, &gbias}), NW_INVALID, -1, {"w ", "absent"});
  const Result mixed = backward({&f64, &g.x, &g.w}, {&gx, &gw, &gbias});
  CHECK(mixed.status == NW_INVALID);
  CHECK(std::string(mixed.error.message).find("float64") != std::string::npos);

  Tensor wrong_x(DType::f32, {2, 4, 9}), wrong_w(DType::f64, {6, 2, 3}), wrong_bias(DType::f32, {5});
  expect_refused(backward({&gy, &g.x, &g.w}, {&wrong_x, &gw, &gbias}), NW_INVALID, 3,
                 {"grad_x", "(2, 4, 9)", "expected (2, 4, 10)"});
  expect_refused(backward({&gy, &g.x, &g.w}, {&gx, &wrong_w, &gbias}), NW_INVALID, 4, {"grad_w", "float64", "expected float32"});
  expect_refused(backward({&gy, &g.x, &g.w}, {&gx, &gw, &wrong_bias}), NW_INVALID, 5, {"grad_bias", "(5,)", "expected (6,)"});
  expect_refused(backward({&gy, &g.x, &g.w}, {&gx, &gw}), NW_INVALID, -1, {"2 outputs", "expected 3"});
}

TEST_CASE("conv1d_backward bad input: params", "[conv1d][backward][bad]") {
  Good g;
  Tensor gy = zeros(DType::f32, {2, 6, 8}), gx(DType::f32, {2, 4, 10}), gw(DType::f32, {6, 2, 3}), gbias(DType::f32, {6});
  const auto with = [&](const Conv1dParams& p) {
    return run("conv1d_backward", {&gy, &g.x, &g.w, &g.bias}, {&gx, &gw, &gbias}, p.blob());
  };
  expect_refused(with({.stride = -1, .groups = 2}), NW_INVALID, -1, {"conv1d_backward: stride = -1", "expected 0 or more"});
  expect_refused(with({.dilation = -2, .groups = 2}), NW_INVALID, -1, {"dilation = -2", "expected 0 or more"});
  expect_refused(with({.groups = -1}), NW_INVALID, -1, {"groups = -1", "expected 0 or more"});
  expect_refused(with({.groups = 2, .pad_left = -3}), NW_INVALID, -1, {"pad_left = -3", "expected 0 or more"});
  expect_refused(with({.groups = 2, .pad_right = -4}), NW_INVALID, -1, {"pad_right = -4", "expected 0 or more"});
  expect_refused(with({.groups = 3}), NW_INVALID, 1, {"groups = 3", "4 channels of x"});
  expect_refused(with({.groups = 4}), NW_INVALID, 2, {"groups = 4", "6 filters of w"});
  expect_refused(with({.dilation = kMax, .groups = 2}), NW_INVALID, -1, {"dilation = 9223372036854775807", "overflow"});
  expect_refused(with({.dilation = 5, .groups = 2}), NW_INVALID, -1, {"10 + 0 + 0 - 5*2 - 1 = -1", "expected 0 or more"});
  expect_refused(with({.groups = 2, .padding_mode = 1}), NW_UNSUPPORTED, -1, {"padding_mode = 1", "zeros"});
  expect_refused(with({.stride = 2, .groups = 2}), NW_INVALID, 0, {"grad_y", "(2, 6, 8)", "expected"});
  std::vector<unsigned char> tail = g.params.blob().bytes;
  tail.push_back(9);
  expect_refused(run("conv1d_backward", {&gy, &g.x, &g.w}, {&gx, &gw, &gbias}, Blob(tail)), NW_UNSUPPORTED, -1,
                 {"params byte 48 is not 0", "48 bytes"});
}

TEST_CASE("conv1d_backward bad input: outputs that share memory with inputs or each other", "[conv1d][backward][bad]") {
  expect_offered("conv1d_backward");
  Good g;
  Tensor gy = zeros(DType::f32, {2, 6, 8}), gx(DType::f32, {2, 4, 10}), gw(DType::f32, {6, 2, 3}), gbias(DType::f32, {6});
  const auto backward = [&](std::vector<Tensor*> out) {
    return run("conv1d_backward", {&gy, &g.x, &g.w}, std::move(out), g.params.blob());
  };
  Tensor on_x(g.x, DType::f32, {2, 4, 10}, {40, 10, 1}, 0), on_w(g.w, DType::f32, {6, 2, 3}, {6, 3, 1}, 0);
  expect_refused(backward({&on_x, &gw, &gbias}), NW_INVALID, 3, {"grad_x", "same memory as x;"});
  expect_refused(backward({&gx, &on_w, &gbias}), NW_INVALID, 4, {"grad_w", "same memory as w;"});
  Tensor base(DType::f32, {200});
  Tensor first(base, DType::f32, {2, 4, 10}, {40, 10, 1}, 0), second(base, DType::f32, {6, 2, 3}, {6, 3, 1}, 79 * 4),
      third(base, DType::f32, {6}, {1}, 80 * 4);
  expect_refused(backward({&first, &second, &gbias}), NW_INVALID, 4, {"grad_w", "grad_x", "overlaps"});
  expect_refused(backward({nullptr, &second, &third}), NW_INVALID, 5, {"grad_bias", "grad_w", "overlaps"});
  Call apart("conv1d_backward", {&gy, &g.x, &g.w}, {&first, nullptr, &third}, g.params.blob());
  CHECK(nw_run(runtime(), &apart.raw, nullptr) == NW_OK);  // neighbours: not run(), which takes each output for all of its memory
  Tensor folded(base, DType::f32, {6}, {0}, 0);
  expect_refused(backward({&gx, &gw, &folded}), NW_INVALID, 5, {"grad_bias", "strides"});
}
