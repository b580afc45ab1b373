// SPDX-License-Identifier: Apache-2.0
// test_schedule.cpp -- each step with the program that it gives, and each rule with what it refuses and the counterexample that it
// names.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <ctime>

#include "core/program/auto.h"
#include "core/program/expr.h"
#include "core/program/ranges.h"
#include "core/program/schedule.h"
#include "schedules.h"

using Catch::Matchers::ContainsSubstring;
using narrows::program::parse;
using narrows::program::print;
using narrows::program::Schedule;

namespace {

// Two nests over `extent` points: Y by `first`, C by `second`.
std::string chain(const std::string& extent, const std::string& first, const std::string& second, const std::string& more = "") {
  return "program 1 chain(A: f32[" + extent + "], C: out f32[" + extent + "]):\n  alloc Y: f32[" + extent + "]\n  for i in " +
         extent + ":\n    block Y(vi: S(" + extent + ") = i):\n      Y[vi] = " + first + "\n  for j in " + extent +
         ":\n    block C(vi: S(" + extent + ") = j):\n      C[vi] = " + second + "\n" + more;
}

}  // namespace

TEST_CASE("the walk of mm_relu") {
  Schedule sch = mm_relu();
  CHECK(sch.blocks() == Names{"Y", "C"});
  CHECK(sch.loops("Y") == Names{"i", "j", "k"});
  CHECK(sch.apply("split(loop=\"j\", factors=[None, 8])") == Names{"j_0", "j_1"});
  CHECK_THAT(refused(sch, "split(loop=\"j\", factors=[None, 8])"),
             ContainsSubstring("there is no loop 'j'; it became 'j_0', 'j_1'"));
  CHECK(sch.apply("reorder(loops=[\"j_0\", \"k\", \"j_1\"])").empty());
  sch.apply("reverse_compute_at(block=\"C\", loop=\"j_0\")");
  CHECK(sch.apply("decompose_reduction(block=\"Y\", loop=\"k\")") == Names{"Y_init"});
  sch.apply("parallel(loop=\"i\")");
  sch.apply("vectorize(loop=\"j_1\")");
  CHECK(body(sch) == R"(  for i in 128 parallel:
    for j_0 in 16:
      for j_1_init in 8:
        block Y_init(vi: S(128) = i, vj: S(128) = j_0 * 8 + j_1_init):
          Y[vi, vj] = f32(0)
      for k in 128:
        for j_1 in 8 vectorize:
          block Y(vi: S(128) = i, vj: S(128) = j_0 * 8 + j_1, vk: R(128) = k):
            Y[vi, vj] = Y[vi, vj] + A[vi, vk] * B[vk, vj]
      for ax1 in 8:
        block C(vi: S(128) = i, vj: S(128) = j_0 * 8 + ax1):
          C[vi, vj] = maximum(Y[vi, vj], f32(0))
)");
  CHECK(sch.home_of("Y") == "j_0");

  Schedule again = mm_relu();  // the trace replays
  for (const std::string& line : sch.trace()) again.apply(line);
  CHECK(print(again.program()) == print(sch.program()));
  CHECK(again.trace() == sch.trace());
}

TEST_CASE("every text of the tests has a meaning") {
  for (const auto& file : program_files()) {
    CAPTURE(file);
    CHECK_NOTHROW(schedule(read_file(file)));
  }
}

TEST_CASE("split of a size leaves a predicate, and of a constant that divides none") {
  Schedule sch = schedule(chain("N", "A[vi]", "Y[vi]"));
  sch.apply("split(loop=\"i\", factors=[None, 8])");
  CHECK_THAT(body(sch),
             ContainsSubstring(
                 "for i_0 in (N + 7) // 8:\n    for i_1 in 8:\n      block Y(vi: S(N) = i_0 * 8 + i_1) if i_0 * 8 + i_1 < N:"));
  CHECK_THAT(refused(sch, "split(loop=\"j\", factors=[4, 8])"),
             ContainsSubstring("the factors give 32 iterations, but loop 'j' has N"));
  CHECK_THAT(refused(sch, "split(loop=\"j\", factors=[None, None])"),
             ContainsSubstring("2 factors are None; expected one at most"));
  CHECK_THAT(refused(sch, "split(loop=\"j\", factors=[None, 0])"), ContainsSubstring("a factor is at least 1, not 0"));
  CHECK_THAT(refused(sch, "split(loop=\"j\", factors=[None, 9223372036854775807])"),
             ContainsSubstring("the product of the factors is more than 2147483648"));
  CHECK_THAT(refused(sch, "split(loop=\"j\", factors=[None, 65536, 65536])"), ContainsSubstring("is more than 2147483648"));
}

TEST_CASE("a loop gets another kind, and its parts are serial") {
  Schedule sch = mm_relu();
  for (const char* line : {"parallel(loop=\"i\")", "unroll(loop=\"i\")", "vectorize(loop=\"i\")", "vectorize(loop=\"i\")"})
    sch.apply(line);
  CHECK_THAT(body(sch), ContainsSubstring("for i in 128 vectorize:\n    for j in 128:"));
  CHECK_THAT(refused(sch, "parallel(loop=\"k\")"), ContainsSubstring("loop 'k' is parallel, but"));
  sch.apply("split(loop=\"i\", factors=[None, 8])");
  CHECK_THAT(body(sch), ContainsSubstring("for i_0 in 16:\n    for i_1 in 8:\n      for j in 128:"));
  sch.apply("parallel(loop=\"i_0\")");
  sch.apply("unroll(loop=\"i_1\")");
  sch.apply("fuse(loops=[\"i_0\", \"i_1\"])");
  CHECK_THAT(body(sch), ContainsSubstring("for i_0_i_1_fused in 128:\n    for j in 128:"));
  sch.apply("parallel(loop=\"i1\")");
  sch.apply("bind(loop=\"i1\", thread=\"block.x\")");
  CHECK_THAT(body(sch), ContainsSubstring("for i1 in 128 bind block.x:"));
  CHECK_THAT(refused(sch, "split(loop=\"i1\", factors=[None, 8])"),
             ContainsSubstring("loop 'i1' is bound to block.x; expected a loop without a thread"));
  CHECK_THAT(refused(sch, "fuse(loops=[\"i1\", \"j1\"])"), ContainsSubstring("loop 'i1' is bound to block.x"));
  sch.apply("unroll(loop=\"i1\")");
  CHECK_THAT(body(sch), ContainsSubstring("for i1 in 128 unroll:"));
  Schedule again = mm_relu();
  for (const std::string& line : sch.trace()) again.apply(line);
  CHECK(print(again.program()) == print(sch.program()));
}

