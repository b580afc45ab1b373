// SPDX-License-Identifier: Apache-2.0
// test_rules.cpp -- what one rule alone refuses, and what the reference finds wrong with it; and steps' conditions, each with a
// program that would compute something else without it.
#include <algorithm>

#include "program/schedules.h"
#include "reference/program.h"

using namespace narrows::reference;
using Catch::Matchers::ContainsSubstring;
using narrows::program::parse;
using narrows::program::Program;
using narrows::program::Schedule;
using narrows::test::Exact;

namespace {

// C = A over 8 elements, by one block within the given loops.
std::string copy(const std::string& loops, const std::string& condition = "") {
  return "program 1 f(A: f32[8], C: out f32[8]):\n" + loops + "block C(vi: S(8) = i)" + condition + ":\n        C[vi] = A[vi]\n";
}

std::string refused_program(const std::string& text) {
  return refusal([&] { schedule(text); });
}

Evaluation evaluated(const Program& program) { return evaluate(program, small_integers(program, {}, 1)); }

std::vector<std::string> faults_of(const std::string& text) { return evaluated(parse(text)).faults; }

std::vector<Exact> values_of(const std::string& text, const std::string& buffer = "C") {
  return evaluated(parse(text)).arrays.at(buffer).values;
}

// A step that is taken and keeps the values.
void take(Schedule& sch, const std::string& line) {
  CHECK_NOTHROW(sch.apply(line));
  const Evaluation before = evaluated(sch.original()), after = evaluated(sch.program());
  CHECK(after.faults.empty());
  CHECK(differences(before, after, sch.original()).empty());
}

}  // namespace

TEST_CASE("loops and a condition reach each point of the axes once") {
  const std::string longer = copy("  for i in 9:\n    ");
  CHECK_THAT(refused_program(longer), ContainsSubstring("block 'C' has vi = 8, which is not within 0 <= vi < 8"));
  CHECK(!faults_of(longer).empty());
  const auto missing = ContainsSubstring("block 'C' does not run at vi=4");
  for (const std::string& text : {copy("  for i in 4:\n    "), copy("  for i in 8:\n    ", " if i < 4")}) {
    CHECK_THAT(refused_program(text), missing);
    CHECK(!faults_of(text).empty());
  }
  const std::string twice = copy("  for t in 2:\n    for i in 8:\n      ");
  CHECK_THAT(refused_program(twice), ContainsSubstring("block 'C' does not run exactly once for each point of its axes"));
  CHECK(evaluated(parse(twice)).blocks.at("C").points.at({0}) == 2);
}

// An init runs before the loops of its reduction: in each iteration of t.
TEST_CASE("a reduction that comes in parts has no init in each of them") {
  const std::string begin = "program 1 f(A: f32[8], C: out f32[1]):\n", init = "C[vi] = f32(0)\n",
                    update = "C[vi] = C[vi] + A[vk]\n";
  const std::string sum = "block C(vi: S(1) = 0, vk: R(8) = k)", part = " if k // 4 == t";
  const auto text = [&](const std::string& loops, const std::string& block) {
    return begin + loops + block + ":\n        init:\n          " + init + "        " + update;
  };
  CHECK_THAT(refused_program(text("  for t in 2:\n    for k in 8:\n      ", sum + part)),
             ContainsSubstring("block 'C' is repeated, but not as a whole reduction each time"));
  const std::string as_it_runs = begin + "  for t in 2:\n    block Z(vi: S(1) = 0):\n      " + init + "    for k in 8:\n      " +
                                 sum + part + ":\n        " + update;
  CHECK(values_of(as_it_runs) != values_of(text("  for k in 8:\n    ", sum)));
}

TEST_CASE("points of spatial axes have elements of their own") {
  const std::string text =
      "program 1 f(A: f32[8], C: out f32[4]):\n  for i in 8:\n    block C(vi: S(8) = i):\n      C[vi // 2] = A[vi]\n";
  CHECK_THAT(refused_program(text),
             ContainsSubstring("axis 'vi' of block 'C' is spatial, but at vi=0 and at vi=1 it touches one element, C[0]"));
  CHECK(!faults_of(text).empty());
}

// Does the init come before the whole loop, or right before the first update? D would see it.
TEST_CASE("what an init sets belongs to its block until the reduction is complete") {
  const std::string begin = "program 1 f(A: f32[4], C: inout f32[1], D: out f32[4]):\n", loop = "  for k in 4:\n    ",
                    reader = "block D(vk: S(4) = k):\n      D[vk] = C[0]\n", update = "      C[0] = C[0] + A[vk]\n";
  const std::string inside = begin + loop + reader + "    block C(vk: R(4) = k):\n      init:\n        C[0] = f32(0)\n" + update;
  CHECK_THAT(refused_program(inside),
             ContainsSubstring("at k=0 block 'D' reads C[0] within the reduction of block 'C', whose init sets it"));
  const std::string before = begin + "  for z in 1:\n    block Z(vz: S(1) = z):\n      C[vz] = f32(0)\n" + loop + reader +
                             "    block C(vk: R(4) = k):\n" + update;
  CHECK(values_of(inside, "D") != values_of(before, "D"));
}

