// SPDX-License-Identifier: Apache-2.0
// elementwise_refusals.cpp -- bad input to elementwise and elementwise_backward: the status, the argument, a message that names
// value and expectation; run() sees to it that nothing was written. What every op shares (NULL pointers, ranks, streams,
// workspaces, loading) is tested in tests/core.
#include <catch2/catch_test_macros.hpp>
#include <cstring>

#include "elementwise_cases.h"

using namespace narrows::test;
using narrows::reference::allows;
using narrows::reference::Domain;
using narrows::reference::function;
using narrows::reference::out_dtype;

namespace {

// Full names, as messages show them.
const char* full_name(DType dtype) {
  static const char* const names[] = {"float32", "float64", "float16", "bfloat16", "int8",   "int16", "int32",
                                      "int64",   "uint8",   "uint16",  "uint32",   "uint64", "bool"};
  return names[static_cast<int>(dtype) - 1];
}

nw_elementwise_params add_params() { return params_for(function(NW_EW_ADD)); }

}  // namespace

TEST_CASE("refused: every function on every dtype that it does not take", "[elementwise][refusal]") {
  for (const Function& f : functions()) {
    for (const DType dtype : kAllDTypes) {
      if (allows(f.domain, dtype)) continue;
      std::vector<std::unique_ptr<Tensor>> tensors;
      std::vector<const Tensor*> operands;
      for (int i = 0; i < f.operands; ++i) {
        tensors.push_back(std::make_unique<Tensor>(dtype, Shape{5}));
        operands.push_back(tensors.back().get());
      }
      Tensor out(out_dtype(f, dtype), {5});
      expect_refused(run_function(f, operands, out), NW_INVALID, 0, {f.name, full_name(dtype), "expected"});
    }
  }
}

TEST_CASE("refused: dtypes that DLPack knows and no function takes", "[elementwise][refusal]") {
  for (const ForeignDType& foreign : kForeignDTypes) {
    for (const Function& f : functions()) {
      Tensor condition(DType::boolean, {5});
      std::vector<std::unique_ptr<Tensor>> tensors;
      std::vector<const Tensor*> operands;
      const bool where = f.number == NW_EW_WHERE;
      for (int i = 0; i < f.operands; ++i) {
        tensors.push_back(std::make_unique<Tensor>(foreign.memory, Shape{5}));
        tensors.back()->dl()->dtype = foreign.dtype;
        operands.push_back(where && i == 0 ? &condition : tensors.back().get());
      }
      Tensor out(f.gives_bool ? DType::boolean : foreign.memory, {5});
      if (!f.gives_bool) out.dl()->dtype = foreign.dtype;
      nw_elementwise_params p = params_for(f);
      if (f.number == NW_EW_CAST) p.out_dtype = NW_DTYPE_FLOAT32;
      expect_refused(run_params(p, operands, out), NW_INVALID, where ? 1 : 0,
                     {f.name, where ? ": b has dtype" : ": a has dtype", foreign.name, "expected"});
    }
  }
}

TEST_CASE("refused: an unknown function number", "[elementwise][refusal]") {
  Tensor a(DType::f32, {5}), out(DType::f32, {5});
  nw_elementwise_params p{};
  expect_refused(run_params(p, {&a}, out), NW_INVALID, -1, {"function = 0", "expected"});
  for (const int32_t number : {-1, static_cast<int32_t>(functions().size()) + 1, 1 << 30}) {
    p.function = number;
    expect_refused(run_params(p, {&a}, out), NW_UNSUPPORTED, -1, {"function = ", std::to_string(number).c_str()});
  }
}

TEST_CASE("refused: no params at all", "[elementwise][refusal]") {
  Tensor a(DType::f32, {5}), out(DType::f32, {5});
  expect_refused(run("elementwise", {&a}, {&out}), NW_INVALID, -1, {"function = 0"});
}

TEST_CASE("params: a short blob is extended with zeros", "[elementwise][refusal]") {
  Tensor a(DType::f32, {5}), out(DType::f32, {5});
  a.set(std::vector<double>{-2, -1, 0, 1, 2});
  const int32_t number = NW_EW_ABS;
  std::vector<unsigned char> bytes(sizeof number);
  std::memcpy(bytes.data(), &number, sizeof number);
  expect_close(run("elementwise", {&a}, {&out}, Blob(bytes)), out, std::vector<double>{2, 1, 0, 1, 2}, kExact);
  bytes.resize(1);  // little endian: the first byte is the number
  expect_close(run("elementwise", {&a}, {&out}, Blob(bytes)), out, std::vector<double>{2, 1, 0, 1, 2}, kExact);
}

