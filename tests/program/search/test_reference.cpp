// SPDX-License-Identifier: Apache-2.0
// test_reference.cpp -- the reference of tensor programs: against plain formulas and the references of built-in ops, and that it
// reports each fault that it is for.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <fstream>
#include <iterator>

#include "core/program/text.h"
#include "reference/conv1d.h"
#include "reference/lltm.h"
#include "reference/program.h"

using namespace narrows::reference;
using Catch::Matchers::ContainsSubstring;
using narrows::program::parse;
using narrows::program::Program;

namespace {

using Values = std::vector<Exact>;

Program program_of(const std::string& name) {
  std::ifstream file(std::string(TEXTS) + "/" + name + ".program");
  return parse(std::string(std::istreambuf_iterator<char>(file), {}));
}

Evaluation run_clean(const Program& program, const Arguments& arguments) {
  Evaluation result = evaluate(program, arguments);
  for (const std::string& fault : result.faults) UNSCOPED_INFO(fault);
  CHECK(result.faults.empty());
  return result;
}

void check_close(const Values& got, const Values& want) {
  REQUIRE(got.size() == want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    CAPTURE(i, got[i], want[i]);
    CHECK(std::fabs(got[i] - want[i]) <= 1e-15L * std::fmax(1, std::fabs(want[i])));
  }
}

// The faults of a program on small integers, one after the other.
std::string faults_of(const std::string& text, std::map<std::string, int64_t> sizes = {}) {
  const Program program = parse(text);
  std::string all;
  for (const std::string& fault : evaluate(program, small_integers(program, std::move(sizes), 1)).faults) all += fault + "\n";
  return all;
}

}  // namespace

TEST_CASE("mm_relu is a product and a maximum") {
  const Program program = program_of("mm_relu");
  Arguments arguments = small_integers(program, {}, 3);
  const Evaluation result = run_clean(program, arguments);
  const Values &a = arguments.tensors.at("A"), &b = arguments.tensors.at("B");
  Values want(128 * 128);
  for (int i = 0; i < 128; ++i)
    for (int j = 0; j < 128; ++j) {
      Exact sum = 0;
      for (int k = 0; k < 128; ++k) sum += a[i * 128 + k] * b[k * 128 + j];
      want[i * 128 + j] = std::fmax(sum, 0);
    }
  CHECK(result.arrays.at("C").values == want);
  CHECK(result.arrays.at("Y").writes == std::vector<int64_t>(128 * 128, 129));  // its init, and 128 updates
  CHECK(result.blocks.at("Y").points.size() == 128 * 128 * 128);
}

TEST_CASE("conv1d is the reference of conv1d") {
  const Program program = program_of("conv1d");
  const int64_t N = 2, L = 9, K = 3;
  Arguments arguments = small_integers(program, {{"N", N}, {"L", L}, {"K", K}}, 4);
  const auto reals = [&](const char* name) {
    const Values& values = arguments.tensors.at(name);
    return std::vector<double>(values.begin(), values.end());
  };
  const Conv1d shape{N, 8, L, 6, K, 2, 3, 2, 4, 4};
  const std::vector<double> want = conv1d(shape, reals("x"), reals("w"), reals("bias"));
  CHECK(run_clean(program, arguments).arrays.at("y").values == Values(want.begin(), want.end()));
  arguments.tensors.erase("bias");
  const std::vector<double> bare = conv1d(shape, reals("x"), reals("w"), std::vector<double>(6, 0));
  CHECK(run_clean(program, arguments).arrays.at("y").values == Values(bare.begin(), bare.end()));
}

TEST_CASE("softmax, a running sum and the place of the largest") {
  const Values x = {1, 3, 2, 5, 5, -1};  // two rows of three
  const Arguments arguments{{{"M", 2}, {"N", 3}}, {}, {{"x", x}}};
  Values soft;
  for (size_t row = 0; row < 2; ++row) {
    Exact total = 0;
    for (size_t j = 0; j < 3; ++j) total += std::exp(x[row * 3 + j]);
    for (size_t j = 0; j < 3; ++j) soft.push_back(std::exp(x[row * 3 + j]) / total);
  }
  check_close(run_clean(program_of("softmax"), arguments).arrays.at("y").values, soft);
  CHECK(run_clean(program_of("cumsum"), arguments).arrays.at("y").values == Values{1, 4, 6, 5, 10, 9});
  const Evaluation top = run_clean(program_of("argmax"), arguments);
  CHECK(top.arrays.at("where_").values == Values{1, 0});
  CHECK(top.arrays.at("top").values == Values{3, 5});
}