TEST_CASE("shared memory is read where it was written, also in one kernel") {
  const std::string text =
      "program 1 f(A: f32[4], C: out f32[4]):\n  alloc Y: f32[4] shared\n  for o in 1:\n    for b in 4 bind block.x:\n"
      "      block Y(vo: S(1) = o, vb: S(4) = b):\n        Y[vb] = A[vb]\n    for d in 4 bind block.x:\n"
      "      block C(vo: S(1) = o, vd: S(4) = d):\n        C[vd] = Y[3 - vd]\n";
  CHECK_THAT(refusal([&] { schedule(text).require_scopes(); }),
             ContainsSubstring("'Y' is shared and cannot be one for each iteration of the loop 'b', which is bound to block.x"));
  CHECK(!faults_of(text).empty());
}

TEST_CASE("a sum that goes on in another iteration is not each iteration's own") {
  Schedule sch = schedule(
      "program 1 f(A: f32[8], C: out f32[1]):\n  alloc Y: f32[1]\n  for t in 2:\n    block Z(vi: S(1) = 0) if t == 0:\n"
      "      Y[vi] = f32(0)\n    for k in 4:\n      block Y(vi: S(1) = 0, vk: R(8) = t * 4 + k):\n        Y[vi] = Y[vi] + A[vk]\n"
      "    block C(vi: S(1) = 0) if t == 1:\n      C[vi] = Y[vi]\n");
  CHECK_THAT(refused(sch, "parallel(loop=\"t\")"),
             ContainsSubstring("a value of 'Y' is written in one iteration and read in another"));
  CHECK_THAT(refused(sch, "parallel(loop=\"k\")"),
             ContainsSubstring("'Y' is used by block 'Z', too, which is not within the loop"));
}

TEST_CASE("a sum that nothing reads has one init for all iterations, too") {
  Schedule sch = schedule(
      "program 1 f(A: f32[8], C: out f32[8]):\n  alloc Y: f32[1]\n  for k in 8:\n    block Y(vk: R(8) = k):\n      init:\n"
      "        Y[0] = f32(0)\n      Y[0] = Y[0] + A[vk]\n  for i in 8:\n    block C(vi: S(8) = i):\n      C[vi] = A[vi]\n");
  CHECK_THAT(refused(sch, "parallel(loop=\"k\")"), ContainsSubstring("the init of block 'Y' runs before the loop"));
}

TEST_CASE("a split keeps a loop's own end where no axis has it") {
  Schedule sch = schedule(
      "program 1 f(A: f32[2, 3], C: inout f32[2, 3]):\n  for i in 6:\n    block C(va: S(2) = i % 2, vb: S(3) = i % 3):\n"
      "      C[va, vb] = C[va, vb] + A[va, vb]\n");
  take(sch, "split(loop=\"i\", factors=[None, 4])");
  CHECK_THAT(body(sch), ContainsSubstring("if i_0 * 4 + i_1 < 6:"));
}

TEST_CASE("a reduction is not put into the block before it") {
  Schedule sch = schedule(
      "program 1 f(A: f32[8], C: inout f32[8]):\n  alloc Y: f32[8, 1]\n  for i in 8:\n    block Y(vi: S(8) = i, vu: S(1) = 0):\n"
      "      Y[vi, vu] = A[vi]\n  for j in 8:\n    for k in 1:\n      block C(vi: S(8) = j, vk: R(1) = k):\n        init:\n"
      "          C[vi] = f32(0)\n        C[vi] = C[vi] + Y[vi, vk]\n");
  CHECK_THAT(refused(sch, "reverse_compute_inline(block=\"C\")"),
             ContainsSubstring("block 'C' has an R or C axis, or an init; expected S axes only"));
}

TEST_CASE("reverse_compute_inline takes the one reader, and all that its producer writes") {
  const auto text = [](const std::string& shape, const std::string& rest) {
    return "program 1 f(A: f32[8], C: out f32[8], D: out f32[8]):\n  alloc Y: f32[" + shape + "]\n" + rest;
  };
  const std::string producer = "  for i in 8:\n    block Y(vi: S(8) = i):\n      Y[vi] = A[vi]\n",
                    second = "  for l in 8:\n    block D(vi: S(8) = l):\n      D[vi] = ";
  Schedule two = schedule(
      text("8", producer + "  for j in 8:\n    block C(vi: S(8) = j):\n      C[vi] = Y[vi]\n" + second + "Y[vi] + f32(1)\n"));
  CHECK_THAT(refused(two, "reverse_compute_inline(block=\"C\")"), ContainsSubstring("'Y' has other readers than 'C'"));
  Schedule less = schedule(text("8", "  for k in 4:\n    block E(vi: S(4) = k):\n      C[vi + 4] = f32(7)\n" + producer +
                                         "  for j in 4:\n    block C(vi: S(4) = j):\n      C[vi] = Y[vi]\n" + second + "A[vi]\n"));
  CHECK_THAT(refused(less, "reverse_compute_inline(block=\"C\")"),
             ContainsSubstring("block 'Y' writes elements of 'Y' that block 'C' does not read"));
}

