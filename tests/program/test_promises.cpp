// SPDX-License-Identifier: Apache-2.0
// test_promises.cpp -- steps that promise something to a backend and change no value: pad, pipeline, tensorize.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <filesystem>
#include <string>

#include "core/program/text.h"
#include "schedules.h"

using Catch::Matchers::ContainsSubstring;
using narrows::program::parse;
using narrows::program::print;
using narrows::program::Schedule;

TEST_CASE("padding is memory behind a dimension, and no element") {
  Schedule sch = mm_relu();
  sch.apply("cache_read(block=\"Y\", buffer=\"A\", scope=\"shared\")");
  const std::string before = body(sch);
  CHECK(sch.apply("pad(buffer=\"A_shared\", axis=1, elements=8)").empty());
  CHECK_THAT(print(sch.program()), ContainsSubstring("  alloc A_shared: f32[128, 128] shared pad [0, 8]\n"));
  CHECK(body(sch) == before);
  CHECK(print(parse(print(sch.program()))) == print(sch.program()));
  CHECK_THAT(refused(sch, "pad(buffer=\"A\", axis=1, elements=8)"), ContainsSubstring("'A' is a tensor of the caller's"));
  CHECK_THAT(refused(sch, "pad(buffer=\"Y\", axis=2, elements=8)"),
             ContainsSubstring("axis 2 of 'Y'; it has 2 dimensions, of which the first is 0"));
  CHECK_THAT(refused(sch, "pad(buffer=\"Y\", axis=-1, elements=8)"), ContainsSubstring("axis -1 of 'Y'"));
  CHECK_THAT(refused(sch, "pad(buffer=\"Y\", axis=0, elements=-1)"),
             ContainsSubstring("'Y' is padded by -1 elements; expected 0 to 4096"));
  CHECK_THAT(refused(sch, "pad(buffer=\"Y\", axis=0, elements=4097)"), ContainsSubstring("expected 0 to 4096"));
  CHECK_THAT(refused(sch, "pad(buffer=\"Y\", axis=0)"), ContainsSubstring("the argument 'elements' is missing"));
  CHECK_THAT(refused(sch, "transform_layout(buffer=\"A_shared\", map=\"i, j -> j, i\")"),
             ContainsSubstring("'A_shared' is padded along its dimensions as they are; expected transform_layout before pad"));
  sch.apply("pad(buffer=\"A_shared\", axis=0, elements=1)");
  CHECK_THAT(print(sch.program()), ContainsSubstring("shared pad [1, 8]\n"));
  CHECK(sch.apply("cache_read(block=\"Y\", buffer=\"A_shared\", scope=\"local\")") == Names{"A_shared_local"});
  CHECK_THAT(print(sch.program()), ContainsSubstring("alloc A_shared_local: f32[128, 128] local\n"));
  sch.apply("pad(buffer=\"A_shared\", axis=0, elements=0)");
  sch.apply("pad(buffer=\"A_shared\", axis=1, elements=0)");
  CHECK_THAT(print(sch.program()), ContainsSubstring("alloc A_shared: f32[128, 128] shared\n"));
}

namespace {

// Tiles of A and B that are copied within the loop over them.
Schedule tiles_of(const std::string& text, const std::string& factors = "[None, 16]") {
  Schedule sch = schedule(text);
  sch.apply("split(loop=\"k\", factors=" + factors + ")");
  sch.apply("decompose_reduction(block=\"Y\", loop=\"k_0\")");
  for (const char* const buffer : {"A", "B"}) {
    sch.apply("cache_read(block=\"Y\", buffer=\"" + std::string(buffer) + "\", scope=\"shared\")");
    sch.apply("compute_at(block=\"" + std::string(buffer) + "_shared\", loop=\"k_0\")");
  }
  return sch;
}

}  // namespace

