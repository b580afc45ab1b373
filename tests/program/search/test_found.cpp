// SPDX-License-Identifier: Apache-2.0
// test_found.cpp -- schedules that were accepted once and computed something else, each reduced to its program and steps. Every
// step may be refused; after one that is accepted the program computes what it did, by the reference.
#include <catch2/catch_test_macros.hpp>

#include "core/error.h"
#include "core/program/schedule.h"
#include "core/program/text.h"
#include "reference/program.h"

using namespace narrows::reference;
using narrows::program::Schedule;
using Sizes = std::map<std::string, int64_t>;

namespace {

void check_steps(const std::string& text, const std::vector<std::string>& steps, const std::vector<Sizes>& all_sizes) {
  Schedule schedule(narrows::program::parse(text));
  for (const std::string& step : steps) {
    CAPTURE(step);
    try {
      schedule.apply(step);
    } catch (const narrows::Failure& failure) {
      UNSCOPED_INFO(failure.message);
      CHECK(failure.status == NW_INVALID);
      continue;
    }
    for (const Sizes& sizes : all_sizes) {
      const Arguments arguments = small_integers(schedule.original(), sizes, 1);
      const Evaluation before = evaluate(schedule.original(), arguments), after = evaluate(schedule.program(), arguments);
      std::vector<std::string> found = after.faults;
      for (const std::string& line : differences(before, after, schedule.original())) found.push_back(line);
      for (const std::string& line : found) FAIL_CHECK(line << "\n" << narrows::program::print(schedule.program()));
    }
  }
}

}  // namespace

TEST_CASE("rfactor keeps the conditions of loops that were split before") {
  const std::string sum =
      "program 1 f(x: f32[N], C: out f32[1]):\n  for i in N:\n    block C(vi: R(N) = i):\n      init:\n        C[0] = f32(0)\n"
      "      C[0] = C[0] + x[vi]\n";
  check_steps(
      sum, {"split(loop=\"i\", factors=[None, 3])", "split(loop=\"i_1\", factors=[None, 2, 3])", "rfactor(loop=\"i_1_0\", axis=1)"},
      {{{"N", 4}}, {{"N", 7}}, {{"N", 0}}});
  const std::string pairs =
      "program 1 f(x: f32[N], C: out f32[1]):\n  for i in (N + 1) // 2:\n    for j in 2:\n"
      "      block C(vi: R(N) = i * 2 + j) if i * 2 + j < N:\n        init:\n          C[0] = f32(0)\n        C[0] = C[0] + "
      "x[vi]\n";
  check_steps(pairs, {"split(loop=\"j\", factors=[5, None])", "rfactor(loop=\"j_1\", axis=1)"}, {{{"N", 4}}, {{"N", 5}}});
  check_steps(pairs, {"split(loop=\"j\", factors=[None, 4])", "rfactor(loop=\"i\", axis=0)"}, {{{"N", 4}}, {{"N", 5}}});
}

TEST_CASE("a reduction keeps its init where the loop that it moved into runs no iteration") {
  check_steps(
      "program 1 f(x: f32[N], C: out f32[3]):\n  alloc P: f32[N]\n  for i in N:\n    block P(vi: S(N) = i):\n      P[vi] = x[vi]\n"
      "  for j in 3:\n    for k in N:\n      block C(vj: S(3) = j, vk: R(N) = k):\n        init:\n          C[vj] = f32(1)\n"
      "        C[vj] = C[vj] + P[0]\n",
      {"reverse_compute_at(block=\"C\", loop=\"i\")"}, {{{"N", 0}}, {{"N", 3}}});
}

// The three that TVM 0.27 takes.
TEST_CASE("a reduction does not move into the loop of what it reduces") {
  check_steps(
      "program 1 f(A: f32[N, K], C: out f32[N]):\n  alloc Y: f32[N]\n  for i in N:\n    for k in K:\n"
      "      block Y(vi: S(N) = i, vk: R(K) = k):\n        init:\n          Y[vi] = f32(0)\n        Y[vi] = Y[vi] + A[vi, vk]\n"
      "  for j in N:\n    for l in N:\n      block C(vj: S(N) = j, vl: R(N) = l):\n        init:\n          C[vj] = f32(0)\n"
      "        C[vj] = C[vj] + Y[vj] * Y[vl]\n",
      {"reverse_compute_at(block=\"C\", loop=\"k\")", "reverse_compute_at(block=\"C\", loop=\"i\")"}, {{{"N", 3}, {"K", 4}}});
}