TEST_CASE("a copy back overwrites nothing of another block") {
  Schedule sch = schedule(
      "program 1 f(A: f32[8], B: f32[8], C: out f32[8]):\n  for i in 8:\n    block X(vi: S(8) = i):\n      C[vi] = A[vi]\n"
      "    block Z(vi: S(8) = i):\n      C[vi] = B[vi]\n");
  CHECK_THAT(refused(sch, "cache_write(block=\"X\", buffer=\"C\")"), ContainsSubstring("'C' is written by block 'Z', too"));
}

TEST_CASE("a copy stands where its own nest is over") {
  Schedule sch = schedule(
      "program 1 f(A: f32[4], X: inout f32[4], C: out f32[4]):\n  for i in 4:\n    block X(vi: S(4) = i):\n      X[vi] = A[vi]\n"
      "    block C(vi: S(4) = i):\n      C[vi] = X[vi]\n");
  CHECK_THAT(refused(sch, "cache_read(block=\"C\", buffer=\"X\")"),
             ContainsSubstring("block 'X' writes 'X' within the same loops as block 'C'"));
  CHECK_THAT(refused(sch, "cache_write(block=\"X\", buffer=\"X\")"),
             ContainsSubstring("block 'C' reads 'X' within the same loops as block 'X'"));
}

TEST_CASE("the last of two writes stays the last") {
  Schedule sch = schedule(
      "program 1 f(A: f32[4], B: f32[4], C: out f32[4]):\n  for i in 4:\n    block X(vi: S(4) = i):\n      C[vi] = A[vi]\n"
      "  for j in 4:\n    block Z(vi: S(4) = j):\n      C[vi] = B[vi]\n");
  CHECK_THAT(refused(sch, "reverse_compute_at(block=\"X\", loop=\"j\")"),
             ContainsSubstring("at j=0 Z writes C[0] before X writes it"));
}

TEST_CASE("loops that hold more than one another are not one") {
  Schedule sch = mm_relu();
  sch.apply("reverse_compute_at(block=\"C\", loop=\"i\")");
  for (const char* step : {"fuse", "reorder"})
    CHECK_THAT(refused(sch, std::string(step) + "(loops=[\"i\", \"j\"])"),
               ContainsSubstring("loop 'i' holds more than the loop 'j'"));
}

TEST_CASE("the elements of a layout begin at 0") {
  Schedule sch = mm_relu();
  for (const char* row : {"i - 1", "i + 1"})
    CHECK_THAT(refused(sch, "transform_layout(buffer=\"Y\", map=\"i, j -> " + std::string(row) + ", j\")"),
               ContainsSubstring("the least value of '" + std::string(row) + "' has to be 0"));
}

TEST_CASE("rfactor takes a loop of a reduction alone") {
  Schedule sch = mm_relu();
  CHECK_THAT(refused(sch, "rfactor(loop=\"j1\")"),
             ContainsSubstring("loop 'j1' has to feed reduction axes of block 'C', and no other"));
  sch.apply("fuse(loops=[\"j\", \"k\"])");
  CHECK_THAT(refused(sch, "rfactor(loop=\"j_k_fused\")"),
             ContainsSubstring("has to feed reduction axes of block 'Y', and no other"));
  Schedule twice = schedule(  // the loop j alone has two iterations for each vk
      "program 1 f(A: f32[4, 2], C: out f32[1]):\n  for k in 2:\n    for j in 4:\n"
      "      block C(vk: R(4) = k + 2 * (j % 2), vm: R(2) = j // 2):\n        init:\n          C[0] = f32(0)\n"
      "        C[0] = C[0] + A[vk, vm]\n");
  CHECK_THAT(refused(twice, "rfactor(loop=\"k\")"), ContainsSubstring("block 'C' would reduce a point twice"));
  Schedule carried = schedule(  // the sums of each vc come one after the other
      "program 1 f(A: f32[4, 4], C: out f32[1]):\n  for c in 4:\n    for k in 4:\n      block C(vc: C(4) = c, vk: R(4) = k):\n"
      "        init:\n          C[0] = f32(0)\n        C[0] = C[0] + A[vc, vk]\n");
  CHECK_THAT(refused(carried, "rfactor(loop=\"k\")"), ContainsSubstring("block 'C' is no reduction by one store"));
}