TEST_CASE("copies in a pipelined loop run ahead of what uses them") {
  Schedule sch = tiles_of(read_file(std::filesystem::path(TEXTS) / "mm_relu.program"));
  CHECK_THAT(refused(sch, "pipeline(loop=\"k_1\")"),
             ContainsSubstring("loop 'k_1' is pipelined, but its first statement is no copy into an allocated buffer"));
  CHECK(sch.apply("pipeline(loop=\"k_0\", stages=3)").empty());
  CHECK_THAT(body(sch), ContainsSubstring("for k_0 in 8 pipeline 3:\n        for ax"));
  CHECK(print(parse(print(sch.program()))) == print(sch.program()));
  CHECK_THAT(refused(sch, "pipeline(loop=\"k_0\", stages=1)"), ContainsSubstring("loop 'k_0' has 1 stages; expected 2 to 8"));
  CHECK_THAT(refused(sch, "pipeline(loop=\"k_0\", stages=9)"), ContainsSubstring("loop 'k_0' has 9 stages; expected 2 to 8"));
  sch.apply("pipeline(loop=\"k_0\")");
  CHECK_THAT(body(sch), ContainsSubstring("for k_0 in 8 pipeline 2:"));
  sch.apply("compute_at(block=\"A_shared\", loop=\"k_1\")");  // B's copy still runs ahead
  CHECK_THAT(refused(sch, "compute_at(block=\"B_shared\", loop=\"k_1\")"),
             ContainsSubstring("loop 'k_0' is pipelined, but its first statement is no copy into an allocated buffer"));
  sch.apply("split(loop=\"k_0\", factors=[None, 2])");  // the loops that it makes are serial
  CHECK_THAT(body(sch), !ContainsSubstring("pipeline"));
}

TEST_CASE("a pipelined loop's copies are each iteration's own, and read what the loop does not write") {
  const auto text = [](const std::string& copy, const std::string& use, const std::string& more = "") {
    return "program 1 p(A: inout f32[8], C: out f32[8]):\n  alloc Y: f32[8]\n" + more +
           "  for i in 8:\n    block Y(vi: S(8) = i):\n      Y[vi] = " + copy + "\n    block C(vi: S(8) = i):\n      " + use +
           "\n" + "  for j in 8:\n    block A(vj: S(8) = j):\n      A[vj] = f32(1)\n";
  };
  const std::string pipeline = "pipeline(loop=\"i\")";
  Schedule right = schedule(text("A[vi]", "C[vi] = Y[vi]"));
  CHECK_NOTHROW(right.apply(pipeline));
  Schedule computes = schedule(text("A[vi] * f32(2)", "C[vi] = Y[vi]"));
  CHECK_THAT(refused(computes, pipeline), ContainsSubstring("its first statement is no copy into an allocated buffer"));
  Schedule crosses = schedule(text("A[vi]", "C[vi] = Y[max(vi - 1, 0)]"));
  CHECK_THAT(refused(crosses, pipeline),
             ContainsSubstring("loop 'i' is pipelined, but 'Y' cannot be one for each iteration: a value of 'Y' is written in one "
                               "iteration and read in another"));
  Schedule writes = schedule(text("A[vi]", "C[vi] = Y[vi]\n    block D(vi: S(8) = i):\n      A[vi] = Y[vi] + f32(1)"));
  CHECK_THAT(refused(writes, pipeline),
             ContainsSubstring("loop 'i' is pipelined, but block 'Y' copies 'A', which block 'D' of the loop writes"));
  Schedule only = schedule(
      "program 1 p(A: f32[8], C: out f32[8]):\n  alloc Y: f32[8]\n  for i in 8:\n    block Y(vi: S(8) = i):\n"
      "      Y[vi] = A[vi]\n  for j in 8:\n    block C(vj: S(8) = j):\n      C[vj] = Y[vj]\n");
  CHECK_THAT(refused(only, pipeline), ContainsSubstring("all of its statements are copies"));
  // A mark that stands in the text is looked at, too.
  std::string marked = text("A[vi]", "C[vi] = Y[max(vi - 1, 0)]");
  marked.insert(marked.find("for i in 8") + 10, " pipeline 2");
  CHECK_THAT(refusal([&] { schedule(marked); }), ContainsSubstring("'Y' cannot be one for each iteration"));
}