TEST_CASE("every program of the texts runs without a fault, also where a size is 0") {
  for (const char* name : {"add", "argmax", "attention", "batched_matmul", "conv1d", "cumsum", "depthwise_conv2d", "gather",
                           "int8_matmul", "layer_norm", "lltm", "log_sum_exp", "rms_norm", "softmax", "stencil"}) {
    CAPTURE(name);
    const Program program = program_of(name);
    for (const int64_t n : {4, 1, 0}) {
      std::map<std::string, int64_t> sizes;
      for (const auto& tensor : program.tensors)
        for (const auto& extent : tensor.shape)
          if (extent->kind == narrows::program::Expr::Kind::name) sizes[extent->name] = n;
      if (n == 0 && std::string(name) == "conv1d") continue;  // its output's extent would be negative
      run_clean(program, small_integers(program, sizes, 5));
    }
  }
}

TEST_CASE("a reduction begins with its init whatever the order, and over nothing") {
  const std::string backwards =
      "program 1 f(A: f32[N, K], C: out f32[N]):\n  for i in N:\n    for k in K:\n"
      "      block C(vi: S(N) = i, vk: R(K) = K - 1 - k):\n        init:\n          C[vi] = f32(7)\n        C[vi] = C[vi] + A[vi, "
      "vk]\n";
  const Program program = parse(backwards);
  Arguments arguments{{{"N", 2}, {"K", 2}}, {}, {{"A", {1, 2, 3, 4}}}};
  CHECK(run_clean(program, arguments).arrays.at("C").values == Values{10, 14});
  arguments = {{{"N", 2}, {"K", 0}}, {}, {{"A", {}}}};
  CHECK(run_clean(program, arguments).arrays.at("C").values == Values{7, 7});
}

TEST_CASE("integers wrap, and floating values are rounded where that is asked for") {
  const Program program = parse(
      "program 1 f(a: i8[1], x: f32[1], c: out i8[1], y: out f32[1]):\n  for i in 1:\n    block c(vi: S(1) = i):\n"
      "      c[vi] = a[vi] * i8(2)\n      y[vi] = x[vi] / f32(3)\n");
  const Arguments arguments{{}, {}, {{"a", {100}}, {"x", {1}}}};
  CHECK(evaluate(program, arguments).arrays.at("c").values == Values{-56});
  CHECK(evaluate(program, arguments).arrays.at("y").values == Values{Exact(1) / 3});
  CHECK(evaluate(program, arguments, Rounding::each).arrays.at("y").values == Values{1.0F / 3.0F});
}

TEST_CASE("each fault is reported") {
  const std::string head = "program 1 f(A: f32[4], C: out f32[4]):\n";
  const std::string copy = "  for i in 4:\n    block C(vi: S(4) = i):\n      C[vi] = ";
  CHECK(faults_of(head + copy + "A[vi]\n").empty());
  CHECK_THAT(faults_of(head + copy + "A[vi + 1]\n"), ContainsSubstring("block C reads A[4], out of bounds; at i=3"));
  CHECK(faults_of(head + copy + "where(vi < 3, A[vi + 1], f32(0))\n").empty());
  CHECK_THAT(faults_of(head + "  alloc Y: f32[4]\n  for i in 2:\n    block Y(vi: S(2) = i):\n      Y[vi * 2] = A[vi]\n"
                              "  for j in 4:\n    block C(vi: S(4) = j):\n      C[vi] = Y[vi]\n"),
             ContainsSubstring("block C reads Y[1], which nothing has written; at j=1"));
  CHECK_THAT(faults_of(head + "  for i in 4:\n    block C(vi: S(4) = i):\n      C[vi // 2] = A[vi]\n"),
             ContainsSubstring("block C writes C[0], which it writes at another spatial point, too; at i=1") &&
                 ContainsSubstring("element 2 of output C is never written"));
  CHECK_THAT(faults_of(head + "  for i in 5:\n    block C(vi: S(4) = i):\n      C[vi] = A[vi]\n"),
             ContainsSubstring("block C runs at vi[4], out of its extent; at i=4"));
}

