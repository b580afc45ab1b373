// SPDX-License-Identifier: Apache-2.0
// test_programs.cpp -- core/program_op.cpp, runtime_programs.cpp: a tensor program is an op. The probe is asked to plan it, and
// compiles nothing: what it computes is the backends' own matter.
#include <array>
#include <cstring>
#include <utility>

#include "fixture.h"

using namespace narrows::test;

namespace {

constexpr const char* kScale =
    "program 1 scale(x: i8[M, N], shift?: i32[N], y: out i32[M, N], factor: param i64 = 3, bias: param f32 = 0x1p-1, on: param "
    "bool = "
    "1):\n"
    "  for i in M:\n"
    "    for j in N:\n"
    "      block y(vi: S(M) = i, vj: S(N) = j):\n"
    "        y[vi, vj] = i32(x[vi, vj]) * i32(factor) + where(present(shift), shift[vj], i32(0))\n";

struct ScaleParams {
  int64_t factor;
  double bias;
  int64_t on;
};

constexpr const char* kUpdate =
    "program 1 update(x: f32[N], y: inout f32[2 * N + -1], z: out f32[N % 3, max(N, 4), N // 2 - 1]):\n"
    "  for i in 2 * N + -1:\n"
    "    block y(vi: S(2 * N + -1) = i):\n"
    "      y[vi] = y[vi] + x[0]\n"
    "  for a in N % 3:\n"
    "    for b in max(N, 4):\n"
    "      for c in N // 2 - 1:\n"
    "        block z(va: S(N % 3) = a, vb: S(max(N, 4)) = b, vc: S(N // 2 - 1) = c):\n"
    "          z[va, vb, vc] = x[0]\n";

// y = x·x, under any name.
std::string square(const char* name) {
  return std::string("program 1 ") + name +
         "(x: f32[N], y: out f32[N]):\n  for i in N:\n    block y(vi: S(N) = i):\n      y[vi] = x[vi] * x[vi]\n";
}
const char* const kSquareBackward =
    "program 1 square_backward(grad_y?: f32[N], x: f32[N], y?: f32[N], grad_x: out f32[N]):\n  for i in N:\n    block g(vi: S(N) = "
    "i):\n"
    "      grad_x[vi] = where(present(grad_y), grad_y[vi] * x[vi] * f32(2), f32(0))\n";

const nw_op& load(nw_runtime* rt, const std::string& text, const char* backward = nullptr) {
  const nw_op* op = nullptr;
  Error error;
  INFO(error.text());
  REQUIRE(nw_load_program(rt, text.c_str(), backward, &op, &error) == NW_OK);
  return *op;
}

std::string refused(nw_runtime* rt, const std::string& text, const char* backward = nullptr) {
  const nw_op* op = nullptr;
  Error error;
  CHECK(nw_load_program(rt, text.c_str(), backward, &op, &error) == NW_INVALID);
  CHECK(op == nullptr);
  return error.text();
}

void check_contains(const std::string& text, const char* part) {
  CAPTURE(text);
  CHECK(contains(text, part));
}

std::string list(const char* const* names) {
  std::string out;
  for (; *names != nullptr; ++names) out += std::string(out.empty() ? "" : " ") + *names;
  return out;
}

}  // namespace