namespace {

std::string product(const std::string& factor, const std::string& sum, const std::string& k = "32") {
  return "program 1 mm(A: " + factor + "[32, " + k + "], B: " + factor + "[" + k + ", 16], Y: out " + sum +
         "[32, 16]):\n  for i in 32:\n    for j in 16:\n      for k in " + k +
         ":\n        block Y(vi: S(32) = i, vj: S(16) = j, vk: R(" + k +
         ") = k):\n          init:\n            Y[vi, vj] = " + sum + "(0)\n          Y[vi, vj] = Y[vi, vj] + " + sum +
         "(A[vi, vk]) * " + sum + "(B[vk, vj])\n";
}

// In tiles of 16x8x16, its init before.
Schedule tiled_product(const std::string& factor, const std::string& sum = "f32", const std::string& k = "32") {
  Schedule sch = schedule(product(factor, sum, k));
  for (const char* const line :
       {"split(loop=\"i\", factors=[None, 16])", "split(loop=\"j\", factors=[None, 8])", "split(loop=\"k\", factors=[None, 16])",
        "reorder(loops=[\"i_0\", \"j_0\", \"k_0\", \"i_1\", \"j_1\", \"k_1\"])", "decompose_reduction(block=\"Y\", loop=\"k_0\")"})
    sch.apply(line);
  return sch;
}

}  // namespace

TEST_CASE("a tensorized nest is the product that the intrinsic computes") {
  const std::string mma = "tensorize(loop=\"i_1\", intrinsic=\"mma.f16.f32\")";
  Schedule sch = tiled_product("f16");
  CHECK(sch.apply(mma).empty());
  CHECK_THAT(body(sch), ContainsSubstring("for i_1 in 16 tensorize \"mma.f16.f32\":\n"));
  CHECK(print(parse(print(sch.program()))) == print(sch.program()));
  CHECK_NOTHROW(schedule(print(sch.program())));
  sch.apply("vectorize(loop=\"j_1\")");  // for a backend without the unit
  sch.apply("parallel(loop=\"i_0\")");
  sch.apply("cache_read(block=\"Y\", buffer=\"A\")");
  sch.apply("compute_at(block=\"A_global\", loop=\"k_0\")");
  CHECK_THAT(
      refused(sch, "split(loop=\"j_1\", factors=[2, 4])"),
      ContainsSubstring("loop 'i_1' is not the product 'mma.f16.f32': the subscript j_0 * 8 + (j_1_0 * 4 + j_1_1) of 'Y' is no "
                        "sum of one of its loops and what is outside of them"));
  CHECK_THAT(refused(sch, "parallel(loop=\"j_1\")"), ContainsSubstring("loop 'j_1' in it is of another kind"));
  CHECK_THAT(refused(sch, "reorder(loops=[\"j_1\", \"i_1\"])"), ContainsSubstring("its loops are a product of 16x1x16"));
  sch.apply("split(loop=\"i_1\", factors=[2, 8])");  // the mark goes with its loop
  CHECK_THAT(body(sch), !ContainsSubstring("tensorize"));
  Schedule bf16 = tiled_product("bf16");
  CHECK_THAT(refused(bf16, mma), ContainsSubstring("the factor f32(A[vi, vk]) is no element of f16"));
  CHECK_NOTHROW(bf16.apply("tensorize(loop=\"i_1\", intrinsic=\"mma.bf16.f32\")"));
  Schedule integers = tiled_product("i8", "i32");
  CHECK_THAT(refused(integers, mma), ContainsSubstring("its sums are i32; expected f32"));
  CHECK_THAT(refused(integers, "tensorize(loop=\"k_1\", intrinsic=\"dot.i8.i32\")"),
             ContainsSubstring("its loops are a product of 1x1x16; expected 1x1x4"));
  integers.apply("split(loop=\"k_1\", factors=[None, 4])");
  CHECK_NOTHROW(integers.apply("tensorize(loop=\"k_1_1\", intrinsic=\"dot.i8.i32\")"));
  CHECK_THAT(refused(integers, "tensorize(loop=\"i_1\", intrinsic=\"mma.f16\")"),
             ContainsSubstring("there is no intrinsic 'mma.f16'; there are: mma.f16.f32, mma.bf16.f32, dot.i8.i32"));
}