TEST_CASE("what moves into an unrolled loop counts as its stores") {
  Schedule sch = schedule(chain("4096", "A[vi]", "Y[vi]"));
  sch.apply("unroll(loop=\"i\")");
  CHECK_THAT(refused(sch, "reverse_compute_at(block=\"C\", loop=\"i\")"),
             ContainsSubstring("unrolling loop 'i' gives more than 4096 stores"));
}

TEST_CASE("fuse and its bindings") {
  Schedule sch = mm_relu();
  CHECK(sch.apply("fuse(loops=[\"i\", \"j\"])") == Names{"i_j_fused"});
  CHECK_THAT(body(sch), ContainsSubstring("for i_j_fused in 16384:\n    for k in 128:\n      block Y(vi: S(128) = i_j_fused // "
                                          "128, vj: S(128) = i_j_fused % 128, vk: R(128) = k):"));
  sch.apply("parallel(loop=\"i_j_fused\")");
  CHECK_THAT(refused(sch, "fuse(loops=[\"i1\", \"k\"])"), ContainsSubstring("are not within each other"));
}

TEST_CASE("a parallel loop shares nothing between its iterations") {
  Schedule stencil = schedule(
      "program 1 s(A: f32[8], C: out f32[8]):\n  alloc Y: f32[8]\n  for i in 8:\n    block Y(vi: S(8) = i):\n      Y[vi] = f32(2) "
      "* A[vi]\n"
      "    block C(vi: S(8) = i):\n      C[vi] = Y[vi] + Y[max(vi - 1, 0)]\n");
  CHECK_THAT(
      refused(stencil, "parallel(loop=\"i\")"),
      ContainsSubstring("loop 'i' is parallel, but at i=0 Y writes Y[0], and at i=1 C reads it; a value of 'Y' is written in one "
                        "iteration and read in another"));
  Schedule mm = mm_relu();
  CHECK_THAT(refused(mm, "parallel(loop=\"k\")"),
             ContainsSubstring("loop 'k' is parallel, but at i=0 j=0 k=0 Y writes Y[0, 0], and at i=0 j=0 k=1 Y writes it"));
  CHECK_THAT(refused(mm, "bind(loop=\"k\", thread=\"thread.x\")"), ContainsSubstring("loop 'k' is bound"));
}

TEST_CASE("compute_at under a parallel loop: each iteration has its own buffer") {
  Schedule sch = schedule(chain("8", "A[vi]", "Y[vi] + Y[max(vi - 1, 0)]"));
  sch.apply("parallel(loop=\"j\")");
  sch.apply("compute_at(block=\"Y\", loop=\"j\")");
  CHECK(sch.home_of("Y") == "j");
  CHECK_THAT(body(sch), ContainsSubstring("for j in 8 parallel:\n    for ax0 in 8:\n      block Y(vi: S(8) = ax0):"));
}

TEST_CASE("compute_at computes what its readers need, clipped at the ends") {
  Schedule sch = schedule(chain("16", "A[vi]", "Y[vi] + where(vi + 1 < 16, Y[vi + 1], f32(0))"));
  sch.apply("split(loop=\"j\", factors=[None, 4])");
  sch.apply("compute_at(block=\"Y\", loop=\"j_0\")");
  CHECK_THAT(body(sch), ContainsSubstring(
                            "for j_0 in 4:\n    for ax0 in 5:\n      block Y(vi: S(16) = j_0 * 4 + ax0) if j_0 * 4 + ax0 < 16:"));
  CHECK_THAT(refused(sch, "compute_at(block=\"C\", loop=\"j_0\")"),
             ContainsSubstring("block 'C' is within the loop 'j_0' already"));
}

TEST_CASE("what is read later than it is written again is not moved") {
  Schedule sch = schedule(
      "program 1 war(A: f32[4], C: out f32[4], D: out f32[4]):\n  alloc Y: f32[4]\n  for i in 4:\n    block Y(vi: S(4) = i):\n"
      "      Y[vi] = A[vi]\n  for j in 4:\n    block C(vi: S(4) = j):\n      C[vi] = Y[vi]\n  for k in 4:\n    block Z(vi: S(4) = "
      "k):\n"
      "      Y[vi] = f32(2) * A[vi]\n  for l in 4:\n    block D(vi: S(4) = l):\n      D[vi] = Y[vi]\n");
  CHECK_THAT(refused(sch, "reverse_compute_at(block=\"C\", loop=\"k\")"),
             ContainsSubstring("at k=0 Z writes Y[0] before C reads it"));
  CHECK_THAT(refused(sch, "compute_inline(block=\"Y\")"), ContainsSubstring("'Y' is written by other blocks than 'Y', too"));
}

TEST_CASE("a reduction is complete before it is read") {  // TVM's first miscompilation
  Schedule sch = schedule(
      "program 1 two(A: f32[4, 128], C: out f32[4], E: out f32[1]):\n  for i in 4:\n    for k in 128:\n"
      "      block C(vi: S(4) = i, vk: R(128) = k):\n        init:\n          C[vi] = f32(0)\n        C[vi] = C[vi] + A[vi, vk]\n"
      "  for l in 4:\n    block E(vu: S(1) = 0, vi: R(4) = l):\n      init:\n        E[vu] = f32(0)\n      E[vu] = E[vu] + "
      "C[vi]\n");
  CHECK_THAT(refused(sch, "reverse_compute_at(block=\"E\", loop=\"k\")"), ContainsSubstring("E reads C["));
  Schedule mm = mm_relu();
  CHECK_THAT(refused(mm, "reverse_compute_at(block=\"C\", loop=\"k\")"),
             ContainsSubstring("at i=0 j=0 k=0 C reads Y[0, 0], which Y completes only after k=127"));
}