TEST_CASE("a loaded program is declared as it says") {
  const Loaded rt({"probe"});
  const nw_op& op = load(rt, kScale);
  const std::string name = op.name;
  CHECK(name.rfind("program.scale_", 0) == 0);
  CHECK(name.size() == std::strlen("program.scale_/1") + 32);
  CHECK(list(op.inputs) == "x shift?");
  CHECK(list(op.outputs) == "y");
  CHECK((op.min_inputs == 1 && op.max_inputs == 2 && op.num_outputs == 1 && op.num_aux == 0 && op.flags == 0));
  CHECK((op.input_dtypes[0].code == kDLInt && op.input_dtypes[0].bits == 8));
  CHECK((op.output_dtypes[0].code == kDLInt && op.output_dtypes[0].bits == 32));
  CHECK(op.params_size == sizeof(ScaleParams));
  REQUIRE((op.params[0] != nullptr && op.params[1] != nullptr && op.params[2] != nullptr && op.params[3] == nullptr));
  CHECK((op.params[0]->initial == 3 && op.params[0]->dtype.code == kDLInt && op.params[0]->dtype.bits == 64));
  CHECK((op.params[1]->initial == 0.5 && op.params[1]->dtype.code == kDLFloat && op.params[1]->offset == 8));
  CHECK((op.params[2]->initial == 1 && op.params[2]->dtype.code == kDLBool && op.params[2]->offset == 16));
  CHECK(op.backward == nullptr);

  const nw_op* found = nullptr;
  REQUIRE(nw_find_op(rt, op.name, &found, nullptr) == NW_OK);
  CHECK(found == &op);
  bool listed = false;
  for (uint32_t i = 0; nw_op_at(rt, i) != nullptr; ++i) listed = listed || nw_op_at(rt, i) == &op;
  CHECK(listed);
  CHECK(&load(rt, "# the same\n" + std::string(kScale)) == &op);  // another text of the same program
  CHECK(&load(rt, square("scale")) != &op);
}

// Of a program with x: f32[M, N] and w: f32[N], whose one block over M and N is `axes` and `body`; `more` follows it.
std::string over(const std::string& outputs, const std::string& axes, const std::string& body, const std::string& more = "") {
  return "program 1 parts(x: f32[M, N], w: f32[N], " + outputs + "):\n  for i in M:\n    for j in N:\n      block y(" + axes +
         "):\n" + body + more;
}

TEST_CASE("the axes of a program say along which sizes it is a batch") {
  const Loaded rt({"probe"});
  const char* const both = "m: S(M) = i, n: S(N) = j";
  const char* const rows = "m: S(M) = i, n: R(N) = j";
  const std::string sum = "        init:\n          y[m] = f32(0)\n        y[m] = y[m] + x[m, n] * w[n]\n";
  const std::string square = "  for a in M:\n    block z(b: S(M) = a):\n      z[b] = y[b] * y[b]\n";
  struct {
    const char* what;
    std::string text;
    const char* batch;
  } const cases[] = {
      {"every element", over("y: out f32[M, N]", both, "        y[m, n] = x[m, n] * w[n]\n"), "M | N"},
      {"a sum", over("y: out f32[M]", rows, sum), "M | N"},
      {"a sum that begins at 1",
       over("y: out f32[M]", rows, "        init:\n          y[m] = f32(1)\n        y[m] = y[m] + x[m, n]\n"), "M"},
      {"a maximum", over("y: out f32[M]", rows, "        init:\n          y[m] = f32(0)\n        y[m] = maximum(y[m], x[m, n])\n"),
       "M"},
      {"a sum that is read again", over("y: out f32[M], z: out f32[M]", rows, sum, square), "M"},
      {"a sum beside what every part computes",
       over("y: out f32[M], u: out f32[N]", rows, sum, "  for a in N:\n    block u(b: S(N) = a):\n      u[b] = w[b]\n"),
       "M once u | N"},
      {"a mean", over("y: out f32[M, N]", both, "        y[m, n] = x[m, n] / f32(M)\n"), "N"},
      {"a first row", over("y: out f32[M, N]", both, "        y[m, n] = x[m, n] - x[0, n]\n"), "N"},
      {"a number of the row", over("y: out f32[M, N]", both, "        y[m, n] = x[m, n] + f32(m)\n"), "N"},
      {"a transpose", over("y: out f32[N, M]", both, "        y[n, m] = x[m, n]\n"), "M | N"},
      {"a sum that is carried",
       over("y: out f32[M]", "m: S(M) = i, n: C(N) = j", "        init:\n          y[m] = f32(0)\n        y[m] = y[m] + x[m, n]\n"),
       "M"},
      {"a sum into what was there", over("y: inout f32[M]", rows, "        y[m] = y[m] + x[m, n]\n"), "M"},
      {"a filter",
       "program 1 f(x: f32[L], w: f32[K], y: out f32[L - K + 1]):\n  for i in L - K + 1:\n    for j in K:\n      block "
       "y(l: S(L - K + 1) = i, k: R(K) = j):\n        init:\n          y[l] = f32(0)\n        y[l] = y[l] + x[l + "
       "k] * w[k]\n",
       nullptr},
      {"rows that data choose",
       "program 1 g(x: f32[M, N], at: i64[B], y: out f32[B, N]):\n  for i in B:\n    for j in N:\n      "
       "block y(b: S(B) = i, n: S(N) = j):\n        y[b, n] = x[clamp(at[b], 0, M - 1), n]\n",
       "N | B"},
  };
  for (const auto& c : cases) {
    INFO(c.what);
    const nw_op& op = load(rt, c.text);
    CHECK(std::string(op.batch == nullptr ? "none" : op.batch) == (c.batch == nullptr ? "none" : c.batch));
  }
}