TEST_CASE("params: a longer blob is taken when its tail is zero, and refused otherwise", "[elementwise][refusal]") {
  Tensor a(DType::f32, {5}), out(DType::f32, {5});
  a.set(std::vector<double>{-2, -1, 0, 1, 2});
  const nw_elementwise_params p = params_for(function(NW_EW_ABS));
  std::vector<unsigned char> bytes(sizeof p + 24, 0);
  std::memcpy(bytes.data(), &p, sizeof p);
  expect_close(run("elementwise", {&a}, {&out}, Blob(bytes)), out, std::vector<double>{2, 1, 0, 1, 2}, kExact);
  bytes[sizeof p + 16] = 1;
  expect_refused(run("elementwise", {&a}, {&out}, Blob(bytes)), NW_UNSUPPORTED, -1, {"params byte 64 is not 0", "48 bytes"});
  bytes.assign(sizeof p + 1, 0);  // the first byte that nobody knows
  std::memcpy(bytes.data(), &p, sizeof p);
  bytes.back() = 0x80;
  expect_refused(run("elementwise", {&a}, {&out}, Blob(bytes)), NW_UNSUPPORTED, -1, {"params byte 48 is not 0", "48 bytes"});
}

TEST_CASE("refused: operands of different dtypes", "[elementwise][refusal]") {
  Tensor a(DType::f32, {5}), b(DType::f64, {5}), out(DType::f32, {5});
  expect_refused(run_params(add_params(), {&a, &b}, out), NW_INVALID, 1, {"add", "float64", "expected float32"});
  Tensor condition(DType::boolean, {5}), x(DType::i32, {5}), y(DType::i64, {5}), chosen(DType::i32, {5}), number(DType::f32, {5});
  expect_refused(run_params(params_for(function(NW_EW_WHERE)), {&condition, &x, &y}, chosen), NW_INVALID, 2,
                 {"where", "int64", "expected int32"});
  expect_refused(run_params(params_for(function(NW_EW_WHERE)), {&number, &x, &x}, chosen), NW_INVALID, 0,
                 {"float32", "expected bool"});
}

TEST_CASE("refused: an output of another dtype", "[elementwise][refusal]") {
  for (const int32_t number : {NW_EW_NEG, NW_EW_ADD, NW_EW_ISNAN, NW_EW_LT}) {
    const Function& f = function(number);
    Tensor a(DType::f32, {5}), b(DType::f32, {5}), out(DType::f64, {5});
    std::vector<const Tensor*> operands{&a, &b};
    operands.resize(f.operands);
    expect_refused(run_function(f, operands, out), NW_INVALID, f.operands,
                   {"out", "float64", f.gives_bool ? "expected bool" : "expected float32"});
  }
}