TEST_CASE("a block does not move behind its reader") {  // TVM's second
  Schedule sch = schedule(
      "program 1 q(A: f32[4, 4], B: f32[4, 4], C: out f32[4, 4]):\n  alloc P: f32[4, 4]\n  alloc Q: f32[4, 4]\n  alloc S: f32[4]\n"
      "  for i0 in 4:\n    for j0 in 4:\n      block P(vi: S(4) = i0, vj: S(4) = j0):\n        P[vi, vj] = A[vi, vj] * A[vi, vj]\n"
      "  for i1 in 4:\n    for j1 in 4:\n      block Q(vi: S(4) = i1, vj: S(4) = j1):\n        Q[vi, vj] = P[vi, vj] + B[vi, vj]\n"
      "  for i in 4:\n    for j in 4:\n      block S(vi: S(4) = i, vj: R(4) = j):\n        init:\n          S[vi] = f32(0)\n       "
      " S[vi] = S[vi] + Q[vi, vj]\n"
      "    for j2 in 4:\n      block P2(vi: S(4) = i, vj: S(4) = j2):\n        C[vi, vj] = Q[vi, vj] / S[vi] + P[vi, vj]\n");
  sch.apply("compute_at(block=\"P\", loop=\"i1\")");
  CHECK(refusal([&] { sch.apply("reverse_compute_at(block=\"Q\", loop=\"i\")"); }).find("no block within the loop 'i' writes") !=
        std::string::npos);
  Schedule other =
      schedule(chain("8", "A[vi]", "Y[vi]", "  for k in 8:\n    block D(vi: S(8) = k):\n      C[vi] = C[vi] + Y[7 - vi]\n"));
  CHECK_THAT(refused(other, "reverse_compute_at(block=\"C\", loop=\"k\")"),
             ContainsSubstring("no block within the loop 'k' writes"));
}

TEST_CASE("a reduction in a vectorized loop is each lane's own") {  // TVM's third
  Schedule sch = mm_relu();
  sch.apply("compute_at(block=\"Y\", loop=\"i1\")");
  sch.apply("vectorize(loop=\"i1\")");
  CHECK(sch.home_of("Y") == "i1");
  CHECK_THAT(body(sch), ContainsSubstring("for i1 in 128 vectorize:\n    for ax1 in 128:\n      for ax2 in 128:\n        block Y"));
  CHECK(print(parse(print(sch.program()))) == print(sch.program()));
}

TEST_CASE("lanes of a loop that holds others share nothing") {
  Schedule sch = schedule(
      "program 1 s(A: f32[4, 8], C: out f32[4, 8]):\n  alloc Y: f32[4, 8]\n  for i in 4:\n    for j in 8:\n"
      "      block Y(vi: S(4) = i, vj: S(8) = j):\n        Y[vi, vj] = A[vi, vj]\n"
      "    for j1 in 8:\n      block C(vi: S(4) = i, vj: S(8) = j1):\n        C[vi, vj] = Y[vi, vj] + Y[max(vi - 1, 0), vj]\n");
  CHECK_THAT(
      refused(sch, "vectorize(loop=\"i\")"),
      ContainsSubstring("loop 'i' is vectorized, but at i=0 j=0 Y writes Y[0, 0], and at i=1 j1=0 C reads it; a value of 'Y' "
                        "is written in one iteration and read in another"));
  Schedule mm = mm_relu();
  mm.apply("reorder(loops=[\"k\", \"j\"])");
  CHECK_THAT(refused(mm, "vectorize(loop=\"k\")"), ContainsSubstring("loop 'k' is vectorized, but"));
  mm.apply("vectorize(loop=\"i\")");
  mm.apply("reorder(loops=[\"k\", \"i\"])");
  CHECK_THAT(body(mm), ContainsSubstring("for k in 128:\n    for i in 128 vectorize:\n      for j in 128:"));
}

TEST_CASE("a block that reads no other one moves as a whole") {
  Schedule sch = mm_relu();
  CHECK(sch.apply("reverse_compute_at(block=\"Y\", loop=\"i1\")") == Names{"ax0", "ax1", "ax2"});
  CHECK(body(sch) == R"(  for i1 in 128:
    for ax0 in 128:
      for ax1 in 128:
        for ax2 in 128:
          block Y(vi: S(128) = ax0, vj: S(128) = ax1, vk: R(128) = ax2):
            init:
              Y[vi, vj] = f32(0)
            Y[vi, vj] = Y[vi, vj] + A[vi, vk] * B[vk, vj]
    for j1 in 128:
      block C(vi: S(128) = i1, vj: S(128) = j1):
        C[vi, vj] = maximum(Y[vi, vj], f32(0))
)");
  sch.apply("parallel(loop=\"i1\")");
  Schedule again = mm_relu();
  for (const std::string& line : sch.trace()) again.apply(line);
  CHECK(print(again.program()) == print(sch.program()));

  Schedule others = schedule(
      "program 1 others(A: f32[8], B: f32[N], X: inout f32[8], C: out f32[8], D: out f32[8], E: out f32[N]):\n"
      "  for i in 8:\n    block C(vi: S(8) = i):\n      C[vi] = A[vi]\n  for j in 8:\n    block D(vi: S(8) = j):\n      D[vi] = "
      "C[vi]\n"
      "  for k in 8:\n    block X(vi: S(8) = k):\n      X[vi] = X[vi] + A[vi]\n  for l in N:\n    block E(vi: S(N) = l):\n"
      "      E[vi] = B[vi]\n");
  CHECK_THAT(refused(others, "reverse_compute_at(block=\"X\", loop=\"j\")"), ContainsSubstring("block 'X'"));
  CHECK_THAT(refused(others, "reverse_compute_at(block=\"C\", loop=\"k\")"),
             ContainsSubstring("'C' is repeated, and block 'D' reads C before"));
  CHECK_THAT(refused(others, "reverse_compute_at(block=\"C\", loop=\"l\")"), ContainsSubstring("block 'C' does not run"));
  CHECK_THAT(refused(others, "reverse_compute_at(block=\"D\", loop=\"k\")"),
             ContainsSubstring("no block within the loop 'k' writes what block 'D' reads"));
  others.apply("reverse_compute_at(block=\"E\", loop=\"k\")");  // behind what is there, for nothing reads it
  CHECK_THAT(body(others), ContainsSubstring("X[vi] = X[vi] + A[vi]\n    for ax0 in N:\n      block E(vi: S(N) = ax0):"));
}