TEST_CASE("what is nearly a product is not tensorized") {
  const std::string mma = "tensorize(loop=\"i_1\", intrinsic=\"mma.f16.f32\")";
  Schedule unsplit = schedule(product("f16", "f32"));
  CHECK_THAT(refused(unsplit, "tensorize(loop=\"i\", intrinsic=\"mma.f16.f32\")"),
             ContainsSubstring("block 'Y' has an init; expected decompose_reduction before"));
  Schedule rest = tiled_product("f16", "f32", "33");
  CHECK_THAT(refused(rest, mma),
             ContainsSubstring("block 'Y' runs only if k_0 * 16 + k_1 < 33; expected a block without a condition"));
  const auto one = [](const std::string& value, const std::string& more = "") {
    return schedule(
        "program 1 mm(A: f16[64, 64], B: f16[64, 64], Y: inout f32[16, 8]):\n  for i_1 in 16:\n"
        "    for j in 8:\n      for k in 16:\n        block Y(vi: S(16) = i_1, vj: S(8) = j, vk: R(16) = k):\n"
        "          Y[vi, vj] = Y[vi, vj] + " +
        value + "\n" + more);
  };
  CHECK_NOTHROW(one("f32(A[vi, vk]) * f32(B[vk, vj])").apply(mma));
  CHECK_NOTHROW(one("f32(B[vj, vk]) * f32(A[vk, vi + 3])").apply(mma));
  const auto why = [&](const std::string& value) {
    Schedule sch = one(value);
    return refused(sch, mma);
  };
  CHECK_THAT(why("f32(A[vi, vk])"), ContainsSubstring("expected a sum of products"));
  CHECK_THAT(why("f32(A[vi, vk] * B[vk, vj])"), ContainsSubstring("expected a sum of products"));
  CHECK_THAT(why("f32(A[vi, vk]) * f32(2)"), ContainsSubstring("the factor f32(2) is no element of f16"));
  CHECK_THAT(why("f32(A[vi, vk // 2]) * f32(B[vk, vj])"), ContainsSubstring("the subscript k // 2 of 'A' is no sum of one of its"));
  CHECK_THAT(why("f32(A[vi, vk * 2]) * f32(B[vk, vj])"), ContainsSubstring("the subscript k * 2 of 'A' is no sum of one of its"));
  CHECK_THAT(why("f32(A[vi + vk, 0]) * f32(B[vk, vj])"), ContainsSubstring("the subscript i_1 + k of 'A' is no sum of one of its"));
  CHECK_THAT(why("f32(A[vi, vk]) * f32(B[vi, vj])"), ContainsSubstring("chooses elements of"));
  CHECK_THAT(why("f32(A[vi, 0]) * f32(B[vk, vj])"), ContainsSubstring("loop 'k' chooses elements of 'B'; expected two of the sum"));
  CHECK_THAT(why("f32(A[vi, vi]) * f32(B[vk, vj])"),
             ContainsSubstring("the subscript i_1 of 'A' is moved by loop 'i_1', and another one is, too"));
  CHECK_THAT(why("f32(A[vi, vj]) * f32(B[vi, vk])"), ContainsSubstring("chooses elements of"));
}