TEST_CASE("refused: an output of another shape", "[elementwise][refusal]") {
  Tensor a(DType::f32, {3, 4}), b(DType::f32, {4});
  for (const Shape& shape : {Shape{4}, Shape{3, 5}, Shape{4, 3}, Shape{1, 3, 4}, Shape{12}, Shape{}, Shape{3, 0}}) {
    Tensor out(DType::f32, shape);
    std::string text = "(";
    for (const int64_t extent : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(extent);
    text += shape.size() == 1 ? ",)" : ")";
    expect_refused(run_params(add_params(), {&a, &b}, out), NW_INVALID, 2,
                   {("out has shape " + text + ";").c_str(), "expected (3, 4)"});
  }
}

TEST_CASE("refused: shapes that do not broadcast", "[elementwise][refusal]") {
  Tensor a(DType::f32, {3, 4}), b(DType::f32, {3}), c(DType::f32, {2, 3, 4}), d(DType::f32, {3, 1, 4}), out(DType::f32, {3, 4});
  expect_refused(run_params(add_params(), {&a, &b}, out), NW_INVALID, 1, {"(3, 4)", "(3,)", "broadcast"});
  expect_refused(run_params(params_for(function(NW_EW_FMA)), {&a, &c, &b}, out), NW_INVALID, 2, {"(3,)", "broadcast"});
  Tensor empty(DType::f32, {0});
  expect_refused(run_params(add_params(), {&a, &empty}, out), NW_INVALID, 1, {"(3, 4)", "(0,)", "broadcast"});
  const nw_elementwise_params mul = params_for(function(NW_EW_MUL));
  Tensor g(DType::f32, {3, 4}), grad_a(DType::f32, {3, 4}), grad_b(DType::f32, {3});
  expect_refused(run("elementwise_backward", {&g, &a, &b}, {&grad_a, &grad_b, nullptr}, mul), NW_INVALID, 2,
                 {"elementwise_backward", "(3, 4)", "(3,)", "broadcast"});
}

TEST_CASE("refused: an output that an operand overlaps in part", "[elementwise][refusal]") {
  Tensor whole(DType::f32, {64});
  whole.set(std::vector<double>(64, 1));
  const nw_elementwise_params neg = params_for(function(NW_EW_NEG));
  struct Overlap {
    Shape shape;
    std::vector<int64_t> in_strides, out_strides;
    int64_t in_first, out_first;  // elements
  };
  const Overlap cases[] = {{{16}, {1}, {1}, 0, 1},   {{16}, {1}, {1}, 15, 0},        {{16}, {1}, {2}, 0, 0},
                           {{16}, {1}, {-1}, 0, 15}, {{4, 4}, {4, 1}, {1, 4}, 0, 0}, {{16}, {0}, {1}, 3, 0},
                           {{8}, {2}, {2}, 0, 4}};
  for (const Overlap& c : cases) {
    const Tensor in(whole, DType::f32, c.shape, c.in_strides, c.in_first * 4);
    Tensor out(whole, DType::f32, c.shape, c.out_strides, c.out_first * 4);
    expect_refused(run_params(neg, {&in}, out), NW_INVALID, 1, {"overlaps"});
  }
  const Tensor in(whole, DType::f32, {8}, {1}, 0);
  Tensor shifted(whole, DType::f32, {8}, {1}, 2);  // half an element
  expect_refused(run_params(neg, {&in}, shifted), NW_INVALID, 1, {"overlaps"});
  Tensor wide(whole, DType::f64, {4}, {1}, 0), narrow(whole, DType::f32, {4}, {1}, 0);  // one place, other dtypes
  nw_elementwise_params cast{};
  cast.function = NW_EW_CAST;
  cast.out_dtype = NW_DTYPE_FLOAT64;
  expect_refused(run_params(cast, {&narrow}, wide), NW_INVALID, 1, {"overlaps"});
}

TEST_CASE("accepted: interleaved tensors that share no byte", "[elementwise][refusal]") {
  Tensor whole(DType::f32, {64});
  std::vector<double> values(64);
  for (int i = 0; i < 64; ++i) values[i] = i + 1;
  whole.set(values);
  const Tensor even(whole, DType::f32, {32}, {2}, 0);
  Tensor odd(whole, DType::f32, {32}, {2}, 4);
  std::vector<double> reference;
  for (int i = 0; i < 64; i += 2) reference.push_back(-i - 1);
  expect_close(run_params(params_for(function(NW_EW_NEG)), {&even}, odd), odd, reference, kExact);
  CHECK(even.values()[3] == 7);
}

TEST_CASE("refused: an output in which two elements share a place", "[elementwise][refusal]") {
  Tensor a(DType::f32, {4, 4}), memory(DType::f32, {64});
  for (const auto& strides : {std::vector<int64_t>{0, 1}, {1, 1}, {1, 0}, {2, 1}}) {
    Tensor out(memory, DType::f32, {4, 4}, strides, 0);
    expect_refused(run_params(params_for(function(NW_EW_NEG)), {&a}, out), NW_INVALID, 1, {"share a place"});
  }
}

TEST_CASE("refused: scalars that do not fit the dtype", "[elementwise][refusal]") {
  struct Scalar {
    DType dtype;
    int64_t value;
  };
  for (const Scalar& s : {Scalar{DType::i8, 128},
                          {DType::i8, -129},
                          {DType::u8, 256},
                          {DType::u8, -1},
                          {DType::i16, 1 << 15},
                          {DType::u16, 1 << 16},
                          {DType::i32, int64_t{1} << 31},
                          {DType::i32, -(int64_t{1} << 31) - 1},
                          {DType::u32, int64_t{1} << 32},
                          {DType::u32, -1},
                          {DType::u64, -1}}) {
    Tensor a(s.dtype, {5}), out(s.dtype, {5});
    nw_elementwise_params p = add_params();
    p.b_int = s.value;
    expect_refused(run_params(p, {&a}, out), NW_INVALID, -1, {"b_int", std::to_string(s.value).c_str(), full_name(s.dtype)});
    p = params_for(function(NW_EW_CLAMP));
    p.c_int = s.value;
    expect_refused(run_params(p, {&a, &a}, out), NW_INVALID, -1, {"c_int", std::to_string(s.value).c_str(), full_name(s.dtype)});
  }
  Tensor a(DType::boolean, {5}), out(DType::boolean, {5});
  nw_elementwise_params p = params_for(function(NW_EW_LOGICAL_AND));
  for (const int64_t value : {0, 1}) {
    p.b_int = value;
    expect_ok(run_params(p, {&a}, out));
  }
  for (const int64_t value : {2, -1}) {
    p.b_int = value;
    expect_refused(run_params(p, {&a}, out), NW_INVALID, -1, {"b_int", std::to_string(value).c_str(), "bool"});
  }
}

TEST_CASE("refused: a scalar that nothing would read", "[elementwise][refusal]") {
  Tensor a(DType::f32, {5}), out(DType::f32, {5}), i(DType::i32, {5}), i_out(DType::i32, {5});
  nw_elementwise_params p = add_params();
  p.b_int = 3;  // a float takes b_real
  expect_refused(run_params(p, {&a}, out), NW_INVALID, -1, {"b_int", "b_real"});
  p = add_params();
  p.b_real = 3;
  expect_refused(run_params(p, {&i}, i_out), NW_INVALID, -1, {"b_real", "b_int"});
  expect_refused(run_params(p, {&a, &a}, out), NW_INVALID, -1, {"b_real", "given as a tensor"});
  p = add_params();
  p.b_int = 3;
  expect_refused(run_params(p, {&i, &i}, i_out), NW_INVALID, -1, {"b_int = 3", "given as a tensor"});
  p = add_params();
  p.c_real = 1;
  expect_refused(run_params(p, {&a, &a}, out), NW_INVALID, -1, {"c_real", "no operand"});
  p = add_params();
  p.c_int = 1;
  expect_refused(run_params(p, {&a, &a}, out), NW_INVALID, -1, {"c_int = 1", "no operand"});
}

TEST_CASE("refused: too many operands, or none that gives where its dtype", "[elementwise][refusal]") {
  Tensor a(DType::f32, {5}), b(DType::f32, {5}), condition(DType::boolean, {5}), out(DType::f32, {5});
  expect_refused(run_params(params_for(function(NW_EW_NEG)), {&a, &b}, out), NW_INVALID, 1, {"takes 1 operand"});
  expect_refused(run_params(add_params(), {&a, &b, &b}, out), NW_INVALID, 2, {"takes 2 operands"});
  expect_refused(run_params(params_for(function(NW_EW_WHERE)), {&condition}, out), NW_INVALID, -1, {"absent"});
  expect_refused(run_params(add_params(), {nullptr, &b}, out), NW_INVALID, 0, {"a", "expected a tensor"});
}

TEST_CASE("refused: out_dtype where it does not belong, and unknown", "[elementwise][refusal]") {
  Tensor a(DType::f32, {5}), out(DType::f32, {5});
  nw_elementwise_params p = params_for(function(NW_EW_NEG));
  p.out_dtype = NW_DTYPE_FLOAT32;
  expect_refused(run_params(p, {&a}, out), NW_INVALID, -1, {"out_dtype = 1", "expected"});
  p = {};
  p.function = NW_EW_CAST;
  expect_refused(run_params(p, {&a}, out), NW_INVALID, -1, {"out_dtype = 0", "expected"});
  for (const int32_t dtype : {14, -1}) {
    p.out_dtype = dtype;
    expect_refused(run_params(p, {&a}, out), NW_UNSUPPORTED, -1,
                   {("out_dtype = " + std::to_string(dtype) + ";").c_str(), "1 to 13"});
  }
}

TEST_CASE("refused: an unknown kernel, and flags", "[elementwise][refusal]") {
  Tensor a(DType::f32, {5}), out(DType::f32, {5});
  Call call("elementwise", {&a}, {&out}, params_for(function(NW_EW_NEG)));
  call.raw.kernel = "no such kernel";
  expect_refused(call.run(), NW_UNSUPPORTED, -1, {"no such kernel"});
  call.raw.kernel = nullptr;
  call.raw.flags = 1u << 31;
  expect_refused(call.run(), NW_UNSUPPORTED, -1, {"flags 0x80000000", "0x1"});
}

TEST_CASE("refused: backward of what has no gradient", "[elementwise][refusal]") {
  Tensor g(DType::f32, {5}), a(DType::f32, {5}), grad_a(DType::f32, {5}), condition(DType::boolean, {5});
  for (const Function& f : functions()) {
    if (f.gradient != nullptr) continue;
    const DType dtype = allows(f.domain, DType::f32) ? DType::f32 : DType::i32;
    Tensor x(dtype, {5}), y(dtype, {5}), incoming(out_dtype(f, dtype), {5}), grad_x(dtype, {5});
    const Tensor* b = f.operands > 1 ? &y : nullptr;
    expect_refused(run("elementwise_backward", {&incoming, &x, b}, {&grad_x, nullptr, nullptr}, params_for(f)), NW_INVALID, -1,
                   {f.name, "gradient"});
  }
  Tensor i(DType::i32, {5}), grad_i(DType::i32, {5});
  expect_refused(run("elementwise_backward", {&i, &i}, {&grad_i, nullptr, nullptr}, params_for(function(NW_EW_NEG))), NW_INVALID, 1,
                 {"int32", "gradient"});
  nw_elementwise_params cast{};
  cast.function = NW_EW_CAST;
  cast.out_dtype = NW_DTYPE_INT32;
  expect_refused(run("elementwise_backward", {&i, &a}, {&grad_a, nullptr, nullptr}, cast), NW_INVALID, -1,
                 {"cast to int32", "gradient"});
  cast.out_dtype = NW_DTYPE_FLOAT32;
  expect_refused(run("elementwise_backward", {&g, &i}, {&grad_i, nullptr, nullptr}, cast), NW_INVALID, 1, {"int32", "gradient"});
  Tensor grad_condition(DType::boolean, {5});
  expect_refused(
      run("elementwise_backward", {&g, &condition, &a, &a}, {&grad_condition, &grad_a, nullptr}, params_for(function(NW_EW_WHERE))),
      NW_INVALID, 4, {"grad_a", "bool"});
}

TEST_CASE("refused: backward with a gradient of another shape or dtype", "[elementwise][refusal]") {
  const nw_elementwise_params p = params_for(function(NW_EW_MUL));
  Tensor g(DType::f32, {4, 5}), a(DType::f32, {4, 5}), b(DType::f32, {5}), grad_a(DType::f32, {4, 5}), grad_b(DType::f32, {5});
  expect_ok(run("elementwise_backward", {&g, &a, &b}, {&grad_a, &grad_b, nullptr}, p));
  Tensor short_g(DType::f32, {5}), other_g(DType::f64, {4, 5});
  expect_refused(run("elementwise_backward", {&short_g, &a, &b}, {&grad_a, &grad_b, nullptr}, p), NW_INVALID, 0,
                 {"grad_out", "(5,)", "expected (4, 5)"});
  expect_refused(run("elementwise_backward", {&other_g, &a, &b}, {&grad_a, &grad_b, nullptr}, p), NW_INVALID, 0,
                 {"grad_out", "float64", "expected float32"});
  Tensor short_out(DType::f32, {5}), other_out(DType::f64, {4, 5});  // of the forward call: not read, and checked
  expect_refused(run("elementwise_backward", {&g, &a, &b, nullptr, &short_out}, {&grad_a, &grad_b, nullptr}, p), NW_INVALID, 4,
                 {"out has shape (5,)", "expected (4, 5)"});
  expect_refused(run("elementwise_backward", {&g, &a, &b, nullptr, &other_out}, {&grad_a, &grad_b, nullptr}, p), NW_INVALID, 4,
                 {"out has dtype float64", "expected float32"});
  Tensor wide_b(DType::f32, {4, 5});
  expect_refused(run("elementwise_backward", {&g, &a, &b}, {&grad_a, &wide_b, nullptr}, p), NW_INVALID, 4,
                 {"grad_b", "expected (5,)"});
  Tensor grad_c(DType::f32, {5});
  expect_refused(run("elementwise_backward", {&g, &a, &b}, {&grad_a, &grad_b, &grad_c}, p), NW_INVALID, 5, {"grad_c"});
}

TEST_CASE("refused: backward in place", "[elementwise][refusal]") {
  Tensor g(DType::f32, {5}), a(DType::f32, {5});
  g.set(std::vector<double>(5, 1));
  expect_refused(run("elementwise_backward", {&g, &a}, {&g, nullptr, nullptr}, params_for(function(NW_EW_NEG))), NW_INVALID, 2,
                 {"grad_a"});
}