TEST_CASE("a reduction that runs backwards keeps its init in front") {
  const std::string text =
      "program 1 back(A: f32[4, 8], C: out f32[4]):\n  for i in 4:\n    for k in 8:\n      block C(vi: S(4) = i, vk: R(8) = 7 - "
      "k):\n"
      "        init:\n          C[vi] = f32(0)\n        C[vi] = C[vi] + A[vi, vk]\n";
  Schedule sch = schedule(text);
  sch.apply("decompose_reduction(block=\"C\", loop=\"k\")");
  CHECK_THAT(body(sch), ContainsSubstring("block C_init(vi: S(4) = i):\n      C[vi] = f32(0)\n    for k in 8:"));
  const std::string by_predicate =
      "program 1 back(A: f32[4, 8], C: out f32[4]):\n  for i in 4:\n    for k in 8:\n      block Z(vi: S(4) = i) if 7 - k == 0:\n"
      "        C[vi] = f32(0)\n      block C(vi: S(4) = i, vk: R(8) = 7 - k):\n        C[vi] = C[vi] + A[vi, vk]\n";
  CHECK_THAT(refusal([&] { schedule(by_predicate); }),
             ContainsSubstring("at i=0 k=0 block 'C' reads C[0], which nothing has written before"));
}

TEST_CASE("an empty reduction still has its init") {
  const std::string text =
      "program 1 empty(A: f32[M, K], C: out f32[M]):\n  for i in M:\n    for k in K:\n      block Z(vi: S(M) = i) if k == 0:\n"
      "        C[vi] = f32(0)\n      block C(vi: S(M) = i, vk: R(K) = k):\n        C[vi] = C[vi] + A[vi, vk]\n";
  CHECK_THAT(refusal([&] { schedule(text); }), ContainsSubstring("block 'Z' does not run at vi=0 (K=0, M=1)"));
  Schedule sch = schedule(
      "program 1 empty(A: f32[M, K], C: out f32[M]):\n  for i in M:\n    for k in K:\n      block C(vi: S(M) = i, vk: R(K) = k):\n"
      "        init:\n          C[vi] = f32(0)\n        C[vi] = C[vi] + A[vi, vk]\n");
  CHECK_THAT(refused(sch, "fuse(loops=[\"i\", \"k\"])"),
             ContainsSubstring("the init of block 'C' does not reach each spatial point (K=0, M=1)"));
  sch.apply("reorder(loops=[\"k\", \"i\"])");
  CHECK_THAT(refused(sch, "decompose_reduction(block=\"C\", loop=\"i\")"),
             ContainsSubstring("loop 'i' is within the loop 'k', which feeds a reduction axis"));
  sch.apply("decompose_reduction(block=\"C\", loop=\"k\")");
  CHECK_THAT(body(sch), ContainsSubstring("for i_init in M:\n    block C_init(vi: S(M) = i_init):"));
}

TEST_CASE("an init does not run where no update does") {
  CHECK_THAT(refusal([] {
               schedule(
                   "program 1 once(A: f32[4, 8], C: out f32[4]):\n  for o in 2:\n    for i in 4:\n      for k in 8:\n"
                   "        block C(vi: S(4) = i, vk: R(8) = k) if o == 0:\n          init:\n            C[vi] = f32(0)\n"
                   "          C[vi] = C[vi] + A[vi, vk]\n");
             }),
             ContainsSubstring("the init of block 'C' runs where no update does"));
}

TEST_CASE("a carried axis keeps its order") {
  Schedule sch = schedule(
      "program 1 sums(x: f32[M, N], y: out f32[M, N]):\n  for i in M:\n    for j in N:\n      block y(vi: S(M) = i, vj: C(N) = "
      "j):\n"
      "        y[vi, vj] = x[vi, vj] + where(vj > 0, y[vi, vj - 1], f32(0))\n");
  sch.apply("split(loop=\"j\", factors=[None, 4])");
  CHECK_THAT(refused(sch, "reorder(loops=[\"j_1\", \"j_0\"])"), ContainsSubstring("y reads y[0, "));
  CHECK_THAT(refused(sch, "vectorize(loop=\"j_1\")"), ContainsSubstring("loop 'j_1' is vectorized, but"));
  sch.apply("reorder(loops=[\"j_0\", \"j_1\", \"i\"])");
  sch.apply("parallel(loop=\"i\")");
}

TEST_CASE("inline and reverse inline") {
  Schedule sch = schedule(chain("8", "A[vi] + f32(1)", "Y[7 - vi] * f32(2)"));
  CHECK_THAT(refused(sch, "reverse_compute_inline(block=\"C\")"),
             ContainsSubstring("expected a different axis as each subscript of its store"));
  sch.apply("compute_inline(block=\"Y\")");
  CHECK(body(sch) == "  for j in 8:\n    block C(vi: S(8) = j):\n      C[vi] = (A[7 - vi] + f32(1)) * f32(2)\n");
  Schedule reverse = schedule(chain("8", "A[vi] + f32(1)", "Y[vi] * f32(2)"));
  reverse.apply("reverse_compute_inline(block=\"C\")");
  CHECK(body(reverse) == "  for i in 8:\n    block Y(vi: S(8) = i):\n      C[vi] = (A[vi] + f32(1)) * f32(2)\n");
  CHECK_THAT(refused(reverse, "compute_inline(block=\"Y\")"),
             ContainsSubstring("block 'Y' writes the tensor 'C'; expected an allocation"));
}