TEST_CASE("a block does not move behind one of its readers") {
  check_steps(
      "program 1 f(A: f32[N, N], B: f32[N, N], C: out f32[N, N], S: out f32[N]):\n  alloc Q: f32[N, N]\n  for i in N:\n    for j "
      "in N:\n"
      "      block Q(vi: S(N) = i, vj: S(N) = j):\n        Q[vi, vj] = A[vi, vj] * A[vi, vj] + B[vi, vj]\n"
      "  for i1 in N:\n    for j1 in N:\n      block S(vi: S(N) = i1, vj: R(N) = j1):\n        init:\n          S[vi] = f32(0)\n"
      "        S[vi] = S[vi] + Q[vi, vj]\n  for i2 in N:\n    for j2 in N:\n      block C(vi: S(N) = i2, vj: S(N) = j2):\n"
      "        C[vi, vj] = Q[vi, vj] - S[vi]\n",
      {"reverse_compute_at(block=\"Q\", loop=\"i1\")", "reverse_compute_at(block=\"C\", loop=\"i\")",
       "compute_at(block=\"Q\", loop=\"i1\")", "compute_at(block=\"Q\", loop=\"i2\")",
       "reverse_compute_at(block=\"C\", loop=\"i1\")"},
      {{{"N", 4}}, {{"N", 1}}});
}

TEST_CASE("a vector holds no reduction with its init") {
  check_steps(
      "program 1 f(A: f32[4, 4], B: f32[4, 4], C: out f32[4, 4]):\n  alloc Y: f32[4, 4]\n  for i in 4:\n    for j in 4:\n      for "
      "k in 4:\n"
      "        block Y(vi: S(4) = i, vj: S(4) = j, vk: R(4) = k):\n          init:\n            Y[vi, vj] = f32(0)\n"
      "          Y[vi, vj] = Y[vi, vj] + A[vi, vk] * B[vk, vj]\n  for i1 in 4:\n    for j1 in 4:\n"
      "      block C(vi: S(4) = i1, vj: S(4) = j1):\n        C[vi, vj] = maximum(Y[vi, vj], f32(0))\n",
      {"compute_at(block=\"Y\", loop=\"i1\")", "vectorize(loop=\"i1\")"}, {{}});
}

TEST_CASE("lanes of a loop that holds others, in each place") {
  const std::string mm =
      "program 1 f(A: f32[5, K], B: f32[K, 3], C: out f32[5, 3]):\n  alloc Y: f32[5, 3]\n  for i in 5:\n    for j in 3:\n      for "
      "k "
      "in K:\n"
      "        block Y(vi: S(5) = i, vj: S(3) = j, vk: R(K) = k):\n          init:\n            Y[vi, vj] = f32(1)\n"
      "          Y[vi, vj] = Y[vi, vj] + A[vi, vk] * B[vk, vj]\n  for i1 in 5:\n    for j1 in 3:\n"
      "      block C(vi: S(5) = i1, vj: S(3) = j1):\n        C[vi, vj] = maximum(Y[vi, vj], f32(0))\n";
  const std::vector<Sizes> sizes = {{{"K", 0}}, {{"K", 4}}};
  check_steps(mm, {"vectorize(loop=\"i\")", "vectorize(loop=\"j\")", "vectorize(loop=\"k\")", "reorder(loops=[\"k\", \"i\"])"},
              sizes);
  check_steps(mm, {"vectorize(loop=\"i1\")", "compute_at(block=\"Y\", loop=\"i1\")", "vectorize(loop=\"ax1\")"}, sizes);
  check_steps(
      mm, {"vectorize(loop=\"i\")", "reverse_compute_at(block=\"C\", loop=\"i\")", "decompose_reduction(block=\"Y\", loop=\"k\")"},
      sizes);
  check_steps(mm,
              {"parallel(loop=\"i\")", "vectorize(loop=\"i\")", "split(loop=\"i\", factors=[None, 2])", "unroll(loop=\"i_1\")",
               "fuse(loops=[\"i_0\", \"i_1\"])"},
              sizes);
}

TEST_CASE("a block that reads no other one is computed in each iteration of a loop") {
  check_steps(
      "program 1 f(A: f32[N, 3], X: inout f32[3], C: out f32[N, 3], S: out f32[N]):\n  alloc Y: f32[N, 3]\n"
      "  for i in N:\n    for j in 3:\n      block Y(vi: S(N) = i, vj: S(3) = j):\n        Y[vi, vj] = A[vi, vj] * A[vi, vj]\n"
      "  for i1 in N:\n    for k in 3:\n      block S(vi: S(N) = i1, vk: R(3) = k):\n        init:\n          S[vi] = f32(0)\n"
      "        S[vi] = S[vi] + Y[vi, vk]\n  for i2 in N:\n    for j2 in 3:\n      block C(vi: S(N) = i2, vj: S(3) = j2):\n"
      "        C[vi, vj] = Y[vi, vj] - S[vi]\n  for l in 3:\n    block X(vl: S(3) = l):\n      X[vl] = X[vl] + f32(1)\n",
      {"reverse_compute_at(block=\"X\", loop=\"i2\")", "reverse_compute_at(block=\"S\", loop=\"i2\")",
       "reverse_compute_at(block=\"Y\", loop=\"i2\")", "reverse_compute_at(block=\"Y\", loop=\"k\")",
       "reverse_compute_at(block=\"Y\", loop=\"i1\")", "vectorize(loop=\"i1\")", "parallel(loop=\"i1\")"},
      {{{"N", 0}}, {{"N", 4}}});
}