TEST_CASE("a program is planned from its text, and called as every op") {
  const Loaded rt({"probe"});
  const nw_op& op = load(rt, std::string("# a comment\n") + kScale);
  Array x({2, 3}, kProbe, {kDLInt, 8, 1}), shift({3}, kProbe, kI32), y({2, 3}, kProbe, kI32);
  Call(op.name, {&x, &shift}, {&y}).params(ScaleParams{2, 0.25, 1}).ok(rt);
  Probe& probe = rt.probe();
  CHECK(probe.text == std::string(kScale));
  CHECK(probe.scheduled.empty());
  CHECK(probe.last_sig().op == op.name);
  CHECK(probe.last_sig().params.size() == 17);  // without the zeros at the end
  CHECK((probe.plans == 1 && probe.launches == 1));
  CHECK(*y.data<unsigned char>() == 0x5A);
  Call(op.name, {&x, &shift}, {&y}).params(ScaleParams{2, 0.25, 1}).ok(rt);
  CHECK((probe.plans == 1 && probe.launches == 2));
  Call(op.name, {&x, nullptr}, {&y}).params(ScaleParams{2, 0.25, 1}).ok(rt);
  CHECK((probe.plans == 2 && probe.last_sig().num_inputs == 1));

  std::vector<nw_spec> specs(1);
  Call call(op.name, {&x, &shift});
  REQUIRE(call.infer(rt, specs) == NW_OK);
  CHECK((specs[0].dtype.bits == 32 && specs[0].ndim == 2 && specs[0].shape[1] == 3));
  CHECK(probe.infers == 0);
}

TEST_CASE("calls that do not fit a program are refused before a plugin is asked") {
  const Loaded rt({"probe"});
  const nw_op& op = load(rt, kScale);
  Array x({2, 3}, kProbe, {kDLInt, 8, 1}), wrong({2, 3}), shift({3}, kProbe, kI32), y({2, 3}, kProbe, kI32),
      small({2}, kProbe, kI32);
  Call(op.name, {&wrong, &shift}, {&y}).refused(rt, NW_INVALID, 0, {"x has dtype float32; expected int8"});
  Call(op.name, {&x, &shift}, {&wrong}).refused(rt, NW_INVALID, 2, {"y has dtype float32; expected int32"});
  Call(op.name, {&x, &small}, {&y}).refused(rt, NW_INVALID, 1, {"shift has shape (2,)", "is 3 here"});
  Call(op.name, {&x, &shift}, {&small}).refused(rt, NW_INVALID, 2, {"y has shape (2,); expected (2, 3)"});
  Call(op.name, {nullptr, &shift}, {&y}).refused(rt, NW_INVALID, 0, {"x is absent"});
  Call(op.name, {&x, &shift}, {nullptr}).refused(rt, NW_INVALID, 2, {"y is NULL"});
  Call(op.name, {&x}, {&y}).params(std::array<int64_t, 4>{1, 0, 0, 1}).refused(rt, NW_UNSUPPORTED, -1, {"knows 24 bytes"});
  Call unknown_kernel(op.name, {&x}, {&y});
  unknown_kernel.raw.kernel = "fastest";
  unknown_kernel.refused(rt, NW_UNSUPPORTED, -1, {"no kernel 'fastest'; it has: fast, slow"});
  Call known(op.name, {&x}, {&y});
  known.raw.kernel = "slow";
  CHECK((rt.probe().plans == 0 && rt.probe().asks == 0));
  known.ok(rt);
  std::string other = op.name;
  other[20] = other[20] == '0' ? '1' : '0';
  Call(other.c_str(), {&x}, {&y}).refused(rt, NW_INVALID, -1, {"unknown op", "did you mean 'program.scale_"});
}