TEST_CASE("a reader of two producers goes into neither") {
  Schedule sch = schedule(
      "program 1 two(A: f32[8], C: out f32[8]):\n  alloc Y: f32[8]\n  alloc Z: f32[8]\n  for i in 8:\n"
      "    block Y(v: S(8) = i):\n      Y[v] = A[v]\n    block Z(v: S(8) = i):\n      Z[v] = A[v] * A[v]\n"
      "    block C(v: S(8) = i):\n      C[v] = Y[v] + Z[v]\n");
  CHECK_THAT(refused(sch, "reverse_compute_inline(block=\"C\")"), ContainsSubstring("block 'C' reads what both 'Y' and 'Z' write"));
}

TEST_CASE("a reader with more points than its producer stays by itself") {
  Schedule sch = schedule(
      "program 1 more(A: f32[2], C: out f32[3]):\n  alloc Y: f32[2]\n  for i in 2:\n    block Y(vi: S(2) = i):\n      Y[vi] = "
      "A[vi]\n"
      "  for j in 3:\n    block C(vi: S(3) = j):\n      C[vi] = where(vi < 2, Y[vi], f32(7))\n");
  CHECK_THAT(refused(sch, "reverse_compute_inline(block=\"C\")"),
             ContainsSubstring("block 'C' has points for which block 'Y' does not run"));
}

TEST_CASE("a value is not computed again after its input has changed") {
  Schedule sch = schedule(
      "program 1 changed(X: inout f32[4], C: out f32[4]):\n  alloc Y: f32[4]\n  for i in 4:\n    block Y(vi: S(4) = i):\n      "
      "Y[vi] = X[vi]\n"
      "  for j in 4:\n    block X(vi: S(4) = j):\n      X[vi] = X[vi] + f32(1)\n  for k in 4:\n    block C(vi: S(4) = k):\n      "
      "C[vi] = Y[vi]\n");
  CHECK_THAT(refused(sch, "compute_inline(block=\"Y\")"),
             ContainsSubstring("block 'X' writes 'X' after block 'Y' and before block 'C'"));
  CHECK_THAT(refused(sch, "compute_at(block=\"Y\", loop=\"k\")"), ContainsSubstring("at j=0 X writes X[0] before Y reads it"));
}

TEST_CASE("caches") {
  Schedule sch = mm_relu();
  CHECK(sch.apply("cache_read(block=\"Y\", buffer=\"A\", scope=\"shared\")") == Names{"A_shared"});
  CHECK(sch.apply("cache_write(block=\"Y\", buffer=\"Y\", scope=\"local\")") == Names{"Y_local"});
  CHECK_THAT(print(sch.program()),
             ContainsSubstring("alloc A_shared: f32[128, 128] shared\n  alloc Y_local: f32[128, 128] local\n"));
  CHECK_THAT(body(sch), ContainsSubstring("Y_local[vi, vj] = Y_local[vi, vj] + A_shared[vi, vk] * B[vk, vj]"));
  sch.apply("compute_at(block=\"A_shared\", loop=\"i\")");
  sch.apply("reverse_compute_at(block=\"Y_local\", loop=\"j\")");
  CHECK(sch.home_of("A_shared") == "i");
  CHECK(sch.home_of("Y_local") == "j");
  CHECK_THAT(refused(sch, "cache_read(block=\"C\", buffer=\"A\")"), ContainsSubstring("block 'C' does not read 'A'"));
  CHECK_THAT(refused(sch, "set_scope(buffer=\"A\", scope=\"local\")"), ContainsSubstring("'A' is a tensor of the caller's"));
}

TEST_CASE("several blocks read one copy") {
  const std::string head = "program 1 f(X: inout f32[4], C: out f32[4]):\n  alloc Y: f32[4]\n  alloc Z: f32[4]\n";
  const auto block = [](const std::string& loop, const std::string& to, const std::string& from) {
    return "  for " + loop + " in 4:\n    block " + to + "(vi: S(4) = " + loop + "):\n      " + to + "[vi] = " + from + "\n";
  };
  Schedule sch = schedule(head + block("i", "Y", "X[vi]") + block("j", "Z", "X[vi] + Y[vi]") + block("k", "X", "Z[vi]") +
                          block("l", "C", "X[vi]"));
  CHECK_THAT(refused(sch, "cache_read(block=\"Y\", buffer=\"X\", consumers=[\"C\"])"),
             ContainsSubstring("block 'X' writes 'X' before the last of the blocks reads it"));
  CHECK_THAT(refused(sch, "cache_read(block=\"Y\", buffer=\"X\", consumers=[\"X\"])"),
             ContainsSubstring("block 'X' does not read 'X'"));
  CHECK_THAT(refused(sch, "cache_read(block=\"Y\", buffer=\"X\", consumers=[\"Q\"])"), ContainsSubstring("'Q'"));
  CHECK_THAT(refused(sch, "cache_write(block=\"Y\", buffer=\"Y\", consumers=[\"Z\"])"), ContainsSubstring("consumers"));
  CHECK(sch.apply("cache_read(block=\"Z\", buffer=\"X\", consumers=[\"Y\"])") == Names{"X_global"});
  CHECK_THAT(body(sch), ContainsSubstring("X_global[v0] = X[v0]"));
  CHECK_THAT(body(sch), ContainsSubstring("Y[vi] = X_global[vi]"));
  CHECK_THAT(body(sch), ContainsSubstring("Z[vi] = X_global[vi] + Y[vi]"));
  CHECK_THAT(body(sch), ContainsSubstring("C[vi] = X[vi]"));
  CHECK(sch.loops("X_global").size() == 1);
}