TEST_CASE("iterations of a parallel loop that share an element") {
  const auto loops = [](const std::string& kind, const std::string& value) {
    return "program 1 f(A: f32[4], C: out f32[4]):\n  alloc Y: f32[4]\n  for i in 4" + kind +
           ":\n    block Y(vi: S(4) = i):\n      Y[vi] = A[vi]\n    block C(vi: S(4) = i):\n      C[vi] = " + value + "\n";
  };
  for (const char* kind : {" parallel", " vectorize", " bind block.x"}) {
    CAPTURE(kind);
    CHECK_THAT(faults_of(loops(kind, "Y[vi] + Y[max(vi - 1, 0)]")),
               ContainsSubstring("block C reads Y[0], which another iteration of i writes; at i=1"));
    CHECK(faults_of(loops(kind, "Y[vi]")).empty());
  }
  CHECK(faults_of(loops("", "Y[vi] + Y[max(vi - 1, 0)]")).empty());
  // One element for all iterations: each has its own copy if nothing else uses it.
  const std::string own =
      "program 1 f(A: f32[4], C: out f32[4]):\n  alloc t: f32[1]\n  for i in 4 parallel:\n    for z in 1:\n      block t(vz: S(1) "
      "= z):\n"
      "        t[vz] = A[vz]\n    block C(vi: S(4) = i):\n      C[vi] = t[0]\n";
  CHECK(faults_of(own).empty());
  CHECK_THAT(faults_of(own + "  for i2 in 4:\n    block D(vi: S(4) = i2):\n      C[vi] = t[0]\n"),
             ContainsSubstring("block t writes t[0], which another iteration of i uses"));
  CHECK_THAT(faults_of("program 1 f(A: f32[4], C: out f32[1]):\n  for i in 1:\n    for k in 4 parallel:\n      block C(vi: S(1) = "
                       "i, vk: R(4) = k):\n"
                       "        init:\n          C[vi] = f32(0)\n        C[vi] = C[vi] + A[vk]\n"),
             ContainsSubstring("block C reads C[0], which another iteration of k writes"));
}

TEST_CASE("memory of a thread or of a block is read where it was written") {
  const auto threads = [](const std::string& scope, const std::string& axis, const std::string& place) {
    return "program 1 f(A: f32[4], C: out f32[4]):\n  alloc Y: f32[4] " + scope + "\n  for t in 4 bind " + axis +
           ":\n    block Y(vi: S(4) = t):\n      Y[vi] = A[vi]\n  for u in 4 bind " + axis +
           ":\n    block C(vi: S(4) = u):\n      C[vi] = Y[" + place + "]\n";
  };
  CHECK(faults_of(threads("local", "thread.x", "vi")).empty());
  CHECK(faults_of(threads("shared", "thread.x", "3 - vi")).empty());
  CHECK_THAT(faults_of(threads("local", "thread.x", "3 - vi")),
             ContainsSubstring("block C reads Y[3], which another thread has written"));
  CHECK_THAT(faults_of(threads("shared", "block.x", "3 - vi")),
             ContainsSubstring("block C reads Y[3], which another thread has written"));
  CHECK(faults_of(threads("global", "block.x", "3 - vi")).empty());
}

TEST_CASE("what differs between a program and a schedule") {
  const std::string head = "program 1 f(A: f32[6], C: out f32[6]):\n";
  const std::string block = "block C(vi: S(6) = ";
  const Program before = parse(head + "  for i in 6:\n    " + block + "i):\n      C[vi] = A[vi]\n");
  const auto compared = [&](const std::string& body) {
    const Program after = parse(head + body);
    const Arguments arguments = small_integers(before, {}, 2);
    std::string all;
    for (const std::string& line : differences(evaluate(before, arguments), evaluate(after, arguments), before)) all += line + "\n";
    return all;
  };
  const std::string split = "  for i_0 in 2:\n    for i_1 in 4:\n      ";
  CHECK(compared(split + block + "i_0 * 4 + i_1) if i_0 * 4 + i_1 < 6:\n        C[vi] = A[vi]\n").empty());
  CHECK_THAT(compared(split + block + "i_0 * 4 + i_1) if i_0 * 4 + i_1 < 5:\n        C[vi] = A[vi]\n"),
             ContainsSubstring("block C does not run at [5]") && ContainsSubstring("element 5 of C"));
  CHECK_THAT(compared("  for i in 6:\n    " + block + "i):\n      C[vi] = A[vi] + f32(1)\n"), ContainsSubstring("element 0 of C"));
}