TEST_CASE("dimensions are computed, and an in-out tensor is an input and an output") {
  const Loaded rt({"probe"});
  const nw_op& op = load(rt, kUpdate);
  CHECK(list(op.inputs) == "x y");
  CHECK(list(op.outputs) == "y z");
  CHECK(op.flags == NW_OP_INPLACE);
  Array x({5}), y({9}), new_y({9}), z({2, 5, 1});
  Call(op.name, {&x, &y}, {&y, &z}).ok(rt);
  CHECK(rt.probe().last_sig().tensors[2].alias_of == 1);
  Call(op.name, {&x, &y}, {&new_y, &z}).ok(rt);
  Array short_y({8});
  Call(op.name, {&x, &short_y}, {&new_y, &z}).refused(rt, NW_INVALID, 1, {"y has shape (8,)", "is 9 here"});
  Array empty({0}), none({0});
  Call(op.name, {&empty, &none}, {&none, &z}).refused(rt, NW_INVALID, 1, {"y has shape (0,)", "is -1 here"});
  // x is no output: another output may not be it, though the op's flag says that one may.
  const nw_op& pair = load(rt,
                           "program 1 pair(x: f32[N], y: inout f32[N], z: out f32[N]):\n  for i in N:\n    block y(vi: S(N) = i):\n"
                           "      y[vi] = y[vi] + x[vi]\n      z[vi] = x[vi]\n");
  Array a({4}), b({4});
  Call(pair.name, {&a, &b}, {&b, &a}).refused(rt, NW_INVALID, 3, {"z is the same memory as x", "does not work in place there"});
  Call(pair.name, {&b, &b}, {&b, &a}).refused(rt, NW_INVALID, 2, {"output 0 is the same memory as inputs 0 and 1"});
}

TEST_CASE("tensors of a program that share memory are refused") {
  const Loaded rt({"probe"});
  const nw_op& op = load(rt, square("square"));
  Array base({8});
  Array x = Array::view(base, {4}, {1}, 0), same = Array::view(base, {4}, {1}, 0), behind = Array::view(base, {4}, {1}, 16),
        across = Array::view(base, {4}, {1}, 8), between = Array::view(base, {4}, {2}, 4), over = Array::view(base, {4}, {2}, 0);
  for (Array* y : {&same, &across, &over}) Call(op.name, {&x}, {y}).refused(rt, NW_INVALID, 1, {"y", "x"});
  Call(op.name, {&x}, {&across}).refused(rt, NW_INVALID, 1, {"y of shape (4,)", "overlaps x of shape (4,)"});
  Call(op.name, {&over}, {&between}).ok(rt);
  Call(op.name, {&x}, {&behind}).ok(rt);
  CHECK(rt.probe().launches == 2);
}