TEST_CASE("a layout is a map that keeps elements apart") {
  Schedule sch = mm_relu();
  CHECK_THAT(refused(sch, "transform_layout(buffer=\"Y\", map=\"i, j -> i + j\")"),
             ContainsSubstring("the map puts two elements of 'Y'"));
  sch.apply("transform_layout(buffer=\"Y\", map=\"i, j -> i // 8, j, i % 8\")");
  CHECK_THAT(print(sch.program()), ContainsSubstring("alloc Y: f32[16, 128, 8]"));
  CHECK_THAT(body(sch), ContainsSubstring("C[vi, vj] = maximum(Y[vi // 8, vj, vi % 8], f32(0))"));
  const std::string rows =
      "program 1 rows(A: f32[N, N], C: out f32[N, N]):\n  alloc Y: f32[N, N]\n  for i in N:\n    for j in N:\n"
      "      block Y(vi: S(N) = i, vj: S(N) = j):\n        Y[vi, vj] = A[vi, vj]\n      block C(vi: S(N) = i, vj: S(N) = j):\n"
      "        C[vi, vj] = Y[vi, vj]\n";
  for (const auto& [map, shape] :
       {std::pair{"i, j -> i + j, j", "[max(N * 2 - 1, 0), N]"}, {"i, j -> i // 8, j, i % 8", "// 8 + 1, N, 8]"}}) {
    Schedule skewed = schedule(rows);
    skewed.apply("transform_layout(buffer=\"Y\", map=\"" + std::string(map) + "\")");
    CHECK_THAT(print(skewed.program()), ContainsSubstring(shape));
  }
}

TEST_CASE("rfactor") {
  Schedule sch = mm_relu();
  sch.apply("split(loop=\"k\", factors=[None, 48])");
  CHECK(sch.apply("rfactor(loop=\"k_1\")") == Names{"Y_rf"});
  CHECK_THAT(body(sch),
             ContainsSubstring("where(vk_0 * 48 + vk_1 < 128, A[vi, vk_0 * 48 + vk_1] * B[vk_0 * 48 + vk_1, vj], f32(0))"));
  CHECK_THAT(body(sch), ContainsSubstring("Y[vi, vj] = Y[vi, vj] + Y_rf[vk_1, vi, vj]"));
  CHECK_THAT(refused(sch, "rfactor(loop=\"i\")"), ContainsSubstring("rfactor takes a loop of one"));
  sch.apply("reorder(loops=[\"k_1\", \"k_0\"])");
  sch.apply("parallel(loop=\"k_1\")");
  for (const auto& [axis, place] :
       {std::pair{"2", "vi, vj, vk_1"}, {"-1", "vi, vj, vk_1"}, {"1", "vi, vk_1, vj"}, {"-3", "vk_1, vi, vj"}}) {
    Schedule other = mm_relu();
    other.apply("split(loop=\"k\", factors=[None, 48])");
    other.apply("rfactor(loop=\"k_1\", axis=" + std::string(axis) + ")");
    CHECK_THAT(body(other), ContainsSubstring("+ Y_rf[" + std::string(place) + "]"));
  }
  Schedule plain = mm_relu();
  for (const char* axis : {"3", "-4"})
    CHECK_THAT(refused(plain, "rfactor(loop=\"k\", axis=" + std::string(axis) + ")"),
               ContainsSubstring("is no dimension of the partial results; expected -3 to 2"));
}

TEST_CASE("no step takes an argument that it does not know") {
  Schedule sch = mm_relu();
  for (const std::string& step : narrows::program::step_names())
    CHECK_THAT(refused(sch, step + "(unheard=1)"), ContainsSubstring("unknown argument 'unheard'; expected one of: "));
}

TEST_CASE("the steps of loops have their own conditions") {
  Schedule sch = schedule(chain("N", "A[vi]", "Y[vi]"));
  CHECK_THAT(refused(sch, "vectorize(loop=\"i\")"), ContainsSubstring("loop 'i' is vectorized and needs a constant extent, not N"));
  CHECK_THAT(refused(sch, "unroll(loop=\"i\")"), ContainsSubstring("needs a constant extent"));
  CHECK_THAT(refused(sch, "bind(loop=\"i\", thread=\"warp.x\")"), ContainsSubstring("'warp.x' is none of block.x"));
  CHECK_THAT(refused(sch, "reorder(loops=[\"i\", \"j\"])"), ContainsSubstring("are not within each other"));
  CHECK_THAT(refused(sch, "spilt(loop=\"i\", factors=[2])"), ContainsSubstring("did you mean 'split'?"));
  CHECK_THAT(refused(sch, "split(loop=\"i\")"), ContainsSubstring("the argument 'factors' is missing"));
  CHECK_THAT(refused(sch, "split(loop=\"i\", factor=[2])"),
             ContainsSubstring("unknown argument 'factor'; expected one of: loop, factors"));
  CHECK_THAT(refused(sch, "split(loop=\"i\", factors=[2"), ContainsSubstring("column 27: found the end, expected ','"));
  Schedule mm = mm_relu();
  CHECK_THAT(refused(mm, "reorder(loops=[\"k\", xjx])"), ContainsSubstring("column 21: found 'x', expected a string in quotes"));
  mm.apply("bind(loop=\"i\", thread=\"thread.x\")");
  CHECK_THAT(refused(mm, "bind(loop=\"j\", thread=\"threadIdx.x\")"), ContainsSubstring("as is the loop 'i' around it"));
  mm.apply("annotate(block=\"Y\", key=\"unroll\", value=\"4\")");
  CHECK_THAT(body(mm), ContainsSubstring("vk: R(128) = k) {\"unroll\": \"4\"}:"));
}

TEST_CASE("a note keeps its characters, in the text and in the trace") {
  Schedule sch = mm_relu();
  sch.apply(R"(annotate(block="Y", key="k\n\"", value="a\tb\\ \'é"))");
  CHECK_THAT(print(sch.program()), ContainsSubstring(R"({"k\n\"": "a\tb\\ 'é"})"));
  Schedule again = mm_relu();
  for (const std::string& line : sch.trace()) again.apply(line);
  CHECK(print(again.program()) == print(sch.program()));
  CHECK(print(parse(print(mm_relu().program()))) == print(mm_relu().program()));
}

TEST_CASE("a string of a step has no other escapes and no control characters") {
  Schedule mm = mm_relu();
  for (const char* value : {R"(\u0009)", R"(\r)", R"(\x)", R"(\0)"})
    CHECK_THAT(refused(mm, std::string("annotate(block=\"Y\", key=\"k\", value=\"a") + value + "\")"),
               ContainsSubstring("expected \", ', \\, n or t behind a backslash"));
  for (const char* value : {"\r", "\t", "\n", "\x01"})
    CHECK_THAT(refused(mm, std::string("annotate(block=\"Y\", key=\"k\", value=\"a") + value + "\")"),
               ContainsSubstring("expected no control character in a string"));
  CHECK_THAT(refused(mm, "annotate(block=\"Y\", key=\"k\", value=\"\x7f\")"), ContainsSubstring("without control characters"));
}

TEST_CASE("programs without a meaning are refused with the size that shows it") {
  CHECK_THAT(refusal([] { schedule(chain("N", "A[vi + 1]", "Y[vi]")); }),
             ContainsSubstring("at vi=0 block 'Y' reads A[1], out of bounds: dimension 0 of 'A' is 1 (N=1)"));
  CHECK_THAT(refusal([] { schedule(chain("N", "A[vi]", "Y[vi] + where(vi < 5, Y[5], f32(0))")); }),
             ContainsSubstring("out of bounds"));
  CHECK_THAT(refusal([] {
               schedule("program 1 w(A: f32[8], C: out f32[8]):\n  for i in 4:\n    block C(vi: S(4) = i):\n      C[vi] = A[vi]\n");
             }),
             ContainsSubstring("C[4] is never written"));
  CHECK_THAT(refusal([] {
               schedule(
                   "program 1 r(A: f32[8], C: out f32[8]):\n  alloc Y: f32[8]\n  for i in 8:\n    block C(vi: S(8) = i):\n      "
                   "C[vi] = Y[vi]\n"
                   "    block Y(vi: S(8) = i):\n      Y[vi] = A[vi]\n");
             }),
             ContainsSubstring("at i=0 block 'C' reads Y[0], which nothing has written before"));
  // The loop's own element is there, others are not yet.
  const auto in_one_loop = [](const std::string& read, const std::string& loop, const std::string& axis) {
    return "program 1 r(A: f32[8], C: out f32[8]):\n  alloc Y: f32[8]\n  for i in 8:\n    block Y(vi: S(8) = i):\n      Y[vi] = "
           "A[vi]\n" +
           loop + "block C(vi: S(8) = i" + axis + "):\n          C[vi] = Y[" + read + "]\n";
  };
  CHECK(refusal([&] { schedule(in_one_loop("vi", "    for j in 1:\n        ", "")); }).empty());
  CHECK_THAT(refusal([&] { schedule(in_one_loop("7 - vi", "    for j in 1:\n        ", "")); }),
             ContainsSubstring("at i=0 j=0 block 'C' reads Y[7], which nothing has written before"));
  CHECK_THAT(refusal([&] { schedule(in_one_loop("vj", "    for j in 8:\n        ", ", vj: C(8) = j")); }),
             ContainsSubstring("at i=0 j=1 block 'C' reads Y[1], which nothing has written before"));
  CHECK_THAT(refusal([] {
               schedule(
                   "program 1 g(A: f32[V], r: i64[N], C: out f32[N]):\n  for i in N:\n    block C(vi: S(N) = i):\n      C[vi] = "
                   "A[clamp(r[vi], 0, V - 1)]\n");
             }),
             ContainsSubstring("V=0"));
  CHECK_THAT(
      refusal([] {
        schedule(
            "program 1 d(A: f32[8], C: out f32[8]):\n  for i in 8:\n    block C(vi: S(8) = i // 2 * 2):\n      C[vi] = A[vi]\n");
      }),
      ContainsSubstring("block 'C' "));
}

TEST_CASE("local memory belongs to one thread, and shared memory to one block") {
  const std::string text =
      "program 1 own(A: f32[4, 8], C: out f32[4, 8]):\n  alloc Y: f32[4, 8] local\n  for b in 4 bind block.x:\n"
      "    for i in 8 bind thread.x:\n      block Y(vb: S(4) = b, vi: S(8) = i):\n        Y[vb, vi] = A[vb, vi]\n"
      "    for j in 8 bind thread.x:\n      block C(vb: S(4) = b, vi: S(8) = j):\n        C[vb, vi] = Y[vb, vi]\n";
  const auto replaced = [](std::string from, const std::string& old, const std::string& by) {
    return from.replace(from.find(old), old.size(), by);
  };
  const auto scopes = [](const std::string& of) {
    const Schedule sch = schedule(of);
    return refusal([&] { sch.require_scopes(); });
  };
  CHECK(scopes(text).empty());
  const std::string turned = replaced(text, "= Y[vb, vi]", "= Y[vb, 7 - vi]");
  CHECK_THAT(scopes(turned),
             ContainsSubstring("'Y' is local, but Y[0, 0] belongs to two threads: at b=0 i=0 Y uses it, and at b=0 j=7 C"));
  CHECK(scopes(replaced(turned, "local", "shared")).empty());
  CHECK_THAT(scopes(replaced(text, "for j in 8 bind thread.x", "for j in 8")),
             ContainsSubstring("block 'C' uses it outside of the loops that are bound to thread.x"));
  Schedule mm = mm_relu();
  mm.apply("set_scope(buffer=\"Y\", scope=\"local\")");
  mm.apply("bind(loop=\"i\", thread=\"thread.x\")");
  CHECK_THAT(refusal([&] { mm.require_scopes(); }), ContainsSubstring("'Y' is local, but blocks 'Y' and 'C' use it in two nests"));
}