TEST_CASE("a schedule goes to the plugins of its name, and calls are planned again") {
  const Loaded rt({"probe"});
  const nw_op& op = load(rt, square("square"));
  std::string parallel = square("square");
  parallel.replace(parallel.find("in N:"), 5, "in N parallel:");
  Array x({4}), y({4});
  Error error;
  expect_refused(nw_schedule_program(rt, op.name, "another", parallel.c_str(), &error), error, NW_INVALID, -1,
                 {"backend = 'another'; expected the name of a plugin that was found"});
  Call(op.name, {&x}, {&y}).ok(rt);
  CHECK((rt.probe().plans == 1 && rt.probe().scheduled.empty()));
  REQUIRE(nw_schedule_program(rt, op.name, "probe", ("# mine\n" + parallel).c_str(), &error) == NW_OK);
  Call(op.name, {&x}, {&y}).ok(rt);
  CHECK((rt.probe().plans == 2 && rt.probe().scheduled == parallel && rt.probe().text == square("square")));
  Call(op.name, {&x}, {&y}).ok(rt);
  CHECK(rt.probe().plans == 2);
  REQUIRE(nw_schedule_program(rt, op.name, "probe", nullptr, &error) == NW_OK);
  Call(op.name, {&x}, {&y}).ok(rt);
  CHECK((rt.probe().plans == 3 && rt.probe().scheduled.empty()));

  expect_refused(nw_schedule_program(rt, op.name, "probe", square("other").c_str(), &error), error, NW_INVALID, -1,
                 {"is of another program", "program 1 other(", "expected", "program 1 square("});
  expect_refused(nw_schedule_program(rt, op.name, "probe", "program 1", &error), error, NW_INVALID, -1, {"line 1, column 10"});
  expect_refused(nw_schedule_program(rt, "program.none/1", "probe", nullptr, &error), error, NW_INVALID, -1,
                 {"op = 'program.none/1'; expected that of a program that was loaded before"});
}

TEST_CASE("a program is differentiated by another one, which says what is saved") {
  const Loaded rt({"probe"});
  const nw_op& backward = load(rt, kSquareBackward);
  const nw_op& plain = load(rt, square("square"));
  const nw_op& op = load(rt, square("square"), backward.name);
  CHECK(op.backward == std::string(backward.name));
  CHECK(op.saved == 1);  // x; y is not read
  CHECK(std::string(op.name) != plain.name);
  CHECK(plain.backward == nullptr);
  CHECK(&load(rt, square("square"), backward.name) == &op);
  check_contains(refused(rt, square("square"), "conv1d_backward"), "expected the op of a program that was loaded before");
  check_contains(refused(rt, square("square"), plain.name), "takes 1 inputs and gives 1 outputs; expected 3");
  const char* const other =
      "program 1 b(g?: f32[N], x: f64[N], y?: f32[N], gx: out f64[N]):\n  for i in N:\n    block g(vi: S(N) = i):\n      gx[vi] = "
      "x[vi]\n";
  check_contains(refused(rt, square("square"), load(rt, other).name), "'x' is of float64; expected float32, for it is input 'x'");
}

TEST_CASE("a backward that does not fit is refused; what it reads of the outputs is saved, too") {
  const Loaded rt({"probe"});
  const auto backward = [&](const std::string& items, const std::string& body) {
    return load(rt, "program 1 b(" + items + "):\n  for i in N:\n    block g(vi: S(N) = i):\n      " + body + "\n").name;
  };
  const char* const by_output =
      backward("g?: f32[N], x: f32[N], y?: f32[N], gx: out f32[N]", "gx[vi] = where(present(y), x[vi], f32(0))");
  CHECK(load(rt, square("square"), by_output).saved == (1 | uint64_t{1} << 32));
  const char* const two =
      backward("g?: f32[N], x: f32[N], y?: f32[N], gx: out f32[N], gz: out f32[N]", "gx[vi] = x[vi]\n      gz[vi] = x[vi]");
  check_contains(refused(rt, square("square"), two), "takes 3 inputs and gives 2 outputs; expected 3");
  const char* const wide = backward("g?: f32[N], x: f64[N], y?: f32[N], gx: out f32[N]", "gx[vi] = f32(x[vi])");
  check_contains(refused(rt, square("square"), wide), "'x' is of float64; expected float32, for it is input 'x'");
  const char* const of_output = backward("g?: f64[N], x: f32[N], y?: f32[N], gx: out f32[N]", "gx[vi] = x[vi]");
  check_contains(
      refused(rt, square("square"), of_output),
      "'g?' is of float64; expected float32, for it is the gradient of output 'y': a tensor and its gradient have one dtype");
  const char* const output = backward("g?: f32[N], x: f32[N], y?: i32[N], gx: out f32[N]", "gx[vi] = x[vi]");
  check_contains(refused(rt, square("square"), output), "'y?' is of int32; expected float32, for it is output 'y'");
  const char* const of_input = backward("g?: f32[N], x: f32[N], y?: f32[N], gx: out f16[N]", "gx[vi] = f16(x[vi])");
  check_contains(refused(rt, square("square"), of_input),
                 "'gx' is of float16; expected float32, for it is the gradient of input 'x'");
  // An absent tensor before one that is there.
  const nw_op& op = load(rt, kSquareBackward);
  Array x({4}), gx({4});
  Call(op.name, {nullptr, &x}, {&gx}).ok(rt);
  CHECK(rt.probe().last_sig().tensors[0].ndim == -1);
}