TEST_CASE("a block is not put into one that stores into what it reads") {
  const auto text = [](const std::string& outputs, const std::string& reader) {
    return "program 1 p(X: inout f32[8]" + outputs +
           "):\n  alloc Y: f32[8]\n  for i in 8:\n    block Y(v: S(8) = i):\n      Y[v] = X[v] * f32(2)\n  for j in 8:\n" + reader;
  };
  const auto why = ContainsSubstring("block 'Z' stores into 'X', which block 'Y' reads");
  const std::string two = text(", Z: out f32[8]", "    block Z(v: S(8) = j):\n      X[v] = f32(0)\n      Z[v] = Y[v]\n");
  Schedule stores = schedule(two);
  CHECK_THAT(refused(stores, "compute_inline(block=\"Y\")"), why);
  CHECK_THAT(refused(stores, "reverse_compute_inline(block=\"Z\")"), why);
  schedule_for_cpu(&stores, narrows::program::this_machine());
  CHECK(stores.blocks() == Names{"Y", "Z"});
  Schedule init =
      schedule(text("",
                    "    for k in 4:\n      block Z(v: S(8) = j, r: R(4) = k):\n        init:\n          X[v] = f32(0)\n"
                    "        X[v] = X[v] + Y[v]\n"));
  CHECK_THAT(refused(init, "compute_inline(block=\"Y\")"), why);
  Schedule one = schedule(text("", "    block Z(v: S(8) = j):\n      X[v] = Y[v] + f32(1)\n"));
  CHECK_NOTHROW(one.apply("compute_inline(block=\"Y\")"));
  CHECK_THAT(body(one), ContainsSubstring("X[v] = X[v] * f32(2) + f32(1)"));
}

namespace {

std::string with_index(const std::string& axis, const std::string& index) {
  return "program 1 q(X: f32[8], Z: out f32[8]):\n  for j in 8:\n    block Z(v: S(8) = " + axis + "):\n      Z[v] = X[" + index +
         "]\n";
}

// Y1 = A * A, Y2 = Y1 * Y1, and so on.
std::string squares(int count) {
  std::string declarations, blocks, before = "A";
  for (int i = 1; i <= count; ++i) {
    const std::string n = std::to_string(i), name = i == count ? "C" : "Y" + n;
    if (i < count) declarations += "  alloc " + name + ": f32[8]\n";
    blocks += "  for i" + n + " in 8:\n    block " + name + "(v: S(8) = i" + n + "):\n      " + name + "[v] = " + before +
              "[v] * " + before + "[v]\n";
    before = name;
  }
  return "program 1 squares(A: f32[8], C: out f32[8]):\n" + declarations + blocks;
}

}  // namespace

TEST_CASE("large constants in an index do not wrap") {
  CHECK_THAT(refusal([] { schedule(with_index("j", "(v - v + 4900000000000000000) // 5000000000000000000 - 1")); }),
             ContainsSubstring("block 'Z' reads X[-1], out of bounds"));
  CHECK_NOTHROW(schedule(with_index("j", "(v - v + 4900000000000000000) // 5000000000000000000")));
  CHECK_THAT(refusal([] { schedule(with_index("j + (j * 4294967296 * 4294967296) // 2", "v")); }),
             ContainsSubstring("could not be proven"));
  using namespace narrows::program;
  const ExprPtr large = make_name("n") * (int64_t{1} << 62);
  CHECK_THAT(refusal([&] { simplify(large * 4); }), ContainsSubstring("does not fit in 64 bits"));
  CHECK_THAT(refusal([&] { simplify(large + large); }), ContainsSubstring("does not fit in 64 bits"));
}

TEST_CASE("what steps make is a text that can be read") {
  Schedule sch = schedule(squares(13));
  std::string message;
  for (int i = 1; i < 13 && message.empty(); ++i)
    message = refusal([&] { sch.apply("compute_inline(block=\"Y" + std::to_string(i) + "\")"); });
  CHECK_THAT(message, ContainsSubstring("compute_inline(block=\"Y11\"): the resulting program cannot be kept as text") &&
                          ContainsSubstring("more than 4096 operations"));
  CHECK_NOTHROW(parse(print(sch.program())));
  Schedule automatic = schedule(squares(12));
  schedule_for_cpu(&automatic, narrows::program::this_machine());
  CHECK_NOTHROW(parse(print(automatic.program())));
  CHECK(automatic.blocks() == Names{"Y4", "Y8", "C"});
}

TEST_CASE("many updates of one buffer are verified in seconds") {
  std::string text = "program 1 many(A: f32[8], C: out f32[8]):\n  for i in 8:\n    block C(v: S(8) = i):\n      C[v] = A[v]\n";
  for (int i = 0; i < 400; ++i) {
    const std::string n = std::to_string(i);
    text += "  for i" + n + " in 8:\n    block C" + n + "(v: S(8) = i" + n + "):\n      C[v] = C[v] + A[v]\n";
  }
  const std::clock_t begin = std::clock();  // of this process alone
  CHECK_NOTHROW(schedule(text));
  CHECK(std::clock() - begin < 8 * CLOCKS_PER_SEC);
}

// Each pair of blocks stores into 12 buffers. More than 2^20 of such pairs take memory that no program is worth.
TEST_CASE("blocks that share elements in too many ways are refused") {
  const auto text = [](int blocks) {
    std::string out = "program 1 many(A: f32[8]", stores;
    for (int i = 0; i < 12; ++i) {
      out += ", C" + std::to_string(i) + ": inout f32[8]";
      stores += "      C" + std::to_string(i) + "[v] = A[v]\n";
    }
    out += "):\n";
    for (int i = 0; i < blocks; ++i) {
      const std::string n = std::to_string(i);
      out += "  for i" + n + " in 8:\n    block b" + n + "(v: S(8) = i" + n + "):\n" + stores;
    }
    return out;
  };
  CHECK_NOTHROW(schedule(text(20)));
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // a million of them take long there
  CHECK(refusal([&] { schedule(text(450)); }) ==
        "the order of the program could not be proven: its blocks share elements in too many ways");
#endif
}