TEST_CASE("every dtype of a program is one of DLPack's") {
  const Loaded rt({"probe"});
  const nw_op& op = load(rt,
                         "program 1 f(a: bool[N], b: bf16[N], c: f16[N], d: u16[N], e: i64[N], y: out f64[N]):\n  for i in N:\n"
                         "    block y(vi: S(N) = i):\n      y[vi] = f64(e[vi])\n");
  const std::pair<int, int> expected[] = {{kDLBool, 8}, {kDLBfloat, 16}, {kDLFloat, 16}, {kDLUInt, 16}, {kDLInt, 64}};
  for (size_t i = 0; i < 5; ++i) {
    CAPTURE(i);
    CHECK((op.input_dtypes[i].code == expected[i].first && op.input_dtypes[i].bits == expected[i].second &&
           op.input_dtypes[i].lanes == 1));
  }
  CHECK((op.output_dtypes[0].code == kDLFloat && op.output_dtypes[0].bits == 64));
}

TEST_CASE("what is no program, or cannot be run here, is refused") {
  const Loaded rt({"probe", "probecl"});
  check_contains(refused(rt, ""), "line 1, column 1");
  check_contains(refused(rt, "program 2 f(x: f32[N]):"), "line 1, column 9: the text is of version 2");
  check_contains(refused(rt, "program 1 f(x: f32[N], y: out f32[N]):\n  block y():\n    y[0] = x[0, 0]\n"), "block 'y'");
  const nw_op& op = load(rt, square("square"));
  const DLDevice opencl{kDLOpenCL, 0};
  Array x({4}, opencl), y({4}, opencl);
  Call(op.name, {&x}, {&y}).refused(rt, NW_UNSUPPORTED, -1, {"probecl has no tensor programs"});
  const DLDevice metal{kDLMetal, 0};
  Array on_metal({4}, metal), to_metal({4}, metal);
  Call(op.name, {&on_metal}, {&to_metal}).refused(rt, NW_UNAVAILABLE, -1, {"no plugin serves Metal:0"});
  Call("program.zzzzzzzz/1", {&x}, {&y})
      .refused(rt, NW_INVALID, -1, {"unknown op 'program.zzzzzzzz/1'; no program of that name was loaded"});
  const nw_op* out = nullptr;
  Error error;
  expect_refused(nw_load_program(nullptr, "", nullptr, &out, &error), error, NW_INVALID, -1, {"runtime is NULL"});
  expect_refused(nw_load_program(rt, nullptr, nullptr, &out, &error), error, NW_INVALID, -1, {"text is NULL"});
  expect_refused(nw_load_program(rt, "", nullptr, nullptr, &error), error, NW_INVALID, -1, {"out is NULL"});
  expect_refused(nw_schedule_program(rt, op.name, nullptr, nullptr, &error), error, NW_INVALID, -1, {"backend is NULL"});
}
